//! Jobs: how they are shown, why they wait, and what users may do to them.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::json;
use sluice_domain::{
    id::RunId,
    runner::StepReport,
    state::{AttemptStatus, Cause, JobKind, JobStatus, PipelineStatus, RunStatus},
};
pub use sluice_store::job_attempt::OutputRow as Output;
use sluice_store::{
    PgConnection,
    audit::insert_audit,
    job::{self as store, JobChange, JobRow},
    job_attempt::{AttemptRow, list_attempts, list_outputs},
    job_run::update_job_run_ended,
    notify::notify,
    pipeline::{lock_pipeline, reopen_promotion},
    runner::{RunnerRow, list_runners},
};

use crate::{Actor, App, Error, Result, context::commit, pipeline, runner::OFFLINE_AFTER};

/// How many attempts a job gets before its first failure for the causes `infra` and `lost` is final.
const ATTEMPTS: i32 = 3;

/// A job, as shown to users.
#[derive(Debug, Clone, Serialize)]
pub struct Job {
    pub id: i64,
    pub pipeline_id: i64,
    pub name: String,
    pub kind: JobKind,
    pub status: JobStatus,
    /// In words, while it waits.
    pub waiting_reason: Option<String>,
    pub cause: Option<Cause>,
    pub message: String,
    pub attempt: i32,
    pub attempts: Vec<Attempt>,
    pub run_id: Option<RunId>,
    pub needs: Vec<String>,
    pub requires: Vec<String>,
    pub cpus: i32,
    /// It runs and was asked to stop.
    pub cancel_requested: bool,
    pub created_at: DateTime<Utc>,
    pub queued_at: Option<DateTime<Utc>>,
    pub started_at: Option<DateTime<Utc>>,
    pub finished_at: Option<DateTime<Utc>>,
    /// Of the last attempt.
    pub outputs: Vec<Output>,
}

/// An attempt at a job, as shown to users.
#[derive(Debug, Clone, Serialize)]
pub struct Attempt {
    pub attempt: i32,
    pub status: AttemptStatus,
    pub cause: Option<Cause>,
    pub exit_code: Option<i32>,
    pub message: String,
    pub steps: Vec<StepReport>,
    pub runner: String,
    pub started_at: DateTime<Utc>,
    pub finished_at: Option<DateTime<Utc>>,
}

/// Reads a job with its attempts and outputs.
///
/// # Errors
/// When there is no such job.
pub async fn get_job(app: &App, id: i64) -> Result<Job> {
    let mut db = app.connection().await?;
    let row = store::get_job(&mut db, id).await?;
    let mut views = views(app, &mut db, vec![row]).await?;
    views.pop().ok_or_else(|| Error::NotFound(format!("job {id} not found")))
}

pub(crate) async fn views(app: &App, db: &mut PgConnection, rows: Vec<JobRow>) -> Result<Vec<Job>> {
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    let mut attempts: HashMap<i64, Vec<Attempt>> = HashMap::new();
    for row in list_attempts(db, &ids).await? {
        attempts.entry(row.job_id).or_default().push(attempt_view(row)?);
    }
    let mut outputs: HashMap<i64, Vec<Output>> = HashMap::new();
    for output in list_outputs(db, &ids).await? {
        outputs.entry(output.job_id).or_default().push(output);
    }
    let waiting = |status| rows.iter().filter(|row| *row.status == status).map(|row| row.pipeline_id).collect::<Vec<_>>();
    let siblings = match waiting(JobStatus::Pending) {
        pipelines if pipelines.is_empty() => Vec::new(),
        pipelines => store::list_jobs(db, &pipelines).await?,
    };
    let runners = if waiting(JobStatus::Queued).is_empty() { Vec::new() } else { list_runners(db, "", 1000).await? };
    let now = app.clock.now();
    Ok(rows
        .into_iter()
        .map(|row| Job {
            waiting_reason: match *row.status {
                JobStatus::Pending => waits_for(&row, &siblings),
                JobStatus::Queued => waits_for_runner(&row, &runners, now),
                _ => None,
            },
            attempts: attempts.remove(&row.id).unwrap_or_default(),
            outputs: outputs.remove(&row.id).unwrap_or_default(),
            id: row.id,
            pipeline_id: row.pipeline_id,
            name: row.name,
            kind: *row.kind,
            status: *row.status,
            cause: row.cause.map(|cause| *cause),
            message: row.message,
            attempt: row.attempt,
            run_id: row.run_id.map(RunId),
            needs: row.needs,
            requires: row.requires,
            cpus: row.cpus,
            cancel_requested: row.cancel_requested_at.is_some(),
            created_at: row.created_at,
            queued_at: row.queued_at,
            started_at: row.started_at,
            finished_at: row.finished_at,
        })
        .collect())
}

fn attempt_view(row: AttemptRow) -> Result<Attempt> {
    Ok(Attempt {
        attempt: row.attempt,
        status: *row.status,
        cause: row.cause.map(|cause| *cause),
        exit_code: row.exit_code,
        message: row.message,
        steps: serde_json::from_value(row.steps).map_err(|error| Error::Internal(error.into()))?,
        runner: row.runner,
        started_at: row.started_at,
        finished_at: row.finished_at,
    })
}

/// Which needed jobs a pending job waits for.
fn waits_for(job: &JobRow, all: &[JobRow]) -> Option<String> {
    let unfinished: Vec<&str> = all
        .iter()
        .filter(|other| other.pipeline_id == job.pipeline_id && job.needs.contains(&other.name) && !other.status.is_final())
        .map(|other| other.name.as_str())
        .collect();
    match unfinished.as_slice() {
        [] => None,
        [one] => Some(format!("waits for job {one}")),
        many => Some(format!("waits for jobs {}", many.join(", "))),
    }
}

/// Why no runner has taken a queued job yet.
fn waits_for_runner(job: &JobRow, runners: &[RunnerRow], now: DateTime<Utc>) -> Option<String> {
    let missing: Vec<&str> = job
        .requires
        .iter()
        .filter(|capability| !runners.iter().any(|runner| runner.capabilities.contains(capability)))
        .map(String::as_str)
        .collect();
    if !missing.is_empty() {
        return Some(format!("needs capability {}: no runner has it", missing.join(", ")));
    }
    let able: Vec<&RunnerRow> =
        runners.iter().filter(|runner| job.requires.iter().all(|capability| runner.capabilities.contains(capability))).collect();
    if !job.requires.is_empty() && able.is_empty() {
        return Some(format!("needs capabilities {}: no runner has all of them", job.requires.join(", ")));
    }
    let online: Vec<&RunnerRow> = able.iter().copied().filter(|runner| now - runner.last_seen_at < OFFLINE_AFTER).collect();
    if online.is_empty() {
        return Some(match job.requires.as_slice() {
            [] => "no runner is online".to_owned(),
            requires => format!("no runner with capability {} is online", requires.join(", ")),
        });
    }
    let largest = online.iter().map(|runner| runner.cpus).max().unwrap_or(0);
    if largest < job.cpus {
        return Some(format!("needs {} CPUs: no runner has more than {largest}", job.cpus));
    }
    online.iter().all(|runner| !runner.jobs.is_empty()).then(|| "all runners are busy".to_owned())
}

/// Cancels a job: at once when it waits, else its runner is told with the next renewal. Cancelling again
/// changes nothing.
///
/// # Errors
/// When there is no such job, or it has ended otherwise.
pub async fn cancel_job(app: &App, actor: &Actor, id: i64) -> Result<Job> {
    let mut tx = app.begin().await?;
    let pipeline_id = store::get_job(&mut tx, id).await?.pipeline_id;
    lock_pipeline(&mut tx, pipeline_id).await?;
    let row = store::lock_job(&mut tx, id).await?;
    match *row.status {
        JobStatus::Cancelled => {}
        JobStatus::Succeeded | JobStatus::Failed | JobStatus::Skipped => {
            return Err(Error::Conflict(format!("job {id} cannot be cancelled: it is {} already", *row.status)));
        }
        JobStatus::Pending | JobStatus::Queued | JobStatus::Running => {
            cancel(app, &mut tx, actor, &row).await?;
            advance(app, &mut tx, pipeline_id).await?;
        }
    }
    commit(tx).await?;
    get_job(app, id).await
}

/// Cancels every unfinished job of a pipeline. Cancelling again changes nothing.
///
/// # Errors
/// When there is no such pipeline, or it has ended otherwise.
pub async fn cancel_pipeline(app: &App, actor: &Actor, id: i64) -> Result<pipeline::Pipeline> {
    let mut tx = app.begin().await?;
    let row = lock_pipeline(&mut tx, id).await?;
    let jobs = store::list_jobs(&mut tx, &[id]).await?;
    let mut unfinished = 0;
    for job in jobs.iter().filter(|job| !job.status.is_final()) {
        let job = store::lock_job(&mut tx, job.id).await?;
        if !job.status.is_final() {
            cancel(app, &mut tx, actor, &job).await?;
            unfinished += 1;
        }
    }
    if unfinished == 0 && *row.status != PipelineStatus::Cancelled {
        return Err(Error::Conflict(format!("pipeline {id} cannot be cancelled: all its jobs have ended")));
    }
    advance(app, &mut tx, id).await?;
    commit(tx).await?;
    pipeline::get_pipeline(app, id).await
}

async fn cancel(app: &App, db: &mut PgConnection, actor: &Actor, job: &JobRow) -> Result<()> {
    let now = app.clock.now();
    if *job.status == JobStatus::Running {
        if job.cancel_requested_at.is_some() {
            return Ok(());
        }
        store::update_job_cancel_requested(db, job.id, now).await?;
    } else {
        let message = format!("cancelled by {}", actor.0);
        let change = JobChange { status: JobStatus::Cancelled, cause: Some(Cause::Cancelled), message: &message, at: now };
        store::update_job_status(db, job.id, &change).await?;
        if let Some(run_id) = job.run_id {
            update_job_run_ended(db, run_id, RunStatus::Killed, now).await?;
        }
    }
    insert_audit(db, now, &actor.0, "job.cancelled", &format!("job:{}", job.id), &json!({ "was": *job.status })).await?;
    notify(db, &format!("job:{}", job.id)).await?;
    Ok(())
}

/// Lets a failed or cancelled job be tried again, and with it the jobs that were skipped because of it.
///
/// # Errors
/// When there is no such job, or it has not ended without success.
pub async fn retry_job(app: &App, actor: &Actor, id: i64) -> Result<Job> {
    let now = app.clock.now();
    let mut tx = app.begin().await?;
    let pipeline_id = store::get_job(&mut tx, id).await?.pipeline_id;
    lock_pipeline(&mut tx, pipeline_id).await?;
    let row = store::lock_job(&mut tx, id).await?;
    if !matches!(*row.status, JobStatus::Failed | JobStatus::Cancelled) {
        let hint = if *row.status == JobStatus::Skipped { ": retry the job that it needs" } else { "" };
        return Err(Error::Conflict(format!("job {id} cannot be retried: it is {}{hint}", *row.status)));
    }
    store::update_job_max_attempts(&mut tx, id, ATTEMPTS).await?;
    let change = JobChange { status: JobStatus::Pending, cause: None, message: "", at: now };
    store::update_job_status(&mut tx, id, &change).await?;
    // skipped jobs may be possible again; `advance` skips them anew if they are not
    for job in store::list_jobs(&mut tx, &[pipeline_id]).await? {
        if *job.status == JobStatus::Skipped {
            store::update_job_status(&mut tx, job.id, &change).await?;
            notify(&mut tx, &format!("job:{}", job.id)).await?;
        }
    }
    reopen_promotion(&mut tx, pipeline_id).await?;
    insert_audit(&mut tx, now, &actor.0, "job.retried", &format!("job:{id}"), &json!({ "attempts": row.attempt })).await?;
    notify(&mut tx, &format!("job:{id}")).await?;
    advance(app, &mut tx, pipeline_id).await?;
    commit(tx).await?;
    get_job(app, id).await
}

/// Queues or skips the pending jobs whose needs are decided, then settles the pipeline. The caller holds the
/// pipeline's row lock.
pub(crate) async fn advance(app: &App, db: &mut PgConnection, pipeline_id: i64) -> Result<()> {
    let now = app.clock.now();
    // plan order is topological, so one pass decides chains of skipped jobs too
    let mut statuses: HashMap<String, JobStatus> = HashMap::new();
    let mut queued = false;
    for job in store::list_jobs(db, &[pipeline_id]).await? {
        let mut status = *job.status;
        if status == JobStatus::Pending {
            let need = |wanted: fn(JobStatus) -> bool| job.needs.iter().find(|need| statuses.get(*need).copied().is_some_and(wanted));
            if let Some(need) = need(|status| status.is_final() && status != JobStatus::Succeeded) {
                status = JobStatus::Skipped;
                let outcome = statuses.get(need).copied().unwrap_or(JobStatus::Skipped);
                let message = format!("job {need}, which it needs, was {outcome}");
                store::update_job_status(db, job.id, &JobChange { status, cause: None, message: &message, at: now }).await?;
                if let Some(run_id) = job.run_id {
                    update_job_run_ended(db, run_id, RunStatus::Killed, now).await?;
                }
                notify(db, &format!("job:{}", job.id)).await?;
            } else if job.needs.iter().all(|need| statuses.get(need) == Some(&JobStatus::Succeeded)) {
                status = JobStatus::Queued;
                queued = true;
                store::update_job_status(db, job.id, &JobChange { status, cause: None, message: "", at: now }).await?;
                notify(db, &format!("job:{}", job.id)).await?;
            }
        }
        statuses.insert(job.name, status);
    }
    if queued {
        notify(db, "queue").await?;
    }
    pipeline::settle(app, db, pipeline_id).await?;
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use sluice_store::text::Text;
    use uuid::Uuid;

    use super::*;

    pub(crate) fn job(name: &str, status: JobStatus, needs: &[&str], requires: &[&str]) -> JobRow {
        JobRow {
            id: 1,
            pipeline_id: 1,
            name: name.to_owned(),
            kind: Text(JobKind::Run),
            spec: json!({}),
            needs: needs.iter().map(ToString::to_string).collect(),
            requires: requires.iter().map(ToString::to_string).collect(),
            cpus: 2,
            status: Text(status),
            cause: None,
            message: String::new(),
            attempt: 0,
            max_attempts: 3,
            run_id: None,
            cancel_requested_at: None,
            created_at: DateTime::UNIX_EPOCH,
            queued_at: None,
            started_at: None,
            finished_at: None,
        }
    }

    fn runner(capabilities: &[&str], cpus: i32, jobs: &[i64]) -> RunnerRow {
        RunnerRow {
            id: Uuid::nil(),
            name: "r".to_owned(),
            capabilities: capabilities.iter().map(ToString::to_string).collect(),
            cpus,
            version: String::new(),
            registered_at: DateTime::UNIX_EPOCH,
            last_seen_at: DateTime::UNIX_EPOCH,
            jobs: jobs.to_vec(),
        }
    }

    #[test]
    fn waiting_is_explained() {
        let now = DateTime::UNIX_EPOCH;
        let plain = job("train", JobStatus::Queued, &[], &[]);
        let rt = job("engine", JobStatus::Queued, &[], &["tensorrt"]);
        let why = |job: &JobRow, runners: &[RunnerRow]| waits_for_runner(job, runners, now);
        assert_eq!(why(&plain, &[]).unwrap(), "no runner is online");
        assert_eq!(why(&rt, &[runner(&["python"], 4, &[])]).unwrap(), "needs capability tensorrt: no runner has it");
        assert_eq!(why(&plain, &[runner(&[], 1, &[])]).unwrap(), "needs 2 CPUs: no runner has more than 1");
        assert_eq!(why(&plain, &[runner(&[], 2, &[7])]).unwrap(), "all runners are busy");
        assert_eq!(why(&plain, &[runner(&[], 2, &[])]), None);
        let later = now + OFFLINE_AFTER;
        assert_eq!(waits_for_runner(&rt, &[runner(&["tensorrt"], 4, &[])], later).unwrap(), "no runner with capability tensorrt is online");

        let bench = job("bench", JobStatus::Pending, &["train", "data"], &[]);
        let done = job("data", JobStatus::Succeeded, &[], &[]);
        assert_eq!(waits_for(&bench, &[plain, done]).unwrap(), "waits for job train");
    }
}
