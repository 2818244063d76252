//! Pipelines, and the promotion rows as far as a pipeline's status depends on them.

use chrono::{DateTime, Utc};
use sluice_domain::state::{PipelineStatus, PromotionStatus};
use sqlx::PgConnection;

use crate::{Error, Result, text::Text};

/// One pipeline.
#[derive(Debug, Clone)]
pub struct PipelineRow {
    pub id: i64,
    pub repository_id: i64,
    /// Name of the repository.
    pub repository: String,
    pub branch: String,
    pub sha: String,
    pub commit_subject: String,
    pub commit_author: String,
    pub status: Text<PipelineStatus>,
    pub status_reason: String,
    /// `[FileError]` of a broken pipeline file.
    pub file_errors: Option<serde_json::Value>,
    /// `domain::plan::Plan`; none when the file is broken.
    pub plan: Option<serde_json::Value>,
    pub created_at: DateTime<Utc>,
    pub finished_at: Option<DateTime<Utc>>,
}

/// What a new pipeline starts with.
#[derive(Debug, Clone)]
pub struct NewPipeline<'a> {
    pub repository_id: i64,
    pub branch: &'a str,
    pub sha: &'a str,
    pub commit_subject: &'a str,
    pub commit_author: &'a str,
    pub status: PipelineStatus,
    pub status_reason: &'a str,
    pub file_errors: Option<serde_json::Value>,
    pub plan: Option<serde_json::Value>,
    pub at: DateTime<Utc>,
}

/// Which pipelines to list.
#[derive(Debug, Clone, Default)]
pub struct PipelineFilter {
    pub repository: Option<String>,
    pub branch: Option<String>,
    pub status: Option<PipelineStatus>,
    /// Only pipelines that are older than this one.
    pub before_id: Option<i64>,
}

macro_rules! pipelines {
    ($tail:tt $(, $arg:expr)*) => {
        sqlx::query_as!(
            PipelineRow,
            r#"SELECT p.id, p.repository_id, r.name AS repository, p.branch, p.sha, p.commit_subject, p.commit_author,
                      p.status AS "status: Text<PipelineStatus>", p.status_reason, p.file_errors, p.plan, p.created_at, p.finished_at
               FROM pipelines p JOIN repositories r ON r.id = p.repository_id "# + $tail
            $(, $arg)*
        )
    };
}

/// Inserts a pipeline and gives its id.
///
/// # Errors
/// When the database fails.
pub async fn insert_pipeline(db: &mut PgConnection, new: &NewPipeline<'_>) -> Result<i64> {
    let finished_at = new.status.is_final().then_some(new.at);
    Ok(sqlx::query_scalar!(
        "INSERT INTO pipelines (repository_id, branch, sha, commit_subject, commit_author, status, status_reason,
                                file_errors, plan, created_at, finished_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) RETURNING id",
        new.repository_id,
        new.branch,
        new.sha,
        new.commit_subject,
        new.commit_author,
        new.status.as_str(),
        new.status_reason,
        new.file_errors,
        new.plan,
        new.at,
        finished_at
    )
    .fetch_one(db)
    .await?)
}

/// Reads a pipeline.
///
/// # Errors
/// When there is no such pipeline or the database fails.
pub async fn get_pipeline(db: &mut PgConnection, id: i64) -> Result<PipelineRow> {
    pipelines!("WHERE p.id = $1", id).fetch_optional(db).await?.ok_or_else(|| not_found(id))
}

/// Reads a pipeline and takes its row lock. Whoever changes jobs takes this lock first.
///
/// # Errors
/// When there is no such pipeline or the database fails.
pub async fn lock_pipeline(db: &mut PgConnection, id: i64) -> Result<PipelineRow> {
    pipelines!("WHERE p.id = $1 FOR UPDATE OF p", id).fetch_optional(db).await?.ok_or_else(|| not_found(id))
}

/// The newest pipeline of a branch at a commit.
///
/// # Errors
/// When the database fails.
pub async fn find_pipeline_of_tip(db: &mut PgConnection, repository_id: i64, branch: &str, sha: &str) -> Result<Option<PipelineRow>> {
    Ok(pipelines!("WHERE p.repository_id = $1 AND p.branch = $2 AND p.sha = $3 ORDER BY p.id DESC LIMIT 1", repository_id, branch, sha)
        .fetch_optional(db)
        .await?)
}

/// Lists pipelines, newest first.
///
/// # Errors
/// When the database fails.
pub async fn list_pipelines(db: &mut PgConnection, filter: &PipelineFilter, limit: i64) -> Result<Vec<PipelineRow>> {
    Ok(pipelines!(
        "WHERE ($1::text IS NULL OR r.name = $1) AND ($2::text IS NULL OR p.branch = $2)
           AND ($3::text IS NULL OR p.status = $3) AND ($4::bigint IS NULL OR p.id < $4)
         ORDER BY p.id DESC LIMIT $5",
        filter.repository.as_deref(),
        filter.branch.as_deref(),
        filter.status.map(PipelineStatus::as_str),
        filter.before_id,
        limit
    )
    .fetch_all(db)
    .await?)
}

/// Sets a pipeline's status; `finished_at` is set or cleared with it.
///
/// # Errors
/// When the database fails.
pub async fn update_pipeline_status(
    db: &mut PgConnection,
    id: i64,
    status: PipelineStatus,
    reason: &str,
    finished_at: Option<DateTime<Utc>>,
) -> Result<()> {
    sqlx::query!(
        "UPDATE pipelines SET status = $2, status_reason = $3, finished_at = $4 WHERE id = $1",
        id,
        status.as_str(),
        reason,
        finished_at
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Inserts the request of a pipeline to move an alias, waiting for its jobs.
///
/// # Errors
/// When the database fails.
pub async fn insert_waiting_promotion(
    db: &mut PgConnection,
    pipeline_id: i64,
    model_name: &str,
    alias: &str,
    at: DateTime<Utc>,
) -> Result<i64> {
    Ok(sqlx::query_scalar!(
        "INSERT INTO promotions (pipeline_id, model_name, alias, status, created_at) VALUES ($1, $2, $3, 'waiting', $4) RETURNING id",
        pipeline_id,
        model_name,
        alias,
        at
    )
    .fetch_one(db)
    .await?)
}

/// A promotion, as far as its pipeline's status depends on it.
#[derive(Debug, Clone)]
pub struct PromotionState {
    pub id: i64,
    pub status: Text<PromotionStatus>,
    pub reason: String,
}

/// The promotion of a pipeline, if it has one.
///
/// # Errors
/// When the database fails.
pub async fn find_promotion_state(db: &mut PgConnection, pipeline_id: i64) -> Result<Option<PromotionState>> {
    Ok(sqlx::query_as!(
        PromotionState,
        r#"SELECT id, status AS "status: Text<PromotionStatus>", reason FROM promotions WHERE pipeline_id = $1"#,
        pipeline_id
    )
    .fetch_optional(db)
    .await?)
}

/// A cancelled promotion waits again, because a job of its pipeline is tried again. No-op otherwise.
///
/// # Errors
/// When the database fails.
pub async fn reopen_promotion(db: &mut PgConnection, pipeline_id: i64) -> Result<()> {
    sqlx::query!(
        "UPDATE promotions SET status = 'waiting', reason = '', finished_at = NULL WHERE pipeline_id = $1 AND status = 'cancelled'",
        pipeline_id
    )
    .execute(db)
    .await?;
    Ok(())
}

fn not_found(id: i64) -> Error {
    Error::NotFound { kind: "pipeline", key: id.to_string() }
}
