//! The job page: attempts, outputs, log.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::Result;

/// The job page's own row.
#[derive(Debug, Clone)]
pub struct JobHead {
    pub id: i64,
    pub name: String,
    pub kind: String,
    pub spec: serde_json::Value,
    pub needs: Vec<String>,
    pub requires: Vec<String>,
    pub cpus: i32,
    pub status: String,
    pub cause: Option<String>,
    pub message: String,
    pub attempt: i32,
    pub max_attempts: i32,
    pub run_id: Option<Uuid>,
    pub cancel_requested_at: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
    pub queued_at: Option<DateTime<Utc>>,
    pub started_at: Option<DateTime<Utc>>,
    pub finished_at: Option<DateTime<Utc>>,
    pub pipeline_id: i64,
    pub repository: String,
    pub branch: String,
    pub sha: String,
    pub commit_subject: String,
}

/// Finds a job.
///
/// # Errors
/// When the database fails.
pub async fn find_job(db: &mut PgConnection, id: i64) -> Result<Option<JobHead>> {
    Ok(sqlx::query_as!(
        JobHead,
        "SELECT j.id, j.name, j.kind, j.spec, j.needs, j.requires, j.cpus, j.status, j.cause, j.message, j.attempt, j.max_attempts, j.run_id,
                j.cancel_requested_at, j.created_at, j.queued_at, j.started_at, j.finished_at, p.id AS pipeline_id,
                r.name AS repository, p.branch, p.sha, p.commit_subject
         FROM jobs j JOIN pipelines p ON p.id = j.pipeline_id JOIN repositories r ON r.id = p.repository_id WHERE j.id = $1",
        id
    )
    .fetch_optional(db)
    .await?)
}

/// One attempt at a job.
#[derive(Debug, Clone)]
pub struct AttemptRow {
    pub attempt: i32,
    pub runner: String,
    pub status: String,
    pub cause: Option<String>,
    pub exit_code: Option<i32>,
    pub message: String,
    /// `[domain::runner::StepReport]`
    pub steps: serde_json::Value,
    pub started_at: DateTime<Utc>,
    pub finished_at: Option<DateTime<Utc>>,
}

/// Lists the attempts of a job, oldest first.
///
/// # Errors
/// When the database fails.
pub async fn list_attempts(db: &mut PgConnection, job: i64) -> Result<Vec<AttemptRow>> {
    Ok(sqlx::query_as!(
        AttemptRow,
        "SELECT a.attempt, r.name AS runner, a.status, a.cause, a.exit_code, a.message, a.steps, a.started_at, a.finished_at
         FROM job_attempts a JOIN runners r ON r.id = a.runner_id WHERE a.job_id = $1 ORDER BY a.attempt",
        job
    )
    .fetch_all(db)
    .await?)
}

/// One file that an attempt left behind.
#[derive(Debug, Clone)]
pub struct OutputRow {
    pub name: String,
    pub path: String,
    pub uri: String,
    pub sha256: String,
    pub bytes: i64,
}

/// Lists the outputs of an attempt.
///
/// # Errors
/// When the database fails.
pub async fn list_outputs(db: &mut PgConnection, job: i64, attempt: i32) -> Result<Vec<OutputRow>> {
    Ok(sqlx::query_as!(
        OutputRow,
        "SELECT name, path, uri, sha256, bytes FROM job_outputs WHERE job_id = $1 AND attempt = $2 ORDER BY name, path",
        job,
        attempt
    )
    .fetch_all(db)
    .await?)
}

/// The end of an attempt's log.
#[derive(Debug, Clone)]
pub struct LogTail {
    pub text: String,
    /// Lines before `text`.
    pub skipped_lines: i64,
    /// Number of the next chunk.
    pub next_seq: i64,
}

/// Loads the last `max_chunks` chunks of an attempt's log.
///
/// # Errors
/// When the database fails.
pub async fn log_tail(db: &mut PgConnection, job: i64, attempt: i32, max_chunks: i64) -> Result<LogTail> {
    let next_seq = sqlx::query_scalar!(
        r#"SELECT coalesce(max(seq) + 1, 0) AS "next!" FROM job_log_chunks WHERE job_id = $1 AND attempt = $2"#,
        job,
        attempt
    )
    .fetch_one(&mut *db)
    .await?;
    let first = (next_seq - max_chunks).max(0);
    let chunks = sqlx::query_scalar!(
        "SELECT content FROM job_log_chunks WHERE job_id = $1 AND attempt = $2 AND seq >= $3 AND seq < $4 ORDER BY seq",
        job,
        attempt,
        first,
        next_seq
    )
    .fetch_all(&mut *db)
    .await?;
    let skipped_lines = sqlx::query_scalar!(
        r#"SELECT coalesce(sum(length(content) - length(replace(content, E'\n', ''))), 0)::bigint AS "lines!"
           FROM job_log_chunks WHERE job_id = $1 AND attempt = $2 AND seq < $3"#,
        job,
        attempt,
        first
    )
    .fetch_one(db)
    .await?;
    Ok(LogTail { text: chunks.concat(), skipped_lines, next_seq })
}

/// Loads up to `limit` chunks of an attempt's log from chunk number `from`.
///
/// # Errors
/// When the database fails.
pub async fn log_page(db: &mut PgConnection, job: i64, attempt: i32, from: i64, limit: i64) -> Result<Vec<String>> {
    Ok(sqlx::query_scalar!(
        "SELECT content FROM job_log_chunks WHERE job_id = $1 AND attempt = $2 AND seq >= $3 ORDER BY seq LIMIT $4",
        job,
        attempt,
        from,
        limit
    )
    .fetch_all(db)
    .await?)
}
