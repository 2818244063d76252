//! HTML pages and their assets. Every page reads without JavaScript; its URL is its whole state.

use actix_web::web;

/// Adds every page and asset route. The application data must hold `web::Data<sluice_app::App>`.
pub fn configure(_config: &mut web::ServiceConfig) {}
