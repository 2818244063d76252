//! Runs, their tags and params.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sluice_domain::{
    id::RunId,
    state::{Lifecycle, RunStatus},
    tracking::{DatasetInput, KeyValue, MetricSummary, ModelOutput, Run, RunInfo},
};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{Error, Result, columns, parse};

pub(crate) struct RunRow {
    pub id: Uuid,
    pub experiment_id: i32,
    pub name: String,
    pub user_id: String,
    pub status: String,
    pub start_time_ms: i64,
    pub end_time_ms: Option<i64>,
    pub artifact_uri: String,
    pub lifecycle: String,
}

impl TryFrom<RunRow> for RunInfo {
    type Error = Error;

    fn try_from(row: RunRow) -> Result<Self> {
        Ok(Self {
            id: RunId(row.id),
            experiment_id: row.experiment_id,
            name: row.name,
            user_id: row.user_id,
            status: parse("run status", &row.status)?,
            start_time_ms: row.start_time_ms,
            end_time_ms: row.end_time_ms,
            artifact_uri: row.artifact_uri,
            lifecycle: parse("run lifecycle", &row.lifecycle)?,
        })
    }
}

/// Adds a run.
///
/// # Errors
/// [`Error::ForeignKey`] when the experiment does not exist.
pub async fn insert_run(db: &mut PgConnection, run: &RunInfo, at: DateTime<Utc>) -> Result<()> {
    sqlx::query!(
        "INSERT INTO runs (id, experiment_id, name, user_id, status, start_time_ms, end_time_ms, artifact_uri, lifecycle, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        run.id.0,
        run.experiment_id,
        run.name,
        run.user_id,
        run.status.as_str(),
        run.start_time_ms,
        run.end_time_ms,
        run.artifact_uri,
        run.lifecycle.as_str(),
        at
    )
    .execute(db)
    .await?;
    Ok(())
}

/// A run's own row, deleted or not.
///
/// # Errors
/// When the database fails.
pub async fn find_run_info(db: &mut PgConnection, id: RunId) -> Result<Option<RunInfo>> {
    sqlx::query_as!(
        RunRow,
        "SELECT id, experiment_id, name, user_id, status, start_time_ms, end_time_ms, artifact_uri, lifecycle FROM runs WHERE id = $1",
        id.0
    )
    .fetch_optional(db)
    .await?
    .map(RunInfo::try_from)
    .transpose()
}

/// The same, locked against changes by others until the transaction ends.
///
/// # Errors
/// When the database fails.
pub async fn lock_run(db: &mut PgConnection, id: RunId) -> Result<Option<RunInfo>> {
    sqlx::query_as!(
        RunRow,
        "SELECT id, experiment_id, name, user_id, status, start_time_ms, end_time_ms, artifact_uri, lifecycle FROM runs WHERE id = $1
         FOR NO KEY UPDATE",
        id.0
    )
    .fetch_optional(db)
    .await?
    .map(RunInfo::try_from)
    .transpose()
}

/// Writes name, status and end time of a run.
///
/// # Errors
/// When the database fails.
pub async fn update_run(db: &mut PgConnection, id: RunId, name: &str, status: RunStatus, end_time_ms: Option<i64>) -> Result<()> {
    sqlx::query!("UPDATE runs SET name = $2, status = $3, end_time_ms = $4 WHERE id = $1", id.0, name, status.as_str(), end_time_ms)
        .execute(db)
        .await?;
    Ok(())
}

/// Soft-deletes or restores a run.
///
/// # Errors
/// When the database fails.
pub async fn update_run_lifecycle(db: &mut PgConnection, id: RunId, lifecycle: Lifecycle, deleted_at: Option<DateTime<Utc>>) -> Result<()> {
    sqlx::query!("UPDATE runs SET lifecycle = $2, deleted_at = $3 WHERE id = $1", id.0, lifecycle.as_str(), deleted_at).execute(db).await?;
    Ok(())
}

/// Sets tags of a run. Keys must differ and be sorted, so that writers lock rows in one order.
///
/// # Errors
/// When the database fails.
pub async fn upsert_run_tags(db: &mut PgConnection, id: RunId, tags: &[KeyValue]) -> Result<()> {
    let (keys, values) = columns(tags);
    sqlx::query!(
        "INSERT INTO run_tags (run_id, key, value)
         SELECT $1, key, value FROM UNNEST($2::text[], $3::text[]) AS t(key, value)
         ON CONFLICT (run_id, key) DO UPDATE SET value = EXCLUDED.value WHERE run_tags.value <> EXCLUDED.value",
        id.0,
        &keys,
        &values
    )
    .execute(db)
    .await?;
    Ok(())
}

/// The value of a run's tag.
///
/// # Errors
/// When the database fails.
pub async fn find_run_tag(db: &mut PgConnection, id: RunId, key: &str) -> Result<Option<String>> {
    Ok(sqlx::query_scalar!("SELECT value FROM run_tags WHERE run_id = $1 AND key = $2", id.0, key).fetch_optional(db).await?)
}

/// Removes a tag of a run.
///
/// # Errors
/// [`Error::NotFound`] when it has no such tag.
pub async fn delete_run_tag(db: &mut PgConnection, id: RunId, key: &str) -> Result<()> {
    let result = sqlx::query!("DELETE FROM run_tags WHERE run_id = $1 AND key = $2", id.0, key).execute(db).await?;
    if result.rows_affected() == 0 {
        return Err(Error::NotFound { kind: "tag", key: key.to_owned() });
    }
    Ok(())
}

/// Adds params that are not there yet and returns those that were there with another value, as stored.
/// Keys must differ and be sorted.
///
/// # Errors
/// When the database fails.
pub async fn insert_run_params(db: &mut PgConnection, id: RunId, params: &[KeyValue]) -> Result<Vec<KeyValue>> {
    let (keys, values) = columns(params);
    let added = sqlx::query!(
        "INSERT INTO run_params (run_id, key, value)
         SELECT $1, key, value FROM UNNEST($2::text[], $3::text[]) AS t(key, value)
         ON CONFLICT (run_id, key) DO NOTHING",
        id.0,
        &keys,
        &values
    )
    .execute(&mut *db)
    .await?
    .rows_affected();
    if added == params.len() as u64 {
        return Ok(Vec::new());
    }
    // A statement of its own, so that it also sees what another transaction committed meanwhile.
    Ok(sqlx::query_as!(
        KeyValue,
        "SELECT p.key, p.value FROM run_params p JOIN UNNEST($2::text[], $3::text[]) AS t(key, value) ON t.key = p.key
         WHERE p.run_id = $1 AND p.value <> t.value ORDER BY p.key",
        id.0,
        &keys,
        &values
    )
    .fetch_all(db)
    .await?)
}

/// Overwrites params that exist.
///
/// # Errors
/// When the database fails.
pub async fn update_run_params(db: &mut PgConnection, id: RunId, params: &[KeyValue]) -> Result<()> {
    let (keys, values) = columns(params);
    sqlx::query!(
        "UPDATE run_params p SET value = t.value FROM UNNEST($2::text[], $3::text[]) AS t(key, value)
         WHERE p.run_id = $1 AND p.key = t.key",
        id.0,
        &keys,
        &values
    )
    .execute(db)
    .await?;
    Ok(())
}

/// A run with everything that was logged to it, deleted or not.
///
/// # Errors
/// When the database fails.
pub async fn find_run(db: &mut PgConnection, id: RunId) -> Result<Option<Run>> {
    let Some(info) = find_run_info(&mut *db, id).await? else { return Ok(None) };
    Ok(load_runs(db, vec![info]).await?.pop())
}

/// Adds what was logged to runs: one query per kind, whatever the number of runs.
///
/// # Errors
/// When the database fails.
pub async fn load_runs(db: &mut PgConnection, infos: Vec<RunInfo>) -> Result<Vec<Run>> {
    let ids: Vec<Uuid> = infos.iter().map(|info| info.id.0).collect();
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut runs: Vec<Run> = infos
        .into_iter()
        .map(|info| Run {
            info,
            metrics: Vec::new(),
            params: Vec::new(),
            tags: Vec::new(),
            datasets: Vec::new(),
            model_inputs: Vec::new(),
            model_outputs: Vec::new(),
        })
        .collect();
    let at: HashMap<Uuid, usize> = ids.iter().enumerate().map(|(i, id)| (*id, i)).collect();

    for row in sqlx::query!("SELECT run_id, key, value FROM run_tags WHERE run_id = ANY($1) ORDER BY run_id, key", &ids)
        .fetch_all(&mut *db)
        .await?
    {
        runs[at[&row.run_id]].tags.push(KeyValue { key: row.key, value: row.value });
    }
    for row in sqlx::query!("SELECT run_id, key, value FROM run_params WHERE run_id = ANY($1) ORDER BY run_id, key", &ids)
        .fetch_all(&mut *db)
        .await?
    {
        runs[at[&row.run_id]].params.push(KeyValue { key: row.key, value: row.value });
    }
    for row in sqlx::query!(
        "SELECT run_id, key, last_step, last_timestamp_ms, last_value, min_value, max_value, point_count
         FROM metric_series WHERE run_id = ANY($1) ORDER BY run_id, key",
        &ids
    )
    .fetch_all(&mut *db)
    .await?
    {
        runs[at[&row.run_id]].metrics.push(MetricSummary {
            key: row.key,
            value: row.last_value,
            timestamp_ms: row.last_timestamp_ms,
            step: row.last_step,
            min: row.min_value,
            max: row.max_value,
            count: row.point_count,
        });
    }
    for row in sqlx::query!(
        "SELECT r.run_id, r.tags, d.name, d.digest, d.source_type, d.source, d.schema, d.profile
         FROM run_datasets r JOIN datasets d ON d.id = r.dataset_id WHERE r.run_id = ANY($1) ORDER BY r.run_id, d.id",
        &ids
    )
    .fetch_all(&mut *db)
    .await?
    {
        runs[at[&row.run_id]].datasets.push(DatasetInput {
            name: row.name,
            digest: row.digest,
            source_type: row.source_type,
            source: row.source,
            schema: row.schema,
            profile: row.profile,
            tags: dataset_tags(&row.tags)?,
        });
    }
    for row in sqlx::query!(
        "SELECT run_id, model_id, direction, step FROM run_models WHERE run_id = ANY($1) ORDER BY run_id, step, model_id",
        &ids
    )
    .fetch_all(db)
    .await?
    {
        let run = &mut runs[at[&row.run_id]];
        match row.direction.as_str() {
            "input" => run.model_inputs.push(row.model_id),
            _ => run.model_outputs.push(ModelOutput { model_id: row.model_id, step: row.step }),
        }
    }
    Ok(runs)
}

/// Reads `[{"key": …, "value": …}]`.
fn dataset_tags(json: &serde_json::Value) -> Result<Vec<KeyValue>> {
    let malformed = || Error::Malformed { what: "tags of a dataset input", message: json.to_string() };
    json.as_array()
        .ok_or_else(malformed)?
        .iter()
        .map(|tag| match (tag.get("key").and_then(|key| key.as_str()), tag.get("value").and_then(|value| value.as_str())) {
            (Some(key), Some(value)) => Ok(KeyValue { key: key.to_owned(), value: value.to_owned() }),
            _ => Err(malformed()),
        })
        .collect()
}
