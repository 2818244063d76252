//! Runners as processes that tests stop, kill and start again, and jobs that say what happens to them.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sluice_tests::{TestServer, sluice_binary, wait_for};
use tokio::process::{Child, Command};

use crate::pipeline_support::{Checkout, job};

/// Long enough for torchrun on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Seconds between SIGTERM and SIGKILL in these tests.
pub const GRACE: Duration = Duration::from_secs(1);

/// A runner process in a folder that outlives it.
pub struct Runner {
    child: Child,
}

impl Runner {
    /// Starts a runner in `folder`; jobs run with the tests' Python.
    pub fn start(server: &TestServer, name: &str, folder: &Path, arguments: &[&str]) -> Self {
        let log = std::fs::File::options().create(true).append(true).open(folder.join("runner.log")).expect("runner log");
        let mut command = Command::new(sluice_binary());
        command.args(["runner", "--server", &server.url, "--name", name, "--cpus", "4", "--grace-secs", "1", "--work-dir"]);
        command.arg(folder.join(name)).arg("--cache").arg(folder.join("cache")).args(arguments);
        if let Some(python) = std::env::var_os("SLUICE_TEST_PYTHON") {
            command.env("SLUICE_PYTHON", python);
        }
        command.stdin(Stdio::null()).stderr(log).kill_on_drop(true);
        Self { child: command.spawn().expect("start a runner") }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().expect("the runner runs").cast_signed()).expect("a process id")
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("signal the runner");
    }

    /// SIGKILL, and waits for its end.
    pub async fn kill9(&mut self) {
        self.child.kill().await.expect("kill the runner");
    }

    /// SIGTERM, and waits for its end.
    pub async fn stop(mut self) {
        self.signal(Signal::TERM);
        let status = tokio::time::timeout(LIMIT, self.child.wait()).await.expect("the runner stops").expect("a status");
        assert!(status.success(), "the runner ended with {status}");
    }
}

/// A repository with a job named `job` that runs a Python script (`script.py`), and a folder where the script leaves
/// notes for the test: `$NOTES`.
pub struct Line<'a> {
    pub server: &'a TestServer,
    pub notes: tempfile::TempDir,
    pub pipeline: Value,
}

impl<'a> Line<'a> {
    /// Pushes it. `job` is the job's YAML below its name, in flow style, without the environment.
    pub async fn push(server: &'a TestServer, repository: &str, job: &str, script: &str) -> Self {
        let notes = tempfile::Builder::new().prefix("sluice-notes-").tempdir().expect("temporary folder");
        let checkout = Checkout::create(server, repository).await;
        std::fs::write(checkout.folder.path().join("script.py"), script).expect("write");
        let file = format!(
            "version: 1\non: {{ push: {{ branches: [main] }} }}\njobs:\n  job: {{ env: {{ NOTES: {:?} }}, {job} }}\n",
            notes.path().to_str().expect("UTF-8")
        );
        checkout.commit(&file, "First").await;
        checkout.push("main").await;
        let list = server.get(&format!("/api/v1/pipelines?repository={repository}")).await.expect(200);
        let pipeline = list["items"][0].clone();
        assert_eq!(pipeline["file_errors"], Value::Null);
        Self { server, notes, pipeline }
    }

    /// The job as it is now.
    pub async fn job(&self) -> Value {
        job(self.server, &self.pipeline, "job").await
    }

    /// Waits until the job has a status.
    pub async fn reaches(&self, status: &str) -> Value {
        let wanted = |job: Value| (job["status"] == status).then_some(job);
        wait_for(&format!("the job is {status}"), LIMIT, || async { wanted(self.job().await) }).await
    }

    /// Waits for a note and gives its text.
    pub async fn note(&self, name: &str) -> String {
        let file = self.file(name);
        wait_for(&format!("the note {name}"), LIMIT, || async { std::fs::read_to_string(&file).ok().filter(|text| text.ends_with('\n')) })
            .await
            .trim()
            .to_owned()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.notes.path().join(name)
    }

    /// The log of an attempt.
    pub async fn log(&self, attempt: i64) -> String {
        let (mut text, mut from) = (String::new(), 0);
        loop {
            let path = format!("/api/v1/jobs/{}/logs?attempt={attempt}&from={from}", self.job().await["id"]);
            let answer = self.server.get(&path).await;
            if answer.status == 404 {
                return text; // not started yet
            }
            let page = answer.expect(200);
            let chunks = page["chunks"].as_array().expect("chunks");
            text.extend(chunks.iter().filter_map(|chunk| chunk["content"].as_str()));
            from = page["next"].as_i64().expect("next");
            if chunks.is_empty() || page["finished"] == true {
                return text;
            }
        }
    }
}

/// Whether a process lives (a zombie does not).
pub fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim_start().starts_with(['Z', 'X']))
}

/// Waits until a process is gone; gives the time that it took.
pub async fn gone(pid: &str, limit: Duration) -> Duration {
    let started = Instant::now();
    wait_for(&format!("process {pid} is gone"), limit, || async { (!is_alive(pid)).then_some(()) }).await;
    started.elapsed()
}
