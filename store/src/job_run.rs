//! The tracking run of a job: one row across all attempts.

use chrono::{DateTime, Utc};
use sluice_domain::state::RunStatus;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::Result;

/// A job's run as it starts.
#[derive(Debug, Clone)]
pub struct NewJobRun<'a> {
    pub id: Uuid,
    pub experiment_id: i32,
    pub name: &'a str,
    pub tags: &'a [(String, String)],
    pub at: DateTime<Utc>,
}

/// The id of an experiment by name, created when there is none.
///
/// # Errors
/// When the database fails.
pub async fn ensure_experiment(db: &mut PgConnection, name: &str, at: DateTime<Utc>) -> Result<i32> {
    if let Some(id) = sqlx::query_scalar!("SELECT id FROM experiments WHERE name = $1", name).fetch_optional(&mut *db).await? {
        return Ok(id);
    }
    // the id is part of the location, so it is drawn first; a racing creator's row wins
    let id =
        sqlx::query_scalar!(r#"SELECT nextval(pg_get_serial_sequence('experiments', 'id'))::integer AS "id!""#).fetch_one(&mut *db).await?;
    Ok(sqlx::query_scalar!(
        "INSERT INTO experiments (id, name, artifact_location, created_at, updated_at) VALUES ($1, $2, $3, $4, $4)
         ON CONFLICT (name) DO UPDATE SET updated_at = experiments.updated_at RETURNING id",
        id,
        name,
        format!("mlflow-artifacts:/{id}"),
        at
    )
    .fetch_one(db)
    .await?)
}

/// Inserts a job's run, running, with its tags.
///
/// # Errors
/// When the database fails.
pub async fn insert_job_run(db: &mut PgConnection, run: &NewJobRun<'_>) -> Result<()> {
    let location =
        sqlx::query_scalar!("SELECT artifact_location FROM experiments WHERE id = $1", run.experiment_id).fetch_one(&mut *db).await?;
    sqlx::query!(
        "INSERT INTO runs (id, experiment_id, name, user_id, status, start_time_ms, artifact_uri, created_at)
         VALUES ($1, $2, $3, 'sluice', 'RUNNING', $4, $5, $6)",
        run.id,
        run.experiment_id,
        run.name,
        run.at.timestamp_millis(),
        format!("{location}/{}/artifacts", run.id.simple()),
        run.at
    )
    .execute(&mut *db)
    .await?;
    let (keys, values): (Vec<String>, Vec<String>) = run.tags.iter().cloned().unzip();
    sqlx::query!("INSERT INTO run_tags (run_id, key, value) SELECT $1, * FROM unnest($2::text[], $3::text[])", run.id, &keys, &values)
        .execute(db)
        .await?;
    Ok(())
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

/// Where a run's artifacts are (`mlflow-artifacts:/…`).
///
/// # Errors
/// When the database fails.
pub async fn find_artifact_uri(db: &mut PgConnection, id: Uuid) -> Result<Option<String>> {
    Ok(sqlx::query_scalar!("SELECT artifact_uri FROM runs WHERE id = $1", id).fetch_optional(db).await?)
}
