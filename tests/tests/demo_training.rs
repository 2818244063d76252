//! The demo project's training, and the ONNX export script, in the Python that runners use.

use sluice_tests::{python, repository_root};
use tokio::process::Command;

/// Runs a Python program of this repository, and gives what it printed.
async fn run(arguments: &[&str]) -> String {
    let output = Command::new(python())
        .args(arguments)
        .current_dir(repository_root())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .await
        .expect("start Python");
    let (printed, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {}\n{printed}\n{errors}", output.status);
    println!("{printed}");
    printed.into_owned()
}

#[tokio::test]
async fn two_processes_compute_what_one_computes_and_bf16_is_accurate_enough() {
    let printed = run(&["tests/scripts/ddp_equality.py", "demo/project"]).await;
    let found: serde_json::Value = serde_json::from_str(printed.trim()).expect("one line of JSON");
    assert!(found["loss_relative_difference"].as_f64().expect("a number") <= 1e-4, "{found}");
    assert!(found["amp_accuracy"].as_f64().expect("a number") >= 0.95, "{found}");
}

#[tokio::test]
async fn onnx_export_judges_dynamic_frozen_and_broken_models() {
    run(&["tests/scripts/export_cases.py", "runner/src/export_onnx.py"]).await;
}
