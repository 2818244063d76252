//! `/pipelines/{id}`

use actix_web::{
    HttpRequest, HttpResponse,
    web::{Data, Path},
};
use askama::Template;
use sluice_app::{
    Actor, App, job,
    pipeline::{self, Pipeline},
};
use sluice_domain::state::{JobStatus, PipelineStatus, PromotionStatus};

use super::number;
use crate::{
    assets,
    dag::{self, BOX_HEIGHT, BOX_WIDTH, Layout, Node},
    error::PageError,
    flash,
    page::{self, Frame},
    query, show,
};

#[derive(Template)]
#[template(path = "pipeline.html")]
struct PipelinePage {
    frame: Frame,
    pipeline: Pipeline,
    layout: Layout,
    tone: &'static str,
}

impl PipelinePage {
    fn open(&self) -> bool {
        self.pipeline.jobs.iter().any(|job| !job.status.is_final())
    }

    /// Second line of a box: what a reader wants to know about the job now.
    fn note(&self, index: &usize) -> String {
        let Some(job) = self.pipeline.jobs.get(*index) else { return String::new() };
        let word = show::badge(&job.status).word;
        match job.status {
            JobStatus::Running | JobStatus::Succeeded | JobStatus::Failed => {
                format!("{word} · {}", show::span(&job.started_at, &job.finished_at))
            }
            _ => word.to_owned(),
        }
    }

    /// Whether an edge leads from a job that has not succeeded.
    fn waiting(&self, from: &usize) -> bool {
        self.pipeline.jobs.get(*from).is_some_and(|job| job.status != JobStatus::Succeeded)
    }

    fn promotion_tone(&self) -> &'static str {
        match self.pipeline.promotion.as_ref().map(|promotion| promotion.status) {
            Some(PromotionStatus::Promoted) => "good",
            Some(PromotionStatus::Blocked | PromotionStatus::Error) => "bad",
            Some(PromotionStatus::WaitingApproval) => "warn",
            _ => "calm",
        }
    }
}

/// `GET /pipelines/{id}`
pub async fn show(request: HttpRequest, app: Data<App>, id: Path<String>) -> Result<HttpResponse, PageError> {
    let id = number("pipeline", &id)?;
    let pipeline = pipeline::get_pipeline(&app, id).await?;
    let nodes: Vec<_> = pipeline.jobs.iter().map(|job| Node { name: job.name.clone(), needs: job.needs.clone() }).collect();
    let tone = show::badge(&pipeline.status).tone;
    let mut topics = Vec::new();
    let deploying = pipeline.deployment.as_ref().filter(|deployment| show::badge(&deployment.status).tone == "busy");
    if matches!(pipeline.status, PipelineStatus::Running | PipelineStatus::WaitingApproval) || deploying.is_some() {
        topics.push(format!("pipeline:{id}"));
        topics.extend(pipeline.jobs.iter().take(150).map(|job| format!("job:{}", job.id)));
        topics.extend(pipeline.promotion.iter().map(|promotion| format!("promotion:{}", promotion.id)));
        topics.extend(pipeline.deployment.iter().map(|deployment| format!("deployment:{}", deployment.id)));
    }
    let frame = Frame::new(&request, "pipelines", format!("#{id} {}", pipeline.commit_subject)).live(topics);
    let page = PipelinePage { frame, layout: dag::layout(&nodes), tone, pipeline };
    page::html(&page.frame, &page)
}

/// `POST /pipelines/{id}/cancel`
pub async fn cancel(app: Data<App>, id: Path<String>) -> Result<HttpResponse, PageError> {
    let id: i64 = number("pipeline", &id)?;
    let page = format!("/pipelines/{id}");
    match job::cancel_pipeline(&app, &Actor::anonymous(), id).await {
        Ok(_) => Ok(flash::done(&page, "Cancelled: running jobs are being stopped.")),
        Err(error) => flash::refused(&page, error),
    }
}
