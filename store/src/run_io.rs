//! What runs read and made: datasets and logged models. `run` reads them with the run.

use sluice_domain::{id::RunId, tracking::DatasetInput};
use sqlx::PgConnection;

use crate::Result;

/// Notes that a run read a dataset. A dataset that the experiment knows by name and digest stays as it is, and
/// so does an input that was noted before.
///
/// # Errors
/// When the database fails.
pub async fn insert_dataset_input(db: &mut PgConnection, run_id: RunId, experiment_id: i32, input: &DatasetInput) -> Result<()> {
    sqlx::query!(
        "INSERT INTO datasets (experiment_id, name, digest, source_type, source, schema, profile)
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (experiment_id, name, digest) DO NOTHING",
        experiment_id,
        input.name,
        input.digest,
        input.source_type,
        input.source,
        input.schema,
        input.profile
    )
    .execute(&mut *db)
    .await?;
    let tags: serde_json::Value =
        input.tags.iter().map(|tag| serde_json::json!({ "key": tag.key, "value": tag.value })).collect::<Vec<_>>().into();
    sqlx::query!(
        "INSERT INTO run_datasets (run_id, dataset_id, tags)
         SELECT $1, id, $5 FROM datasets WHERE experiment_id = $2 AND name = $3 AND digest = $4
         ON CONFLICT (run_id, dataset_id) DO NOTHING",
        run_id.0,
        experiment_id,
        input.name,
        input.digest,
        tags
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Notes that a run read logged models; repeating it changes nothing. Returns the ids that do not exist.
///
/// # Errors
/// When the database fails.
pub async fn insert_model_inputs(db: &mut PgConnection, run_id: RunId, model_ids: &[String]) -> Result<Vec<String>> {
    insert_run_models(db, run_id, "input", model_ids, &vec![0; model_ids.len()]).await
}

/// Notes that a run made logged models, each at a step. The latest step given for a model stays. Returns the
/// ids that do not exist.
///
/// # Errors
/// When the database fails.
pub async fn insert_model_outputs(db: &mut PgConnection, run_id: RunId, model_ids: &[String], steps: &[i64]) -> Result<Vec<String>> {
    insert_run_models(db, run_id, "output", model_ids, steps).await
}

async fn insert_run_models(
    db: &mut PgConnection,
    run_id: RunId,
    direction: &str,
    model_ids: &[String],
    steps: &[i64],
) -> Result<Vec<String>> {
    let unknown = sqlx::query_scalar!(
        r#"SELECT t.id AS "id!" FROM UNNEST($1::text[]) AS t(id)
           WHERE NOT EXISTS (SELECT FROM logged_models m WHERE m.id = t.id AND m.lifecycle = 'active')"#,
        model_ids
    )
    .fetch_all(&mut *db)
    .await?;
    if !unknown.is_empty() {
        return Ok(unknown);
    }
    sqlx::query!(
        "INSERT INTO run_models (run_id, model_id, direction, step)
         SELECT $1, id, $2, max(step) FROM UNNEST($3::text[], $4::bigint[]) AS t(id, step) GROUP BY id ORDER BY id
         ON CONFLICT (run_id, model_id, direction) DO UPDATE SET step = EXCLUDED.step",
        run_id.0,
        direction,
        model_ids,
        steps
    )
    .execute(db)
    .await?;
    Ok(Vec::new())
}

/// A dataset as experiments list it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetSummary {
    pub experiment_id: i32,
    pub name: String,
    pub digest: String,
    /// Value of the input tag `mlflow.data.context`.
    pub context: Option<String>,
}

/// The distinct datasets that runs of experiments read, at most 1000.
///
/// # Errors
/// When the database fails.
pub async fn list_dataset_summaries(db: &mut PgConnection, experiment_ids: &[i32]) -> Result<Vec<DatasetSummary>> {
    Ok(sqlx::query_as!(
        DatasetSummary,
        r#"SELECT DISTINCT d.experiment_id, d.name, d.digest,
                  (SELECT t ->> 'value' FROM jsonb_array_elements(r.tags) t WHERE t ->> 'key' = 'mlflow.data.context' LIMIT 1) AS context
           FROM datasets d JOIN run_datasets r ON r.dataset_id = d.id JOIN runs u ON u.id = r.run_id
           WHERE d.experiment_id = ANY($1) AND u.lifecycle = 'active'
           ORDER BY d.experiment_id, d.name, d.digest, context LIMIT 1000"#,
        experiment_ids
    )
    .fetch_all(db)
    .await?)
}
