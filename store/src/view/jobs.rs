//! What the job page shows beside the job: its pipeline, and its log.

use sqlx::PgConnection;

use crate::Result;

/// The commit that a pipeline runs.
#[derive(Debug, Clone)]
pub struct CommitRow {
    pub repository: String,
    pub branch: String,
    pub sha: String,
    pub commit_subject: String,
}

/// Finds the commit of a pipeline.
///
/// # Errors
/// When the database fails.
pub async fn find_commit(db: &mut PgConnection, pipeline: i64) -> Result<Option<CommitRow>> {
    Ok(sqlx::query_as!(
        CommitRow,
        "SELECT r.name AS repository, p.branch, p.sha, p.commit_subject
         FROM pipelines p JOIN repositories r ON r.id = p.repository_id WHERE p.id = $1",
        pipeline
    )
    .fetch_optional(db)
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
