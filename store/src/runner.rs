//! Runners: who may claim jobs.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::Result;

/// One runner.
#[derive(Debug, Clone)]
pub struct RunnerRow {
    pub id: Uuid,
    pub name: String,
    pub capabilities: Vec<String>,
    pub cpus: i32,
    pub version: String,
    pub registered_at: DateTime<Utc>,
    pub last_seen_at: DateTime<Utc>,
    /// Jobs that it runs now.
    pub jobs: Vec<i64>,
}

/// What a runner says about itself.
#[derive(Debug, Clone)]
pub struct RunnerRegistration<'a> {
    pub name: &'a str,
    pub token_sha256: &'a [u8],
    pub capabilities: &'a [String],
    pub cpus: i32,
    pub version: &'a str,
    pub at: DateTime<Utc>,
}

macro_rules! runners {
    ($tail:tt $(, $arg:expr)*) => {
        sqlx::query_as!(
            RunnerRow,
            r#"SELECT r.id, r.name, r.capabilities, r.cpus, r.version, r.registered_at, r.last_seen_at,
                      array(SELECT a.job_id FROM job_attempts a WHERE a.runner_id = r.id AND a.status = 'running' ORDER BY 1) AS "jobs!"
               FROM runners r "# + $tail
            $(, $arg)*
        )
    };
}

/// Registers a runner; a known name keeps its id and gets the new token. `id` is for a new one.
///
/// # Errors
/// When the database fails.
pub async fn upsert_runner(db: &mut PgConnection, id: Uuid, runner: &RunnerRegistration<'_>) -> Result<Uuid> {
    Ok(sqlx::query_scalar!(
        "INSERT INTO runners (id, name, token_sha256, capabilities, cpus, version, registered_at, last_seen_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $7)
         ON CONFLICT (name) DO UPDATE SET token_sha256 = excluded.token_sha256, capabilities = excluded.capabilities, cpus = excluded.cpus,
             version = excluded.version, registered_at = excluded.registered_at, last_seen_at = excluded.last_seen_at
         RETURNING id",
        id,
        runner.name,
        runner.token_sha256,
        runner.capabilities,
        runner.cpus,
        runner.version,
        runner.at
    )
    .fetch_one(db)
    .await?)
}

/// The runner that a token belongs to.
///
/// # Errors
/// When the database fails.
pub async fn find_runner_by_token(db: &mut PgConnection, token_sha256: &[u8]) -> Result<Option<RunnerRow>> {
    Ok(runners!("WHERE r.token_sha256 = $1", token_sha256).fetch_optional(db).await?)
}

/// Notes that a runner was heard of.
///
/// # Errors
/// When the database fails.
pub async fn update_runner_seen(db: &mut PgConnection, id: Uuid, at: DateTime<Utc>) -> Result<()> {
    sqlx::query!("UPDATE runners SET last_seen_at = $2 WHERE id = $1 AND last_seen_at < $2", id, at).execute(db).await?;
    Ok(())
}

/// Lists runners by name, after `after`.
///
/// # Errors
/// When the database fails.
pub async fn list_runners(db: &mut PgConnection, after: &str, limit: i64) -> Result<Vec<RunnerRow>> {
    Ok(runners!("WHERE r.name > $1 ORDER BY r.name LIMIT $2", after, limit).fetch_all(db).await?)
}
