//! Registered models.

use serde_json::json;
use sluice_domain::{
    registry::{MAX_TAG_VALUE_CHARS, ModelVersion, PROMPT_TAG, RegisteredModel, Stage, check_model_name},
    tracking::KeyValue,
};
use sluice_store::{
    PgConnection,
    model_alias::{self, Why},
    model_version,
    registered_model::{self, ModelRow},
};

use super::{check_description, check_tag, check_tag_key, check_tags, lock_model, no_model, record};
use crate::{
    App, Error, Result,
    change::{Caller, Change},
};

/// Registers a model.
///
/// # Errors
/// When the name breaks a rule or is taken.
pub async fn create_model(app: &App, caller: &Caller, name: &str, description: &str, tags: Vec<KeyValue>) -> Result<RegisteredModel> {
    check_model_name(name).map_err(|rule| Error::invalid("name", rule))?;
    check_description(description)?;
    let tags = check_tags(tags, MAX_TAG_VALUE_CHARS)?;
    let mut change = Change::begin(app, caller).await?;
    let now = change.now;
    let Some(id) = registered_model::insert_registered_model(change.db(), name, description, now).await? else {
        return Err(name_taken(change.db(), name, is_prompt(&tags)).await);
    };
    registered_model::upsert_tags(change.db(), id, &tags).await?;
    record(&mut change, "model.created", name, &json!({})).await?;
    let row = ModelRow { id, name: name.to_owned(), description: description.to_owned(), created_at: now, updated_at: now };
    let model = load(change.db(), row).await?;
    change.commit().await?;
    Ok(model)
}

fn is_prompt(tags: &[KeyValue]) -> bool {
    tags.iter().any(|tag| tag.key == PROMPT_TAG && tag.value.eq_ignore_ascii_case("true"))
}

/// Models and prompts share one set of names; the message says which of them has it.
async fn name_taken(db: &mut PgConnection, name: &str, wants_prompt: bool) -> Error {
    let taken = async {
        let Some(row) = registered_model::find_registered_model(db, name).await? else { return Ok(false) };
        Ok::<_, sluice_store::Error>(
            registered_model::find_tag(db, row.id, PROMPT_TAG).await?.is_some_and(|value| value.eq_ignore_ascii_case("true")),
        )
    };
    let message = match taken.await {
        Err(error) => return error.into(),
        Ok(true) if !wants_prompt => format!(
            "Tried to create a model with name '{name}', but the name is already taken by a registered prompt. MLflow does not allow creating a model and a prompt with the same name."
        ),
        Ok(false) if wants_prompt => format!(
            "Tried to create a prompt with name '{name}', but the name is already taken by a registered model. MLflow does not allow creating a model and a prompt with the same name."
        ),
        Ok(true) => format!("Registered Prompt (name={name}) already exists."),
        Ok(false) => format!("Registered Model (name={name}) already exists."),
    };
    Error::AlreadyExists(message)
}

/// A registered model.
///
/// # Errors
/// When it does not exist.
pub async fn get_model(app: &App, name: &str) -> Result<RegisteredModel> {
    let mut db = app.connection().await?;
    let row = registered_model::find_registered_model(&mut db, name).await?.ok_or_else(|| no_model(name))?;
    load(&mut db, row).await
}

async fn load(db: &mut PgConnection, row: ModelRow) -> Result<RegisteredModel> {
    let name = row.name.clone();
    registered_model::load_registered_models(db, vec![row]).await?.pop().ok_or_else(|| no_model(&name))
}

/// Writes a model's description.
///
/// # Errors
/// When the model does not exist.
pub async fn update_model(app: &App, caller: &Caller, name: &str, description: &str) -> Result<RegisteredModel> {
    check_description(description)?;
    let mut change = Change::begin(app, caller).await?;
    let now = change.now;
    let row = lock_model(&mut change, name).await?;
    registered_model::update_description(change.db(), row.id, description, now).await?;
    record(&mut change, "model.described", name, &json!({})).await?;
    let model = load(change.db(), ModelRow { description: description.to_owned(), updated_at: now, ..row }).await?;
    change.commit().await?;
    Ok(model)
}

/// Gives a model another name. The history of its aliases says so under both names. A model that is deployed
/// keeps its name: deployments, their routes and their gate records go by it.
///
/// # Errors
/// When the model does not exist, is deployed, or the new name breaks a rule or is taken.
pub async fn rename_model(app: &App, caller: &Caller, name: &str, new_name: &str) -> Result<RegisteredModel> {
    check_model_name(new_name).map_err(|rule| Error::invalid("new_name", rule))?;
    let mut change = Change::begin(app, caller).await?;
    let now = change.now;
    let row = lock_model(&mut change, name).await?;
    if registered_model::has_live_deployment(change.db(), name).await? {
        return Err(Error::Conflict(format!("Registered Model {name} is deployed and cannot be renamed.")));
    }
    if name != new_name {
        match registered_model::update_name(change.db(), row.id, new_name, now).await {
            Err(error) if error.constraint() == Some("registered_models_name_key") => {
                return Err(Error::AlreadyExists(format!("Registered Model (name={new_name}) already exists.")));
            }
            other => other?,
        }
        let actor = change.actor.clone();
        for alias in model_alias::list_aliases(change.db(), &[row.id]).await? {
            for (model, from, to, reason) in [
                (name, Some(alias.version), None, format!("the model was renamed to {new_name}")),
                (new_name, None, Some(alias.version), format!("the model was renamed from {name}")),
            ] {
                let why = Why { gate_record_id: None, reason: &reason, actor: &actor, at: now };
                model_alias::insert_move(change.db(), model, &alias.alias, from, to, why).await?;
            }
        }
        record(&mut change, "model.renamed", name, &json!({ "new_name": new_name })).await?;
        record(&mut change, "model.renamed", new_name, &json!({ "old_name": name })).await?;
    }
    let model = load(change.db(), ModelRow { name: new_name.to_owned(), updated_at: now, ..row }).await?;
    change.commit().await?;
    Ok(model)
}

/// Removes a model with its versions. The history of its aliases, gate records and audit rows stay.
///
/// # Errors
/// When the model does not exist.
pub async fn delete_model(app: &App, caller: &Caller, name: &str) -> Result<()> {
    let mut change = Change::begin(app, caller).await?;
    let row = lock_model(&mut change, name).await?;
    let (actor, now) = (change.actor.clone(), change.now);
    let why = Why { gate_record_id: None, reason: "the model was deleted", actor: &actor, at: now };
    for alias in model_alias::list_aliases(change.db(), &[row.id]).await? {
        model_alias::delete_alias(change.db(), row.id, name, &alias.alias, why).await?;
    }
    registered_model::delete_registered_model(change.db(), row.id).await?;
    record(&mut change, "model.deleted", name, &json!({})).await?;
    change.commit().await
}

/// Sets a tag of a model.
///
/// # Errors
/// When the model does not exist or the tag breaks a limit.
pub async fn set_model_tag(app: &App, caller: &Caller, name: &str, key: &str, value: &str) -> Result<()> {
    check_tag(key, value)?;
    let mut change = Change::begin(app, caller).await?;
    let row = lock_model(&mut change, name).await?;
    registered_model::upsert_tags(change.db(), row.id, &[KeyValue { key: key.to_owned(), value: value.to_owned() }]).await?;
    record(&mut change, "model.tagged", name, &json!({ "key": key })).await?;
    change.commit().await
}

/// Removes a tag of a model; one that is not there is fine.
///
/// # Errors
/// When the model does not exist.
pub async fn delete_model_tag(app: &App, caller: &Caller, name: &str, key: &str) -> Result<()> {
    check_tag_key(key)?;
    let mut change = Change::begin(app, caller).await?;
    let row = lock_model(&mut change, name).await?;
    registered_model::delete_tag(change.db(), row.id, key).await?;
    record(&mut change, "model.untagged", name, &json!({ "key": key })).await?;
    change.commit().await
}

/// The highest live version of each of the stages (of all four when there are none), with aliases.
///
/// # Errors
/// When the model does not exist or a stage is none.
pub async fn latest_versions(app: &App, name: &str, stages: &[String]) -> Result<Vec<ModelVersion>> {
    let stages =
        stages.iter().map(|stage| stage.parse().map_err(|rule: String| Error::invalid("stages", rule))).collect::<Result<Vec<Stage>>>()?;
    let mut db = app.connection().await?;
    let row = registered_model::find_registered_model(&mut db, name).await?.ok_or_else(|| no_model(name))?;
    let aliases = model_alias::list_aliases(&mut db, &[row.id]).await?;
    let latest = model_version::list_latest_versions(&mut db, &[row.id]).await?;
    Ok(latest
        .into_iter()
        .map(|(_, version)| version)
        .filter(|version| stages.is_empty() || stages.contains(&version.stage))
        .map(|version| ModelVersion {
            aliases: aliases.iter().filter(|alias| alias.version == version.version).map(|alias| alias.alias.clone()).collect(),
            ..version
        })
        .collect())
}
