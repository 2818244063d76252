//! What experiments and runs have in common: limits, texts and ids.

use std::collections::BTreeMap;

use sluice_domain::{
    filter::FilterError,
    id::RunId,
    key::{MAX_KEY_CHARS, check_key},
    tracking::KeyValue,
};

use crate::{Error, Result};

/// Which of active and deleted things a search looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub enum View {
    #[default]
    ActiveOnly,
    DeletedOnly,
    All,
}

impl View {
    pub(crate) const fn lifecycle(self) -> Option<&'static str> {
        match self {
            Self::ActiveOnly => Some("active"),
            Self::DeletedOnly => Some("deleted"),
            Self::All => None,
        }
    }
}

/// Longest value of a param, in characters; longer ones are cut.
pub const MAX_PARAM_CHARS: usize = 6_000;
/// Longest value of a run's tag, in characters; longer ones are cut.
pub const MAX_TAG_CHARS: usize = 8_000;

/// The id in a text; an unknown one and one that is none are the same to callers.
pub(crate) fn parse_run_id(text: &str) -> Result<RunId> {
    text.parse().map_err(|_| run_not_found(text))
}

pub(crate) fn run_not_found(id: impl std::fmt::Display) -> Error {
    Error::NotFound(format!("Run with id={id} not found"))
}

/// The id in a text.
pub(crate) fn parse_experiment_id(text: &str) -> Result<i32> {
    match text.parse::<i32>() {
        Ok(id) => Ok(id),
        // an integer that no experiment can have
        Err(_) if text.strip_prefix('-').unwrap_or(text).bytes().all(|b| b.is_ascii_digit()) && text.len() > 1 => {
            Err(experiment_not_found(text))
        }
        Err(_) => Err(Error::invalid("experiment_id", format!("Invalid experiment ID '{text}'. Experiment ID must be a valid integer."))),
    }
}

pub(crate) fn experiment_not_found(id: impl std::fmt::Display) -> Error {
    Error::NotFound(format!("No Experiment with id={id} exists"))
}

pub(crate) fn too_long(field: &str, what: &str, limit: usize) -> Error {
    Error::invalid(field, format!("'{what}' exceeds the maximum length of {limit} characters"))
}

/// Checks characters, form and length of a key. `what` is its name in the message about length.
pub(crate) fn validate_key(field: &str, what: &str, key: &str) -> Result<()> {
    check_key(key).map_err(|why| {
        Error::invalid(field, format!("Invalid value {} for parameter '{field}' supplied: {why}", serde_json::Value::from(key)))
    })?;
    if key.chars().count() > MAX_KEY_CHARS {
        return Err(too_long(field, what, MAX_KEY_CHARS));
    }
    Ok(())
}

/// The first `limit` characters.
pub(crate) fn cut(mut text: String, limit: usize) -> String {
    if let Some((at, _)) = text.char_indices().nth(limit) {
        text.truncate(at);
    }
    text
}

/// Checks tags of a run and sorts them; of equal keys the last wins. Values are cut to their limit.
pub(crate) fn run_tags(tags: Vec<KeyValue>) -> Result<Vec<KeyValue>> {
    let mut sorted = BTreeMap::new();
    for (i, tag) in tags.into_iter().enumerate() {
        let field = format!("tags[{i}].key");
        validate_key(&field, &field, &tag.key)?;
        sorted.insert(tag.key, cut(tag.value, MAX_TAG_CHARS));
    }
    Ok(sorted.into_iter().map(|(key, value)| KeyValue { key, value }).collect())
}

pub(crate) fn filter_error(error: FilterError) -> Error {
    Error::invalid("filter", error.0)
}

pub(crate) fn order_error(error: FilterError) -> Error {
    Error::invalid("order_by", error.0)
}

/// A position that does not fit its search comes from a token that somebody made up.
pub(crate) fn search_error(error: sluice_store::Error) -> Error {
    match error {
        sluice_store::Error::Malformed { what: "page position", .. } => {
            Error::invalid("page_token", "Invalid page token, its position does not fit the search.")
        }
        other => other.into(),
    }
}

/// Checks the size of a page.
pub(crate) fn check_max_results(max_results: i64, limit: i64) -> Result<()> {
    if max_results < 1 {
        return Err(Error::invalid(
            "max_results",
            format!("Invalid value {max_results} for parameter 'max_results' supplied. It must be a positive integer."),
        ));
    }
    if max_results > limit {
        return Err(Error::invalid(
            "max_results",
            format!(
                "Invalid value {max_results} for parameter 'max_results' supplied: It must be at most {limit}, but got value {max_results}"
            ),
        ));
    }
    Ok(())
}
