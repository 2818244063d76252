//! Deployments: which bytes an environment serves, and served before.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::{Error, Result};

/// A row of `deployments`.
#[derive(Debug, Clone)]
pub struct DeploymentRow {
    pub id: i64,
    pub environment: String,
    pub model_name: String,
    pub version: i32,
    pub artifact_uri: String,
    pub artifact_sha256: String,
    pub status: String,
    pub message: String,
    pub gate_record_id: Option<i64>,
    pub rollback_alias: Option<String>,
    pub rollback_from: Option<i32>,
    pub actor: String,
    pub created_at: DateTime<Utc>,
    pub ready_at: Option<DateTime<Utc>>,
    pub ended_at: Option<DateTime<Utc>>,
}

/// What a new deployment is made of.
#[derive(Debug, Clone, Copy)]
pub struct NewDeployment<'a> {
    pub environment: &'a str,
    pub model: &'a str,
    pub version: i32,
    pub artifact_uri: &'a str,
    pub artifact_sha256: &'a str,
    pub gate_record_id: i64,
    /// Alias that moves back from a version when this deployment starts to serve.
    pub rollback: Option<(&'a str, i32)>,
    pub actor: &'a str,
    pub at: DateTime<Utc>,
}

/// Asks for a deployment: status `starting`. Returns its id.
///
/// # Errors
/// When the database fails.
pub async fn insert_deployment(db: &mut PgConnection, new: NewDeployment<'_>) -> Result<i64> {
    Ok(sqlx::query_scalar!(
        "INSERT INTO deployments (environment, model_name, version, artifact_uri, artifact_sha256, status, gate_record_id,
             rollback_alias, rollback_from, actor, created_at)
         VALUES ($1, $2, $3, $4, $5, 'starting', $6, $7, $8, $9, $10) RETURNING id",
        new.environment,
        new.model,
        new.version,
        new.artifact_uri,
        new.artifact_sha256,
        new.gate_record_id,
        new.rollback.map(|(alias, _)| alias),
        new.rollback.map(|(_, from)| from),
        new.actor,
        new.at
    )
    .fetch_one(db)
    .await?)
}

/// Reads a deployment.
///
/// # Errors
/// [`Error::NotFound`], or when the database fails.
pub async fn get_deployment(db: &mut PgConnection, id: i64) -> Result<DeploymentRow> {
    sqlx::query_as!(
        DeploymentRow,
        "SELECT id, environment, model_name, version, artifact_uri, artifact_sha256, status, message, gate_record_id, rollback_alias,
             rollback_from, actor, created_at, ready_at, ended_at
         FROM deployments WHERE id = $1",
        id
    )
    .fetch_optional(db)
    .await?
    .ok_or(Error::NotFound { kind: "deployment", key: id.to_string() })
}

/// Deployments that should have a process: starting or serving, oldest first.
///
/// # Errors
/// When the database fails.
pub async fn list_live_deployments(db: &mut PgConnection) -> Result<Vec<DeploymentRow>> {
    Ok(sqlx::query_as!(
        DeploymentRow,
        "SELECT id, environment, model_name, version, artifact_uri, artifact_sha256, status, message, gate_record_id, rollback_alias,
             rollback_from, actor, created_at, ready_at, ended_at
         FROM deployments WHERE status IN ('starting', 'serving') ORDER BY id"
    )
    .fetch_all(db)
    .await?)
}

/// Deployments of a model (or of all), newest first, before `before_id`.
///
/// # Errors
/// When the database fails.
pub async fn list_deployments(
    db: &mut PgConnection,
    model: Option<&str>,
    before_id: Option<i64>,
    limit: i64,
) -> Result<Vec<DeploymentRow>> {
    Ok(sqlx::query_as!(
        DeploymentRow,
        "SELECT id, environment, model_name, version, artifact_uri, artifact_sha256, status, message, gate_record_id, rollback_alias,
             rollback_from, actor, created_at, ready_at, ended_at
         FROM deployments WHERE ($1::text IS NULL OR model_name = $1) AND ($2::bigint IS NULL OR id < $2) ORDER BY id DESC LIMIT $3",
        model,
        before_id,
        limit
    )
    .fetch_all(db)
    .await?)
}

/// The latest deployment that a pipeline's gate asked for.
///
/// # Errors
/// When the database fails.
pub async fn find_deployment_of_pipeline(db: &mut PgConnection, pipeline_id: i64) -> Result<Option<DeploymentRow>> {
    Ok(sqlx::query_as!(
        DeploymentRow,
        "SELECT d.id, d.environment, d.model_name, d.version, d.artifact_uri, d.artifact_sha256, d.status, d.message, d.gate_record_id,
             d.rollback_alias, d.rollback_from, d.actor, d.created_at, d.ready_at, d.ended_at
         FROM promotions p JOIN gate_records g ON g.model_name = p.model_name AND g.version = p.version AND g.promotion_id = p.id
         JOIN deployments d ON d.model_name = g.model_name AND d.gate_record_id = g.id
         WHERE p.pipeline_id = $1 ORDER BY d.id DESC LIMIT 1",
        pipeline_id
    )
    .fetch_optional(db)
    .await?)
}

/// The pipeline whose gate led to a deployment.
///
/// # Errors
/// When the database fails.
pub async fn find_pipeline_of_deployment(db: &mut PgConnection, id: i64) -> Result<Option<i64>> {
    Ok(sqlx::query_scalar!(
        "SELECT p.pipeline_id FROM deployments d JOIN gate_records g ON g.id = d.gate_record_id JOIN promotions p ON p.id = g.promotion_id
         WHERE d.id = $1",
        id
    )
    .fetch_optional(db)
    .await?)
}

/// Environments in which a model is served or being started.
///
/// # Errors
/// When the database fails.
pub async fn list_environments(db: &mut PgConnection, model: &str) -> Result<Vec<String>> {
    Ok(sqlx::query_scalar!(
        "SELECT DISTINCT environment FROM deployments WHERE model_name = $1 AND status IN ('starting', 'serving') ORDER BY environment",
        model
    )
    .fetch_all(db)
    .await?)
}

/// A starting deployment serves from now on; the one before it is superseded. Returns the superseded id.
///
/// # Errors
/// [`Error::NotFound`] when the deployment is not `starting`, or when the database fails.
pub async fn update_deployment_serving(db: &mut PgConnection, id: i64, at: DateTime<Utc>) -> Result<Option<i64>> {
    let superseded = sqlx::query_scalar!(
        "UPDATE deployments old SET status = 'superseded', message = '', ended_at = $2 FROM deployments new
         WHERE new.id = $1 AND old.environment = new.environment AND old.model_name = new.model_name AND old.status = 'serving'
         RETURNING old.id",
        id,
        at
    )
    .fetch_optional(&mut *db)
    .await?;
    let done = sqlx::query!(
        "UPDATE deployments SET status = 'serving', message = '', ready_at = $2 WHERE id = $1 AND status = 'starting'",
        id,
        at
    )
    .execute(db)
    .await?;
    if done.rows_affected() == 0 {
        return Err(Error::NotFound { kind: "starting deployment", key: id.to_string() });
    }
    Ok(superseded)
}

/// A starting deployment failed. Returns whether it was still starting.
///
/// # Errors
/// When the database fails.
pub async fn update_deployment_failed(db: &mut PgConnection, id: i64, message: &str, at: DateTime<Utc>) -> Result<bool> {
    let done = sqlx::query!(
        "UPDATE deployments SET status = 'failed', message = $2, ended_at = $3 WHERE id = $1 AND status = 'starting'",
        id,
        message,
        at
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Notes what keeps a serving deployment from answering (empty: nothing).
///
/// # Errors
/// When the database fails.
pub async fn update_deployment_message(db: &mut PgConnection, id: i64, message: &str) -> Result<()> {
    sqlx::query!("UPDATE deployments SET message = $2 WHERE id = $1 AND status = 'serving'", id, message).execute(db).await?;
    Ok(())
}
