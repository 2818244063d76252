//! The search of logged models.

use sluice_domain::{
    filter::{Entity, EntityRule, FilterError, Grammar, KeyRule, Keys, Kind, NUMERIC, Operator, TEXT_OR_LIST},
    logged_model::LoggedModel,
};
pub use sluice_store::logged_model_search::DatasetRef as DatasetFilter;
use sluice_store::{
    logged_model_search::{self, LoggedModelQuery, MAX_ORDER, OrderKey},
    search_sql::SortValue,
};

use crate::{
    App, Error, Result,
    page::{Page, decode_token, encode_token},
};

/// What a client asks for.
#[derive(Debug, Clone, Default)]
pub struct Search {
    pub experiment_ids: Vec<i32>,
    pub filter: String,
    pub datasets: Vec<DatasetFilter>,
    pub order_by: Vec<ModelOrder>,
    pub max_results: i64,
    pub page_token: Option<String>,
}

/// One key of the order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelOrder {
    /// An attribute, or `metrics.KEY`.
    pub field_name: String,
    pub ascending: bool,
    pub dataset: Option<DatasetFilter>,
}

const STATUS: &[Operator] = &[Operator::Eq, Operator::Ne, Operator::In, Operator::NotIn];
const FREE_TEXT: Keys = Keys::Free(KeyRule { names: &[], kind: Kind::Text, operators: TEXT_OR_LIST });

const fn text(names: &'static [&'static str]) -> KeyRule {
    KeyRule { names, kind: Kind::Text, operators: TEXT_OR_LIST }
}

const GRAMMAR: Grammar = Grammar {
    double_quotes: false,
    entities: &[
        EntityRule {
            entity: Entity::Attribute,
            names: &["attributes"],
            keys: Keys::Named(&[
                text(&["name"]),
                text(&["model_id"]),
                text(&["model_type"]),
                KeyRule { names: &["status"], kind: Kind::Text, operators: STATUS },
                text(&["source_run_id"]),
                text(&["experiment_id"]),
                text(&["artifact_location"]),
                text(&["lifecycle_stage"]),
                KeyRule { names: &["creation_timestamp", "creation_time"], kind: Kind::Number, operators: NUMERIC },
                KeyRule { names: &["last_updated_timestamp", "last_updated_time"], kind: Kind::Number, operators: NUMERIC },
            ]),
        },
        EntityRule {
            entity: Entity::Metric,
            names: &["metrics"],
            keys: Keys::Free(KeyRule { names: &[], kind: Kind::Number, operators: NUMERIC }),
        },
        EntityRule { entity: Entity::Param, names: &["params"], keys: FREE_TEXT },
        EntityRule { entity: Entity::Tag, names: &["tags"], keys: FREE_TEXT },
    ],
};

/// Searches live logged models.
///
/// # Errors
/// When the filter, order, page size or token is not valid.
pub async fn search_models(app: &App, search: &Search) -> Result<Page<LoggedModel>> {
    if !(1..=50_000).contains(&search.max_results) {
        let message = format!(
            "Invalid value for parameter 'max_results' supplied: it must be between 1 and 50000, but got value {}.",
            search.max_results
        );
        return Err(Error::invalid("max_results", message));
    }
    let filter = GRAMMAR.parse(&search.filter).map_err(|FilterError(message)| Error::invalid("filter", message))?;
    let order = order(&search.order_by)?;
    let scope = scope(search);
    let after: Option<Vec<SortValue>> =
        search.page_token.as_deref().filter(|token| !token.is_empty()).map(|token| decode_token(&scope, token)).transpose()?;
    let query = LoggedModelQuery {
        experiment_ids: &search.experiment_ids,
        filter: &filter,
        datasets: &search.datasets,
        order: &order,
        after: after.as_deref(),
        limit: search.max_results,
    };
    let mut db = app.connection().await?;
    let (items, next) = logged_model_search::search_logged_models(&mut db, &query).await?;
    Ok(Page { items, next_page_token: next.map(|position| encode_token(&scope, position)) })
}

/// Everything that positions in the list depend on, as text.
fn scope(search: &Search) -> Vec<String> {
    vec![
        "logged models".to_owned(),
        format!("{:?}", search.experiment_ids),
        search.filter.clone(),
        format!("{:?}", search.datasets),
        format!("{:?}", search.order_by),
    ]
}

fn order(items: &[ModelOrder]) -> Result<Vec<(OrderKey, bool)>> {
    let invalid = |message: String| Error::invalid("order_by", message);
    if items.len() > MAX_ORDER {
        return Err(invalid(format!("`order_by` has more than {MAX_ORDER} fields.")));
    }
    let mut keys: Vec<(OrderKey, bool)> = Vec::with_capacity(items.len());
    for item in items {
        let parsed = GRAMMAR.parse_order(std::slice::from_ref(&item.field_name)).map_err(|FilterError(message)| invalid(message))?;
        let key = match parsed.into_iter().next() {
            Some(by) if by.entity == Entity::Attribute => OrderKey::Attribute(by.key),
            Some(by) if by.entity == Entity::Metric => OrderKey::Metric { key: by.key, dataset: item.dataset.clone() },
            _ => return Err(invalid(format!("Invalid order by field name: {}. Only metrics are supported.", item.field_name))),
        };
        if keys.iter().any(|(known, _)| *known == key) {
            return Err(invalid(format!("`order_by` contains the field {} twice.", item.field_name)));
        }
        keys.push((key, !item.ascending));
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grammar_of_logged_models() {
        for good in [
            "name = 'a'",
            "attributes.status IN ('READY', 'PENDING')",
            "metrics.loss < 0.5 AND params.lr = '1'",
            "creation_time > 5",
            "tags.a LIKE '%b'",
        ] {
            assert!(GRAMMAR.parse(good).is_ok(), "{good}: {:?}", GRAMMAR.parse(good));
        }
        for bad in ["metric.loss < 1", "name = \"a\"", "status LIKE 'R%'", "bogus = 'x'", "name > 'a'"] {
            assert!(GRAMMAR.parse(bad).is_err(), "{bad}");
        }
        let by = |field: &str| order(&[ModelOrder { field_name: field.to_owned(), ascending: true, dataset: None }]);
        assert!(by("metrics.loss").is_ok() && by("creation_timestamp").is_ok());
        assert!(by("params.x").unwrap_err().to_string().contains("Only metrics are supported"));
    }
}
