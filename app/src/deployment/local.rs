//! The `local` target: `sluice serve-model` as a child process that ends when its stdin does, so that none
//! is left behind however the server ends.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use sluice_store::deployment::DeploymentRow;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, BufReader},
    process::{Child, Command},
    sync::{Notify, OwnedRwLockReadGuard, RwLock},
    time::{Instant, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;

/// How long a process may take until it is ready.
const START_DEADLINE: Duration = Duration::from_secs(60);
/// How long requests in flight may take when their process is to stop.
const DRAIN_DEADLINE: Duration = Duration::from_secs(30);
/// How long a process may take to stop by itself.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Why a deployment could not be started.
#[derive(Debug)]
pub(super) enum StartError {
    /// It will not get better by itself. One line for people.
    Failed(String),
    /// A passing fault: to be tried again.
    Passing(anyhow::Error),
}

/// What a process is started with.
#[derive(Debug)]
pub(super) struct Launch<'a> {
    pub executable: &'a Path,
    pub onnxruntime: &'a Path,
    pub model_file: PathBuf,
    /// Folder for the ready file.
    pub folder: PathBuf,
    pub row: &'a DeploymentRow,
    /// Told when the process ends.
    pub wake: Arc<Notify>,
}

/// A running, ready process.
#[derive(Debug)]
pub(super) struct Instance {
    pub deployment_id: i64,
    pub version: i32,
    pub sha256: String,
    pub address: SocketAddr,
    /// Held for reading by requests in flight.
    in_flight: Arc<RwLock<()>>,
    stop: CancellationToken,
    ended: CancellationToken,
}

impl Instance {
    /// Whether the process still runs.
    pub(super) fn is_alive(&self) -> bool {
        !self.ended.is_cancelled()
    }

    /// Counts a request in, until the guard is dropped. `None`: the process is being stopped.
    pub(super) fn enter(&self) -> Option<OwnedRwLockReadGuard<()>> {
        Arc::clone(&self.in_flight).try_read_owned().ok()
    }

    /// Lets requests in flight end, then stops the process and waits for its end.
    pub(super) async fn retire(&self) {
        if timeout(DRAIN_DEADLINE, self.in_flight.write()).await.is_err() {
            tracing::warn!(deployment.id = self.deployment_id, "requests in flight are cut off");
        }
        self.stop().await;
    }

    /// Stops the process at once and waits for its end.
    pub(super) async fn stop(&self) {
        self.stop.cancel();
        self.ended.cancelled().await;
    }
}

/// Starts a process and waits until it answers that it is ready.
///
/// # Errors
/// When it ends or is not ready in time; it is stopped then.
pub(super) async fn start(client: &reqwest::Client, launch: Launch<'_>) -> Result<Instance, StartError> {
    let row = launch.row;
    let ready_file = launch.folder.join("ready");
    let _ = tokio::fs::remove_file(&ready_file).await;
    let mut child = Command::new(launch.executable)
        .arg("serve-model")
        .arg("--model-file")
        .arg(&launch.model_file)
        .arg("--name")
        .arg(&row.model_name)
        .arg("--version")
        .arg(row.version.to_string())
        .arg("--sha256")
        .arg(&row.artifact_sha256)
        .args(["--listen", "127.0.0.1:0"])
        .arg("--onnxruntime")
        .arg(launch.onnxruntime)
        .arg("--ready-file")
        .arg(&ready_file)
        .env_remove("DATABASE_URL")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // a Ctrl-C in the server's terminal is for the server, which stops this process in order
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| StartError::Failed(format!("{} could not be started: {error}", launch.executable.display())))?;
    let last_line = Arc::new(Mutex::new(String::new()));
    let stderr = child.stderr.take().map(|stderr| tokio::spawn(keep_last_line(stderr, row.id, Arc::clone(&last_line))));
    let instance = Instance {
        deployment_id: row.id,
        version: row.version,
        sha256: row.artifact_sha256.clone(),
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        in_flight: Arc::new(RwLock::new(())),
        stop: CancellationToken::new(),
        ended: CancellationToken::new(),
    };
    let exit = Arc::new(Mutex::new(None));
    tokio::spawn(own(child, instance.stop.clone(), instance.ended.clone(), Arc::clone(&exit), launch.wake, row.id));
    // if this start is given up half-way, the process goes too
    let guard = instance.stop.clone().drop_guard();
    let deadline = Instant::now() + START_DEADLINE;
    let answer = tokio::select! {
        ready = timeout_at(deadline, wait_ready(client, &ready_file)) => ready.map_err(|_| format!("not ready after {} s", START_DEADLINE.as_secs())),
        () = instance.ended.cancelled() => {
            let status: Option<ExitStatus> = *exit.lock().unwrap_or_else(PoisonError::into_inner);
            Err(status.map_or_else(|| "ended before it was ready".to_owned(), |status| format!("ended before it was ready, {status}")))
        }
    };
    match answer {
        Ok(address) => {
            guard.disarm();
            Ok(Instance { address, ..instance })
        }
        Err(problem) => {
            instance.stop().await;
            // the process is gone, so its last words are on their way
            if let Some(stderr) = stderr {
                let _ = timeout(Duration::from_secs(1), stderr).await;
            }
            let said = last_line.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let line = match said.strip_prefix("sluice: ").unwrap_or(&said) {
                "" => problem,
                said => said.to_owned(),
            };
            Err(StartError::Failed(line))
        }
    }
}

/// Owns the process: ends it when asked, and says when it has ended.
async fn own(
    mut child: Child,
    stop: CancellationToken,
    ended: CancellationToken,
    exit: Arc<Mutex<Option<ExitStatus>>>,
    wake: Arc<Notify>,
    deployment_id: i64,
) {
    // `Child::wait` closes the stdin it still has, which would end the process
    let stdin = child.stdin.take();
    let status = tokio::select! {
        status = child.wait() => status,
        () = stop.cancelled() => {
            drop(stdin);
            if timeout(STOP_GRACE, child.wait()).await.is_err() {
                tracing::warn!(deployment.id = deployment_id, "the model server does not stop: killed");
                let _ = child.start_kill();
            }
            child.wait().await
        }
    };
    tracing::debug!(deployment.id = deployment_id, ?status, "model server ended");
    *exit.lock().unwrap_or_else(PoisonError::into_inner) = status.ok();
    ended.cancel();
    wake.notify_one();
}

async fn keep_last_line(stderr: impl AsyncRead + Unpin, deployment_id: i64, last: Arc<Mutex<String>>) {
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let line = line.trim();
        if !line.is_empty() {
            tracing::debug!(deployment.id = deployment_id, "{line}");
            *last.lock().unwrap_or_else(PoisonError::into_inner) = line.chars().take(500).collect();
        }
    }
}

/// Waits for the address in the ready file, and for the readiness probe to say yes.
async fn wait_ready(client: &reqwest::Client, ready_file: &Path) -> SocketAddr {
    let mut pause = tokio::time::interval(Duration::from_millis(20));
    loop {
        pause.tick().await;
        let Some(address) = tokio::fs::read_to_string(ready_file).await.ok().and_then(|text| parse_address(&text)) else { continue };
        let probe = client.get(format!("http://{address}/v2/health/ready")).timeout(Duration::from_secs(5)).send().await;
        if probe.is_ok_and(|answer| answer.status().is_success()) {
            return address;
        }
    }
}

/// The ready file is one JSON object, `{"port": N, "pid": N}`.
fn parse_address(text: &str) -> Option<SocketAddr> {
    #[derive(serde::Deserialize)]
    struct Ready {
        port: u16,
    }
    serde_json::from_str::<Ready>(text).ok().map(|ready| SocketAddr::from(([127, 0, 0, 1], ready.port)))
}
