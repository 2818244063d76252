//! Experiments: create, read, search, rename, delete, restore, tag.

use serde_json::json;
use sluice_domain::{
    filter::{Entity, EntityRule, Grammar, KeyRule, Keys, Kind, Literal, NUMERIC, Operator, TEXT, TEXT_OR_NULL},
    state::Lifecycle,
    tracking::{Experiment, KeyValue},
};
use sluice_store::{
    audit::insert_audit,
    experiment as store,
    experiment_search::{ExperimentQuery, search_experiments},
    search_sql::SortValue,
};

use crate::{
    Actor, App, Error, Result,
    context::commit,
    fence,
    page::{Page, decode_token, encode_token},
    tracking::{
        View, check_max_results, experiment_not_found, filter_error, order_error, parse_experiment_id, search_error, too_long, validate_key,
    },
};

const MAX_NAME_CHARS: usize = 500;
const MAX_LOCATION_CHARS: usize = 2048;
const MAX_TAG_VALUE_CHARS: usize = 20_000;
/// Most experiments on one page.
pub const MAX_PAGE: i64 = 50_000;

const IDS: &[Operator] = &[Operator::Eq, Operator::Ne, Operator::In, Operator::NotIn];

/// What a search of experiments may ask for.
const GRAMMAR: Grammar = Grammar {
    double_quotes: true,
    entities: &[
        EntityRule {
            entity: Entity::Attribute,
            names: &["attribute", "attributes", "attr"],
            keys: Keys::Named(&[
                KeyRule { names: &["name"], kind: Kind::Text, operators: TEXT },
                KeyRule { names: &["experiment_id"], kind: Kind::Text, operators: IDS },
                KeyRule { names: &["creation_time"], kind: Kind::Integer, operators: NUMERIC },
                KeyRule { names: &["last_update_time"], kind: Kind::Integer, operators: NUMERIC },
            ]),
        },
        EntityRule {
            entity: Entity::Tag,
            names: &["tag", "tags"],
            keys: Keys::Free(KeyRule { names: &[], kind: Kind::Text, operators: TEXT_OR_NULL }),
        },
    ],
};

/// Creates an experiment and returns its id.
///
/// # Errors
/// [`Error::AlreadyExists`] when the name is taken, also by a deleted experiment.
pub async fn create_experiment(
    app: &App,
    actor: &Actor,
    token: Option<&str>,
    name: &str,
    artifact_location: Option<&str>,
    tags: &[KeyValue],
) -> Result<i32> {
    validate_name("name", name)?;
    let location = artifact_location.filter(|location| !location.is_empty()).map(validate_location).transpose()?;
    let mut unique = std::collections::BTreeMap::new();
    for (i, tag) in tags.iter().enumerate() {
        validate_tag(&format!("tags[{i}].key"), &format!("tags[{i}].value"), tag)?;
        unique.insert(tag.key.clone(), tag.clone());
    }
    let tags: Vec<KeyValue> = unique.into_values().collect();
    let now = app.clock.now();
    let mut tx = app.begin().await?;
    fence::check(&mut tx, &*app.clock, token).await?;
    let id = store::insert_experiment(&mut tx, name, location.as_deref(), now).await.map_err(|error| taken(error, name))?;
    store::upsert_experiment_tags(&mut tx, id, &tags).await?;
    insert_audit(&mut tx, now, &actor.0, "experiment.created", &format!("experiment:{id}"), &json!({ "name": name })).await?;
    commit(tx).await?;
    Ok(id)
}

/// An experiment by id, deleted or not.
///
/// # Errors
/// [`Error::NotFound`] when there is none.
pub async fn get_experiment(app: &App, id: &str) -> Result<Experiment> {
    let number = parse_experiment_id(id)?;
    let mut tx = app.begin().await?;
    store::find_experiment(&mut tx, number).await?.ok_or_else(|| experiment_not_found(id))
}

/// An experiment by name, deleted or not.
///
/// # Errors
/// [`Error::NotFound`] when there is none.
pub async fn get_experiment_by_name(app: &App, name: &str) -> Result<Experiment> {
    let mut tx = app.begin().await?;
    store::find_experiment_by_name(&mut tx, name)
        .await?
        .ok_or_else(|| Error::NotFound(format!("Could not find experiment with name '{name}'")))
}

/// A search of experiments.
#[derive(Debug, Clone, Default)]
pub struct ExperimentSearch {
    pub view: View,
    pub filter: String,
    pub order_by: Vec<String>,
    pub max_results: i64,
    pub page_token: Option<String>,
}

/// Finds experiments.
///
/// # Errors
/// [`Error::Invalid`] when filter, order, size or token are malformed.
pub async fn search_experiments_page(app: &App, search: &ExperimentSearch) -> Result<Page<Experiment>> {
    check_max_results(search.max_results, MAX_PAGE)?;
    let filter = GRAMMAR.parse(&search.filter).map_err(filter_error)?;
    for comparison in filter.iter().filter(|comparison| comparison.entity == Entity::Attribute && comparison.key == "experiment_id") {
        match &comparison.value {
            Literal::Text(id) => drop(parse_experiment_id(id).or_else(only_invalid)?),
            Literal::List(ids) => {
                for id in ids {
                    parse_experiment_id(id).or_else(only_invalid)?;
                }
            }
            _ => {}
        }
    }
    let order = GRAMMAR.parse_order(&search.order_by).map_err(order_error)?;
    if let Some(bad) = order.iter().find(|order| order.entity != Entity::Attribute) {
        return Err(Error::invalid("order_by", format!("Invalid order_by entity: {}", bad.entity.as_str())));
    }
    let scope = ("experiments", search.view, &search.filter, &search.order_by);
    let after: Option<Vec<SortValue>> = search.page_token.as_deref().map(|token| decode_token(&scope, token)).transpose()?;
    let mut tx = app.begin().await?;
    let page = search_experiments(
        &mut tx,
        &ExperimentQuery {
            lifecycle: search.view.lifecycle(),
            filter: &filter,
            order: &order,
            after: after.as_deref(),
            limit: search.max_results,
        },
    )
    .await
    .map_err(search_error)?;
    Ok(Page { items: page.experiments, next_page_token: page.next.map(|position| encode_token(&scope, position)) })
}

/// An id that no experiment can have is no error in a filter: it matches nothing.
fn only_invalid(error: Error) -> Result<i32> {
    match error {
        Error::NotFound(_) => Ok(-1),
        other => Err(other),
    }
}

/// Renames an active experiment.
///
/// # Errors
/// [`Error::NotFound`], [`Error::AlreadyExists`], or [`Error::Invalid`] when it is deleted.
pub async fn rename_experiment(app: &App, actor: &Actor, token: Option<&str>, id: &str, name: &str) -> Result<()> {
    let number = parse_experiment_id(id)?;
    validate_name("new_name", name)?;
    let now = app.clock.now();
    let mut tx = app.begin().await?;
    fence::check(&mut tx, &*app.clock, token).await?;
    match store::lock_experiment(&mut tx, number).await? {
        None => return Err(experiment_not_found(id)),
        Some(false) => return Err(Error::invalid("experiment_id", "Cannot rename a non-active experiment.")),
        Some(true) => {}
    }
    store::update_experiment_name(&mut tx, number, name, now).await.map_err(|error| taken(error, name))?;
    insert_audit(&mut tx, now, &actor.0, "experiment.renamed", &format!("experiment:{number}"), &json!({ "name": name })).await?;
    commit(tx).await
}

/// Soft-deletes an active experiment with its runs, or restores a deleted one with all of them.
///
/// # Errors
/// [`Error::NotFound`] when there is none in the opposite state.
pub async fn set_experiment_lifecycle(app: &App, actor: &Actor, token: Option<&str>, id: &str, lifecycle: Lifecycle) -> Result<()> {
    let number = parse_experiment_id(id)?;
    let activate = lifecycle == Lifecycle::Active;
    let now = app.clock.now();
    let mut tx = app.begin().await?;
    fence::check(&mut tx, &*app.clock, token).await?;
    if store::lock_experiment(&mut tx, number).await? != Some(!activate) {
        return Err(experiment_not_found(id));
    }
    store::update_experiment_lifecycle(&mut tx, number, activate, now).await?;
    let action = if activate { "experiment.restored" } else { "experiment.deleted" };
    insert_audit(&mut tx, now, &actor.0, action, &format!("experiment:{number}"), &json!({})).await?;
    commit(tx).await
}

/// Sets a tag of an active experiment.
///
/// # Errors
/// [`Error::NotFound`], or [`Error::Invalid`] when it is deleted or the tag is malformed.
pub async fn set_experiment_tag(app: &App, token: Option<&str>, id: &str, tag: KeyValue) -> Result<()> {
    let number = parse_experiment_id(id)?;
    validate_tag("key", "value", &tag)?;
    let mut tx = app.begin().await?;
    fence::check(&mut tx, &*app.clock, token).await?;
    require_active(&mut tx, number, id).await?;
    store::upsert_experiment_tags(&mut tx, number, &[tag]).await?;
    commit(tx).await
}

/// Removes a tag of an active experiment.
///
/// # Errors
/// [`Error::NotFound`] when experiment or tag do not exist.
pub async fn delete_experiment_tag(app: &App, token: Option<&str>, id: &str, key: &str) -> Result<()> {
    let number = parse_experiment_id(id)?;
    let mut tx = app.begin().await?;
    fence::check(&mut tx, &*app.clock, token).await?;
    require_active(&mut tx, number, id).await?;
    store::delete_experiment_tag(&mut tx, number, key).await.map_err(|error| match error {
        sluice_store::Error::NotFound { .. } => Error::NotFound(format!("No tag with name: {key} in experiment with id {number}")),
        other => other.into(),
    })?;
    commit(tx).await
}

/// Locks an experiment and checks that it is active.
pub(crate) async fn require_active(tx: &mut sluice_store::PgConnection, number: i32, id: &str) -> Result<()> {
    match store::lock_experiment(tx, number).await? {
        None => Err(experiment_not_found(id)),
        Some(false) => Err(Error::invalid(
            "experiment_id",
            format!("The experiment {number} must be in the 'active' state. Current state is deleted."),
        )),
        Some(true) => Ok(()),
    }
}

fn taken(error: sluice_store::Error, name: &str) -> Error {
    if error.constraint() == Some("experiments_name_key") {
        return Error::AlreadyExists(format!(
            "Experiment(name={name}) already exists. A deleted experiment keeps its name; restore it or use another one."
        ));
    }
    error.into()
}

fn validate_name(field: &str, name: &str) -> Result<()> {
    if name.trim().is_empty() {
        return Err(Error::invalid(field, format!("Invalid experiment name: '{name}' (parameter '{field}' must not be blank)")));
    }
    if name.chars().count() > MAX_NAME_CHARS {
        return Err(too_long(field, field, MAX_NAME_CHARS));
    }
    Ok(())
}

/// A URI or path without parts that mean something else to somebody; a relative path is taken from where the server runs.
fn validate_location(location: &str) -> Result<String> {
    let invalid = |why: &str| Err(Error::invalid("artifact_location", format!("Invalid artifact_location '{location}': {why}")));
    if location.chars().count() > MAX_LOCATION_CHARS {
        return Err(too_long("artifact_location", "artifact_location", MAX_LOCATION_CHARS));
    }
    if location.starts_with("runs:") {
        return Err(Error::invalid("artifact_location", format!("Artifact location cannot be a runs:/ URI. Given: '{location}'")));
    }
    if location.contains(['#', '?']) || location.chars().any(char::is_control) {
        return invalid("it must not contain '#', '?' or control characters.");
    }
    if location.split(['/', '\\']).any(|part| part == "..") || location.to_ascii_lowercase().contains("%2e") {
        return invalid("it must not contain '..'.");
    }
    let has_scheme = location.split_once(':').is_some_and(|(scheme, _)| {
        scheme.len() > 1 && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
    });
    if has_scheme || location.starts_with('/') {
        return Ok(location.trim_end_matches('/').to_owned());
    }
    let here = std::env::current_dir().map_err(|error| Error::Internal(error.into()))?;
    Ok(here.join(location).display().to_string())
}

fn validate_tag(key_field: &str, value_field: &str, tag: &KeyValue) -> Result<()> {
    validate_key(key_field, "key", &tag.key)?;
    if tag.value.chars().count() > MAX_TAG_VALUE_CHARS {
        return Err(too_long(value_field, "value", MAX_TAG_VALUE_CHARS));
    }
    Ok(())
}
