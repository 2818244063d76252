//! The README's demo, as a user runs it: three pushes end promoted, blocked, promoted.

use std::process::Stdio;

use serde_json::Value;
use sluice_tests::sluice_binary;
use tokio::process::Command;

#[tokio::test]
async fn the_demo_promotes_blocks_and_promotes() {
    let xtask = sluice_binary().with_file_name("xtask");
    let data = tempfile::Builder::new().prefix("sluice-demo-").tempdir().expect("temporary folder");
    std::fs::set_permissions(data.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("permissions");
    let summary = data.path().join("summary.json");
    let output = Command::new(xtask)
        .args(["demo", "--exit", "--listen", "127.0.0.1:0", "--data"])
        .arg(data.path().join("data"))
        .arg("--summary")
        .arg(&summary)
        .stdin(Stdio::null())
        .output()
        .await
        .expect("run the demo");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{said}");
    assert!(output.status.success(), "{said}");

    let summary: Value = serde_json::from_str(&std::fs::read_to_string(&summary).expect("the summary")).expect("JSON");
    let pushes = summary["pushes"].as_array().expect("pushes");
    let outcomes: Vec<&str> = pushes.iter().map(|push| push["outcome"].as_str().expect("outcome")).collect();
    assert_eq!(outcomes, ["promoted", "blocked", "promoted"]);
    let [good, worse, better] = pushes.as_slice() else { panic!("three pushes") };

    // without a champion the gate asks a person, and the demo shows that it does
    assert_eq!(good["approved_by_demo"], true);
    assert!(said.contains("sluice approve digits 1"));
    assert_eq!(worse["approved_by_demo"], false);
    assert_eq!(better["approved_by_demo"], false);

    // the blocked push names the check, the value and the limit, in one line
    assert_eq!(worse["failing_check"], "metric_threshold test_accuracy");
    let (value, limit) = (worse["value"].as_f64().expect("value"), worse["limit"].as_f64().expect("limit"));
    assert!(value < limit, "{value} is below {limit}");
    let reason = worse["reason"].as_str().expect("reason");
    assert!(reason.contains("test_accuracy") && reason.contains("0.95") && !reason.contains('\n'), "{reason}");

    // and changes nothing: neither the champion nor what is served
    assert_eq!(good["champion_version"], 1);
    assert_eq!(worse["champion_version"], 1);
    for same in ["served_version", "served_sha256", "scores", "prediction"] {
        assert_eq!(worse[same], good[same], "{same} after the blocked push");
    }

    // the better one is served by its own file
    assert_eq!(better["champion_version"], 3);
    assert_eq!(better["served_version"], "3");
    assert_ne!(better["served_sha256"], good["served_sha256"]);
    for push in pushes {
        assert_eq!(push["prediction"], 0, "the image shows a 0");
    }
}
