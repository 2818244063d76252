//! The list of logged models: filter, order and page chosen by the caller.

use sluice_domain::{
    filter::{Comparison, Entity},
    logged_model::LoggedModel,
};
use sqlx::{PgConnection, Postgres, QueryBuilder, Row as _};

use crate::{
    Error, Result,
    logged_model::list_logged_models_by_id,
    search_sql::{
        SORT_NAMES, SortColumn, SortType, SortValue, fetch_page, push_after, push_float_comparison, push_integer_comparison,
        push_text_comparison,
    },
};

/// A dataset that metrics must be of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetRef {
    pub name: String,
    /// `None`: any.
    pub digest: Option<String>,
}

/// What to sort by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrderKey {
    /// Name in the grammar.
    Attribute(String),
    /// The latest value of a metric, of a dataset or of any.
    Metric { key: String, dataset: Option<DatasetRef> },
}

/// What to search.
#[derive(Debug, Clone, Copy)]
pub struct LoggedModelQuery<'a> {
    pub experiment_ids: &'a [i32],
    pub filter: &'a [Comparison],
    /// Metric comparisons look only at metrics of these; none: at all.
    pub datasets: &'a [DatasetRef],
    /// Each with whether it descends.
    pub order: &'a [(OrderKey, bool)],
    /// Position of the last model of the page before.
    pub after: Option<&'a [SortValue]>,
    pub limit: i64,
}

/// Most sort keys.
pub const MAX_ORDER: usize = SORT_NAMES.len();

/// Finds live logged models; also gives the position of the last one when more follow.
///
/// # Errors
/// When the database fails, or `after` does not fit the order.
pub async fn search_logged_models(
    db: &mut PgConnection,
    query: &LoggedModelQuery<'_>,
) -> Result<(Vec<LoggedModel>, Option<Vec<SortValue>>)> {
    let mut sql = QueryBuilder::new(
        "SELECT q.* FROM (SELECT m.id, m.name, m.model_type, m.status, m.artifact_uri, m.lifecycle, m.experiment_id::text AS experiment_id,
                replace(m.source_run_id::text, '-', '') AS source_run_id,
                floor(extract(epoch FROM m.created_at) * 1000)::bigint AS created_ms,
                floor(extract(epoch FROM m.created_at) * 1000000)::bigint AS created_us,
                floor(extract(epoch FROM m.updated_at) * 1000)::bigint AS updated_ms",
    );
    let columns = push_sort_columns(&mut sql, query.order)?;
    sql.push(" FROM logged_models m WHERE m.lifecycle = 'active' AND m.experiment_id = ANY(")
        .push_bind(query.experiment_ids.to_vec())
        .push(")) q WHERE true");
    for comparison in query.filter {
        sql.push(" AND ");
        push_comparison(&mut sql, comparison, query.datasets);
    }
    if !query.datasets.is_empty() && !query.filter.iter().any(|comparison| comparison.entity == Entity::Metric) {
        sql.push(" AND EXISTS (SELECT FROM logged_model_metrics x WHERE x.model_id = q.id");
        push_datasets(&mut sql, query.datasets);
        sql.push(")");
    }
    if let Some(after) = query.after {
        sql.push(" AND ");
        push_after(&mut sql, &columns, after)?;
    }
    let (rows, next) = fetch_page(db, sql, &columns, query.limit).await?;
    let ids = rows.iter().map(|row| row.try_get("id")).collect::<std::result::Result<Vec<String>, _>>()?;
    Ok((list_logged_models_by_id(db, &ids).await?, next))
}

/// Adds computed columns for metrics to the selection and says what to sort by.
fn push_sort_columns(sql: &mut QueryBuilder<Postgres>, order: &[(OrderKey, bool)]) -> Result<Vec<SortColumn>> {
    if order.len() > MAX_ORDER {
        return Err(Error::Malformed { what: "order", message: "too many keys".to_owned() });
    }
    let mut columns = Vec::with_capacity(order.len() + 2);
    for ((key, descending), computed) in order.iter().zip(SORT_NAMES) {
        let (name, sort_type, nullable) = match key {
            OrderKey::Attribute(key) => match key.as_str() {
                "name" => ("name", SortType::Text, false),
                "model_id" => ("id", SortType::Text, false),
                "model_type" => ("model_type", SortType::Text, false),
                "status" => ("status", SortType::Text, false),
                "source_run_id" => ("source_run_id", SortType::Text, true),
                "experiment_id" => ("experiment_id", SortType::Text, false),
                "artifact_location" => ("artifact_uri", SortType::Text, false),
                "lifecycle_stage" => ("lifecycle", SortType::Text, false),
                "last_updated_timestamp" => ("updated_ms", SortType::Integer, false),
                _ => ("created_ms", SortType::Integer, false),
            },
            OrderKey::Metric { key, dataset } => {
                sql.push(", (SELECT x.value FROM logged_model_metrics x WHERE x.model_id = m.id AND x.key = ").push_bind(key.clone());
                push_datasets(sql, dataset.as_slice());
                sql.push(" ORDER BY x.step DESC, x.timestamp_ms DESC, x.value DESC LIMIT 1) AS ").push(computed);
                (computed, SortType::Float, true)
            }
        };
        columns.push(SortColumn { name, sort_type, nullable, descending: *descending });
    }
    if !columns.iter().any(|column| matches!(column.name, "created_ms")) {
        columns.push(SortColumn { name: "created_us", sort_type: SortType::Integer, nullable: false, descending: true });
    }
    if !columns.iter().any(|column| column.name == "id") {
        columns.push(SortColumn { name: "id", sort_type: SortType::Text, nullable: false, descending: false });
    }
    Ok(columns)
}

fn push_comparison(sql: &mut QueryBuilder<Postgres>, comparison: &Comparison, datasets: &[DatasetRef]) {
    let (operator, value) = (comparison.operator, &comparison.value);
    match (comparison.entity, comparison.key.as_str()) {
        (Entity::Metric, key) => {
            // the latest value decides
            sql.push("EXISTS (SELECT FROM (SELECT x.value FROM logged_model_metrics x WHERE x.model_id = q.id AND x.key = ")
                .push_bind(key.to_owned());
            push_datasets(sql, datasets);
            sql.push(" ORDER BY x.step DESC, x.timestamp_ms DESC, x.value DESC LIMIT 1) x WHERE ");
            push_float_comparison(sql, "x.value", operator, value);
            sql.push(")");
        }
        (Entity::Param, key) => {
            sql.push("EXISTS (SELECT FROM logged_model_params x WHERE x.model_id = q.id AND x.key = ")
                .push_bind(key.to_owned())
                .push(" AND ");
            push_text_comparison(sql, "x.value", operator, value);
            sql.push(")");
        }
        (Entity::Tag, key) => {
            sql.push("EXISTS (SELECT FROM logged_model_tags x WHERE x.model_id = q.id AND x.key = ")
                .push_bind(key.to_owned())
                .push(" AND ");
            push_text_comparison(sql, "x.value", operator, value);
            sql.push(")");
        }
        (_, "creation_timestamp") => push_integer_comparison(sql, "q.created_ms", operator, value),
        (_, "last_updated_timestamp") => push_integer_comparison(sql, "q.updated_ms", operator, value),
        (_, key) => {
            let column = match key {
                "name" => "q.name",
                "model_id" => "q.id",
                "model_type" => "q.model_type",
                "status" => "q.status",
                "source_run_id" => "q.source_run_id",
                "experiment_id" => "q.experiment_id",
                "lifecycle_stage" => "q.lifecycle",
                _ => "q.artifact_uri",
            };
            push_text_comparison(sql, column, operator, value);
        }
    }
}

/// Pushes the condition that `x` is a metric of one of the datasets.
fn push_datasets(sql: &mut QueryBuilder<Postgres>, datasets: &[DatasetRef]) {
    let mut separator = " AND (";
    for dataset in datasets {
        sql.push(separator).push("(x.dataset_name = ").push_bind(dataset.name.clone());
        if let Some(digest) = &dataset.digest {
            sql.push(" AND x.dataset_digest = ").push_bind(digest.clone());
        }
        sql.push(")");
        separator = " OR ";
    }
    if !datasets.is_empty() {
        sql.push(")");
    }
}
