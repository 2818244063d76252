//! Failures as pages: what happened, and where to go on.

use actix_web::{HttpRequest, HttpResponse, ResponseError, http::StatusCode};
use askama::Template;
use sluice_app::Error;

use crate::{
    assets,
    page::{self, Frame},
    show,
};

/// A use case's error on a page.
#[derive(Debug)]
pub struct PageError(pub Error);

impl<E: Into<Error>> From<E> for PageError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl std::fmt::Display for PageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for PageError {}

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage {
    frame: Frame,
    status: u16,
    what: &'static str,
    detail: String,
}

impl ResponseError for PageError {
    fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.0.code().http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn error_response(&self) -> HttpResponse {
        match &self.0 {
            Error::Internal(source) | Error::Unavailable(source) => tracing::error!(error = format!("{source:#}"), "page failed"),
            other => tracing::debug!(error = %other, "page refused"),
        }
        let what = match &self.0 {
            Error::NotFound(_) => "Nothing here",
            Error::Unavailable(_) => "Sluice is starting or its database is away",
            Error::Internal(_) => "Something broke on our side",
            Error::Conflict(_) | Error::AlreadyExists(_) | Error::StaleAttempt(_) => "That does not fit the present state",
            Error::Unauthenticated(_) | Error::Forbidden(_) => "Not allowed",
            _ => "That request makes no sense to Sluice",
        };
        error_page(self.status_code(), what, self.0.to_string())
    }
}

fn error_page(status: StatusCode, what: &'static str, detail: String) -> HttpResponse {
    let frame = Frame { title: what.to_owned(), ..Frame::default() };
    let page = ErrorPage { frame, status: status.as_u16(), what, detail };
    page::answer(status, false, &page).unwrap_or_else(|_| HttpResponse::build(status).body(what))
}

/// The answer for paths that nothing serves: a page for people, JSON below the paths of programs.
pub async fn nothing_here(request: HttpRequest) -> HttpResponse {
    let path = request.path();
    let for_programs = ["/api/", "/ajax-api/", "/git/", "/v2/", "/schema/"].iter().any(|prefix| path.starts_with(prefix));
    if for_programs {
        let detail = format!("no route {} {path}", request.method());
        let body = serde_json::json!({ "title": "Not Found", "status": 404, "code": "not_found", "detail": detail, "errors": [] });
        return HttpResponse::NotFound().content_type("application/problem+json").body(body.to_string());
    }
    error_page(StatusCode::NOT_FOUND, "Nothing here", format!("There is no page at {path}."))
}
