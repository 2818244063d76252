//! `/`: links of MLflow's own pages (`/#/experiments/1/runs/…`) are translated by `hash.js`.

use actix_web::{HttpRequest, HttpResponse};
use askama::Template;

use crate::{
    assets,
    error::PageError,
    page::{self, Frame},
    show,
};

#[derive(Template)]
#[template(path = "home.html")]
struct Home {
    frame: Frame,
}

/// `GET /`
pub async fn show(request: HttpRequest) -> Result<HttpResponse, PageError> {
    let home = Home { frame: Frame::new(&request, "", "Home") };
    page::html(&home.frame, &home)
}
