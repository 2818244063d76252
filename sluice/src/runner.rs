//! `sluice runner`: one worker agent.

use std::{io::Read as _, path::PathBuf, time::Duration};

use anyhow::ensure;
use sluice_runner::RunnerConfig;
use tokio_util::sync::CancellationToken;

/// Options of `sluice runner`.
#[derive(Debug, Clone, clap::Args)]
pub struct RunnerArgs {
    /// URL of the server.
    #[arg(long, env = "SLUICE_URL", default_value = "http://127.0.0.1:5000")]
    server: String,
    /// Name, unique among the runners of the server; default: the host's name.
    #[arg(long, env = "SLUICE_RUNNER_NAME")]
    name: Option<String>,
    /// Folder for this runner alone: its id and the workspaces of its jobs.
    #[arg(long, env = "SLUICE_WORK_DIR", default_value = "sluice-runner")]
    work_dir: PathBuf,
    /// Folder for what may be kept between jobs: environments, fetched repositories, input files.
    /// Default: the user's cache folder.
    #[arg(long, env = "SLUICE_CACHE")]
    cache: Option<PathBuf>,
    /// CPU cores that jobs may take together; default: all.
    #[arg(long, env = "SLUICE_CPUS")]
    cpus: Option<u32>,
    /// Capability that jobs may require. May be repeated.
    #[arg(long = "capability")]
    capabilities: Vec<String>,
    /// Seconds between SIGTERM and SIGKILL when a job is stopped.
    #[arg(long, env = "SLUICE_GRACE_SECS", default_value_t = 10)]
    grace_secs: u64,
    /// Interpreter that environments are made from; default: `python3` of PATH.
    #[arg(long, env = "SLUICE_PYTHON")]
    python: Option<PathBuf>,
    /// Hold jobs through /proc alone, even where control groups work.
    #[arg(long, env = "SLUICE_NO_CGROUPS")]
    no_cgroups: bool,
    /// Stop when standard input ends: the sign that the parent process is gone.
    #[arg(long, hide = true)]
    stop_on_stdin_eof: bool,
}

/// Runs until SIGINT or SIGTERM.
///
/// # Errors
/// When the folders cannot be used or the server refuses the runner.
pub async fn runner(args: RunnerArgs) -> anyhow::Result<()> {
    let mut signals = crate::signals::Signals::new()?;
    let name = match args.name {
        Some(name) => name,
        None => std::fs::read_to_string("/proc/sys/kernel/hostname")?.trim().to_owned(),
    };
    ensure!(args.cpus != Some(0), "--cpus must be at least 1");
    let mut config = RunnerConfig::new(&args.server, &name, &args.work_dir);
    std::fs::create_dir_all(&args.work_dir)?;
    config.work_dir = args.work_dir.canonicalize()?;
    let cache = args.cache.unwrap_or_else(crate::up::default_cache);
    std::fs::create_dir_all(&cache)?;
    config.cache_dir = cache.canonicalize()?;
    config.cpus = args.cpus.unwrap_or(config.cpus);
    config.capabilities = args.capabilities;
    config.grace = Duration::from_secs(args.grace_secs);
    config.python = args.python.or(config.python);
    config.cgroups = !args.no_cgroups;

    let stop = CancellationToken::new();
    if args.stop_on_stdin_eof {
        stop_on_stdin_eof(stop.clone());
    }
    let stopping = stop.clone();
    let watch = tokio::spawn(async move {
        signals.next().await;
        stopping.cancel();
    });
    let outcome = sluice_runner::run(config, stop).await;
    watch.abort();
    outcome
}

/// In a thread of its own: a read of standard input cannot be called off, and would hold up the end of the runtime.
fn stop_on_stdin_eof(stop: CancellationToken) {
    std::thread::spawn(move || {
        let mut buffer = [0; 64];
        while std::io::stdin().read(&mut buffer).is_ok_and(|length| length > 0) {}
        stop.cancel();
    });
}
