//! Reading what a job token stands for, under a lock that keeps the job from being taken over meanwhile.

use chrono::{DateTime, Utc};
use sluice_domain::id::RunId;
use sqlx::PgConnection;

use crate::Result;

/// The attempt that a token belongs to, and its job's present state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenAttempt {
    pub job_id: i64,
    pub attempt: i32,
    pub attempt_status: String,
    pub lease_expires_at: DateTime<Utc>,
    /// Number of the job's current attempt.
    pub current_attempt: i32,
    pub job_status: String,
    pub run_id: Option<RunId>,
}

/// Finds the attempt by its token's digest and share-locks its job until the transaction ends: whoever
/// changes the job waits for this transaction, and this one sees the job as it is after those before it.
///
/// # Errors
/// When the database fails.
pub async fn find_attempt_by_token(db: &mut PgConnection, token_sha256: &[u8]) -> Result<Option<TokenAttempt>> {
    let row = sqlx::query!(
        r#"SELECT a.job_id, a.attempt, a.status AS attempt_status, a.lease_expires_at,
                  j.attempt AS current_attempt, j.status AS job_status, j.run_id
           FROM job_attempts a JOIN jobs j ON j.id = a.job_id
           WHERE a.token_sha256 = $1
           FOR SHARE OF j"#,
        token_sha256
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| TokenAttempt {
        job_id: row.job_id,
        attempt: row.attempt,
        attempt_status: row.attempt_status,
        lease_expires_at: row.lease_expires_at,
        current_attempt: row.current_attempt,
        job_status: row.job_status,
        run_id: row.run_id.map(RunId),
    }))
}
