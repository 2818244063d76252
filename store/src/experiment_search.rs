//! The list of experiments: filter, order and page chosen by the caller.

use sluice_domain::{
    filter::{Comparison, Entity, Literal, Operator, OrderBy},
    tracking::Experiment,
};
use sqlx::{PgConnection, Postgres, QueryBuilder, Row as _};

use crate::{
    Result,
    experiment::list_experiments_by_id,
    search_sql::{SortColumn, SortType, SortValue, fetch_page, push_after, push_integer_comparison, push_text_comparison},
};

/// What to search.
#[derive(Debug, Clone, Copy)]
pub struct ExperimentQuery<'a> {
    /// `active`, `deleted`, or `None` for both.
    pub lifecycle: Option<&'a str>,
    pub filter: &'a [Comparison],
    pub order: &'a [OrderBy],
    /// Position of the last experiment of the page before.
    pub after: Option<&'a [SortValue]>,
    pub limit: i64,
}

/// A page of experiments.
#[derive(Debug, Clone, PartialEq)]
pub struct ExperimentPage {
    pub experiments: Vec<Experiment>,
    /// Position of the last one when more follow.
    pub next: Option<Vec<SortValue>>,
}

/// Finds experiments.
///
/// # Errors
/// When the database fails, or `after` does not fit the order.
pub async fn search_experiments(db: &mut PgConnection, query: &ExperimentQuery<'_>) -> Result<ExperimentPage> {
    let columns = sort_columns(query.order);
    let mut sql = QueryBuilder::new(
        "SELECT q.* FROM (SELECT e.id, e.id::bigint AS experiment_id, e.name,
                floor(extract(epoch FROM e.created_at) * 1000)::bigint AS creation_time,
                floor(extract(epoch FROM e.updated_at) * 1000)::bigint AS last_update_time
         FROM experiments e WHERE true",
    );
    if let Some(lifecycle) = query.lifecycle {
        sql.push(" AND e.lifecycle = ").push_bind(lifecycle.to_owned());
    }
    for comparison in query.filter.iter().filter(|comparison| comparison.entity == Entity::Tag) {
        push_tag(&mut sql, comparison);
    }
    sql.push(") q WHERE true");
    for comparison in query.filter.iter().filter(|comparison| comparison.entity == Entity::Attribute) {
        sql.push(" AND ");
        push_attribute(&mut sql, comparison);
    }
    if let Some(after) = query.after {
        sql.push(" AND ");
        push_after(&mut sql, &columns, after)?;
    }
    let (rows, next) = fetch_page(db, sql, &columns, query.limit).await?;
    let ids = rows.iter().map(|row| row.try_get("id")).collect::<std::result::Result<Vec<i32>, _>>()?;
    Ok(ExperimentPage { experiments: list_experiments_by_id(db, &ids).await?, next })
}

/// Default: latest first, then by id; with keys of the caller's, ties go to the greater id.
fn sort_columns(order: &[OrderBy]) -> Vec<SortColumn> {
    let column = |name, sort_type, descending| SortColumn { name, sort_type, nullable: false, descending };
    if order.is_empty() {
        return vec![column("creation_time", SortType::Integer, true), column("experiment_id", SortType::Integer, false)];
    }
    let mut columns: Vec<SortColumn> = order
        .iter()
        .map(|order| match order.key.as_str() {
            "name" => column("name", SortType::Text, order.descending),
            "experiment_id" => column("experiment_id", SortType::Integer, order.descending),
            "last_update_time" => column("last_update_time", SortType::Integer, order.descending),
            _ => column("creation_time", SortType::Integer, order.descending),
        })
        .collect();
    if !columns.iter().any(|column| column.name == "experiment_id") {
        columns.push(column("experiment_id", SortType::Integer, true));
    }
    columns
}

fn push_attribute(sql: &mut QueryBuilder<Postgres>, comparison: &Comparison) {
    match (comparison.key.as_str(), comparison.operator, &comparison.value) {
        ("name", operator, value) => push_text_comparison(sql, "q.name", operator, value),
        ("experiment_id", operator, Literal::List(ids)) => {
            sql.push(if operator == Operator::NotIn { "q.experiment_id <> ALL(" } else { "q.experiment_id = ANY(" });
            sql.push_bind(ids.iter().filter_map(|id| id.parse::<i64>().ok()).collect::<Vec<_>>()).push(")");
        }
        ("experiment_id", operator, Literal::Text(id)) => {
            sql.push(if operator == Operator::Ne { "q.experiment_id <> " } else { "q.experiment_id = " });
            sql.push_bind(id.parse::<i64>().unwrap_or(-1));
        }
        ("last_update_time", operator, value) => push_integer_comparison(sql, "q.last_update_time", operator, value),
        (_, operator, value) => push_integer_comparison(sql, "q.creation_time", operator, value),
    }
}

fn push_tag(sql: &mut QueryBuilder<Postgres>, comparison: &Comparison) {
    sql.push(if comparison.operator == Operator::IsNull { " AND NOT " } else { " AND " });
    sql.push("EXISTS (SELECT 1 FROM experiment_tags x WHERE x.experiment_id = e.id AND x.key = ")
        .push_bind(comparison.key.clone())
        .push(" AND ");
    match comparison.operator {
        Operator::IsNull | Operator::IsNotNull => {
            sql.push("true");
        }
        operator => push_text_comparison(sql, "x.value", operator, &comparison.value),
    }
    sql.push(")");
}
