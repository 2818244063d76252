//! The runner itself: register, claim, run what was claimed, go down in order.

use std::{fs, io, path::Path, sync::Arc, time::Duration};

use anyhow::Context as _;
use sluice_client::{Client, RetryPolicy};
use sluice_domain::runner::{Assignment, Claim, Claimed, RegisterRunner};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    RunnerConfig,
    files::FileLock,
    job,
    process::Containment,
    stop::{Stop, StopReason},
    work::find_trtexec,
    workspace,
};

/// How long a claim may be held open. Short while jobs run: cores that they free are offered with the next claim, and
/// a runner that is stopped or frozen then takes nothing with it.
const WAIT_IDLE_SECS: u32 = 20;
const WAIT_BUSY_SECS: u32 = 1;
/// How long the end may be held up by an answer of the server.
const FAREWELL: Duration = Duration::from_secs(3);

/// Runs a runner until `shutdown`; running jobs are then ended and reported for another attempt.
///
/// # Errors
/// When the folders cannot be used, another runner uses them, or the server refuses this runner.
pub async fn run(config: RunnerConfig, shutdown: CancellationToken) -> anyhow::Result<()> {
    anyhow::ensure!(config.cpus > 0, "a runner needs at least one core");
    for folder in [&config.work_dir, &config.cache_dir] {
        fs::create_dir_all(folder).with_context(|| format!("folder {}", folder.display()))?;
    }
    // Virtual environments and git alternates keep these paths.
    let work_dir = fs::canonicalize(&config.work_dir)?;
    let cache_dir = fs::canonicalize(&config.cache_dir)?;
    let config = Arc::new(RunnerConfig { work_dir, cache_dir, ..config });
    let lock = FileLock::try_take(&config.work_dir.join("lock"))?;
    let _lock = lock.with_context(|| format!("another runner works in {}", config.work_dir.display()))?;
    let runner_id = stable_id(&config.work_dir)?;
    let containment = {
        let (cgroups, exclusive) = (config.cgroups, config.exclusive);
        tokio::task::spawn_blocking(move || Containment::new(&runner_id, cgroups, exclusive)).await??
    };
    // The strays that may have used them are gone.
    workspace::remove(&workspace::jobs_dir(&config.work_dir))?;

    let client = Client::new(&config.server_url)?;
    let Some(mut authorized) = register(&client, &config, &shutdown).await? else { return Ok(()) };
    let mut jobs = Jobs { config: Arc::clone(&config), containment, client: client.clone(), running: JoinSet::new(), stops: Vec::new() };
    let mut failures = 0;
    while !shutdown.is_cancelled() {
        jobs.collect();
        let free_cpus = jobs.free_cpus();
        if free_cpus == 0 {
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = jobs.one_ended() => continue,
            }
        }
        let wait_secs = if jobs.running.is_empty() { WAIT_IDLE_SECS } else { WAIT_BUSY_SECS };
        let claim = Claim { wait_secs, free_cpus };
        let claimant = authorized.clone();
        let asking = claimant.claim(&claim);
        tokio::pin!(asking);
        let answer = tokio::select! {
            () = shutdown.cancelled() => {
                // The server may be about to hand out a job: one that nobody hears of would wait for a whole lease.
                if !jobs.running.is_empty() {
                    let last = tokio::time::timeout(FAREWELL, asking).await;
                    if let Ok(Ok(Claimed { assignment: Some(assignment) })) = last {
                        jobs.start(assignment);
                    }
                } else {
                    let request = registration(&config);
                    // Nothing is lost by a new token, and the old one's open claim gets nothing any more.
                    let _ = tokio::time::timeout(FAREWELL, client.register_runner(&request)).await;
                }
                break;
            }
            answer = &mut asking => answer,
        };
        match answer {
            Ok(claimed) => {
                failures = 0;
                if let Some(assignment) = claimed.assignment {
                    jobs.start(assignment);
                }
            }
            Err(error) => {
                failures += 1;
                let pause = RetryPolicy::forever().delay(failures, error.retry_after());
                tracing::warn!(%error, ?pause, "claim failed");
                tokio::select! {
                    () = shutdown.cancelled() => break,
                    () = tokio::time::sleep(pause) => {}
                }
                // The server forgot this runner, or another one took its name.
                if error.status() == Some(401) {
                    match register(&client, &config, &shutdown).await? {
                        Some(client) => authorized = client,
                        None => break,
                    }
                }
            }
        }
    }
    jobs.shut_down().await;
    Ok(())
}

/// Registers, waiting for the server to come up. `None`: shut down meanwhile.
async fn register(client: &Client, config: &RunnerConfig, shutdown: &CancellationToken) -> anyhow::Result<Option<Client>> {
    let request = registration(config);
    let policy = RetryPolicy { max_delay: Duration::from_secs(1), ..RetryPolicy::forever() };
    let registered = tokio::select! {
        () = shutdown.cancelled() => return Ok(None),
        registered = sluice_client::retry(policy, "registration", || client.register_runner(&request)) => registered,
    };
    let registered = registered.with_context(|| format!("{} refuses the runner {}", config.server_url, config.name))?;
    tracing::info!(runner = %config.name, server = %config.server_url, capabilities = ?request.capabilities, cpus = config.cpus, "registered");
    Ok(Some(client.with_token(registered.token)))
}

fn registration(config: &RunnerConfig) -> RegisterRunner {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    RegisterRunner { name: config.name.clone(), capabilities: capabilities(config), cpus: config.cpus, version }
}

/// The given labels and those that are found out here. TensorRT counts only where it can be run.
fn capabilities(config: &RunnerConfig) -> Vec<String> {
    let mut all = config.capabilities.clone();
    if find_trtexec(config.host.common.get("PATH").map(std::ffi::OsString::as_os_str)).is_some() {
        all.push("tensorrt".to_owned());
    }
    all.sort();
    all.dedup();
    all
}

/// Id of the runner that works in this folder: the same after a restart, so that strays are known.
fn stable_id(work_dir: &Path) -> io::Result<String> {
    let file = work_dir.join("runner-id");
    match fs::read_to_string(&file) {
        Ok(id) if is_id(id.trim()) => return Ok(id.trim().to_owned()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let id = sluice_domain::id::RunId::random().to_string();
    let partial = work_dir.join("runner-id.partial");
    fs::write(&partial, format!("{id}\n"))?;
    fs::rename(partial, file)?;
    Ok(id)
}

fn is_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The jobs that run here.
struct Jobs {
    config: Arc<RunnerConfig>,
    containment: Arc<Containment>,
    client: Client,
    running: JoinSet<i64>,
    stops: Vec<(i64, u32, Stop)>,
}

impl Jobs {
    fn free_cpus(&self) -> u32 {
        let used: u32 = self.stops.iter().map(|(_, cpus, _)| *cpus).sum();
        self.config.cpus.saturating_sub(used)
    }

    fn start(&mut self, assignment: Assignment) {
        let stop = Stop::default();
        let job_id = assignment.job_id;
        // A job that takes more than was offered is the server's decision; it still occupies cores.
        self.stops.push((job_id, assignment.job.resources.cpus.max(1), stop.clone()));
        let (config, containment, client) = (Arc::clone(&self.config), Arc::clone(&self.containment), self.client.clone());
        self.running.spawn(async move {
            job::run(config, containment, client, assignment, stop).await;
            job_id
        });
    }

    fn collect(&mut self) {
        while let Some(ended) = self.running.try_join_next() {
            self.forget(ended);
        }
    }

    async fn one_ended(&mut self) {
        match self.running.join_next().await {
            Some(ended) => self.forget(ended),
            None => self.stops.clear(),
        }
    }

    fn forget(&mut self, ended: Result<i64, tokio::task::JoinError>) {
        match ended {
            Ok(job_id) => self.stops.retain(|(id, ..)| *id != job_id),
            Err(error) => tracing::error!(%error, "a job's task failed; its lease will run out"),
        }
        if self.running.is_empty() {
            self.stops.clear();
        }
    }

    async fn shut_down(mut self) {
        for (_, _, stop) in &self.stops {
            stop.request(StopReason::Shutdown);
        }
        while self.running.join_next().await.is_some() {}
        tracing::info!("runner stopped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_stays() {
        let folder = tempfile::tempdir().unwrap();
        let first = stable_id(folder.path()).unwrap();
        assert!(is_id(&first));
        assert_eq!(stable_id(folder.path()).unwrap(), first);
        fs::write(folder.path().join("runner-id"), "torn").unwrap();
        assert_ne!(stable_id(folder.path()).unwrap(), "torn");
    }
}
