//! What a gate reads: the plan, the jobs, the candidate's metrics, evidence and output files.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::{Error, Result};

/// The part of a pipeline that a promotion is judged by.
#[derive(Debug, Clone)]
pub struct PipelineInput {
    pub sha: String,
    pub commit_subject: String,
    pub commit_author: String,
    /// `domain::plan::Plan`.
    pub plan: Option<serde_json::Value>,
}

/// Reads the pipeline of a promotion.
///
/// # Errors
/// [`Error::NotFound`], or when the database fails.
pub async fn get_pipeline_input(db: &mut PgConnection, pipeline_id: i64) -> Result<PipelineInput> {
    sqlx::query_as!(PipelineInput, "SELECT sha, commit_subject, commit_author, plan FROM pipelines WHERE id = $1", pipeline_id)
        .fetch_optional(db)
        .await?
        .ok_or(Error::NotFound { kind: "pipeline", key: pipeline_id.to_string() })
}

/// The part of a job that a promotion is judged by.
#[derive(Debug, Clone)]
pub struct JobInput {
    pub id: i64,
    pub name: String,
    pub status: String,
    pub message: String,
    pub attempt: i32,
    pub run_id: Option<Uuid>,
}

/// The jobs of a pipeline, in no order.
///
/// # Errors
/// When the database fails.
pub async fn list_job_inputs(db: &mut PgConnection, pipeline_id: i64) -> Result<Vec<JobInput>> {
    Ok(sqlx::query_as!(JobInput, "SELECT id, name, status, message, attempt, run_id FROM jobs WHERE pipeline_id = $1", pipeline_id)
        .fetch_all(db)
        .await?)
}

/// The latest value of every metric of a run. Values may be NaN or infinite.
///
/// # Errors
/// When the database fails.
pub async fn list_latest_metrics(db: &mut PgConnection, run_id: Uuid) -> Result<Vec<(String, f64)>> {
    Ok(sqlx::query!("SELECT key, last_value FROM metric_series WHERE run_id = $1", run_id)
        .fetch_all(db)
        .await?
        .into_iter()
        .map(|row| (row.key, row.last_value))
        .collect())
}

/// The evidence that an attempt at a job left, as `domain::evidence::Evidence`.
///
/// # Errors
/// When the database fails.
pub async fn list_evidence(db: &mut PgConnection, job_id: i64, attempt: i32) -> Result<Vec<serde_json::Value>> {
    Ok(sqlx::query_scalar!("SELECT body FROM evidence WHERE job_id = $1 AND attempt = $2 ORDER BY id", job_id, attempt)
        .fetch_all(db)
        .await?)
}

/// A file of an output.
#[derive(Debug, Clone)]
pub struct OutputFile {
    pub path: String,
    pub uri: String,
    pub sha256: String,
}

/// The files of one output of an attempt at a job.
///
/// # Errors
/// When the database fails.
pub async fn list_output_files(db: &mut PgConnection, job_id: i64, attempt: i32, output: &str) -> Result<Vec<OutputFile>> {
    Ok(sqlx::query_as!(
        OutputFile,
        "SELECT path, uri, sha256 FROM job_outputs WHERE job_id = $1 AND attempt = $2 AND name = $3 ORDER BY path",
        job_id,
        attempt,
        output
    )
    .fetch_all(db)
    .await?)
}
