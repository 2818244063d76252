//! Bad input to the tracking API: each row is refused with 4xx, says which field is wrong, and stores nothing.

use serde_json::{Value, json};
use sluice_tests::TestServer;

use crate::tracking_support::{assert_refused, new_experiment, new_run, post};

/// Rows of every table that the tracking API writes to.
async fn stored(server: &TestServer) -> Vec<(String, i64)> {
    let mut counts = Vec::new();
    for table in ["experiments", "experiment_tags", "runs", "run_tags", "run_params", "metric_series", "metric_points"] {
        let count = sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table}"))).fetch_one(&server.pool).await.unwrap();
        counts.push((table.to_owned(), count));
    }
    counts
}

#[tokio::test]
async fn bad_input_is_refused_by_name_and_stores_nothing() {
    let server = TestServer::start().await;
    let experiment = new_experiment(&server, "bad input").await;
    let id = new_run(&server, &experiment, "bad input").await;
    let before = stored(&server).await;
    let metric = |change: Value| {
        let mut metric = json!({ "key": "m", "value": 1.0, "timestamp": 1, "step": 1 });
        metric.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        metric
    };
    let log_metric = |change: Value| {
        let mut body = metric(change);
        body["run_id"] = json!(id);
        body
    };
    let many = |n: usize, item: fn(usize) -> Value| Value::from((0..n).map(item).collect::<Vec<_>>());
    let long = "k".repeat(251);
    let rows: Vec<(&str, Value, &str)> = vec![
        ("experiments/create", json!({}), "Missing value for required parameter 'name'"),
        ("experiments/create", json!({ "name": "" }), "'name'"),
        ("experiments/create", json!({ "name": "   " }), "'name' must not be blank"),
        ("experiments/create", json!({ "name": 5 }), "Invalid value 5 for parameter 'name' supplied:  Hint: Value was of type 'int'."),
        ("experiments/create", json!({ "name": "n".repeat(501) }), "'name' exceeds the maximum length of 500 characters"),
        ("experiments/create", json!({ "name": "x", "artifact_location": "runs:/abc" }), "Artifact location cannot be a runs:/ URI"),
        ("experiments/create", json!({ "name": "x", "artifact_location": "file:///a/../b" }), "artifact_location"),
        ("experiments/create", json!({ "name": "x", "tags": [{ "value": "v" }] }), "'tags[0].key'"),
        (
            "experiments/create",
            json!({ "name": "x", "tags": [{ "key": "k", "value": "v".repeat(20_001) }] }),
            "'value' exceeds the maximum length of 20000",
        ),
        ("experiments/create", json!({ "name": "nul\u{0}" }), "'name'"),
        ("experiments/delete", json!({ "experiment_id": "abc" }), "Invalid experiment ID 'abc'. Experiment ID must be a valid integer."),
        ("experiments/update", json!({ "experiment_id": experiment }), "'new_name'"),
        ("experiments/set-experiment-tag", json!({ "experiment_id": experiment, "key": "a%b", "value": "" }), "'key'"),
        ("runs/create", json!({ "experiment_id": "" }), "'experiment_id'"),
        ("runs/create", json!({ "experiment_id": experiment, "start_time": "soon" }), "'start_time'"),
        ("runs/create", json!({ "experiment_id": experiment, "run_name": "n".repeat(251) }), "'run_name' exceeds"),
        ("runs/create", json!({ "experiment_id": experiment, "tags": "none" }), "'tags'"),
        ("runs/create", json!({ "experiment_id": experiment, "tags": [5] }), "'tags[0]'"),
        ("runs/update", json!({ "status": "FINISHED" }), "'run_id'"),
        ("runs/update", json!({ "run_id": id, "status": "BOGUS" }), "'status'"),
        ("runs/update", json!({ "run_id": id, "end_time": 1.5 }), "'end_time'"),
        ("runs/update", json!({ "run_id": id, "runId": id }), "Request specifies both 'run_id' and 'runId'"),
        ("runs/log-metric", log_metric(json!({ "key": null })), "'key'"),
        ("runs/log-metric", log_metric(json!({ "value": null })), "'value'"),
        ("runs/log-metric", log_metric(json!({ "value": "high" })), "'value'"),
        (
            "runs/log-metric",
            log_metric(json!({ "value": true })),
            "Invalid value true for parameter 'value' supplied:  Hint: Value was of type 'bool'.",
        ),
        ("runs/log-metric", log_metric(json!({ "timestamp": null })), "'timestamp'"),
        ("runs/log-metric", log_metric(json!({ "timestamp": 6.5 })), "'timestamp'"),
        ("runs/log-metric", log_metric(json!({ "timestamp": -1 })), "Timestamp must be a nonnegative long"),
        ("runs/log-metric", log_metric(json!({ "timestamp": 1e19 })), "'timestamp'"),
        ("runs/log-metric", log_metric(json!({ "step": "9223372036854775808" })), "'step'"),
        ("runs/log-metric", log_metric(json!({ "key": "../up" })), "'name' supplied: Names may be treated as files"),
        ("runs/log-metric", log_metric(json!({ "key": "a$" })), "Names may only contain alphanumerics"),
        ("runs/log-metric", log_metric(json!({ "key": long })), "'Metric name' exceeds the maximum length of 250 characters"),
        ("runs/log-parameter", json!({ "run_id": id, "key": long, "value": "v" }), "'Param key' exceeds"),
        ("runs/log-parameter", json!({ "run_id": id, "key": "k", "value": 5 }), "'value'"),
        ("runs/set-tag", json!({ "run_id": id, "value": "v" }), "'key'"),
        ("runs/set-tag", json!({ "run_id": id, "key": "/abs", "value": "v" }), "'key' supplied: Names may be treated"),
        ("runs/delete-tag", json!({ "run_id": id }), "'key'"),
        ("runs/log-batch", json!({ "metrics": [] }), "'run_id'"),
        ("runs/log-batch", json!({ "run_id": "a b" }), "'run_id'"),
        ("runs/log-batch", json!({ "run_id": id, "metrics": [metric(json!({})), metric(json!({ "value": null }))] }), "'metrics[1].value'"),
        ("runs/log-batch", json!({ "run_id": id, "metrics": [metric(json!({ "key": "a%" }))] }), "'metrics[0].name'"),
        ("runs/log-batch", json!({ "run_id": id, "metrics": {} }), "'metrics'"),
        (
            "runs/log-batch",
            json!({ "run_id": id, "params": [{ "key": "a", "value": "1" }, { "key": "b%", "value": "1" }] }),
            "'params[1].key'",
        ),
        (
            "runs/log-batch",
            json!({ "run_id": id, "params": [{ "key": "a", "value": "1" }, { "key": "a", "value": "1" }] }),
            "Duplicate parameter keys have been submitted: ['a']",
        ),
        ("runs/log-batch", json!({ "run_id": id, "tags": [{ "key": "", "value": "1" }] }), "'tags[0].key'"),
        (
            "runs/log-batch",
            json!({ "run_id": id, "metrics": many(1001, |i| json!({ "key": "m", "value": i, "timestamp": i })) }),
            "at most 1000 metrics. Got 1001 metrics.",
        ),
        (
            "runs/log-batch",
            json!({ "run_id": id, "params": many(101, |i| json!({ "key": format!("p{i}"), "value": "" })) }),
            "at most 100 params. Got 101 params.",
        ),
        (
            "runs/log-batch",
            json!({ "run_id": id, "tags": many(101, |i| json!({ "key": format!("t{i}"), "value": "" })) }),
            "at most 100 tags. Got 101 tags.",
        ),
        (
            "runs/log-batch",
            json!({ "run_id": id, "metrics": many(950, |i| json!({ "key": "m", "value": i, "timestamp": i })), "tags": many(51, |i| json!({ "key": format!("t{i}"), "value": "" })) }),
            "at most 1000 metrics, params, and tags. Got 1001",
        ),
        ("runs/search", json!({ "experiment_ids": ["x"] }), "Invalid experiment ID 'x'"),
        ("runs/search", json!({ "experiment_ids": "0" }), "'experiment_ids'"),
        ("runs/search", json!({ "experiment_ids": ["0"], "max_results": 50_001 }), "'max_results'"),
        ("runs/search", json!({ "experiment_ids": ["0"], "max_results": 0 }), "'max_results'"),
        ("runs/search", json!({ "experiment_ids": ["0"], "filter": "metrics.m > 'x'" }), "Expected numeric value type for metric"),
        ("runs/search", json!({ "experiment_ids": ["0"], "filter": "params.p LIKE 'x\\" }), "Invalid clause(s)"),
        ("runs/search", json!({ "experiment_ids": ["0"], "filter": "params.p LIKE '\\'" }), "escape"),
        ("runs/search", json!({ "experiment_ids": ["0"], "filter": "a; DROP TABLE runs" }), "attribute key 'a'"),
        ("runs/search", json!({ "experiment_ids": ["0"], "order_by": ["metrics.m SIDEWAYS"] }), "Invalid ordering key in order_by clause"),
        ("runs/search", json!({ "experiment_ids": ["0"], "order_by": ["dataset.name"] }), "Invalid identifier type 'dataset'"),
        ("runs/search", json!({ "experiment_ids": ["0"], "order_by": ["start_time", "created"] }), "duplicate fields"),
        ("runs/search", json!({ "experiment_ids": ["0"], "page_token": "AAAA" }), "Invalid page token"),
        ("runs/search", json!({ "experiment_ids": ["0"], "run_view_type": "SOME" }), "'run_view_type'"),
        ("runs/log-model", json!({ "run_id": id, "model_json": "{" }), "Malformed model info"),
    ];
    for (path, body, part) in rows {
        let shown: String = body.to_string().chars().take(200).collect();
        let answer = post(&server, path, body).await;
        assert_eq!(answer.status, 400, "{path} {shown}: {}", answer.body);
        assert_refused(&answer, 400, "INVALID_PARAMETER_VALUE", part);
    }

    let unknown = "0123456789abcdef0123456789abcdef";
    for (path, body) in [
        ("runs/update", json!({ "run_id": unknown, "status": "FINISHED" })),
        ("runs/log-metric", json!({ "run_id": unknown, "key": "m", "value": 1, "timestamp": 1 })),
        ("runs/log-batch", json!({ "run_id": unknown, "tags": [{ "key": "a", "value": "b" }] })),
        ("runs/delete", json!({ "run_id": "'; DROP TABLE runs; --" })),
    ] {
        assert_refused(&post(&server, path, body).await, 404, "RESOURCE_DOES_NOT_EXIST", "not found");
    }

    let raw = async |body: Vec<u8>, content_type: Option<&str>| {
        let mut request = server.request(reqwest::Method::POST, "/api/2.0/mlflow/experiments/create").body(body);
        if let Some(content_type) = content_type {
            request = request.header("Content-Type", content_type);
        }
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    for (body, content_type, status, part) in [
        (b"{x".to_vec(), Some("application/json"), 400, "not valid JSON"),
        (b"[1]".to_vec(), Some("application/json"), 400, "must be a JSON object"),
        (b"\xff\xfe".to_vec(), Some("application/json"), 400, "not valid JSON"),
        (b"{}".to_vec(), None, 400, "Content-Type header is missing."),
        (b"{}".to_vec(), Some("text/plain"), 400, "Content-Type must be one of ['application/json']."),
        (vec![b' '; 4 * 1024 * 1024 + 1], Some("application/json"), 413, "larger than the limit of 4194304 bytes"),
        ("[".repeat(100_000).into_bytes(), Some("application/json"), 400, "not valid JSON"),
    ] {
        let (found, answer) = raw(body, content_type).await;
        assert_eq!((found, &answer["error_code"]), (status, &json!("INVALID_PARAMETER_VALUE")), "{answer}");
        assert!(answer["message"].as_str().unwrap().contains(part), "{answer}");
    }
    for path in ["/api/2.0/mlflow/no/such", "/ajax-api/2.0/mlflow/runs/nothing", "/api/3.0/mlflow/traces", "/api/2.0/other"] {
        let answer = server.get(path).await;
        assert_eq!((answer.status, &answer.body["error_code"]), (404, &json!("ENDPOINT_NOT_FOUND")), "{path}");
    }
    assert_eq!(server.get("/api/2.0/mlflow/runs/create").await.status, 404, "a wrong method is an unknown endpoint");
    assert_eq!(stored(&server).await, before, "something was stored");
    // and both prefixes serve
    assert_eq!(server.get(&format!("/ajax-api/2.0/mlflow/runs/get?run_id={id}")).await.status, 200);
    assert_eq!(server.get("/version").await.body, json!("3.18.0"));
    assert_eq!(server.get("/health").await.status, 200);
    assert_eq!(server.get("/api/3.0/mlflow/server-info").await.expect(200)["store_type"], "SqlStore");
}
