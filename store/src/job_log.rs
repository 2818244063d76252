//! Log chunks of attempts.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::Result;

/// One chunk of an attempt's log.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct LogChunkRow {
    pub seq: i64,
    pub content: String,
}

/// Appends chunks, numbered from `first` without gaps, and moves the attempt's counters. The caller holds
/// the attempt's row lock and knows that `first` is the next number.
///
/// # Errors
/// When the database fails.
pub async fn insert_log_chunks(
    db: &mut PgConnection,
    job_id: i64,
    attempt: i32,
    first: i64,
    contents: &[String],
    at: DateTime<Utc>,
) -> Result<()> {
    sqlx::query!(
        "INSERT INTO job_log_chunks (job_id, attempt, seq, content, created_at)
         SELECT $1, $2, $3 + ordinality - 1, content, $5 FROM unnest($4::text[]) WITH ORDINALITY AS c (content, ordinality)",
        job_id,
        attempt,
        first,
        contents,
        at
    )
    .execute(&mut *db)
    .await?;
    let bytes: usize = contents.iter().map(String::len).sum();
    sqlx::query!(
        "UPDATE job_attempts SET log_next = log_next + $3, log_bytes = log_bytes + $4 WHERE job_id = $1 AND attempt = $2",
        job_id,
        attempt,
        i64::try_from(contents.len()).unwrap_or(i64::MAX),
        i64::try_from(bytes).unwrap_or(i64::MAX)
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Chunks of an attempt's log from number `from` on, at most `limit` and about `max_bytes` of text, but at
/// least one if there is one.
///
/// # Errors
/// When the database fails.
pub async fn list_log_chunks(
    db: &mut PgConnection,
    job_id: i64,
    attempt: i32,
    from: i64,
    limit: i64,
    max_bytes: i64,
) -> Result<Vec<LogChunkRow>> {
    Ok(sqlx::query_as!(
        LogChunkRow,
        "SELECT seq, content FROM (
             SELECT seq, content, sum(octet_length(content)) OVER (ORDER BY seq) AS total, row_number() OVER (ORDER BY seq) AS place
             FROM (SELECT seq, content FROM job_log_chunks WHERE job_id = $1 AND attempt = $2 AND seq >= $3 ORDER BY seq LIMIT $4) AS first
         ) AS counted
         WHERE total <= $5::bigint OR place = 1 ORDER BY seq",
        job_id,
        attempt,
        from,
        limit,
        max_bytes
    )
    .fetch_all(db)
    .await?)
}
