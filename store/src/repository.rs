//! Repositories and the branch tips that were considered for pipelines.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::{Error, Result};

/// One repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryRow {
    pub id: i64,
    pub name: String,
    pub default_branch: String,
    pub created_at: DateTime<Utc>,
}

/// Inserts a repository. A taken name violates `repositories_name_key`.
///
/// # Errors
/// When the name is taken or the database fails.
pub async fn insert_repository(db: &mut PgConnection, name: &str, default_branch: &str, at: DateTime<Utc>) -> Result<RepositoryRow> {
    Ok(sqlx::query_as!(
        RepositoryRow,
        "INSERT INTO repositories (name, default_branch, created_at) VALUES ($1, $2, $3)
         RETURNING id, name, default_branch, created_at",
        name,
        default_branch,
        at
    )
    .fetch_one(db)
    .await?)
}

/// Looks a repository up by name.
///
/// # Errors
/// When the database fails.
pub async fn find_repository(db: &mut PgConnection, name: &str) -> Result<Option<RepositoryRow>> {
    Ok(sqlx::query_as!(RepositoryRow, "SELECT id, name, default_branch, created_at FROM repositories WHERE name = $1", name)
        .fetch_optional(db)
        .await?)
}

/// Takes the row lock under which branch tips are compared.
///
/// # Errors
/// When there is no such repository or the database fails.
pub async fn lock_repository(db: &mut PgConnection, name: &str) -> Result<RepositoryRow> {
    sqlx::query_as!(RepositoryRow, "SELECT id, name, default_branch, created_at FROM repositories WHERE name = $1 FOR UPDATE", name)
        .fetch_optional(db)
        .await?
        .ok_or_else(|| Error::NotFound { kind: "repository", key: name.to_owned() })
}

/// Lists repositories by id, after `after_id`.
///
/// # Errors
/// When the database fails.
pub async fn list_repositories(db: &mut PgConnection, after_id: i64, limit: i64) -> Result<Vec<RepositoryRow>> {
    Ok(sqlx::query_as!(
        RepositoryRow,
        "SELECT id, name, default_branch, created_at FROM repositories WHERE id > $1 ORDER BY id LIMIT $2",
        after_id,
        limit
    )
    .fetch_all(db)
    .await?)
}

/// The tips that were considered: branch → SHA.
///
/// # Errors
/// When the database fails.
pub async fn list_branch_tips(db: &mut PgConnection, repository_id: i64) -> Result<BTreeMap<String, String>> {
    let rows = sqlx::query!("SELECT branch, sha FROM branch_tips WHERE repository_id = $1", repository_id).fetch_all(db).await?;
    Ok(rows.into_iter().map(|row| (row.branch, row.sha)).collect())
}

/// Notes that a tip was considered.
///
/// # Errors
/// When the database fails.
pub async fn upsert_branch_tip(db: &mut PgConnection, repository_id: i64, branch: &str, sha: &str, at: DateTime<Utc>) -> Result<()> {
    sqlx::query!(
        "INSERT INTO branch_tips (repository_id, branch, sha, updated_at) VALUES ($1, $2, $3, $4)
         ON CONFLICT (repository_id, branch) DO UPDATE SET sha = excluded.sha, updated_at = excluded.updated_at",
        repository_id,
        branch,
        sha,
        at
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Forgets the tip of a deleted branch.
///
/// # Errors
/// When the database fails.
pub async fn delete_branch_tip(db: &mut PgConnection, repository_id: i64, branch: &str) -> Result<()> {
    sqlx::query!("DELETE FROM branch_tips WHERE repository_id = $1 AND branch = $2", repository_id, branch).execute(db).await?;
    Ok(())
}
