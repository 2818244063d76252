//! The job page, and why a job waits.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sluice_domain::runner::StepReport;
use sluice_store::{
    PgConnection,
    view::{
        jobs as store,
        operations::{self, RunnerRow},
        pipelines,
    },
};
pub use sluice_store::view::jobs::{AttemptRow, JobHead, LogTail, OutputRow};

use crate::{App, Error, Result};

/// A runner that was not heard of for this long is offline.
pub const OFFLINE_AFTER_SECS: i64 = 60;

/// What is known about runners, to say why a job waits.
#[derive(Debug, Clone)]
pub struct Waiting {
    online: Vec<RunnerRow>,
    used_cpus: HashMap<String, i32>,
}

impl Waiting {
    /// Loads the runners and what they hold.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn load(db: &mut PgConnection, now: DateTime<Utc>) -> Result<Self> {
        let mut online = operations::list_runners(db).await?;
        online.retain(|runner| is_online(runner, now));
        let mut used_cpus = HashMap::new();
        for job in operations::list_running_jobs(db).await? {
            *used_cpus.entry(job.runner).or_default() += job.cpus;
        }
        Ok(Self { online, used_cpus })
    }

    /// Why a queued job is not running, in words.
    #[must_use]
    pub fn reason(&self, requires: &[String], cpus: i32) -> String {
        if self.online.is_empty() {
            return "waiting: no runner is online".to_owned();
        }
        let able = |runner: &&RunnerRow| requires.iter().all(|need| runner.capabilities.contains(need));
        if !self.online.iter().any(|runner| able(&runner)) {
            return format!("waiting: needs capability {}, which no online runner has", requires.join(", "));
        }
        let Some(most) = self.online.iter().filter(able).map(|runner| runner.cpus).max() else { return String::new() };
        if most < cpus {
            return format!("waiting: needs {cpus} CPUs, the largest fitting runner has {most}");
        }
        let free = |runner: &RunnerRow| runner.cpus - self.used_cpus.get(&runner.name).copied().unwrap_or_default();
        if self.online.iter().filter(able).any(|runner| free(runner) >= cpus) {
            "about to be claimed".to_owned()
        } else {
            "waiting for a free runner".to_owned()
        }
    }
}

/// Whether a runner was heard of lately.
#[must_use]
pub fn is_online(runner: &RunnerRow, now: DateTime<Utc>) -> bool {
    (now - runner.last_seen_at).num_seconds() <= OFFLINE_AFTER_SECS
}

/// An attempt with its steps.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub row: AttemptRow,
    pub steps: Vec<StepReport>,
}

/// The job page.
#[derive(Debug, Clone)]
pub struct JobPage {
    pub head: JobHead,
    pub waiting_reason: Option<String>,
    /// Oldest first.
    pub attempts: Vec<Attempt>,
    /// Number of the attempt that outputs and log belong to; 0 before the first.
    pub shown_attempt: i32,
    pub outputs: Vec<OutputRow>,
    pub log: LogTail,
}

/// Chunks of the log on the page; the rest is behind a link.
const LOG_CHUNKS: i64 = 400;

/// Gets the job page, showing `attempt` or the latest.
///
/// # Errors
/// [`Error::NotFound`], or when the database fails.
pub async fn get(app: &App, id: i64, attempt: Option<i32>) -> Result<JobPage> {
    let mut db = app.connection().await?;
    let head = store::find_job(&mut db, id).await?.ok_or_else(|| Error::NotFound(format!("job {id} not found")))?;
    let attempts: Vec<_> = store::list_attempts(&mut db, id)
        .await?
        .into_iter()
        .map(|row| Attempt { steps: serde_json::from_value(row.steps.clone()).unwrap_or_default(), row })
        .collect();
    if let Some(wanted) = attempt
        && !attempts.iter().any(|attempt| attempt.row.attempt == wanted)
    {
        return Err(Error::NotFound(format!("job {id} has no attempt {wanted}")));
    }
    let shown_attempt = attempt.or_else(|| attempts.last().map(|attempt| attempt.row.attempt)).unwrap_or_default();
    let waiting_reason = match &*head.status {
        "pending" => {
            let jobs = pipelines::list_jobs(&mut db, head.pipeline_id).await?;
            let open = jobs.iter().filter(|job| head.needs.contains(&job.name) && matches!(&*job.status, "pending" | "queued" | "running"));
            Some(format!("needs {}", open.map(|job| job.name.as_str()).collect::<Vec<_>>().join(", ")))
        }
        "queued" => Some(Waiting::load(&mut db, app.clock.now()).await?.reason(&head.requires, head.cpus)),
        _ => None,
    };
    Ok(JobPage {
        waiting_reason,
        outputs: store::list_outputs(&mut db, id, shown_attempt).await?,
        log: store::log_tail(&mut db, id, shown_attempt, LOG_CHUNKS).await?,
        attempts,
        shown_attempt,
        head,
    })
}

/// Loads up to 256 chunks of a log from chunk number `from`, for a download in pieces.
///
/// # Errors
/// When the database fails.
pub async fn log_chunks(app: &App, id: i64, attempt: i32, from: i64) -> Result<Vec<String>> {
    Ok(store::log_page(&mut *app.connection().await?, id, attempt, from, 256).await?)
}

/// Loads the last lines of a job's latest attempt.
///
/// # Errors
/// When the database fails.
pub async fn log_tail(app: &App, id: i64, attempt: i32, chunks: i64) -> Result<LogTail> {
    Ok(store::log_tail(&mut *app.connection().await?, id, attempt, chunks).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runner(name: &str, cpus: i32, capabilities: &[&str]) -> RunnerRow {
        let at = DateTime::UNIX_EPOCH;
        let capabilities = capabilities.iter().map(|&c| c.to_owned()).collect();
        RunnerRow { name: name.to_owned(), capabilities, cpus, version: String::new(), registered_at: at, last_seen_at: at }
    }

    #[test]
    fn waiting_is_explained() {
        let nobody = Waiting { online: vec![], used_cpus: HashMap::new() };
        assert_eq!(nobody.reason(&[], 1), "waiting: no runner is online");
        let busy = Waiting { online: vec![runner("a", 2, &["linux"])], used_cpus: HashMap::from([("a".to_owned(), 2)]) };
        assert_eq!(busy.reason(&[], 2), "waiting for a free runner");
        assert!(busy.reason(&["tensorrt".to_owned()], 1).contains("needs capability tensorrt"));
        assert!(busy.reason(&[], 8).contains("needs 8 CPUs"));
        assert!(!is_online(&runner("a", 1, &[]), DateTime::UNIX_EPOCH + chrono::Duration::seconds(61)));
    }
}
