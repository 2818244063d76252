//! What runs read and made: datasets and logged models.

use std::collections::HashSet;

use sluice_domain::{
    id::RunId,
    key::MAX_KEY_CHARS,
    state::Lifecycle,
    tracking::{DatasetInput, ModelOutput, RunInfo},
};
use sluice_store::{
    run,
    run_io::{self, DatasetSummary},
};

use crate::{
    App, Error, Result,
    change::{Caller, Change},
    registry::check_length,
};

/// Most datasets or models in one request.
const MAX_ITEMS: usize = 1000;

/// Notes which datasets and logged models a run read. What was noted before stays as it is.
///
/// # Errors
/// When the run does not exist or is deleted, a model does not exist, or a dataset breaks a limit.
pub async fn log_inputs(app: &App, caller: &Caller, run_id: RunId, datasets: &[DatasetInput], models: &[String]) -> Result<()> {
    check_count("datasets", datasets.len())?;
    check_count("models", models.len())?;
    for dataset in datasets {
        check_dataset(dataset)?;
    }
    let mut change = Change::begin(app, caller).await?;
    let run = lock_active_run(&mut change, run_id).await?;
    let mut seen = HashSet::new();
    for dataset in datasets {
        if seen.insert((&dataset.name, &dataset.digest)) {
            run_io::insert_dataset_input(change.db(), run_id, run.experiment_id, dataset).await?;
        }
    }
    known(run_io::insert_model_inputs(change.db(), run_id, models).await?)?;
    change.notify(&format!("run:{run_id}")).await?;
    change.commit().await
}

/// Notes which logged models a run made, each at a step.
///
/// # Errors
/// When the run does not exist or is deleted, or a model does not exist.
pub async fn log_outputs(app: &App, caller: &Caller, run_id: RunId, models: &[ModelOutput]) -> Result<()> {
    check_count("models", models.len())?;
    let mut change = Change::begin(app, caller).await?;
    lock_active_run(&mut change, run_id).await?;
    let ids: Vec<String> = models.iter().map(|model| model.model_id.clone()).collect();
    let steps: Vec<i64> = models.iter().map(|model| model.step).collect();
    known(run_io::insert_model_outputs(change.db(), run_id, &ids, &steps).await?)?;
    change.notify(&format!("run:{run_id}")).await?;
    change.commit().await
}

/// The distinct datasets of experiments.
///
/// # Errors
/// When more than 20 experiments are asked for.
pub async fn list_datasets(app: &App, experiment_ids: &[i32]) -> Result<Vec<DatasetSummary>> {
    if experiment_ids.len() > 20 {
        return Err(Error::invalid("experiment_ids", "SearchDatasets request must specify at most 20 experiment_ids."));
    }
    let mut db = app.connection().await?;
    Ok(run_io::list_dataset_summaries(&mut db, experiment_ids).await?)
}

/// Locks the run, checks that it is active, and that a calling job may write to it.
async fn lock_active_run(change: &mut Change, run_id: RunId) -> Result<RunInfo> {
    let run = run::lock_run(change.db(), run_id).await?.ok_or_else(|| Error::NotFound(format!("Run with id={run_id} not found")))?;
    if run.lifecycle != Lifecycle::Active {
        let message = format!("The run {run_id} must be in the 'active' state. Current state is deleted.");
        return Err(Error::invalid("run_id", message));
    }
    if let Some(fenced) = change.fenced.clone() {
        fenced.may_write(change.db(), run_id).await?;
    }
    Ok(run)
}

fn known(unknown: Vec<String>) -> Result<()> {
    match unknown.first() {
        None => Ok(()),
        Some(id) => Err(Error::NotFound(format!("Logged model with ID '{id}' not found."))),
    }
}

fn check_count(field: &str, count: usize) -> Result<()> {
    if count > MAX_ITEMS {
        return Err(Error::invalid(field, format!("A request can contain at most {MAX_ITEMS} {field}. Got {count} {field}.")));
    }
    Ok(())
}

fn check_dataset(dataset: &DatasetInput) -> Result<()> {
    check_length("name", &dataset.name, 500)?;
    check_length("digest", &dataset.digest, 36)?;
    check_length("source_type", &dataset.source_type, 500)?;
    check_length("source", &dataset.source, 65_535)?;
    check_length("schema", dataset.schema.as_deref().unwrap_or_default(), 1_048_575)?;
    check_length("profile", dataset.profile.as_deref().unwrap_or_default(), 16_777_215)?;
    for tag in &dataset.tags {
        check_length("key", &tag.key, MAX_KEY_CHARS + 5)?;
        check_length("value", &tag.value, 500)?;
    }
    Ok(())
}
