//! What every page has: its frame, and the headers that keep it harmless.

use actix_web::{HttpRequest, HttpResponse, http::StatusCode, http::header};
use askama::Template;

use crate::{error::PageError, flash::Flash};

/// Nothing from elsewhere, nothing inline: user text that slipped through would still not run.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; font-src 'self'; frame-ancestors 'self'; form-action 'self'; base-uri 'none'";

/// Title, navigation and live topics of a page.
#[derive(Debug, Clone, Default)]
pub struct Frame {
    pub title: String,
    /// Name of the navigation entry that is current.
    pub section: &'static str,
    pub flash: Option<Flash>,
    /// Topics of `/api/v1/events` on which the page refreshes its live regions, separated by commas.
    pub topics: String,
}

impl Frame {
    /// A page of a section.
    pub fn new(request: &HttpRequest, section: &'static str, title: impl Into<String>) -> Self {
        Self { title: title.into(), section, flash: Flash::read(request), topics: String::new() }
    }

    /// Refreshes live regions when one of the topics changes.
    #[must_use]
    pub fn live(mut self, topics: impl IntoIterator<Item = String>) -> Self {
        self.topics = topics.into_iter().collect::<Vec<_>>().join(",");
        self
    }
}

/// Answers with a page.
pub fn html(frame: &Frame, template: &impl Template) -> Result<HttpResponse, PageError> {
    answer(StatusCode::OK, frame.flash.is_some(), template)
}

/// Answers with a page that is not a success.
pub fn answer(status: StatusCode, clear_flash: bool, template: &impl Template) -> Result<HttpResponse, PageError> {
    let body = template.render().map_err(|error| PageError(sluice_app::Error::Internal(anyhow::Error::from_boxed(error.into_box()))))?;
    let mut response = HttpResponse::build(status);
    response
        .insert_header((header::CONTENT_TYPE, "text/html; charset=utf-8"))
        .insert_header((header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY))
        .insert_header((header::CACHE_CONTROL, "no-cache"));
    if clear_flash {
        response.insert_header((header::SET_COOKIE, Flash::clear()));
    }
    Ok(response.body(body))
}
