//! Reading native requests: JSON bodies whose errors name the field, and the paging of lists.

use actix_web::{FromRequest, HttpRequest, dev::Payload, web};
use futures_util::{StreamExt as _, future::LocalBoxFuture};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sluice_app::{Error, Result};

use crate::problem::Problem;

/// Largest JSON body.
pub const BODY_LIMIT: usize = 4 * 1024 * 1024;
const MAX_PAGE: i64 = 500;
const DEFAULT_PAGE: i64 = 50;

/// A JSON body. Types that refuse unknown fields say so with `deny_unknown_fields`.
#[derive(Debug)]
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned + 'static> FromRequest for JsonBody<T> {
    type Error = Problem;
    type Future = LocalBoxFuture<'static, std::result::Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let too_large = || Error::TooLarge { what: "the request body".to_owned(), limit_bytes: BODY_LIMIT as u64 };
        let declared = request.headers().get("content-length").and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        let mut payload = payload.take();
        Box::pin(async move {
            if declared.is_some_and(|bytes| bytes > BODY_LIMIT) {
                return Err(Problem(too_large()));
            }
            let mut body = web::BytesMut::new();
            while let Some(chunk) = payload.next().await {
                let chunk = chunk.map_err(|error| Error::invalid("body", format!("the request body broke off: {error}")))?;
                if body.len() + chunk.len() > BODY_LIMIT {
                    return Err(Problem(too_large()));
                }
                body.extend_from_slice(&chunk);
            }
            Ok(Self(parse(&body)?))
        })
    }
}

/// Parses JSON; no bytes are an empty object.
fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    let body = if body.iter().all(u8::is_ascii_whitespace) { b"{}" } else { body };
    let mut json = serde_json::Deserializer::from_slice(body);
    let parsed = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let problem = error.into_inner();
        if problem.is_syntax() || problem.is_eof() {
            return Error::invalid("body", format!("the request body is not valid JSON: {problem}"));
        }
        let text = problem.to_string();
        let message = text.split(" at line ").next().unwrap_or(&text);
        // serde puts the name of a missing field in the message, and the path ends at its parent
        let named = message.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
        let field = match (path.as_str(), named) {
            (".", Some(named)) => named.to_owned(),
            (parent, Some(named)) => format!("{parent}.{named}"),
            (".", None) => "body".to_owned(),
            (path, None) => path.to_owned(),
        };
        Error::invalid(&field, format!("{field}: {message}"))
    })?;
    json.end().map_err(|error| Error::invalid("body", format!("the request body is not valid JSON: {error}")))?;
    Ok(parsed)
}

/// A query string as a type that refuses unknown fields where it says so.
///
/// # Errors
/// When it does not fit; the message names the field where serde does.
pub fn query<T: DeserializeOwned>(request: &HttpRequest) -> Result<T> {
    web::Query::<T>::from_query(request.query_string()).map(web::Query::into_inner).map_err(|error| {
        let text = error.to_string();
        let named = text.split('`').nth(1).filter(|_| text.contains("field `")).unwrap_or("query").to_owned();
        Error::invalid(&named, format!("{named}: {text}"))
    })
}

/// A whole number in a path or query.
///
/// # Errors
/// When it is none.
pub fn number<T: std::str::FromStr>(field: &str, text: &str) -> Result<T> {
    text.parse().map_err(|_| Error::invalid(field, format!("{field} must be a whole number, is {text:?}")))
}

/// `limit` of a list: 1 to 500, default 50.
///
/// # Errors
/// When it is outside of that.
pub fn limit(given: Option<&str>) -> Result<i64> {
    let Some(text) = given else { return Ok(DEFAULT_PAGE) };
    match text.parse() {
        Ok(limit) if (1..=MAX_PAGE).contains(&limit) => Ok(limit),
        _ => Err(Error::invalid("limit", format!("limit must be 1 to {MAX_PAGE}, is {text:?}"))),
    }
}

/// One page of a list.
#[derive(Debug, Serialize)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Token of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// Cuts a list that was read with one item more than `limit`; `token` names where the next page begins.
    #[must_use]
    pub fn cut(mut items: Vec<T>, limit: i64, token: impl Fn(&T) -> String) -> Self {
        let limit = usize::try_from(limit).unwrap_or_default();
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(token);
        Self { items, next }
    }
}

/// Query of a list that is paged by id.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paging {
    pub after: Option<String>,
    pub limit: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        #[expect(dead_code, reason = "only parsed")]
        alias: String,
        #[expect(dead_code, reason = "only parsed")]
        steps: Option<Vec<i32>>,
    }

    fn field_of(body: &str) -> String {
        let Error::Invalid { fields, .. } = parse::<Sample>(body.as_bytes()).unwrap_err() else { panic!("invalid") };
        fields[0].field.clone()
    }

    #[test]
    fn the_bad_field_is_named() {
        assert!(parse::<Sample>(br#"{"alias": "champion"}"#).is_ok());
        assert_eq!(field_of("{}"), "alias");
        assert_eq!(field_of(""), "alias");
        assert_eq!(field_of(r#"{"alias": 3}"#), "alias");
        assert_eq!(field_of(r#"{"alias": "a", "steps": [1, "x"]}"#), "steps[1]");
        assert_eq!(field_of(r#"{"alias": "a", "other": 1}"#), "other");
        assert_eq!(field_of("[1]"), "body");
        assert_eq!(field_of("{"), "body");
        assert_eq!(field_of(r#"{"alias": "a"} x"#), "body");
    }

    #[test]
    fn a_page_ends_with_a_token_only_when_more_follows() {
        let page = Page::cut(vec![1, 2, 3], 2, ToString::to_string);
        assert_eq!((page.items, page.next), (vec![1, 2], Some("2".to_owned())));
        assert_eq!(Page::cut(vec![1, 2], 2, ToString::to_string).next, None);
        assert!(limit(Some("0")).is_err() && limit(Some("501")).is_err() && limit(Some("x")).is_err());
        assert_eq!(limit(None).unwrap(), 50);
    }
}
