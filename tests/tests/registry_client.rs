//! The unmodified MLflow client from PyPI against a server.

use sluice_tests::{TestServer, python, repository_root};

#[tokio::test]
async fn the_mlflow_client_logs_registers_aliases_and_loads_back() {
    let server = TestServer::start().await;
    let output = tokio::process::Command::new(python())
        .arg(repository_root().join("tests/scripts/mlflow_client.py"))
        .args(["--url", &server.url])
        .output()
        .await
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    let summary: serde_json::Value = serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap();
    assert_eq!(summary["metric_points"], 1000);

    // what the script moved by hand is in the history of the aliases
    let name = summary["models"][0].as_str().unwrap();
    let moves: Vec<(Option<i32>, Option<i32>, String)> =
        sqlx::query_as("SELECT from_version, to_version, reason FROM model_alias_moves WHERE model_name = $1 ORDER BY id")
            .bind(name)
            .fetch_all(&server.pool)
            .await
            .unwrap();
    let shown: Vec<_> = moves.iter().map(|(from, to, reason)| (*from, *to, reason.as_str())).collect();
    let api = "set over the API";
    assert_eq!(shown, [(None, Some(1), api), (Some(1), Some(2), api), (Some(2), None, "the version was deleted"), (None, Some(3), api)]);
}
