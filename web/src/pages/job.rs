//! `/jobs/{id}`: what a job does, and its log as it grows.

use actix_web::{
    HttpRequest, HttpResponse,
    http::header,
    web::{Bytes, Data, Path},
};
use askama::Template;
use futures_util::stream;
use sluice_app::{
    Actor, App,
    job::{self, Attempt, Job},
    view::jobs::{self as view, CommitRow},
};
use sluice_domain::state::JobStatus;

use super::number;
use crate::{
    ansi::{self, Line},
    assets,
    error::PageError,
    flash,
    page::{self, CONTENT_SECURITY_POLICY, Frame},
    query::{self, Query},
    show,
};

#[derive(Template)]
#[template(path = "job.html")]
struct JobPage {
    frame: Frame,
    job: Job,
    commit: CommitRow,
    shown: i32,
    lines: Vec<Line>,
    /// The text after the last line break: it may grow.
    open_tail: String,
    skipped_lines: i64,
    last_number: i64,
    next_chunk: i64,
    follow: bool,
    tone: &'static str,
}

impl JobPage {
    fn attempt(&self) -> Option<&Attempt> {
        self.job.attempts.iter().find(|attempt| attempt.attempt == self.shown)
    }

    fn can_retry(&self) -> bool {
        matches!(self.job.status, JobStatus::Failed | JobStatus::Cancelled)
    }

    /// Where an output is downloaded from; none when it is kept elsewhere.
    fn file_link(&self, uri: &str) -> Option<String> {
        let path = uri.strip_prefix("mlflow-artifacts:/")?.trim_start_matches('/');
        let path: Vec<_> = path.split('/').map(query::segment).collect();
        Some(format!("/api/2.0/mlflow-artifacts/artifacts/{}", path.join("/")))
    }

    fn raw_log(&self) -> String {
        Query::default().with("attempt", Some(&self.shown.to_string())).link(&format!("/jobs/{}/log.txt", self.job.id))
    }
}

/// `GET /jobs/{id}?attempt=N`
pub async fn show(request: HttpRequest, app: Data<App>, id: Path<String>) -> Result<HttpResponse, PageError> {
    let query = Query::parse(request.query_string());
    let id: i64 = number("job", &id)?;
    let wanted = query.get("attempt").map(|text| number::<i32>("attempt", text)).transpose()?;
    let view::JobPage { job, commit, shown_attempt, log } = view::get(&app, id, wanted).await?;
    let lines = ansi::lines(&log.text, log.skipped_lines + 1);
    let open_tail = log.text.rsplit('\n').next().unwrap_or_default().to_owned();
    let last_number = lines.last().map_or(log.skipped_lines, |line| line.number);
    let latest = job.attempts.iter().map(|attempt| attempt.attempt).max().unwrap_or_default();
    let follow = !job.status.is_final() && shown_attempt == latest;
    let mut topics = Vec::new();
    if !job.status.is_final() {
        topics.push(format!("job:{id}"));
        topics.push(format!("pipeline:{}", job.pipeline_id));
    }
    let tone = if job.status == JobStatus::Failed { "bad" } else { "calm" };
    let page = JobPage {
        frame: Frame::new(&request, "pipelines", format!("{} · job {id}", job.name)).live(topics),
        commit,
        shown: shown_attempt,
        lines,
        open_tail,
        skipped_lines: log.skipped_lines,
        last_number,
        next_chunk: log.next_seq,
        follow,
        tone,
        job,
    };
    page::html(&page.frame, &page)
}

/// `GET /jobs/{id}/log.txt?attempt=N`: the whole log, streamed.
pub async fn raw_log(request: HttpRequest, app: Data<App>, id: Path<String>) -> Result<HttpResponse, PageError> {
    let query = Query::parse(request.query_string());
    let id: i64 = number("job", &id)?;
    let job = job::get_job(&app, id).await?;
    let latest = job.attempts.iter().map(|attempt| attempt.attempt).max().unwrap_or_default();
    let attempt = query.parsed("attempt").unwrap_or(latest);
    let pieces = stream::try_unfold(0i64, move |from| {
        let app = app.clone();
        async move {
            let chunks = view::log_chunks(&app, id, attempt, from).await.map_err(PageError)?;
            let next = from + chunks.len() as i64;
            Ok::<_, PageError>((!chunks.is_empty()).then(|| (Bytes::from(chunks.concat()), next)))
        }
    });
    Ok(HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/plain; charset=utf-8"))
        .insert_header((header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .streaming(Box::pin(pieces)))
}

/// `POST /jobs/{id}/cancel`
pub async fn cancel(app: Data<App>, id: Path<String>) -> Result<HttpResponse, PageError> {
    let id: i64 = number("job", &id)?;
    let page = format!("/jobs/{id}");
    match job::cancel_job(&app, &Actor::anonymous(), id).await {
        Ok(_) => Ok(flash::done(&page, "Cancelled: its processes are being stopped.")),
        Err(error) => flash::refused(&page, error),
    }
}

/// `POST /jobs/{id}/retry`
pub async fn retry(app: Data<App>, id: Path<String>) -> Result<HttpResponse, PageError> {
    let id: i64 = number("job", &id)?;
    let page = format!("/jobs/{id}");
    match job::retry_job(&app, &Actor::anonymous(), id).await {
        Ok(_) => Ok(flash::done(&page, "Queued for another attempt.")),
        Err(error) => flash::refused(&page, error),
    }
}
