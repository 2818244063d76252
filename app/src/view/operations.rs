//! Runners and their queue, repositories, deployments, the audit log.

pub use sluice_store::{
    audit::AuditRow,
    view::operations::{BranchRow, DeploymentRow, QueuedJob, RepositoryHead, RepositoryRow, RunnerRow, RunningJob},
};
use sluice_store::{audit, view::operations as store};

use super::jobs::{Waiting, is_online};
use crate::{App, Error, Result};

/// Rows on one page of deployments or audit rows.
pub const PAGE: i64 = 100;

/// A runner with what it holds.
#[derive(Debug, Clone)]
pub struct RunnerItem {
    pub row: RunnerRow,
    /// `idle`, `busy` or `offline`.
    pub status: &'static str,
    pub jobs: Vec<RunningJob>,
}

/// The runners page.
#[derive(Debug, Clone)]
pub struct RunnersPage {
    pub runners: Vec<RunnerItem>,
    /// Jobs that may be claimed, next first, each with the reason why it waits.
    pub queue: Vec<(QueuedJob, String)>,
}

/// Gets the runners page.
///
/// # Errors
/// When the database fails.
pub async fn runners(app: &App) -> Result<RunnersPage> {
    let mut db = app.connection().await?;
    let now = app.clock.now();
    let running = store::list_running_jobs(&mut db).await?;
    let waiting = Waiting::load(&mut db, now).await?;
    let runners = store::list_runners(&mut db)
        .await?
        .into_iter()
        .map(|row| {
            let jobs: Vec<_> = running.iter().filter(|job| job.runner == row.name).cloned().collect();
            let status = match (is_online(&row, now), jobs.is_empty()) {
                (false, _) => "offline",
                (true, true) => "idle",
                (true, false) => "busy",
            };
            RunnerItem { row, status, jobs }
        })
        .collect();
    let queue = store::list_queue(&mut db, 200)
        .await?
        .into_iter()
        .map(|job| {
            let reason = waiting.reason(&job.requires, job.cpus);
            (job, reason)
        })
        .collect();
    Ok(RunnersPage { runners, queue })
}

/// Lists repositories.
///
/// # Errors
/// When the database fails.
pub async fn repositories(app: &App) -> Result<Vec<RepositoryRow>> {
    Ok(store::list_repositories(&mut *app.connection().await?).await?)
}

/// Gets a repository with its branches.
///
/// # Errors
/// [`Error::NotFound`], or when the database fails.
pub async fn repository(app: &App, name: &str) -> Result<RepositoryHead> {
    store::find_repository(&mut *app.connection().await?, name)
        .await?
        .ok_or_else(|| Error::NotFound(format!("repository {name} not found")))
}

/// Lists what serves now.
///
/// # Errors
/// When the database fails.
pub async fn serving(app: &App) -> Result<Vec<DeploymentRow>> {
    Ok(store::list_deployments(&mut *app.connection().await?, None, None, true, None, PAGE).await?)
}

/// Lists deployments, newest first.
///
/// # Errors
/// When the database fails.
pub async fn deployments(app: &App, model: Option<&str>, before: Option<i64>) -> Result<Vec<DeploymentRow>> {
    Ok(store::list_deployments(&mut *app.connection().await?, model, None, false, before, PAGE).await?)
}

/// Lists audit rows, newest first.
///
/// # Errors
/// When the database fails.
pub async fn audit(app: &App, subject: Option<&str>, before: Option<i64>) -> Result<Vec<AuditRow>> {
    Ok(audit::list_audit(&mut *app.connection().await?, subject, before, PAGE).await?)
}
