//! The job page.

use sluice_store::view::jobs as store;
pub use sluice_store::view::jobs::{CommitRow, LogTail};

use crate::{
    App, Error, Result,
    job::{self, Job},
};

/// The job page.
#[derive(Debug, Clone)]
pub struct JobPage {
    pub job: Job,
    pub commit: CommitRow,
    /// Number of the attempt whose log is shown; 0 before the first.
    pub shown_attempt: i32,
    pub log: LogTail,
}

/// Chunks of the log on the page; the rest is behind a link.
const LOG_CHUNKS: i64 = 400;

/// Gets the job page with the log of `attempt` or of the latest.
///
/// # Errors
/// [`Error::NotFound`], or when the database fails.
pub async fn get(app: &App, id: i64, attempt: Option<i32>) -> Result<JobPage> {
    let job = job::get_job(app, id).await?;
    if let Some(wanted) = attempt
        && !job.attempts.iter().any(|attempt| attempt.attempt == wanted)
    {
        return Err(Error::NotFound(format!("job {id} has no attempt {wanted}")));
    }
    let shown_attempt = attempt.or_else(|| job.attempts.iter().map(|attempt| attempt.attempt).max()).unwrap_or_default();
    let mut db = app.connection().await?;
    let commit = store::find_commit(&mut db, job.pipeline_id)
        .await?
        .ok_or_else(|| Error::NotFound(format!("pipeline {} of job {id} not found", job.pipeline_id)))?;
    let log = store::log_tail(&mut db, id, shown_attempt, LOG_CHUNKS).await?;
    Ok(JobPage { job, commit, shown_attempt, log })
}

/// Loads up to 256 chunks of a log from chunk number `from`, for a download in pieces.
///
/// # Errors
/// When the database fails.
pub async fn log_chunks(app: &App, id: i64, attempt: i32, from: i64) -> Result<Vec<String>> {
    Ok(store::log_page(&mut *app.connection().await?, id, attempt, from, 256).await?)
}

/// Loads the last `chunks` chunks of an attempt's log.
///
/// # Errors
/// When the database fails.
pub async fn log_tail(app: &App, id: i64, attempt: i32, chunks: i64) -> Result<LogTail> {
    Ok(store::log_tail(&mut *app.connection().await?, id, attempt, chunks).await?)
}
