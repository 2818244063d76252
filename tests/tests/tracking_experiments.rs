//! Experiments over MLflow's API.

use serde_json::json;
use sluice_tests::TestServer;

use crate::tracking_support::{assert_refused, get, new_experiment, new_run, ok, post, run, text, value_of};

#[tokio::test]
async fn experiments_live_and_are_deleted_with_their_runs() {
    let server = TestServer::start().await;
    let default = get(&server, "experiments/get?experiment_id=0").await.expect(200);
    assert_eq!(default["experiment"]["name"], "Default");
    assert_eq!(default["experiment"]["artifact_location"], "mlflow-artifacts:/0");

    let created = ok(&server, "experiments/create", json!({ "name": "digits", "tags": [{ "key": "team", "value": "vision" }] })).await;
    let id = text(&created["experiment_id"]);
    let found = get(&server, "experiments/get-by-name?experiment_name=digits").await.expect(200)["experiment"].clone();
    assert_eq!(found["experiment_id"], id);
    assert_eq!(found["artifact_location"], format!("mlflow-artifacts:/{id}"));
    assert_eq!(found["lifecycle_stage"], "active");
    assert_eq!(value_of(&found["tags"], "team").unwrap(), "vision");
    assert!(found["creation_time"].is_i64());

    let again = post(&server, "experiments/create", json!({ "name": "digits" })).await;
    assert_refused(&again, 400, "RESOURCE_ALREADY_EXISTS", "Experiment(name=digits) already exists.");
    let missing = get(&server, "experiments/get-by-name?experiment_name=nothing").await;
    assert_refused(&missing, 404, "RESOURCE_DOES_NOT_EXIST", "Could not find experiment with name 'nothing'");
    assert_refused(
        &get(&server, "experiments/get?experiment_id=4711").await,
        404,
        "RESOURCE_DOES_NOT_EXIST",
        "No Experiment with id=4711 exists",
    );

    ok(&server, "experiments/set-experiment-tag", json!({ "experiment_id": id, "key": "team", "value": "speech" })).await;
    ok(&server, "experiments/update", json!({ "experiment_id": id, "new_name": "digits2" })).await;
    let renamed = get(&server, &format!("experiments/get?experiment_id={id}")).await.expect(200)["experiment"].clone();
    assert_eq!(renamed["name"], "digits2");
    assert_eq!(value_of(&renamed["tags"], "team").unwrap(), "speech");
    ok(&server, "experiments/delete-experiment-tag", json!({ "experiment_id": id, "key": "team" })).await;
    let no_tag = post(&server, "experiments/delete-experiment-tag", json!({ "experiment_id": id, "key": "team" })).await;
    assert_refused(&no_tag, 404, "RESOURCE_DOES_NOT_EXIST", &format!("No tag with name: team in experiment with id {id}"));

    let run_id = new_run(&server, &id, "first").await;
    ok(&server, "experiments/delete", json!({ "experiment_id": id })).await;
    assert_eq!(run(&server, &run_id).await["info"]["lifecycle_stage"], "deleted");
    assert_refused(
        &post(&server, "experiments/delete", json!({ "experiment_id": id })).await,
        404,
        "RESOURCE_DOES_NOT_EXIST",
        "No Experiment with id",
    );
    let rename = post(&server, "experiments/update", json!({ "experiment_id": id, "new_name": "x" })).await;
    assert_refused(&rename, 400, "INVALID_PARAMETER_VALUE", "Cannot rename a non-active experiment.");
    let in_deleted = post(&server, "runs/create", json!({ "experiment_id": id })).await;
    assert_refused(&in_deleted, 400, "INVALID_PARAMETER_VALUE", "must be in the 'active' state");
    let tag = post(&server, "experiments/set-experiment-tag", json!({ "experiment_id": id, "key": "a", "value": "b" })).await;
    assert_refused(
        &tag,
        400,
        "INVALID_PARAMETER_VALUE",
        &format!("The experiment {id} must be in the 'active' state. Current state is deleted."),
    );
    // the name stays taken
    assert_refused(
        &post(&server, "experiments/create", json!({ "name": "digits2" })).await,
        400,
        "RESOURCE_ALREADY_EXISTS",
        "already exists",
    );
    ok(&server, "experiments/restore", json!({ "experiment_id": id })).await;
    assert_eq!(run(&server, &run_id).await["info"]["lifecycle_stage"], "active");
    assert_eq!(post(&server, "experiments/restore", json!({ "experiment_id": id })).await.status, 404);
}

#[tokio::test]
async fn experiments_are_searched_in_pages() {
    let server = TestServer::start().await;
    let mut ids = Vec::new();
    for name in ["apple", "apricot", "banana", "Cherry", "date"] {
        ids.push(new_experiment(&server, name).await);
    }
    ok(&server, "experiments/set-experiment-tag", json!({ "experiment_id": ids[2], "key": "colour", "value": "yellow" })).await;
    ok(&server, "experiments/delete", json!({ "experiment_id": ids[4] })).await;
    let names = async |body: serde_json::Value| -> Vec<String> {
        let answer = ok(&server, "experiments/search", body).await;
        answer["experiments"].as_array().map(|list| list.iter().map(|e| text(&e["name"])).collect()).unwrap_or_default()
    };
    assert_eq!(names(json!({ "max_results": 10 })).await, ["Cherry", "banana", "apricot", "apple", "Default"]);
    assert_eq!(names(json!({ "max_results": 10, "view_type": "DELETED_ONLY" })).await, ["date"]);
    assert_eq!(names(json!({ "max_results": 10, "view_type": 3 })).await.len(), 6);
    assert_eq!(names(json!({ "max_results": "10", "filter": "name LIKE 'ap%'", "order_by": ["name ASC"] })).await, ["apple", "apricot"]);
    assert_eq!(names(json!({ "max_results": 10, "filter": "name ILIKE 'c%'" })).await, ["Cherry"]);
    assert_eq!(names(json!({ "max_results": 10, "filter": "tags.colour = 'yellow'" })).await, ["banana"]);
    assert_eq!(names(json!({ "max_results": 10, "filter": "tag.colour IS NULL AND name != 'Default'" })).await.len(), 3);
    let filter = format!("attributes.experiment_id IN ('{}', '{}')", ids[0], ids[3]);
    assert_eq!(names(json!({ "max_results": 10, "filter": filter, "order_by": ["experiment_id"] })).await, ["apple", "Cherry"]);
    assert_eq!(names(json!({ "max_results": 10, "filter": "creation_time < 5" })).await, Vec::<String>::new());

    let mut seen = Vec::new();
    let mut token = serde_json::Value::Null;
    loop {
        let answer = ok(&server, "experiments/search", json!({ "max_results": 2, "order_by": ["name DESC"], "page_token": token })).await;
        seen.extend(answer["experiments"].as_array().unwrap().iter().map(|e| text(&e["name"])));
        token = answer["next_page_token"].clone();
        if token.is_null() {
            break;
        }
        assert!(seen.len() < 10);
    }
    assert_eq!(seen, ["banana", "apricot", "apple", "Default", "Cherry"]);
    // the same by GET
    let answer = get(&server, "experiments/search?max_results=1&filter=name%20%3D%20%27apple%27&view_type=ACTIVE_ONLY").await.expect(200);
    assert_eq!(answer["experiments"][0]["name"], "apple");
    for (body, part) in [
        (json!({}), "Invalid value 0 for parameter 'max_results'"),
        (json!({ "max_results": 10, "filter": "name > 'a'" }), "Invalid comparator '>'"),
        (json!({ "max_results": 10, "filter": "creation_time = 1.5" }), "Invalid value for numeric attribute 'creation_time': '1.5'"),
        (json!({ "max_results": 10, "filter": "experiment_id = 'x'" }), "Invalid experiment ID 'x'"),
        (json!({ "max_results": 10, "order_by": ["tags.a"] }), "Invalid order_by entity: tag"),
        (json!({ "max_results": 10, "page_token": "nonsense!" }), "Invalid page token"),
    ] {
        assert_refused(&post(&server, "experiments/search", body).await, 400, "INVALID_PARAMETER_VALUE", part);
    }
}
