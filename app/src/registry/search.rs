//! Searches of registered models and versions.

use sluice_domain::{
    filter::{Entity, EntityRule, FilterError, Grammar, KeyRule, Keys, Kind, NUMERIC, TEXT, TEXT_OR_LIST},
    registry::{ModelVersion, RegisteredModel},
};
use sluice_store::{
    registry_search::{self, Found, RegistryQuery},
    search_sql::SortValue,
};

use crate::{
    App, Error, Result,
    page::{Page, decode_token, encode_token},
};

/// What a client asks for.
#[derive(Debug, Clone, Default)]
pub struct Search {
    pub filter: String,
    pub order_by: Vec<String>,
    pub max_results: i64,
    pub page_token: Option<String>,
}

const TAGS: EntityRule = EntityRule {
    entity: Entity::Tag,
    names: &["tag", "tags"],
    keys: Keys::Free(KeyRule { names: &[], kind: Kind::Text, operators: TEXT }),
};
const NAME: KeyRule = KeyRule { names: &["name"], kind: Kind::Text, operators: TEXT_OR_LIST };

const fn attributes(keys: &'static [KeyRule]) -> EntityRule {
    EntityRule { entity: Entity::Attribute, names: &["attribute", "attributes"], keys: Keys::Named(keys) }
}

const MODELS: Grammar = Grammar { double_quotes: true, entities: &[attributes(&[NAME]), TAGS] };
const MODEL_ORDER: Grammar = Grammar {
    double_quotes: true,
    entities: &[attributes(&[NAME, KeyRule { names: &["timestamp", "last_updated_timestamp"], kind: Kind::Integer, operators: NUMERIC }])],
};
const VERSION_NUMBER: KeyRule = KeyRule { names: &["version_number"], kind: Kind::Integer, operators: NUMERIC };
const VERSIONS: Grammar = Grammar {
    double_quotes: true,
    entities: &[
        attributes(&[
            NAME,
            KeyRule { names: &["run_id"], kind: Kind::Text, operators: TEXT_OR_LIST },
            KeyRule { names: &["source_path"], kind: Kind::Text, operators: TEXT },
            VERSION_NUMBER,
        ]),
        TAGS,
    ],
};
const VERSION_ORDER: Grammar = Grammar {
    double_quotes: true,
    entities: &[attributes(&[
        NAME,
        VERSION_NUMBER,
        KeyRule { names: &["creation_timestamp"], kind: Kind::Integer, operators: NUMERIC },
        KeyRule { names: &["last_updated_timestamp"], kind: Kind::Integer, operators: NUMERIC },
    ])],
};

/// Searches registered models; prompts only when the filter asks for them.
///
/// # Errors
/// When the filter, order, page size or token is not valid.
pub async fn search_models(app: &App, search: &Search) -> Result<Page<RegisteredModel>> {
    let mut db = app.connection().await?;
    let prepared = Prepared::new(search, &MODELS, &MODEL_ORDER, 1000, "models")?;
    prepared.page(registry_search::search_registered_models(&mut db, &prepared.query()).await?)
}

/// Searches live versions; those of prompts only when the filter asks for them.
///
/// # Errors
/// When the filter, order, page size or token is not valid.
pub async fn search_versions(app: &App, search: &Search) -> Result<Page<ModelVersion>> {
    let mut db = app.connection().await?;
    let prepared = Prepared::new(search, &VERSIONS, &VERSION_ORDER, 200_000, "versions")?;
    prepared.page(registry_search::search_versions(&mut db, &prepared.query()).await?)
}

/// A search that is checked.
struct Prepared<'a> {
    search: &'a Search,
    /// What is searched, so that a token of one list is none of the other.
    list: &'static str,
    filter: Vec<sluice_domain::filter::Comparison>,
    order: Vec<sluice_domain::filter::OrderBy>,
    after: Option<Vec<SortValue>>,
}

impl<'a> Prepared<'a> {
    fn new(search: &'a Search, grammar: &Grammar, order: &Grammar, limit: i64, list: &'static str) -> Result<Self> {
        if !(1..=limit).contains(&search.max_results) {
            return Err(Error::invalid(
                "max_results",
                format!(
                    "Invalid value for parameter 'max_results' supplied: it must be between 1 and {limit}, but got value {}.",
                    search.max_results
                ),
            ));
        }
        let bad_order = |FilterError(message): FilterError| Error::invalid("order_by", message);
        let mut prepared = Self {
            search,
            list,
            filter: grammar.parse(&search.filter).map_err(|FilterError(message)| Error::invalid("filter", message))?,
            order: order.parse_order(&search.order_by).map_err(bad_order)?,
            after: None,
        };
        if let Some(token) = search.page_token.as_deref().filter(|token| !token.is_empty()) {
            prepared.after = Some(decode_token(&prepared.scope(), token)?);
        }
        Ok(prepared)
    }

    fn scope(&self) -> (&'static str, &str, &[String]) {
        (self.list, &self.search.filter, &self.search.order_by)
    }

    fn query(&self) -> RegistryQuery<'_> {
        RegistryQuery { filter: &self.filter, order: &self.order, after: self.after.as_deref(), limit: self.search.max_results }
    }

    fn page<T>(&self, (items, next): Found<T>) -> Result<Page<T>> {
        Ok(Page { items, next_page_token: next.map(|position| encode_token(&self.scope(), position)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grammars_of_the_registry() {
        for good in ["name = 'a'", "name ILIKE '%A%' AND tags.team = 'x'", "name IN ('a', 'b')", "tags.`mlflow.prompt.is_prompt` = 'true'"]
        {
            assert!(MODELS.parse(good).is_ok(), "{good}");
        }
        for bad in ["name > 'a'", "run_id = 'x'", "tags.a > 'x'", "name = a", "metrics.a = 1", "name = 'a' OR name = 'b'"] {
            assert!(MODELS.parse(bad).is_err(), "{bad}");
        }
        for good in ["version_number >= 2", "run_id IN ('a')", "source_path LIKE 's3%'", "name='a' and version_number = 1"] {
            assert!(VERSIONS.parse(good).is_ok(), "{good}");
        }
        assert!(VERSIONS.parse("version_number = '2'").is_err());
        assert!(MODEL_ORDER.parse_order(&["last_updated_timestamp DESC".to_owned(), "name".to_owned()]).is_ok());
        assert!(MODEL_ORDER.parse_order(&["bogus".to_owned()]).is_err());
    }
}
