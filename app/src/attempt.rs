//! What a runner says about its attempt: renewals, log chunks, output files, the result. Every write is
//! fenced: it must carry the attempt's token while the attempt's lease lasts.

use std::time::Duration;

use serde_json::json;
use sluice_domain::{
    evidence::Evidence,
    runner::{AppendLogs, JobResult, Renew, Renewed, StepReport},
    state::{AttemptStatus, Cause, JobKind, JobStatus, RunStatus},
};
use sluice_store::{
    PgConnection, Postgres, Transaction,
    audit::insert_audit,
    job::{JobChange, JobRow, get_job, lock_job, update_job_status},
    job_attempt::{self as store, AttemptEnd, AttemptRow},
    job_log::insert_log_chunks,
    job_run::{update_job_run_continued, update_job_run_ended},
    notify::notify,
    pipeline::lock_pipeline,
    runner::update_runner_seen,
};

use tokio_util::sync::CancellationToken;

use crate::{
    App, Error, Result,
    context::commit,
    job::advance,
    runner::{actor, digest, lease, lease_secs, lost},
};

/// A log chunk is at most this large.
pub const MAX_CHUNK_BYTES: usize = 64 * 1024;
/// The log of an attempt is at most this large.
pub const MAX_LOG_BYTES: i64 = 64 * 1024 * 1024;
const MAX_CHUNKS: usize = 256;
const MAX_STEPS: usize = 100;
const MAX_MESSAGE_BYTES: usize = 4000;

/// Which attempt a runner speaks for, and its proof.
#[derive(Debug, Clone)]
pub struct AttemptRef {
    pub job_id: i64,
    pub attempt: i32,
    pub token: String,
}

/// Extends the lease.
///
/// # Errors
/// [`Error::StaleAttempt`] when it is over.
pub async fn renew(app: &App, who: &AttemptRef, request: &Renew) -> Result<Renewed> {
    check_steps(&request.steps)?;
    let now = app.clock.now();
    let mut tx = app.begin().await?;
    let row = fence(app, &mut tx, who).await?;
    let steps = to_json(&request.steps)?;
    let changed = row.steps != steps;
    store::update_attempt_renewed(&mut tx, who.job_id, who.attempt, &steps, now + lease(app)).await?;
    update_runner_seen(&mut tx, row.runner_id, now).await?;
    if changed {
        notify(&mut tx, &format!("job:{}", who.job_id)).await?;
    }
    let cancel = get_job(&mut tx, who.job_id).await?.cancel_requested_at.is_some();
    commit(tx).await?;
    Ok(Renewed { lease_secs: lease_secs(app), cancel })
}

/// Appends log chunks and gives the number of the next one wanted. Chunks that are there already are ignored.
///
/// # Errors
/// [`Error::StaleAttempt`]; a gap in the numbers; a chunk or log that is too large.
pub async fn append_logs(app: &App, who: &AttemptRef, request: AppendLogs) -> Result<i64> {
    if request.chunks.len() > MAX_CHUNKS {
        return Err(Error::invalid("chunks", format!("chunks: {} given, at most {MAX_CHUNKS} are taken at once", request.chunks.len())));
    }
    for (index, chunk) in request.chunks.iter().enumerate() {
        if chunk.content.len() > MAX_CHUNK_BYTES {
            let field = format!("chunks[{index}].content");
            let message = format!("{field} is {} bytes, at most {MAX_CHUNK_BYTES} are allowed", chunk.content.len());
            return Err(Error::invalid(&field, message));
        }
    }
    let mut tx = app.begin().await?;
    let row = fence(app, &mut tx, who).await?;
    let mut fresh: Vec<String> = Vec::new();
    for (index, chunk) in request.chunks.into_iter().enumerate() {
        let wanted = row.log_next + i64::try_from(fresh.len()).unwrap_or(i64::MAX);
        if chunk.seq > wanted || chunk.seq < 0 {
            let field = format!("chunks[{index}].seq");
            return Err(Error::invalid(&field, format!("{field} is {}, the next chunk is number {wanted}", chunk.seq)));
        }
        if chunk.seq == wanted {
            // Postgres has no NUL in text
            fresh.push(if chunk.content.contains('\0') { chunk.content.replace('\0', "\u{fffd}") } else { chunk.content });
        }
    }
    let next = row.log_next + i64::try_from(fresh.len()).unwrap_or(i64::MAX);
    if !fresh.is_empty() {
        let bytes: usize = fresh.iter().map(String::len).sum();
        if row.log_bytes.saturating_add(i64::try_from(bytes).unwrap_or(i64::MAX)) > MAX_LOG_BYTES {
            let what = format!("the log of job {} attempt {}", who.job_id, who.attempt);
            return Err(Error::TooLarge { what, limit_bytes: MAX_LOG_BYTES.unsigned_abs() });
        }
        insert_log_chunks(&mut tx, who.job_id, who.attempt, row.log_next, &fresh, app.clock.now()).await?;
        notify(&mut tx, &format!("log:{}", who.job_id)).await?;
    }
    commit(tx).await?;
    Ok(next)
}

/// Takes the final word on an attempt. An exact repeat is acknowledged again.
///
/// # Errors
/// [`Error::StaleAttempt`]; a result that contradicts itself.
pub async fn finish(app: &App, who: &AttemptRef, result: &JobResult) -> Result<()> {
    check_result(result)?;
    let now = app.clock.now();
    let mut tx = app.begin().await?;
    let pipeline_id = get_job(&mut tx, who.job_id).await?.pipeline_id;
    lock_pipeline(&mut tx, pipeline_id).await?;
    let job = lock_job(&mut tx, who.job_id).await?;
    let row = identify(&mut tx, who).await?;
    let steps = to_json(&result.steps)?;
    if *row.status != AttemptStatus::Running {
        let same = *row.status == result.status
            && row.cause.map(|cause| *cause) == result.cause
            && row.exit_code == result.exit_code
            && row.message == result.message
            && row.steps == steps;
        return if same { Ok(()) } else { Err(stale(&row)) };
    }
    check_live(app, &row)?;
    for (index, evidence) in result.evidence.iter().enumerate() {
        store_evidence(app, &mut tx, &job, index, evidence).await?;
    }
    let end = AttemptEnd {
        status: result.status,
        cause: result.cause,
        exit_code: result.exit_code,
        message: &result.message,
        steps: Some(steps),
        at: now,
    };
    end_attempt(app, &mut tx, &job, &row, &end).await?;
    commit(tx).await
}

/// Ends a running attempt whose runner is gone; its job is queued again while attempts are left.
///
/// # Errors
/// When the database fails.
pub(crate) async fn lose(app: &App, job_id: i64, attempt: i32, why: &str) -> Result<()> {
    let mut tx = app.begin().await?;
    lose_in(app, &mut tx, job_id, attempt, why, false).await?;
    commit(tx).await
}

async fn lose_in(app: &App, db: &mut PgConnection, job_id: i64, attempt: i32, why: &str, if_expired: bool) -> Result<bool> {
    let now = app.clock.now();
    let pipeline_id = get_job(db, job_id).await?.pipeline_id;
    lock_pipeline(db, pipeline_id).await?;
    let job = lock_job(db, job_id).await?;
    let Some(row) = store::find_attempt_for_update(db, job_id, attempt).await? else { return Ok(false) };
    if *row.status != AttemptStatus::Running || (if_expired && row.lease_expires_at > now) {
        return Ok(false);
    }
    end_attempt(app, db, &job, &row, &lost(why, now)).await?;
    Ok(true)
}

/// Ends the attempts whose leases are over. One tick of the reaper; gives how many there were.
///
/// # Errors
/// When the database fails.
pub async fn expire_leases(app: &App) -> Result<usize> {
    let mut db = app.connection().await?;
    let expired = store::list_expired_attempts(&mut db, app.clock.now(), 100).await?;
    drop(db);
    let mut ended = 0;
    for (job_id, attempt) in expired {
        let mut tx = app.begin().await?;
        // a renewal may have come in between
        ended += usize::from(lose_in(app, &mut tx, job_id, attempt, "its runner was not heard of for a whole lease", true).await?);
        commit(tx).await?;
    }
    Ok(ended)
}

/// Gives every running attempt a fresh lease. For the start of the server: while it was down no runner could
/// renew, and their work shall not be lost for that.
///
/// # Errors
/// When the database fails.
pub async fn extend_leases(app: &App) -> Result<()> {
    let mut db = app.connection().await?;
    Ok(store::extend_running_leases(&mut db, app.clock.now() + lease(app)).await?)
}

/// Runs [`expire_leases`] until `shutdown`.
pub async fn run(app: App, shutdown: CancellationToken) {
    let pause = (app.settings.lease / 4).clamp(Duration::from_millis(100), Duration::from_secs(2));
    while !shutdown.is_cancelled() {
        match expire_leases(&app).await {
            Ok(0) => {}
            Ok(ended) => tracing::warn!(ended, "leases expired"),
            Err(error) => tracing::warn!(error = format!("{:#}", anyhow::Error::from(error)), "leases could not be looked at"),
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shutdown.cancelled() => {}
        }
    }
}

/// Writes how an attempt ended and what that means for its job and the job's run. The caller holds the row
/// locks of pipeline, job and attempt.
async fn end_attempt(app: &App, db: &mut PgConnection, job: &JobRow, attempt: &AttemptRow, end: &AttemptEnd<'_>) -> Result<()> {
    store::update_attempt_ended(db, attempt.job_id, attempt.attempt, end).await?;
    let stopping = job.cancel_requested_at.is_some();
    let retried = end.cause.is_some_and(Cause::is_retried);
    let (status, cause, message) = match end.status {
        AttemptStatus::Succeeded => (JobStatus::Succeeded, None, end.message.to_owned()),
        AttemptStatus::Cancelled => (JobStatus::Cancelled, Some(Cause::Cancelled), end.message.to_owned()),
        // it was to stop anyway: no further attempt, and no failure
        _ if retried && stopping => (JobStatus::Cancelled, Some(Cause::Cancelled), end.message.to_owned()),
        _ if retried && attempt.attempt < job.max_attempts => {
            let cause = end.cause.map_or("lost", Cause::as_str);
            (JobStatus::Queued, None, format!("attempt {} ended ({cause}): {}", attempt.attempt, end.message))
        }
        _ if retried => (JobStatus::Failed, end.cause, format!("{} (attempt {} of {})", end.message, attempt.attempt, job.max_attempts)),
        _ => (JobStatus::Failed, end.cause, end.message.to_owned()),
    };
    update_job_status(db, job.id, &JobChange { status, cause, message: &message, at: end.at }).await?;
    if let Some(run_id) = job.run_id {
        match status {
            JobStatus::Queued => update_job_run_continued(db, run_id, RunStatus::Scheduled).await?,
            JobStatus::Succeeded => update_job_run_ended(db, run_id, RunStatus::Finished, end.at).await?,
            JobStatus::Cancelled => update_job_run_ended(db, run_id, RunStatus::Killed, end.at).await?,
            _ => update_job_run_ended(db, run_id, RunStatus::Failed, end.at).await?,
        }
        notify(db, &format!("run:{}", run_id.simple())).await?;
    }
    let action = if status == JobStatus::Queued { "job.requeued" } else { "job.finished" };
    let detail =
        json!({ "attempt": attempt.attempt, "attempt_status": end.status, "status": status, "cause": end.cause, "message": end.message });
    insert_audit(db, end.at, &actor(&attempt.runner), action, &format!("job:{}", job.id), &detail).await?;
    notify(db, &format!("job:{}", job.id)).await?;
    notify(db, &format!("log:{}", job.id)).await?;
    // also when it is queued again: cores have become free
    notify(db, "queue").await?;
    advance(app, db, job.pipeline_id).await
}

async fn store_evidence(app: &App, db: &mut PgConnection, job: &JobRow, index: usize, evidence: &Evidence) -> Result<()> {
    let field = format!("evidence[{index}]");
    let mut evidence = evidence.clone();
    match (&mut evidence, *job.kind) {
        (Evidence::Benchmark(_), JobKind::Benchmark) => {}
        (Evidence::Onnx(onnx), JobKind::ExportOnnx) => {
            // the file that was measured must be among those that were uploaded
            let outputs = store::list_outputs(db, &[job.id]).await?;
            let file = outputs.into_iter().find(|output| output.sha256 == onnx.sha256).ok_or_else(|| {
                let field = format!("{field}.sha256");
                Error::invalid(&field, format!("{field} {} is not the digest of a file that this attempt uploaded", onnx.sha256))
            })?;
            onnx.uri = file.uri;
        }
        (_, kind) => {
            return Err(Error::invalid(
                &field,
                format!("{field} is of kind {}, which a job of kind {kind} does not give", evidence.kind()),
            ));
        }
    }
    let body = to_json(&evidence)?;
    store::insert_evidence(db, job.id, job.attempt, evidence.kind(), &body, app.clock.now()).await.map_err(|error| {
        match error.constraint() {
            Some("evidence_job_id_attempt_kind_key") => {
                Error::invalid(&field, format!("{field} is a second piece of kind {}, one is allowed", evidence.kind()))
            }
            _ => error.into(),
        }
    })
}

/// Finds the attempt, checks its token and that its lease lasts, and locks it: until the transaction ends its
/// lease cannot be ended.
///
/// # Errors
/// [`Error::StaleAttempt`] when its lease is over.
pub(crate) async fn fence(app: &App, db: &mut Transaction<'static, Postgres>, who: &AttemptRef) -> Result<AttemptRow> {
    let row = identify(db, who).await?;
    check_live(app, &row)?;
    Ok(row)
}

async fn identify(db: &mut PgConnection, who: &AttemptRef) -> Result<AttemptRow> {
    let row = store::find_attempt_for_update(db, who.job_id, who.attempt)
        .await?
        .ok_or_else(|| Error::NotFound(format!("job {} has no attempt {}", who.job_id, who.attempt)))?;
    if row.token_sha256 != digest(&who.token) {
        return Err(Error::Unauthenticated(format!("the bearer token is not that of job {} attempt {}", who.job_id, who.attempt)));
    }
    Ok(row)
}

fn check_live(app: &App, row: &AttemptRow) -> Result<()> {
    if *row.status == AttemptStatus::Running && row.lease_expires_at > app.clock.now() { Ok(()) } else { Err(stale(row)) }
}

fn stale(row: &AttemptRow) -> Error {
    let state =
        if *row.status == AttemptStatus::Running { "its lease has expired".to_owned() } else { format!("it is {} already", *row.status) };
    Error::StaleAttempt(format!("attempt {} of job {} takes no more writes: {state}", row.attempt, row.job_id))
}

fn check_result(result: &JobResult) -> Result<()> {
    match (result.status, result.cause) {
        (AttemptStatus::Succeeded, None) | (AttemptStatus::Cancelled, Some(Cause::Cancelled)) => {}
        (AttemptStatus::Failed, Some(cause)) if !matches!(cause, Cause::Cancelled | Cause::Lost) => {}
        (AttemptStatus::Running | AttemptStatus::Lost, _) => {
            return Err(Error::invalid(
                "status",
                format!("status {} is not a result: expected succeeded, failed or cancelled", result.status),
            ));
        }
        (status, cause) => {
            let cause = cause.map_or("null", Cause::as_str);
            let message = format!(
                "cause {cause} does not go with status {status}: succeeded has none, cancelled has cancelled, failed has one of user, infra, preempted, oom, timeout"
            );
            return Err(Error::invalid("cause", message));
        }
    }
    check_text("message", &result.message, MAX_MESSAGE_BYTES)?;
    check_steps(&result.steps)?;
    if result.evidence.len() > 2 {
        return Err(Error::invalid(
            "evidence",
            format!("evidence: {} pieces given, at most one of each kind is allowed", result.evidence.len()),
        ));
    }
    let body = to_json(&result.evidence)?;
    if holds_nul(&body) {
        return Err(Error::invalid("evidence", "evidence holds a NUL character"));
    }
    Ok(())
}

fn check_steps(steps: &[StepReport]) -> Result<()> {
    if steps.len() > MAX_STEPS {
        return Err(Error::invalid("steps", format!("steps: {} given, at most {MAX_STEPS} are allowed", steps.len())));
    }
    for (index, step) in steps.iter().enumerate() {
        check_text(&format!("steps[{index}].name"), &step.name, 100)?;
        if !matches!(step.status.as_str(), "running" | "succeeded" | "failed" | "skipped") {
            let field = format!("steps[{index}].status");
            let message =
                format!("{field} {:?} must be running, succeeded, failed or skipped", step.status.chars().take(40).collect::<String>());
            return Err(Error::invalid(&field, message));
        }
    }
    Ok(())
}

fn check_text(field: &str, text: &str, max: usize) -> Result<()> {
    if text.len() > max || text.contains('\0') {
        return Err(Error::invalid(field, format!("{field} must be at most {max} bytes without NUL characters")));
    }
    Ok(())
}

fn holds_nul(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::String(text) => text.contains('\0'),
        serde_json::Value::Array(items) => items.iter().any(holds_nul),
        serde_json::Value::Object(fields) => fields.iter().any(|(key, value)| key.contains('\0') || holds_nul(value)),
        _ => false,
    }
}

fn to_json(value: &impl serde::Serialize) -> Result<serde_json::Value> {
    serde_json::to_value(value).map_err(|error| Error::Internal(error.into()))
}
