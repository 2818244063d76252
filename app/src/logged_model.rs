//! Logged models.

mod search;

use serde_json::json;
use sluice_domain::{
    id::RunId,
    key::{MAX_KEY_CHARS, random_name},
    logged_model::{LoggedModel, LoggedModelStatus, check_name, random_id},
    tracking::KeyValue,
};
use sluice_store::{
    experiment,
    logged_model::{self, NewLoggedModel},
};

pub use self::search::{DatasetFilter, ModelOrder, Search, search_models};
use crate::{
    App, Error, Result,
    artifact::{Entry, key_of_uri, list_below},
    change::{Caller, Change},
    registry::{check_length, check_tags},
};

/// Most characters of a tag's value.
const MAX_TAG_CHARS: usize = 8000;
/// Most characters of a param's value.
const MAX_PARAM_CHARS: usize = 100_000;

/// What a client says of a new logged model.
#[derive(Debug, Clone, Default)]
pub struct CreateLoggedModel {
    pub experiment_id: i32,
    /// Empty: a random one.
    pub name: String,
    pub model_type: String,
    pub source_run_id: Option<RunId>,
    pub params: Vec<KeyValue>,
    pub tags: Vec<KeyValue>,
}

/// Creates a logged model whose files are still to come.
///
/// # Errors
/// When the experiment does not exist or is deleted, or the name breaks a rule.
pub async fn create_model(app: &App, caller: &Caller, new: CreateLoggedModel) -> Result<LoggedModel> {
    let (id, random) = {
        let mut rng = rand::rng();
        (random_id(&mut rng), random_name(&mut rng))
    };
    let name = if new.name.is_empty() { random } else { new.name };
    check_name(&name).map_err(|rule| Error::invalid("name", rule))?;
    check_length("model_type", &new.model_type, 500)?;
    let tags = check_tags(new.tags, MAX_TAG_CHARS)?;
    let params = check_params(new.params)?;
    let mut change = Change::begin(app, caller).await?;
    let now = change.now;
    let experiment = experiment::find_experiment(change.db(), new.experiment_id)
        .await?
        .ok_or_else(|| Error::NotFound(format!("No Experiment with id={} exists", new.experiment_id)))?;
    if experiment.lifecycle != sluice_domain::state::Lifecycle::Active {
        let message = format!("The experiment {} must be in the 'active' state. Current state is deleted.", new.experiment_id);
        return Err(Error::invalid("experiment_id", message));
    }
    let artifact_uri = format!("{}/models/{id}/artifacts", experiment.artifact_location.trim_end_matches('/'));
    let row = NewLoggedModel {
        id: &id,
        experiment_id: new.experiment_id,
        name: &name,
        model_type: &new.model_type,
        source_run_id: new.source_run_id,
        artifact_uri: &artifact_uri,
    };
    logged_model::insert_logged_model(change.db(), &row, now).await?;
    logged_model::upsert_tags(change.db(), &id, &tags).await?;
    logged_model::insert_params(change.db(), &id, &params).await?;
    let model = find(&mut change, &id).await?;
    change.commit().await?;
    Ok(model)
}

async fn find(change: &mut Change, id: &str) -> Result<LoggedModel> {
    logged_model::find_logged_model(change.db(), id, false).await?.ok_or_else(|| no_model(id))
}

fn no_model(id: &str) -> Error {
    Error::NotFound(format!("Logged model with ID '{id}' not found."))
}

/// Locks a model that must exist.
async fn lock(change: &mut Change, id: &str) -> Result<()> {
    if logged_model::lock_logged_model(change.db(), id).await? { Ok(()) } else { Err(no_model(id)) }
}

/// A logged model.
///
/// # Errors
/// When it does not exist, or is deleted and deleted ones are not asked for.
pub async fn get_model(app: &App, id: &str, with_deleted: bool) -> Result<LoggedModel> {
    let mut db = app.connection().await?;
    logged_model::find_logged_model(&mut db, id, with_deleted).await?.ok_or_else(|| no_model(id))
}

/// Says that the files of a model are complete, or will not be.
///
/// # Errors
/// When it does not exist.
pub async fn finish_model(app: &App, caller: &Caller, id: &str, status: LoggedModelStatus) -> Result<LoggedModel> {
    let mut change = Change::begin(app, caller).await?;
    let now = change.now;
    lock(&mut change, id).await?;
    logged_model::update_status(change.db(), id, status, now).await?;
    let model = find(&mut change, id).await?;
    change.commit().await?;
    Ok(model)
}

/// Soft-deletes a logged model.
///
/// # Errors
/// When it does not exist.
pub async fn delete_model(app: &App, caller: &Caller, id: &str) -> Result<()> {
    let mut change = Change::begin(app, caller).await?;
    let now = change.now;
    lock(&mut change, id).await?;
    logged_model::delete_logged_model(change.db(), id, now).await?;
    change.audit("logged_model.deleted", &format!("logged_model:{id}"), &json!({})).await?;
    change.commit().await
}

/// Sets tags; of equal keys the last wins.
///
/// # Errors
/// When the model does not exist or a tag breaks a limit.
pub async fn set_tags(app: &App, caller: &Caller, id: &str, tags: Vec<KeyValue>) -> Result<()> {
    let tags = check_tags(tags, MAX_TAG_CHARS)?;
    let mut change = Change::begin(app, caller).await?;
    lock(&mut change, id).await?;
    logged_model::upsert_tags(change.db(), id, &tags).await?;
    change.commit().await
}

/// Removes a tag.
///
/// # Errors
/// When the model or the tag does not exist.
pub async fn delete_tag(app: &App, caller: &Caller, id: &str, key: &str) -> Result<()> {
    let mut change = Change::begin(app, caller).await?;
    lock(&mut change, id).await?;
    if !logged_model::delete_tag(change.db(), id, key).await? {
        return Err(Error::NotFound(format!("No tag with key '{key}' found for model with ID '{id}'.")));
    }
    change.commit().await
}

/// Adds params. The same param with the same value again is fine, with another it is refused.
///
/// # Errors
/// When the model does not exist, or a param has another value already.
pub async fn add_params(app: &App, caller: &Caller, id: &str, params: Vec<KeyValue>) -> Result<()> {
    let params = check_params(params)?;
    let mut change = Change::begin(app, caller).await?;
    lock(&mut change, id).await?;
    let others = logged_model::insert_params(change.db(), id, &params).await?;
    if let Some(other) = others.first() {
        let message = format!(
            "Changing param values is not allowed. Param with key='{}' was already logged with value='{}' for model ID='{id}'.",
            other.key, other.value
        );
        return Err(Error::invalid("params", message));
    }
    change.commit().await
}

fn check_params(params: Vec<KeyValue>) -> Result<Vec<KeyValue>> {
    let mut checked = std::collections::BTreeMap::new();
    for param in params {
        if param.key.is_empty() {
            return Err(Error::invalid("params", "Missing value for required parameter 'key'."));
        }
        check_length("key", &param.key, MAX_KEY_CHARS)?;
        check_length("value", &param.value, MAX_PARAM_CHARS)?;
        if let Some(before) = checked.insert(param.key.clone(), param.value.clone())
            && before != param.value
        {
            let message = format!(
                "Duplicate parameter keys have been submitted: ['{}']. Please ensure the request contains only one param value per param key.",
                param.key
            );
            return Err(Error::invalid("params", message));
        }
    }
    Ok(checked.into_iter().map(|(key, value)| KeyValue { key, value }).collect())
}

/// The files of a logged model directly in a folder (`""`: its root): its artifact URI and the entries, with
/// paths relative to the root.
///
/// # Errors
/// When the model does not exist or the path is not safe.
pub async fn list_files(app: &App, id: &str, path: &str) -> Result<(String, Vec<Entry>)> {
    let root = {
        let mut db = app.connection().await?;
        logged_model::find_root(&mut db, id).await?.ok_or_else(|| no_model(id))?
    };
    let entries = list_below(app, &key_of_uri(&root.artifact_uri)?, path).await?;
    Ok((root.artifact_uri, entries))
}
