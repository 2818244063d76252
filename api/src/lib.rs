//! JSON over HTTP. `mlflow` speaks MLflow's wire format, `v1` is the native API, `git` the built-in remote.
//! Handlers parse, call one use case of `sluice-app`, and shape the answer; no rules live here.

mod extract;
mod git;
pub mod guard;
pub mod mlflow;
pub mod problem;
mod schema;
pub mod serving;
mod sse;
pub mod v1;

use actix_web::web;

/// Adds every route of this crate. The application data must hold `web::Data<sluice_app::App>` and
/// `web::Data<sluice_app::deployment::Deployments>`.
pub fn configure(config: &mut web::ServiceConfig) {
    config.configure(mlflow::configure).configure(git::configure).configure(v1::configure).configure(serving::configure);
    config.configure(schema::configure);
}
