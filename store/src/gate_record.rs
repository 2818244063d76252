//! Gate records: immutable, one per evaluation of a gate.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::{Error, Result};

/// A row of `gate_records`.
#[derive(Debug, Clone)]
pub struct GateRecordRow {
    pub id: i64,
    pub promotion_id: i64,
    pub model_name: String,
    pub version: i32,
    pub alias: String,
    pub champion_version: Option<i32>,
    pub verdict: String,
    pub policy: serde_json::Value,
    pub policy_sha256: String,
    pub checks: serde_json::Value,
    pub evidence: serde_json::Value,
    pub artifact_sha256: Option<String>,
    pub artifact_uri: Option<String>,
    pub approved_by: Vec<String>,
    pub created_at: DateTime<Utc>,
}

/// Writes a record; `row.id` is ignored. Returns its id.
///
/// # Errors
/// When the database fails.
pub async fn insert_gate_record(db: &mut PgConnection, row: &GateRecordRow) -> Result<i64> {
    Ok(sqlx::query_scalar!(
        "INSERT INTO gate_records (promotion_id, model_name, version, alias, champion_version, verdict, policy, policy_sha256, checks,
             evidence, artifact_sha256, artifact_uri, approved_by, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) RETURNING id",
        row.promotion_id,
        row.model_name,
        row.version,
        row.alias,
        row.champion_version,
        row.verdict,
        row.policy,
        row.policy_sha256,
        row.checks,
        row.evidence,
        row.artifact_sha256.as_deref(),
        row.artifact_uri.as_deref(),
        &row.approved_by,
        row.created_at
    )
    .fetch_one(db)
    .await?)
}

/// Reads a record.
///
/// # Errors
/// [`Error::NotFound`], or when the database fails.
pub async fn get_gate_record(db: &mut PgConnection, id: i64) -> Result<GateRecordRow> {
    sqlx::query_as!(
        GateRecordRow,
        "SELECT id, promotion_id, model_name, version, alias, champion_version, verdict, policy, policy_sha256, checks, evidence,
             artifact_sha256, artifact_uri, approved_by, created_at
         FROM gate_records WHERE id = $1",
        id
    )
    .fetch_optional(db)
    .await?
    .ok_or(Error::NotFound { kind: "gate record", key: id.to_string() })
}

/// The records of a model version, newest first.
///
/// # Errors
/// When the database fails.
pub async fn list_gate_records(db: &mut PgConnection, model: &str, version: i32) -> Result<Vec<GateRecordRow>> {
    Ok(sqlx::query_as!(
        GateRecordRow,
        "SELECT id, promotion_id, model_name, version, alias, champion_version, verdict, policy, policy_sha256, checks, evidence,
             artifact_sha256, artifact_uri, approved_by, created_at
         FROM gate_records WHERE model_name = $1 AND version = $2 ORDER BY id DESC",
        model,
        version
    )
    .fetch_all(db)
    .await?)
}

/// A file that passed a gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatedArtifact {
    pub gate_record_id: i64,
    pub uri: String,
    pub sha256: String,
}

/// The bytes of a version that passed the gate of an alias last.
///
/// # Errors
/// When the database fails.
pub async fn find_gated_artifact(db: &mut PgConnection, model: &str, version: i32, alias: &str) -> Result<Option<GatedArtifact>> {
    Ok(sqlx::query_as!(
        GatedArtifact,
        "SELECT id AS gate_record_id, artifact_uri AS \"uri!\", artifact_sha256 AS \"sha256!\" FROM gate_records
         WHERE model_name = $1 AND version = $2 AND alias = $3 AND verdict = 'pass' AND artifact_uri IS NOT NULL AND artifact_sha256 IS NOT NULL
         ORDER BY id DESC LIMIT 1",
        model,
        version,
        alias
    )
    .fetch_optional(db)
    .await?)
}
