//! The runs table: filter, order and page chosen by the caller.

use sluice_domain::{
    filter::{Comparison, Entity, Literal, Operator, OrderBy},
    id::RunId,
    tracking::{Run, RunInfo},
};
use sqlx::{PgConnection, Postgres, QueryBuilder, Row as _, postgres::PgRow};
use uuid::Uuid;

use crate::{
    Result,
    run::{RunRow, load_runs},
    search_sql::{
        SORT_NAMES, SortColumn, SortType, SortValue, fetch_page, push_after, push_float_comparison, push_integer_comparison,
        push_text_comparison,
    },
};

/// Most keys in one order.
pub const MAX_ORDER_KEYS: usize = SORT_NAMES.len();

/// What to search.
#[derive(Debug, Clone, Copy)]
pub struct RunQuery<'a> {
    pub experiment_ids: &'a [i32],
    /// `active`, `deleted`, or `None` for both.
    pub lifecycle: Option<&'a str>,
    pub filter: &'a [Comparison],
    pub order: &'a [OrderBy],
    /// Position of the last run of the page before.
    pub after: Option<&'a [SortValue]>,
    pub limit: i64,
}

/// A page of runs.
#[derive(Debug, Clone, PartialEq)]
pub struct RunPage {
    pub runs: Vec<Run>,
    /// Position of the last run when more follow.
    pub next: Option<Vec<SortValue>>,
}

/// Finds runs: a constant number of queries for a page of any size.
///
/// # Errors
/// When the database fails, or `after` does not fit the order.
pub async fn search_runs(db: &mut PgConnection, query: &RunQuery<'_>) -> Result<RunPage> {
    let columns = sort_columns(query.order);
    let mut sql = QueryBuilder::new(
        "SELECT * FROM (SELECT r.id, r.experiment_id, r.name, r.user_id, r.status, r.start_time_ms, r.end_time_ms, r.artifact_uri, r.lifecycle",
    );
    for (order, name) in query.order.iter().zip(SORT_NAMES) {
        sql.push(", ");
        push_sort_expression(&mut sql, order);
        sql.push(" AS ").push(name);
    }
    sql.push(" FROM runs r WHERE ");
    push_conditions(&mut sql, query);
    sql.push(") q");
    if let Some(after) = query.after {
        sql.push(" WHERE ");
        push_after(&mut sql, &columns, after)?;
    }
    let (rows, next) = fetch_page(db, sql, &columns, query.limit).await?;
    let infos = rows.iter().map(read_info).collect::<Result<Vec<_>>>()?;
    Ok(RunPage { runs: load_runs(db, infos).await?, next })
}

/// Counts the runs that a query finds, without its page.
///
/// # Errors
/// When the database fails.
pub async fn count_runs(db: &mut PgConnection, query: &RunQuery<'_>) -> Result<i64> {
    let mut sql = QueryBuilder::new("SELECT count(*) FROM runs r WHERE ");
    push_conditions(&mut sql, query);
    Ok(sql.build_query_scalar().fetch_one(db).await?)
}

fn read_info(row: &PgRow) -> Result<RunInfo> {
    RunRow {
        id: row.try_get("id")?,
        experiment_id: row.try_get("experiment_id")?,
        name: row.try_get("name")?,
        user_id: row.try_get("user_id")?,
        status: row.try_get("status")?,
        start_time_ms: row.try_get("start_time_ms")?,
        end_time_ms: row.try_get("end_time_ms")?,
        artifact_uri: row.try_get("artifact_uri")?,
        lifecycle: row.try_get("lifecycle")?,
    }
    .try_into()
}

/// The caller's keys, then start time (latest first) unless given, then the id.
fn sort_columns(order: &[OrderBy]) -> Vec<SortColumn> {
    let mut columns: Vec<SortColumn> = order
        .iter()
        .zip(SORT_NAMES)
        .map(|(order, name)| {
            let (sort_type, nullable) = match (order.entity, order.key.as_str()) {
                (Entity::Attribute, "start_time") => (SortType::Integer, false),
                (Entity::Attribute, "end_time") => (SortType::Integer, true),
                (Entity::Attribute, _) => (SortType::Text, false),
                (Entity::Metric, _) => (SortType::Float, true),
                _ => (SortType::Text, true),
            };
            SortColumn { name, sort_type, nullable, descending: order.descending }
        })
        .collect();
    if !order.iter().any(|order| order.entity == Entity::Attribute && order.key == "start_time") {
        columns.push(SortColumn { name: "start_time_ms", sort_type: SortType::Integer, nullable: false, descending: true });
    }
    columns.push(SortColumn { name: "id", sort_type: SortType::Uuid, nullable: false, descending: false });
    columns
}

/// An attribute of a run as SQL over `runs r`.
fn attribute_expression(key: &str) -> &'static str {
    match key {
        "run_id" => "replace(r.id::text, '-', '')",
        "run_name" => "r.name",
        "status" => "r.status",
        "user_id" => "r.user_id",
        "artifact_uri" => "r.artifact_uri",
        "end_time" => "r.end_time_ms",
        _ => "r.start_time_ms",
    }
}

fn push_sort_expression(sql: &mut QueryBuilder<Postgres>, order: &OrderBy) {
    let (table, column) = match order.entity {
        Entity::Attribute => {
            sql.push(attribute_expression(&order.key));
            return;
        }
        Entity::Metric => ("metric_series", "last_value"),
        Entity::Param => ("run_params", "value"),
        Entity::Tag | Entity::Dataset => ("run_tags", "value"),
    };
    sql.push("(SELECT x.").push(column).push(" FROM ").push(table).push(" x WHERE x.run_id = r.id AND x.key = ");
    sql.push_bind(order.key.clone()).push(")");
}

fn push_conditions(sql: &mut QueryBuilder<Postgres>, query: &RunQuery<'_>) {
    match query.experiment_ids {
        // the index on (experiment, start) then also gives the order
        [id] => sql.push("r.experiment_id = ").push_bind(*id),
        ids => sql.push("r.experiment_id = ANY(").push_bind(ids.to_vec()).push(")"),
    };
    if let Some(lifecycle) = query.lifecycle {
        sql.push(" AND r.lifecycle = ").push_bind(lifecycle.to_owned());
    }
    for comparison in query.filter {
        sql.push(" AND ");
        match comparison.entity {
            Entity::Attribute => push_attribute(sql, comparison),
            Entity::Metric => {
                push_exists(sql, "metric_series", &comparison.key);
                push_float_comparison(sql, "x.last_value", comparison.operator, &comparison.value);
                sql.push(")");
            }
            Entity::Param => push_key_value(sql, "run_params", comparison),
            Entity::Tag => push_key_value(sql, "run_tags", comparison),
            Entity::Dataset => push_dataset(sql, comparison),
        }
    }
}

fn push_exists(sql: &mut QueryBuilder<Postgres>, table: &'static str, key: &str) {
    sql.push("EXISTS (SELECT 1 FROM ").push(table).push(" x WHERE x.run_id = r.id AND x.key = ").push_bind(key.to_owned()).push(" AND ");
}

/// A param or tag: a run without it never matches, except `IS NULL`.
fn push_key_value(sql: &mut QueryBuilder<Postgres>, table: &'static str, comparison: &Comparison) {
    if comparison.operator == Operator::IsNull {
        sql.push("NOT ");
    }
    push_exists(sql, table, &comparison.key);
    match comparison.operator {
        Operator::IsNull | Operator::IsNotNull => {
            sql.push("true");
        }
        operator => push_text_comparison(sql, "x.value", operator, &comparison.value),
    }
    sql.push(")");
}

fn push_attribute(sql: &mut QueryBuilder<Postgres>, comparison: &Comparison) {
    let expression = attribute_expression(&comparison.key);
    match (comparison.key.as_str(), comparison.operator, &comparison.value) {
        ("start_time" | "end_time", operator, value) => push_integer_comparison(sql, expression, operator, value),
        // by the primary key where that is the same; a text that is no id is nobody's
        ("run_id", Operator::Eq, Literal::Text(id)) => {
            sql.push("r.id = ANY(").push_bind(ids(std::slice::from_ref(id))).push(")");
        }
        ("run_id", Operator::In, Literal::List(list)) => {
            sql.push("r.id = ANY(").push_bind(ids(list)).push(")");
        }
        (_, operator, value) => push_text_comparison(sql, expression, operator, value),
    }
}

/// The texts that are run ids in their one text form.
fn ids(texts: &[String]) -> Vec<Uuid> {
    texts.iter().filter_map(|text| text.parse::<RunId>().ok().filter(|id| id.to_string() == *text)).map(|id| id.0).collect()
}

fn push_dataset(sql: &mut QueryBuilder<Postgres>, comparison: &Comparison) {
    sql.push("EXISTS (SELECT 1 FROM run_datasets x JOIN datasets d ON d.id = x.dataset_id WHERE x.run_id = r.id AND ");
    match comparison.key.as_str() {
        "name" => push_text_comparison(sql, "d.name", comparison.operator, &comparison.value),
        "digest" => push_text_comparison(sql, "d.digest", comparison.operator, &comparison.value),
        _ => {
            sql.push("EXISTS (SELECT 1 FROM jsonb_array_elements(x.tags) t WHERE t->>'key' = 'mlflow.data.context' AND ");
            push_text_comparison(sql, "t->>'value'", comparison.operator, &comparison.value);
            sql.push(")");
        }
    }
    sql.push(")");
}
