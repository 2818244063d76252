//! Approvals: who said that a version may hold an alias.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::Result;

/// A row of `approvals`.
#[derive(Debug, Clone, serde::Serialize)]
pub struct ApprovalRow {
    pub alias: String,
    pub actor: String,
    pub comment: String,
    pub created_at: DateTime<Utc>,
}

/// Records an approval, once per person. Returns whether it is new.
///
/// # Errors
/// When the database fails.
pub async fn insert_approval(db: &mut PgConnection, model: &str, version: i32, approval: &ApprovalRow) -> Result<bool> {
    let done = sqlx::query!(
        "INSERT INTO approvals (model_name, version, alias, actor, comment, created_at) VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (model_name, version, alias, actor) DO NOTHING",
        model,
        version,
        approval.alias,
        approval.actor,
        approval.comment,
        approval.created_at
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// The approvals of a version, for one alias or for all, oldest first.
///
/// # Errors
/// When the database fails.
pub async fn list_approvals(db: &mut PgConnection, model: &str, version: i32, alias: Option<&str>) -> Result<Vec<ApprovalRow>> {
    Ok(sqlx::query_as!(
        ApprovalRow,
        "SELECT alias, actor, comment, created_at FROM approvals
         WHERE model_name = $1 AND version = $2 AND ($3::text IS NULL OR alias = $3) ORDER BY id",
        model,
        version,
        alias
    )
    .fetch_all(db)
    .await?)
}
