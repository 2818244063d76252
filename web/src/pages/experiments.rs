//! `/experiments`

use actix_web::{HttpRequest, HttpResponse, web::Data};
use askama::Template;
use sluice_app::{
    App,
    view::experiments::{self as view, ExperimentRow},
};

use crate::{
    assets,
    error::PageError,
    page::{self, Frame},
    query::Query,
    show,
};

#[derive(Template)]
#[template(path = "experiments.html")]
struct Experiments {
    frame: Frame,
    text: String,
    paged: bool,
    rows: Vec<ExperimentRow>,
    next: Option<String>,
    public_url: String,
}

/// `GET /experiments?q=&after=ACTIVITY,ID`
pub async fn list(request: HttpRequest, app: Data<App>) -> Result<HttpResponse, PageError> {
    let query = Query::parse(request.query_string());
    let text = query.get("q").map(str::trim).unwrap_or_default().to_owned();
    let after = query.get("after").and_then(|after| {
        let (activity, id) = after.split_once(',')?;
        Some((activity.parse().ok()?, id.parse().ok()?))
    });
    let rows = view::list(&app, (!text.is_empty()).then_some(&text), after).await?;
    let full = rows.len() as i64 == view::PAGE;
    let next =
        rows.last().filter(|_| full).map(|row| query.with("after", Some(&format!("{},{}", row.activity_ms, row.id))).link("/experiments"));
    let frame = Frame::new(&request, "experiments", "Experiments");
    let page = Experiments { text, paged: after.is_some(), rows, next, public_url: app.settings.public_url.clone(), frame };
    page::html(&page.frame, &page)
}
