//! Searching runs, reading history, curves.

use serde_json::{Value, json};
use sluice_tests::TestServer;

use crate::tracking_support::{assert_refused, get, new_experiment, ok, post, text};

async fn names(server: &TestServer, body: Value) -> Vec<String> {
    let answer = ok(server, "runs/search", body).await;
    answer["runs"].as_array().map(|list| list.iter().map(|run| text(&run["info"]["run_name"])).collect()).unwrap_or_default()
}

/// Five runs: a (latest start) to e.
async fn fixture(server: &TestServer) -> (String, Vec<String>) {
    let experiment = new_experiment(server, "search").await;
    let mut ids = Vec::new();
    for (i, name) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
        let body = json!({ "experiment_id": experiment, "run_name": name, "start_time": 1000 - i, "user_id": format!("user{}", i % 2) });
        let id = text(&ok(server, "runs/create", body).await["run"]["info"]["run_id"]);
        let mut metrics = Vec::new();
        match name {
            "a" => metrics.push(json!({ "key": "loss", "value": 0.5, "timestamp": 1 })),
            "b" => metrics.push(json!({ "key": "loss", "value": "NaN", "timestamp": 1 })),
            "c" => metrics.push(json!({ "key": "loss", "value": -1, "timestamp": 1 })),
            "d" => metrics.push(json!({ "key": "loss", "value": "Infinity", "timestamp": 1 })),
            _ => {}
        }
        let params = if name == "e" { json!([]) } else { json!([{ "key": "opt", "value": if i % 2 == 0 { "adam" } else { "SGD" } }]) };
        let tags = if name == "a" { json!([{ "key": "a b", "value": "it's" }]) } else { json!([]) };
        ok(server, "runs/log-batch", json!({ "run_id": id, "metrics": metrics, "params": params, "tags": tags })).await;
        ids.push(id);
    }
    (experiment, ids)
}

#[tokio::test]
async fn runs_are_filtered_and_ordered() {
    let server = TestServer::start().await;
    let (experiment, ids) = fixture(&server).await;
    ok(&server, "runs/update", json!({ "run_id": ids[1], "status": "FINISHED", "end_time": 5000 })).await;
    for (filter, expected) in [
        ("", "abcde"),
        ("metrics.loss > 0", "ad"),
        ("metrics.loss != 0.5", "bcd"),
        ("metrics.loss <= 0.5", "ac"),
        ("metric.loss >= 1e300", "d"),
        ("params.opt = 'adam'", "ac"),
        ("params.opt != 'adam'", "bd"),
        ("params.opt ILIKE 'sg%'", "bd"),
        ("params.opt LIKE 'sg%'", ""),
        ("params.opt IS NULL", "e"),
        ("params.opt is not null and metrics.loss < 0", "c"),
        ("tags.`a b` = \"it's\"", "a"),
        ("tags.mlflow.runName = 'c'", "c"),
        ("run_name = 'b'", "b"),
        ("run name ILIKE 'B'", "b"),
        ("attributes.status = 'FINISHED'", "b"),
        ("status != 'FINISHED' AND user_id = 'user1'", "d"),
        ("start_time >= 999", "ab"),
        ("created < 998", "de"),
        ("end_time = 5000", "b"),
        ("run_id = 'not-an-id'", ""),
        ("run_id != 'not-an-id'", "abcde"),
        ("artifact_uri LIKE 'mlflow-artifacts:/%'", "abcde"),
    ] {
        let found = names(&server, json!({ "experiment_ids": [experiment], "filter": filter })).await;
        assert_eq!(found.concat(), expected, "{filter}");
    }
    let of = |operator: &str| format!("run_id {operator} ('{}', '{}')", ids[0], ids[4]);
    assert_eq!(names(&server, json!({ "experiment_ids": [experiment], "filter": of("IN") })).await.concat(), "ae");
    assert_eq!(names(&server, json!({ "experiment_ids": [experiment], "filter": of("NOT IN") })).await.concat(), "bcd");
    assert_eq!(
        names(&server, json!({ "experiment_ids": [experiment], "filter": format!("run_id LIKE '{}%'", &ids[2][..20]) })).await.concat(),
        "c"
    );
    // numbers, NaN, missing: in both directions
    for (order, expected) in [
        (json!(["metrics.loss"]), "cadbe"),
        (json!(["metrics.loss DESC"]), "dacbe"),
        (json!(["params.opt", "run_name DESC"]), "dbcae"),
        (json!(["params.opt DESC"]), "acbde"),
        (json!(["attribute.end_time desc"]), "bacde"),
        (json!(["start_time ASC"]), "edcba"),
        (json!(["user_id DESC", "created ASC"]), "dbeca"),
    ] {
        let all = names(&server, json!({ "experiment_ids": [experiment], "order_by": order })).await;
        assert_eq!(all.concat(), expected, "{order}");
        // page by page it is the same
        for size in 1..=4 {
            let mut paged = String::new();
            let mut token = Value::Null;
            loop {
                let body = json!({ "experiment_ids": [experiment], "order_by": order, "max_results": size, "page_token": token });
                let answer = ok(&server, "runs/search", body).await;
                paged.extend(answer["runs"].as_array().unwrap().iter().map(|run| text(&run["info"]["run_name"])));
                token = answer["next_page_token"].clone();
                if token.is_null() {
                    break;
                }
            }
            assert_eq!(paged, expected, "{order} by {size}");
        }
    }
    let first = ok(&server, "runs/search", json!({ "experiment_ids": [experiment], "max_results": 2 })).await;
    let other = json!({ "experiment_ids": [experiment], "max_results": 2, "filter": "params.opt = 'adam'", "page_token": first["next_page_token"] });
    assert_refused(&post(&server, "runs/search", other).await, 400, "INVALID_PARAMETER_VALUE", "Invalid page token");
    // exactly the last page has no token
    let five = ok(&server, "runs/search", json!({ "experiment_ids": [experiment], "max_results": 5 })).await;
    assert!(five.get("next_page_token").is_none());

    ok(&server, "runs/delete", json!({ "run_id": ids[0] })).await;
    for (view, expected) in [("ACTIVE_ONLY", "bcde"), ("DELETED_ONLY", "a"), ("ALL", "abcde")] {
        assert_eq!(names(&server, json!({ "experiment_ids": [experiment], "run_view_type": view })).await.concat(), expected);
    }
    assert_eq!(ok(&server, "runs/search", json!({ "experiment_ids": [] })).await, json!({}));
    assert_eq!(ok(&server, "runs/search", json!({ "experiment_ids": ["777"] })).await, json!({}));
}

#[tokio::test]
async fn datasets_and_links_are_found() {
    let server = TestServer::start().await;
    let (experiment, ids) = fixture(&server).await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!(
        "INSERT INTO datasets (experiment_id, name, digest, source_type, source) VALUES ({experiment}, 'digits', 'abc', 'local', '{{}}');
         INSERT INTO run_datasets (run_id, dataset_id, tags) SELECT '{}', id, '[{{\"key\": \"mlflow.data.context\", \"value\": \"train\"}}]' FROM datasets;
         INSERT INTO logged_models (id, experiment_id, name, status, artifact_uri, created_at, updated_at) VALUES ('m-1', {experiment}, 'm', 'READY', 'x', now(), now());
         INSERT INTO run_models (run_id, model_id, direction, step) VALUES ('{}', 'm-1', 'input', 0), ('{}', 'm-1', 'output', 7);",
        ids[2], ids[2], ids[2]
    )))
    .execute(&server.pool)
    .await
    .unwrap();
    for (filter, expected) in [
        ("dataset.name = 'digits'", "c"),
        ("datasets.context IN ('train', 'eval')", "c"),
        ("dataset.context = 'eval'", ""),
        ("dataset.digest LIKE 'ab%' AND dataset.name != 'x'", "c"),
        ("dataset.name NOT IN ('digits')", ""),
    ] {
        assert_eq!(names(&server, json!({ "experiment_ids": [experiment], "filter": filter })).await.concat(), expected, "{filter}");
    }
    let found =
        ok(&server, "runs/search", json!({ "experiment_ids": [experiment], "filter": "dataset.name = 'digits'" })).await["runs"][0].clone();
    assert_eq!(found["inputs"]["dataset_inputs"][0]["dataset"]["digest"], "abc");
    assert_eq!(found["inputs"]["dataset_inputs"][0]["tags"][0]["value"], "train");
    assert!(found["inputs"].get("model_inputs").is_none());
    assert_eq!(found["outputs"]["model_outputs"][0], json!({ "model_id": "m-1", "step": 7 }));
    let run = get(&server, &format!("runs/get?run_id={}", ids[2])).await.expect(200)["run"].clone();
    assert_eq!(run["inputs"]["model_inputs"][0]["model_id"], "m-1");

    let measured = json!({ "run_id": ids[2], "key": "acc", "value": 0.9, "timestamp": 3, "step": 1, "model_id": "m-1", "dataset_name": "digits", "dataset_digest": "abc" });
    for _ in 0..2 {
        ok(&server, "runs/log-metric", measured.clone()).await;
    }
    let stored: Vec<(String, f64, String)> =
        sqlx::query_as("SELECT key, value, dataset_name FROM logged_model_metrics").fetch_all(&server.pool).await.unwrap();
    assert_eq!(stored, [("acc".to_owned(), 0.9, "digits".to_owned())]);
}

#[tokio::test]
async fn history_comes_in_pages_samples_and_curves() {
    let server = TestServer::start().await;
    let experiment = new_experiment(&server, "history").await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let run = ok(&server, "runs/create", json!({ "experiment_id": experiment })).await;
        ids.push(text(&run["run"]["info"]["run_id"]));
    }
    // time runs against steps, and two points share a place
    let metrics: Vec<_> = (0..1000)
        .map(|step| json!({ "key": "loss", "value": if step == 777 { json!(99.0) } else { json!(f64::from(step) / 1000.0) }, "timestamp": 5000 - step, "step": step }))
        .collect();
    ok(&server, "runs/log-batch", json!({ "run_id": ids[0], "metrics": metrics })).await;
    ok(&server, "runs/log-batch", json!({ "run_id": ids[0], "metrics": [{ "key": "loss", "value": "NaN", "timestamp": 5000, "step": 0 }, { "key": "loss", "value": -1, "timestamp": 5000, "step": 0 }] })).await;
    ok(&server, "runs/log-metric", json!({ "run_id": ids[1], "key": "loss", "value": 7, "timestamp": 1, "step": 3 })).await;

    let all = get(&server, &format!("metrics/get-history?run_id={}&metric_key=loss", ids[0])).await.expect(200);
    let all = all["metrics"].as_array().unwrap().clone();
    assert_eq!(all.len(), 1002);
    assert_eq!(all[0]["step"], 999, "ordered by time");
    assert_eq!((&all[999]["value"], &all[1000]["value"], &all[1001]["value"]), (&json!(-1.0), &json!(0.0), &json!("NaN")));
    let mut paged: Vec<Value> = Vec::new();
    let mut token = String::new();
    loop {
        let answer = get(&server, &format!("metrics/get-history?run_uuid={}&metric_key=loss&max_results=167&page_token={token}", ids[0]))
            .await
            .expect(200);
        paged.extend(answer["metrics"].as_array().unwrap().iter().cloned());
        match answer["next_page_token"].as_str() {
            Some(next) => token = next.replace('=', "%3D"),
            None => break,
        }
    }
    assert_eq!(paged, all);
    assert_eq!(get(&server, "metrics/get-history?run_id=unknown&metric_key=loss").await.expect(200), json!({}));
    assert_eq!(get(&server, &format!("metrics/get-history?run_id={}&metric_key=none", ids[0])).await.expect(200), json!({}));
    let bad = get(&server, &format!("metrics/get-history?run_id={}&metric_key=loss&max_results=0", ids[0])).await;
    assert_refused(
        &bad,
        400,
        "INVALID_PARAMETER_VALUE",
        "Invalid value 0 for parameter 'max_results' supplied. It must be a positive integer.",
    );

    let sampled = async |query: &str| -> Vec<Value> {
        let path = format!("metrics/get-history-bulk-interval?metric_key=loss&{query}");
        get(&server, &path).await.expect(200)["metrics"].as_array().cloned().unwrap_or_default()
    };
    let both = sampled(&format!("run_ids={}&run_ids={}&max_results=10", ids[1], ids[0])).await;
    assert_eq!(both.len(), 11);
    assert_eq!(both[0]["run_id"], ids[1], "in the order of the request");
    assert_eq!(both[10]["step"], 999, "the last point is always there");
    assert_eq!(both[1]["step"], 0);
    assert_eq!(sampled(&format!("run_ids={}&max_results=1", ids[0])).await[0]["step"], 999);
    let range = sampled(&format!("run_ids={}&start_step=10&end_step=14", ids[0])).await;
    assert_eq!(range.iter().map(|m| m["step"].as_i64().unwrap()).collect::<Vec<_>>(), [10, 11, 12, 13, 14]);
    for (query, part) in [
        ("run_ids=a&start_step=1".to_owned(), "both must be specified"),
        ("run_ids=a&start_step=2&end_step=1".to_owned(), "end_step must be greater than start_step. Found start_step=2 and end_step=1."),
        ("run_ids=a&max_results=2501".to_owned(), "max_results must be between 1 and 2500."),
        (vec!["run_ids=a"; 101].join("&"), "at most 100 run_ids. Received 101 run_ids."),
    ] {
        let answer = get(&server, &format!("metrics/get-history-bulk-interval?metric_key=loss&{query}")).await;
        assert_refused(&answer, 400, "INVALID_PARAMETER_VALUE", part);
    }

    let curve = server.get(&format!("/api/v1/runs/{}/series?key=loss&key=none&px=50", ids[0])).await.expect(200)["series"].clone();
    let loss = &curve["loss"];
    assert_eq!((&loss["total_points"], &loss["bucketed"]), (&json!(1002), &json!(true)));
    assert_eq!(loss["x"].as_array().unwrap().len(), 50);
    let greatest = loss["max"].as_array().unwrap().iter().filter_map(Value::as_f64).fold(f64::MIN, f64::max);
    let least = loss["min"].as_array().unwrap().iter().filter_map(Value::as_f64).fold(f64::MAX, f64::min);
    assert_eq!((least, greatest), (-1.0, 99.0), "no bucket hides an extreme");
    assert_eq!(curve["none"]["x"], json!([]));
    for (query, field) in
        [("", "key"), ("key=a&px=0", "px"), ("key=a&px=many", "px"), ("key=a&x=epoch", "x"), ("key=a&colour=red", "colour")]
    {
        let answer = server.get(&format!("/api/v1/runs/{}/series?{query}", ids[0])).await;
        assert_eq!((answer.status, &answer.body["errors"][0]["field"]), (400, &json!(field)), "{query}");
    }
    assert_eq!(server.get("/api/v1/runs/00/series?key=a").await.status, 404);
}
