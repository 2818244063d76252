//! Errors as HTTP answers: RFC 9457 `application/problem+json` natively, `{error_code, message}` for MLflow.

use actix_web::{HttpResponse, ResponseError, http::StatusCode};
use serde_json::json;
use sluice_app::Error;

/// A use case's error on the native surface.
#[derive(Debug)]
pub struct Problem(pub Error);

/// A use case's error on the MLflow surface.
#[derive(Debug)]
pub struct MlflowError(pub Error);

impl<E: Into<Error>> From<E> for Problem {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl<E: Into<Error>> From<E> for MlflowError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::fmt::Display for MlflowError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        status(self.0.code().http_status())
    }

    fn error_response(&self) -> HttpResponse {
        log(&self.0);
        let code = self.0.code();
        let fields: &[_] = if let Error::Invalid { fields, .. } = &self.0 { fields } else { &[] };
        let mut answer = HttpResponse::build(self.status_code());
        if matches!(self.0, Error::Unavailable(_)) {
            answer.insert_header(("Retry-After", "1"));
        }
        answer.content_type("application/problem+json").body(
            json!({
                "title": self.status_code().canonical_reason().unwrap_or_default(),
                "status": code.http_status(),
                "code": code.as_str(),
                "detail": self.0.to_string(),
                "errors": fields,
            })
            .to_string(),
        )
    }
}

impl ResponseError for MlflowError {
    fn status_code(&self) -> StatusCode {
        status(self.0.code().mlflow().1)
    }

    fn error_response(&self) -> HttpResponse {
        log(&self.0);
        let mut answer = HttpResponse::build(self.status_code());
        if matches!(self.0, Error::Unavailable(_)) {
            answer.insert_header(("Retry-After", "1"));
        }
        answer.json(json!({ "error_code": self.0.code().mlflow().0, "message": self.0.to_string() }))
    }
}

fn status(code: u16) -> StatusCode {
    StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// Logs once, at the boundary: our faults with their chain, callers' faults quietly.
fn log(error: &Error) {
    match error {
        Error::Internal(source) | Error::Unavailable(source) => tracing::error!(error = format!("{source:#}"), "request failed"),
        other => tracing::debug!(error = %other, "request refused"),
    }
}
