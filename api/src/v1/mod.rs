//! The native API below `/api/v1`. One module per area; `docs/API.md` lists the routes.

mod deployments;
mod gates;
pub mod input;
mod models;

use actix_web::web;

/// Adds every native route.
pub fn configure(config: &mut web::ServiceConfig) {
    config.service(web::scope("/api/v1").configure(models::configure).configure(gates::configure).configure(deployments::configure));
}
