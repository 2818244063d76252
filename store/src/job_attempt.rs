//! Attempts at jobs: leases, fencing, and what attempts left behind.

use chrono::{DateTime, Utc};
use sluice_domain::state::{AttemptStatus, Cause};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{Result, text::Text};

/// One attempt at a job.
#[derive(Debug, Clone)]
pub struct AttemptRow {
    pub job_id: i64,
    pub attempt: i32,
    pub runner_id: Uuid,
    /// Name of the runner.
    pub runner: String,
    pub token_sha256: Vec<u8>,
    pub status: Text<AttemptStatus>,
    pub cause: Option<Text<Cause>>,
    pub exit_code: Option<i32>,
    pub message: String,
    /// `[domain::runner::StepReport]`.
    pub steps: serde_json::Value,
    pub log_next: i64,
    pub log_bytes: i64,
    pub lease_expires_at: DateTime<Utc>,
    pub started_at: DateTime<Utc>,
    pub finished_at: Option<DateTime<Utc>>,
}

macro_rules! attempts {
    ($tail:tt $(, $arg:expr)*) => {
        sqlx::query_as!(
            AttemptRow,
            r#"SELECT a.job_id, a.attempt, a.runner_id, r.name AS runner, a.token_sha256, a.status AS "status: Text<AttemptStatus>",
                      a.cause AS "cause: Text<Cause>", a.exit_code, a.message, a.steps, a.log_next, a.log_bytes,
                      a.lease_expires_at, a.started_at, a.finished_at
               FROM job_attempts a JOIN runners r ON r.id = a.runner_id "# + $tail
            $(, $arg)*
        )
    };
}

/// Inserts a running attempt.
///
/// # Errors
/// When the database fails.
pub async fn insert_attempt(
    db: &mut PgConnection,
    job_id: i64,
    attempt: i32,
    runner_id: Uuid,
    token_sha256: &[u8],
    at: DateTime<Utc>,
    lease_expires_at: DateTime<Utc>,
) -> Result<()> {
    sqlx::query!(
        "INSERT INTO job_attempts (job_id, attempt, runner_id, token_sha256, status, lease_expires_at, started_at)
         VALUES ($1, $2, $3, $4, 'running', $5, $6)",
        job_id,
        attempt,
        runner_id,
        token_sha256,
        lease_expires_at,
        at
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Reads an attempt and takes its row lock (after those of its pipeline and job): until the transaction
/// ends, nobody can end its lease.
///
/// # Errors
/// When the database fails.
pub async fn find_attempt_for_update(db: &mut PgConnection, job_id: i64, attempt: i32) -> Result<Option<AttemptRow>> {
    Ok(attempts!("WHERE a.job_id = $1 AND a.attempt = $2 FOR UPDATE OF a", job_id, attempt).fetch_optional(db).await?)
}

/// Reads an attempt.
///
/// # Errors
/// When the database fails.
pub async fn find_attempt(db: &mut PgConnection, job_id: i64, attempt: i32) -> Result<Option<AttemptRow>> {
    Ok(attempts!("WHERE a.job_id = $1 AND a.attempt = $2", job_id, attempt).fetch_optional(db).await?)
}

/// The attempts of some jobs, in order.
///
/// # Errors
/// When the database fails.
pub async fn list_attempts(db: &mut PgConnection, job_ids: &[i64]) -> Result<Vec<AttemptRow>> {
    Ok(attempts!("WHERE a.job_id = ANY($1) ORDER BY a.job_id, a.attempt", job_ids).fetch_all(db).await?)
}

/// The running attempts of a runner.
///
/// # Errors
/// When the database fails.
pub async fn list_running_attempts_of_runner(db: &mut PgConnection, runner_id: Uuid) -> Result<Vec<AttemptRow>> {
    Ok(attempts!("WHERE a.runner_id = $1 AND a.status = 'running' ORDER BY a.job_id", runner_id).fetch_all(db).await?)
}

/// Running attempts whose lease is over: pairs of job and attempt, oldest first.
///
/// # Errors
/// When the database fails.
pub async fn list_expired_attempts(db: &mut PgConnection, now: DateTime<Utc>, limit: i64) -> Result<Vec<(i64, i32)>> {
    let rows = sqlx::query!(
        "SELECT job_id, attempt FROM job_attempts WHERE status = 'running' AND lease_expires_at <= $1 ORDER BY lease_expires_at LIMIT $2",
        now,
        limit
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(|row| (row.job_id, row.attempt)).collect())
}

/// Extends a lease and notes the steps so far.
///
/// # Errors
/// When the database fails.
pub async fn update_attempt_renewed(
    db: &mut PgConnection,
    job_id: i64,
    attempt: i32,
    steps: &serde_json::Value,
    lease_expires_at: DateTime<Utc>,
) -> Result<()> {
    sqlx::query!(
        "UPDATE job_attempts SET lease_expires_at = $3, steps = $4 WHERE job_id = $1 AND attempt = $2",
        job_id,
        attempt,
        lease_expires_at,
        steps
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Gives every running attempt a lease until `lease_expires_at`, unless its own lasts longer.
///
/// # Errors
/// When the database fails.
pub async fn extend_running_leases(db: &mut PgConnection, lease_expires_at: DateTime<Utc>) -> Result<()> {
    sqlx::query!("UPDATE job_attempts SET lease_expires_at = $1 WHERE status = 'running' AND lease_expires_at < $1", lease_expires_at)
        .execute(db)
        .await?;
    Ok(())
}

/// How an attempt ended.
#[derive(Debug, Clone)]
pub struct AttemptEnd<'a> {
    pub status: AttemptStatus,
    pub cause: Option<Cause>,
    pub exit_code: Option<i32>,
    pub message: &'a str,
    /// `None` keeps the steps of the last renewal.
    pub steps: Option<serde_json::Value>,
    pub at: DateTime<Utc>,
}

/// Ends an attempt.
///
/// # Errors
/// When the database fails.
pub async fn update_attempt_ended(db: &mut PgConnection, job_id: i64, attempt: i32, end: &AttemptEnd<'_>) -> Result<()> {
    sqlx::query!(
        "UPDATE job_attempts SET status = $3, cause = $4, exit_code = $5, message = $6, steps = coalesce($7, steps), finished_at = $8
         WHERE job_id = $1 AND attempt = $2",
        job_id,
        attempt,
        end.status.as_str(),
        end.cause.map(Cause::as_str),
        end.exit_code,
        end.message,
        end.steps,
        end.at
    )
    .execute(db)
    .await?;
    Ok(())
}

/// A file of an output.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct OutputRow {
    #[serde(skip)]
    pub job_id: i64,
    #[serde(skip)]
    pub attempt: i32,
    pub name: String,
    pub path: String,
    pub uri: String,
    pub sha256: String,
    pub bytes: i64,
}

/// Notes an uploaded file; a second upload of the same file replaces the first.
///
/// # Errors
/// When the database fails.
pub async fn upsert_output(db: &mut PgConnection, output: &OutputRow) -> Result<()> {
    sqlx::query!(
        "INSERT INTO job_outputs (job_id, attempt, name, path, uri, sha256, bytes) VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (job_id, attempt, name, path) DO UPDATE SET uri = excluded.uri, sha256 = excluded.sha256, bytes = excluded.bytes",
        output.job_id,
        output.attempt,
        output.name,
        output.path,
        output.uri,
        output.sha256,
        output.bytes
    )
    .execute(db)
    .await?;
    Ok(())
}

/// The outputs of the last attempts of some jobs.
///
/// # Errors
/// When the database fails.
pub async fn list_outputs(db: &mut PgConnection, job_ids: &[i64]) -> Result<Vec<OutputRow>> {
    Ok(sqlx::query_as!(
        OutputRow,
        "SELECT o.job_id, o.attempt, o.name, o.path, o.uri, o.sha256, o.bytes
         FROM job_outputs o JOIN jobs j ON j.id = o.job_id AND j.attempt = o.attempt
         WHERE o.job_id = ANY($1) ORDER BY o.job_id, o.name, o.path",
        job_ids
    )
    .fetch_all(db)
    .await?)
}

/// How many files an attempt has uploaded.
///
/// # Errors
/// When the database fails.
pub async fn count_outputs(db: &mut PgConnection, job_id: i64, attempt: i32) -> Result<i64> {
    Ok(sqlx::query_scalar!(r#"SELECT count(*) AS "count!" FROM job_outputs WHERE job_id = $1 AND attempt = $2"#, job_id, attempt)
        .fetch_one(db)
        .await?)
}

/// Stores one piece of evidence of an attempt.
///
/// # Errors
/// When the database fails.
pub async fn insert_evidence(
    db: &mut PgConnection,
    job_id: i64,
    attempt: i32,
    kind: &str,
    body: &serde_json::Value,
    at: DateTime<Utc>,
) -> Result<()> {
    sqlx::query!(
        "INSERT INTO evidence (job_id, attempt, kind, body, created_at) VALUES ($1, $2, $3, $4, $5)",
        job_id,
        attempt,
        kind,
        body,
        at
    )
    .execute(db)
    .await?;
    Ok(())
}
