//! Registered models, their versions, and how each was judged.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::Result;

/// One registered model in the list.
#[derive(Debug, Clone)]
pub struct ModelRow {
    pub name: String,
    pub description: String,
    pub updated_at: DateTime<Utc>,
    pub versions: i64,
    pub latest_version: Option<i32>,
    /// `alias=version`, by alias.
    pub aliases: Vec<String>,
    /// `environment=version` of what serves now.
    pub serving: Vec<String>,
    /// Status of the newest request to move an alias.
    pub promotion: Option<String>,
    pub promotion_reason: Option<String>,
}

/// Lists registered models by name; `text` is a part of the name, `after` the last name of the page before.
///
/// # Errors
/// When the database fails.
pub async fn list_models(db: &mut PgConnection, text: Option<&str>, after: Option<&str>, limit: i64) -> Result<Vec<ModelRow>> {
    Ok(sqlx::query_as!(
        ModelRow,
        r#"SELECT m.name, m.description, m.updated_at,
                  (SELECT count(*) FROM model_versions v WHERE v.model_id = m.id AND v.deleted_at IS NULL) AS "versions!",
                  (SELECT max(version) FROM model_versions v WHERE v.model_id = m.id AND v.deleted_at IS NULL) AS latest_version,
                  ARRAY(SELECT alias || '=' || version FROM model_aliases a WHERE a.model_id = m.id ORDER BY alias) AS "aliases!",
                  ARRAY(SELECT environment || '=' || version FROM deployments d
                        WHERE d.model_name = m.name AND d.status = 'serving' ORDER BY environment) AS "serving!",
                  p.status AS "promotion?", p.reason AS "promotion_reason?"
           FROM registered_models m
           LEFT JOIN LATERAL (SELECT status, reason FROM promotions p WHERE p.model_name = m.name ORDER BY id DESC LIMIT 1) AS p ON true
           WHERE ($1::text IS NULL OR position(lower($1) IN lower(m.name)) > 0) AND ($2::text IS NULL OR m.name > $2)
           ORDER BY m.name LIMIT $3"#,
        text,
        after,
        limit
    )
    .fetch_all(db)
    .await?)
}

/// A registered model's own row.
#[derive(Debug, Clone)]
pub struct ModelHead {
    pub id: i64,
    pub name: String,
    pub description: String,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// Finds a registered model.
///
/// # Errors
/// When the database fails.
pub async fn find_model(db: &mut PgConnection, name: &str) -> Result<Option<ModelHead>> {
    Ok(sqlx::query_as!(ModelHead, "SELECT id, name, description, created_at, updated_at FROM registered_models WHERE name = $1", name)
        .fetch_optional(db)
        .await?)
}

/// One version in the list of a model.
#[derive(Debug, Clone)]
pub struct VersionRow {
    pub version: i32,
    pub run_id: Option<Uuid>,
    pub pipeline_id: Option<i64>,
    pub sha: Option<String>,
    pub commit_subject: Option<String>,
    pub aliases: Vec<String>,
    pub verdict: Option<String>,
    pub promotion: Option<String>,
    pub promotion_reason: Option<String>,
    pub created_at: DateTime<Utc>,
}

/// Lists the versions of a model, newest first, older than `before`.
///
/// # Errors
/// When the database fails.
pub async fn list_versions(db: &mut PgConnection, model_id: i64, before: Option<i32>, limit: i64) -> Result<Vec<VersionRow>> {
    Ok(sqlx::query_as!(
        VersionRow,
        r#"SELECT v.version, v.run_id, v.pipeline_id, pl.sha AS "sha?", pl.commit_subject AS "commit_subject?",
                  ARRAY(SELECT alias FROM model_aliases a WHERE a.model_id = v.model_id AND a.version = v.version ORDER BY alias) AS "aliases!",
                  g.verdict AS "verdict?", p.status AS "promotion?", p.reason AS "promotion_reason?", v.created_at
           FROM model_versions v JOIN registered_models m ON m.id = v.model_id
           LEFT JOIN pipelines pl ON pl.id = v.pipeline_id
           LEFT JOIN LATERAL (SELECT verdict FROM gate_records g WHERE g.model_name = m.name AND g.version = v.version
                              ORDER BY id DESC LIMIT 1) AS g ON true
           LEFT JOIN LATERAL (SELECT status, reason FROM promotions p WHERE p.model_name = m.name AND p.version = v.version
                              ORDER BY id DESC LIMIT 1) AS p ON true
           WHERE v.model_id = $1 AND v.deleted_at IS NULL AND ($2::integer IS NULL OR v.version < $2)
           ORDER BY v.version DESC LIMIT $3"#,
        model_id,
        before,
        limit
    )
    .fetch_all(db)
    .await?)
}

/// One move of an alias.
#[derive(Debug, Clone)]
pub struct AliasMoveRow {
    pub alias: String,
    pub from_version: Option<i32>,
    pub to_version: Option<i32>,
    pub gate_record_id: Option<i64>,
    pub reason: String,
    pub actor: String,
    pub moved_at: DateTime<Utc>,
}

/// Lists the moves of a model's aliases, newest first; `version` limits to those from or to it.
///
/// # Errors
/// When the database fails.
pub async fn list_alias_moves(db: &mut PgConnection, model: &str, version: Option<i32>, limit: i64) -> Result<Vec<AliasMoveRow>> {
    Ok(sqlx::query_as!(
        AliasMoveRow,
        "SELECT alias, from_version, to_version, gate_record_id, reason, actor, moved_at FROM model_alias_moves
         WHERE model_name = $1 AND ($2::integer IS NULL OR from_version = $2 OR to_version = $2) ORDER BY id DESC LIMIT $3",
        model,
        version,
        limit
    )
    .fetch_all(db)
    .await?)
}

/// What the version page shows beside the version: the commit that it was made from.
#[derive(Debug, Clone)]
pub struct VersionOrigin {
    pub storage_uri: String,
    pub sha: Option<String>,
    pub commit_subject: Option<String>,
    pub repository: Option<String>,
}

/// Finds the origin of a version.
///
/// # Errors
/// When the database fails.
pub async fn find_version_origin(db: &mut PgConnection, name: &str, version: i32) -> Result<Option<VersionOrigin>> {
    Ok(sqlx::query_as!(
        VersionOrigin,
        r#"SELECT v.storage_uri, p.sha AS "sha?", p.commit_subject AS "commit_subject?", r.name AS "repository?"
           FROM model_versions v JOIN registered_models m ON m.id = v.model_id
           LEFT JOIN pipelines p ON p.id = v.pipeline_id LEFT JOIN repositories r ON r.id = p.repository_id
           WHERE m.name = $1 AND v.version = $2 AND v.deleted_at IS NULL"#,
        name,
        version
    )
    .fetch_optional(db)
    .await?)
}
