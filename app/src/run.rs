//! Runs: create, read, update, delete, restore, tag.

use serde_json::json;
use sluice_domain::{
    id::RunId,
    key::random_name,
    state::{Lifecycle, RunStatus},
    tracking::{JOB_TAG, KeyValue, RUN_NAME_TAG, Run, RunInfo},
};
use sluice_store::{PgConnection, audit::insert_audit, experiment::find_experiment, notify::notify, run as store};

pub use crate::run_search::{RunSearch, count_runs, search_runs};
use crate::{
    Actor, App, Error, Result,
    context::commit,
    experiment::require_active,
    fence,
    tracking::{experiment_not_found, parse_experiment_id, parse_run_id, run_not_found, run_tags, too_long, validate_key},
};

const MAX_NAME_CHARS: usize = 250;

/// A run to be made.
#[derive(Debug, Clone, Default)]
pub struct NewRun {
    pub user_id: String,
    /// Empty: the name in the tag `mlflow.runName`, or else a random one.
    pub name: String,
    /// `None`: now.
    pub start_time_ms: Option<i64>,
    pub tags: Vec<KeyValue>,
}

/// Creates a running run. A job's run is marked as that job's.
///
/// # Errors
/// [`Error::NotFound`] or [`Error::Invalid`] when the experiment does not exist or is deleted.
pub async fn create_run(app: &App, token: Option<&str>, experiment_id: &str, new: NewRun) -> Result<Run> {
    let number = parse_experiment_id(experiment_id)?;
    let mut tx = app.begin().await?;
    let fenced = fence::check(&mut tx, &*app.clock, token).await?;
    let job = fenced.map(|fenced| fenced.job_id);
    let id = create_run_in(&mut tx, app, number, new, job).await?;
    let run = store::find_run(&mut tx, id).await?.ok_or_else(|| run_not_found(id))?;
    commit(tx).await?;
    Ok(run)
}

/// Creates a running run in a transaction of the caller's. `job`: the job that makes it beside its own.
///
/// # Errors
/// As [`create_run`].
pub async fn create_run_in(tx: &mut PgConnection, app: &App, experiment_id: i32, new: NewRun, job: Option<i64>) -> Result<RunId> {
    let mut tags = run_tags(new.tags)?;
    let tag_name = tags.iter().find(|tag| tag.key == RUN_NAME_TAG).map(|tag| tag.value.clone()).filter(|name| !name.is_empty());
    let name = match (new.name.is_empty(), tag_name) {
        (false, Some(tag)) if tag != new.name => {
            return Err(Error::invalid(
                "run_name",
                format!(
                    "Both 'run_name' argument and 'mlflow.runName' tag are specified, but with different values (run_name='{}', mlflow.runName='{tag}').",
                    new.name
                ),
            ));
        }
        (false, _) => new.name,
        (true, Some(tag)) => tag,
        (true, None) => random_name(&mut rand::rng()),
    };
    validate_name(&name)?;
    tags.retain(|tag| tag.key != RUN_NAME_TAG && (job.is_none() || tag.key != JOB_TAG));
    tags.push(KeyValue { key: RUN_NAME_TAG.to_owned(), value: name.clone() });
    tags.extend(job.map(|job| KeyValue { key: JOB_TAG.to_owned(), value: job.to_string() }));

    let experiment = find_experiment(&mut *tx, experiment_id).await?.ok_or_else(|| experiment_not_found(experiment_id))?;
    require_active(&mut *tx, experiment_id, &experiment_id.to_string()).await?;
    let id = RunId::random();
    let info = RunInfo {
        id,
        experiment_id,
        name,
        user_id: new.user_id,
        status: RunStatus::Running,
        start_time_ms: new.start_time_ms.unwrap_or_else(|| app.clock.now_ms()),
        end_time_ms: None,
        artifact_uri: format!("{}/{id}/artifacts", experiment.artifact_location.trim_end_matches('/')),
        lifecycle: Lifecycle::Active,
    };
    store::insert_run(&mut *tx, &info, app.clock.now()).await?;
    store::upsert_run_tags(&mut *tx, id, &tags).await?;
    notify(tx, &format!("run:{id}")).await?;
    Ok(id)
}

/// A run with everything that was logged to it, deleted or not.
///
/// # Errors
/// [`Error::NotFound`] when there is none.
pub async fn get_run(app: &App, id: &str) -> Result<Run> {
    let run_id = parse_run_id(id)?;
    let mut tx = app.begin().await?;
    store::find_run(&mut tx, run_id).await?.ok_or_else(|| run_not_found(id))
}

/// What [`update_run`] changes; `None` stays as it is.
#[derive(Debug, Clone, Default)]
pub struct RunChanges {
    pub status: Option<RunStatus>,
    pub end_time_ms: Option<i64>,
    pub name: Option<String>,
}

/// Changes an active run. Setting it to running again keeps its end time.
///
/// # Errors
/// [`Error::NotFound`], or [`Error::Invalid`] when it is deleted.
pub async fn update_run(app: &App, token: Option<&str>, id: &str, changes: RunChanges) -> Result<RunInfo> {
    let run_id = parse_run_id(id)?;
    let mut tx = app.begin().await?;
    fence::check_run(&mut tx, &*app.clock, token, run_id).await?;
    let mut info = lock_active(&mut tx, run_id).await?;
    if let Some(name) = changes.name.filter(|name| !name.is_empty()) {
        validate_name(&name)?;
        let tag = KeyValue { key: RUN_NAME_TAG.to_owned(), value: name.clone() };
        store::upsert_run_tags(&mut tx, run_id, &[tag]).await?;
        info.name = name;
    }
    info.status = changes.status.unwrap_or(info.status);
    info.end_time_ms = changes.end_time_ms.or(info.end_time_ms);
    store::update_run(&mut tx, run_id, &info.name, info.status, info.end_time_ms).await?;
    notify(&mut tx, &format!("run:{run_id}")).await?;
    commit(tx).await?;
    Ok(info)
}

/// Soft-deletes or restores a run; it may be in that state already.
///
/// # Errors
/// [`Error::NotFound`] when there is none.
pub async fn set_run_lifecycle(app: &App, actor: &Actor, token: Option<&str>, id: &str, lifecycle: Lifecycle) -> Result<()> {
    let run_id = parse_run_id(id)?;
    let now = app.clock.now();
    let mut tx = app.begin().await?;
    fence::check_run(&mut tx, &*app.clock, token, run_id).await?;
    let info = store::lock_run(&mut tx, run_id).await?.ok_or_else(|| run_not_found(id))?;
    if info.lifecycle == lifecycle {
        return Ok(());
    }
    let deleted = lifecycle == Lifecycle::Deleted;
    store::update_run_lifecycle(&mut tx, run_id, lifecycle, deleted.then_some(now)).await?;
    let action = if deleted { "run.deleted" } else { "run.restored" };
    insert_audit(&mut tx, now, &actor.0, action, &format!("run:{run_id}"), &json!({})).await?;
    notify(&mut tx, &format!("run:{run_id}")).await?;
    commit(tx).await
}

/// Removes a tag of an active run.
///
/// # Errors
/// [`Error::NotFound`] when run or tag do not exist.
pub async fn delete_run_tag(app: &App, token: Option<&str>, id: &str, key: &str) -> Result<()> {
    let run_id = parse_run_id(id)?;
    let mut tx = app.begin().await?;
    fence::check_run(&mut tx, &*app.clock, token, run_id).await?;
    lock_active(&mut tx, run_id).await?;
    store::delete_run_tag(&mut tx, run_id, key).await.map_err(|error| match error {
        sluice_store::Error::NotFound { .. } => Error::NotFound(format!("No tag with name: {key} in run with id {run_id}")),
        other => other.into(),
    })?;
    notify(&mut tx, &format!("run:{run_id}")).await?;
    commit(tx).await
}

const MODEL_HISTORY_TAG: &str = "mlflow.log-model.history";

/// Notes a model that a client before MLflow 3 logged: its description is added to a JSON list in a tag.
///
/// # Errors
/// [`Error::Invalid`] when the description is malformed.
pub async fn log_legacy_model(app: &App, token: Option<&str>, id: &str, model_json: &str) -> Result<()> {
    let run_id = parse_run_id(id)?;
    let model: serde_json::Value = serde_json::from_str(model_json)
        .map_err(|_| Error::invalid("model_json", format!("Malformed model info. \n {model_json} \n is not a valid JSON.")))?;
    let missing: Vec<_> =
        ["artifact_path", "flavors", "run_id", "utc_time_created"].into_iter().filter(|field| model.get(field).is_none()).collect();
    if !missing.is_empty() {
        let missing = missing.iter().map(|field| format!("'{field}'")).collect::<Vec<_>>().join(", ");
        return Err(Error::invalid("model_json", format!("Model json is missing mandatory fields: {{{missing}}}")));
    }
    let mut tx = app.begin().await?;
    fence::check_run(&mut tx, &*app.clock, token, run_id).await?;
    lock_active(&mut tx, run_id).await?;
    let known = store::find_run_tag(&mut tx, run_id, MODEL_HISTORY_TAG).await?;
    let mut models: Vec<serde_json::Value> = known.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    if !models.contains(&model) {
        models.push(model);
    }
    let tag = KeyValue { key: MODEL_HISTORY_TAG.to_owned(), value: serde_json::Value::from(models).to_string() };
    store::upsert_run_tags(&mut tx, run_id, &[tag]).await?;
    commit(tx).await
}

/// Locks a run and checks that it is active.
pub(crate) async fn lock_active(tx: &mut PgConnection, id: RunId) -> Result<RunInfo> {
    let info = store::lock_run(tx, id).await?.ok_or_else(|| run_not_found(id))?;
    check_active(&info)?;
    Ok(info)
}

/// The error for a run that is deleted.
pub(crate) fn check_active(info: &RunInfo) -> Result<()> {
    if info.lifecycle == Lifecycle::Active {
        return Ok(());
    }
    Err(Error::invalid("run_id", format!("The run {} must be in the 'active' state. Current state is deleted.", info.id)))
}

/// Checks the key of one tag.
pub(crate) fn validate_tag_key(key: &str) -> Result<()> {
    validate_key("key", "key", key)
}

pub(crate) fn validate_name(name: &str) -> Result<()> {
    if name.chars().count() > MAX_NAME_CHARS {
        return Err(too_long("run_name", "run_name", MAX_NAME_CHARS));
    }
    Ok(())
}
