//! Aliases and the append-only history of their moves. Whoever moves one holds the lock of its model.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::Result;

/// An alias and the version that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AliasRow {
    pub model_id: i64,
    pub alias: String,
    pub version: i32,
}

/// The aliases of models, by alias.
///
/// # Errors
/// When the database fails.
pub async fn list_aliases(db: &mut PgConnection, model_ids: &[i64]) -> Result<Vec<AliasRow>> {
    Ok(sqlx::query_as!(
        AliasRow,
        "SELECT model_id, alias, version FROM model_aliases WHERE model_id = ANY($1) ORDER BY model_id, alias",
        model_ids
    )
    .fetch_all(db)
    .await?)
}

/// The version that holds an alias.
///
/// # Errors
/// When the database fails.
pub async fn find_holder(db: &mut PgConnection, model_name: &str, alias: &str) -> Result<Option<i32>> {
    Ok(sqlx::query_scalar!(
        "SELECT a.version FROM model_aliases a JOIN registered_models m ON m.id = a.model_id WHERE m.name = $1 AND a.alias = $2",
        model_name,
        alias
    )
    .fetch_optional(db)
    .await?)
}

/// Why an alias moves, and by whose hand.
#[derive(Debug, Clone, Copy)]
pub struct Why<'a> {
    pub gate_record_id: Option<i64>,
    pub reason: &'a str,
    pub actor: &'a str,
    pub at: DateTime<Utc>,
}

/// Moves an alias from its holder to a live version, and writes the history.
///
/// Compare-and-swap: nothing changes when another version than `expected` (`None`: no version) holds it. Then
/// the holder found is the error value. Moving it to its holder is no move and writes nothing.
///
/// # Errors
/// When the database fails; [`crate::Error::NotFound`] when `to` is no live version of the model.
pub async fn move_alias(
    db: &mut PgConnection,
    model_name: &str,
    alias: &str,
    expected: Option<i32>,
    to: i32,
    why: Why<'_>,
) -> Result<std::result::Result<(), Option<i32>>> {
    let model_id = sqlx::query_scalar!(
        "SELECT m.id FROM registered_models m JOIN model_versions v ON v.model_id = m.id
         WHERE m.name = $1 AND v.version = $2 AND v.deleted_at IS NULL FOR NO KEY UPDATE OF m",
        model_name,
        to
    )
    .fetch_optional(&mut *db)
    .await?
    .ok_or_else(|| crate::Error::NotFound { kind: "model version", key: format!("{model_name}/{to}") })?;
    let holder = find_holder(&mut *db, model_name, alias).await?;
    if holder != expected {
        return Ok(Err(holder));
    }
    if holder == Some(to) {
        return Ok(Ok(()));
    }
    sqlx::query!(
        "INSERT INTO model_aliases (model_id, alias, version) VALUES ($1, $2, $3)
         ON CONFLICT (model_id, alias) DO UPDATE SET version = EXCLUDED.version",
        model_id,
        alias,
        to
    )
    .execute(&mut *db)
    .await?;
    insert_move(db, model_name, alias, holder, Some(to), why).await?;
    Ok(Ok(()))
}

/// Takes an alias away and writes the history; returns who held it.
///
/// # Errors
/// When the database fails.
pub async fn delete_alias(db: &mut PgConnection, model_id: i64, model_name: &str, alias: &str, why: Why<'_>) -> Result<Option<i32>> {
    let holder = sqlx::query_scalar!("DELETE FROM model_aliases WHERE model_id = $1 AND alias = $2 RETURNING version", model_id, alias)
        .fetch_optional(&mut *db)
        .await?;
    if holder.is_some() {
        insert_move(db, model_name, alias, holder, None, why).await?;
    }
    Ok(holder)
}

/// Writes one move into the history.
///
/// # Errors
/// When the database fails.
pub async fn insert_move(
    db: &mut PgConnection,
    model_name: &str,
    alias: &str,
    from: Option<i32>,
    to: Option<i32>,
    why: Why<'_>,
) -> Result<()> {
    sqlx::query!(
        "INSERT INTO model_alias_moves (model_name, alias, from_version, to_version, gate_record_id, reason, actor, moved_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        model_name,
        alias,
        from,
        to,
        why.gate_record_id,
        why.reason,
        why.actor,
        why.at
    )
    .execute(db)
    .await?;
    Ok(())
}
