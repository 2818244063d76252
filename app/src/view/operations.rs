//! Runners with their queue, and repositories.

use std::collections::HashMap;

pub use sluice_store::view::operations::{BranchRow, RepositoryHead, RepositoryRow, RunningJob};
use sluice_store::{job as job_store, view::operations as store};

use crate::{
    App, Error, Result,
    job::{self, Job},
    runner::{self, Runner},
};

/// A runner with what it holds.
#[derive(Debug, Clone)]
pub struct RunnerItem {
    pub runner: Runner,
    pub jobs: Vec<RunningJob>,
}

/// A job that may be claimed.
#[derive(Debug, Clone)]
pub struct QueueItem {
    pub job: Job,
    pub repository: String,
    pub branch: String,
}

/// The runners page.
#[derive(Debug, Clone)]
pub struct RunnersPage {
    pub runners: Vec<RunnerItem>,
    /// Next first.
    pub queue: Vec<QueueItem>,
}

/// Most runners and most queued jobs on the page.
const MOST: i64 = 200;

/// Gets the runners page.
///
/// # Errors
/// When the database fails.
pub async fn runners(app: &App) -> Result<RunnersPage> {
    let runners = runner::list_runners(app, "", MOST).await?;
    let mut db = app.connection().await?;
    let running = store::list_running_jobs(&mut db).await?;
    let runners = runners
        .into_iter()
        .map(|runner| RunnerItem { jobs: running.iter().filter(|job| job.runner == runner.name).cloned().collect(), runner })
        .collect();
    let queue = store::list_queue(&mut db, MOST).await?;
    let mut pipelines: Vec<_> = queue.iter().map(|job| job.pipeline_id).collect();
    pipelines.sort_unstable();
    pipelines.dedup();
    let rows = job_store::list_jobs(&mut db, &pipelines).await?;
    let mut jobs: HashMap<i64, Job> = job::views(app, &mut db, rows).await?.into_iter().map(|job| (job.id, job)).collect();
    let queue = queue
        .into_iter()
        .filter_map(|row| Some(QueueItem { job: jobs.remove(&row.id)?, repository: row.repository, branch: row.branch }))
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
