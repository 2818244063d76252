//! Experiments and their tags.

use chrono::{DateTime, Utc};
use sluice_domain::tracking::{Experiment, KeyValue};
use sqlx::PgConnection;

use crate::{Error, Result, parse};

struct ExperimentRow {
    id: i32,
    name: String,
    artifact_location: String,
    lifecycle: String,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl ExperimentRow {
    fn with_tags(self, tags: Vec<KeyValue>) -> Result<Experiment> {
        Ok(Experiment {
            id: self.id,
            name: self.name,
            artifact_location: self.artifact_location,
            lifecycle: parse("experiment lifecycle", &self.lifecycle)?,
            created_at: self.created_at,
            updated_at: self.updated_at,
            tags,
        })
    }
}

/// Adds an experiment; without a location it gets `mlflow-artifacts:/ID`.
///
/// # Errors
/// [`Error::Unique`] when the name is taken, also by a deleted experiment.
pub async fn insert_experiment(db: &mut PgConnection, name: &str, artifact_location: Option<&str>, at: DateTime<Utc>) -> Result<i32> {
    Ok(sqlx::query_scalar!(
        "WITH new AS (SELECT nextval(pg_get_serial_sequence('experiments', 'id'))::integer AS id)
         INSERT INTO experiments (id, name, artifact_location, created_at, updated_at)
         SELECT id, $1, COALESCE($2, 'mlflow-artifacts:/' || id), $3, $3 FROM new
         RETURNING id",
        name,
        artifact_location,
        at
    )
    .fetch_one(db)
    .await?)
}

/// An experiment by id, deleted or not.
///
/// # Errors
/// When the database fails.
pub async fn find_experiment(db: &mut PgConnection, id: i32) -> Result<Option<Experiment>> {
    let row = sqlx::query_as!(
        ExperimentRow,
        "SELECT id, name, artifact_location, lifecycle, created_at, updated_at FROM experiments WHERE id = $1",
        id
    )
    .fetch_optional(&mut *db)
    .await?;
    Ok(load_experiments(db, row.into_iter().collect()).await?.pop())
}

/// An experiment by name, deleted or not.
///
/// # Errors
/// When the database fails.
pub async fn find_experiment_by_name(db: &mut PgConnection, name: &str) -> Result<Option<Experiment>> {
    let row = sqlx::query_as!(
        ExperimentRow,
        "SELECT id, name, artifact_location, lifecycle, created_at, updated_at FROM experiments WHERE name = $1",
        name
    )
    .fetch_optional(&mut *db)
    .await?;
    Ok(load_experiments(db, row.into_iter().collect()).await?.pop())
}

/// Experiments by id, in the order of `ids`; unknown ids are left out.
///
/// # Errors
/// When the database fails.
pub async fn list_experiments_by_id(db: &mut PgConnection, ids: &[i32]) -> Result<Vec<Experiment>> {
    let rows = sqlx::query_as!(
        ExperimentRow,
        "SELECT id, name, artifact_location, lifecycle, created_at, updated_at FROM experiments
         WHERE id = ANY($1) ORDER BY array_position($1, id)",
        ids
    )
    .fetch_all(&mut *db)
    .await?;
    load_experiments(db, rows).await
}

async fn load_experiments(db: &mut PgConnection, rows: Vec<ExperimentRow>) -> Result<Vec<Experiment>> {
    let ids: Vec<i32> = rows.iter().map(|row| row.id).collect();
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut tags: std::collections::HashMap<i32, Vec<KeyValue>> = std::collections::HashMap::new();
    for tag in sqlx::query!("SELECT experiment_id, key, value FROM experiment_tags WHERE experiment_id = ANY($1) ORDER BY key", &ids)
        .fetch_all(db)
        .await?
    {
        tags.entry(tag.experiment_id).or_default().push(KeyValue { key: tag.key, value: tag.value });
    }
    rows.into_iter()
        .map(|row| {
            let tags = tags.remove(&row.id).unwrap_or_default();
            row.with_tags(tags)
        })
        .collect()
}

/// Locks the experiment against changes by others and says whether it is active; `None`: there is none.
///
/// # Errors
/// When the database fails.
pub async fn lock_experiment(db: &mut PgConnection, id: i32) -> Result<Option<bool>> {
    Ok(sqlx::query_scalar!(r#"SELECT lifecycle = 'active' AS "active!" FROM experiments WHERE id = $1 FOR NO KEY UPDATE"#, id)
        .fetch_optional(db)
        .await?)
}

/// Renames an experiment.
///
/// # Errors
/// [`Error::Unique`] when the name is taken.
pub async fn update_experiment_name(db: &mut PgConnection, id: i32, name: &str, at: DateTime<Utc>) -> Result<()> {
    sqlx::query!("UPDATE experiments SET name = $2, updated_at = $3 WHERE id = $1", id, name, at).execute(db).await?;
    Ok(())
}

/// Soft-deletes or restores an experiment with all of its runs.
///
/// # Errors
/// When the database fails.
pub async fn update_experiment_lifecycle(db: &mut PgConnection, id: i32, active: bool, at: DateTime<Utc>) -> Result<()> {
    let lifecycle = if active { "active" } else { "deleted" };
    sqlx::query!("UPDATE experiments SET lifecycle = $2, updated_at = $3 WHERE id = $1", id, lifecycle, at).execute(&mut *db).await?;
    let deleted_at = (!active).then_some(at);
    sqlx::query!("UPDATE runs SET lifecycle = $2, deleted_at = $3 WHERE experiment_id = $1 AND lifecycle <> $2", id, lifecycle, deleted_at)
        .execute(db)
        .await?;
    Ok(())
}

/// Sets tags of an experiment. Keys must differ.
///
/// # Errors
/// When the database fails.
pub async fn upsert_experiment_tags(db: &mut PgConnection, id: i32, tags: &[KeyValue]) -> Result<()> {
    let (keys, values) = crate::columns(tags);
    sqlx::query!(
        "INSERT INTO experiment_tags (experiment_id, key, value)
         SELECT $1, key, value FROM UNNEST($2::text[], $3::text[]) AS t(key, value)
         ON CONFLICT (experiment_id, key) DO UPDATE SET value = EXCLUDED.value",
        id,
        &keys,
        &values
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Removes a tag of an experiment.
///
/// # Errors
/// [`Error::NotFound`] when it has no such tag.
pub async fn delete_experiment_tag(db: &mut PgConnection, id: i32, key: &str) -> Result<()> {
    let result = sqlx::query!("DELETE FROM experiment_tags WHERE experiment_id = $1 AND key = $2", id, key).execute(db).await?;
    if result.rows_affected() == 0 {
        return Err(Error::NotFound { kind: "tag", key: key.to_owned() });
    }
    Ok(())
}
