//! Fencing: what a job writes counts only while its attempt holds the job's lease.
//!
//! A job's programs send its attempt's token (`MLFLOW_TRACKING_TOKEN`) with every call. The check runs in the
//! transaction of the write and share-locks the job, so that the job cannot be taken over in between.

use sha2::{Digest as _, Sha256};
use sluice_domain::{
    id::RunId,
    state::{AttemptStatus, JobStatus},
    time::Clock,
    tracking::JOB_TAG,
};
use sluice_store::{PgConnection, fence, run};

use crate::{Error, Result};

/// How tokens of job attempts begin.
pub const JOB_TOKEN_PREFIX: &str = "sluice_job_";

/// The attempt that a write belongs to, known to be the current one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fenced {
    pub job_id: i64,
    pub attempt: i32,
    /// The job's own run.
    pub run_id: Option<RunId>,
}

/// The digest under which a token is stored.
#[must_use]
pub fn token_sha256(token: &str) -> Vec<u8> {
    Sha256::digest(token.as_bytes()).to_vec()
}

/// Finds the attempt that a bearer token stands for; `None` for a request without one, or with a token that is
/// no job's. The job stays share-locked until the transaction ends.
///
/// # Errors
/// [`Error::StaleAttempt`] when the attempt is over or its lease expired, [`Error::Unauthenticated`] when the
/// token looks like a job's and is not known.
pub async fn check(tx: &mut PgConnection, clock: &dyn Clock, token: Option<&str>) -> Result<Option<Fenced>> {
    let Some(token) = token else { return Ok(None) };
    let Some(found) = fence::find_attempt_by_token(tx, &token_sha256(token)).await? else {
        if token.starts_with(JOB_TOKEN_PREFIX) {
            return Err(Error::Unauthenticated("The job token is not known.".to_owned()));
        }
        return Ok(None);
    };
    let stale =
        |why: String| Err(Error::StaleAttempt(format!("Attempt {} of job {} may not write any more: {why}.", found.attempt, found.job_id)));
    if found.attempt != found.current_attempt {
        return stale(format!("attempt {} took over", found.current_attempt));
    }
    if found.job_status != JobStatus::Running.as_str() {
        return stale(format!("the job is {}", found.job_status));
    }
    if found.attempt_status != AttemptStatus::Running.as_str() {
        return stale(format!("it is {}", found.attempt_status));
    }
    if found.lease_expires_at <= clock.now() {
        return stale("its lease expired".to_owned());
    }
    Ok(Some(Fenced { job_id: found.job_id, attempt: found.attempt, run_id: found.run_id }))
}

/// [`check`], and that the attempt may write to this run.
///
/// # Errors
/// As [`check`]; [`Error::Forbidden`] when the run is not the job's.
pub async fn check_run(tx: &mut PgConnection, clock: &dyn Clock, token: Option<&str>, run: RunId) -> Result<Option<Fenced>> {
    let fenced = check(&mut *tx, clock, token).await?;
    if let Some(fenced) = &fenced {
        fenced.may_write(tx, run).await?;
    }
    Ok(fenced)
}

impl Fenced {
    /// Whether the attempt may write to this run: the job's own one, or one that the job created.
    ///
    /// # Errors
    /// [`Error::Forbidden`] when it may not.
    pub async fn may_write(&self, tx: &mut PgConnection, run: RunId) -> Result<()> {
        if self.run_id == Some(run) {
            return Ok(());
        }
        if run::find_run_tag(tx, run, JOB_TAG).await? == Some(self.job_id.to_string()) {
            return Ok(());
        }
        Err(Error::Forbidden(format!(
            "The token of job {} may only write to its own run and to runs that it created, not to run {run}.",
            self.job_id
        )))
    }
}
