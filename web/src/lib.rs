//! HTML pages and their assets. Every page reads without JavaScript; its URL is its whole state.
//!
//! A page is a module in `pages`: a handler that reads the URL, calls `sluice_app`, and fills a template of
//! `templates/`. Only templates make HTML; `show` makes the texts that they print.

mod ansi;
mod assets;
mod dag;
mod error;
mod flash;
mod gate_view;
mod page;
mod pages;
mod query;
mod show;

use actix_web::web;

/// Adds every page and asset route, and the answer for paths that nothing serves. The application data must hold
/// `web::Data<sluice_app::App>`.
pub fn configure(config: &mut web::ServiceConfig) {
    config
        .route("/assets/{name}", web::get().to(assets::serve))
        .route("/favicon.ico", web::get().to(assets::favicon))
        .configure(pages::configure)
        .default_service(web::to(error::nothing_here));
}
