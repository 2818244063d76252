//! Registered models as the native API shows them: with aliases, versions and what is deployed.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::Serialize;
use sluice_domain::id::RunId;
use sluice_store::{
    PgConnection, approval,
    approval::ApprovalRow,
    audit::{self, AuditRow},
    deployment,
    model_view::{self, ModelRow, VersionRow},
};

use crate::{
    App, Error, Result,
    deployment::Deployment,
    promotion::{GateRecord, Promotion, list_gate_records, list_promotions},
};

/// How many of a model's deployments are shown with it.
const MAX_DEPLOYMENTS: i64 = 20;

/// A registered model.
#[derive(Debug, Clone, Serialize)]
pub struct Model {
    pub name: String,
    pub description: String,
    /// Alias → version.
    pub aliases: BTreeMap<String, i32>,
    /// Newest first.
    pub versions: Vec<Version>,
    /// Newest first.
    pub deployments: Vec<Deployment>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// A model version in a list.
#[derive(Debug, Clone, Serialize)]
pub struct Version {
    pub name: String,
    pub version: i32,
    pub source: String,
    pub description: String,
    pub user: String,
    pub run_id: Option<RunId>,
    pub pipeline_id: Option<i64>,
    pub aliases: Vec<String>,
    pub created_at: DateTime<Utc>,
}

/// A model version with everything that was decided about it.
#[derive(Debug, Clone, Serialize)]
pub struct VersionDetail {
    #[serde(flatten)]
    pub version: Version,
    /// Newest first.
    pub promotions: Vec<Promotion>,
    /// Newest first.
    pub gate_records: Vec<GateRecord>,
    pub approvals: Vec<ApprovalRow>,
}

/// Models by name, after `after`.
///
/// # Errors
/// When the database fails.
pub async fn list_models(app: &App, after: Option<&str>, limit: i64) -> Result<Vec<Model>> {
    let mut db = app.connection().await?;
    let mut models = Vec::new();
    for row in model_view::list_models(&mut db, after, limit).await? {
        models.push(assemble(&mut db, row).await?);
    }
    Ok(models)
}

/// One model.
///
/// # Errors
/// When it does not exist.
pub async fn get_model(app: &App, name: &str) -> Result<Model> {
    let mut db = app.connection().await?;
    let row = find(&mut db, name).await?;
    assemble(&mut db, row).await
}

/// One version.
///
/// # Errors
/// When the model or the version does not exist.
pub async fn get_version(app: &App, name: &str, version: i32) -> Result<VersionDetail> {
    let (version, approvals) = {
        let mut db = app.connection().await?;
        let model = find(&mut db, name).await?;
        let row = model_view::find_version(&mut db, model.id, version)
            .await?
            .ok_or_else(|| Error::NotFound(format!("version {version} of model {name} not found")))?;
        let aliases = model_view::list_aliases(&mut db, model.id).await?;
        let approvals = approval::list_approvals(&mut db, name, version, None).await?;
        (view(name, row, &aliases), approvals)
    };
    Ok(VersionDetail {
        promotions: list_promotions(app, name, version.version).await?,
        gate_records: list_gate_records(app, name, version.version).await?,
        approvals,
        version,
    })
}

/// Audit rows of a subject (or of all), newest first, before `before_id`.
///
/// # Errors
/// When the database fails.
pub async fn list_audit(app: &App, subject: Option<&str>, before_id: Option<i64>, limit: i64) -> Result<Vec<AuditRow>> {
    let mut db = app.connection().await?;
    Ok(audit::list_audit(&mut db, subject, before_id, limit).await?)
}

async fn find(db: &mut PgConnection, name: &str) -> Result<ModelRow> {
    model_view::find_model(db, name).await?.ok_or_else(|| Error::NotFound(format!("model {name} not found")))
}

async fn assemble(db: &mut PgConnection, row: ModelRow) -> Result<Model> {
    let aliases = model_view::list_aliases(db, row.id).await?;
    let versions = model_view::list_versions(db, row.id).await?;
    let deployments = deployment::list_deployments(db, Some(&row.name), None, MAX_DEPLOYMENTS).await?;
    Ok(Model {
        versions: versions.into_iter().map(|version| view(&row.name, version, &aliases)).collect(),
        deployments: deployments.into_iter().map(Deployment::from_row).collect::<Result<_>>()?,
        aliases: aliases.into_iter().collect(),
        name: row.name,
        description: row.description,
        created_at: row.created_at,
        updated_at: row.updated_at,
    })
}

fn view(name: &str, row: VersionRow, aliases: &[(String, i32)]) -> Version {
    Version {
        name: name.to_owned(),
        version: row.version,
        source: row.source,
        description: row.description,
        user: row.user_id,
        run_id: row.run_id.map(RunId),
        pipeline_id: row.pipeline_id,
        aliases: aliases.iter().filter(|(_, holder)| *holder == row.version).map(|(alias, _)| alias.clone()).collect(),
        created_at: row.created_at,
    }
}
