//! Bad input to the registry, logged models and artifacts: each row is refused with 4xx, says which field is
//! wrong, and stores nothing.

use reqwest::Method;
use serde_json::{Value, json};
use sluice_tests::{TestServer, answer};

use crate::tracking_support::{new_experiment, new_run, ok, text};

/// Rows of every table that these calls write to.
async fn stored(server: &TestServer) -> Vec<(&'static str, i64)> {
    let mut counts = Vec::new();
    for table in [
        "registered_models",
        "registered_model_tags",
        "model_versions",
        "model_version_tags",
        "model_aliases",
        "model_alias_moves",
        "logged_models",
        "logged_model_tags",
        "logged_model_params",
        "datasets",
        "run_datasets",
        "run_models",
        "audit_log",
    ] {
        let count = sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table}"))).fetch_one(&server.pool).await.unwrap();
        counts.push((table, count));
    }
    counts
}

#[tokio::test]
async fn bad_input_to_the_registry_is_refused_by_name_and_stores_nothing() {
    let server = TestServer::start().await;
    let experiment = new_experiment(&server, "bad registry input").await;
    let run = new_run(&server, &experiment, "r").await;
    ok(&server, "registered-models/create", json!({ "name": "m" })).await;
    ok(&server, "registered-models/create", json!({ "name": "taken" })).await;
    ok(&server, "model-versions/create", json!({ "name": "m", "source": "s3://b/m" })).await;
    let logged = ok(&server, "logged-models", json!({ "experiment_id": experiment, "name": "net" })).await;
    let id = text(&logged["model"]["info"]["model_id"]);
    let before = stored(&server).await;
    let long = |count: usize| "x".repeat(count);
    let (post, patch, delete) = (Method::POST, Method::PATCH, Method::DELETE);
    let rows: Vec<(&Method, &str, Value, u16, &str)> = vec![
        (&post, "registered-models/create", json!({}), 400, "'name'"),
        (&post, "registered-models/create", json!({ "name": "  " }), 400, "name cannot be empty"),
        (&post, "registered-models/create", json!({ "name": 7 }), 400, "'name'"),
        (&post, "registered-models/create", json!({ "name": "a/b" }), 400, "Invalid registered model name: 'a/b'"),
        (&post, "registered-models/create", json!({ "name": "a:b" }), 400, "Invalid registered model name: 'a:b'"),
        (&post, "registered-models/create", json!({ "name": ".." }), 400, "Invalid registered model name"),
        (&post, "registered-models/create", json!({ "name": long(257) }), 400, "256 characters"),
        (&post, "registered-models/create", json!({ "name": "x\u{0}y" }), 400, "'name'"),
        (&post, "registered-models/create", json!({ "name": "x", "tags": [{ "value": "v" }] }), 400, "'tags[0].key'"),
        (
            &post,
            "registered-models/create",
            json!({ "name": "x", "tags": [{ "key": long(251), "value": "v" }] }),
            400,
            "'key' exceeds the maximum length of 250",
        ),
        (
            &post,
            "registered-models/create",
            json!({ "name": "x", "description": long(5001) }),
            400,
            "'description' exceeds the maximum length of 5000",
        ),
        (&post, "registered-models/rename", json!({ "name": "m" }), 400, "'new_name'"),
        (&post, "registered-models/rename", json!({ "name": "m", "new_name": "taken" }), 400, "(name=taken) already exists"),
        (&post, "registered-models/rename", json!({ "name": "none", "new_name": "x" }), 404, "name=none"),
        (&patch, "registered-models/update", json!({ "description": "x" }), 400, "'name'"),
        (&delete, "registered-models/delete", json!({}), 400, "'name'"),
        (&delete, "registered-models/delete", json!({ "name": "none" }), 404, "name=none"),
        (&post, "registered-models/set-tag", json!({ "name": "m", "value": "v" }), 400, "'key'"),
        (
            &post,
            "registered-models/set-tag",
            json!({ "name": "m", "key": "k", "value": long(100_001) }),
            400,
            "'value' exceeds the maximum length of 100000",
        ),
        (
            &post,
            "registered-models/alias",
            json!({ "name": "m", "alias": "a", "version": "x" }),
            400,
            "Parameter 'version' must be an integer, got 'x'",
        ),
        (&post, "registered-models/alias", json!({ "name": "m", "alias": "a", "version": "99999999999" }), 404, "version=99999999999"),
        (&post, "registered-models/alias", json!({ "name": "m", "alias": "latest", "version": "1" }), 400, "reserved"),
        (&post, "registered-models/alias", json!({ "name": "m", "alias": "v7", "version": "1" }), 400, "reserved"),
        (&post, "registered-models/alias", json!({ "name": "m", "alias": "a b", "version": "1" }), 400, "Invalid alias name: 'a b'"),
        (&post, "registered-models/alias", json!({ "name": "m", "alias": long(256), "version": "1" }), 400, "255 characters"),
        (&post, "registered-models/alias", json!({ "name": "m", "version": "1" }), 400, "'alias'"),
        (
            &post,
            "registered-models/get-latest-versions",
            json!({ "name": "m", "stages": ["Nope"] }),
            400,
            "Invalid Model Version stage: Nope",
        ),
        (&post, "model-versions/create", json!({ "name": "m" }), 400, "'source'"),
        (&post, "model-versions/create", json!({ "name": "none", "source": "s3://b/x" }), 404, "name=none"),
        (
            &post,
            "model-versions/create",
            json!({ "name": "m", "source": "s3://b/../x" }),
            400,
            "Invalid model version source: 's3://b/../x'",
        ),
        (
            &post,
            "model-versions/create",
            json!({ "name": "m", "source": "s3://b/x", "run_id": "not hex" }),
            400,
            "Invalid run ID: 'not hex'",
        ),
        (&post, "model-versions/create", json!({ "name": "m", "source": "/etc" }), 400, "Invalid model version source: '/etc'"),
        (&post, "model-versions/transition-stage", json!({ "name": "m", "version": "1" }), 400, "'stage'"),
        (
            &post,
            "model-versions/transition-stage",
            json!({ "name": "m", "version": "1", "stage": "Up" }),
            400,
            "Invalid Model Version stage: Up",
        ),
        (
            &patch,
            "model-versions/update",
            json!({ "name": "m", "version": "1.5" }),
            400,
            "Parameter 'version' must be an integer, got '1.5'",
        ),
        (&delete, "model-versions/delete", json!({ "name": "m", "version": "2" }), 404, "version=2"),
        (&post, "logged-models", json!({ "name": "x" }), 400, "'experiment_id'"),
        (&post, "logged-models", json!({ "experiment_id": "abc" }), 400, "Invalid experiment ID 'abc'"),
        (&post, "logged-models", json!({ "experiment_id": "999" }), 404, "id=999"),
        (&post, "logged-models", json!({ "experiment_id": experiment, "name": "a/b" }), 400, "Invalid model name"),
        (
            &post,
            "logged-models",
            json!({ "experiment_id": experiment, "params": [{ "key": "a", "value": "1" }, { "key": "a", "value": "2" }] }),
            400,
            "Duplicate parameter keys",
        ),
        (&post, "logged-models/search", json!({}), 400, "'experiment_ids'"),
        (
            &post,
            "logged-models/search",
            json!({ "experiment_ids": [experiment], "filter": "metric.x < 1" }),
            400,
            "Invalid entity type 'metric'",
        ),
        (&post, "logged-models/search", json!({ "experiment_ids": [experiment], "max_results": 0 }), 400, "'max_results'"),
        (
            &post,
            "logged-models/search",
            json!({ "experiment_ids": [experiment], "order_by": [{ "field_name": "params.a" }] }),
            400,
            "Only metrics are supported",
        ),
        (
            &post,
            "runs/log-inputs",
            json!({ "run_id": run, "datasets": [{ "dataset": { "name": "x" } }] }),
            400,
            "'datasets[0].dataset.digest'",
        ),
        (
            &post,
            "runs/log-inputs",
            json!({ "run_id": run, "datasets": [{ "dataset": { "name": long(501), "digest": "d", "source_type": "t", "source": "s" } }] }),
            400,
            "'name' exceeds the maximum length of 500",
        ),
        (
            &post,
            "runs/log-inputs",
            json!({ "run_id": run, "datasets": [{ "dataset": { "name": "n", "digest": long(37), "source_type": "t", "source": "s" } }] }),
            400,
            "'digest' exceeds the maximum length of 36",
        ),
        (&post, "runs/log-inputs", json!({ "run_id": "abc", "datasets": [] }), 404, "Run with id=abc not found"),
        (&post, "runs/outputs", json!({ "run_id": run, "models": [{ "step": 1 }] }), 400, "'models[0].model_id'"),
    ];
    for (method, path, body, status, part) in &rows {
        let shown = body.to_string().chars().take(120).collect::<String>();
        let refused = answer(server.request((*method).clone(), &format!("/api/2.0/mlflow/{path}")).json(body)).await;
        assert_eq!(refused.status, *status, "{path} {shown}: {}", refused.body);
        let message = refused.body["message"].as_str().unwrap_or_default();
        assert!(message.contains(part), "{path} {shown}: {message:?} does not say {part:?}");
    }
    for (path, part) in [
        ("registered-models/get", "'name'"),
        ("registered-models/search?max_results=1001", "'max_results'"),
        ("registered-models/search?max_results=x", "'max_results'"),
        ("registered-models/search?filter=bogus%20%3D%20'x'", "'bogus'"),
        ("registered-models/search?order_by=bogus", "'bogus'"),
        ("registered-models/search?page_token=%25%25", "page token"),
        ("model-versions/search?filter=version_number%20%3D%20'1'", "version_number"),
        ("model-versions/get?name=m&version=one", "'version'"),
        ("model-versions/get-download-uri?name=m", "'version'"),
        ("artifacts/list?path=x", "'run_id'"),
        (&format!("artifacts/list?run_id={run}&path=../x"), "path"),
        (&format!("logged-models/{id}?allow_deleted=maybe"), "allow_deleted"),
        (&format!("logged-models/{id}/artifacts/directories?artifact_directory_path=../.."), "path"),
    ] {
        let refused = server.get(&format!("/api/2.0/mlflow/{path}")).await;
        assert_eq!(refused.status, 400, "{path}: {}", refused.body);
        let message = refused.body["message"].as_str().unwrap_or_default();
        assert!(message.contains(part), "{path}: {message:?} does not say {part:?}");
    }
    let status =
        answer(server.request(Method::PATCH, &format!("/api/2.0/mlflow/logged-models/{id}")).json(&json!({ "status": "DONE" }))).await;
    assert_eq!(status.status, 400, "{}", status.body);
    assert_eq!(stored(&server).await, before);
}
