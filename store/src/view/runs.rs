//! Rows and cells of the runs table, and the run page.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::Result;

/// The fixed columns of one run.
#[derive(Debug, Clone)]
pub struct RunRow {
    pub id: Uuid,
    pub name: String,
    pub status: String,
    pub start_time_ms: i64,
    pub end_time_ms: Option<i64>,
    pub user_id: String,
    /// `mlflow.source.git.commit`, if it was tagged.
    pub commit: Option<String>,
}

/// Loads the fixed columns of runs, in the order of `ids`.
///
/// # Errors
/// When the database fails.
pub async fn list_run_rows(db: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<RunRow>> {
    Ok(sqlx::query_as!(
        RunRow,
        r#"SELECT r.id, r.name, r.status, r.start_time_ms, r.end_time_ms, r.user_id,
                  (SELECT value FROM run_tags t WHERE t.run_id = r.id AND t.key = 'mlflow.source.git.commit') AS commit
           FROM unnest($1::uuid[]) WITH ORDINALITY AS wanted (id, position) JOIN runs r USING (id) ORDER BY wanted.position"#,
        ids
    )
    .fetch_all(db)
    .await?)
}

/// Summary of one metric of one run.
#[derive(Debug, Clone)]
pub struct MetricCell {
    pub run_id: Uuid,
    pub key: String,
    pub last: f64,
    pub min: f64,
    pub max: f64,
}

/// Loads the summaries of `keys` for `runs`.
///
/// # Errors
/// When the database fails.
pub async fn list_metric_cells(db: &mut PgConnection, runs: &[Uuid], keys: &[String]) -> Result<Vec<MetricCell>> {
    Ok(sqlx::query_as!(
        MetricCell,
        "SELECT run_id, key, last_value AS last, min_value AS min, max_value AS max FROM metric_series
         WHERE run_id = ANY($1) AND key = ANY($2)",
        runs,
        keys
    )
    .fetch_all(db)
    .await?)
}

/// One param or tag of one run.
#[derive(Debug, Clone)]
pub struct TextCell {
    pub run_id: Uuid,
    pub key: String,
    pub value: String,
}

/// Loads the params `keys` of `runs`.
///
/// # Errors
/// When the database fails.
pub async fn list_param_cells(db: &mut PgConnection, runs: &[Uuid], keys: &[String]) -> Result<Vec<TextCell>> {
    Ok(sqlx::query_as!(TextCell, "SELECT run_id, key, value FROM run_params WHERE run_id = ANY($1) AND key = ANY($2)", runs, keys)
        .fetch_all(db)
        .await?)
}

/// Loads the tags `keys` of `runs`.
///
/// # Errors
/// When the database fails.
pub async fn list_tag_cells(db: &mut PgConnection, runs: &[Uuid], keys: &[String]) -> Result<Vec<TextCell>> {
    Ok(sqlx::query_as!(TextCell, "SELECT run_id, key, value FROM run_tags WHERE run_id = ANY($1) AND key = ANY($2)", runs, keys)
        .fetch_all(db)
        .await?)
}

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

/// Head of the run page.
#[derive(Debug, Clone)]
pub struct RunHead {
    pub id: Uuid,
    pub name: String,
    pub status: String,
    pub lifecycle: String,
    pub user_id: String,
    pub start_time_ms: i64,
    pub end_time_ms: Option<i64>,
    pub artifact_uri: String,
    pub experiment_id: i32,
    pub experiment_name: String,
}

/// Finds a run.
///
/// # Errors
/// When the database fails.
pub async fn find_run_head(db: &mut PgConnection, id: Uuid) -> Result<Option<RunHead>> {
    Ok(sqlx::query_as!(
        RunHead,
        "SELECT r.id, r.name, r.status, r.lifecycle, r.user_id, r.start_time_ms, r.end_time_ms, r.artifact_uri, r.experiment_id,
                e.name AS experiment_name
         FROM runs r JOIN experiments e ON e.id = r.experiment_id WHERE r.id = $1",
        id
    )
    .fetch_optional(db)
    .await?)
}

/// Summary of one metric on the run page.
#[derive(Debug, Clone)]
pub struct MetricRow {
    pub key: String,
    pub last: f64,
    pub last_step: i64,
    pub min: f64,
    pub max: f64,
    pub count: i64,
}

/// Lists the metrics of a run whose key contains `text`, by key.
///
/// # Errors
/// When the database fails.
pub async fn list_metrics(db: &mut PgConnection, run: Uuid, text: Option<&str>, limit: i64) -> Result<Vec<MetricRow>> {
    Ok(sqlx::query_as!(
        MetricRow,
        "SELECT key, last_value AS last, last_step, min_value AS min, max_value AS max, point_count AS count FROM metric_series
         WHERE run_id = $1 AND ($2::text IS NULL OR position(lower($2) IN lower(key)) > 0) ORDER BY key LIMIT $3",
        run,
        text,
        limit
    )
    .fetch_all(db)
    .await?)
}

/// One param or tag.
#[derive(Debug, Clone)]
pub struct KeyValue {
    pub key: String,
    pub value: String,
}

/// Lists the params of a run.
///
/// # Errors
/// When the database fails.
pub async fn list_params(db: &mut PgConnection, run: Uuid) -> Result<Vec<KeyValue>> {
    Ok(sqlx::query_as!(KeyValue, "SELECT key, value FROM run_params WHERE run_id = $1 ORDER BY key LIMIT 2000", run).fetch_all(db).await?)
}

/// Lists the tags of a run.
///
/// # Errors
/// When the database fails.
pub async fn list_tags(db: &mut PgConnection, run: Uuid) -> Result<Vec<KeyValue>> {
    Ok(sqlx::query_as!(KeyValue, "SELECT key, value FROM run_tags WHERE run_id = $1 ORDER BY key LIMIT 2000", run).fetch_all(db).await?)
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
