//! What was gated is what serves, and what served before goes on when its successor does not start.

use std::time::Duration;

use serde_json::json;
use sluice_tests::{TestServer, wait_for};

use crate::promotion_line::{
    Candidate, LIMIT, audit, champion, decision, finish_pipeline, gated_path, newest_deployment, onnx_model, predict, server, serving,
    ship, upload,
};

#[tokio::test]
async fn an_artifact_that_was_replaced_after_the_gate_is_not_deployed() {
    let server = server().await;
    ship(&server, &Candidate::new(2.0, None)).await;
    let path = gated_path(&server, 1).await;
    upload(&server, &path, &onnx_model(9.0)).await;
    let body = json!({ "model": "digits", "alias": "champion", "environment": "production" });
    let accepted = server.post("/api/v1/deployments", &body).await.expect(202);
    let failed = newest_deployment(&server).await;
    assert_eq!((&failed["id"], failed["status"].as_str()), (&accepted["id"], Some("failed")));
    assert!(failed["message"].as_str().expect("message").starts_with("digest mismatch"), "{failed}");
    assert_eq!(predict(&server).await, (20.0, "1".to_owned()), "what served before goes on");
    assert_eq!(audit(&server).await.last().map(String::as_str), Some("deployment.failed"));

    upload(&server, &path, &onnx_model(2.0)).await;
    assert_eq!(server.post("/api/v1/deployments", &body).await.status, 202);
    assert_eq!(newest_deployment(&server).await["status"], "serving", "the gated bytes are deployed again");
}

#[tokio::test]
async fn a_failed_start_leaves_the_previous_version_serving() {
    let server = server().await;
    ship(&server, &Candidate::new(2.0, None)).await;
    let broken = Candidate { file: b"this is no ONNX file".to_vec(), ..Candidate::new(3.0, Some(1)) };
    let pipeline = finish_pipeline(&server, &broken).await;
    assert_eq!(decision(&server, pipeline).await.0, "promoted");
    let failed = newest_deployment(&server).await;
    assert_eq!((failed["version"].as_i64(), failed["status"].as_str()), (Some(2), Some("failed")));
    assert!(failed["message"].as_str().is_some_and(|message| message.contains("cannot be loaded")), "{failed}");
    assert!(failed["message"].as_str().is_some_and(|message| !message.is_empty() && !message.contains('\n')), "{failed}");
    assert_eq!(predict(&server).await, (20.0, "1".to_owned()));
    let old: String = sqlx::query_scalar("SELECT status FROM deployments WHERE version = 1").fetch_one(&server.pool).await.expect("row");
    assert_eq!(old, "serving");
    let folder = server.data.path().join("deployments/2");
    wait_for("the failed deployment's files to go", LIMIT, || async { (!folder.exists()).then_some(()) }).await;
}

#[tokio::test]
async fn rollback_returns_to_the_previous_champion() {
    let server = server().await;
    ship(&server, &Candidate::new(2.0, None)).await;
    ship(&server, &Candidate::new(3.0, Some(1))).await;
    assert_eq!(predict(&server).await, (30.0, "2".to_owned()));
    let done = server.post("/api/v1/models/digits/rollback", &json!({})).await.expect(200);
    assert_eq!((done["from_version"].as_i64(), done["to_version"].as_i64()), (Some(2), Some(1)));
    assert_eq!(done["deployment"]["status"], "serving");
    assert_eq!(champion(&server).await, Some(1));
    assert_eq!(predict(&server).await, (20.0, "1".to_owned()));
    let actions = audit(&server).await;
    for action in ["alias.moved", "rollback", "deployment.superseded", "deployment.serving"] {
        assert!(actions.iter().rev().take(5).any(|found| found == action), "{action} in {actions:?}");
    }
    let again = server.post("/api/v1/models/digits/rollback", &json!({})).await.expect(409);
    assert!(again["detail"].as_str().expect("detail").starts_with("nothing to roll back to"), "{again}");

    ship(&server, &Candidate::new(5.0, Some(1))).await;
    assert_eq!(predict(&server).await, (50.0, "3".to_owned()));
    let body = json!({ "alias": "champion", "environment": "production" });
    assert_eq!(server.post("/api/v1/models/digits/rollback", &body).await.status, 200);
    assert_eq!(champion(&server).await, Some(1), "the version that was rolled back from is not returned to");
}

#[tokio::test]
async fn a_rollback_that_cannot_be_deployed_moves_nothing() {
    let server = server().await;
    ship(&server, &Candidate::new(2.0, None)).await;
    ship(&server, &Candidate::new(3.0, Some(1))).await;
    upload(&server, &gated_path(&server, 1).await, b"other bytes").await;
    let refused = server.post("/api/v1/models/digits/rollback", &json!({})).await.expect(409);
    assert!(refused["detail"].as_str().expect("detail").contains("digest mismatch"), "{refused}");
    assert_eq!(champion(&server).await, Some(2));
    assert_eq!(predict(&server).await, (30.0, "2".to_owned()));
}

#[tokio::test]
async fn a_crashed_model_server_comes_back_and_none_outlives_the_server() {
    let mut server = server().await;
    ship(&server, &Candidate::new(2.0, None)).await;
    let first = model_server(&server);
    rustix::process::kill_process(first, rustix::process::Signal::KILL).expect("kill the model server");
    wait_for("another model server", LIMIT, || async { (model_server(&server) != first).then_some(()) }).await;
    serving(&server, 1).await;
    assert_eq!(predict(&server).await, (20.0, "1".to_owned()));

    let second = model_server(&server);
    server.kill9().await;
    wait_for("the model server's end", Duration::from_secs(20), || async {
        rustix::process::test_kill_process(second).is_err().then_some(())
    })
    .await;
    server.restart().await;
    serving(&server, 1).await;
    assert_eq!(predict(&server).await, (20.0, "1".to_owned()), "a server that starts again serves what it served");
}

/// Process id of the model server of deployment 1.
fn model_server(server: &TestServer) -> rustix::process::Pid {
    let text = std::fs::read_to_string(server.data.path().join("deployments/1/ready")).unwrap_or_default();
    let pid = serde_json::from_str::<serde_json::Value>(&text).ok().and_then(|ready| i32::try_from(ready["pid"].as_i64()?).ok());
    rustix::process::Pid::from_raw(pid.unwrap_or(1)).expect("a process id")
}
