//! Deployments: an environment serves the bytes that a gate judged, and no others.
//!
//! A deployment is asked for by a row with status `starting`, in the transaction that caused it; the
//! supervisor ([`Deployments`]) brings it up and switches to it, or marks it failed while the version
//! before it keeps serving.

mod files;
mod local;
mod serving;
mod supervisor;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::json;
use sluice_domain::{names::check_slug, state::DeploymentStatus};
use sluice_store::{
    PgConnection,
    audit::insert_audit,
    deployment::{self, DeploymentRow, NewDeployment},
    gate_record, model_alias, model_view,
    notify::notify,
};

pub use serving::{Endpoint, ServeError, Served};
pub use supervisor::Deployments;

use crate::{Actor, App, Error, Result, context::commit};

/// A deployment as the outside sees it.
#[derive(Debug, Clone, Serialize)]
pub struct Deployment {
    pub id: i64,
    pub environment: String,
    pub model: String,
    pub version: i32,
    /// The gated digest.
    pub artifact_sha256: String,
    pub status: DeploymentStatus,
    /// Why it failed, or what keeps it from answering.
    pub message: String,
    pub gate_record_id: Option<i64>,
    pub actor: String,
    pub created_at: DateTime<Utc>,
    pub ready_at: Option<DateTime<Utc>>,
    pub ended_at: Option<DateTime<Utc>>,
}

impl Deployment {
    pub(crate) fn from_row(row: DeploymentRow) -> Result<Self> {
        Ok(Self {
            id: row.id,
            environment: row.environment,
            model: row.model_name,
            version: row.version,
            artifact_sha256: row.artifact_sha256,
            status: crate::promotion::from_text("deployment status", &row.status)?,
            message: row.message,
            gate_record_id: row.gate_record_id,
            actor: row.actor,
            created_at: row.created_at,
            ready_at: row.ready_at,
            ended_at: row.ended_at,
        })
    }
}

/// Asks for a deployment, in the caller's transaction. Returns its id.
pub(crate) async fn request(db: &mut PgConnection, new: &NewDeployment<'_>) -> Result<i64> {
    let id = deployment::insert_deployment(db, *new).await?;
    let detail = json!({
        "deployment": id, "environment": new.environment, "version": new.version, "artifact_sha256": new.artifact_sha256,
        "gate_record": new.gate_record_id, "rollback": new.rollback.is_some(),
    });
    insert_audit(db, new.at, new.actor, "deployment.started", &format!("model:{}", new.model), &detail).await?;
    notify(db, &format!("deployment:{id}")).await?;
    Ok(id)
}

/// Deploys the holder of an alias again, from the bytes that its gate judged.
///
/// # Errors
/// When there is no such model, nobody holds the alias, or no gate judged a file of the holder.
pub async fn deploy_alias(app: &App, actor: &Actor, model: &str, alias: &str, environment: &str) -> Result<Deployment> {
    check_slug(environment, 100, "environment").map_err(|rule| Error::invalid("environment", rule))?;
    let mut tx = app.begin().await?;
    if model_view::find_model(&mut tx, model).await?.is_none() {
        return Err(Error::NotFound(format!("model {model} not found")));
    }
    let Some(version) = model_alias::find_holder(&mut tx, model, alias).await? else {
        return Err(Error::Conflict(format!("no version of model {model} holds alias {alias}")));
    };
    let Some(gated) = gate_record::find_gated_artifact(&mut tx, model, version, alias).await? else {
        return Err(Error::Conflict(format!("version {version} of model {model} has no file that passed the gate of alias {alias}")));
    };
    let new = NewDeployment {
        environment,
        model,
        version,
        artifact_uri: &gated.uri,
        artifact_sha256: &gated.sha256,
        gate_record_id: gated.gate_record_id,
        rollback: None,
        actor: &actor.0,
        at: app.clock.now(),
    };
    let id = request(&mut tx, &new).await?;
    let row = deployment::get_deployment(&mut tx, id).await?;
    commit(tx).await?;
    Deployment::from_row(row)
}

/// Deployments of a model (or of all), newest first, before `before_id`.
///
/// # Errors
/// When the database fails.
pub async fn list_deployments(app: &App, model: Option<&str>, before_id: Option<i64>, limit: i64) -> Result<Vec<Deployment>> {
    let mut db = app.connection().await?;
    deployment::list_deployments(&mut db, model, before_id, limit).await?.into_iter().map(Deployment::from_row).collect()
}

/// One deployment.
///
/// # Errors
/// When it does not exist.
pub async fn get_deployment(app: &App, id: i64) -> Result<Deployment> {
    let mut db = app.connection().await?;
    Deployment::from_row(deployment::get_deployment(&mut db, id).await?)
}

/// The latest deployment that a pipeline's gate led to.
///
/// # Errors
/// When the database fails.
pub async fn find_deployment_of_pipeline(app: &App, pipeline_id: i64) -> Result<Option<Deployment>> {
    let mut db = app.connection().await?;
    deployment::find_deployment_of_pipeline(&mut db, pipeline_id).await?.map(Deployment::from_row).transpose()
}
