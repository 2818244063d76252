//! Runners and their queue, repositories, deployments.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::Result;

/// A job that a runner holds.
#[derive(Debug, Clone)]
pub struct RunningJob {
    pub runner: String,
    pub id: i64,
    pub name: String,
    pub cpus: i32,
    pub pipeline_id: i64,
    pub started_at: DateTime<Utc>,
}

/// Lists the jobs that runners hold.
///
/// # Errors
/// When the database fails.
pub async fn list_running_jobs(db: &mut PgConnection) -> Result<Vec<RunningJob>> {
    Ok(sqlx::query_as!(
        RunningJob,
        "SELECT r.name AS runner, j.id, j.name, j.cpus, j.pipeline_id, a.started_at
         FROM jobs j JOIN job_attempts a ON a.job_id = j.id AND a.attempt = j.attempt JOIN runners r ON r.id = a.runner_id
         WHERE j.status = 'running' AND a.status = 'running' ORDER BY j.id"
    )
    .fetch_all(db)
    .await?)
}

/// A job that may be claimed.
#[derive(Debug, Clone)]
pub struct QueuedJob {
    pub id: i64,
    pub pipeline_id: i64,
    pub repository: String,
    pub branch: String,
}

/// Lists the queue, next job first.
///
/// # Errors
/// When the database fails.
pub async fn list_queue(db: &mut PgConnection, limit: i64) -> Result<Vec<QueuedJob>> {
    Ok(sqlx::query_as!(
        QueuedJob,
        "SELECT j.id, j.pipeline_id, r.name AS repository, p.branch
         FROM jobs j JOIN pipelines p ON p.id = j.pipeline_id JOIN repositories r ON r.id = p.repository_id
         WHERE j.status = 'queued' ORDER BY j.queued_at, j.id LIMIT $1",
        limit
    )
    .fetch_all(db)
    .await?)
}

/// One repository with its latest pipeline.
#[derive(Debug, Clone)]
pub struct RepositoryRow {
    pub name: String,
    pub default_branch: String,
    pub created_at: DateTime<Utc>,
    pub branches: i64,
    pub pipelines: i64,
    pub last_pipeline_id: Option<i64>,
    pub last_status: Option<String>,
    pub last_subject: Option<String>,
    pub last_at: Option<DateTime<Utc>>,
}

/// Lists repositories by name.
///
/// # Errors
/// When the database fails.
pub async fn list_repositories(db: &mut PgConnection) -> Result<Vec<RepositoryRow>> {
    Ok(sqlx::query_as!(
        RepositoryRow,
        r#"SELECT r.name, r.default_branch, r.created_at,
                  (SELECT count(*) FROM branch_tips b WHERE b.repository_id = r.id) AS "branches!",
                  (SELECT count(*) FROM pipelines p WHERE p.repository_id = r.id) AS "pipelines!",
                  l.id AS "last_pipeline_id?", l.status AS "last_status?", l.commit_subject AS "last_subject?", l.created_at AS "last_at?"
           FROM repositories r
           LEFT JOIN LATERAL (SELECT id, status, commit_subject, created_at FROM pipelines p
                              WHERE p.repository_id = r.id ORDER BY id DESC LIMIT 1) AS l ON true
           ORDER BY r.name LIMIT 1000"#
    )
    .fetch_all(db)
    .await?)
}

/// One branch tip of a repository.
#[derive(Debug, Clone)]
pub struct BranchRow {
    pub branch: String,
    pub sha: String,
    pub updated_at: DateTime<Utc>,
}

/// A repository and its branches.
#[derive(Debug, Clone)]
pub struct RepositoryHead {
    pub name: String,
    pub default_branch: String,
    pub created_at: DateTime<Utc>,
    pub branches: Vec<BranchRow>,
}

/// Finds a repository.
///
/// # Errors
/// When the database fails.
pub async fn find_repository(db: &mut PgConnection, name: &str) -> Result<Option<RepositoryHead>> {
    let Some(row) = sqlx::query!("SELECT id, name, default_branch, created_at FROM repositories WHERE name = $1", name)
        .fetch_optional(&mut *db)
        .await?
    else {
        return Ok(None);
    };
    let branches = sqlx::query_as!(
        BranchRow,
        "SELECT branch, sha, updated_at FROM branch_tips WHERE repository_id = $1 ORDER BY updated_at DESC, branch LIMIT 200",
        row.id
    )
    .fetch_all(db)
    .await?;
    Ok(Some(RepositoryHead { name: row.name, default_branch: row.default_branch, created_at: row.created_at, branches }))
}
