//! Jobs from claim to result: leases, fencing, retries, cancelling, logs.

use std::{collections::HashMap, time::Duration};

use reqwest::Method;
use serde_json::{Value, json};
use sluice_tests::{TestServer, answer, wait_for};

use crate::pipeline_support::{FakeRunner, LIMIT, job, result, start_pipeline};

const TWO_JOBS: &str = "version: 1
jobs:
  train:
    experiment: line
    run: echo hello
    outputs: { model: out }
  bench:
    needs: [train]
    run: echo hello
";

async fn status(server: &TestServer, pipeline: &Value) -> String {
    let now = server.get(&format!("/api/v1/pipelines/{}", pipeline["id"])).await.expect(200);
    now["status"].as_str().expect("status").to_owned()
}

async fn run(server: &TestServer, id: &Value) -> Value {
    let body = server.get(&format!("/api/2.0/mlflow/runs/get?run_id={}", id.as_str().expect("run id"))).await.expect(200);
    body["run"].clone()
}

#[tokio::test]
async fn a_pipeline_runs_from_claim_to_result() {
    let server = TestServer::start().await;
    let pipeline = start_pipeline(&server, "line", TWO_JOBS).await;
    assert_eq!(job(&server, &pipeline, "bench").await["waiting_reason"], "waits for job train");
    let runner = FakeRunner::register(&server, "one").await;

    let train = runner.must_claim().await;
    let given = &train.assignment;
    assert_eq!((train.name(), &given["attempt"], &given["inputs"]), ("train", &json!(1), &json!([])));
    assert_eq!((&given["repository"], &given["branch"], &given["git_path"]), (&json!("line"), &json!("main"), &json!("/git/line.git")));
    assert_eq!(given["sha"], pipeline["sha"]);
    assert!(train.token().starts_with("sluice_job_") && train.token().len() == 11 + 43, "{}", train.token());
    let runners = server.get("/api/v1/runners").await.expect(200);
    assert_eq!((&runners["items"][0]["status"], &runners["items"][0]["jobs"]), (&json!("busy"), &json!([train.job_id()])));

    let its_run = run(&server, &given["run_id"]).await;
    assert_eq!(its_run["info"]["status"], "RUNNING");
    let tags: HashMap<&str, &str> = its_run["data"]["tags"]
        .as_array()
        .expect("tags")
        .iter()
        .filter_map(|tag| Some((tag["key"].as_str()?, tag["value"].as_str()?)))
        .collect();
    assert_eq!(tags["mlflow.source.git.commit"], pipeline["sha"].as_str().expect("sha"));
    assert_eq!(tags["sluice.pipeline"], pipeline["id"].to_string());
    let experiment = server.get("/api/2.0/mlflow/experiments/get-by-name?experiment_name=line").await.expect(200);
    assert_eq!(experiment["experiment"]["experiment_id"], its_run["info"]["experiment_id"]);

    let step = json!({ "name": "run", "status": "running", "started_at_ms": 1, "finished_at_ms": null, "exit_code": null });
    let renewed = train.post("renew", &json!({ "steps": [step] })).await.expect(200);
    assert_eq!(renewed["cancel"], false);
    assert_eq!(job(&server, &pipeline, "train").await["attempts"][0]["steps"][0]["name"], "run");
    let stored = train.upload("model", "data/weights%20v1.bin", b"abc").await.expect(200);
    assert_eq!(stored, json!({ "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "bytes": 3 }));
    assert!(runner.claim().await.is_none(), "bench needs train");
    train.result("succeeded", None).await.expect(200);
    train.result("succeeded", None).await.expect(200);
    let other = train.result("failed", Some("user")).await;
    assert_eq!((other.status, &other.body["code"]), (409, &json!("stale_attempt")));
    assert_eq!(run(&server, &given["run_id"]).await["info"]["status"], "FINISHED");

    let bench = runner.must_claim().await;
    assert_eq!(bench.name(), "bench");
    let input = &bench.assignment["inputs"][0];
    assert_eq!((&input["job"], &input["output"], &input["path"]), (&json!("train"), &json!("model"), &json!("data/weights v1.bin")));
    let path = input["uri"].as_str().expect("uri").strip_prefix("mlflow-artifacts:/").expect("scheme").replace(' ', "%20");
    let bytes = answer(server.request(Method::GET, &format!("/api/2.0/mlflow-artifacts/artifacts/{path}"))).await;
    assert_eq!(bytes.body, "abc");
    assert_eq!(status(&server, &pipeline).await, "running");
    bench.result("succeeded", None).await.expect(200);
    assert_eq!(status(&server, &pipeline).await, "succeeded");
    let audit = server.get(&format!("/api/v1/audit?subject=job:{}", train.job_id())).await.expect(200);
    let actions: Vec<&str> = audit["items"].as_array().expect("items").iter().filter_map(|row| row["action"].as_str()).collect();
    assert_eq!(actions, ["job.finished", "job.started"]);
}

#[tokio::test]
async fn two_runners_racing_for_50_jobs_run_each_once() {
    let server = TestServer::start().await;
    let mut file = "version: 1\njobs:\n".to_owned();
    for number in 0..50 {
        file.push_str(&format!("  j{number}:\n    run: echo {number}\n"));
    }
    let pipeline = start_pipeline(&server, "race", &file).await;
    let runners = [FakeRunner::register(&server, "one").await, FakeRunner::register(&server, "two").await];
    let race = async |runner: &FakeRunner<'_>| {
        let mut done = Vec::new();
        while let Some(attempt) = runner.claim().await {
            attempt.result("succeeded", None).await.expect(200);
            done.push(attempt.job_id());
        }
        done
    };
    let (one, two, three) = tokio::join!(race(&runners[0]), race(&runners[1]), race(&runners[1]));
    let mut all = [one, two, three].concat();
    assert_eq!(all.len(), 50);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 50, "a job was handed out twice");
    assert_eq!(status(&server, &pipeline).await, "succeeded");
    let attempts: i64 = sqlx::query_scalar("SELECT count(*) FROM job_attempts").fetch_one(&server.pool).await.expect("count");
    assert_eq!(attempts, 50);
}

#[tokio::test]
async fn a_waiting_claim_is_woken_by_a_push() {
    let server = TestServer::start().await;
    let runner = FakeRunner::register(&server, "one").await;
    let body = json!({ "wait_secs": 30, "free_cpus": 2 });
    let started = std::time::Instant::now();
    let (claimed, _) =
        tokio::join!(server.post_as(&runner.token, "/api/v1/runner/claim", &body), start_pipeline(&server, "wake", TWO_JOBS));
    assert_eq!(claimed.expect(200)["assignment"]["job"]["name"], "train");
    assert!(started.elapsed() < Duration::from_secs(20), "it waited for its timeout");
}

#[tokio::test]
async fn an_expired_lease_requeues_and_fences_every_write() {
    let server = TestServer::start().await;
    let pipeline = start_pipeline(&server, "lease", TWO_JOBS).await;
    let runner = FakeRunner::register(&server, "one").await;
    let zombie = runner.must_claim().await;
    zombie.log(0, "first\n").await.expect(200);
    let run_id = zombie.assignment["run_id"].clone();
    // as if it had been silent for a whole lease
    sqlx::query("UPDATE job_attempts SET lease_expires_at = now()").execute(&server.pool).await.expect("update");
    assert_eq!(zombie.renew().await.status, 409, "an expired lease is not revived");
    wait_for("the job to be queued again", LIMIT, async || (job(&server, &pipeline, "train").await["status"] == "queued").then_some(()))
        .await;
    let heir = runner.must_claim().await;
    assert_eq!((&heir.assignment["attempt"], &heir.assignment["run_id"]), (&json!(2), &run_id), "one run across attempts");

    let metric = json!({ "run_id": run_id, "key": "loss", "value": 1.0, "timestamp": 1, "step": 1 });
    let batch = json!({ "run_id": run_id, "metrics": [{ "key": "loss", "value": 1.0, "timestamp": 1, "step": 1 }] });
    for (what, answer) in [
        ("renew", zombie.renew().await),
        ("log", zombie.log(1, "late\n").await),
        ("output", zombie.upload("model", "weights", b"late").await),
        ("result", zombie.result("succeeded", None).await),
        ("log-metric", server.post_as(zombie.token(), "/api/2.0/mlflow/runs/log-metric", &metric).await),
        ("log-batch", server.post_as(zombie.token(), "/api/2.0/mlflow/runs/log-batch", &batch).await),
    ] {
        assert_eq!(answer.status, 409, "{what}: {}", answer.body);
    }
    for table in ["job_outputs", "metric_points"] {
        let rows: i64 =
            sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table}"))).fetch_one(&server.pool).await.expect("count");
        assert_eq!(rows, 0, "a zombie wrote to {table}");
    }
    let log = server.get(&format!("/api/v1/jobs/{}/logs?attempt=1", zombie.job_id())).await.expect(200);
    assert_eq!((&log["next"], &log["finished"]), (&json!(1), &json!(true)));

    heir.renew().await.expect(200);
    heir.result("succeeded", None).await.expect(200);
    let attempts = job(&server, &pipeline, "train").await["attempts"].clone();
    assert_eq!(
        (&attempts[0]["status"], &attempts[0]["cause"], &attempts[1]["status"]),
        (&json!("lost"), &json!("lost"), &json!("succeeded"))
    );
}

#[tokio::test]
async fn a_server_that_was_down_does_not_cost_a_lease() {
    let mut server = TestServer::start().await;
    let pipeline = start_pipeline(&server, "down", TWO_JOBS).await;
    let token = {
        let runner = FakeRunner::register(&server, "one").await;
        let attempt = runner.must_claim().await;
        (attempt.path("renew"), attempt.token().to_owned())
    };
    server.kill9().await;
    sqlx::query("UPDATE job_attempts SET lease_expires_at = now() - interval '1 hour'").execute(&server.pool).await.expect("update");
    server.restart().await;
    server.post_as(&token.1, &token.0, &json!({ "steps": [] })).await.expect(200);
    assert_eq!(job(&server, &pipeline, "train").await["status"], "running");
}

#[tokio::test]
async fn causes_decide_about_further_attempts() {
    let server = TestServer::start().await;
    let pipeline = start_pipeline(&server, "causes", TWO_JOBS).await;
    let runner = FakeRunner::register(&server, "one").await;
    for attempt in 1..=3 {
        let claimed = runner.must_claim().await;
        assert_eq!(claimed.assignment["attempt"], attempt);
        claimed.result("failed", Some("infra")).await.expect(200);
    }
    let train = job(&server, &pipeline, "train").await;
    assert_eq!((&train["status"], &train["cause"]), (&json!("failed"), &json!("infra")));
    assert_eq!(job(&server, &pipeline, "bench").await["status"], "skipped");
    let failed = server.get(&format!("/api/v1/pipelines/{}", pipeline["id"])).await.expect(200);
    assert_eq!(failed["status"], "failed");
    assert_eq!(failed["status_reason"], "job train failed: so it ended (attempt 3 of 3)");
    assert_eq!(run(&server, &train["run_id"]).await["info"]["status"], "FAILED");

    // a user may try again; a fault of the script is final at once
    let retried = server.post(&format!("/api/v1/jobs/{}/retry", train["id"]), &json!({})).await.expect(200);
    assert_eq!(retried["status"], "queued");
    assert_eq!(job(&server, &pipeline, "bench").await["status"], "pending");
    assert_eq!(status(&server, &pipeline).await, "running");
    runner.must_claim().await.result("failed", Some("user")).await.expect(200);
    assert_eq!(job(&server, &pipeline, "train").await["attempt"], 4);
    assert_eq!(status(&server, &pipeline).await, "failed");
    server.post(&format!("/api/v1/jobs/{}/retry", train["id"]), &json!({})).await.expect(200);
    runner.must_claim().await.result("succeeded", None).await.expect(200);
    runner.must_claim().await.result("succeeded", None).await.expect(200);
    assert_eq!(status(&server, &pipeline).await, "succeeded");
    let again = server.post(&format!("/api/v1/jobs/{}/retry", train["id"]), &json!({})).await;
    assert_eq!((again.status, &again.body["code"]), (409, &json!("conflict")));
}

#[tokio::test]
async fn cancelling_stops_waiting_jobs_at_once_and_tells_runners_of_others() {
    let server = TestServer::start().await;
    let pipeline = start_pipeline(&server, "cancel", TWO_JOBS).await;
    let runner = FakeRunner::register(&server, "one").await;
    let train = runner.must_claim().await;
    let cancel = format!("/api/v1/pipelines/{}/cancel", pipeline["id"]);
    for _ in 0..2 {
        let cancelled = server.post(&cancel, &json!({})).await.expect(200);
        assert_eq!(cancelled["status"], "running", "its runner must stop it first");
    }
    assert_eq!(job(&server, &pipeline, "bench").await["status"], "cancelled");
    assert_eq!(train.renew().await.expect(200)["cancel"], true);
    train.result("cancelled", Some("cancelled")).await.expect(200);
    let stopped = job(&server, &pipeline, "train").await;
    assert_eq!((&stopped["status"], &stopped["cause"]), (&json!("cancelled"), &json!("cancelled")));
    assert_eq!(run(&server, &stopped["run_id"]).await["info"]["status"], "KILLED");
    assert_eq!(server.post(&cancel, &json!({})).await.expect(200)["status"], "cancelled");

    // a job that is to stop is not tried again when its runner is lost
    server.post(&format!("/api/v1/jobs/{}/retry", stopped["id"]), &json!({})).await.expect(200);
    let second = runner.must_claim().await;
    server.post(&format!("/api/v1/jobs/{}/cancel", stopped["id"]), &json!({})).await.expect(200);
    FakeRunner::register(&server, "one").await;
    assert_eq!(job(&server, &pipeline, "train").await["status"], "cancelled");
    assert_eq!(second.renew().await.status, 409, "its runner was started anew");
    assert_eq!(runner.server.post_as(&runner.token, "/api/v1/runner/claim", &json!({ "wait_secs": 0, "free_cpus": 1 })).await.status, 401);
}

#[tokio::test]
async fn a_job_that_no_runner_can_do_says_why_it_waits() {
    let server = TestServer::start().await;
    let file = "version: 1
jobs:
  train:
    run: echo hello
    outputs: { model: out }
  export:
    needs: [train]
    export: { onnx: { opset: 20, dynamic: [batch] }, tensorrt: { precision: fp16 } }
  large:
    resources: { cpus: 64 }
    run: echo hello
";
    let pipeline = start_pipeline(&server, "waits", file).await;
    let runner = FakeRunner::register(&server, "one").await;
    runner.must_claim().await.result("succeeded", None).await.expect(200);
    runner.must_claim().await.result("succeeded", None).await.expect(200);
    assert!(runner.claim().await.is_none());
    let engine = job(&server, &pipeline, "export-tensorrt").await;
    assert_eq!((&engine["status"], &engine["waiting_reason"]), (&json!("queued"), &json!("needs capability tensorrt: no runner has it")));
    assert_eq!(job(&server, &pipeline, "large").await["waiting_reason"], "needs 64 CPUs: no runner has more than 2");
    assert_eq!(status(&server, &pipeline).await, "running");
}

#[tokio::test]
async fn logs_are_followed_live_and_resumed() {
    let server = TestServer::start().await;
    start_pipeline(&server, "logs", TWO_JOBS).await;
    let runner = FakeRunner::register(&server, "one").await;
    let train = runner.must_claim().await;
    train.log(0, "one\n").await.expect(200);
    let path = format!("/api/v1/jobs/{}/logs", train.job_id());

    let mut stream = server.request(Method::GET, &format!("{path}?follow=1")).send().await.expect("stream");
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let mut text = String::new();
    read_until(&mut stream, &mut text, "\"one\\n\"").await;
    train.post("logs", &json!({ "chunks": [{ "seq": 0, "content": "one\n" }, { "seq": 1, "content": "tw\u{0}o\n" }] })).await.expect(200);
    read_until(&mut stream, &mut text, "tw\u{fffd}o").await;
    train.result("failed", Some("user")).await.expect(200);
    read_until(&mut stream, &mut text, "event: end").await;
    assert_eq!(text.matches("event: chunk").count(), 2, "{text}");
    assert!(text.contains("id: 1\nevent: chunk\ndata: {\"seq\":1,"), "{text}");

    let resumed = answer(server.request(Method::GET, &format!("{path}?follow=1")).header("Last-Event-ID", "0")).await;
    let resumed = resumed.body.as_str().expect("text").to_owned();
    assert!(!resumed.contains("\"seq\":0") && resumed.contains("\"seq\":1") && resumed.contains("event: end"), "{resumed}");
    let page = server.get(&path).await.expect(200);
    assert_eq!((&page["attempt"], &page["next"], &page["finished"]), (&json!(1), &json!(2), &json!(true)));
}

#[tokio::test]
async fn events_tell_what_changed() {
    let server = TestServer::start().await;
    let pipeline = start_pipeline(&server, "events", TWO_JOBS).await;
    let runner = FakeRunner::register(&server, "one").await;
    let path = format!("/api/v1/events?topics=pipeline:{}", pipeline["id"]);
    let mut stream = server.request(Method::GET, &path).send().await.expect("stream");
    let mut text = String::new();
    read_until(&mut stream, &mut text, "event: ready").await;
    runner.must_claim().await;
    read_until(&mut stream, &mut text, &format!("event: change\ndata: pipeline:{}\n", pipeline["id"])).await;
}

async fn read_until(stream: &mut reqwest::Response, text: &mut String, wanted: &str) {
    while !text.contains(wanted) {
        let chunk = tokio::time::timeout(Duration::from_secs(30), stream.chunk()).await;
        let chunk = chunk.unwrap_or_else(|_| panic!("waited in vain for {wanted:?} after {text}")).expect("a chunk");
        text.push_str(&String::from_utf8_lossy(&chunk.unwrap_or_else(|| panic!("the stream ended before {wanted:?}: {text}"))));
    }
}

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
