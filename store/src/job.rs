//! Jobs of pipelines: the queue.

use chrono::{DateTime, Utc};
use sluice_domain::state::{Cause, JobKind, JobStatus};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{Error, Result, text::Text};

/// One job.
#[derive(Debug, Clone)]
pub struct JobRow {
    pub id: i64,
    pub pipeline_id: i64,
    pub name: String,
    pub kind: Text<JobKind>,
    /// `domain::plan::JobSpec`.
    pub spec: serde_json::Value,
    pub needs: Vec<String>,
    pub requires: Vec<String>,
    pub cpus: i32,
    pub status: Text<JobStatus>,
    pub cause: Option<Text<Cause>>,
    pub message: String,
    pub attempt: i32,
    pub max_attempts: i32,
    pub run_id: Option<Uuid>,
    pub cancel_requested_at: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
    pub queued_at: Option<DateTime<Utc>>,
    pub started_at: Option<DateTime<Utc>>,
    pub finished_at: Option<DateTime<Utc>>,
}

/// What a new job starts with.
#[derive(Debug, Clone)]
pub struct NewJob<'a> {
    pub pipeline_id: i64,
    pub name: &'a str,
    pub kind: JobKind,
    pub spec: serde_json::Value,
    pub needs: &'a [String],
    pub requires: &'a [String],
    pub cpus: i32,
    /// `Pending` or `Queued`.
    pub status: JobStatus,
    pub at: DateTime<Utc>,
}

macro_rules! jobs {
    ($tail:tt $(, $arg:expr)*) => {
        sqlx::query_as!(
            JobRow,
            r#"SELECT id, pipeline_id, name, kind AS "kind: Text<JobKind>", spec, needs, requires, cpus,
                      status AS "status: Text<JobStatus>", cause AS "cause: Text<Cause>", message, attempt, max_attempts, run_id,
                      cancel_requested_at, created_at, queued_at, started_at, finished_at
               FROM jobs "# + $tail
            $(, $arg)*
        )
    };
}

/// Inserts a job and gives its id.
///
/// # Errors
/// When the database fails.
pub async fn insert_job(db: &mut PgConnection, new: &NewJob<'_>) -> Result<i64> {
    let queued_at = (new.status == JobStatus::Queued).then_some(new.at);
    Ok(sqlx::query_scalar!(
        "INSERT INTO jobs (pipeline_id, name, kind, spec, needs, requires, cpus, status, created_at, queued_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) RETURNING id",
        new.pipeline_id,
        new.name,
        new.kind.as_str(),
        new.spec,
        new.needs,
        new.requires,
        new.cpus,
        new.status.as_str(),
        new.at,
        queued_at
    )
    .fetch_one(db)
    .await?)
}

/// Reads a job.
///
/// # Errors
/// When there is no such job or the database fails.
pub async fn get_job(db: &mut PgConnection, id: i64) -> Result<JobRow> {
    jobs!("WHERE id = $1", id).fetch_optional(db).await?.ok_or_else(|| not_found(id))
}

/// Reads a job and takes its row lock (after that of its pipeline).
///
/// # Errors
/// When there is no such job or the database fails.
pub async fn lock_job(db: &mut PgConnection, id: i64) -> Result<JobRow> {
    jobs!("WHERE id = $1 FOR UPDATE", id).fetch_optional(db).await?.ok_or_else(|| not_found(id))
}

/// The jobs of some pipelines, in plan order.
///
/// # Errors
/// When the database fails.
pub async fn list_jobs(db: &mut PgConnection, pipeline_ids: &[i64]) -> Result<Vec<JobRow>> {
    Ok(jobs!("WHERE pipeline_id = ANY($1) ORDER BY id", pipeline_ids).fetch_all(db).await?)
}

/// The oldest queued job that a runner with these capabilities and free cores can do. It stays locked;
/// jobs that other claims look at are skipped.
///
/// # Errors
/// When the database fails.
pub async fn claim_queued_job(db: &mut PgConnection, capabilities: &[String], free_cpus: i32) -> Result<Option<JobRow>> {
    Ok(jobs!(
        "WHERE status = 'queued' AND requires <@ $1 AND cpus <= $2 ORDER BY queued_at, id LIMIT 1 FOR UPDATE SKIP LOCKED",
        capabilities,
        free_cpus
    )
    .fetch_optional(db)
    .await?)
}

/// Marks a job as running its next attempt and gives that attempt's number.
///
/// # Errors
/// When the database fails.
pub async fn update_job_started(db: &mut PgConnection, id: i64, run_id: Uuid, at: DateTime<Utc>) -> Result<i32> {
    Ok(sqlx::query_scalar!(
        "UPDATE jobs SET status = 'running', attempt = attempt + 1, run_id = $2, cause = NULL, message = '',
                         started_at = coalesce(started_at, $3), finished_at = NULL
         WHERE id = $1 RETURNING attempt",
        id,
        run_id,
        at
    )
    .fetch_one(db)
    .await?)
}

/// How a job stands after something happened to it.
#[derive(Debug, Clone)]
pub struct JobChange<'a> {
    pub status: JobStatus,
    pub cause: Option<Cause>,
    pub message: &'a str,
    pub at: DateTime<Utc>,
}

/// Sets a job's status. A final status sets `finished_at`, `Queued` sets `queued_at` and any other status
/// than `Running` forgets a request to cancel that is still open.
///
/// # Errors
/// When the database fails.
pub async fn update_job_status(db: &mut PgConnection, id: i64, change: &JobChange<'_>) -> Result<()> {
    let queued = change.status == JobStatus::Queued;
    let finished_at = change.status.is_final().then_some(change.at);
    sqlx::query!(
        "UPDATE jobs SET status = $2, cause = $3, message = $4, finished_at = $5,
                         queued_at = CASE WHEN $6 THEN $7 ELSE queued_at END, cancel_requested_at = NULL
         WHERE id = $1",
        id,
        change.status.as_str(),
        change.cause.map(Cause::as_str),
        change.message,
        finished_at,
        queued,
        change.at
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Allows a finished job `more` attempts beyond those it had.
///
/// # Errors
/// When the database fails.
pub async fn update_job_max_attempts(db: &mut PgConnection, id: i64, more: i32) -> Result<()> {
    sqlx::query!("UPDATE jobs SET max_attempts = attempt + $2, started_at = NULL WHERE id = $1", id, more).execute(db).await?;
    Ok(())
}

/// Asks for a running job to be stopped. Asking again changes nothing.
///
/// # Errors
/// When the database fails.
pub async fn update_job_cancel_requested(db: &mut PgConnection, id: i64, at: DateTime<Utc>) -> Result<()> {
    sqlx::query!("UPDATE jobs SET cancel_requested_at = coalesce(cancel_requested_at, $2) WHERE id = $1", id, at).execute(db).await?;
    Ok(())
}

/// The pipeline that registered the holder of an alias, and the holder's version.
///
/// # Errors
/// When the database fails.
pub async fn find_champion_pipeline(db: &mut PgConnection, model: &str, alias: &str) -> Result<Option<(i32, Option<i64>)>> {
    let row = sqlx::query!(
        "SELECT v.version, v.pipeline_id FROM model_aliases a
         JOIN registered_models m ON m.id = a.model_id
         JOIN model_versions v ON v.model_id = a.model_id AND v.version = a.version
         WHERE m.name = $1 AND a.alias = $2",
        model,
        alias
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| (row.version, row.pipeline_id)))
}

fn not_found(id: i64) -> Error {
    Error::NotFound { kind: "job", key: id.to_string() }
}
