//! `/runs/{id}/metric?key=KEY`: one metric, large, with its points as a table.

use actix_web::{
    HttpRequest, HttpResponse,
    web::{Data, Path},
};
use askama::Template;
use sluice_app::{
    App, Error, run,
    view::runs::{self as view, PointRow},
};
use sluice_domain::{
    state::RunStatus,
    tracking::{MetricSummary, Run},
};

use super::run_id;
use crate::{
    assets,
    error::PageError,
    page::{self, Frame},
    query::Query,
    show,
};

#[derive(Template)]
#[template(path = "metric.html")]
struct MetricPage {
    frame: Frame,
    run: Run,
    metric: MetricSummary,
    points: Vec<PointRow>,
    first: Option<String>,
    next: Option<String>,
    json: String,
}

/// `GET /runs/{id}/metric?key=KEY&after=STEP,TIMESTAMP,VALUE`
pub async fn show(request: HttpRequest, app: Data<App>, id: Path<String>) -> Result<HttpResponse, PageError> {
    let query = Query::parse(request.query_string());
    let id = run_id(&id)?;
    let run = run::get_run(&app, &id.to_string()).await?;
    let key = query.get("key").unwrap_or_default();
    let metric = run.metric(key).cloned().ok_or_else(|| Error::NotFound(format!("run {id} never logged a metric {key:?}")))?;
    let after = query.get("after").and_then(|after| {
        let mut parts = after.splitn(3, ',');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    });
    let (points, more) = view::points(&app, id, key, after).await?;
    let path = format!("/runs/{id}/metric");
    let next = points
        .last()
        .filter(|_| more)
        .map(|point| query.with("after", Some(&format!("{},{},{}", point.step, point.timestamp_ms, point.value))).link(&path));
    let topics = (run.info.status == RunStatus::Running).then(|| format!("run:{id}"));
    let page = MetricPage {
        frame: Frame::new(&request, "experiments", format!("{key} · {}", run.info.name)).live(topics),
        first: query.get("after").map(|_| query.with("after", None).link(&path)),
        next,
        json: Query::default().with("key", Some(key)).with("px", Some("1000")).link(&format!("/api/v1/runs/{id}/series")),
        points,
        metric,
        run,
    };
    page::html(&page.frame, &page)
}
