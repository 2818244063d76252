//! Registered models, versions, aliases, stages.

use reqwest::Method;
use serde_json::{Value, json};
use sluice_tests::{Answer, TestServer, answer};

use crate::tracking_support::{assert_refused, get, new_experiment, new_run, ok, post, text};

async fn send(server: &TestServer, method: Method, path: &str, body: Value) -> Answer {
    answer(server.request(method, &format!("/api/2.0/mlflow/{path}")).json(&body)).await
}

async fn create_model(server: &TestServer, name: &str) {
    ok(server, "registered-models/create", json!({ "name": name })).await;
}

async fn create_version(server: &TestServer, name: &str) -> String {
    let answer = ok(server, "model-versions/create", json!({ "name": name, "source": "s3://bucket/model" })).await;
    text(&answer["model_version"]["version"])
}

async fn holder(server: &TestServer, name: &str, alias: &str) -> Option<String> {
    let answer = get(server, &format!("registered-models/alias?name={name}&alias={alias}")).await;
    (answer.status == 200).then(|| text(&answer.body["model_version"]["version"]))
}

fn versions(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|version| text(&version["version"])).collect()
}

#[tokio::test]
async fn models_and_versions_are_made_described_tagged_and_deleted() {
    let server = TestServer::start().await;
    let tags = json!([{ "key": "team", "value": "a" }, { "key": "team", "value": "vision" }]);
    let made = ok(&server, "registered-models/create", json!({ "name": "digits", "description": "d", "tags": tags })).await;
    let model = &made["registered_model"];
    assert_eq!((&model["name"], &model["description"]), (&json!("digits"), &json!("d")));
    assert_eq!(model["tags"], json!([{ "key": "team", "value": "vision" }]));
    assert_refused(
        &post(&server, "registered-models/create", json!({ "name": "digits" })).await,
        400,
        "RESOURCE_ALREADY_EXISTS",
        "already exists",
    );

    let made = ok(
        &server,
        "model-versions/create",
        json!({ "name": "digits", "source": "s3://b/1", "tags": [{ "key": "k", "value": "v" }], "description": "first" }),
    )
    .await;
    let version = &made["model_version"];
    assert_eq!(version["version"], "1");
    assert_eq!((&version["current_stage"], &version["status"], &version["run_id"]), (&json!("None"), &json!("READY"), &json!("")));
    assert_eq!(version["tags"], json!([{ "key": "k", "value": "v" }]));
    assert_eq!(get(&server, "model-versions/get-download-uri?name=digits&version=1").await.expect(200)["artifact_uri"], "s3://b/1");

    send(&server, Method::PATCH, "registered-models/update", json!({ "name": "digits", "description": "new" })).await.expect(200);
    let cleared = send(&server, Method::PATCH, "model-versions/update", json!({ "name": "digits", "version": "1" })).await.expect(200);
    assert_eq!(cleared["model_version"]["description"], "");
    ok(&server, "model-versions/set-tag", json!({ "name": "digits", "version": 1, "key": "k", "value": "w" })).await;
    for _ in 0..2 {
        send(&server, Method::DELETE, "registered-models/delete-tag", json!({ "name": "digits", "key": "team" })).await.expect(200);
        send(&server, Method::DELETE, "model-versions/delete-tag", json!({ "name": "digits", "version": "1", "key": "none" }))
            .await
            .expect(200);
    }
    let model = get(&server, "registered-models/get?name=digits").await.expect(200)["registered_model"].clone();
    assert_eq!((&model["description"], &model["tags"]), (&json!("new"), &Value::Null));
    assert_eq!(model["latest_versions"][0]["tags"], json!([{ "key": "k", "value": "w" }]));

    send(&server, Method::DELETE, "registered-models/delete", json!({ "name": "digits" })).await.expect(200);
    assert_refused(
        &get(&server, "registered-models/get?name=digits").await,
        404,
        "RESOURCE_DOES_NOT_EXIST",
        "Registered Model with name=digits not found",
    );
    let actions: Vec<String> = sqlx::query_scalar("SELECT action FROM audit_log WHERE subject = 'model:digits' ORDER BY id")
        .fetch_all(&server.pool)
        .await
        .unwrap();
    assert_eq!(actions.first().map(String::as_str), Some("model.created"));
    assert_eq!(actions.last().map(String::as_str), Some("model.deleted"));
}

#[tokio::test]
async fn numbers_are_never_used_twice() {
    let server = TestServer::start().await;
    create_model(&server, "m").await;
    let mut made = futures_util::future::join_all((0..8).map(|_| create_version(&server, "m"))).await;
    made.sort_by_key(|version| version.parse::<i32>().unwrap());
    assert_eq!(made, ["1", "2", "3", "4", "5", "6", "7", "8"]);
    send(&server, Method::DELETE, "model-versions/delete", json!({ "name": "m", "version": "8" })).await.expect(200);
    assert_refused(
        &send(&server, Method::DELETE, "model-versions/delete", json!({ "name": "m", "version": "8" })).await,
        404,
        "RESOURCE_DOES_NOT_EXIST",
        "version=8",
    );
    assert_eq!(create_version(&server, "m").await, "9");

    // an approval of an earlier model of this name is none of a new version
    sqlx::query("INSERT INTO approvals (model_name, version, alias, actor, created_at) VALUES ('m', 9, 'champion', 'ann', now())")
        .execute(&server.pool)
        .await
        .unwrap();
    send(&server, Method::DELETE, "registered-models/delete", json!({ "name": "m" })).await.expect(200);
    create_model(&server, "m").await;
    assert_eq!(create_version(&server, "m").await, "10");
}

#[tokio::test]
async fn aliases_move_with_history() {
    let server = TestServer::start().await;
    create_model(&server, "m").await;
    for _ in 0..3 {
        create_version(&server, "m").await;
    }
    let set =
        |version: &'static str| ok(&server, "registered-models/alias", json!({ "name": "m", "alias": "champion", "version": version }));
    set("1").await;
    set("1").await;
    set("3").await;
    assert_eq!(holder(&server, "m", "champion").await.as_deref(), Some("3"));
    assert_eq!(holder(&server, "m", "latest").await.as_deref(), Some("3"));
    let missing = post(&server, "registered-models/alias", json!({ "name": "m", "alias": "champion", "version": "7" })).await;
    assert_refused(&missing, 404, "RESOURCE_DOES_NOT_EXIST", "Model Version (name=m, version=7) not found");
    assert_eq!(holder(&server, "m", "champion").await.as_deref(), Some("3"));

    let renamed = ok(&server, "registered-models/rename", json!({ "name": "m", "new_name": "n" })).await;
    assert_eq!(renamed["registered_model"]["aliases"], json!([{ "alias": "champion", "version": "3" }]));
    assert_eq!(holder(&server, "m", "champion").await, None);
    for _ in 0..2 {
        send(&server, Method::DELETE, "registered-models/alias", json!({ "name": "n", "alias": "champion" })).await.expect(200);
    }
    let gone = get(&server, "registered-models/alias?name=n&alias=champion").await;
    assert_refused(&gone, 400, "INVALID_PARAMETER_VALUE", "Registered model alias champion not found.");

    let moves: Vec<(String, Option<i32>, Option<i32>, String)> =
        sqlx::query_as("SELECT model_name, from_version, to_version, actor FROM model_alias_moves ORDER BY id")
            .fetch_all(&server.pool)
            .await
            .unwrap();
    let shown: Vec<_> = moves.iter().map(|(name, from, to, actor)| (name.as_str(), *from, *to, actor.as_str())).collect();
    assert_eq!(
        shown,
        [
            ("m", None, Some(1), "anonymous"),
            ("m", Some(1), Some(3), "anonymous"),
            ("m", Some(3), None, "anonymous"),
            ("n", None, Some(3), "anonymous"),
            ("n", Some(3), None, "anonymous"),
        ]
    );
    let rewrite = sqlx::query("UPDATE model_alias_moves SET to_version = 2").execute(&server.pool).await;
    assert!(rewrite.unwrap_err().to_string().contains("append-only"));
}

#[tokio::test]
async fn stages_move_and_archive() {
    let server = TestServer::start().await;
    create_model(&server, "m").await;
    for _ in 0..3 {
        create_version(&server, "m").await;
    }
    let to = |version: &str, stage: &str, archive: bool| {
        post(
            &server,
            "model-versions/transition-stage",
            json!({ "name": "m", "version": version, "stage": stage, "archive_existing_versions": archive }),
        )
    };
    to("1", "production", false).await.expect(200);
    let moved = to("2", "PRODUCTION", true).await.expect(200);
    assert_eq!(moved["model_version"]["current_stage"], "Production");
    let latest = ok(&server, "registered-models/get-latest-versions", json!({ "name": "m" })).await;
    let mut found = versions(&latest["model_versions"]);
    found.sort();
    assert_eq!(found, ["1", "2", "3"], "archived, production, none");
    let latest = get(&server, "registered-models/get-latest-versions?name=m&stages=Production&stages=Staging").await.expect(200);
    assert_eq!(versions(&latest["model_versions"]), ["2"]);
    assert_refused(&to("1", "Gone", false).await, 400, "INVALID_PARAMETER_VALUE", "Invalid Model Version stage: Gone.");
    assert_refused(&to("1", "Archived", true).await, 400, "INVALID_PARAMETER_VALUE", "'Archived' is not an Active stage");
}

#[tokio::test]
async fn searches_filter_order_and_page() {
    let server = TestServer::start().await;
    for (name, team) in [("alpha", "a"), ("beta", "b"), ("gamma", "a"), ("prompt", "a")] {
        ok(&server, "registered-models/create", json!({ "name": name, "tags": [{ "key": "team", "value": team }] })).await;
    }
    ok(&server, "registered-models/set-tag", json!({ "name": "prompt", "key": "mlflow.prompt.is_prompt", "value": "true" })).await;
    let names = |body: &Value| -> Vec<String> {
        body["registered_models"].as_array().into_iter().flatten().map(|model| text(&model["name"])).collect()
    };
    let search = async |query: &str| get(&server, &format!("registered-models/search?{query}")).await.expect(200);
    assert_eq!(names(&search("").await), ["alpha", "beta", "gamma"]);
    assert_eq!(names(&search("order_by=name%20DESC").await), ["gamma", "beta", "alpha"]);
    assert_eq!(names(&search("filter=tags.team%20%3D%20'a'").await), ["alpha", "gamma"]);
    assert_eq!(names(&search("filter=name%20ILIKE%20'%25ET%25'").await), ["beta"]);
    assert_eq!(names(&search("filter=tags.%60mlflow.prompt.is_prompt%60%20%3D%20'true'").await), ["prompt"]);
    assert_eq!(names(&search("filter=tag.%60mlflow.prompt.is_prompt%60%20!%3D%20'true'").await), ["alpha", "beta", "gamma"]);
    let first = search("max_results=2").await;
    assert_eq!(names(&first), ["alpha", "beta"]);
    let token = text(&first["next_page_token"]);
    let last = search(&format!("max_results=2&page_token={token}")).await;
    assert_eq!((names(&last), &last["next_page_token"]), (vec!["gamma".to_owned()], &Value::Null));
    let other = get(&server, &format!("registered-models/search?max_results=2&order_by=name&page_token={token}")).await;
    assert_refused(&other, 400, "INVALID_PARAMETER_VALUE", "page token");

    let experiment = new_experiment(&server, "search").await;
    let run = new_run(&server, &experiment, "r").await;
    for i in 0..3 {
        let body = json!({ "name": "alpha", "source": format!("s3://b/{i}"), "run_id": if i == 1 { run.as_str() } else { "" } });
        ok(&server, "model-versions/create", body).await;
    }
    create_version(&server, "beta").await;
    let search = async |query: &str| get(&server, &format!("model-versions/search?{query}")).await.expect(200);
    assert_eq!(versions(&search("filter=name%20%3D%20'alpha'").await["model_versions"]), ["3", "2", "1"]);
    assert_eq!(
        versions(&search("filter=name%20%3D%20'alpha'%20AND%20version_number%20%3C%203&order_by=version_number").await["model_versions"]),
        ["1", "2"]
    );
    assert_eq!(versions(&search(&format!("filter=run_id%20%3D%20'{run}'")).await["model_versions"]), ["2"]);
    assert_eq!(versions(&search("filter=source_path%20LIKE%20's3://b/2'").await["model_versions"]), ["3"]);
    let first = search("max_results=3&order_by=name&order_by=version_number").await;
    let rest = search(&format!("max_results=3&order_by=name&order_by=version_number&page_token={}", text(&first["next_page_token"]))).await;
    assert_eq!(
        (versions(&first["model_versions"]), versions(&rest["model_versions"])),
        (vec!["1".into(), "2".into(), "3".into()], vec!["1".into()])
    );
}

#[tokio::test]
async fn sources_must_belong_to_what_the_request_names() {
    let server = TestServer::start().await;
    create_model(&server, "m").await;
    let experiment = new_experiment(&server, "sources").await;
    let run = new_run(&server, &experiment, "mine").await;
    let other = new_run(&server, &experiment, "another").await;
    let root = format!("mlflow-artifacts:/{experiment}/{run}/artifacts");
    let logged = ok(&server, "logged-models", json!({ "experiment_id": experiment, "name": "net", "source_run_id": run })).await;
    let model_id = text(&logged["model"]["info"]["model_id"]);
    let create = |source: String, run_id: Option<String>, model_id: Option<String>| {
        post(&server, "model-versions/create", json!({ "name": "m", "source": source, "run_id": run_id, "model_id": model_id }))
    };
    let (mine, theirs, logged_id) = (Some(run.clone()), Some(other.clone()), Some(model_id.clone()));

    create(format!("{root}/model"), mine.clone(), None).await.expect(200);
    create(format!("runs:/{run}/model"), mine.clone(), None).await.expect(200);
    let version = create(format!("models:/{model_id}"), None, logged_id.clone()).await.expect(200);
    assert_eq!(version["model_version"]["run_id"], run, "of the logged model");
    let copy = create("models:/m/3".to_owned(), None, None).await.expect(200);
    assert_eq!(copy["model_version"]["run_id"], run);
    let uri = async |version: u32| {
        let path = format!("model-versions/get-download-uri?name=m&version={version}");
        text(&get(&server, &path).await.expect(200)["artifact_uri"])
    };
    assert_eq!(uri(1).await, format!("{root}/model"));
    assert_eq!(uri(2).await, format!("{root}/model"));
    let model_root = format!("mlflow-artifacts:/{experiment}/models/{model_id}/artifacts");
    assert_eq!((uri(3).await, uri(4).await), (model_root.clone(), model_root));
    let logged = get(&server, &format!("logged-models/{model_id}")).await.expect(200);
    let tags = &logged["model"]["info"]["tags"];
    assert_eq!(tags[0]["key"], "mlflow.modelVersions");

    let identify = "request parameter must identify the resource that contains the source";
    for (source, run_id, model_id, part) in [
        (format!("{root}/model"), None, None, identify),
        (format!("{root}/model"), theirs.clone(), None, identify),
        (format!("{root}2/model"), mine.clone(), None, identify),
        (format!("{root}/../../x"), mine.clone(), None, "absolute path"),
        (format!("{root}/%2e%2e/x"), mine.clone(), None, "absolute path"),
        (format!("runs:/{run}/model"), theirs, None, identify),
        (format!("runs:/{run}/model"), None, None, identify),
        (format!("models:/{model_id}"), mine.clone(), None, identify),
        ("/etc/passwd".to_owned(), mine.clone(), None, "local path"),
        ("file:///etc/passwd".to_owned(), mine.clone(), None, "local path"),
        ("relative/model".to_owned(), mine.clone(), None, "local path"),
        ("https://evil.example/model".to_owned(), mine, None, "absolute path"),
    ] {
        assert_refused(&create(source, run_id, model_id).await, 400, "INVALID_PARAMETER_VALUE", part);
    }
    assert_refused(&create("models:/m/77".to_owned(), None, None).await, 404, "RESOURCE_DOES_NOT_EXIST", "version=77");
    assert_refused(&create("s3://b/x".to_owned(), None, Some("m-none".to_owned())).await, 404, "RESOURCE_DOES_NOT_EXIST", "m-none");
    assert_eq!(create_version(&server, "m").await, "5", "refused ones took no number");
}
