//! Pipelines: how they are shown, and what their jobs make of their status.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use serde::Serialize;
use sluice_domain::state::{JobStatus, PipelineStatus, PromotionStatus};
pub use sluice_store::pipeline::PipelineFilter;
use sluice_store::{
    PgConnection,
    job::{JobRow, list_jobs},
    notify::notify,
    pipeline::{self as store, PipelineRow, PromotionState},
};

use crate::{
    App, Error, Result,
    deployment::{Deployment, find_deployment_of_pipeline},
    job::{self, Job},
    promotion::{Promotion, find_promotion_of_pipeline},
};

/// A pipeline, as shown to users.
#[derive(Debug, Clone, Serialize)]
pub struct Pipeline {
    pub id: i64,
    pub repository: String,
    pub branch: String,
    pub sha: String,
    pub commit_subject: String,
    pub commit_author: String,
    pub status: PipelineStatus,
    /// One line: why it failed, is blocked or waits.
    pub status_reason: String,
    /// What is wrong with the pipeline file, when it could not be read.
    pub file_errors: Option<Vec<sluice_ci::FileError>>,
    pub url: String,
    pub created_at: DateTime<Utc>,
    pub finished_at: Option<DateTime<Utc>>,
    pub jobs: Vec<Job>,
    /// Its request to move an alias. Not in lists.
    pub promotion: Option<Promotion>,
    /// What that led to. Not in lists.
    pub deployment: Option<Deployment>,
}

/// The page of a pipeline.
#[must_use]
pub fn url(app: &App, id: i64) -> String {
    format!("{}/pipelines/{id}", app.settings.public_url)
}

/// Reads a pipeline with its jobs.
///
/// # Errors
/// When there is no such pipeline.
pub async fn get_pipeline(app: &App, id: i64) -> Result<Pipeline> {
    let mut db = app.connection().await?;
    let row = store::get_pipeline(&mut db, id).await?;
    let mut views = views(app, &mut db, vec![row]).await?;
    drop(db);
    let mut view = views.pop().ok_or_else(|| Error::NotFound(format!("pipeline {id} not found")))?;
    view.promotion = find_promotion_of_pipeline(app, id).await?;
    view.deployment = find_deployment_of_pipeline(app, id).await?;
    Ok(view)
}

/// Lists pipelines, newest first.
///
/// # Errors
/// When the database fails.
pub async fn list_pipelines(app: &App, filter: &PipelineFilter, limit: i64) -> Result<Vec<Pipeline>> {
    let mut db = app.connection().await?;
    let rows = store::list_pipelines(&mut db, filter, limit).await?;
    views(app, &mut db, rows).await
}

async fn views(app: &App, db: &mut PgConnection, rows: Vec<PipelineRow>) -> Result<Vec<Pipeline>> {
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    let mut jobs: HashMap<i64, Vec<Job>> = HashMap::new();
    let rows_of_jobs = list_jobs(db, &ids).await?;
    for job in job::views(app, db, rows_of_jobs).await? {
        jobs.entry(job.pipeline_id).or_default().push(job);
    }
    rows.into_iter()
        .map(|row| {
            let file_errors = row.file_errors.map(serde_json::from_value).transpose();
            Ok(Pipeline {
                id: row.id,
                repository: row.repository,
                branch: row.branch,
                sha: row.sha,
                commit_subject: row.commit_subject,
                commit_author: row.commit_author,
                status: *row.status,
                status_reason: row.status_reason,
                file_errors: file_errors.map_err(|error| Error::Internal(error.into()))?,
                url: url(app, row.id),
                created_at: row.created_at,
                finished_at: row.finished_at,
                jobs: jobs.remove(&row.id).unwrap_or_default(),
                promotion: None,
                deployment: None,
            })
        })
        .collect()
}

/// Computes a pipeline's status from its jobs and its promotion and stores it. To be called in every
/// transaction that changes one of these. Takes the pipeline's row lock.
///
/// # Errors
/// When there is no such pipeline.
pub async fn settle(app: &App, db: &mut PgConnection, id: i64) -> Result<PipelineStatus> {
    let row = store::lock_pipeline(db, id).await?;
    if row.plan.is_none() {
        return Ok(*row.status);
    }
    let jobs = list_jobs(db, &[id]).await?;
    let promotion = store::find_promotion_state(db, id).await?;
    let (status, reason) = status_of(&jobs, promotion.as_ref());
    if let Some(promotion) = promotion.filter(|promotion| *promotion.status == PromotionStatus::Waiting) {
        // whoever judges promotions looks whether the jobs it needs are done
        notify(db, &format!("promotion:{}", promotion.id)).await?;
    }
    if (status, reason.as_str()) != (*row.status, row.status_reason.as_str()) {
        let finished_at = if status.is_final() { row.finished_at.or_else(|| Some(app.clock.now())) } else { None };
        store::update_pipeline_status(db, id, status, &reason, finished_at).await?;
    }
    notify(db, &format!("pipeline:{id}")).await?;
    Ok(status)
}

/// The status that follows from jobs and promotion, and the one line that explains it.
fn status_of(jobs: &[JobRow], promotion: Option<&PromotionState>) -> (PipelineStatus, String) {
    let failed = jobs.iter().filter(|job| *job.status == JobStatus::Failed).min_by_key(|job| (job.finished_at, job.id));
    if let Some(job) = failed {
        return (PipelineStatus::Failed, format!("job {} failed: {}", job.name, job.message));
    }
    if jobs.iter().any(|job| !job.status.is_final()) {
        // the promotion needs not wait for every job, but the pipeline does
        let reason = promotion.map(|promotion| promotion.reason.clone()).unwrap_or_default();
        return (PipelineStatus::Running, reason);
    }
    if let Some(job) = jobs.iter().find(|job| *job.status == JobStatus::Cancelled) {
        return (PipelineStatus::Cancelled, format!("job {} was cancelled", job.name));
    }
    let Some(promotion) = promotion else { return (PipelineStatus::Succeeded, String::new()) };
    let status = match *promotion.status {
        PromotionStatus::Waiting => PipelineStatus::Running,
        PromotionStatus::WaitingApproval => PipelineStatus::WaitingApproval,
        PromotionStatus::Promoted => PipelineStatus::Succeeded,
        PromotionStatus::Blocked | PromotionStatus::Error => PipelineStatus::Blocked,
        PromotionStatus::Cancelled => PipelineStatus::Cancelled,
    };
    (status, promotion.reason.clone())
}

#[cfg(test)]
mod tests {
    use sluice_store::text::Text;

    use super::*;

    fn jobs(list: &[(&str, JobStatus)]) -> Vec<JobRow> {
        let jobs = list.iter().zip(1..);
        jobs.map(|((name, status), id)| JobRow { id, message: "exit code 1".to_owned(), ..job::tests::job(name, *status, &[], &[]) })
            .collect()
    }

    #[test]
    fn status_follows_from_jobs_and_promotion() {
        use JobStatus::{Cancelled, Failed, Queued, Running, Skipped, Succeeded};
        let promotion = |status| PromotionState { id: 1, status: Text(status), reason: "because".to_owned() };
        let of = |list: &[(&str, JobStatus)], promotion: Option<PromotionState>| status_of(&jobs(list), promotion.as_ref());
        let done = [("a", Succeeded), ("b", Succeeded)];
        assert_eq!(of(&done, None), (PipelineStatus::Succeeded, String::new()));
        assert_eq!(of(&[("a", Succeeded), ("b", Queued)], None).0, PipelineStatus::Running);
        assert_eq!(of(&[("a", Failed), ("b", Running)], None), (PipelineStatus::Failed, "job a failed: exit code 1".to_owned()));
        assert_eq!(of(&[("a", Cancelled), ("b", Skipped)], None), (PipelineStatus::Cancelled, "job a was cancelled".to_owned()));
        for (state, status) in [
            (PromotionStatus::Waiting, PipelineStatus::Running),
            (PromotionStatus::WaitingApproval, PipelineStatus::WaitingApproval),
            (PromotionStatus::Promoted, PipelineStatus::Succeeded),
            (PromotionStatus::Blocked, PipelineStatus::Blocked),
            (PromotionStatus::Error, PipelineStatus::Blocked),
            (PromotionStatus::Cancelled, PipelineStatus::Cancelled),
        ] {
            assert_eq!(of(&done, Some(promotion(state))), (status, "because".to_owned()), "{state}");
            // a job that the promotion does not need keeps the pipeline running
            assert_eq!(of(&[("a", Succeeded), ("engine", Queued)], Some(promotion(state))).0, PipelineStatus::Running, "{state}");
        }
    }
}
