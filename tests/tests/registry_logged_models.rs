//! Logged models, and what runs read and made.

use reqwest::Method;
use serde_json::{Value, json};
use sluice_tests::{Answer, TestServer, answer};

use crate::tracking_support::{assert_refused, get, new_experiment, new_run, ok, post, run, text};

async fn send(server: &TestServer, method: Method, path: &str, body: Value) -> Answer {
    answer(server.request(method, &format!("/api/2.0/mlflow/{path}")).json(&body)).await
}

async fn log_model(server: &TestServer, experiment: &str, name: &str) -> String {
    let made =
        ok(server, "logged-models", json!({ "experiment_id": experiment, "name": name, "params": [{ "key": "lr", "value": "0.1" }] }))
            .await;
    text(&made["model"]["info"]["model_id"])
}

fn ids(body: &Value) -> Vec<String> {
    body["models"].as_array().into_iter().flatten().map(|model| text(&model["info"]["model_id"])).collect()
}

#[tokio::test]
async fn logged_models_live_from_pending_to_deleted() {
    let server = TestServer::start().await;
    let experiment = new_experiment(&server, "models").await;
    let id = log_model(&server, &experiment, "net").await;
    assert!(id.len() == 34 && id.starts_with("m-"), "{id}");
    let path = format!("logged-models/{id}");
    let model = get(&server, &path).await.expect(200)["model"].clone();
    assert_eq!(model["info"]["status"], "LOGGED_MODEL_PENDING");
    assert_eq!(model["info"]["artifact_uri"], format!("mlflow-artifacts:/{experiment}/models/{id}/artifacts"));
    assert_eq!(model["data"]["params"], json!([{ "key": "lr", "value": "0.1" }]));

    let ready = send(&server, Method::PATCH, &path, json!({ "model_id": id, "status": 2 })).await.expect(200);
    assert_eq!(ready["model"]["info"]["status"], "LOGGED_MODEL_READY");
    send(
        &server,
        Method::PATCH,
        &format!("{path}/tags"),
        json!({ "tags": [{ "key": "a/b", "value": "1" }, { "key": "c", "value": "2" }] }),
    )
    .await
    .expect(200);
    send(&server, Method::DELETE, &format!("{path}/tags/a%2Fb"), json!({})).await.expect(200);
    assert_refused(
        &send(&server, Method::DELETE, &format!("{path}/tags/none"), json!({})).await,
        404,
        "RESOURCE_DOES_NOT_EXIST",
        "No tag with key 'none'",
    );
    let params = json!({ "model_id": id, "params": [{ "key": "depth", "value": "3" }, { "key": "lr", "value": "0.1" }] });
    ok(&server, &format!("{path}/params"), params).await;
    let other = post(&server, &format!("{path}/params"), json!({ "model_id": id, "params": [{ "key": "lr", "value": "0.2" }] })).await;
    assert_refused(&other, 400, "INVALID_PARAMETER_VALUE", "Changing param values is not allowed");
    let model = get(&server, &path).await.expect(200)["model"].clone();
    assert_eq!(model["info"]["tags"], json!([{ "key": "c", "value": "2" }]));
    assert_eq!(model["data"]["params"], json!([{ "key": "depth", "value": "3" }, { "key": "lr", "value": "0.1" }]));

    let upload = server.request(Method::PUT, &format!("/api/2.0/mlflow-artifacts/artifacts/{experiment}/models/{id}/artifacts/data/w.bin"));
    answer(upload.body("weights")).await.expect(200);
    let listed = get(&server, &format!("{path}/artifacts/directories?artifact_directory_path=data")).await.expect(200);
    assert_eq!(listed["files"], json!([{ "path": "data/w.bin", "is_dir": false, "file_size": 7 }]));
    assert_eq!(get(&server, &format!("{path}/artifacts/files?artifact_file_path=data/w.bin")).await.expect(200), json!("weights"));

    send(&server, Method::DELETE, &path, json!({})).await.expect(200);
    assert_refused(&get(&server, &path).await, 404, "RESOURCE_DOES_NOT_EXIST", &format!("Logged model with ID '{id}' not found."));
    get(&server, &format!("{path}?allow_deleted=true")).await.expect(200);
    assert_eq!(ok(&server, "logged-models/search", json!({ "experiment_ids": [experiment] })).await, json!({}));
}

#[tokio::test]
async fn logged_models_are_searched_by_metrics_params_and_attributes() {
    let server = TestServer::start().await;
    let experiment = new_experiment(&server, "search").await;
    let run_id = new_run(&server, &experiment, "r").await;
    let mut made = Vec::new();
    for (name, losses, dataset) in [("a", vec![0.9, 0.5], "train"), ("b", vec![0.1, 0.7], "test"), ("c", vec![], "")] {
        let id = log_model(&server, &experiment, name).await;
        for (step, loss) in losses.iter().enumerate() {
            let body = json!({ "run_id": run_id, "key": "loss", "value": loss, "timestamp": step, "step": step, "model_id": id,
                               "dataset_name": dataset, "dataset_digest": "d1" });
            ok(&server, "runs/log-metric", body).await;
        }
        made.push(id);
    }
    let [a, b, c] = made.clone().try_into().unwrap();
    let search = async |body: Value| {
        let mut whole = json!({ "experiment_ids": [experiment] });
        whole.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        ok(&server, "logged-models/search", whole).await
    };
    assert_eq!(ids(&search(json!({})).await), [c.clone(), b.clone(), a.clone()], "newest first");
    assert_eq!(ids(&search(json!({ "filter": "metrics.loss < 0.6" })).await), std::slice::from_ref(&a), "the latest value decides");
    assert_eq!(ids(&search(json!({ "filter": "name IN ('b', 'c') AND params.lr = '0.1'" })).await), [c.clone(), b.clone()]);
    assert_eq!(ids(&search(json!({ "filter": "status = 'READY'" })).await), Vec::<String>::new());
    let by_loss = |ascending: bool| json!({ "order_by": [{ "field_name": "metrics.loss", "ascending": ascending }] });
    assert_eq!(ids(&search(by_loss(true)).await), [a.clone(), b.clone(), c.clone()]);
    assert_eq!(ids(&search(by_loss(false)).await), [b.clone(), a.clone(), c.clone()], "missing ones come last");
    assert_eq!(ids(&search(json!({ "datasets": [{ "dataset_name": "test", "dataset_digest": "d1" }] })).await), std::slice::from_ref(&b));
    let first = search(json!({ "max_results": 2 })).await;
    let token = text(&first["next_page_token"]);
    let rest = search(json!({ "max_results": 2, "page_token": token })).await;
    assert_eq!((ids(&first), ids(&rest)), (vec![c, b], vec![a]));
    let mut other = json!({ "experiment_ids": [experiment, "0"], "page_token": token });
    assert_refused(&post(&server, "logged-models/search", other.take()).await, 400, "INVALID_PARAMETER_VALUE", "page token");
}

#[tokio::test]
async fn runs_know_their_datasets_and_models() {
    let server = TestServer::start().await;
    let experiment = new_experiment(&server, "inputs").await;
    let id = new_run(&server, &experiment, "r").await;
    let model = log_model(&server, &experiment, "net").await;
    let dataset = |source: &str, context: &str| {
        json!({
            "tags": [{ "key": "mlflow.data.context", "value": context }],
            "dataset": { "name": "digits", "digest": "abc", "source_type": "local", "source": source },
        })
    };
    let inputs =
        json!({ "run_id": id, "datasets": [dataset("first", "training"), dataset("second", "other")], "models": [{ "model_id": model }] });
    for _ in 0..2 {
        ok(&server, "runs/log-inputs", inputs.clone()).await;
        ok(&server, "runs/outputs", json!({ "run_id": id, "models": [{ "model_id": model, "step": 3 }] })).await;
    }
    let shown = run(&server, &id).await;
    assert_eq!(shown["inputs"]["dataset_inputs"].as_array().unwrap().len(), 1);
    let input = &shown["inputs"]["dataset_inputs"][0];
    assert_eq!((&input["dataset"]["source"], &input["tags"][0]["value"]), (&json!("first"), &json!("training")));
    assert_eq!(shown["inputs"]["model_inputs"], json!([{ "model_id": model }]));
    assert_eq!(shown["outputs"]["model_outputs"], json!([{ "model_id": model, "step": 3 }]));

    let found = ok(&server, "runs/search", json!({ "experiment_ids": [experiment], "filter": "dataset.context = 'training'" })).await;
    assert_eq!(found["runs"][0]["info"]["run_id"], id);
    let sets =
        server.post("/ajax-api/2.0/mlflow/experiments/search-datasets", &json!({ "experiment_ids": [experiment] })).await.expect(200);
    assert_eq!(
        sets["dataset_summaries"],
        json!([{ "experiment_id": experiment, "name": "digits", "digest": "abc", "context": "training" }])
    );
    let unknown = post(&server, "runs/outputs", json!({ "run_id": id, "models": [{ "model_id": "m-none" }] })).await;
    assert_refused(&unknown, 404, "RESOURCE_DOES_NOT_EXIST", "m-none");
}
