//! Git checkouts and runners made of plain HTTP calls, for tests of pipelines.

use std::{path::Path, process::Output, time::Duration};

use reqwest::Method;
use serde_json::{Value, json};
use sluice_tests::{Answer, TestServer, answer, wait_for};
use tokio::process::Command;

pub const LIMIT: Duration = Duration::from_secs(60);

/// A job and one that needs it.
pub const TWO_JOBS: &str = "version: 1
jobs:
  train:
    experiment: line
    run: echo hello
    outputs: { model: out }
  bench:
    needs: [train]
    run: echo hello
";

/// Runs git in a folder, free of the machine's configuration.
pub async fn git(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new("git");
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(name);
    }
    command
        .envs([("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_TERMINAL_PROMPT", "0"), ("LC_ALL", "C")])
        .args(["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "protocol.version=2", "-c", "gc.auto=0"])
        .args(arguments)
        .current_dir(folder);
    command.output().await.expect("run git")
}

/// Standard output of a git command that must succeed.
pub async fn git_ok(folder: &Path, arguments: &[&str]) -> String {
    let output = git(folder, arguments).await;
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A local repository whose `origin` is a repository of the server.
pub struct Checkout {
    pub folder: tempfile::TempDir,
    pub url: String,
}

impl Checkout {
    /// Creates a repository on the server and one here.
    pub async fn create(server: &TestServer, name: &str) -> Self {
        let made = server.post("/api/v1/repositories", &json!({ "name": name })).await.expect(201);
        Self::of(made["git_url"].as_str().expect("git_url")).await
    }

    /// A local repository for one that the server has.
    pub async fn of(url: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("sluice-git-").tempdir().expect("temporary folder");
        git_ok(folder.path(), &["init", "-q", "-b", "main"]).await;
        git_ok(folder.path(), &["remote", "add", "origin", url]).await;
        Self { folder, url: url.to_owned() }
    }

    /// Commits a pipeline file and gives the commit's SHA.
    pub async fn commit(&self, pipeline_file: &str, subject: &str) -> String {
        std::fs::write(self.folder.path().join(".sluice.yml"), pipeline_file).expect("write");
        self.commit_all(subject).await
    }

    /// Commits everything and gives the commit's SHA.
    pub async fn commit_all(&self, subject: &str) -> String {
        git_ok(self.folder.path(), &["add", "-A"]).await;
        git_ok(self.folder.path(), &["commit", "-q", "--allow-empty", "-m", subject]).await;
        git_ok(self.folder.path(), &["rev-parse", "HEAD"]).await
    }

    /// Pushes and gives what git printed.
    pub async fn push(&self, reference: &str) -> String {
        let output = git(self.folder.path(), &["push", "origin", reference]).await;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "git push {reference}: {text}");
        text
    }
}

/// Commits a pipeline file on a fresh repository, pushes it and gives the pipeline.
pub async fn start_pipeline(server: &TestServer, repository: &str, file: &str) -> Value {
    let checkout = Checkout::create(server, repository).await;
    checkout.commit(file, "First").await;
    checkout.push("main").await;
    let list = server.get(&format!("/api/v1/pipelines?repository={repository}")).await.expect(200);
    list["items"][0].clone()
}

/// A job of a pipeline, by name, as it is now.
pub async fn job(server: &TestServer, pipeline: &Value, name: &str) -> Value {
    let pipeline = server.get(&format!("/api/v1/pipelines/{}", pipeline["id"])).await.expect(200);
    let jobs = pipeline["jobs"].as_array().expect("jobs");
    jobs.iter().find(|job| job["name"] == name).unwrap_or_else(|| panic!("no job {name}")).clone()
}

/// A runner that only speaks the protocol.
pub struct FakeRunner<'a> {
    pub server: &'a TestServer,
    pub token: String,
}

impl<'a> FakeRunner<'a> {
    pub async fn register(server: &'a TestServer, name: &str) -> Self {
        let body = json!({ "name": name, "capabilities": ["python"], "cpus": 2, "version": "0" });
        let made = server.post("/api/v1/runners", &body).await.expect(200);
        Self { server, token: made["token"].as_str().expect("token").to_owned() }
    }

    /// The next job, if one comes within a second.
    pub async fn claim(&self) -> Option<Attempt<'a>> {
        let body = json!({ "wait_secs": 1, "free_cpus": 2 });
        let claimed = self.server.post_as(&self.token, "/api/v1/runner/claim", &body).await.expect(200);
        let assignment = claimed["assignment"].clone();
        assignment.is_object().then(|| Attempt { server: self.server, assignment })
    }

    /// The next job, which must come.
    pub async fn must_claim(&self) -> Attempt<'a> {
        wait_for("a job to claim", LIMIT, || self.claim()).await
    }
}

/// A claimed job.
pub struct Attempt<'a> {
    pub server: &'a TestServer,
    pub assignment: Value,
}

impl Attempt<'_> {
    pub fn name(&self) -> &str {
        self.assignment["job"]["name"].as_str().expect("name")
    }

    pub fn job_id(&self) -> i64 {
        self.assignment["job_id"].as_i64().expect("job_id")
    }

    pub fn token(&self) -> &str {
        self.assignment["token"].as_str().expect("token")
    }

    pub fn path(&self, what: &str) -> String {
        format!("/api/v1/runner/jobs/{}/attempts/{}/{what}", self.job_id(), self.assignment["attempt"])
    }

    pub async fn post(&self, what: &str, body: &Value) -> Answer {
        self.server.post_as(self.token(), &self.path(what), body).await
    }

    pub async fn renew(&self) -> Answer {
        self.post("renew", &json!({ "steps": [] })).await
    }

    pub async fn log(&self, seq: i64, content: &str) -> Answer {
        self.post("logs", &json!({ "chunks": [{ "seq": seq, "content": content }] })).await
    }

    pub async fn upload(&self, output: &str, path: &str, bytes: &[u8]) -> Answer {
        let request = self.server.request(Method::PUT, &self.path(&format!("outputs/{output}/{path}")));
        answer(request.bearer_auth(self.token()).body(bytes.to_vec())).await
    }

    pub async fn result(&self, status: &str, cause: Option<&str>) -> Answer {
        self.post("result", &result(status, cause)).await
    }
}

/// A result without evidence.
pub fn result(status: &str, cause: Option<&str>) -> Value {
    json!({ "status": status, "cause": cause, "exit_code": null, "message": "so it ended", "steps": [], "evidence": [] })
}
