//! The list of pipelines. A single one comes from `crate::pipeline`.

use std::collections::HashMap;

use sluice_store::view::pipelines as store;
pub use sluice_store::view::pipelines::{JobSegment, PipelineFilter, PipelineRow};

use crate::{App, Result};

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
