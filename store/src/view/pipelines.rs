//! The list of pipelines and the pipeline page.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

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
