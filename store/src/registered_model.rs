//! Registered models and their tags.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sluice_domain::{registry::RegisteredModel, tracking::KeyValue};
use sqlx::PgConnection;

use crate::{Result, columns, model_alias, model_version};

/// The row of a registered model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelRow {
    pub id: i64,
    pub name: String,
    pub description: String,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// Adds a registered model; returns its id, or `None` when the name is taken. Its versions go on where gate
/// records, approvals, promotions and deployments of an earlier model of this name end, so that none of
/// those can be taken for one of a new version.
///
/// # Errors
/// When the database fails.
pub async fn insert_registered_model(db: &mut PgConnection, name: &str, description: &str, at: DateTime<Utc>) -> Result<Option<i64>> {
    Ok(sqlx::query_scalar!(
        "INSERT INTO registered_models (name, description, next_version, created_at, updated_at)
         SELECT $1, $2, 1 + COALESCE(max(version), 0), $3, $3 FROM (
             SELECT max(version) AS version FROM gate_records WHERE model_name = $1
             UNION ALL SELECT max(version) FROM approvals WHERE model_name = $1
             UNION ALL SELECT max(version) FROM promotions WHERE model_name = $1
             UNION ALL SELECT max(version) FROM deployments WHERE model_name = $1
         ) known
         ON CONFLICT (name) DO NOTHING RETURNING id",
        name,
        description,
        at
    )
    .fetch_optional(db)
    .await?)
}

/// A registered model's row.
///
/// # Errors
/// When the database fails.
pub async fn find_registered_model(db: &mut PgConnection, name: &str) -> Result<Option<ModelRow>> {
    Ok(sqlx::query_as!(ModelRow, "SELECT id, name, description, created_at, updated_at FROM registered_models WHERE name = $1", name)
        .fetch_optional(db)
        .await?)
}

/// The same, locked against changes by others until the transaction ends. Every change of a model, its
/// versions or aliases takes this lock first.
///
/// # Errors
/// When the database fails.
pub async fn lock_registered_model(db: &mut PgConnection, name: &str) -> Result<Option<ModelRow>> {
    Ok(sqlx::query_as!(
        ModelRow,
        "SELECT id, name, description, created_at, updated_at FROM registered_models WHERE name = $1 FOR NO KEY UPDATE",
        name
    )
    .fetch_optional(db)
    .await?)
}

/// Adds tags, aliases and latest versions to rows: one query per kind, whatever the number of rows.
///
/// # Errors
/// When the database fails.
pub async fn load_registered_models(db: &mut PgConnection, rows: Vec<ModelRow>) -> Result<Vec<RegisteredModel>> {
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut tags: HashMap<i64, Vec<KeyValue>> = HashMap::new();
    for row in sqlx::query!("SELECT model_id, key, value FROM registered_model_tags WHERE model_id = ANY($1) ORDER BY key", &ids)
        .fetch_all(&mut *db)
        .await?
    {
        tags.entry(row.model_id).or_default().push(KeyValue { key: row.key, value: row.value });
    }
    let mut aliases: HashMap<i64, Vec<(String, i32)>> = HashMap::new();
    for alias in model_alias::list_aliases(&mut *db, &ids).await? {
        aliases.entry(alias.model_id).or_default().push((alias.alias, alias.version));
    }
    let mut latest: HashMap<i64, Vec<_>> = HashMap::new();
    for (id, version) in model_version::list_latest_versions(db, &ids).await? {
        latest.entry(id).or_default().push(version);
    }
    Ok(rows
        .into_iter()
        .map(|row| RegisteredModel {
            tags: tags.remove(&row.id).unwrap_or_default(),
            aliases: aliases.remove(&row.id).unwrap_or_default(),
            latest_versions: latest.remove(&row.id).unwrap_or_default(),
            name: row.name,
            description: row.description,
            created_at: row.created_at,
            updated_at: row.updated_at,
        })
        .collect())
}

/// Writes the description.
///
/// # Errors
/// When the database fails.
pub async fn update_description(db: &mut PgConnection, id: i64, description: &str, at: DateTime<Utc>) -> Result<()> {
    sqlx::query!("UPDATE registered_models SET description = $2, updated_at = $3 WHERE id = $1", id, description, at).execute(db).await?;
    Ok(())
}

/// Gives a model another name.
///
/// # Errors
/// [`crate::Error::Unique`] when it is taken.
pub async fn update_name(db: &mut PgConnection, id: i64, name: &str, at: DateTime<Utc>) -> Result<()> {
    sqlx::query!("UPDATE registered_models SET name = $2, updated_at = $3 WHERE id = $1", id, name, at).execute(db).await?;
    Ok(())
}

/// Removes a model with its versions, tags and aliases.
///
/// # Errors
/// When the database fails.
pub async fn delete_registered_model(db: &mut PgConnection, id: i64) -> Result<()> {
    sqlx::query!("DELETE FROM registered_models WHERE id = $1", id).execute(db).await?;
    Ok(())
}

/// Whether a deployment of the model starts or serves.
///
/// # Errors
/// When the database fails.
pub async fn has_live_deployment(db: &mut PgConnection, name: &str) -> Result<bool> {
    Ok(sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM deployments WHERE model_name = $1 AND status IN ('starting', 'serving')) AS "exists!""#,
        name
    )
    .fetch_one(db)
    .await?)
}

/// Sets tags. Keys must differ.
///
/// # Errors
/// When the database fails.
pub async fn upsert_tags(db: &mut PgConnection, id: i64, tags: &[KeyValue]) -> Result<()> {
    let (keys, values) = columns(tags);
    sqlx::query!(
        "INSERT INTO registered_model_tags (model_id, key, value)
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

/// Removes a tag, if it is there.
///
/// # Errors
/// When the database fails.
pub async fn delete_tag(db: &mut PgConnection, id: i64, key: &str) -> Result<()> {
    sqlx::query!("DELETE FROM registered_model_tags WHERE model_id = $1 AND key = $2", id, key).execute(db).await?;
    Ok(())
}

/// The value of a tag.
///
/// # Errors
/// When the database fails.
pub async fn find_tag(db: &mut PgConnection, id: i64, key: &str) -> Result<Option<String>> {
    Ok(sqlx::query_scalar!("SELECT value FROM registered_model_tags WHERE model_id = $1 AND key = $2", id, key).fetch_optional(db).await?)
}
