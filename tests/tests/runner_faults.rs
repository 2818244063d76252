//! Runners that die, hang, stop or lose their server in the middle of a job.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use sluice_tests::{TestServer, wait_for};

use crate::runner_support::{LIMIT, Line, Runner, gone, is_alive};

/// Logs steps 0 to 20. The first attempt stays at step 10 until it is killed.
const TRAINING: &str = r#"
import os, pathlib, time
import mlflow
notes, attempt = pathlib.Path(os.environ["NOTES"]), os.environ["SLUICE_JOB"].split(".")[1]
(notes / f"pid{attempt}").write_text(f"{os.getpid()}\n")
with mlflow.start_run():
    for step in range(21):
        mlflow.log_metric("loss", 1 / (step + int(attempt)), step=step)
        if step == 10 and attempt == "1":
            (notes / "half").write_text("there\n")
            time.sleep(3600)
"#;

async fn history(server: &TestServer, run_id: &Value, key: &str) -> Vec<Value> {
    let path = format!("/api/2.0/mlflow/metrics/get-history?run_id={}&metric_key={key}", run_id.as_str().expect("run_id"));
    server.get(&path).await.expect(200)["metrics"].as_array().cloned().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_is_killed_costs_an_attempt_and_no_metric() {
    let server = TestServer::start_with(&["--lease-secs", "600"]).await;
    let folder = tempfile::tempdir().unwrap();
    let mut runner = Runner::start(&server, "one", folder.path(), &[]);
    let line = Line::push(&server, "train", "run: python script.py", TRAINING).await;
    line.note("half").await;
    runner.kill9().await;
    let pid = line.note("pid1").await;
    assert!(is_alive(&pid), "SIGKILL of the runner does not reach its jobs");
    assert_eq!(line.job().await["status"], "running");

    // The same runner again: it ends what it left behind, and its return tells the server that the attempt is lost.
    let _runner = Runner::start(&server, "one", folder.path(), &[]);
    gone(&pid, LIMIT).await;
    let job = line.reaches("succeeded").await;
    assert_eq!(
        job["attempts"].as_array().unwrap().iter().map(|attempt| attempt["status"].as_str().unwrap()).collect::<Vec<_>>(),
        ["lost", "succeeded"]
    );
    let points = history(&server, &job["run_id"], "loss").await;
    let steps: Vec<i64> = points.iter().map(|point| point["step"].as_i64().unwrap()).collect();
    assert_eq!(steps, (0..21).collect::<Vec<_>>(), "each step once");
    assert_eq!(points[3]["value"], json!(1.0 / 5.0), "what the second attempt measured");
    let run = server.get(&format!("/api/2.0/mlflow/runs/get?run_id={}", job["run_id"].as_str().unwrap())).await.expect(200);
    assert_eq!(run["run"]["info"]["status"], "FINISHED");
}

/// Logs for ever and notes how the server answers. Later attempts end at once.
const ZOMBIE: &str = r#"
import json, os, pathlib, sys, time, urllib.error, urllib.request
notes, attempt = pathlib.Path(os.environ["NOTES"]), os.environ["SLUICE_JOB"].split(".")[1]
(notes / f"pid{attempt}").write_text(f"{os.getpid()}\n")
def log(step):
    body = {"run_id": os.environ["MLFLOW_RUN_ID"], "key": "loss", "value": int(attempt), "step": step, "timestamp": step}
    request = urllib.request.Request(os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/runs/log-metric", json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]})
    try:
        return urllib.request.urlopen(request, timeout=20).status
    except urllib.error.HTTPError as error:
        return error.code
step = 0
while True:
    answer = log(step)
    print("attempt", attempt, "step", step, "answer", answer)
    if not (notes / f"answer{attempt}.{answer}").exists():
        (notes / f"answer{attempt}.{answer}").write_text(f"{step}\n")
    if attempt != "1":
        sys.exit(0)
    step += 1
    time.sleep(0.05)
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_was_frozen_past_its_lease_writes_nothing_more() {
    let server = TestServer::start_with(&["--lease-secs", "2"]).await;
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let frozen = Runner::start(&server, "frozen", folder.path(), &[]);
    let line = Line::push(&server, "zombie", "run: python script.py", ZOMBIE).await;
    line.note("answer1.200").await;
    frozen.signal(Signal::STOP);
    let pid = line.note("pid1").await;
    let _runner = Runner::start(&server, "other", other.path(), &[]);
    let job = line.reaches("succeeded").await;
    assert_eq!(job["attempt"], 2);
    // Its process was not frozen: the server refuses the zombie.
    line.note("answer1.409").await;
    let before = history(&server, &job["run_id"], "loss").await;
    let log = line.log(1).await;

    frozen.signal(Signal::CONT);
    gone(&pid, LIMIT).await;
    frozen.stop().await;
    assert_eq!(history(&server, &job["run_id"], "loss").await, before);
    assert_eq!(line.log(1).await, log);
    assert_eq!(line.job().await["status"], "succeeded");
    assert!(!folder.path().join("frozen/jobs").join(format!("{}.1", job["id"])).exists(), "the workspace is removed");
}

/// The first attempt waits; later ones end at once.
const WAIT_ONCE: &str = r#"
import os, pathlib, sys, time
notes, attempt = pathlib.Path(os.environ["NOTES"]), os.environ["SLUICE_JOB"].split(".")[1]
(notes / f"pid{attempt}").write_text(f"{os.getpid()}\n")
while attempt == "1":
    time.sleep(0.1)
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_is_stopped_hands_its_job_on() {
    let server = TestServer::start().await;
    let folder = tempfile::tempdir().unwrap();
    let runner = Runner::start(&server, "first", folder.path(), &[]);
    let line = Line::push(&server, "handover", "run: python script.py", WAIT_ONCE).await;
    let pid = line.note("pid1").await;
    runner.stop().await;
    assert!(!is_alive(&pid));
    let job = line.reaches("queued").await;
    assert_eq!(job["attempts"][0]["cause"], "infra");
    assert_eq!(job["attempts"][0]["message"], "runner stopped");
    let _runner = Runner::start(&server, "second", folder.path(), &[]);
    let job = line.reaches("succeeded").await;
    let log = std::fs::read_to_string(folder.path().join("runner.log")).unwrap();
    assert_eq!(job["attempts"][1]["runner"], "second", "{job}\n{log}");
}

/// Two workers under torchrun; both ignore SIGTERM, one has a child in a session of its own that does too.
const STUBBORN: &str = r#"
import os, pathlib, signal, subprocess, sys, time
import torch.distributed as dist
signal.signal(signal.SIGTERM, signal.SIG_IGN)
dist.init_process_group("gloo")
rank, notes = dist.get_rank(), pathlib.Path(os.environ["NOTES"])
if rank == 0:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
    (notes / "child").write_text(f"{child.pid}\n")
    (notes / "launcher").write_text(f"{os.getppid()}\n")
dist.barrier()
(notes / f"worker{rank}").write_text(f"{os.getpid()}\n")
while True:
    time.sleep(0.1)
"#;

/// Cancels at `path` (with the job's id for `ID`): the API's, or that of the form on the job's page.
async fn cancel_ends_every_process(path: &str, arguments: &[&str]) {
    let server = TestServer::start().await;
    let folder = tempfile::tempdir().unwrap();
    let _runner = Runner::start(&server, "one", folder.path(), arguments);
    let job = "resources: { cpus: 2 }, launch: { with: torchrun, processes: 2, script: script.py }";
    let line = Line::push(&server, "stubborn", job, STUBBORN).await;
    let mut pids = Vec::new();
    for name in ["launcher", "worker0", "worker1", "child"] {
        pids.push(line.note(name).await);
    }
    assert!(pids.iter().all(|pid| is_alive(pid)));
    let path = path.replace("ID", &line.job().await["id"].to_string());
    // the form answers with a redirect to the page
    server.post(&path, &json!({})).await.expect(200);
    let deadline = Instant::now() + crate::runner_support::GRACE + Duration::from_secs(5);
    for pid in &pids {
        gone(pid, deadline.saturating_duration_since(Instant::now())).await;
    }
    let job = line.reaches("cancelled").await;
    assert_eq!(job["attempt"], 1);
    assert_eq!(job["cause"], "cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_over_the_api_ends_torchrun_and_its_workers_through_the_control_group() {
    cancel_ends_every_process("/api/v1/jobs/ID/cancel", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_on_the_page_ends_torchrun_and_its_workers_through_proc() {
    cancel_ends_every_process("/jobs/ID/cancel", &["--no-cgroups"]).await;
}

/// Prints a line at a time until it is told to end, without noticing what happens to the server.
const CHATTER: &str = r#"
import os, pathlib, time
notes, line = pathlib.Path(os.environ["NOTES"]), 0
while not (notes / "end").exists():
    print("line", line)
    line += 1
    (notes / "lines").write_text(f"{line}\n")
    time.sleep(0.01)
print("last", line)
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_killed_gets_every_line_of_the_log_afterwards() {
    let mut server = TestServer::start().await;
    let folder = tempfile::tempdir().unwrap();
    let _runner = Runner::start(&server, "one", folder.path(), &[]);
    let (notes, pipeline) = {
        let line = Line::push(&server, "chatter", "run: python script.py", CHATTER).await;
        wait_for("some log", LIMIT, || async { line.log(1).await.contains("line 20").then_some(()) }).await;
        (line.notes, line.pipeline)
    };
    server.kill9().await;
    let printed = || std::fs::read_to_string(notes.path().join("lines")).ok().and_then(|text| text.trim().parse::<u32>().ok()).unwrap_or(0);
    let before = printed();
    wait_for("output while the server is away", LIMIT, || async { (printed() > before + 100).then_some(()) }).await;
    server.restart().await;
    std::fs::write(notes.path().join("end"), "").unwrap();
    let line = Line { server: &server, notes, pipeline };
    let job = line.reaches("succeeded").await;
    assert_eq!(job["attempt"], 1, "the job was not disturbed");
    let log = line.log(1).await;
    let lines: Vec<&str> = log.lines().filter(|line| line.starts_with("line ")).collect();
    let expected: Vec<String> = (0..lines.len()).map(|number| format!("line {number}")).collect();
    assert_eq!(lines, expected, "every line, once, in order");
    assert!(log.contains(&format!("last {}", lines.len())));
}
