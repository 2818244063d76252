//! `/pipelines`

use actix_web::{HttpRequest, HttpResponse, web::Data};
use askama::Template;
use sluice_app::{
    App,
    view::pipelines::{self as view, PipelineFilter, PipelineItem},
};
use sluice_domain::state::PipelineStatus;

use crate::{
    assets,
    error::PageError,
    page::{self, Frame},
    query::{self, Query},
    show,
};

#[derive(Template)]
#[template(path = "pipelines.html")]
struct Pipelines {
    frame: Frame,
    filter: PipelineFilter,
    statuses: &'static [PipelineStatus],
    items: Vec<PipelineItem>,
    next: Option<String>,
    public_url: String,
}

impl Pipelines {
    fn filtered(&self) -> bool {
        self.filter.repository.is_some() || self.filter.branch.is_some() || self.filter.status.is_some() || self.filter.before.is_some()
    }

    fn is_status(&self, status: &PipelineStatus) -> bool {
        self.filter.status.as_deref() == Some(status.as_str())
    }
}

/// `GET /pipelines?repository=&branch=&status=&before=`
pub async fn list(request: HttpRequest, app: Data<App>) -> Result<HttpResponse, PageError> {
    let query = Query::parse(request.query_string());
    let text = |key| query.get(key).map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
    let filter =
        PipelineFilter { repository: text("repository"), branch: text("branch"), status: text("status"), before: query.parsed("before") };
    let items = view::list(&app, &filter, view::PAGE).await?;
    let full = items.len() as i64 == view::PAGE;
    let next = items.last().filter(|_| full).map(|item| query.with("before", Some(&item.pipeline.id.to_string())).link("/pipelines"));
    let frame = Frame::new(&request, "pipelines", "Pipelines").live(topics(&items));
    let page = Pipelines { filter, statuses: PipelineStatus::ALL, items, next, public_url: app.settings.public_url.clone(), frame };
    page::html(&page.frame, &page)
}

/// The topics of those that may still change; `queue` tells of new ones.
pub(super) fn topics(items: &[PipelineItem]) -> Vec<String> {
    let open = items.iter().filter(|item| matches!(&*item.pipeline.status, "running" | "waiting_approval"));
    let mut topics: Vec<_> = open.take(100).map(|item| format!("pipeline:{}", item.pipeline.id)).collect();
    topics.push("queue".to_owned());
    topics
}
