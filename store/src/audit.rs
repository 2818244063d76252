//! The append-only audit log.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::Result;

/// Writes one audit row, in the transaction of the change that it records.
///
/// # Errors
/// When the database fails.
pub async fn insert_audit(
    db: &mut PgConnection,
    at: DateTime<Utc>,
    actor: &str,
    action: &str,
    subject: &str,
    detail: &serde_json::Value,
) -> Result<()> {
    sqlx::query!(
        "INSERT INTO audit_log (at, actor, action, subject, detail) VALUES ($1, $2, $3, $4, $5)",
        at,
        actor,
        action,
        subject,
        detail
    )
    .execute(db)
    .await?;
    Ok(())
}

/// One audit row.
#[derive(Debug, Clone, serde::Serialize)]
pub struct AuditRow {
    pub id: i64,
    pub at: DateTime<Utc>,
    pub actor: String,
    pub action: String,
    pub subject: String,
    pub detail: serde_json::Value,
}

/// Lists audit rows of a subject (or of all when `None`), newest first, before `before_id`.
///
/// # Errors
/// When the database fails.
pub async fn list_audit(db: &mut PgConnection, subject: Option<&str>, before_id: Option<i64>, limit: i64) -> Result<Vec<AuditRow>> {
    Ok(sqlx::query_as!(
        AuditRow,
        "SELECT id, at, actor, action, subject, detail FROM audit_log
         WHERE ($1::text IS NULL OR subject = $1) AND ($2::bigint IS NULL OR id < $2)
         ORDER BY id DESC LIMIT $3",
        subject,
        before_id,
        limit
    )
    .fetch_all(db)
    .await?)
}
