//! `sluice up`: Postgres, server and one runner as one thing that starts and stops together.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use crate::{
    postgres::Postgres,
    server::{Server, ServerArgs},
};

/// Options of `sluice up`.
#[derive(Debug, Clone, clap::Args)]
pub struct UpArgs {
    #[command(flatten)]
    pub server: ServerArgs,
    /// Database to use instead of the private Postgres.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,
    /// Start no runner; jobs wait until one is started with `sluice runner`.
    #[arg(long)]
    pub no_runner: bool,
    /// Folder for what runners may keep between jobs: environments, fetched repositories, input files.
    #[arg(long, env = "SLUICE_CACHE")]
    pub cache: Option<PathBuf>,
}

/// Runs until SIGINT or SIGTERM.
///
/// # Errors
/// When a part cannot be started; what was started is stopped again.
pub async fn up(args: UpArgs) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut signals = crate::signals::Signals::new()?;
    std::fs::create_dir_all(&args.server.data).with_context(|| format!("--data {}", args.server.data.display()))?;
    let data = args.server.data.canonicalize()?;
    let _lock = lock(&data)?;

    let stop_database = CancellationToken::new();
    let (url, database) = match &args.database_url {
        Some(url) => (url.clone(), None),
        None => {
            let postgres = Postgres::start(&data).await?;
            let url = postgres.url();
            (url, Some(tokio::spawn(postgres.supervise(stop_database.clone()))))
        }
    };
    let outcome = serve(&args, &data, &url, began, &mut signals).await;
    stop_database.cancel();
    if let Some(database) = database {
        database.await?;
    }
    if outcome.is_ok() {
        println!("Stopped. `sluice up --data {}` finds everything again.", args.server.data.display());
    }
    outcome
}

async fn serve(
    args: &UpArgs,
    data: &Path,
    database_url: &str,
    began: Instant,
    signals: &mut crate::signals::Signals,
) -> anyhow::Result<()> {
    let server_args = ServerArgs {
        data: data.to_owned(),
        onnxruntime: args.server.onnxruntime.clone(),
        runtime_roots: vec![args.cache_folder()],
        ..args.server.clone()
    };
    let mut server = Server::start(&server_args, database_url).await?;
    println!("Sluice is up at {} ({:.1} s)", server.url, began.elapsed().as_secs_f64());
    println!("  MLFLOW_TRACKING_URI={}", server.url);
    println!("  data {}   stop with Ctrl-C", data.display());

    let stop_runner = CancellationToken::new();
    let runner = (!args.no_runner).then(|| tokio::spawn(keep_runner(RunnerCommand::new(args, data, &server.url), stop_runner.clone())));
    tokio::select! {
        signal = signals.next() => {
            println!("Stopping ({signal})…");
        }
        () = server.ended() => {
            tracing::error!("the HTTP server ended by itself");
        }
    }
    stop_runner.cancel();
    if let Some(runner) = runner {
        runner.await?;
    }
    server.stop().await;
    Ok(())
}

impl UpArgs {
    fn cache_folder(&self) -> PathBuf {
        self.cache.clone().unwrap_or_else(default_cache)
    }
}

/// `$XDG_CACHE_HOME/sluice` or `~/.cache/sluice`.
#[must_use]
pub fn default_cache() -> PathBuf {
    std::env::var_os("XDG_CACHE_HOME")
        .filter(|path| !path.is_empty())
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))
        .unwrap_or_else(std::env::temp_dir)
        .join("sluice")
}

/// Keeps two Sluices from using one data folder.
fn lock(data: &Path) -> anyhow::Result<std::fs::File> {
    let path = data.join("lock");
    let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            bail!("another Sluice is running on {}: stop it first, or choose another --data", data.display())
        }
        Err(error) => Err(error).with_context(|| format!("locking {}", path.display())),
    }
}

struct RunnerCommand {
    executable: PathBuf,
    arguments: Vec<std::ffi::OsString>,
}

impl RunnerCommand {
    fn new(args: &UpArgs, data: &Path, url: &str) -> Self {
        let arguments = [
            "runner".into(),
            "--server".into(),
            url.into(),
            "--name".into(),
            "local".into(),
            "--work-dir".into(),
            data.join("runner").into_os_string(),
            "--cache".into(),
            args.cache_folder().into_os_string(),
            "--stop-on-stdin-eof".into(),
        ];
        Self { executable: std::env::current_exe().unwrap_or_else(|_| "sluice".into()), arguments: arguments.into() }
    }

    /// The runner sees its stdin end when this process dies, however it dies, and stops.
    fn spawn(&self) -> std::io::Result<Child> {
        Command::new(&self.executable).args(&self.arguments).stdin(Stdio::piped()).process_group(0).spawn()
    }
}

/// Keeps one runner process alive until `stop`.
async fn keep_runner(command: RunnerCommand, stop: CancellationToken) {
    while !stop.is_cancelled() {
        match command.spawn() {
            Ok(mut child) => {
                // `wait` would close it, and the runner takes that for our end
                let _stdin = child.stdin.take();
                tokio::select! {
                    status = child.wait() => tracing::error!(?status, "the runner ended unexpectedly; starting it again"),
                    () = stop.cancelled() => return end_runner(child).await,
                }
            }
            Err(error) => tracing::error!(%error, "cannot start the runner"),
        }
        tokio::select! { () = tokio::time::sleep(Duration::from_secs(1)) => {}, () = stop.cancelled() => {} }
    }
}

async fn end_runner(mut child: Child) {
    if let Some(pid) = child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
        let _ = rustix::process::kill_process(pid, Signal::TERM);
    }
    if tokio::time::timeout(Duration::from_secs(20), child.wait()).await.is_err() {
        tracing::warn!("the runner did not stop within 20 s; killing it");
        let _ = child.kill().await;
    }
}
