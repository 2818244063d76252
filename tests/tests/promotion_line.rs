//! A pipeline whose jobs are done, laid into a server's database as a runner's reports would have left it:
//! what is judged and shipped can then be tested without training anything.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use sluice_tests::{TestServer, answer, python, wait_for};

pub const LIMIT: Duration = Duration::from_secs(60);

/// A server that can serve ONNX models.
pub async fn server() -> TestServer {
    let onnxruntime = onnxruntime();
    TestServer::start_with(&["--onnxruntime", onnxruntime.to_str().expect("UTF-8")]).await
}

/// The ONNX Runtime library of the tests' Python.
pub fn onnxruntime() -> std::path::PathBuf {
    let lib = python().parent().and_then(std::path::Path::parent).expect("an environment").join("lib");
    let pythons = std::fs::read_dir(&lib).expect("lib folder").flatten();
    let files =
        pythons.flat_map(|python| std::fs::read_dir(python.path().join("site-packages/onnxruntime/capi")).into_iter().flatten().flatten());
    let mut libraries = files
        .map(|file| file.path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libonnxruntime.so")));
    libraries.next().expect("onnxruntime in the tests' Python")
}

/// The ONNX file of y = factor · x, with a free batch axis.
pub fn onnx_model(factor: f32) -> Vec<u8> {
    let mut bytes = include_bytes!("../fixtures/scale.onnx").to_vec();
    let at = bytes.windows(4).position(|window| window == 1234.5f32.to_le_bytes()).expect("the factor in the fixture");
    bytes[at..at + 4].copy_from_slice(&factor.to_le_bytes());
    bytes
}

/// What the jobs of one pipeline found.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The model: y = factor · x.
    pub file: Vec<u8>,
    /// Latest value of the run's metric `accuracy`; `None`: never logged.
    pub accuracy: Option<f64>,
    /// The benchmark's samples of `score`, and the champion's.
    pub benchmark: Option<(Vec<f64>, Vec<f64>)>,
    /// Version that the benchmark measured as the champion.
    pub champion: Option<i32>,
    /// Largest difference between PyTorch and ONNX Runtime.
    pub parity: f64,
    /// The evidence is about a file with this digest instead of the uploaded one.
    pub other_digest: Option<String>,
    pub has_export: bool,
    /// How the benchmark job ended.
    pub bench_status: &'static str,
}

impl Candidate {
    /// A good candidate.
    pub fn new(factor: f32, champion: Option<i32>) -> Self {
        let champion_scores = if champion.is_some() { vec![0.95, 0.951, 0.949] } else { vec![] };
        Self {
            file: onnx_model(factor),
            accuracy: Some(0.97),
            benchmark: Some((vec![0.97, 0.971, 0.969], champion_scores)),
            champion,
            parity: 1e-7,
            other_digest: None,
            has_export: true,
            bench_status: "succeeded",
        }
    }

    fn evidence(&self, sha256: &str) -> (Value, Value) {
        let side = |values: &[f64], first: usize| -> Vec<Value> {
            let sample = |(seed, value): (usize, &f64)| json!({ "order": first + 2 * seed, "seed": seed, "values": [value] });
            values.iter().enumerate().map(sample).collect()
        };
        let (candidate, champion) = self.benchmark.clone().unwrap_or_default();
        let benchmark = json!({
            "kind": "benchmark", "champion_version": self.champion, "environment": {},
            "metrics": { "score": { "direction": "higher", "candidate": side(&candidate, 0), "champion": side(&champion, 1) } },
        });
        let onnx = json!({
            "kind": "onnx", "sha256": self.other_digest.as_deref().unwrap_or(sha256), "bytes": self.file.len(), "opset": 20,
            "inputs": [{ "name": "x", "dtype": "float32", "shape": ["batch", "1"] }],
            "outputs": [{ "name": "y", "dtype": "float32", "shape": ["batch", "1"] }],
            "parity": [{ "batch": 3, "output": "y", "max_abs_diff": self.parity, "max_rel_diff": self.parity, "excess": [[0.0001, self.parity]], "error": null }],
            "latency": [{ "batch": 1, "samples_ms": vec![1.0; 200] }], "runtime": "test", "provider": "CPUExecutionProvider",
        });
        (benchmark, onnx)
    }
}

fn plan() -> Value {
    let job = |name: &str, needs: Value, work: Value, outputs: Value| {
        json!({
            "name": name, "needs": needs, "experiment": "e", "setup": null, "env": {}, "work": work, "resources": { "cpus": 1 },
            "timeout_secs": null, "outputs": outputs, "requires": [],
        })
    };
    let from = json!({ "job": "train", "output": "model" });
    json!({
        "jobs": [
            job("train", json!([]), json!({ "kind": "run", "command": "true" }), json!({ "model": "out/model" })),
            job("bench", json!(["train"]), json!({
                "kind": "benchmark", "command": "true", "against": { "model": "digits", "alias": "champion" }, "repeats": 3,
                "metrics": { "score": "higher" },
            }), json!({})),
            job("export", json!(["train"]), json!({
                "kind": "export_onnx", "from": from, "opset": 20, "dynamic": ["batch"], "parity_batches": [3], "latency_batches": [1],
                "output": "onnx",
            }), json!({})),
        ],
        "promote": {
            "model": "digits", "alias": "champion", "from": from, "needs": ["train", "bench", "export"], "gate_file": "gate.yml",
            "policy": { "checks": [
                { "kind": "metric_threshold", "metric": "accuracy", "min": 0.95, "max": null },
                { "kind": "non_inferiority", "metric": "score", "test": "welch", "margin": 0.01 },
                { "kind": "latency_budget", "batch": 1, "quantile": 0.95, "max_ms": 20.0 },
                { "kind": "onnx_parity", "atol": 0.0001, "rtol": 0.0001 },
            ] },
        },
        "deploy": { "alias": "champion", "to": "production" },
    })
}

/// Lays a finished pipeline into the server and gives its id. Its promotion is `waiting`.
pub async fn finish_pipeline(server: &TestServer, candidate: &Candidate) -> i64 {
    let run = uuid::Uuid::new_v4();
    let root = format!("0/{}/artifacts/outputs", run.simple());
    let sha256 = upload(server, &format!("{root}/onnx/model.onnx"), &candidate.file).await;
    let model_sha256 = upload(server, &format!("{root}/model/MLmodel"), b"flavors: {}\n").await;
    let mut tx = server.pool.begin().await.expect("transaction");
    let ids: (i64, uuid::Uuid) = sqlx::query_as(
        "WITH r AS (INSERT INTO repositories (name, created_at) VALUES ('digits', now()) ON CONFLICT (name) DO UPDATE SET name = 'digits' RETURNING id),
              w AS (INSERT INTO runners (id, name, token_sha256, capabilities, cpus, version, registered_at, last_seen_at)
                    VALUES (gen_random_uuid(), 'laid', 'x', '{}', 1, '0', now(), now()) ON CONFLICT (name) DO UPDATE SET cpus = 1 RETURNING id),
              p AS (INSERT INTO pipelines (repository_id, branch, sha, commit_subject, commit_author, status, plan, created_at)
                    SELECT id, 'main', repeat('a', 40), 'subject', 'author', 'running', $1, now() FROM r RETURNING id)
         SELECT p.id, w.id FROM p, w",
    )
    .bind(plan())
    .fetch_one(&mut *tx)
    .await
    .expect("pipeline");
    let (pipeline, runner) = ids;
    sqlx::query(
        "INSERT INTO runs (id, experiment_id, name, status, start_time_ms, artifact_uri, created_at)
         VALUES ($1, 0, 'train', 'FINISHED', 0, 'mlflow-artifacts:/0/' || replace($1::text, '-', '') || '/artifacts', now())",
    )
    .bind(run)
    .execute(&mut *tx)
    .await
    .expect("run");
    if let Some(accuracy) = candidate.accuracy {
        sqlx::query(
            "INSERT INTO metric_series (run_id, key, last_step, last_timestamp_ms, last_value, min_value, max_value, point_count)
             VALUES ($1, 'accuracy', 1, 1, $2, $2, $2, 1)",
        )
        .bind(run)
        .bind(accuracy)
        .execute(&mut *tx)
        .await
        .expect("metric");
    }
    let (benchmark, onnx) = candidate.evidence(&sha256);
    for (name, kind, status) in
        [("train", "run", "succeeded"), ("bench", "benchmark", candidate.bench_status), ("export", "export_onnx", "succeeded")]
    {
        let job: i64 = sqlx::query_scalar(
            "INSERT INTO jobs (pipeline_id, name, kind, spec, needs, requires, cpus, status, message, attempt, run_id, created_at)
             VALUES ($1, $2, $3, '{}', '{}', '{}', 1, $4, '', 1, $5, now()) RETURNING id",
        )
        .bind(pipeline)
        .bind(name)
        .bind(kind)
        .bind(status)
        .bind((name == "train").then_some(run))
        .fetch_one(&mut *tx)
        .await
        .expect("job");
        sqlx::query(
            "INSERT INTO job_attempts (job_id, attempt, runner_id, token_sha256, status, lease_expires_at, started_at)
             VALUES ($1, 1, $2, sha256(convert_to('laid ' || $1, 'UTF8')), 'succeeded', now(), now())",
        )
        .bind(job)
        .bind(runner)
        .execute(&mut *tx)
        .await
        .expect("attempt");
        let (evidence, output) = match name {
            "bench" if candidate.benchmark.is_some() => (Some(("benchmark", &benchmark)), None),
            "export" if candidate.has_export => (Some(("onnx", &onnx)), Some(("onnx", "model.onnx", &sha256))),
            "train" => (None, Some(("model", "MLmodel", &model_sha256))),
            _ => (None, None),
        };
        if let Some((kind, body)) = evidence {
            sqlx::query("INSERT INTO evidence (job_id, attempt, kind, body, created_at) VALUES ($1, 1, $2, $3, now())")
                .bind(job)
                .bind(kind)
                .bind(body)
                .execute(&mut *tx)
                .await
                .expect("evidence");
        }
        if let Some((output, path, sha256)) = output {
            sqlx::query("INSERT INTO job_outputs (job_id, attempt, name, path, uri, sha256, bytes) VALUES ($1, 1, $2, $3, $4, $5, 1)")
                .bind(job)
                .bind(output)
                .bind(path)
                .bind(format!("mlflow-artifacts:/{root}/{output}/{path}"))
                .bind(sha256)
                .execute(&mut *tx)
                .await
                .expect("output");
        }
    }
    sqlx::query(
        "INSERT INTO promotions (pipeline_id, model_name, alias, status, created_at) VALUES ($1, 'digits', 'champion', 'waiting', now())",
    )
    .bind(pipeline)
    .execute(&mut *tx)
    .await
    .expect("promotion");
    sqlx::query("SELECT pg_notify('sluice', 'pipeline:' || $1)").bind(pipeline).execute(&mut *tx).await.expect("notice");
    tx.commit().await.expect("commit");
    pipeline
}

/// Stores bytes as an artifact, over whatever was there, and gives their digest.
pub async fn upload(server: &TestServer, path: &str, bytes: &[u8]) -> String {
    let stored = answer(server.request(Method::PUT, &format!("/api/2.0/mlflow-artifacts/artifacts/{path}")).body(bytes.to_vec())).await;
    assert_eq!(stored.status, 200, "{}", stored.body);
    sqlx::query_scalar("SELECT encode(sha256($1), 'hex')").bind(bytes).fetch_one(&server.pool).await.expect("digest")
}

/// Path of a deployment's or gate's artifact, for [`upload`].
pub async fn gated_path(server: &TestServer, version: i32) -> String {
    let uri: String = sqlx::query_scalar("SELECT artifact_uri FROM gate_records WHERE version = $1 AND verdict = 'pass'")
        .bind(version)
        .fetch_one(&server.pool)
        .await
        .expect("gated artifact");
    uri.trim_start_matches("mlflow-artifacts:/").to_owned()
}

/// Waits until a pipeline's promotion is decided and gives (status, reason, version).
pub async fn decision(server: &TestServer, pipeline: i64) -> (String, String, Option<i32>) {
    wait_for("the promotion's decision", LIMIT, || async {
        sqlx::query_as("SELECT status, reason, version FROM promotions WHERE pipeline_id = $1 AND status <> 'waiting'")
            .bind(pipeline)
            .fetch_optional(&server.pool)
            .await
            .expect("promotion")
    })
    .await
}

/// The version that holds `champion`.
pub async fn champion(server: &TestServer) -> Option<i64> {
    let model = server.get("/api/v1/models/digits").await;
    if model.status == 404 { None } else { model.expect(200)["aliases"]["champion"].as_i64() }
}

/// Brings a pipeline through the gate, with an approval where it needs one, and waits until it serves.
pub async fn ship(server: &TestServer, candidate: &Candidate) -> i32 {
    let pipeline = finish_pipeline(server, candidate).await;
    let (mut status, mut reason, version) = decision(server, pipeline).await;
    let version = version.expect("a version");
    if status == "waiting_approval" {
        let path = format!("/api/v1/models/digits/versions/{version}/approve");
        let promotion = server.post(&path, &json!({ "alias": "champion", "comment": "first" })).await.expect(200);
        (status, reason) = (promotion["status"].as_str().expect("status").to_owned(), promotion["reason"].to_string());
    }
    assert_eq!(status, "promoted", "{reason}");
    serving(server, version).await;
    version
}

/// Waits until a version serves.
pub async fn serving(server: &TestServer, version: i32) {
    wait_for("the version to serve", LIMIT, || async {
        let ready = server.get(&format!("/v2/models/digits/versions/{version}/ready")).await;
        (ready.status == 200).then_some(())
    })
    .await;
}

/// Waits until the newest deployment has ended its start and gives it.
pub async fn newest_deployment(server: &TestServer) -> Value {
    wait_for("the newest deployment", LIMIT, || async {
        let deployments = server.get("/api/v1/deployments?model=digits&limit=1").await.expect(200);
        let newest = deployments["items"][0].clone();
        (newest["status"] != "starting").then_some(newest)
    })
    .await
}

/// What the served model makes of 10, and the version that said so.
pub async fn predict(server: &TestServer) -> (f64, String) {
    let body = json!({ "inputs": [{ "name": "x", "datatype": "FP32", "shape": [1, 1], "data": [10.0] }] });
    let said = server.post("/v2/models/digits/infer", &body).await;
    let version = said.headers.get("x-sluice-version").map(|value| value.to_str().expect("text").to_owned()).unwrap_or_default();
    (said.expect(200)["outputs"][0]["data"][0].as_f64().expect("a number"), version)
}

/// Actions of the model's audit rows, oldest first.
pub async fn audit(server: &TestServer) -> Vec<String> {
    let rows = server.get("/api/v1/audit?subject=model:digits&limit=500").await.expect(200);
    rows["items"].as_array().expect("items").iter().rev().map(|row| row["action"].as_str().expect("action").to_owned()).collect()
}
