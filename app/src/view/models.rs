//! Registered models, their versions, and how each was judged.

use sluice_domain::gate::{CheckResult, GateEvidence};
pub use sluice_store::view::{
    models::{AliasMoveRow, AliasRow, ApprovalRow, GateRow, ModelHead, ModelRow, VersionHead, VersionRow},
    operations::DeploymentRow,
    pipelines::PromotionRow,
};
use sluice_store::view::{models as store, operations};

use crate::{App, Error, Result};

/// Rows on one page of models or versions.
pub const PAGE: i64 = 100;

/// Lists registered models by name.
///
/// # Errors
/// When the database fails.
pub async fn list(app: &App, text: Option<&str>, after: Option<&str>) -> Result<Vec<ModelRow>> {
    Ok(store::list_models(&mut *app.connection().await?, text, after, PAGE).await?)
}

/// The page of a model.
#[derive(Debug, Clone)]
pub struct ModelPage {
    pub head: ModelHead,
    pub aliases: Vec<AliasRow>,
    /// Newest first.
    pub versions: Vec<VersionRow>,
    pub moves: Vec<AliasMoveRow>,
    pub deployments: Vec<DeploymentRow>,
}

/// Gets the page of a model, with versions older than `before`.
///
/// # Errors
/// [`Error::NotFound`], or when the database fails.
pub async fn get(app: &App, name: &str, before: Option<i32>) -> Result<ModelPage> {
    let mut db = app.connection().await?;
    let head = store::find_model(&mut db, name).await?.ok_or_else(|| Error::NotFound(format!("model {name} not found")))?;
    Ok(ModelPage {
        aliases: store::list_aliases(&mut db, head.id).await?,
        versions: store::list_versions(&mut db, head.id, before, PAGE).await?,
        moves: store::list_alias_moves(&mut db, name, None, 50).await?,
        deployments: operations::list_deployments(&mut db, Some(name), None, false, None, 20).await?,
        head,
    })
}

/// A gate record with its checks and evidence read.
#[derive(Debug, Clone)]
pub struct Gate {
    pub row: GateRow,
    pub checks: Vec<CheckResult>,
    /// `None`: written by a version of Sluice that this one does not understand.
    pub evidence: Option<GateEvidence>,
}

impl From<GateRow> for Gate {
    fn from(row: GateRow) -> Self {
        Self {
            checks: serde_json::from_value(row.checks.clone()).unwrap_or_default(),
            evidence: serde_json::from_value(row.evidence.clone()).ok(),
            row,
        }
    }
}

/// The page of a version.
#[derive(Debug, Clone)]
pub struct VersionPage {
    pub head: VersionHead,
    /// Newest first.
    pub gates: Vec<Gate>,
    pub promotions: Vec<PromotionRow>,
    pub approvals: Vec<ApprovalRow>,
    pub moves: Vec<AliasMoveRow>,
    pub deployments: Vec<DeploymentRow>,
}

/// Gets the page of a version.
///
/// # Errors
/// [`Error::NotFound`], or when the database fails.
pub async fn version(app: &App, name: &str, version: i32) -> Result<VersionPage> {
    let mut db = app.connection().await?;
    let head = store::find_version(&mut db, name, version)
        .await?
        .ok_or_else(|| Error::NotFound(format!("model {name} has no version {version}")))?;
    Ok(VersionPage {
        gates: store::list_gate_records(&mut db, name, version, 20).await?.into_iter().map(Gate::from).collect(),
        promotions: store::list_promotions(&mut db, name, version).await?,
        approvals: store::list_approvals(&mut db, name, version).await?,
        moves: store::list_alias_moves(&mut db, name, Some(version), 50).await?,
        deployments: operations::list_deployments(&mut db, Some(name), Some(version), false, None, 20).await?,
        head,
    })
}
