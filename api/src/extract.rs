//! What handlers take from requests, with errors that name the field.

use std::collections::BTreeMap;

use actix_web::{
    FromRequest, HttpRequest,
    dev::Payload,
    http::header,
    web::{self, Bytes},
};
use futures_util::{StreamExt as _, future::LocalBoxFuture};
use serde::{Serialize, de::DeserializeOwned};
use sluice_app::{Error, Result};
use sluice_domain::problem::FieldError;

use crate::problem::Problem;

/// JSON bodies are at most this large.
pub const MAX_JSON_BYTES: usize = 4 * 1024 * 1024;

/// Rows on a page unless `limit` says otherwise, and the most it may say.
const DEFAULT_LIMIT: i64 = 50;
const MAX_LIMIT: i64 = 500;

/// A JSON body.
#[derive(Debug)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned + 'static> FromRequest for Json<T> {
    type Error = Problem;
    type Future = LocalBoxFuture<'static, std::result::Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let mut payload = payload.take();
        let declared = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        Box::pin(async move {
            let too_large = || Error::TooLarge { what: "the request body".to_owned(), limit_bytes: MAX_JSON_BYTES as u64 };
            if declared.is_some_and(|bytes| bytes > MAX_JSON_BYTES as u64) {
                return Err(too_large().into());
            }
            let mut body = Vec::new();
            while let Some(chunk) = payload.next().await {
                let chunk: Bytes = chunk.map_err(|error| Error::invalid("body", format!("the request body broke off: {error}")))?;
                if body.len() + chunk.len() > MAX_JSON_BYTES {
                    return Err(too_large().into());
                }
                body.extend_from_slice(&chunk);
            }
            Ok(Self(parse_json(&body)?))
        })
    }
}

/// Parses a JSON body; the error names the field that is wrong, not a position in the text. No bytes are an
/// empty object.
fn parse_json<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    let body = if body.iter().all(u8::is_ascii_whitespace) { b"{}" } else { body };
    let mut json = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let source = error.into_inner();
        if source.is_syntax() || source.is_eof() {
            return Error::invalid("body", format!("the request body is not JSON: {source}"));
        }
        let message = source.to_string();
        let message = message.rfind(" at line ").map_or(message.as_str(), |at| &message[..at]).to_owned();
        let field = field_of(&path, &message);
        Error::Invalid { message: format!("{field}: {message}"), fields: vec![FieldError { field, message }] }
    })?;
    json.end().map_err(|_| Error::invalid("body", "the request body goes on after the JSON value"))?;
    Ok(value)
}

/// serde reports a missing or unknown field at the object that should (not) hold it.
fn field_of(path: &str, message: &str) -> String {
    let named = message
        .strip_prefix("missing field `")
        .or_else(|| message.strip_prefix("unknown field `"))
        .and_then(|rest| Some(rest.split_once('`')?.0))
        .filter(|name| path.rsplit('.').next() != Some(name));
    match (path, named) {
        (".", Some(name)) => name.to_owned(),
        (".", None) => "body".to_owned(),
        (path, Some(name)) => format!("{path}.{name}"),
        (path, None) => path.to_owned(),
    }
}

/// The parameters of a query string. Handlers take each by name; what is left over is refused by [`Params::done`].
#[derive(Debug)]
pub struct Params(BTreeMap<String, String>);

impl Params {
    /// Parses the query string of a request.
    ///
    /// # Errors
    /// When it is malformed or gives a parameter twice.
    pub fn of(request: &HttpRequest) -> Result<Self> {
        let pairs = web::Query::<Vec<(String, String)>>::from_query(request.query_string())
            .map_err(|error| Error::invalid("query", format!("the query string is malformed: {error}")))?
            .into_inner();
        let mut params = BTreeMap::new();
        for (name, value) in pairs {
            if value.contains('\0') {
                return Err(Error::invalid(&name, format!("{name} holds a NUL character")));
            }
            if params.insert(name.clone(), value).is_some() {
                return Err(Error::invalid(&name, format!("{name} is given twice")));
            }
        }
        Ok(Self(params))
    }

    /// A parameter as text; empty is the same as absent.
    pub fn text(&mut self, name: &str) -> Option<String> {
        self.0.remove(name).filter(|value| !value.is_empty())
    }

    /// A parameter of another type.
    ///
    /// # Errors
    /// When it cannot be parsed; the message names it.
    pub fn parse<T: std::str::FromStr>(&mut self, name: &str) -> Result<Option<T>>
    where
        T::Err: std::fmt::Display,
    {
        let Some(text) = self.text(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|error| Error::invalid(name, format!("{name}: {error}")))
    }

    /// A number from 0 on.
    ///
    /// # Errors
    /// When it is none.
    pub fn number(&mut self, name: &str) -> Result<Option<i64>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        text.parse()
            .ok()
            .filter(|number| *number >= 0)
            .map(Some)
            .ok_or_else(|| Error::invalid(name, format!("{name} {text:?} must be a whole number from 0 on")))
    }

    /// `limit`: how many rows a page has.
    ///
    /// # Errors
    /// When it is out of range.
    pub fn limit(&mut self) -> Result<i64> {
        match self.number("limit")? {
            None => Ok(DEFAULT_LIMIT),
            Some(limit) if (1..=MAX_LIMIT).contains(&limit) => Ok(limit),
            Some(limit) => Err(Error::invalid("limit", format!("limit {limit} must be 1 to {MAX_LIMIT}"))),
        }
    }

    /// Refuses parameters that nothing has taken.
    ///
    /// # Errors
    /// When there are any.
    pub fn done(self) -> Result<()> {
        let fields: Vec<_> =
            self.0.into_keys().map(|name| FieldError { message: format!("unknown parameter {name}"), field: name }).collect();
        match fields.first() {
            None => Ok(()),
            Some(first) => Err(Error::Invalid { message: first.message.clone(), fields }),
        }
    }
}

/// A page of a list. `next` is what `after` takes for the following page.
#[derive(Debug, Serialize)]
pub struct Page<T> {
    pub items: Vec<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// Makes a page of at most `limit` rows from up to `limit + 1` that were fetched.
    pub fn new(mut items: Vec<T>, limit: i64, key: impl FnOnce(&T) -> String) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(key);
        Self { items, next }
    }
}

/// An id in a path. What is not a number names nothing.
///
/// # Errors
/// [`Error::NotFound`].
pub fn id<T: std::str::FromStr>(text: &str, what: &str) -> Result<T> {
    text.parse().map_err(|_| Error::NotFound(format!("{what} {text:?} not found: {what} ids are whole numbers")))
}

/// A whole number in a path that names a version or the like.
///
/// # Errors
/// [`Error::Invalid`] when it is none.
pub fn number<T: std::str::FromStr>(field: &str, text: &str) -> Result<T> {
    text.parse().map_err(|_| Error::invalid(field, format!("{field} must be a whole number, is {text:?}")))
}

/// The secret of `Authorization: Bearer …`.
///
/// # Errors
/// When there is none.
pub fn bearer(request: &HttpRequest) -> Result<String> {
    let value = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match value.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty() => Ok(token.trim().to_owned()),
        _ => Err(Error::Unauthenticated("the header `Authorization: Bearer TOKEN` is required".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only parsed")]
    struct Outer {
        name: String,
        items: Vec<Inner>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only parsed")]
    struct Inner {
        seq: i64,
    }

    #[test]
    fn errors_name_the_field() {
        for (body, field) in [
            ("", "name"),
            (" ", "name"),
            ("{", "body"),
            ("[]", "body"),
            ("{}", "name"),
            (r#"{"name": 1}"#, "name"),
            (r#"{"name": "a", "colour": 1}"#, "colour"),
            (r#"{"name": "a", "items": [{"seq": 1}, {"seq": "x"}]}"#, "items[1].seq"),
            (r#"{"name": "a", "items": [{}]}"#, "items[0].seq"),
            (r#"{"name": "a", "items": [{"seq": 1, "x": 2}]}"#, "items[0].x"),
            (r#"{"name": "a", "items": []} x"#, "body"),
        ] {
            let Err(Error::Invalid { fields, message }) = parse_json::<Outer>(body.as_bytes()) else { panic!("{body} was taken") };
            assert_eq!(fields[0].field, field, "{body}: {message}");
            assert!(field == "body" || !message.contains("line"), "{message}");
        }
    }
}
