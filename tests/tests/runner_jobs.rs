//! What jobs see, what they leave behind, and how they fail.

use std::path::Path;

use serde_json::{Value, json};
use sluice_tests::{TestServer, wait_for};

use crate::{
    pipeline_support::{Checkout, job},
    runner_support::{LIMIT, Line, Runner},
};

async fn settled(server: &TestServer, pipeline: &Value) -> Value {
    let path = format!("/api/v1/pipelines/{}", pipeline["id"]);
    wait_for("the pipeline is over", LIMIT, || async {
        let pipeline = server.get(&path).await.expect(200);
        (pipeline["status"] != "running").then_some(pipeline)
    })
    .await
}

async fn push(server: &TestServer, checkout: &Checkout, file: &str) -> Value {
    checkout.commit(file, "Change").await;
    checkout.push("main").await;
    server.get("/api/v1/pipelines").await.expect(200)["items"][0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_of_one_job_are_inputs_of_the_next() {
    let server = TestServer::start().await;
    let folder = tempfile::tempdir().unwrap();
    let _runner = Runner::start(&server, "one", folder.path(), &[]);
    let checkout = Checkout::create(&server, "flow").await;
    let file = r#"
version: 1
on: { push: { branches: [main] } }
jobs:
  first:
    env: { GREETING: "hello there" }
    run: |
      mkdir -p out/data/sub && echo "$GREETING" > out/data/a && echo b > out/data/sub/b
      ln -s /etc/hostname out/data/link; printf 'one file' > out/single
      echo "token $MLFLOW_TRACKING_TOKEN job $SLUICE_JOB home $HOME"; env | grep -c SECRET_OF_THE_MACHINE || true
    outputs: { data: out/data, single: out/single }
  second:
    needs: [first]
    run: |
      cd "$SLUICE_INPUTS" && find . -type f | sort && cat first/data/a first/data/sub/b first/single/single
"#;
    let pipeline = push(&server, &checkout, file).await;
    let pipeline = settled(&server, &pipeline).await;
    assert_eq!(pipeline["status"], "succeeded", "{pipeline}");
    let first = job(&server, &pipeline, "first").await;
    let outputs: Vec<(&str, &str)> = first["outputs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|output| (output["name"].as_str().unwrap(), output["path"].as_str().unwrap()))
        .collect();
    assert_eq!(outputs, [("data", "a"), ("data", "sub/b"), ("single", "single")]);
    let log = server.get(&format!("/api/v1/jobs/{}/logs", first["id"])).await.expect(200)["chunks"].to_string();
    assert!(log.contains("token *** job 1.1 "), "the secret is masked: {log}");
    assert!(log.contains("link is left out"), "{log}");
    let second = job(&server, &pipeline, "second").await;
    let log = server.get(&format!("/api/v1/jobs/{}/logs", second["id"])).await.expect(200)["chunks"].to_string();
    assert!(log.contains("./first/data/a\\n./first/data/sub/b\\n./first/single/single\\nhello there\\nb\\none file"), "{log}");
    assert!(
        first["attempts"][0]["steps"]
            .as_array()
            .unwrap()
            .iter()
            .map(|step| step["name"].as_str().unwrap())
            .eq(["checkout", "setup", "inputs", "run", "outputs"])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_have_a_cause_and_a_line() {
    let server = TestServer::start().await;
    let folder = tempfile::tempdir().unwrap();
    let _runner = Runner::start(&server, "one", folder.path(), &[]);
    let checkout = Checkout::create(&server, "failures").await;
    let file = r#"
version: 1
on: { push: { branches: [main] } }
jobs:
  code: { run: "echo working; echo 'cannot open data.csv' >&2; exit 7" }
  pipe: { run: "false | cat" }
  signal: { run: "kill -9 $$" }
  late: { run: "sleep 1000", timeout: 1s }
  missing: { run: "true", outputs: { model: out/model } }
  escape: { run: "ln -s / out", outputs: { model: out/etc } }
  setup: { setup: "echo no such package >&2; exit 1", run: "true" }
  python: { run: "python -c 'raise ValueError(\"bad shape\")'" }
"#;
    let pipeline = push(&server, &checkout, file).await;
    for (name, cause, code, message) in [
        ("code", "user", json!(7), "run: exit code 7: cannot open data.csv"),
        ("pipe", "user", json!(1), "run: exit code 1"),
        ("signal", "user", json!(137), "run: killed by signal 9"),
        ("late", "timeout", Value::Null, "the job's time is up"),
        ("missing", "user", Value::Null, "output model: out/model is missing"),
        ("escape", "user", Value::Null, "output model: out/etc leads out of the checkout"),
        ("setup", "user", json!(1), "setup: exit code 1: no such package"),
        ("python", "user", json!(1), "run: exit code 1: ValueError: bad shape"),
    ] {
        let job = wait_for(&format!("{name} is over"), LIMIT, || async {
            let job = job(&server, &pipeline, name).await;
            job["finished_at"].is_string().then_some(job)
        })
        .await;
        assert_eq!((&job["status"], &job["cause"]), (&json!("failed"), &json!(cause)), "{name}: {job}");
        assert_eq!((&job["message"], &job["attempts"][0]["exit_code"]), (&json!(message), &code), "{name}");
        assert_eq!(job["attempt"], 1, "{name} is not tried again");
    }
}

/// The environments of a runner's cache.
fn environments(cache: &Path) -> Vec<std::path::PathBuf> {
    std::fs::read_dir(cache.join("envs")).into_iter().flatten().flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn environments_are_built_once_by_content() {
    let server = TestServer::start().await;
    let folder = tempfile::tempdir().unwrap();
    let _runner = Runner::start(&server, "one", folder.path(), &[]);
    let checkout = Checkout::create(&server, "envs").await;
    let file = r#"
version: 1
on: { push: { branches: [main] } }
setup: cat requirements.txt && echo x >> "$VIRTUAL_ENV/builds" && sleep 1
jobs:
  a: { run: "test $(wc -l < $VIRTUAL_ENV/builds) = 1 && test $(command -v python) = $VIRTUAL_ENV/bin/python" }
  b: { run: "test $(wc -l < $VIRTUAL_ENV/builds) = 1" }
"#;
    std::fs::write(checkout.folder.path().join("requirements.txt"), "one\n").unwrap();
    let pipeline = push(&server, &checkout, file).await;
    assert_eq!(settled(&server, &pipeline).await["status"], "succeeded");
    let mut how = Vec::new();
    for name in ["a", "b"] {
        how.push(job(&server, &pipeline, name).await["attempts"][0]["steps"][1]["status"].as_str().unwrap().to_owned());
    }
    how.sort();
    assert_eq!(how, ["skipped", "succeeded"], "two jobs at once share one build");
    let cache = folder.path().join("cache");
    let [first] = environments(&cache).try_into().unwrap();

    // What an interrupted build left is not used.
    std::fs::remove_file(first.join("complete")).unwrap();
    std::fs::write(first.join("half-built"), "").unwrap();
    std::fs::write(checkout.folder.path().join("other.txt"), "1").unwrap();
    let pipeline = push(&server, &checkout, file).await;
    assert_eq!(settled(&server, &pipeline).await["status"], "succeeded");
    assert_eq!(environments(&cache), std::slice::from_ref(&first));
    assert!(!first.join("half-built").exists());

    // A file that the set-up names has changed: another environment.
    std::fs::write(checkout.folder.path().join("requirements.txt"), "two\n").unwrap();
    let pipeline = push(&server, &checkout, file).await;
    assert_eq!(settled(&server, &pipeline).await["status"], "succeeded");
    assert_eq!(environments(&cache).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_benchmark_reports_what_its_processes_measured() {
    let server = TestServer::start().await;
    let folder = tempfile::tempdir().unwrap();
    let _runner = Runner::start(&server, "one", folder.path(), &[]);
    let script = r#"
import json, os
seed = int(os.environ["SLUICE_SEED"])
assert os.environ["SLUICE_SIDE"] == "candidate" and os.environ["SLUICE_REPEAT"] == str(seed)
value = float("nan") if seed == 1 else 0.5 + seed
json.dump({"score": value, "latency_ms": [1.0, 2.0]}, open(os.environ["SLUICE_BENCH_RESULT"], "w"))
"#;
    let spec = "benchmark: { command: python script.py, repeats: 3, metrics: { score: higher, latency_ms: lower } }";
    let line = Line::push(&server, "bench", spec, script).await;
    let job = line.reaches("succeeded").await;
    let (body,): (Value,) = sqlx::query_as("SELECT body FROM evidence WHERE job_id = $1")
        .bind(job["id"].as_i64().unwrap())
        .fetch_one(&server.pool)
        .await
        .unwrap();
    assert_eq!(
        body["metrics"]["score"],
        json!({ "direction": "higher", "champion": [], "candidate": [
            { "order": 0, "seed": 0, "values": [0.5] },
            { "order": 1, "seed": 1, "values": [null] },
            { "order": 2, "seed": 2, "values": [2.5] },
        ] })
    );
    assert_eq!(body["metrics"]["latency_ms"]["candidate"][2]["values"], json!([1.0, 2.0]));
    for fact in ["host", "cpu", "cores", "python", "load_before"] {
        assert!(body["environment"][fact].is_string(), "{fact}: {}", body["environment"]);
    }

    let line = Line::push(&server, "silent", spec, "import sys; print('nothing to say')").await;
    let job = line.reaches("failed").await;
    assert_eq!(job["message"], "benchmark of the candidate, seed 0: the command wrote nothing to $SLUICE_BENCH_RESULT");
    let script = "import json, os; json.dump({'score': 1}, open(os.environ['SLUICE_BENCH_RESULT'], 'w'))";
    let line = Line::push(&server, "partial", spec, script).await;
    let job = line.reaches("failed").await;
    assert_eq!(job["cause"], "user");
    assert_eq!(job["message"], "benchmark of the candidate, seed 0: metric latency_ms is missing; the result has: score");
}
