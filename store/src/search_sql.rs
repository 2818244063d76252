//! Building blocks of searches whose filter and order come from the caller: comparisons and keyset pages.
//!
//! SQL text comes only from this program; everything of the caller's is bound.

use serde::{Deserialize, Serialize};
use sluice_domain::filter::{Literal, Operator};
use sqlx::{PgConnection, Postgres, QueryBuilder, Row as _, postgres::PgRow};
use uuid::Uuid;

use crate::{Error, Result};

/// Pushes `EXPRESSION OPERATOR value` for a text expression.
pub fn push_text_comparison(sql: &mut QueryBuilder<Postgres>, expression: &'static str, operator: Operator, value: &Literal) {
    sql.push(expression);
    match (operator, value) {
        (Operator::In, Literal::List(items)) => sql.push(" = ANY(").push_bind(items.clone()).push(")"),
        (Operator::NotIn, Literal::List(items)) => sql.push(" <> ALL(").push_bind(items.clone()).push(")"),
        (Operator::IsNull, _) => sql.push(" IS NULL"),
        (Operator::IsNotNull, _) => sql.push(" IS NOT NULL"),
        (operator, Literal::Text(text)) => sql.push(" ").push(operator.as_str()).push(" ").push_bind(text.clone()),
        // the grammar gives texts no other values
        _ => sql.push(" IS NULL AND false"),
    };
}

/// Pushes a comparison for an integer expression.
pub fn push_integer_comparison(sql: &mut QueryBuilder<Postgres>, expression: &'static str, operator: Operator, value: &Literal) {
    sql.push(expression).push(" ").push(operator.as_str()).push(" ");
    match value {
        Literal::Int(number) => sql.push_bind(*number),
        other => sql.push_bind(other.as_f64()),
    };
}

/// Pushes a comparison for an expression of doubles. NaN differs from every number and is neither above nor below one.
pub fn push_float_comparison(sql: &mut QueryBuilder<Postgres>, expression: &'static str, operator: Operator, value: &Literal) {
    sql.push("(");
    if matches!(operator, Operator::Gt | Operator::Ge) {
        // Postgres sorts NaN above every number
        sql.push(expression).push(" <> 'NaN' AND ");
    }
    sql.push(expression).push(" ").push(operator.as_str()).push(" ").push_bind(value.as_f64()).push(")");
}

/// How the values of a sort column compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SortType {
    Text,
    Integer,
    /// Numbers, then NaN, in both directions.
    Float,
    Uuid,
}

/// A column to sort by. Missing values come last in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SortColumn {
    /// Column of the query that is sorted.
    pub name: &'static str,
    pub sort_type: SortType,
    pub nullable: bool,
    pub descending: bool,
}

/// Names for computed sort columns.
pub const SORT_NAMES: [&str; 16] = ["o0", "o1", "o2", "o3", "o4", "o5", "o6", "o7", "o8", "o9", "o10", "o11", "o12", "o13", "o14", "o15"];

/// A row's value of a sort column, as page tokens carry it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SortValue {
    Missing,
    NotANumber,
    Text(String),
    Integer(i64),
    /// The bits of a double: JSON has no infinities.
    Float(u64),
    Uuid(Uuid),
}

impl SortColumn {
    /// Whether values sort in two steps: first by kind (number, NaN, missing), then by value.
    fn has_rank(&self) -> bool {
        self.nullable || self.sort_type == SortType::Float
    }

    fn push_rank(&self, sql: &mut QueryBuilder<Postgres>) {
        match self.sort_type {
            SortType::Float => {
                sql.push("CASE WHEN ").push(self.name).push(" IS NULL THEN 2 WHEN ").push(self.name).push(" = 'NaN' THEN 1 ELSE 0 END")
            }
            _ => sql.push("CASE WHEN ").push(self.name).push(" IS NULL THEN 2 ELSE 0 END"),
        };
    }

    /// The value, made comparable where there is none.
    fn push_value(&self, sql: &mut QueryBuilder<Postgres>) {
        match self.sort_type {
            SortType::Float => sql
                .push("CASE WHEN ")
                .push(self.name)
                .push(" IS NULL OR ")
                .push(self.name)
                .push(" = 'NaN' THEN 0 ELSE ")
                .push(self.name)
                .push(" END"),
            _ if !self.nullable => sql.push(self.name),
            SortType::Text => sql.push("COALESCE(").push(self.name).push(", '')"),
            SortType::Integer => sql.push("COALESCE(").push(self.name).push(", 0)"),
            SortType::Uuid => sql.push(self.name),
        };
    }

    fn bind_value(&self, sql: &mut QueryBuilder<Postgres>, value: &SortValue) -> bool {
        match (self.sort_type, value) {
            (SortType::Text, SortValue::Text(text)) if !text.contains('\0') => sql.push_bind(text.clone()),
            (SortType::Text, SortValue::Missing) => sql.push_bind(""),
            (SortType::Integer, SortValue::Integer(number)) => sql.push_bind(*number),
            (SortType::Integer, SortValue::Missing) => sql.push_bind(0_i64),
            (SortType::Float, SortValue::Float(bits)) => sql.push_bind(f64::from_bits(*bits)),
            (SortType::Float, SortValue::Missing | SortValue::NotANumber) => sql.push_bind(0_f64),
            (SortType::Uuid, SortValue::Uuid(id)) => sql.push_bind(*id),
            _ => return false,
        };
        true
    }

    fn read(&self, row: &PgRow) -> Result<SortValue> {
        let value = match self.sort_type {
            SortType::Text => row.try_get::<Option<String>, _>(self.name)?.map(SortValue::Text),
            SortType::Integer => row.try_get::<Option<i64>, _>(self.name)?.map(SortValue::Integer),
            SortType::Float => row.try_get::<Option<f64>, _>(self.name)?.map(|value| match value.is_nan() {
                true => SortValue::NotANumber,
                false => SortValue::Float(value.to_bits()),
            }),
            SortType::Uuid => row.try_get::<Option<Uuid>, _>(self.name)?.map(SortValue::Uuid),
        };
        Ok(value.unwrap_or(SortValue::Missing))
    }
}

fn rank(value: &SortValue) -> i32 {
    match value {
        SortValue::Missing => 2,
        SortValue::NotANumber => 1,
        _ => 0,
    }
}

/// Pushes the condition that a row comes after a position in the order of `columns`.
///
/// # Errors
/// [`Error::Malformed`] when the position does not fit the columns.
pub fn push_after(sql: &mut QueryBuilder<Postgres>, columns: &[SortColumn], after: &[SortValue]) -> Result<()> {
    let mismatch = || Error::Malformed { what: "page position", message: "it does not fit the order".to_owned() };
    if columns.len() != after.len() || columns.is_empty() {
        return Err(mismatch());
    }
    // (rank or value, column): the terms of the order, compared one after the other
    let terms: Vec<(bool, usize)> =
        (0..columns.len()).flat_map(|i| [(true, i), (false, i)]).filter(|(is_rank, i)| !is_rank || columns[*i].has_rank()).collect();
    let push_term = |sql: &mut QueryBuilder<Postgres>, (is_rank, i): (bool, usize), operator: &'static str| -> bool {
        let column = &columns[i];
        if is_rank {
            column.push_rank(sql);
            sql.push(operator).push_bind(rank(&after[i]));
            true
        } else {
            column.push_value(sql);
            sql.push(operator);
            column.bind_value(sql, &after[i])
        }
    };
    sql.push("(");
    for (n, term) in terms.iter().enumerate() {
        sql.push(if n == 0 { "(" } else { " OR (" });
        for earlier in &terms[..n] {
            if !push_term(sql, *earlier, " = ") {
                return Err(mismatch());
            }
            sql.push(" AND ");
        }
        let backwards = !term.0 && columns[term.1].descending;
        if !push_term(sql, *term, if backwards { " < " } else { " > " }) {
            return Err(mismatch());
        }
        sql.push(")");
    }
    sql.push(")");
    Ok(())
}

/// Pushes ` ORDER BY …`.
fn push_order(sql: &mut QueryBuilder<Postgres>, columns: &[SortColumn]) {
    let mut separator = " ORDER BY ";
    for column in columns {
        if column.has_rank() {
            sql.push(separator);
            column.push_rank(sql);
            separator = ", ";
        }
        sql.push(separator);
        column.push_value(sql);
        if column.descending {
            sql.push(" DESC");
        }
        separator = ", ";
    }
}

/// Adds order and limit to a search whose conditions are complete, and reads one page: its rows, and the position of the last one when more follow.
///
/// # Errors
/// When the database fails.
pub async fn fetch_page(
    db: &mut PgConnection,
    mut sql: QueryBuilder<Postgres>,
    columns: &[SortColumn],
    limit: i64,
) -> Result<(Vec<PgRow>, Option<Vec<SortValue>>)> {
    push_order(&mut sql, columns);
    // one more than asked for says whether there is another page
    sql.push(" LIMIT ").push_bind(limit.saturating_add(1));
    let mut rows = sql.build().fetch_all(db).await?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let next = match rows.last() {
        Some(last) if has_more => Some(read_position(last, columns)?),
        _ => None,
    };
    Ok((rows, next))
}

/// The position of a row in the order of `columns`.
fn read_position(row: &PgRow, columns: &[SortColumn]) -> Result<Vec<SortValue>> {
    columns.iter().map(|column| column.read(row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRIC: SortColumn = SortColumn { name: "o0", sort_type: SortType::Float, nullable: true, descending: true };
    const ID: SortColumn = SortColumn { name: "id", sort_type: SortType::Uuid, nullable: false, descending: false };

    #[test]
    fn a_position_becomes_a_lexicographic_condition() {
        let mut sql = QueryBuilder::new("");
        push_after(&mut sql, &[METRIC, ID], &[SortValue::Float(1.0_f64.to_bits()), SortValue::Uuid(Uuid::nil())]).unwrap();
        let rank = "CASE WHEN o0 IS NULL THEN 2 WHEN o0 = 'NaN' THEN 1 ELSE 0 END";
        let value = "CASE WHEN o0 IS NULL OR o0 = 'NaN' THEN 0 ELSE o0 END";
        assert_eq!(
            sql.into_string(),
            format!("(({rank} > $1) OR ({rank} = $2 AND {value} < $3) OR ({rank} = $4 AND {value} = $5 AND id > $6))")
        );
    }

    #[test]
    fn a_position_that_does_not_fit_is_refused() {
        for after in [
            vec![],
            vec![SortValue::Missing],
            vec![SortValue::Text("x".to_owned()), SortValue::Uuid(Uuid::nil())],
            vec![SortValue::Missing, SortValue::Missing],
        ] {
            let refused = push_after(&mut QueryBuilder::new(""), &[METRIC, ID], &after);
            assert!(matches!(refused, Err(Error::Malformed { what: "page position", .. })), "{after:?}");
        }
        let text = SortColumn { name: "name", sort_type: SortType::Text, nullable: false, descending: false };
        assert!(push_after(&mut QueryBuilder::new(""), &[text], &[SortValue::Text("a\0".to_owned())]).is_err());
    }
}
