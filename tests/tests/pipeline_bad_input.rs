//! What repositories, pipelines, jobs and runners are told that cannot be.

use reqwest::Method;
use serde_json::{Value, json};
use sluice_tests::{TestServer, answer};

use crate::pipeline_support::{FakeRunner, TWO_JOBS, result, start_pipeline};

#[tokio::test]
async fn bad_input_is_refused_by_name_and_changes_nothing() {
    let server = TestServer::start().await;
    start_pipeline(&server, "bad", TWO_JOBS).await;
    let runner = FakeRunner::register(&server, "one").await;
    let train = runner.must_claim().await;
    let counts = async || -> Vec<i64> {
        let sql = "SELECT count(*) FROM repositories UNION ALL SELECT count(*) FROM runners UNION ALL SELECT count(*) FROM job_log_chunks
                   UNION ALL SELECT count(*) FROM job_outputs UNION ALL SELECT count(*) FROM evidence UNION ALL SELECT count(*) FROM audit_log
                   UNION ALL SELECT count(*) FROM jobs WHERE status = 'running'";
        sqlx::query_scalar(sql).fetch_all(&server.pool).await.expect("counts")
    };
    let before = counts().await;
    let register = json!({ "name": "two", "capabilities": [], "cpus": 1, "version": "0" });
    let with = |base: &Value, field: &str, value: Value| {
        let mut body = base.clone();
        body[field] = value;
        body
    };
    let without = |base: &Value, field: &str| {
        let mut body = base.clone();
        body.as_object_mut().expect("object").remove(field);
        body
    };
    let done = result("succeeded", None);
    let claim = json!({ "wait_secs": 0, "free_cpus": 1 });
    let chunk = |seq: i64, content: &str| json!({ "chunks": [{ "seq": seq, "content": content }] });
    let step = json!({ "name": "run", "status": "melted", "started_at_ms": 1, "finished_at_ms": null, "exit_code": null });
    let evidence = json!({ "kind": "benchmark", "metrics": {}, "champion_version": null, "environment": {} });
    let (runners, claims) = ("/api/v1/runners", "/api/v1/runner/claim");
    let (renew, logs, finish) = (train.path("renew"), train.path("logs"), train.path("result"));
    // path, token, body, status, field
    let rows: Vec<(&str, &str, Value, u16, &str)> = vec![
        ("/api/v1/repositories", "", json!({}), 400, "name"),
        ("/api/v1/repositories", "", json!({ "name": 5 }), 400, "name"),
        ("/api/v1/repositories", "", json!({ "name": "" }), 400, "name"),
        ("/api/v1/repositories", "", json!({ "name": "../up" }), 400, "name"),
        ("/api/v1/repositories", "", json!({ "name": "x".repeat(101) }), 400, "name"),
        ("/api/v1/repositories", "", json!({ "name": "nul\u{0}" }), 400, "name"),
        ("/api/v1/repositories", "", json!({ "name": "x", "default_branch": "a..b" }), 400, "default_branch"),
        ("/api/v1/repositories", "", json!({ "name": "x", "colour": 1 }), 400, "colour"),
        ("/api/v1/repositories", "", json!("name"), 400, "body"),
        ("/api/v1/repositories", "", json!({ "name": "bad" }), 409, ""),
        (runners, "", without(&register, "version"), 400, "version"),
        (runners, "", with(&register, "name", json!("a b")), 400, "name"),
        (runners, "", with(&register, "cpus", json!(0)), 400, "cpus"),
        (runners, "", with(&register, "cpus", json!(-1)), 400, "cpus"),
        (runners, "", with(&register, "capabilities", json!(["ok", ""])), 400, "capabilities[1]"),
        (runners, "", with(&register, "capabilities", json!([1])), 400, "capabilities[0]"),
        (runners, "", with(&register, "version", json!("x".repeat(101))), 400, "version"),
        (claims, "", claim.clone(), 401, ""),
        (claims, "wrong", claim.clone(), 401, ""),
        (claims, train.token(), claim.clone(), 401, ""),
        (claims, &runner.token, with(&claim, "wait_secs", json!(31)), 400, "wait_secs"),
        (claims, &runner.token, with(&claim, "free_cpus", json!(5000)), 400, "free_cpus"),
        (claims, &runner.token, with(&claim, "gpus", json!(1)), 400, "gpus"),
        (&renew, &runner.token, json!({ "steps": [] }), 401, ""),
        (&renew, train.token(), json!({ "steps": [step] }), 400, "steps[0].status"),
        (&renew, train.token(), json!({ "steps": [{ "name": "run" }] }), 400, "steps[0].status"),
        ("/api/v1/runner/jobs/999/attempts/1/renew", train.token(), json!({ "steps": [] }), 404, ""),
        ("/api/v1/runner/jobs/one/attempts/1/renew", train.token(), json!({ "steps": [] }), 404, ""),
        (&logs, train.token(), chunk(1, "gap"), 400, "chunks[0].seq"),
        (&logs, train.token(), chunk(-1, "x"), 400, "chunks[0].seq"),
        (&logs, train.token(), chunk(0, &"x".repeat(65_537)), 400, "chunks[0].content"),
        (&logs, train.token(), json!({ "chunks": [{ "seq": "0", "content": "x" }] }), 400, "chunks[0].seq"),
        (&logs, train.token(), chunk(0, &"x".repeat(5_000_000)), 413, ""),
        (&finish, train.token(), with(&done, "status", json!("running")), 400, "status"),
        (&finish, train.token(), with(&done, "status", json!("melted")), 400, "status"),
        (&finish, train.token(), with(&done, "cause", json!("user")), 400, "cause"),
        (&finish, train.token(), result("failed", None), 400, "cause"),
        (&finish, train.token(), result("failed", Some("lost")), 400, "cause"),
        (&finish, train.token(), result("cancelled", Some("user")), 400, "cause"),
        (&finish, train.token(), with(&done, "message", json!("x".repeat(4001))), 400, "message"),
        (&finish, train.token(), with(&done, "exit_code", json!(3_000_000_000_i64)), 400, "exit_code"),
        (&finish, train.token(), with(&done, "evidence", json!([evidence])), 400, "evidence[0]"),
        ("/api/v1/jobs/1/cancel/x", "", json!({}), 404, ""),
        ("/api/v1/jobs/999/cancel", "", json!({}), 404, ""),
        ("/api/v1/jobs/1/retry", "", json!({}), 409, ""),
        ("/api/v1/pipelines/999999999999999999999/cancel", "", json!({}), 404, ""),
    ];
    for (path, token, body, status, field) in rows {
        let request = server.request(Method::POST, path).json(&body);
        let answer = answer(if token.is_empty() { request } else { request.bearer_auth(token) }).await;
        let shown: String = body.to_string().chars().take(200).collect();
        assert_eq!(answer.status, status, "{path} {shown}: {}", answer.body);
        let named = answer.body["errors"][0]["field"].as_str().unwrap_or_default();
        assert_eq!(named, field, "{path} {shown}: {}", answer.body);
        assert_eq!(answer.headers["content-type"], "application/problem+json", "{path} {shown}");
    }
    for (output, file, status, field) in [
        ("model", "..%2fx", 400, "path"),
        ("model", "a%00b", 400, "path"),
        ("model", "%ff", 400, "path"),
        ("model", "", 400, "path"),
        ("other", "x", 400, "name"),
        ("a%20b", "x", 400, "name"),
    ] {
        let answer = train.upload(output, file, b"x").await;
        assert_eq!((answer.status, &answer.body["errors"][0]["field"]), (status, &json!(field)), "{output}/{file}: {}", answer.body);
    }
    for (path, field) in [
        ("/api/v1/pipelines?limit=0", "limit"),
        ("/api/v1/pipelines?limit=501", "limit"),
        ("/api/v1/pipelines?after=x", "after"),
        ("/api/v1/pipelines?status=melted", "status"),
        ("/api/v1/pipelines?colour=red", "colour"),
        ("/api/v1/pipelines?branch=a%00b", "branch"),
        ("/api/v1/jobs/1/logs?follow=maybe", "follow"),
        ("/api/v1/jobs/1/logs?from=-1", "from"),
        ("/api/v1/events?topics=weather:1", "topics"),
        ("/api/v1/events", "topics"),
    ] {
        let answer = server.get(path).await;
        assert_eq!((answer.status, &answer.body["errors"][0]["field"]), (400, &json!(field)), "{path}: {}", answer.body);
    }
    assert_eq!(counts().await, before);

    // a log has a limit that its answer names
    sqlx::query("UPDATE job_attempts SET log_bytes = 67108864 - 3").execute(&server.pool).await.expect("update");
    train.log(0, "abc").await.expect(200);
    let full = train.log(1, "d").await;
    assert_eq!(full.status, 413);
    assert!(full.body["detail"].as_str().expect("detail").contains("67108864"), "{}", full.body);
    train.result("succeeded", None).await.expect(200);
}
