//! Promotions and gate records as the outside sees them.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sluice_domain::{
    gate::{CheckResult, GateEvidence, GatePolicy},
    state::{PromotionStatus, Verdict},
};
use sluice_store::{
    PgConnection,
    gate_record::{self, GateRecordRow},
    promotion::{self, PromotionRow},
};

use crate::{App, Error, Result};

/// A pipeline's request to move an alias.
#[derive(Debug, Clone, Serialize)]
pub struct Promotion {
    pub id: i64,
    pub pipeline_id: i64,
    pub model: String,
    /// Set once the version is registered.
    pub version: Option<i32>,
    pub alias: String,
    pub status: PromotionStatus,
    /// One line.
    pub reason: String,
    /// The latest evaluation of its gate.
    pub gate_record: Option<GateRecord>,
    pub created_at: DateTime<Utc>,
    pub finished_at: Option<DateTime<Utc>>,
}

/// One evaluation of a gate, with everything that it looked at.
#[derive(Debug, Clone, Serialize)]
pub struct GateRecord {
    pub id: i64,
    pub promotion_id: i64,
    pub model: String,
    pub version: i32,
    pub alias: String,
    /// Holder of the alias at evaluation.
    pub champion_version: Option<i32>,
    pub verdict: Verdict,
    pub policy: GatePolicy,
    pub policy_sha256: String,
    pub checks: Vec<CheckResult>,
    pub evidence: GateEvidence,
    /// The ONNX file that was judged.
    pub artifact_sha256: Option<String>,
    pub artifact_uri: Option<String>,
    pub approved_by: Vec<String>,
    pub created_at: DateTime<Utc>,
}

/// Reads a stored JSON value back into its type.
pub(crate) fn from_json<T: serde::de::DeserializeOwned>(what: &'static str, value: serde_json::Value) -> Result<T> {
    serde_json::from_value(value).map_err(|error| sluice_store::Error::Malformed { what, message: error.to_string() }.into())
}

/// Reads a stored word back into its vocabulary.
pub(crate) fn from_text<T: std::str::FromStr<Err: std::fmt::Display>>(what: &'static str, text: &str) -> Result<T> {
    text.parse().map_err(|error: T::Err| Error::from(sluice_store::Error::Malformed { what, message: error.to_string() }))
}

impl GateRecord {
    pub(crate) fn from_row(row: GateRecordRow) -> Result<Self> {
        Ok(Self {
            id: row.id,
            promotion_id: row.promotion_id,
            model: row.model_name,
            version: row.version,
            alias: row.alias,
            champion_version: row.champion_version,
            verdict: from_text("verdict", &row.verdict)?,
            policy: from_json("gate policy", row.policy)?,
            policy_sha256: row.policy_sha256,
            checks: from_json("gate checks", row.checks)?,
            evidence: from_json("gate evidence", row.evidence)?,
            artifact_sha256: row.artifact_sha256,
            artifact_uri: row.artifact_uri,
            approved_by: row.approved_by,
            created_at: row.created_at,
        })
    }
}

impl Promotion {
    pub(crate) async fn from_row(db: &mut PgConnection, row: PromotionRow) -> Result<Self> {
        let gate_record = match row.gate_record_id {
            Some(id) => Some(GateRecord::from_row(gate_record::get_gate_record(db, id).await?)?),
            None => None,
        };
        Ok(Self {
            id: row.id,
            pipeline_id: row.pipeline_id,
            model: row.model_name,
            version: row.version,
            alias: row.alias,
            status: from_text("promotion status", &row.status)?,
            reason: row.reason,
            gate_record,
            created_at: row.created_at,
            finished_at: row.finished_at,
        })
    }
}

/// The promotion of a pipeline; `None` when its file has no `promote` part.
///
/// # Errors
/// When the database fails.
pub async fn find_promotion_of_pipeline(app: &App, pipeline_id: i64) -> Result<Option<Promotion>> {
    let mut db = app.connection().await?;
    match promotion::find_promotion_of_pipeline(&mut db, pipeline_id).await? {
        Some(row) => Ok(Some(Promotion::from_row(&mut db, row).await?)),
        None => Ok(None),
    }
}

/// The promotions of a version, newest first.
///
/// # Errors
/// When the database fails.
pub async fn list_promotions(app: &App, model: &str, version: i32) -> Result<Vec<Promotion>> {
    let mut db = app.connection().await?;
    let mut found = Vec::new();
    for row in promotion::list_promotions_of_version(&mut db, model, version).await? {
        found.push(Promotion::from_row(&mut db, row).await?);
    }
    Ok(found)
}

/// The gate records of a version, newest first.
///
/// # Errors
/// When the database fails.
pub async fn list_gate_records(app: &App, model: &str, version: i32) -> Result<Vec<GateRecord>> {
    let mut db = app.connection().await?;
    gate_record::list_gate_records(&mut db, model, version).await?.into_iter().map(GateRecord::from_row).collect()
}

/// One gate record.
///
/// # Errors
/// When it does not exist.
pub async fn get_gate_record(app: &App, id: i64) -> Result<GateRecord> {
    let mut db = app.connection().await?;
    GateRecord::from_row(gate_record::get_gate_record(&mut db, id).await?)
}
