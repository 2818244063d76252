//! Lists of registered models and of versions: filter, order and page chosen by the caller.

use sluice_domain::{
    filter::{Comparison, Entity, Literal, Operator, OrderBy},
    registry::{ModelVersion, PROMPT_TAG, RegisteredModel},
};
use sqlx::{PgConnection, Postgres, QueryBuilder, Row as _, postgres::PgRow};
use uuid::Uuid;

use crate::{
    Result,
    model_version::{VersionRow, load_versions},
    registered_model::{ModelRow, load_registered_models},
    search_sql::{SortColumn, SortType, SortValue, fetch_page, push_after, push_integer_comparison, push_text_comparison},
};

/// What to search.
#[derive(Debug, Clone, Copy)]
pub struct RegistryQuery<'a> {
    pub filter: &'a [Comparison],
    pub order: &'a [OrderBy],
    /// Position of the last row of the page before.
    pub after: Option<&'a [SortValue]>,
    pub limit: i64,
}

impl<'a> RegistryQuery<'a> {
    /// The comparisons that decide. Where prompts are left out, what the filter says of their tag is that, and
    /// no more: models, which have no such tag, satisfy `!= 'true'` too.
    fn comparisons(&self) -> impl Iterator<Item = &'a Comparison> + use<'a> {
        let with_prompts = self.asks_for_prompts();
        self.filter.iter().filter(move |comparison| with_prompts || comparison.entity != Entity::Tag || comparison.key != PROMPT_TAG)
    }

    /// Whether the filter itself decides on prompts. Otherwise they are left out.
    fn asks_for_prompts(&self) -> bool {
        self.filter.iter().filter(|comparison| comparison.entity == Entity::Tag && comparison.key == PROMPT_TAG).any(|comparison| {
            match (comparison.operator, &comparison.value) {
                (Operator::Eq, Literal::Text(text)) => text.eq_ignore_ascii_case("true"),
                (Operator::Ne, Literal::Text(text)) => text.eq_ignore_ascii_case("false"),
                _ => false,
            }
        })
    }
}

/// A page of rows and the position of the last one when more follow.
pub type Found<T> = (Vec<T>, Option<Vec<SortValue>>);

/// Finds registered models.
///
/// # Errors
/// When the database fails, or `after` does not fit the order.
pub async fn search_registered_models(db: &mut PgConnection, query: &RegistryQuery<'_>) -> Result<Found<RegisteredModel>> {
    let mut columns: Vec<SortColumn> = query
        .order
        .iter()
        .map(|order| match order.key.as_str() {
            "name" => text_column("name", order.descending),
            _ => time_column("updated_ms", order.descending),
        })
        .collect();
    add_tie_break(&mut columns, text_column("name", false));
    let mut sql = QueryBuilder::new(
        "SELECT q.* FROM (SELECT m.id, m.name, m.description, m.created_at, m.updated_at,
                floor(extract(epoch FROM m.updated_at) * 1000000)::bigint AS updated_ms
         FROM registered_models m) q WHERE true",
    );
    for comparison in query.comparisons() {
        sql.push(" AND ");
        match comparison.entity {
            Entity::Tag => {
                push_tag(&mut sql, "EXISTS (SELECT FROM registered_model_tags t WHERE t.model_id = q.id AND t.key = ", comparison)
            }
            _ => push_text_comparison(&mut sql, "q.name", comparison.operator, &comparison.value),
        }
    }
    if !query.asks_for_prompts() {
        sql.push(" AND NOT EXISTS (SELECT FROM registered_model_tags t WHERE t.model_id = q.id AND lower(t.value) = 'true' AND t.key = ")
            .push_bind(PROMPT_TAG)
            .push(")");
    }
    let (rows, next) = fetch(db, sql, &columns, query).await?;
    let rows = rows
        .iter()
        .map(|row| {
            Ok(ModelRow {
                id: row.try_get("id")?,
                name: row.try_get("name")?,
                description: row.try_get("description")?,
                created_at: row.try_get("created_at")?,
                updated_at: row.try_get("updated_at")?,
            })
        })
        .collect::<Result<Vec<_>>>()?;
    Ok((load_registered_models(db, rows).await?, next))
}

/// Finds live versions. Aliases are not filled in.
///
/// # Errors
/// When the database fails, or `after` does not fit the order.
pub async fn search_versions(db: &mut PgConnection, query: &RegistryQuery<'_>) -> Result<Found<ModelVersion>> {
    let mut columns: Vec<SortColumn> = query
        .order
        .iter()
        .map(|order| match order.key.as_str() {
            "name" => text_column("name", order.descending),
            "version_number" => time_column("version_number", order.descending),
            "creation_timestamp" => time_column("created_ms", order.descending),
            _ => time_column("updated_ms", order.descending),
        })
        .collect();
    if columns.is_empty() {
        columns.push(time_column("updated_ms", true));
    }
    add_tie_break(&mut columns, text_column("name", false));
    add_tie_break(&mut columns, time_column("version_number", true));
    let mut sql = QueryBuilder::new(
        "SELECT q.* FROM (SELECT v.*, m.name, v.version::bigint AS version_number, replace(v.run_id::text, '-', '') AS run_hex,
                floor(extract(epoch FROM v.created_at) * 1000000)::bigint AS created_ms,
                floor(extract(epoch FROM v.updated_at) * 1000000)::bigint AS updated_ms
         FROM model_versions v JOIN registered_models m ON m.id = v.model_id WHERE v.deleted_at IS NULL) q WHERE true",
    );
    for comparison in query.comparisons() {
        sql.push(" AND ");
        match (comparison.entity, comparison.key.as_str()) {
            (Entity::Tag, _) => push_tag(
                &mut sql,
                "EXISTS (SELECT FROM model_version_tags t WHERE t.model_id = q.model_id AND t.version = q.version AND t.key = ",
                comparison,
            ),
            (_, "name") => push_text_comparison(&mut sql, "q.name", comparison.operator, &comparison.value),
            (_, "run_id") => push_text_comparison(&mut sql, "q.run_hex", comparison.operator, &comparison.value),
            (_, "source_path") => push_text_comparison(&mut sql, "q.source", comparison.operator, &comparison.value),
            _ => push_integer_comparison(&mut sql, "q.version_number", comparison.operator, &comparison.value),
        }
    }
    if !query.asks_for_prompts() {
        sql.push(
            " AND NOT EXISTS (SELECT FROM model_version_tags t WHERE t.model_id = q.model_id AND t.version = q.version
                              AND lower(t.value) = 'true' AND t.key = ",
        )
        .push_bind(PROMPT_TAG)
        .push(")");
    }
    let (rows, next) = fetch(db, sql, &columns, query).await?;
    let rows = rows
        .iter()
        .map(|row| {
            Ok(VersionRow {
                model_id: row.try_get("model_id")?,
                name: row.try_get("name")?,
                version: row.try_get("version")?,
                source: row.try_get("source")?,
                storage_uri: row.try_get("storage_uri")?,
                run_id: row.try_get::<Option<Uuid>, _>("run_id")?,
                logged_model_id: row.try_get("logged_model_id")?,
                run_link: row.try_get("run_link")?,
                description: row.try_get("description")?,
                user_id: row.try_get("user_id")?,
                stage: row.try_get("stage")?,
                status: row.try_get("status")?,
                created_at: row.try_get("created_at")?,
                updated_at: row.try_get("updated_at")?,
            })
        })
        .collect::<Result<Vec<_>>>()?;
    Ok((load_versions(db, rows, false).await?, next))
}

async fn fetch(
    db: &mut PgConnection,
    mut sql: QueryBuilder<Postgres>,
    columns: &[SortColumn],
    query: &RegistryQuery<'_>,
) -> Result<(Vec<PgRow>, Option<Vec<SortValue>>)> {
    if let Some(after) = query.after {
        sql.push(" AND ");
        push_after(&mut sql, columns, after)?;
    }
    fetch_page(db, sql, columns, query.limit).await
}

fn push_tag(sql: &mut QueryBuilder<Postgres>, exists_with_key: &'static str, comparison: &Comparison) {
    sql.push(exists_with_key).push_bind(comparison.key.clone()).push(" AND ");
    push_text_comparison(sql, "t.value", comparison.operator, &comparison.value);
    sql.push(")");
}

const fn text_column(name: &'static str, descending: bool) -> SortColumn {
    SortColumn { name, sort_type: SortType::Text, nullable: false, descending }
}

const fn time_column(name: &'static str, descending: bool) -> SortColumn {
    SortColumn { name, sort_type: SortType::Integer, nullable: false, descending }
}

fn add_tie_break(columns: &mut Vec<SortColumn>, column: SortColumn) {
    if !columns.iter().any(|known| known.name == column.name) {
        columns.push(column);
    }
}
