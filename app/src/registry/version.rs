//! Versions of registered models.

use serde_json::{Value, json};
use sluice_domain::{
    registry::{MAX_TAG_VALUE_CHARS, ModelVersion, PROMPT_TAG, Stage},
    tracking::KeyValue,
};
use sluice_store::{
    PgConnection, logged_model,
    model_alias::{self, Why},
    model_version::{self, NewVersion, VersionRow},
    registered_model,
};

use super::{check_description, check_length, check_tag, check_tag_key, check_tags, lock_model, record, source::resolve};
use crate::{
    App, Error, Result,
    change::{Caller, Change},
};

/// Tag of a logged model that lists the versions that were registered from it.
const VERSIONS_TAG: &str = "mlflow.modelVersions";

/// What a client says of a new version.
#[derive(Debug, Clone, Default)]
pub struct CreateVersion {
    pub name: String,
    pub source: String,
    pub run_id: Option<String>,
    pub model_id: Option<String>,
    pub run_link: String,
    pub description: String,
    pub tags: Vec<KeyValue>,
}

/// Registers a version. Its number is one more than the highest that the model ever had.
///
/// # Errors
/// When the model does not exist or the source is not allowed.
pub async fn create_version(app: &App, caller: &Caller, new: CreateVersion) -> Result<ModelVersion> {
    check_description(&new.description)?;
    check_length("source", &new.source, 4096)?;
    check_length("run_link", &new.run_link, 2048)?;
    let tags = check_tags(new.tags.clone(), MAX_TAG_VALUE_CHARS)?;
    let mut change = Change::begin(app, caller).await?;
    let (actor, now) = (change.actor.clone(), change.now);
    let row = lock_model(&mut change, &new.name).await?;
    let is_prompt =
        registered_model::find_tag(change.db(), row.id, PROMPT_TAG).await?.is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let resolved = resolve(change.db(), &new, is_prompt).await?;
    let version = NewVersion {
        source: &new.source,
        storage_uri: &resolved.storage_uri,
        run_id: resolved.run_id,
        logged_model_id: resolved.model_id.as_deref(),
        run_link: &new.run_link,
        description: &new.description,
        user_id: &actor,
        pipeline_id: None,
    };
    let number = model_version::insert_version(change.db(), row.id, &version, now).await?;
    model_version::upsert_tags(change.db(), row.id, number, &tags).await?;
    if let Some(model_id) = &resolved.model_id {
        note_version(change.db(), model_id, &new.name, number).await?;
    }
    record(&mut change, "version.created", &new.name, &json!({ "version": number, "source": new.source })).await?;
    let version = load(change.db(), &new.name, number).await?;
    change.commit().await?;
    Ok(version)
}

/// Adds a version to the list that its logged model keeps.
async fn note_version(db: &mut PgConnection, model_id: &str, name: &str, version: i32) -> Result<()> {
    let known = logged_model::lock_tag(db, model_id, VERSIONS_TAG).await?;
    let mut versions: Vec<Value> = known.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    versions.push(json!({ "name": name, "version": version }));
    let tag = KeyValue { key: VERSIONS_TAG.to_owned(), value: Value::from(versions).to_string() };
    Ok(logged_model::upsert_tags(db, model_id, &[tag]).await?)
}

/// A live version.
///
/// # Errors
/// When it does not exist.
pub async fn get_version(app: &App, name: &str, version: i32) -> Result<ModelVersion> {
    let mut db = app.connection().await?;
    load(&mut db, name, version).await
}

pub(super) async fn load(db: &mut PgConnection, name: &str, version: i32) -> Result<ModelVersion> {
    let row = model_version::find_version(db, name, version).await?.ok_or_else(|| no_version(name, version))?;
    model_version::load_versions(db, vec![row], true).await?.pop().ok_or_else(|| no_version(name, version))
}

pub(super) fn no_version(name: &str, version: i32) -> Error {
    Error::NotFound(format!("Model Version (name={name}, version={version}) not found"))
}

/// Locks the model of a version that must exist.
async fn lock_version(change: &mut Change, name: &str, version: i32) -> Result<VersionRow> {
    registered_model::lock_registered_model(change.db(), name).await?.ok_or_else(|| no_version(name, version))?;
    model_version::find_version(change.db(), name, version).await?.ok_or_else(|| no_version(name, version))
}

/// Where the files of a version are.
///
/// # Errors
/// When it does not exist.
pub async fn version_storage(app: &App, name: &str, version: i32) -> Result<String> {
    let mut db = app.connection().await?;
    Ok(model_version::find_version(&mut db, name, version).await?.ok_or_else(|| no_version(name, version))?.storage_uri)
}

/// Writes a version's description.
///
/// # Errors
/// When the version does not exist.
pub async fn update_version(app: &App, caller: &Caller, name: &str, version: i32, description: &str) -> Result<ModelVersion> {
    check_description(description)?;
    let mut change = Change::begin(app, caller).await?;
    let now = change.now;
    let row = lock_version(&mut change, name, version).await?;
    model_version::update_description(change.db(), row.model_id, version, description, now).await?;
    record(&mut change, "version.described", name, &json!({ "version": version })).await?;
    let version = load(change.db(), name, version).await?;
    change.commit().await?;
    Ok(version)
}

/// Moves a version to a stage, and the others of that stage to `Archived` when asked.
///
/// # Errors
/// When the version does not exist, or others are to be archived from a stage that is not an active one.
pub async fn transition_stage(
    app: &App,
    caller: &Caller,
    name: &str,
    version: i32,
    stage: Stage,
    archive_others: bool,
) -> Result<ModelVersion> {
    if archive_others && !matches!(stage, Stage::Staging | Stage::Production) {
        return Err(Error::invalid(
            "archive_existing_versions",
            format!(
                "Model version transition cannot archive existing model versions because '{}' is not an Active stage. Valid stages are ['Staging', 'Production']",
                stage.as_str()
            ),
        ));
    }
    let mut change = Change::begin(app, caller).await?;
    let now = change.now;
    let row = lock_version(&mut change, name, version).await?;
    model_version::update_stage(change.db(), row.model_id, version, stage, archive_others, now).await?;
    let detail = json!({ "version": version, "from": row.stage, "to": stage.as_str(), "archive_others": archive_others });
    record(&mut change, "version.stage_moved", name, &detail).await?;
    let version = load(change.db(), name, version).await?;
    change.commit().await?;
    Ok(version)
}

/// Deletes a version: its number is never used again, its aliases are taken away.
///
/// # Errors
/// When it does not exist.
pub async fn delete_version(app: &App, caller: &Caller, name: &str, version: i32) -> Result<()> {
    let mut change = Change::begin(app, caller).await?;
    let (actor, now) = (change.actor.clone(), change.now);
    let row = lock_version(&mut change, name, version).await?;
    let why = Why { gate_record_id: None, reason: "the version was deleted", actor: &actor, at: now };
    for alias in model_alias::list_aliases(change.db(), &[row.model_id]).await? {
        if alias.version == version {
            model_alias::delete_alias(change.db(), row.model_id, name, &alias.alias, why).await?;
        }
    }
    model_version::delete_version(change.db(), row.model_id, version, now).await?;
    record(&mut change, "version.deleted", name, &json!({ "version": version, "source": row.source })).await?;
    change.commit().await
}

/// Sets a tag of a version.
///
/// # Errors
/// When the version does not exist or the tag breaks a limit.
pub async fn set_version_tag(app: &App, caller: &Caller, name: &str, version: i32, key: &str, value: &str) -> Result<()> {
    check_tag(key, value)?;
    let mut change = Change::begin(app, caller).await?;
    let row = lock_version(&mut change, name, version).await?;
    let tag = KeyValue { key: key.to_owned(), value: value.to_owned() };
    model_version::upsert_tags(change.db(), row.model_id, version, &[tag]).await?;
    record(&mut change, "version.tagged", name, &json!({ "version": version, "key": key })).await?;
    change.commit().await
}

/// Removes a tag of a version; one that is not there is fine.
///
/// # Errors
/// When the version does not exist.
pub async fn delete_version_tag(app: &App, caller: &Caller, name: &str, version: i32, key: &str) -> Result<()> {
    check_tag_key(key)?;
    let mut change = Change::begin(app, caller).await?;
    let row = lock_version(&mut change, name, version).await?;
    model_version::delete_tag(change.db(), row.model_id, version, key).await?;
    record(&mut change, "version.untagged", name, &json!({ "version": version, "key": key })).await?;
    change.commit().await
}
