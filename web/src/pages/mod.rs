//! One module per page. A handler reads the URL, asks `sluice_app`, and fills a template.

mod experiments;
mod home;
mod job;
mod metric;
mod models;
mod operations;
mod pipeline;
mod pipelines;
mod repositories;
mod run;
mod runs;
mod version;

use actix_web::{
    Route, guard,
    web::{self, ServiceConfig, post},
};

/// Adds every page.
pub fn configure(config: &mut ServiceConfig) {
    config
        .route("/", get().to(home::show))
        .route("/experiments", get().to(experiments::list))
        .route("/experiments/{id}", get().to(runs::table))
        .route("/runs/{id}", get().to(run::show))
        .route("/runs/{id}/metric", get().to(metric::show))
        .route("/pipelines", get().to(pipelines::list))
        .route("/pipelines/{id}", get().to(pipeline::show))
        .route("/pipelines/{id}/cancel", post().to(pipeline::cancel))
        .route("/jobs/{id}", get().to(job::show))
        .route("/jobs/{id}/log.txt", get().to(job::raw_log))
        .route("/jobs/{id}/cancel", post().to(job::cancel))
        .route("/jobs/{id}/retry", post().to(job::retry))
        .route("/models", get().to(models::list))
        .route("/models/{name}", get().to(models::show))
        .route("/models/{name}/rollback", post().to(models::roll_back))
        .route("/models/{name}/versions/{version}", get().to(version::show))
        .route("/models/{name}/versions/{version}/approve", post().to(version::approve_version))
        .route("/repositories", get().to(repositories::list))
        .route("/repositories", post().to(repositories::create))
        .route("/repositories/{name}", get().to(repositories::show))
        .route("/runners", get().to(operations::runners))
        .route("/deployments", get().to(operations::deployments))
        .route("/audit", get().to(operations::audit));
}

/// A page answers HEAD as it answers GET.
fn get() -> Route {
    web::route().guard(guard::Any(guard::Get()).or(guard::Head()))
}

/// Reads a run id from a path: anything else is a page that does not exist.
fn run_id(text: &str) -> Result<sluice_domain::id::RunId, crate::error::PageError> {
    text.parse().map_err(|_| sluice_app::Error::NotFound(format!("There is no run {text:?}: a run id has 32 hex digits.")).into())
}

/// Reads a number from a path: anything else is a page that does not exist.
fn number<T: std::str::FromStr>(what: &str, text: &str) -> Result<T, crate::error::PageError> {
    text.parse().map_err(|_| sluice_app::Error::NotFound(format!("There is no {what} {text:?}: its id is a number.")).into())
}
