//! Versions of registered models and their tags. Deleted versions keep their number and nothing else.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sluice_domain::{
    id::RunId,
    registry::{ModelVersion, Stage},
    tracking::KeyValue,
};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{Error, Result, columns, model_alias};

/// What a new version says.
#[derive(Debug, Clone, Copy)]
pub struct NewVersion<'a> {
    pub source: &'a str,
    pub storage_uri: &'a str,
    pub run_id: Option<RunId>,
    pub logged_model_id: Option<&'a str>,
    pub run_link: &'a str,
    pub description: &'a str,
    pub user_id: &'a str,
    pub pipeline_id: Option<i64>,
}

/// The row of a version with its model's name.
#[derive(Debug, Clone)]
pub struct VersionRow {
    pub model_id: i64,
    pub name: String,
    pub version: i32,
    pub source: String,
    pub storage_uri: String,
    pub run_id: Option<Uuid>,
    pub logged_model_id: Option<String>,
    pub run_link: String,
    pub description: String,
    pub user_id: String,
    pub stage: String,
    pub status: String,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// Takes the next number of a (locked) model and adds the version.
///
/// # Errors
/// [`Error::Unique`] when the pipeline has registered a version of this model already.
pub async fn insert_version(db: &mut PgConnection, model_id: i64, new: &NewVersion<'_>, at: DateTime<Utc>) -> Result<i32> {
    Ok(sqlx::query_scalar!(
        r#"WITH taken AS (
             UPDATE registered_models SET next_version = next_version + 1, updated_at = $2 WHERE id = $1 RETURNING next_version - 1 AS version
         )
         INSERT INTO model_versions (model_id, version, source, storage_uri, run_id, logged_model_id, run_link, description, user_id,
                                     pipeline_id, created_at, updated_at)
         SELECT $1, version, $3, $4, $5, $6, $7, $8, $9, $10, $2, $2 FROM taken
         RETURNING version"#,
        model_id,
        at,
        new.source,
        new.storage_uri,
        new.run_id.map(|id| id.0),
        new.logged_model_id,
        new.run_link,
        new.description,
        new.user_id,
        new.pipeline_id
    )
    .fetch_one(db)
    .await?)
}

/// The version that a pipeline registered.
///
/// # Errors
/// When the database fails.
pub async fn find_version_of_pipeline(db: &mut PgConnection, model_id: i64, pipeline_id: i64) -> Result<Option<i32>> {
    Ok(sqlx::query_scalar!("SELECT version FROM model_versions WHERE model_id = $1 AND pipeline_id = $2", model_id, pipeline_id)
        .fetch_optional(db)
        .await?)
}

/// A live version's row.
///
/// # Errors
/// When the database fails.
pub async fn find_version(db: &mut PgConnection, name: &str, version: i32) -> Result<Option<VersionRow>> {
    Ok(sqlx::query_as!(
        VersionRow,
        "SELECT v.model_id, m.name, v.version, v.source, v.storage_uri, v.run_id, v.logged_model_id, v.run_link, v.description, v.user_id,
                v.stage, v.status, v.created_at, v.updated_at
         FROM model_versions v JOIN registered_models m ON m.id = v.model_id
         WHERE m.name = $1 AND v.version = $2 AND v.deleted_at IS NULL",
        name,
        version
    )
    .fetch_optional(db)
    .await?)
}

/// The number of the highest live version.
///
/// # Errors
/// When the database fails.
pub async fn find_highest_version(db: &mut PgConnection, name: &str) -> Result<Option<i32>> {
    Ok(sqlx::query_scalar!(
        "SELECT v.version FROM model_versions v JOIN registered_models m ON m.id = v.model_id
         WHERE m.name = $1 AND v.deleted_at IS NULL ORDER BY v.version DESC LIMIT 1",
        name
    )
    .fetch_optional(db)
    .await?)
}

/// The highest live version of each stage of each model, with tags and without aliases.
///
/// # Errors
/// When the database fails.
pub async fn list_latest_versions(db: &mut PgConnection, model_ids: &[i64]) -> Result<Vec<(i64, ModelVersion)>> {
    let rows = sqlx::query_as!(
        VersionRow,
        "SELECT DISTINCT ON (v.model_id, v.stage) v.model_id, m.name, v.version, v.source, v.storage_uri, v.run_id, v.logged_model_id,
                v.run_link, v.description, v.user_id, v.stage, v.status, v.created_at, v.updated_at
         FROM model_versions v JOIN registered_models m ON m.id = v.model_id
         WHERE v.model_id = ANY($1) AND v.deleted_at IS NULL
         ORDER BY v.model_id, v.stage, v.version DESC",
        model_ids
    )
    .fetch_all(&mut *db)
    .await?;
    let ids: Vec<i64> = rows.iter().map(|row| row.model_id).collect();
    Ok(ids.into_iter().zip(load_versions(db, rows, false).await?).collect())
}

/// Adds tags, and aliases when asked, to rows: one query per kind, whatever the number of rows.
///
/// # Errors
/// When the database fails.
pub async fn load_versions(db: &mut PgConnection, rows: Vec<VersionRow>, with_aliases: bool) -> Result<Vec<ModelVersion>> {
    let ids: Vec<i64> = rows.iter().map(|row| row.model_id).collect();
    let numbers: Vec<i32> = rows.iter().map(|row| row.version).collect();
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut tags: HashMap<(i64, i32), Vec<KeyValue>> = HashMap::new();
    for row in sqlx::query!(
        "SELECT t.model_id, t.version, t.key, t.value FROM model_version_tags t
         JOIN UNNEST($1::bigint[], $2::integer[]) AS v(model_id, version) ON v.model_id = t.model_id AND v.version = t.version
         ORDER BY t.key",
        &ids,
        &numbers
    )
    .fetch_all(&mut *db)
    .await?
    {
        tags.entry((row.model_id, row.version)).or_default().push(KeyValue { key: row.key, value: row.value });
    }
    let mut aliases: HashMap<(i64, i32), Vec<String>> = HashMap::new();
    if with_aliases {
        for alias in model_alias::list_aliases(db, &ids).await? {
            aliases.entry((alias.model_id, alias.version)).or_default().push(alias.alias);
        }
    }
    rows.into_iter()
        .map(|row| {
            let key = (row.model_id, row.version);
            Ok(ModelVersion {
                tags: tags.remove(&key).unwrap_or_default(),
                aliases: aliases.remove(&key).unwrap_or_default(),
                stage: row.stage.parse::<Stage>().map_err(|message| Error::Malformed { what: "model version stage", message })?,
                name: row.name,
                version: row.version,
                source: row.source,
                storage_uri: row.storage_uri,
                run_id: row.run_id.map(RunId),
                logged_model_id: row.logged_model_id,
                run_link: row.run_link,
                description: row.description,
                user_id: row.user_id,
                status: row.status,
                created_at: row.created_at,
                updated_at: row.updated_at,
            })
        })
        .collect()
}

/// Writes the description.
///
/// # Errors
/// When the database fails.
pub async fn update_description(db: &mut PgConnection, model_id: i64, version: i32, description: &str, at: DateTime<Utc>) -> Result<()> {
    sqlx::query!(
        "UPDATE model_versions SET description = $3, updated_at = $4 WHERE model_id = $1 AND version = $2",
        model_id,
        version,
        description,
        at
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Moves a version to a stage; with `archive_others`, the others of that stage to `Archived`.
///
/// # Errors
/// When the database fails.
pub async fn update_stage(
    db: &mut PgConnection,
    model_id: i64,
    version: i32,
    stage: Stage,
    archive_others: bool,
    at: DateTime<Utc>,
) -> Result<()> {
    if archive_others {
        sqlx::query!(
            "UPDATE model_versions SET stage = 'Archived', updated_at = $4
             WHERE model_id = $1 AND version <> $2 AND stage = $3 AND deleted_at IS NULL",
            model_id,
            version,
            stage.as_str(),
            at
        )
        .execute(&mut *db)
        .await?;
    }
    sqlx::query!(
        "UPDATE model_versions SET stage = $3, updated_at = $4 WHERE model_id = $1 AND version = $2",
        model_id,
        version,
        stage.as_str(),
        at
    )
    .execute(&mut *db)
    .await?;
    sqlx::query!("UPDATE registered_models SET updated_at = $2 WHERE id = $1", model_id, at).execute(db).await?;
    Ok(())
}

/// Hides a version for good: only its number (and the pipeline that made it) stays. Its aliases must have
/// been taken away before.
///
/// # Errors
/// When the database fails.
pub async fn delete_version(db: &mut PgConnection, model_id: i64, version: i32, at: DateTime<Utc>) -> Result<()> {
    sqlx::query!("DELETE FROM model_version_tags WHERE model_id = $1 AND version = $2", model_id, version).execute(&mut *db).await?;
    sqlx::query!(
        "UPDATE model_versions SET source = '', storage_uri = '', run_id = NULL, logged_model_id = NULL, run_link = '', description = '',
                user_id = '', deleted_at = $3, updated_at = $3
         WHERE model_id = $1 AND version = $2",
        model_id,
        version,
        at
    )
    .execute(&mut *db)
    .await?;
    sqlx::query!("UPDATE registered_models SET updated_at = $2 WHERE id = $1", model_id, at).execute(db).await?;
    Ok(())
}

/// Sets tags. Keys must differ.
///
/// # Errors
/// When the database fails.
pub async fn upsert_tags(db: &mut PgConnection, model_id: i64, version: i32, tags: &[KeyValue]) -> Result<()> {
    let (keys, values) = columns(tags);
    sqlx::query!(
        "INSERT INTO model_version_tags (model_id, version, key, value)
         SELECT $1, $2, key, value FROM UNNEST($3::text[], $4::text[]) AS t(key, value)
         ON CONFLICT (model_id, version, key) DO UPDATE SET value = EXCLUDED.value",
        model_id,
        version,
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
pub async fn delete_tag(db: &mut PgConnection, model_id: i64, version: i32, key: &str) -> Result<()> {
    sqlx::query!("DELETE FROM model_version_tags WHERE model_id = $1 AND version = $2 AND key = $3", model_id, version, key)
        .execute(db)
        .await?;
    Ok(())
}
