//! The tracking run of a job: one row across all attempts.

use chrono::{DateTime, Utc};
use sluice_domain::state::{Lifecycle, RunStatus};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::Result;

/// The id of an experiment by name: created when there is none, restored when it was deleted.
///
/// # Errors
/// When the database fails.
pub async fn ensure_experiment(db: &mut PgConnection, name: &str, at: DateTime<Utc>) -> Result<i32> {
    if let Some(row) = sqlx::query!("SELECT id, lifecycle FROM experiments WHERE name = $1", name).fetch_optional(&mut *db).await? {
        if row.lifecycle != Lifecycle::Active.as_str() {
            sqlx::query!("UPDATE experiments SET lifecycle = 'active', updated_at = $2 WHERE id = $1", row.id, at).execute(db).await?;
        }
        return Ok(row.id);
    }
    // a racing creator's row wins: a refused insert would end the caller's transaction
    Ok(sqlx::query_scalar!(
        "WITH new AS (SELECT nextval(pg_get_serial_sequence('experiments', 'id'))::integer AS id)
         INSERT INTO experiments (id, name, artifact_location, created_at, updated_at)
         SELECT id, $1, 'mlflow-artifacts:/' || id, $2, $2 FROM new
         ON CONFLICT (name) DO UPDATE SET updated_at = experiments.updated_at RETURNING id",
        name,
        at
    )
    .fetch_one(db)
    .await?)
}

/// The run goes on in another attempt: `Scheduled` while the job waits, `Running` from the claim on.
///
/// # Errors
/// When the database fails.
pub async fn update_job_run_continued(db: &mut PgConnection, id: Uuid, status: RunStatus) -> Result<()> {
    sqlx::query!("UPDATE runs SET status = $2, end_time_ms = NULL WHERE id = $1", id, status.as_str()).execute(db).await?;
    Ok(())
}

/// Ends the run with the job, unless the job's script has ended it itself.
///
/// # Errors
/// When the database fails.
pub async fn update_job_run_ended(db: &mut PgConnection, id: Uuid, status: RunStatus, at: DateTime<Utc>) -> Result<()> {
    sqlx::query!(
        "UPDATE runs SET status = $2, end_time_ms = $3 WHERE id = $1 AND status IN ('RUNNING', 'SCHEDULED')",
        id,
        status.as_str(),
        at.timestamp_millis()
    )
    .execute(db)
    .await?;
    Ok(())
}
