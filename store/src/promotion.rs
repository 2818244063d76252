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

/// What registering a version from a pipeline needs.
#[derive(Debug, Clone, Copy)]
pub struct NewPipelineVersion<'a> {
    pub model: &'a str,
    pub pipeline_id: i64,
    /// Folder of the model files, `mlflow-artifacts:/…`.
    pub source: &'a str,
    pub run_id: Option<uuid::Uuid>,
    pub description: &'a str,
    pub user: &'a str,
    pub at: DateTime<Utc>,
}

/// Registers the version of a pipeline, once: returns its number and whether it is new.
///
/// # Errors
/// When the database fails.
pub async fn upsert_pipeline_version(db: &mut PgConnection, new: NewPipelineVersion<'_>) -> Result<(i32, bool)> {
    sqlx::query!(
        "INSERT INTO registered_models (name, created_at, updated_at) VALUES ($1, $2, $2) ON CONFLICT (name) DO NOTHING",
        new.model,
        new.at
    )
    .execute(&mut *db)
    .await?;
    let model_id =
        sqlx::query_scalar!("SELECT id FROM registered_models WHERE name = $1 FOR UPDATE", new.model).fetch_one(&mut *db).await?;
    let known =
        sqlx::query_scalar!("SELECT version FROM model_versions WHERE model_id = $1 AND pipeline_id = $2", model_id, new.pipeline_id)
            .fetch_optional(&mut *db)
            .await?;
    if let Some(version) = known {
        return Ok((version, false));
    }
    let version = sqlx::query_scalar!(
        "UPDATE registered_models SET next_version = next_version + 1, updated_at = $2 WHERE id = $1 RETURNING next_version - 1 AS \"version!\"",
        model_id,
        new.at
    )
    .fetch_one(&mut *db)
    .await?;
    sqlx::query!(
        "INSERT INTO model_versions (model_id, version, source, storage_uri, run_id, description, user_id, pipeline_id, created_at, updated_at)
         VALUES ($1, $2, $3, $3, $4, $5, $6, $7, $8, $8)",
        model_id,
        version,
        new.source,
        new.run_id,
        new.description,
        new.user,
        new.pipeline_id,
        new.at
    )
    .execute(db)
    .await?;
    Ok((version, true))
}

/// The version that holds an alias.
///
/// # Errors
/// When the database fails.
pub async fn find_alias_holder(db: &mut PgConnection, model: &str, alias: &str) -> Result<Option<i32>> {
    Ok(sqlx::query_scalar!(
        "SELECT a.version FROM model_aliases a JOIN registered_models m ON m.id = a.model_id WHERE m.name = $1 AND a.alias = $2",
        model,
        alias
    )
    .fetch_optional(db)
    .await?)
}

/// Moves an alias to `to` if `expected` holds it (`None`: nobody does). Returns whether it moved.
///
/// # Errors
/// When the database fails.
pub async fn compare_and_move_alias(db: &mut PgConnection, model: &str, alias: &str, expected: Option<i32>, to: i32) -> Result<bool> {
    let moved = match expected {
        Some(expected) => {
            sqlx::query!(
                "UPDATE model_aliases a SET version = $4 FROM registered_models m
                 WHERE m.id = a.model_id AND m.name = $1 AND a.alias = $2 AND a.version = $3",
                model,
                alias,
                expected,
                to
            )
            .execute(db)
            .await?
        }
        None => {
            sqlx::query!(
                "INSERT INTO model_aliases (model_id, alias, version) SELECT id, $2, $3 FROM registered_models WHERE name = $1
                 ON CONFLICT (model_id, alias) DO NOTHING",
                model,
                alias,
                to
            )
            .execute(db)
            .await?
        }
    };
    Ok(moved.rows_affected() == 1)
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

/// Writes a move into the history.
///
/// # Errors
/// When the database fails.
pub async fn insert_alias_move(db: &mut PgConnection, model: &str, alias: &str, step: &AliasMove) -> Result<()> {
    sqlx::query!(
        "INSERT INTO model_alias_moves (model_name, alias, from_version, to_version, gate_record_id, reason, actor, moved_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        model,
        alias,
        step.from_version,
        step.to_version,
        step.gate_record_id,
        step.reason,
        step.actor,
        step.moved_at
    )
    .execute(db)
    .await?;
    Ok(())
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
