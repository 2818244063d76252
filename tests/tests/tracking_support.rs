//! What the tests of the tracking API share.

use serde_json::{Value, json};
use sluice_tests::{Answer, TestServer};

/// POST to MLflow's API.
pub async fn post(server: &TestServer, path: &str, body: Value) -> Answer {
    server.post(&format!("/api/2.0/mlflow/{path}"), &body).await
}

/// GET from MLflow's API.
pub async fn get(server: &TestServer, path: &str) -> Answer {
    server.get(&format!("/api/2.0/mlflow/{path}")).await
}

/// POST that must answer 200.
pub async fn ok(server: &TestServer, path: &str, body: Value) -> Value {
    let shown = body.to_string();
    let answer = post(server, path, body).await;
    assert_eq!(answer.status, 200, "{path} {shown}: {}", answer.body);
    answer.body
}

/// Creates an experiment.
pub async fn new_experiment(server: &TestServer, name: &str) -> String {
    text(&ok(server, "experiments/create", json!({ "name": name })).await["experiment_id"])
}

/// Creates a run.
pub async fn new_run(server: &TestServer, experiment: &str, name: &str) -> String {
    let run = ok(server, "runs/create", json!({ "experiment_id": experiment, "run_name": name, "start_time": 1000 })).await;
    text(&run["run"]["info"]["run_id"])
}

/// A run as runs/get shows it.
pub async fn run(server: &TestServer, id: &str) -> Value {
    get(server, &format!("runs/get?run_id={id}")).await.expect(200)["run"].clone()
}

/// A string value.
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("not a string: {value}")).to_owned()
}

/// The value of the item with this key in a list of `{key, value}`.
pub fn value_of<'a>(list: &'a Value, key: &str) -> Option<&'a Value> {
    list.as_array()?.iter().find(|item| item["key"] == key).map(|item| &item["value"])
}

/// Checks MLflow's error shape.
pub fn assert_refused(answer: &Answer, status: u16, code: &str, part: &str) {
    assert_eq!(answer.status, status, "{}", answer.body);
    assert_eq!(answer.body["error_code"], code, "{}", answer.body);
    let message = answer.body["message"].as_str().unwrap_or_default();
    assert!(message.contains(part), "{message:?} does not say {part:?}");
}
