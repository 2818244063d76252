//! The model registry: registered models, versions, aliases, stages. Every change locks its model first, so
//! that numbers, aliases and stages of one model change one after the other.

mod alias;
mod model;
mod search;
mod source;
mod version;

use std::collections::BTreeMap;

use serde_json::Value;
use sluice_domain::{
    registry::{MAX_DESCRIPTION_CHARS, MAX_TAG_VALUE_CHARS},
    tracking::KeyValue,
};
use sluice_store::registered_model::{self, ModelRow};

pub use self::{
    alias::{delete_alias, get_version_by_alias, set_alias},
    model::{create_model, delete_model, delete_model_tag, get_model, latest_versions, rename_model, set_model_tag, update_model},
    search::{Search, search_models, search_versions},
    version::{
        CreateVersion, create_version, delete_version, delete_version_tag, get_version, set_version_tag, transition_stage, update_version,
        version_storage,
    },
};
use crate::{
    Error, Result,
    change::Change,
    tracking::{too_long, validate_key},
};

/// Locks a model that must exist.
async fn lock_model(change: &mut Change, name: &str) -> Result<ModelRow> {
    registered_model::lock_registered_model(change.db(), name).await?.ok_or_else(|| no_model(name))
}

fn no_model(name: &str) -> Error {
    Error::NotFound(format!("Registered Model with name={name} not found"))
}

/// Audit row and notice of a change of a model.
async fn record(change: &mut Change, action: &str, model: &str, detail: &Value) -> Result<()> {
    let subject = format!("model:{model}");
    change.audit(action, &subject, detail).await?;
    change.notify(&subject).await
}

/// Checks tags; of equal keys the last wins.
pub(crate) fn check_tags(tags: Vec<KeyValue>, max_value_chars: usize) -> Result<Vec<KeyValue>> {
    let mut checked = BTreeMap::new();
    for tag in tags {
        check_tag_key(&tag.key)?;
        check_length("value", &tag.value, max_value_chars)?;
        checked.insert(tag.key, tag.value);
    }
    Ok(checked.into_iter().map(|(key, value)| KeyValue { key, value }).collect())
}

fn check_tag(key: &str, value: &str) -> Result<()> {
    check_tag_key(key)?;
    check_length("value", value, MAX_TAG_VALUE_CHARS)
}

pub(crate) fn check_tag_key(key: &str) -> Result<()> {
    if key.is_empty() {
        return Err(Error::invalid("key", "Missing value for required parameter 'key'."));
    }
    validate_key("key", "key", key)
}

fn check_description(description: &str) -> Result<()> {
    check_length("description", description, MAX_DESCRIPTION_CHARS)
}

pub(crate) fn check_length(field: &str, value: &str, max_chars: usize) -> Result<()> {
    if value.chars().count() > max_chars { Err(too_long(field, field, max_chars)) } else { Ok(()) }
}
