//! The list of pipelines and the pipeline page.

use std::collections::HashMap;

pub use sluice_store::view::{
    operations::DeploymentRow,
    pipelines::{JobRow, JobSegment, PipelineFilter, PipelineHead, PipelineRow, PromotionRow},
};
use sluice_store::view::{models as model_store, operations, pipelines as store};

use super::{jobs::Waiting, models::GateRow};
use crate::{App, Error, Result};

/// Rows on one page.
pub const PAGE: i64 = 50;

/// A pipeline and its jobs.
#[derive(Debug, Clone)]
pub struct PipelineItem {
    pub pipeline: PipelineRow,
    pub jobs: Vec<JobSegment>,
}

/// Lists pipelines, newest first.
///
/// # Errors
/// When the database fails.
pub async fn list(app: &App, filter: &PipelineFilter, limit: i64) -> Result<Vec<PipelineItem>> {
    let mut db = app.connection().await?;
    let rows = store::list_pipelines(&mut db, filter, limit).await?;
    let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    let mut jobs: HashMap<i64, Vec<JobSegment>> = HashMap::new();
    for job in store::list_job_segments(&mut db, &ids).await? {
        jobs.entry(job.pipeline_id).or_default().push(job);
    }
    Ok(rows.into_iter().map(|pipeline| PipelineItem { jobs: jobs.remove(&pipeline.id).unwrap_or_default(), pipeline }).collect())
}

/// The pipeline page.
#[derive(Debug, Clone)]
pub struct PipelinePage {
    pub head: PipelineHead,
    /// Each job with the reason why it waits, if it does.
    pub jobs: Vec<(JobRow, Option<String>)>,
    pub promotion: Option<PromotionRow>,
    pub gate: Option<GateRow>,
    pub deployment: Option<DeploymentRow>,
}

/// Gets the pipeline page.
///
/// # Errors
/// [`Error::NotFound`], or when the database fails.
pub async fn get(app: &App, id: i64) -> Result<PipelinePage> {
    let mut db = app.connection().await?;
    let head = store::find_pipeline(&mut db, id).await?.ok_or_else(|| Error::NotFound(format!("pipeline {id} not found")))?;
    let rows = store::list_jobs(&mut db, id).await?;
    let waiting = Waiting::load(&mut db, app.clock.now()).await?;
    let unfinished: Vec<_> = rows.iter().filter(|job| matches!(&*job.status, "pending" | "queued" | "running")).map(|job| job.name.clone()).collect();
    let jobs = rows
        .into_iter()
        .map(|job| {
            let reason = match &*job.status {
                "pending" => {
                    let open: Vec<_> = job.needs.iter().filter(|need| unfinished.contains(need)).map(String::as_str).collect();
                    Some(format!("needs {}", if open.is_empty() { job.needs.join(", ") } else { open.join(", ") }))
                }
                "queued" => Some(waiting.reason(&job.requires, job.cpus)),
                _ => None,
            };
            (job, reason)
        })
        .collect();
    let promotion = store::find_promotion(&mut db, id).await?;
    let mut gate = None;
    let mut deployment = None;
    if let Some(gate_id) = promotion.as_ref().and_then(|promotion| promotion.gate_record_id) {
        gate = model_store::find_gate_record(&mut db, gate_id).await?;
        deployment = operations::find_deployment_of_gate(&mut db, gate_id).await?;
    }
    Ok(PipelinePage { head, jobs, promotion, gate, deployment })
}
