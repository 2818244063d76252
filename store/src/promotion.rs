//! Promotions: one request per pipeline to move an alias, and the alias's own moves.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::{Error, Result};

/// A row of `promotions`.
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

/// Reads a promotion.
///
/// # Errors
/// [`Error::NotFound`], or when the database fails.
pub async fn get_promotion(db: &mut PgConnection, id: i64) -> Result<PromotionRow> {
    sqlx::query_as!(
        PromotionRow,
        "SELECT id, pipeline_id, model_name, version, alias, status, reason, gate_record_id, created_at, finished_at
         FROM promotions WHERE id = $1",
        id
    )
    .fetch_optional(db)
    .await?
    .ok_or(Error::NotFound { kind: "promotion", key: id.to_string() })
}

/// Reads a promotion and keeps everyone else from changing it until the transaction ends. Locks its pipeline
/// first: whoever changes jobs does so too, and the order is the same everywhere.
///
/// # Errors
/// [`Error::NotFound`], or when the database fails.
pub async fn lock_promotion(db: &mut PgConnection, id: i64) -> Result<PromotionRow> {
    sqlx::query!("SELECT l.id FROM promotions p JOIN pipelines l ON l.id = p.pipeline_id WHERE p.id = $1 FOR UPDATE OF l", id)
        .fetch_optional(&mut *db)
        .await?;
    sqlx::query_as!(
        PromotionRow,
        "SELECT id, pipeline_id, model_name, version, alias, status, reason, gate_record_id, created_at, finished_at
         FROM promotions WHERE id = $1 FOR UPDATE",
        id
    )
    .fetch_optional(db)
    .await?
    .ok_or(Error::NotFound { kind: "promotion", key: id.to_string() })
}

/// The promotion of a pipeline, if it has a `promote` part.
///
/// # Errors
/// When the database fails.
pub async fn find_promotion_of_pipeline(db: &mut PgConnection, pipeline_id: i64) -> Result<Option<PromotionRow>> {
    Ok(sqlx::query_as!(
        PromotionRow,
        "SELECT id, pipeline_id, model_name, version, alias, status, reason, gate_record_id, created_at, finished_at
         FROM promotions WHERE pipeline_id = $1",
        pipeline_id
    )
    .fetch_optional(db)
    .await?)
}

/// The promotions of a model version, newest first.
///
/// # Errors
/// When the database fails.
pub async fn list_promotions_of_version(db: &mut PgConnection, model: &str, version: i32) -> Result<Vec<PromotionRow>> {
    Ok(sqlx::query_as!(
        PromotionRow,
        "SELECT id, pipeline_id, model_name, version, alias, status, reason, gate_record_id, created_at, finished_at
         FROM promotions WHERE model_name = $1 AND version = $2 ORDER BY id DESC",
        model,
        version
    )
    .fetch_all(db)
    .await?)
}

/// Promotions whose needed jobs have all ended, whichever way, oldest first.
///
/// # Errors
/// When the database fails.
pub async fn list_due_promotions(db: &mut PgConnection) -> Result<Vec<i64>> {
    Ok(sqlx::query_scalar!(
        "SELECT p.id FROM promotions p JOIN pipelines l ON l.id = p.pipeline_id
         WHERE p.status = 'waiting' AND NOT EXISTS (
             SELECT 1 FROM jobs j WHERE j.pipeline_id = p.pipeline_id AND j.status IN ('pending', 'queued', 'running')
             AND j.name IN (SELECT jsonb_array_elements_text(l.plan -> 'promote' -> 'needs')))
         ORDER BY p.id"
    )
    .fetch_all(db)
    .await?)
}

/// Notes the version that a promotion is about.
///
/// # Errors
/// When the database fails.
pub async fn update_promotion_version(db: &mut PgConnection, id: i64, version: i32) -> Result<()> {
    sqlx::query!("UPDATE promotions SET version = $2 WHERE id = $1", id, version).execute(db).await?;
    Ok(())
}

/// Sets where a promotion stands.
///
/// # Errors
/// When the database fails.
pub async fn update_promotion_state(
    db: &mut PgConnection,
    id: i64,
    status: &str,
    reason: &str,
    gate_record_id: Option<i64>,
    finished_at: Option<DateTime<Utc>>,
) -> Result<()> {
    sqlx::query!(
        "UPDATE promotions SET status = $2, reason = $3, gate_record_id = coalesce($4, gate_record_id), finished_at = $5 WHERE id = $1",
        id,
        status,
        reason,
        gate_record_id,
        finished_at
    )
    .execute(db)
    .await?;
    Ok(())
}

/// One move of an alias.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AliasMove {
    pub from_version: Option<i32>,
    pub to_version: Option<i32>,
    pub gate_record_id: Option<i64>,
    pub reason: String,
    pub actor: String,
    pub moved_at: DateTime<Utc>,
}

/// Every move of an alias, oldest first.
///
/// # Errors
/// When the database fails.
pub async fn list_alias_moves(db: &mut PgConnection, model: &str, alias: &str) -> Result<Vec<AliasMove>> {
    Ok(sqlx::query_as!(
        AliasMove,
        "SELECT from_version, to_version, gate_record_id, reason, actor, moved_at FROM model_alias_moves
         WHERE model_name = $1 AND alias = $2 ORDER BY id",
        model,
        alias
    )
    .fetch_all(db)
    .await?)
}
