//! What runs table and run page show beside the runs themselves.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::Result;

/// Keys that may become columns: those of the newest runs of an experiment.
#[derive(Debug, Clone, Default)]
pub struct KeyCatalogue {
    pub metrics: Vec<String>,
    pub params: Vec<String>,
    pub tags: Vec<String>,
}

/// How many of the newest runs the catalogue looks at, and how many keys of a kind it lists.
pub const CATALOGUE_RUNS: i64 = 200;
/// See [`CATALOGUE_RUNS`].
pub const CATALOGUE_KEYS: i64 = 300;

/// Loads the keys of the newest runs of an experiment.
///
/// # Errors
/// When the database fails.
pub async fn key_catalogue(db: &mut PgConnection, experiment_id: i32) -> Result<KeyCatalogue> {
    let newest = sqlx::query_scalar!(
        "SELECT id FROM runs WHERE experiment_id = $1 AND lifecycle = 'active' ORDER BY start_time_ms DESC, id LIMIT $2",
        experiment_id,
        CATALOGUE_RUNS
    )
    .fetch_all(&mut *db)
    .await?;
    Ok(KeyCatalogue {
        metrics: sqlx::query_scalar!(
            "SELECT DISTINCT key FROM metric_series WHERE run_id = ANY($1) ORDER BY key LIMIT $2",
            &newest,
            CATALOGUE_KEYS
        )
        .fetch_all(&mut *db)
        .await?,
        params: sqlx::query_scalar!(
            "SELECT DISTINCT key FROM run_params WHERE run_id = ANY($1) ORDER BY key LIMIT $2",
            &newest,
            CATALOGUE_KEYS
        )
        .fetch_all(&mut *db)
        .await?,
        tags: sqlx::query_scalar!(
            r"SELECT DISTINCT key FROM run_tags WHERE run_id = ANY($1) AND key NOT LIKE 'mlflow.%' ORDER BY key LIMIT $2",
            &newest,
            CATALOGUE_KEYS
        )
        .fetch_all(db)
        .await?,
    })
}

/// The job whose attempts log into a run.
#[derive(Debug, Clone)]
pub struct RunJob {
    pub id: i64,
    pub name: String,
    pub status: String,
    pub attempt: i32,
    pub pipeline_id: i64,
    pub repository: String,
    pub branch: String,
    pub sha: String,
    pub commit_subject: String,
}

/// Finds the job of a run.
///
/// # Errors
/// When the database fails.
pub async fn find_run_job(db: &mut PgConnection, run: Uuid) -> Result<Option<RunJob>> {
    Ok(sqlx::query_as!(
        RunJob,
        "SELECT j.id, j.name, j.status, j.attempt, p.id AS pipeline_id, r.name AS repository, p.branch, p.sha, p.commit_subject
         FROM jobs j JOIN pipelines p ON p.id = j.pipeline_id JOIN repositories r ON r.id = p.repository_id
         WHERE j.run_id = $1 ORDER BY j.id LIMIT 1",
        run
    )
    .fetch_optional(db)
    .await?)
}

/// A model version that came from a run.
#[derive(Debug, Clone)]
pub struct RunModelVersion {
    pub name: String,
    pub version: i32,
}

/// Lists the model versions that came from a run.
///
/// # Errors
/// When the database fails.
pub async fn list_run_model_versions(db: &mut PgConnection, run: Uuid) -> Result<Vec<RunModelVersion>> {
    Ok(sqlx::query_as!(
        RunModelVersion,
        "SELECT m.name, v.version FROM model_versions v JOIN registered_models m ON m.id = v.model_id
         WHERE v.run_id = $1 AND v.deleted_at IS NULL ORDER BY m.name, v.version",
        run
    )
    .fetch_all(db)
    .await?)
}

/// One logged point.
#[derive(Debug, Clone)]
pub struct PointRow {
    pub step: i64,
    pub timestamp_ms: i64,
    pub value: f64,
}

/// Lists the points of one metric in step order, after the given point.
///
/// # Errors
/// When the database fails.
pub async fn list_points(db: &mut PgConnection, run: Uuid, key: &str, after: Option<(i64, i64, f64)>, limit: i64) -> Result<Vec<PointRow>> {
    let (step, timestamp, value) = match after {
        Some((step, timestamp, value)) => (Some(step), Some(timestamp), Some(value)),
        None => (None, None, None),
    };
    Ok(sqlx::query_as!(
        PointRow,
        "SELECT p.step, p.timestamp_ms, p.value FROM metric_series s JOIN metric_points p ON p.series_id = s.id
         WHERE s.run_id = $1 AND s.key = $2
           AND ($3::bigint IS NULL OR (p.step, p.timestamp_ms, p.value) > ($3, $4::bigint, $5::double precision))
         ORDER BY p.step, p.timestamp_ms, p.value LIMIT $6",
        run,
        key,
        step,
        timestamp,
        value,
        limit
    )
    .fetch_all(db)
    .await?)
}
