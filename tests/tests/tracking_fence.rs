//! What a job logs counts only while its attempt is the current one.

use serde_json::{Value, json};
use sluice_tests::{Answer, TestServer};

use crate::tracking_support::{assert_refused, get, new_experiment, new_run, ok, run, text, value_of};

pub const TOKENS: [&str; 3] = ["sluice_job_one", "sluice_job_two", "sluice_job_three"];

/// A running job on its first attempt whose run this is.
pub async fn job_of(server: &TestServer, run_id: &str) -> i64 {
    sqlx::raw_sql(
        "INSERT INTO repositories (name, created_at) VALUES ('r', now());
         INSERT INTO pipelines (repository_id, branch, sha, commit_subject, commit_author, status, created_at) SELECT id, 'main', 'x', 's', 'a', 'running', now() FROM repositories;
         INSERT INTO runners (id, name, token_sha256, capabilities, cpus, version, registered_at, last_seen_at) VALUES (gen_random_uuid(), 'r', '\\x00', '{}', 1, '0', now(), now());",
    )
    .execute(&server.pool)
    .await
    .unwrap();
    let job: i64 = sqlx::query_scalar(
        "INSERT INTO jobs (pipeline_id, name, kind, spec, needs, requires, cpus, status, run_id, created_at)
         SELECT id, 'train', 'run', '{}', '{}', '{}', 1, 'running', $1::uuid, now() FROM pipelines RETURNING id",
    )
    .bind(run_id)
    .fetch_one(&server.pool)
    .await
    .unwrap();
    begin_attempt(server, job, 1).await;
    job
}

/// Another attempt takes over.
pub async fn begin_attempt(server: &TestServer, job: i64, attempt: i32) {
    sqlx::query(
        "WITH over AS (UPDATE job_attempts SET status = 'lost', finished_at = now() WHERE job_id = $1),
              now_at AS (UPDATE jobs SET attempt = $2, status = 'running' WHERE id = $1)
         INSERT INTO job_attempts (job_id, attempt, runner_id, token_sha256, status, lease_expires_at, started_at)
         SELECT $1, $2, id, sha256($3::bytea), 'running', now() + interval '1 hour', now() FROM runners",
    )
    .bind(job)
    .bind(attempt)
    .bind(TOKENS[usize::try_from(attempt - 1).unwrap()].as_bytes())
    .execute(&server.pool)
    .await
    .unwrap();
}

async fn post_as(server: &TestServer, attempt: i32, path: &str, body: Value) -> Answer {
    server.post_as(TOKENS[usize::try_from(attempt - 1).unwrap()], &format!("/api/2.0/mlflow/{path}"), &body).await
}

async fn steps(server: &TestServer, run_id: &str) -> Vec<(i64, f64)> {
    let history = get(server, &format!("metrics/get-history?run_id={run_id}&metric_key=loss")).await.expect(200);
    let mut steps: Vec<_> = history["metrics"]
        .as_array()
        .unwrap()
        .iter()
        .map(|metric| (metric["step"].as_i64().unwrap(), metric["value"].as_f64().unwrap()))
        .collect();
    steps.sort_by_key(|(step, _)| *step);
    steps
}

#[tokio::test]
async fn a_stale_attempt_writes_nothing_and_a_retry_leaves_no_duplicates() {
    let server = TestServer::start().await;
    let experiment = new_experiment(&server, "fence").await;
    let id = new_run(&server, &experiment, "job").await;
    let other = new_run(&server, &experiment, "somebody else's").await;
    let job = job_of(&server, &id).await;
    let log = |value: f64, step: i64, timestamp: i64| {
        json!({ "run_id": id, "metrics": [{ "key": "loss", "value": value, "timestamp": timestamp, "step": step }],
                "params": [{ "key": "seed", "value": "7" }] })
    };
    for step in 0..5 {
        #[allow(clippy::cast_precision_loss, reason = "small")]
        post_as(&server, 1, "runs/log-batch", log(10.0 - step as f64, step, 100 + step)).await.expect(200);
    }
    // outside of the job's runs
    let foreign = post_as(&server, 1, "runs/set-tag", json!({ "run_id": other, "key": "a", "value": "b" })).await;
    assert_refused(&foreign, 403, "PERMISSION_DENIED", "may only write to its own run");
    // a run that the job makes is its own
    let child = post_as(&server, 1, "runs/create", json!({ "experiment_id": experiment, "run_name": "child" })).await.expect(200);
    let child = text(&child["run"]["info"]["run_id"]);
    post_as(&server, 1, "runs/log-metric", json!({ "run_id": child, "key": "m", "value": 1, "timestamp": 1 })).await.expect(200);
    assert_eq!(value_of(&run(&server, &child).await["data"]["tags"], "sluice.job").unwrap(), &json!(job.to_string()));
    let unknown = server.post_as("sluice_job_nobody", "/api/2.0/mlflow/runs/log-batch", &json!({ "run_id": id })).await;
    assert_refused(&unknown, 401, "UNAUTHENTICATED", "job token");

    begin_attempt(&server, job, 2).await;
    let changes = run(&server, &id).await;
    for (path, body) in [
        ("runs/log-batch", log(0.0, 9, 9)),
        ("runs/log-metric", json!({ "run_id": id, "key": "loss", "value": 1, "timestamp": 1 })),
        ("runs/log-parameter", json!({ "run_id": id, "key": "zombie", "value": "1" })),
        ("runs/set-tag", json!({ "run_id": id, "key": "zombie", "value": "1" })),
        ("runs/delete-tag", json!({ "run_id": id, "key": "mlflow.runName" })),
        ("runs/update", json!({ "run_id": id, "status": "FAILED" })),
        ("runs/delete", json!({ "run_id": id })),
        ("runs/create", json!({ "experiment_id": experiment })),
        ("experiments/create", json!({ "name": "zombie" })),
        ("runs/log-metric", json!({ "run_id": child, "key": "m", "value": 2, "timestamp": 2 })),
    ] {
        assert_refused(&post_as(&server, 1, path, body).await, 409, "RESOURCE_CONFLICT", "may not write any more: attempt 2 took over");
    }
    assert_eq!(run(&server, &id).await, changes);

    // the second attempt starts again from step 0; the first one's points at its steps go
    ok(&server, "runs/log-metric", json!({ "run_id": id, "key": "loss", "value": 50, "timestamp": 50, "step": 1 })).await;
    for step in 0..3 {
        #[allow(clippy::cast_precision_loss, reason = "small")]
        let body = log(8.0 - step as f64, step, 200 + step);
        post_as(&server, 2, "runs/log-batch", body.clone()).await.expect(200);
        post_as(&server, 2, "runs/log-batch", body).await.expect(200);
    }
    // what was logged without a token at step 1 is nobody's attempt and stays
    assert_eq!(steps(&server, &id).await, [(0, 8.0), (1, 50.0), (1, 7.0), (2, 6.0), (3, 7.0), (4, 6.0)]);
    let summary = || async {
        sqlx::query_as::<_, (i64, f64, f64, f64, i64)>(
            "SELECT point_count, min_value, max_value, last_value, last_step FROM metric_series WHERE key = 'loss'",
        )
        .fetch_one(&server.pool)
        .await
        .unwrap()
    };
    assert_eq!(summary().await, (6, 6.0, 50.0, 6.0, 4));
    for step in 3..5 {
        #[allow(clippy::cast_precision_loss, reason = "small")]
        post_as(&server, 2, "runs/log-batch", log(9.0 + step as f64, step, 1)).await.expect(200);
    }
    assert_eq!(summary().await, (6, 6.0, 50.0, 13.0, 4), "the summary follows what is left");

    // params: the later attempt's hold, an outsider's do not
    post_as(
        &server,
        2,
        "runs/log-batch",
        json!({ "run_id": id, "params": [{ "key": "seed", "value": "8" }, { "key": "new", "value": "1" }] }),
    )
    .await
    .expect(200);
    assert_eq!(value_of(&run(&server, &id).await["data"]["params"], "seed").unwrap(), "8");
    let outside = server.post("/api/2.0/mlflow/runs/log-parameter", &json!({ "run_id": id, "key": "seed", "value": "9" })).await;
    assert_refused(&outside, 400, "INVALID_PARAMETER_VALUE", "Changing param values is not allowed");

    sqlx::query("UPDATE job_attempts SET lease_expires_at = now() - interval '1 second'").execute(&server.pool).await.unwrap();
    let expired = post_as(&server, 2, "runs/log-batch", log(0.0, 9, 9)).await;
    assert_eq!((expired.status, &expired.body["error_code"]), (409, &json!("RESOURCE_CONFLICT")), "{}", expired.body);
}

#[tokio::test]
async fn a_takeover_waits_for_a_write_in_progress() {
    let server = TestServer::start().await;
    let experiment = new_experiment(&server, "race").await;
    let id = new_run(&server, &experiment, "job").await;
    let job = job_of(&server, &id).await;
    // somebody holds the job's row as a takeover does, the write waits and then sees the takeover
    let mut takeover = server.pool.begin().await.unwrap();
    sqlx::query("UPDATE jobs SET status = 'queued' WHERE id = $1").bind(job).execute(&mut *takeover).await.unwrap();
    let body = json!({ "run_id": id, "key": "loss", "value": 1, "timestamp": 1 });
    let (answer, ()) = tokio::join!(post_as(&server, 1, "runs/log-metric", body), async {
        sluice_tests::wait_for("a waiting writer", std::time::Duration::from_secs(20), || async {
            let waiting: i64 =
                sqlx::query_scalar("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()")
                    .fetch_one(&server.pool)
                    .await
                    .unwrap();
            (waiting > 0).then_some(())
        })
        .await;
        takeover.commit().await.unwrap();
    });
    assert_refused(&answer, 409, "RESOURCE_CONFLICT", "the job is queued");
    assert_eq!(run(&server, &id).await["data"].get("metrics"), None);
}
