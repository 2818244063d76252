//! Jobs from claim to result: leases, fencing, retries, cancelling, logs.

use std::{collections::HashMap, time::Duration};

use reqwest::Method;
use serde_json::{Value, json};
use sluice_tests::{TestServer, answer, wait_for};

use crate::pipeline_support::{Checkout, FakeRunner, LIMIT, TWO_JOBS, job, start_pipeline};

const GATE: &str = "checks:\n  - metric_threshold: { metric: latency_ms, max: 5 }\n";

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
async fn a_benchmark_gets_what_the_champion_was_made_of() {
    let server = TestServer::start().await;
    let file = "version: 1
jobs:
  train:
    run: echo hello
    outputs: { model: out }
  bench:
    needs: [train]
    benchmark: { command: python bench.py, against: champion, repeats: 3, metrics: { latency_ms: lower } }
promote: { model: digits, alias: champion, from: train, gate: gate.yml }
";
    let checkout = Checkout::create(&server, "digits").await;
    std::fs::write(checkout.folder.path().join("gate.yml"), GATE).expect("write");
    let runner = FakeRunner::register(&server, "one").await;
    for (round, bytes) in [b"first".as_slice(), b"second"].iter().enumerate() {
        checkout.commit(&format!("{file}# {round}\n"), "Train").await;
        checkout.push("main").await;
        let train = runner.must_claim().await;
        train.upload("model", "weights", bytes).await.expect(200);
        train.result("succeeded", None).await.expect(200);
        let bench = runner.must_claim().await;
        assert_eq!(bench.name(), "bench");
        let champion = &bench.assignment["champion"];
        if round == 0 {
            assert!(champion.is_null(), "{champion}");
            // as if this pipeline had been promoted
            let sql =
                "WITH m AS (INSERT INTO registered_models (name, created_at, updated_at) VALUES ('digits', now(), now()) RETURNING id),
                            v AS (INSERT INTO model_versions (model_id, version, source, storage_uri, pipeline_id, created_at, updated_at)
                                  SELECT id, 1, '', '', 1, now(), now() FROM m RETURNING model_id)
                       INSERT INTO model_aliases (model_id, alias, version) SELECT model_id, 'champion', 1 FROM v";
            sqlx::raw_sql(sql).execute(&server.pool).await.expect("insert");
        } else {
            assert_eq!((&champion["model"], &champion["version"]), (&json!("digits"), &json!(1)));
            let (theirs, ours) = (&champion["inputs"][0], &bench.assignment["inputs"][0]);
            assert_eq!((&theirs["job"], &theirs["output"], &theirs["path"]), (&ours["job"], &ours["output"], &ours["path"]));
            assert_ne!(theirs["sha256"], ours["sha256"]);
            assert_eq!(theirs["bytes"], 5);
        }
        bench.result("failed", Some("user")).await.expect(200);
    }
}
