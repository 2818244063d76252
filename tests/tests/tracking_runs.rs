//! Runs over MLflow's API: life cycle, params, tags, metrics.

use serde_json::json;
use sluice_tests::TestServer;

use crate::tracking_support::{assert_refused, get, new_experiment, new_run, ok, post, run, text, value_of};

#[tokio::test]
async fn runs_are_created_changed_deleted_and_restored() {
    let server = TestServer::start().await;
    let experiment = new_experiment(&server, "runs").await;
    let created = ok(
        &server,
        "runs/create",
        json!({ "experiment_id": experiment, "user_id": "ann", "start_time": "1700000000000", "tags": [{ "key": "mlflow.runName", "value": "named by tag" }] }),
    )
    .await["run"]
        .clone();
    let id = text(&created["info"]["run_id"]);
    assert_eq!(created["info"]["run_uuid"], id);
    assert_eq!(created["info"]["run_name"], "named by tag");
    assert_eq!(created["info"]["start_time"], 1_700_000_000_000_i64);
    assert_eq!(created["info"]["status"], "RUNNING");
    assert_eq!(created["info"]["artifact_uri"], format!("mlflow-artifacts:/{experiment}/{id}/artifacts"));
    assert!(created.get("outputs").is_none() && created["info"].get("end_time").is_none() && created["inputs"] == json!({}));
    assert_eq!(run(&server, &id).await["outputs"], json!({}));

    let unnamed = ok(&server, "runs/create", json!({ "experiment_id": experiment })).await["run"].clone();
    let name = text(&unnamed["info"]["run_name"]);
    assert!(!name.is_empty() && name.len() <= 20);
    assert_eq!(value_of(&unnamed["data"]["tags"], "mlflow.runName").unwrap(), &json!(name));

    let info =
        ok(&server, "runs/update", json!({ "run_uuid": id, "status": "FINISHED", "end_time": 1_700_000_005_000_i64 })).await["run_info"]
            .clone();
    assert_eq!((&info["status"], &info["end_time"]), (&json!("FINISHED"), &json!(1_700_000_005_000_i64)));
    // re-opened by start_run(run_id=…): the end time stays
    let info = ok(&server, "runs/update", json!({ "run_id": id, "status": 1, "run_name": "second life" })).await["run_info"].clone();
    assert_eq!((&info["status"], &info["end_time"]), (&json!("RUNNING"), &json!(1_700_000_005_000_i64)));
    assert_eq!(value_of(&run(&server, &id).await["data"]["tags"], "mlflow.runName").unwrap(), "second life");
    ok(&server, "runs/set-tag", json!({ "run_id": id, "key": "mlflow.runName", "value": "third" })).await;
    assert_eq!(run(&server, &id).await["info"]["run_name"], "third");

    for _ in 0..2 {
        ok(&server, "runs/delete", json!({ "run_id": id })).await;
        assert_eq!(run(&server, &id).await["info"]["lifecycle_stage"], "deleted");
    }
    for (path, body) in [
        ("runs/update", json!({ "run_id": id, "status": "FAILED" })),
        ("runs/log-metric", json!({ "run_id": id, "key": "a", "value": 1, "timestamp": 1 })),
        ("runs/log-parameter", json!({ "run_id": id, "key": "a", "value": "1" })),
        ("runs/log-batch", json!({ "run_id": id })),
        ("runs/set-tag", json!({ "run_id": id, "key": "a", "value": "1" })),
        ("runs/delete-tag", json!({ "run_id": id, "key": "a" })),
    ] {
        let part = format!("The run {id} must be in the 'active' state. Current state is deleted.");
        assert_refused(&post(&server, path, body).await, 400, "INVALID_PARAMETER_VALUE", &part);
    }
    for _ in 0..2 {
        ok(&server, "runs/restore", json!({ "run_id": id })).await;
        assert_eq!(run(&server, &id).await["info"]["lifecycle_stage"], "active");
    }
    let both = json!({ "experiment_id": experiment, "run_name": "a", "tags": [{ "key": "mlflow.runName", "value": "b" }] });
    let part =
        "Both 'run_name' argument and 'mlflow.runName' tag are specified, but with different values (run_name='a', mlflow.runName='b').";
    assert_refused(&post(&server, "runs/create", both).await, 400, "INVALID_PARAMETER_VALUE", part);
    assert_refused(
        &post(&server, "runs/create", json!({ "experiment_id": "99" })).await,
        404,
        "RESOURCE_DOES_NOT_EXIST",
        "No Experiment with id=99 exists",
    );
    assert_refused(&get(&server, "runs/get?run_id=nope").await, 404, "RESOURCE_DOES_NOT_EXIST", "Run with id=nope not found");
}

#[tokio::test]
async fn params_tags_and_metrics_are_logged() {
    let server = TestServer::start().await;
    let experiment = new_experiment(&server, "log").await;
    let id = new_run(&server, &experiment, "log").await;
    for _ in 0..2 {
        ok(&server, "runs/log-parameter", json!({ "run_id": id, "key": "lr", "value": "0.1" })).await;
    }
    let changed = post(&server, "runs/log-parameter", json!({ "run_id": id, "key": "lr", "value": "0.2" })).await;
    let part = format!(
        "Changing param values is not allowed. Param with key='lr' was already logged with value='0.1' for run ID='{id}'. Attempted logging new value '0.2'."
    );
    assert_refused(&changed, 400, "INVALID_PARAMETER_VALUE", &part);
    ok(&server, "runs/log-parameter", json!({ "run_id": id, "key": "empty" })).await;
    ok(&server, "runs/log-parameter", json!({ "run_id": id, "key": "long", "value": "é".repeat(7000) })).await;
    ok(&server, "runs/set-tag", json!({ "run_uuid": id, "key": "long", "value": "x".repeat(9000) })).await;

    // the latest is the greatest (step, timestamp, value); a lower step does not become it
    for (value, timestamp, step) in [(json!(1.0), 10, 5), (json!(2.0), 20, 3), (json!("3.5"), 10, 5), (json!(0.5), 9, 5)] {
        ok(&server, "runs/log-metric", json!({ "run_id": id, "key": "loss", "value": value, "timestamp": timestamp, "step": step })).await;
    }
    for (key, value) in [("nan", json!("NaN")), ("inf", json!("Infinity")), ("ninf", json!("-Infinity"))] {
        ok(&server, "runs/log-metric", json!({ "run_id": id, "key": key, "value": value, "timestamp": 1 })).await;
    }
    let batch = json!({
        "run_id": id,
        "metrics": [{ "key": "acc", "value": 0.5, "timestamp": 1, "step": "1" }, { "key": "acc", "value": 0.75, "timestamp": 2, "step": 2 }, { "key": "acc", "value": 0.5, "timestamp": 1, "step": 1 }],
        "params": [{ "key": "b", "value": "2" }, { "key": "a", "value": "1" }],
        "tags": [{ "key": "t", "value": "first" }, { "key": "t", "value": "last" }],
    });
    for _ in 0..2 {
        ok(&server, "runs/log-batch", batch.clone()).await;
    }
    let data = run(&server, &id).await["data"].clone();
    let metric = |key: &str| data["metrics"].as_array().unwrap().iter().find(|m| m["key"] == key).unwrap().clone();
    assert_eq!(metric("loss"), json!({ "key": "loss", "value": 3.5, "timestamp": 10, "step": 5 }));
    assert_eq!(metric("acc")["value"], 0.75);
    assert_eq!(metric("nan")["value"], "NaN");
    assert_eq!(metric("inf")["value"].as_f64(), Some(f64::MAX));
    assert_eq!(metric("ninf")["value"].as_f64(), Some(f64::MIN));
    assert_eq!(metric("nan")["step"], 0);
    assert_eq!(value_of(&data["params"], "lr").unwrap(), "0.1");
    assert_eq!(value_of(&data["params"], "empty").unwrap(), "");
    assert_eq!(text(value_of(&data["params"], "long").unwrap()).chars().count(), 6000);
    assert_eq!(text(value_of(&data["tags"], "long").unwrap()).len(), 8000);
    assert_eq!(value_of(&data["tags"], "t").unwrap(), "last");
    let (count, min, max): (i64, f64, f64) =
        sqlx::query_as("SELECT point_count, min_value, max_value FROM metric_series WHERE key = 'loss'")
            .fetch_one(&server.pool)
            .await
            .unwrap();
    assert_eq!((count, min, max), (4, 0.5, 3.5));
    let counted: i64 = sqlx::query_scalar("SELECT point_count FROM metric_series WHERE key = 'acc'").fetch_one(&server.pool).await.unwrap();
    assert_eq!(counted, 2, "a point logged again is the same point");
    let infinite: f64 = sqlx::query_scalar("SELECT last_value FROM metric_series WHERE key = 'inf'").fetch_one(&server.pool).await.unwrap();
    assert_eq!(infinite, f64::INFINITY, "infinities are stored as such");

    ok(&server, "runs/delete-tag", json!({ "run_id": id, "key": "t" })).await;
    let again = post(&server, "runs/delete-tag", json!({ "run_id": id, "key": "t" })).await;
    assert_refused(&again, 404, "RESOURCE_DOES_NOT_EXIST", &format!("No tag with name: t in run with id {id}"));

    // a batch is all or nothing
    let half = json!({
        "run_id": id,
        "metrics": [{ "key": "half", "value": 1, "timestamp": 1 }],
        "params": [{ "key": "lr", "value": "9" }, { "key": "new", "value": "1" }],
        "tags": [{ "key": "half", "value": "1" }],
    });
    let part = format!(
        "Changing param values is not allowed. Params were already logged='[{{'key': 'lr', 'old_value': '0.1', 'new_value': '9'}}]' for run ID='{id}'."
    );
    assert_refused(&post(&server, "runs/log-batch", half).await, 400, "INVALID_PARAMETER_VALUE", &part);
    let model = json!({ "run_id": id, "metrics": [{ "key": "half", "value": 1, "timestamp": 1, "model_id": "m-none" }] });
    assert_refused(&post(&server, "runs/log-batch", model).await, 404, "RESOURCE_DOES_NOT_EXIST", "m-none");
    let data = run(&server, &id).await["data"].clone();
    assert!(
        value_of(&data["params"], "new").is_none()
            && value_of(&data["tags"], "half").is_none()
            && value_of(&data["metrics"], "half").is_none()
    );
    ok(&server, "runs/log-batch", json!({ "run_id": id })).await;

    let info = json!({ "artifact_path": "model", "flavors": {}, "utc_time_created": "x", "run_id": id }).to_string();
    for _ in 0..2 {
        ok(&server, "runs/log-model", json!({ "run_id": id, "model_json": info })).await;
    }
    let history = text(value_of(&run(&server, &id).await["data"]["tags"], "mlflow.log-model.history").unwrap());
    assert_eq!(serde_json::from_str::<serde_json::Value>(&history).unwrap().as_array().unwrap().len(), 1);
    let part = "Model json is missing mandatory fields: {'artifact_path', 'flavors', 'run_id', 'utc_time_created'}";
    assert_refused(
        &post(&server, "runs/log-model", json!({ "run_id": id, "model_json": "{}" })).await,
        400,
        "INVALID_PARAMETER_VALUE",
        part,
    );
}

#[tokio::test]
async fn many_writers_on_one_run_do_not_collide() {
    let server = TestServer::start().await;
    let experiment = new_experiment(&server, "writers").await;
    let id = new_run(&server, &experiment, "writers").await;
    // every writer logs the same keys in another order
    let writers = (0..16_usize).map(|writer| {
        let (server, id) = (&server, &id);
        async move {
            for round in 0..5_usize {
                let mut keys: Vec<usize> = (0..20).collect();
                keys.rotate_left(writer);
                if writer % 2 == 1 {
                    keys.reverse();
                }
                let step = writer * 5 + round;
                let metrics: Vec<_> =
                    keys.iter().map(|k| json!({ "key": format!("m{k}"), "value": step, "timestamp": 1, "step": step })).collect();
                let params: Vec<_> = keys.iter().map(|k| json!({ "key": format!("p{k}"), "value": "same" })).collect();
                let tags: Vec<_> = keys.iter().map(|k| json!({ "key": format!("t{k}"), "value": format!("{writer}") })).collect();
                ok(server, "runs/log-batch", json!({ "run_id": id, "metrics": metrics, "params": params, "tags": tags })).await;
            }
        }
    });
    let mut waiting: Vec<std::pin::Pin<Box<dyn Future<Output = ()> + '_>>> = writers.map(|writer| Box::pin(writer) as _).collect();
    std::future::poll_fn(|context| {
        waiting.retain_mut(|writer| writer.as_mut().poll(context).is_pending());
        if waiting.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    let counts: Vec<i64> = sqlx::query_scalar("SELECT point_count FROM metric_series").fetch_all(&server.pool).await.unwrap();
    assert_eq!(counts, vec![80; 20]);
    assert_eq!(run(&server, &id).await["data"]["params"].as_array().unwrap().len(), 20);
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_kill() {
    let mut server = TestServer::start().await;
    let experiment = new_experiment(&server, "durable").await;
    let id = new_run(&server, &experiment, "durable").await;
    let mut acknowledged = 0;
    {
        let logging = async {
            for step in 0..100_000 {
                let answer = server
                    .request(reqwest::Method::POST, "/api/2.0/mlflow/runs/log-metric")
                    .json(&json!({ "run_id": id, "key": "loss", "value": step, "timestamp": step, "step": step }))
                    .send()
                    .await;
                match answer {
                    Ok(answer) if answer.status() == 200 => acknowledged = step + 1,
                    _ => break,
                }
                if acknowledged == 50 {
                    rustix::process::kill_process(
                        rustix::process::Pid::from_raw(i32::try_from(server.pid()).unwrap()).unwrap(),
                        rustix::process::Signal::KILL,
                    )
                    .unwrap();
                }
            }
        };
        logging.await;
    }
    assert!(acknowledged >= 50);
    server.kill9().await;
    server.restart().await;
    let stored: i64 = sqlx::query_scalar("SELECT count(*) FROM metric_points").fetch_one(&server.pool).await.unwrap();
    assert!(stored >= acknowledged, "{acknowledged} acknowledged, {stored} stored");
    let search = ok(&server, "runs/search", json!({ "experiment_ids": [experiment] })).await;
    assert_eq!(search["runs"][0]["info"]["run_id"], id);
    assert_eq!(search["runs"][0]["data"]["metrics"][0]["step"], stored - 1);
}
