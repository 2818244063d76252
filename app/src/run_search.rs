//! Searching runs: filter and order as texts, pages by token.

use sluice_domain::{
    filter::{Comparison, Entity, EntityRule, Grammar, KeyRule, Keys, Kind, NUMERIC, OrderBy, TEXT, TEXT_OR_LIST, TEXT_OR_NULL},
    tracking::Run,
};
use sluice_store::{
    run_search::{self, MAX_ORDER_KEYS, RunQuery},
    search_sql::SortValue,
};

use crate::{
    App, Error, Result,
    page::{Page, decode_token, encode_token},
    tracking::{View, check_max_results, filter_error, order_error, search_error},
};

/// Most runs on one page.
pub const MAX_PAGE: i64 = 50_000;

const FREE_TEXT: Keys = Keys::Free(KeyRule { names: &[], kind: Kind::Text, operators: TEXT_OR_NULL });

/// What a search of runs may ask for.
pub const GRAMMAR: Grammar = Grammar {
    double_quotes: true,
    entities: &[
        EntityRule {
            entity: Entity::Metric,
            names: &["metric", "metrics"],
            keys: Keys::Free(KeyRule { names: &[], kind: Kind::Number, operators: NUMERIC }),
        },
        EntityRule { entity: Entity::Param, names: &["parameter", "parameters", "param", "params"], keys: FREE_TEXT },
        EntityRule { entity: Entity::Tag, names: &["tag", "tags"], keys: FREE_TEXT },
        EntityRule {
            entity: Entity::Attribute,
            names: &["attribute", "attributes", "attr", "run"],
            keys: Keys::Named(&[
                KeyRule { names: &["run_id"], kind: Kind::Text, operators: TEXT_OR_LIST },
                KeyRule { names: &["run_name", "run name", "Run name", "Run Name"], kind: Kind::Text, operators: TEXT },
                KeyRule { names: &["status"], kind: Kind::Text, operators: TEXT },
                KeyRule { names: &["user_id"], kind: Kind::Text, operators: TEXT },
                KeyRule { names: &["artifact_uri"], kind: Kind::Text, operators: TEXT },
                KeyRule { names: &["start_time", "created", "Created"], kind: Kind::Number, operators: NUMERIC },
                KeyRule { names: &["end_time"], kind: Kind::Number, operators: NUMERIC },
            ]),
        },
        EntityRule {
            entity: Entity::Dataset,
            names: &["dataset", "datasets"],
            keys: Keys::Named(&[
                KeyRule { names: &["name"], kind: Kind::Text, operators: TEXT_OR_LIST },
                KeyRule { names: &["digest"], kind: Kind::Text, operators: TEXT_OR_LIST },
                KeyRule { names: &["context"], kind: Kind::Text, operators: TEXT_OR_LIST },
            ]),
        },
    ],
};

/// A search of runs.
#[derive(Debug, Clone, Default)]
pub struct RunSearch {
    /// Unknown experiments have no runs.
    pub experiment_ids: Vec<i32>,
    /// `metrics.loss < 0.5 AND params.optimizer = 'adam'`; empty: all.
    pub filter: String,
    pub view: View,
    /// Each `metrics.loss DESC`, `start_time`, …; then latest first.
    pub order_by: Vec<String>,
    pub max_results: i64,
    /// From the page before.
    pub page_token: Option<String>,
}

impl RunSearch {
    fn parse(&self) -> Result<(Vec<Comparison>, Vec<OrderBy>)> {
        let filter = GRAMMAR.parse(&self.filter).map_err(filter_error)?;
        let order = GRAMMAR.parse_order(&self.order_by).map_err(order_error)?;
        if let Some(bad) = order.iter().find(|order| order.entity == Entity::Dataset) {
            return Err(Error::invalid("order_by", format!("Invalid identifier type '{}'", bad.entity.as_str())));
        }
        if order.len() > MAX_ORDER_KEYS {
            return Err(Error::invalid(
                "order_by",
                format!("`order_by` has {} fields, at most {MAX_ORDER_KEYS} are allowed.", order.len()),
            ));
        }
        Ok((filter, order))
    }

    /// What a page token depends on.
    fn scope(&self) -> impl serde::Serialize {
        ("runs", &self.experiment_ids, self.view, &self.filter, &self.order_by)
    }
}

/// Finds runs, with everything that was logged to them, in a constant number of queries.
///
/// # Errors
/// [`Error::Invalid`] when filter, order, size or token are malformed.
pub async fn search_runs(app: &App, search: &RunSearch) -> Result<Page<Run>> {
    check_max_results(search.max_results, MAX_PAGE)?;
    let (filter, order) = search.parse()?;
    let scope = search.scope();
    let after: Option<Vec<SortValue>> = search.page_token.as_deref().map(|token| decode_token(&scope, token)).transpose()?;
    if search.experiment_ids.is_empty() {
        return Ok(Page { items: Vec::new(), next_page_token: None });
    }
    let query = RunQuery {
        experiment_ids: &search.experiment_ids,
        lifecycle: search.view.lifecycle(),
        filter: &filter,
        order: &order,
        after: after.as_deref(),
        limit: search.max_results,
    };
    let mut tx = app.begin().await?;
    let page = run_search::search_runs(&mut tx, &query).await.map_err(search_error)?;
    Ok(Page { items: page.runs, next_page_token: page.next.map(|position| encode_token(&scope, position)) })
}

/// Counts all runs that a search finds, whatever its page.
///
/// # Errors
/// [`Error::Invalid`] when the filter is malformed.
pub async fn count_runs(app: &App, search: &RunSearch) -> Result<i64> {
    let (filter, _) = search.parse()?;
    let query = RunQuery {
        experiment_ids: &search.experiment_ids,
        lifecycle: search.view.lifecycle(),
        filter: &filter,
        order: &[],
        after: None,
        limit: 0,
    };
    let mut tx = app.begin().await?;
    Ok(run_search::count_runs(&mut tx, &query).await?)
}
