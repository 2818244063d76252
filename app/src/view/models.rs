//! Registered models and their versions, joined with how each was judged.

use sluice_store::view::models as store;
pub use sluice_store::view::models::{AliasMoveRow, ModelHead, ModelRow, VersionOrigin, VersionRow};

use crate::{
    App, Error, Result,
    deployment::{Deployment, list_deployments},
    model::{self, VersionDetail},
};

/// Rows on one page of models or versions.
pub const PAGE: i64 = 100;

/// Moves and deployments shown with a model.
const HISTORY: i64 = 50;

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
    /// Newest first.
    pub versions: Vec<VersionRow>,
    pub moves: Vec<AliasMoveRow>,
    pub deployments: Vec<Deployment>,
}

/// Gets the page of a model, with versions older than `before`.
///
/// # Errors
/// [`Error::NotFound`], or when the database fails.
pub async fn get(app: &App, name: &str, before: Option<i32>) -> Result<ModelPage> {
    let deployments = list_deployments(app, Some(name), None, HISTORY).await?;
    let mut db = app.connection().await?;
    let head = store::find_model(&mut db, name).await?.ok_or_else(|| Error::NotFound(format!("model {name} not found")))?;
    Ok(ModelPage {
        versions: store::list_versions(&mut db, head.id, before, PAGE).await?,
        moves: store::list_alias_moves(&mut db, name, None, HISTORY).await?,
        deployments,
        head,
    })
}

/// The page of a version.
#[derive(Debug, Clone)]
pub struct VersionPage {
    pub detail: VersionDetail,
    pub origin: VersionOrigin,
    pub moves: Vec<AliasMoveRow>,
    pub deployments: Vec<Deployment>,
}

/// Gets the page of a version.
///
/// # Errors
/// [`Error::NotFound`], or when the database fails.
pub async fn version(app: &App, name: &str, version: i32) -> Result<VersionPage> {
    let detail = model::get_version(app, name, version).await?;
    let mut deployments = list_deployments(app, Some(name), None, 200).await?;
    deployments.retain(|deployment| deployment.version == version);
    let mut db = app.connection().await?;
    let origin = store::find_version_origin(&mut db, name, version)
        .await?
        .ok_or_else(|| Error::NotFound(format!("version {version} of model {name} not found")))?;
    Ok(VersionPage { detail, origin, moves: store::list_alias_moves(&mut db, name, Some(version), HISTORY).await?, deployments })
}
