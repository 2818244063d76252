//! The list of pipelines and the pipeline page.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::Result;

/// One pipeline in a list.
#[derive(Debug, Clone)]
pub struct PipelineRow {
    pub id: i64,
    pub repository: String,
    pub branch: String,
    pub sha: String,
    pub commit_subject: String,
    pub commit_author: String,
    pub status: String,
    pub status_reason: String,
    pub created_at: DateTime<Utc>,
    pub finished_at: Option<DateTime<Utc>>,
}

/// Which pipelines to list; `None` means any.
#[derive(Debug, Clone, Default)]
pub struct PipelineFilter {
    pub repository: Option<String>,
    pub branch: Option<String>,
    pub status: Option<String>,
    /// Only older ones than this id.
    pub before: Option<i64>,
}

/// Lists pipelines, newest first.
///
/// # Errors
/// When the database fails.
pub async fn list_pipelines(db: &mut PgConnection, filter: &PipelineFilter, limit: i64) -> Result<Vec<PipelineRow>> {
    Ok(sqlx::query_as!(
        PipelineRow,
        "SELECT p.id, r.name AS repository, p.branch, p.sha, p.commit_subject, p.commit_author, p.status, p.status_reason,
                p.created_at, p.finished_at
         FROM pipelines p JOIN repositories r ON r.id = p.repository_id
         WHERE ($1::text IS NULL OR r.name = $1) AND ($2::text IS NULL OR p.branch = $2) AND ($3::text IS NULL OR p.status = $3)
           AND ($4::bigint IS NULL OR p.id < $4)
         ORDER BY p.id DESC LIMIT $5",
        filter.repository.as_deref(),
        filter.branch.as_deref(),
        filter.status.as_deref(),
        filter.before,
        limit
    )
    .fetch_all(db)
    .await?)
}

/// One job as a segment of a pipeline's status bar.
#[derive(Debug, Clone)]
pub struct JobSegment {
    pub pipeline_id: i64,
    pub id: i64,
    pub name: String,
    pub status: String,
}

/// Lists the jobs of pipelines, in plan order.
///
/// # Errors
/// When the database fails.
pub async fn list_job_segments(db: &mut PgConnection, pipelines: &[i64]) -> Result<Vec<JobSegment>> {
    Ok(sqlx::query_as!(JobSegment, "SELECT pipeline_id, id, name, status FROM jobs WHERE pipeline_id = ANY($1) ORDER BY id", pipelines)
        .fetch_all(db)
        .await?)
}

/// The pipeline page's own row.
#[derive(Debug, Clone)]
pub struct PipelineHead {
    pub id: i64,
    pub repository: String,
    pub branch: String,
    pub sha: String,
    pub commit_subject: String,
    pub commit_author: String,
    pub status: String,
    pub status_reason: String,
    pub file_errors: Option<serde_json::Value>,
    pub created_at: DateTime<Utc>,
    pub finished_at: Option<DateTime<Utc>>,
}

/// Finds a pipeline.
///
/// # Errors
/// When the database fails.
pub async fn find_pipeline(db: &mut PgConnection, id: i64) -> Result<Option<PipelineHead>> {
    Ok(sqlx::query_as!(
        PipelineHead,
        "SELECT p.id, r.name AS repository, p.branch, p.sha, p.commit_subject, p.commit_author, p.status, p.status_reason,
                p.file_errors, p.created_at, p.finished_at
         FROM pipelines p JOIN repositories r ON r.id = p.repository_id WHERE p.id = $1",
        id
    )
    .fetch_optional(db)
    .await?)
}

/// One job of the pipeline page.
#[derive(Debug, Clone)]
pub struct JobRow {
    pub id: i64,
    pub name: String,
    pub kind: String,
    pub needs: Vec<String>,
    pub requires: Vec<String>,
    pub cpus: i32,
    pub status: String,
    pub cause: Option<String>,
    pub message: String,
    pub attempt: i32,
    pub run_id: Option<Uuid>,
    pub queued_at: Option<DateTime<Utc>>,
    pub started_at: Option<DateTime<Utc>>,
    pub finished_at: Option<DateTime<Utc>>,
    /// Name of the runner of the latest attempt.
    pub runner: Option<String>,
}

/// Lists the jobs of a pipeline, in plan order.
///
/// # Errors
/// When the database fails.
pub async fn list_jobs(db: &mut PgConnection, pipeline: i64) -> Result<Vec<JobRow>> {
    Ok(sqlx::query_as!(
        JobRow,
        r#"SELECT j.id, j.name, j.kind, j.needs, j.requires, j.cpus, j.status, j.cause, j.message, j.attempt, j.run_id,
                  j.queued_at, j.started_at, j.finished_at, r.name AS "runner?"
           FROM jobs j LEFT JOIN job_attempts a ON a.job_id = j.id AND a.attempt = j.attempt LEFT JOIN runners r ON r.id = a.runner_id
           WHERE j.pipeline_id = $1 ORDER BY j.id"#,
        pipeline
    )
    .fetch_all(db)
    .await?)
}

/// What became of a pipeline's request to move an alias.
#[derive(Debug, Clone)]
pub struct PromotionRow {
    pub id: i64,
    pub pipeline_id: i64,
    pub model_name: String,
    pub version: Option<i32>,
    pub alias: String,
    pub status: String,
    pub reason: String,
    pub gate_record_id: Option<i64>,
    pub created_at: DateTime<Utc>,
    pub finished_at: Option<DateTime<Utc>>,
}

/// Finds the promotion of a pipeline.
///
/// # Errors
/// When the database fails.
pub async fn find_promotion(db: &mut PgConnection, pipeline: i64) -> Result<Option<PromotionRow>> {
    Ok(sqlx::query_as!(
        PromotionRow,
        "SELECT id, pipeline_id, model_name, version, alias, status, reason, gate_record_id, created_at, finished_at
         FROM promotions WHERE pipeline_id = $1",
        pipeline
    )
    .fetch_optional(db)
    .await?)
}
