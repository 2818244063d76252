//! Logged models with their tags, params and metrics.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sluice_domain::{
    id::RunId,
    logged_model::{LoggedModel, LoggedModelMetric, LoggedModelStatus},
    tracking::KeyValue,
};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{Error, Result, columns};

/// The row of a logged model.
#[derive(Debug, Clone)]
pub struct LoggedModelRow {
    pub id: String,
    pub experiment_id: i32,
    pub name: String,
    pub model_type: String,
    pub source_run_id: Option<Uuid>,
    pub status: String,
    pub status_message: String,
    pub artifact_uri: String,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// What a new logged model says.
#[derive(Debug, Clone, Copy)]
pub struct NewLoggedModel<'a> {
    pub id: &'a str,
    pub experiment_id: i32,
    pub name: &'a str,
    pub model_type: &'a str,
    pub source_run_id: Option<RunId>,
    pub artifact_uri: &'a str,
}

/// Adds a logged model whose files are still to come.
///
/// # Errors
/// [`Error::ForeignKey`] when the experiment does not exist.
pub async fn insert_logged_model(db: &mut PgConnection, new: &NewLoggedModel<'_>, at: DateTime<Utc>) -> Result<()> {
    sqlx::query!(
        "INSERT INTO logged_models (id, experiment_id, name, model_type, source_run_id, status, artifact_uri, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, 'PENDING', $6, $7, $7)",
        new.id,
        new.experiment_id,
        new.name,
        new.model_type,
        new.source_run_id.map(|id| id.0),
        new.artifact_uri,
        at
    )
    .execute(db)
    .await?;
    Ok(())
}

/// A logged model; deleted ones only when asked for.
///
/// # Errors
/// When the database fails.
pub async fn find_logged_model(db: &mut PgConnection, id: &str, with_deleted: bool) -> Result<Option<LoggedModel>> {
    let row = sqlx::query_as!(
        LoggedModelRow,
        "SELECT id, experiment_id, name, model_type, source_run_id, status, status_message, artifact_uri, created_at, updated_at
         FROM logged_models WHERE id = $1 AND (lifecycle = 'active' OR $2)",
        id,
        with_deleted
    )
    .fetch_optional(&mut *db)
    .await?;
    Ok(load_logged_models(db, row.into_iter().collect()).await?.pop())
}

/// Logged models by id, in the order of `ids`.
///
/// # Errors
/// When the database fails.
pub async fn list_logged_models_by_id(db: &mut PgConnection, ids: &[String]) -> Result<Vec<LoggedModel>> {
    let rows = sqlx::query_as!(
        LoggedModelRow,
        "SELECT id, experiment_id, name, model_type, source_run_id, status, status_message, artifact_uri, created_at, updated_at
         FROM logged_models WHERE id = ANY($1) ORDER BY array_position($1, id)",
        ids
    )
    .fetch_all(&mut *db)
    .await?;
    load_logged_models(db, rows).await
}

/// Where a live logged model is and which run made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelRoot {
    pub artifact_uri: String,
    pub source_run_id: Option<Uuid>,
}

/// The root of a live logged model.
///
/// # Errors
/// When the database fails.
pub async fn find_root(db: &mut PgConnection, id: &str) -> Result<Option<ModelRoot>> {
    Ok(sqlx::query_as!(ModelRoot, "SELECT artifact_uri, source_run_id FROM logged_models WHERE id = $1 AND lifecycle = 'active'", id)
        .fetch_optional(db)
        .await?)
}

/// Locks a live logged model against changes by others; says whether there is one.
///
/// # Errors
/// When the database fails.
pub async fn lock_logged_model(db: &mut PgConnection, id: &str) -> Result<bool> {
    Ok(sqlx::query_scalar!(r#"SELECT true AS "found!" FROM logged_models WHERE id = $1 AND lifecycle = 'active' FOR NO KEY UPDATE"#, id)
        .fetch_optional(db)
        .await?
        .is_some())
}

async fn load_logged_models(db: &mut PgConnection, rows: Vec<LoggedModelRow>) -> Result<Vec<LoggedModel>> {
    let ids: Vec<String> = rows.iter().map(|row| row.id.clone()).collect();
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut tags: HashMap<String, Vec<KeyValue>> = HashMap::new();
    for row in sqlx::query!("SELECT model_id, key, value FROM logged_model_tags WHERE model_id = ANY($1) ORDER BY key", &ids)
        .fetch_all(&mut *db)
        .await?
    {
        tags.entry(row.model_id).or_default().push(KeyValue { key: row.key, value: row.value });
    }
    let mut params: HashMap<String, Vec<KeyValue>> = HashMap::new();
    for row in sqlx::query!("SELECT model_id, key, value FROM logged_model_params WHERE model_id = ANY($1) ORDER BY key", &ids)
        .fetch_all(&mut *db)
        .await?
    {
        params.entry(row.model_id).or_default().push(KeyValue { key: row.key, value: row.value });
    }
    let mut metrics: HashMap<String, Vec<LoggedModelMetric>> = HashMap::new();
    for row in sqlx::query!(
        "SELECT model_id, run_id, key, step, timestamp_ms, value, dataset_name, dataset_digest FROM logged_model_metrics
         WHERE model_id = ANY($1) ORDER BY key, timestamp_ms, step",
        &ids
    )
    .fetch_all(db)
    .await?
    {
        metrics.entry(row.model_id).or_default().push(LoggedModelMetric {
            key: row.key,
            value: row.value,
            timestamp_ms: row.timestamp_ms,
            step: row.step,
            run_id: RunId(row.run_id),
            dataset_name: row.dataset_name,
            dataset_digest: row.dataset_digest,
        });
    }
    rows.into_iter()
        .map(|row| {
            let status = LoggedModelStatus::ALL.into_iter().find(|status| status.as_str() == row.status);
            Ok(LoggedModel {
                tags: tags.remove(&row.id).unwrap_or_default(),
                params: params.remove(&row.id).unwrap_or_default(),
                metrics: metrics.remove(&row.id).unwrap_or_default(),
                status: status.ok_or_else(|| Error::Malformed { what: "logged model status", message: row.status.clone() })?,
                id: row.id,
                experiment_id: row.experiment_id,
                name: row.name,
                model_type: row.model_type,
                source_run_id: row.source_run_id.map(RunId),
                status_message: row.status_message,
                artifact_uri: row.artifact_uri,
                created_at: row.created_at,
                updated_at: row.updated_at,
            })
        })
        .collect()
}

/// Writes the status.
///
/// # Errors
/// When the database fails.
pub async fn update_status(db: &mut PgConnection, id: &str, status: LoggedModelStatus, at: DateTime<Utc>) -> Result<()> {
    sqlx::query!("UPDATE logged_models SET status = $2, updated_at = $3 WHERE id = $1", id, status.as_str(), at).execute(db).await?;
    Ok(())
}

/// Soft-deletes a logged model.
///
/// # Errors
/// When the database fails.
pub async fn delete_logged_model(db: &mut PgConnection, id: &str, at: DateTime<Utc>) -> Result<()> {
    sqlx::query!("UPDATE logged_models SET lifecycle = 'deleted', updated_at = $2 WHERE id = $1", id, at).execute(db).await?;
    Ok(())
}

/// Sets tags. Keys must differ.
///
/// # Errors
/// When the database fails.
pub async fn upsert_tags(db: &mut PgConnection, id: &str, tags: &[KeyValue]) -> Result<()> {
    let (keys, values) = columns(tags);
    sqlx::query!(
        "INSERT INTO logged_model_tags (model_id, key, value)
         SELECT $1, key, value FROM UNNEST($2::text[], $3::text[]) AS t(key, value)
         ON CONFLICT (model_id, key) DO UPDATE SET value = EXCLUDED.value",
        id,
        &keys,
        &values
    )
    .execute(db)
    .await?;
    Ok(())
}

/// The value of a tag, after locking the model against changes by others.
///
/// # Errors
/// When the database fails.
pub async fn lock_tag(db: &mut PgConnection, id: &str, key: &str) -> Result<Option<String>> {
    lock_logged_model(&mut *db, id).await?;
    Ok(sqlx::query_scalar!("SELECT value FROM logged_model_tags WHERE model_id = $1 AND key = $2", id, key).fetch_optional(db).await?)
}

/// Removes a tag; says whether it was there.
///
/// # Errors
/// When the database fails.
pub async fn delete_tag(db: &mut PgConnection, id: &str, key: &str) -> Result<bool> {
    let result = sqlx::query!("DELETE FROM logged_model_tags WHERE model_id = $1 AND key = $2", id, key).execute(db).await?;
    Ok(result.rows_affected() > 0)
}

/// Adds params that are not there yet and returns those that were there with another value, as stored. Keys
/// must differ.
///
/// # Errors
/// When the database fails.
pub async fn insert_params(db: &mut PgConnection, id: &str, params: &[KeyValue]) -> Result<Vec<KeyValue>> {
    let (keys, values) = columns(params);
    sqlx::query!(
        "INSERT INTO logged_model_params (model_id, key, value)
         SELECT $1, key, value FROM UNNEST($2::text[], $3::text[]) AS t(key, value)
         ON CONFLICT (model_id, key) DO NOTHING",
        id,
        &keys,
        &values
    )
    .execute(&mut *db)
    .await?;
    Ok(sqlx::query_as!(
        KeyValue,
        "SELECT p.key, p.value FROM logged_model_params p JOIN UNNEST($2::text[], $3::text[]) AS t(key, value) ON t.key = p.key
         WHERE p.model_id = $1 AND p.value <> t.value ORDER BY p.key",
        id,
        &keys,
        &values
    )
    .fetch_all(db)
    .await?)
}
