//! `/runners`, `/deployments`, `/audit`

use actix_web::{HttpRequest, HttpResponse, web::Data};
use askama::Template;
use sluice_app::{
    App,
    deployment::{Deployment, list_deployments},
    model::list_audit,
    view::operations::{self as view, RunnersPage},
};
use sluice_domain::state::DeploymentStatus;

use crate::{
    assets,
    error::PageError,
    page::{self, Frame},
    query::{self, Query},
    show,
};

const PAGE: i64 = 100;

#[derive(Template)]
#[template(path = "runners.html")]
struct Runners {
    frame: Frame,
    page: RunnersPage,
    public_url: String,
}

/// `GET /runners`
pub async fn runners(request: HttpRequest, app: Data<App>) -> Result<HttpResponse, PageError> {
    let page = view::runners(&app).await?;
    let mut topics = vec!["queue".to_owned()];
    topics.extend(page.runners.iter().flat_map(|runner| &runner.jobs).take(100).map(|job| format!("job:{}", job.id)));
    topics.extend(page.queue.iter().take(60).map(|item| format!("job:{}", item.job.id)));
    let page =
        Runners { frame: Frame::new(&request, "runners", "Runners").live(topics), page, public_url: app.settings.public_url.clone() };
    page::html(&page.frame, &page)
}

#[derive(Template)]
#[template(path = "deployments.html")]
struct Deployments {
    frame: Frame,
    /// Filter: the model whose deployments are shown.
    model: String,
    serving: Vec<Deployment>,
    rows: Vec<Deployment>,
    next: Option<String>,
    public_url: String,
}

/// `GET /deployments?model=&before=`
pub async fn deployments(request: HttpRequest, app: Data<App>) -> Result<HttpResponse, PageError> {
    let query = Query::parse(request.query_string());
    let model = query.get("model").map(str::trim).unwrap_or_default().to_owned();
    let rows = list_deployments(&app, (!model.is_empty()).then_some(&model), query.parsed("before"), PAGE).await?;
    let full = rows.len() as i64 == PAGE;
    let next = rows.last().filter(|_| full).map(|row| query.with("before", Some(&row.id.to_string())).link("/deployments"));
    let serving: Vec<_> = rows.iter().filter(|row| row.status == DeploymentStatus::Serving).cloned().collect();
    let live = rows.iter().filter(|row| matches!(row.status, DeploymentStatus::Serving | DeploymentStatus::Starting));
    let topics: Vec<_> = live.take(100).map(|row| format!("deployment:{}", row.id)).collect();
    let frame = Frame::new(&request, "deployments", "Deployments").live(topics);
    let page = Deployments { frame, model, serving, rows, next, public_url: app.settings.public_url.clone() };
    page::html(&page.frame, &page)
}

#[derive(Template)]
#[template(path = "audit.html")]
struct Audit {
    frame: Frame,
    subject: String,
    rows: Vec<Row>,
    next: Option<String>,
}

/// An audit row, ready to print.
struct Row {
    at: chrono::DateTime<chrono::Utc>,
    actor: String,
    action: String,
    subject: String,
    /// The page of the subject.
    link: Option<String>,
    by_subject: String,
    detail: Vec<(String, String)>,
}

/// `GET /audit?subject=&before=`
pub async fn audit(request: HttpRequest, app: Data<App>) -> Result<HttpResponse, PageError> {
    let query = Query::parse(request.query_string());
    let subject = query.get("subject").map(str::trim).unwrap_or_default().to_owned();
    let rows = list_audit(&app, (!subject.is_empty()).then_some(&subject), query.parsed("before"), PAGE).await?;
    let full = rows.len() as i64 == PAGE;
    let next = rows.last().filter(|_| full).map(|row| query.with("before", Some(&row.id.to_string())).link("/audit"));
    let rows = rows
        .into_iter()
        .map(|row| Row {
            at: row.at,
            link: subject_link(&row.subject),
            by_subject: Query::default().with("subject", Some(&row.subject)).link("/audit"),
            detail: row
                .detail
                .as_object()
                .map(|fields| {
                    fields.iter().map(|(name, value)| (name.clone(), plain(value))).filter(|(_, value)| !value.is_empty()).collect()
                })
                .unwrap_or_default(),
            actor: row.actor,
            action: row.action,
            subject: row.subject,
        })
        .collect();
    let page = Audit { frame: Frame::new(&request, "audit", "Audit"), subject, rows, next };
    page::html(&page.frame, &page)
}

fn plain(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => String::new(),
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The page of an audit subject such as `model:digits` or `pipeline:12`.
fn subject_link(subject: &str) -> Option<String> {
    let (kind, id) = subject.split_once(':')?;
    let id = query::segment(id);
    match kind {
        "model" => Some(format!("/models/{id}")),
        "pipeline" => Some(format!("/pipelines/{id}")),
        "job" => Some(format!("/jobs/{id}")),
        "repository" => Some(format!("/repositories/{id}")),
        "run" => Some(format!("/runs/{id}")),
        "experiment" => Some(format!("/experiments/{id}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_lead_to_their_pages() {
        assert_eq!(subject_link("model:a b").as_deref(), Some("/models/a%20b"));
        assert_eq!(subject_link("pipeline:12").as_deref(), Some("/pipelines/12"));
        assert_eq!(subject_link("promotion:1"), None);
    }
}
