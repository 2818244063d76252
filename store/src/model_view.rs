//! Registered models as the native API shows them.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::Result;

/// A registered model.
#[derive(Debug, Clone)]
pub struct ModelRow {
    pub id: i64,
    pub name: String,
    pub description: String,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// Models by name, after `after`.
///
/// # Errors
/// When the database fails.
pub async fn list_models(db: &mut PgConnection, after: Option<&str>, limit: i64) -> Result<Vec<ModelRow>> {
    Ok(sqlx::query_as!(
        ModelRow,
        "SELECT id, name, description, created_at, updated_at FROM registered_models
         WHERE ($1::text IS NULL OR name > $1) ORDER BY name LIMIT $2",
        after,
        limit
    )
    .fetch_all(db)
    .await?)
}

/// A model by name.
///
/// # Errors
/// When the database fails.
pub async fn find_model(db: &mut PgConnection, name: &str) -> Result<Option<ModelRow>> {
    Ok(sqlx::query_as!(ModelRow, "SELECT id, name, description, created_at, updated_at FROM registered_models WHERE name = $1", name)
        .fetch_optional(db)
        .await?)
}

/// The aliases of a model with their holders, by alias.
///
/// # Errors
/// When the database fails.
pub async fn list_aliases(db: &mut PgConnection, model_id: i64) -> Result<Vec<(String, i32)>> {
    Ok(sqlx::query!("SELECT alias, version FROM model_aliases WHERE model_id = $1 ORDER BY alias", model_id)
        .fetch_all(db)
        .await?
        .into_iter()
        .map(|row| (row.alias, row.version))
        .collect())
}

/// A version of a model.
#[derive(Debug, Clone)]
pub struct VersionRow {
    pub version: i32,
    pub source: String,
    pub description: String,
    pub user_id: String,
    pub run_id: Option<Uuid>,
    pub pipeline_id: Option<i64>,
    pub created_at: DateTime<Utc>,
}

/// The versions of a model that are not deleted, newest first.
///
/// # Errors
/// When the database fails.
pub async fn list_versions(db: &mut PgConnection, model_id: i64) -> Result<Vec<VersionRow>> {
    Ok(sqlx::query_as!(
        VersionRow,
        "SELECT version, source, description, user_id, run_id, pipeline_id, created_at FROM model_versions
         WHERE model_id = $1 AND deleted_at IS NULL ORDER BY version DESC",
        model_id
    )
    .fetch_all(db)
    .await?)
}

/// One version of a model, unless it is deleted.
///
/// # Errors
/// When the database fails.
pub async fn find_version(db: &mut PgConnection, model_id: i64, version: i32) -> Result<Option<VersionRow>> {
    Ok(sqlx::query_as!(
        VersionRow,
        "SELECT version, source, description, user_id, run_id, pipeline_id, created_at FROM model_versions
         WHERE model_id = $1 AND version = $2 AND deleted_at IS NULL",
        model_id,
        version
    )
    .fetch_optional(db)
    .await?)
}
