//! `sluice up`: its private Postgres, clean stops, second starts, recovery.

use std::{
    os::unix::fs::{PermissionsExt as _, chown},
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use reqwest::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use sluice_tests::{Answer, answer, sluice_binary, wait_for};
use tokio::process::{Child, Command};

const NOBODY: u32 = 65534;

struct Up {
    child: Child,
    url: String,
}

impl Up {
    async fn start(mut command: Command, data: &Path) -> Self {
        let url_file = data.join("url");
        let _ = std::fs::remove_file(&url_file);
        let log = std::fs::OpenOptions::new().create(true).append(true).open(data.join("up.log")).expect("log");
        let child = command
            .args(["up", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .arg("--cache")
            .arg(data.join("cache"))
            .arg("--url-file")
            .arg(&url_file)
            .env_remove("DATABASE_URL")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("start sluice up");
        let url = wait_for("the URL of sluice up", Duration::from_secs(60), || async { std::fs::read_to_string(&url_file).ok() }).await;
        Self { child, url }
    }

    async fn stop(&mut self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().expect("runs").cast_signed()).expect("a pid");
        kill_process(pid, signal).expect("send the signal");
        let status = tokio::time::timeout(Duration::from_secs(30), self.child.wait()).await.expect("a stop within 30 s").expect("a status");
        assert!(status.success(), "a clean stop exits with 0, not {status}");
    }

    async fn create_experiment(&self, name: &str) -> Answer {
        let request = reqwest::Client::new().request(Method::POST, format!("{}/api/2.0/mlflow/experiments/create", self.url));
        answer(request.json(&json!({ "name": name }))).await
    }

    async fn experiment(&self, name: &str) -> Answer {
        answer(
            reqwest::Client::new()
                .request(Method::GET, format!("{}/api/2.0/mlflow/experiments/get-by-name?experiment_name={name}", self.url)),
        )
        .await
    }
}

fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("sluice-up-").tempdir().expect("temporary folder")
}

/// Processes whose command line or working folder holds the data folder.
fn processes_of(data: &Path) -> Vec<String> {
    let needle = data.to_string_lossy().into_owned();
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok_and(|pid| pid != std::process::id()))
        .filter_map(|entry| {
            let line = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default().replace('\0', " ");
            let cwd = std::fs::read_link(entry.path().join("cwd")).unwrap_or_default();
            (line.contains(&needle) || cwd.starts_with(data)).then(|| format!("{} {line}", entry.file_name().to_string_lossy()))
        })
        .collect()
}

async fn starts_stops_and_finds_everything_again(binary: impl Fn() -> Command, data: &Path) {
    let mut up = Up::start(binary(), data).await;
    up.create_experiment("kept").await.expect(200);
    up.stop(Signal::TERM).await;
    assert_eq!(processes_of(data), Vec::<String>::new(), "no process may be left");

    let began = Instant::now();
    let mut up = Up::start(binary(), data).await;
    let warm = began.elapsed();
    up.experiment("kept").await.expect(200);
    up.stop(Signal::INT).await;
    assert_eq!(processes_of(data), Vec::<String>::new(), "no process may be left");
    println!("second start answered after {warm:?}");
}

#[tokio::test]
async fn up_stops_cleanly_and_a_second_start_finds_everything() {
    let data = folder();
    starts_stops_and_finds_everything_again(|| Command::new(sluice_binary()), data.path()).await;
}

#[tokio::test]
async fn up_works_as_an_ordinary_user() {
    let data = folder();
    if !rustix::process::geteuid().is_root() {
        return starts_stops_and_finds_everything_again(|| Command::new(sluice_binary()), data.path()).await;
    }
    // the build folder may be closed to others: the user gets a copy of the binary
    let bin = folder();
    std::fs::set_permissions(bin.path(), std::fs::Permissions::from_mode(0o755)).expect("permissions");
    let copy = bin.path().join("sluice");
    std::fs::copy(sluice_binary(), &copy).expect("copy the binary");
    chown(data.path(), Some(NOBODY), Some(NOBODY)).expect("chown");
    let as_nobody = || {
        let mut command = Command::new(&copy);
        command.uid(NOBODY).gid(NOBODY).env("HOME", data.path()).current_dir(data.path());
        command
    };
    starts_stops_and_finds_everything_again(as_nobody, data.path()).await;
}

#[tokio::test]
async fn two_servers_never_share_a_data_folder() {
    let data = folder();
    let mut first = Up::start(Command::new(sluice_binary()), data.path()).await;
    let second = Command::new(sluice_binary())
        .args(["up", "--listen", "127.0.0.1:0", "--data"])
        .arg(data.path())
        .env_remove("DATABASE_URL")
        .stdin(Stdio::null())
        .output()
        .await
        .expect("run");
    assert!(!second.status.success());
    assert!(String::from_utf8_lossy(&second.stderr).contains("another Sluice is running"), "{}", String::from_utf8_lossy(&second.stderr));
    first.stop(Signal::TERM).await;
}

#[tokio::test]
async fn a_killed_postgres_comes_back_without_a_restart_of_the_server() {
    let data = folder();
    let mut up = Up::start(Command::new(sluice_binary()), data.path()).await;
    up.create_experiment("before").await.expect(200);
    let pid_file = std::fs::read_to_string(data.path().join("postgres/data/postmaster.pid")).expect("postmaster.pid");
    let pid = pid_file.lines().next().and_then(|line| line.trim().parse().ok()).and_then(Pid::from_raw).expect("a pid");
    kill_process(pid, Signal::KILL).expect("kill Postgres");
    let up_ref = &up;
    let while_down = wait_for("Sluice to answer from the database again", Duration::from_secs(60), || async move {
        let found = up_ref.experiment("before").await;
        // a passing fault is said as such, so that clients try again
        assert!(matches!(found.status, 200 | 503), "{}: {}", found.status, found.body);
        (found.status == 200).then_some(found)
    })
    .await;
    assert_eq!(while_down.body["experiment"]["name"], "before");
    up.create_experiment("after").await.expect(200);
    up.stop(Signal::TERM).await;
}

#[tokio::test]
async fn after_a_kill_9_the_next_start_finds_what_was_acknowledged() {
    let data = folder();
    let mut up = Up::start(Command::new(sluice_binary()), data.path()).await;
    up.create_experiment("acknowledged").await.expect(200);
    up.child.kill().await.expect("kill");
    let mut up = Up::start(Command::new(sluice_binary()), data.path()).await;
    up.experiment("acknowledged").await.expect(200);
    up.stop(Signal::TERM).await;
    assert_eq!(processes_of(data.path()), Vec::<String>::new(), "no process may be left");
}

#[tokio::test]
async fn a_foreign_address_is_refused_without_logins() {
    let data = folder();
    let output = Command::new(sluice_binary())
        .args(["server", "--listen", "0.0.0.0:0", "--data"])
        .arg(data.path())
        .env("DATABASE_URL", "postgres://localhost/none")
        .output()
        .await
        .expect("run");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("--listen 0.0.0.0:0"), "{}", String::from_utf8_lossy(&output.stderr));
}
