//! Sluice's own API under `/api/v1` (see `docs/API.md`).

mod deployments;
mod events;
mod gates;
mod jobs;
mod models;
mod pipelines;
mod repositories;
mod runner;
mod series;

use actix_web::{HttpResponse, ResponseError as _, web};
use sluice_app::Error;

use crate::problem::Problem;

/// What handlers give.
pub(crate) type Answer = Result<HttpResponse, Problem>;

/// Adds the routes.
pub fn configure(config: &mut web::ServiceConfig) {
    config.service(
        web::scope("/api/v1")
            .configure(repositories::configure)
            .configure(pipelines::configure)
            .configure(jobs::configure)
            .configure(runner::configure)
            .configure(series::configure)
            .configure(events::configure)
            .configure(models::configure)
            .configure(gates::configure)
            .configure(deployments::configure)
            .default_service(web::to(unknown)),
    );
}

async fn unknown(request: actix_web::HttpRequest) -> HttpResponse {
    Problem(Error::NotFound(format!("there is no {} {}", request.method(), request.path()))).error_response()
}
