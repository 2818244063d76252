//! The fields of a request: the query string of a GET, the JSON body of anything else.
//!
//! MLflow's messages are proto2 JSON: a field may be written `run_id` or `runId`, a 64-bit integer as number
//! or string, an unknown field is ignored, and null is the same as absent.

use actix_web::{
    FromRequest, HttpRequest,
    dev::Payload,
    http::{Method, header},
    web,
};
use futures_util::{
    StreamExt as _,
    future::{LocalBoxFuture, ready},
};
use serde_json::{Map, Value};
use sluice_app::{Error, Result};

use crate::problem::MlflowError;

/// Largest JSON body.
pub const BODY_LIMIT: usize = 4 * 1024 * 1024;

const HINT: &str = "See the API docs for more information about request parameters.";

/// The fields of a request, or of an object inside one. Getters say in their errors which field is wrong.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Args {
    fields: Map<String, Value>,
    /// Where this object is in the request, e.g. `metrics[0]`; empty for the request itself.
    path: String,
    /// From a query string, where every value is text.
    is_query: bool,
}

impl Args {
    /// Wraps a JSON object.
    #[must_use]
    pub fn from_object(fields: Map<String, Value>) -> Self {
        Self { fields, ..Self::default() }
    }

    /// Parses a query string.
    ///
    /// # Errors
    /// When it is malformed.
    pub fn from_query(query: &str) -> Result<Self> {
        let pairs = web::Query::<Vec<(String, String)>>::from_query(query)
            .map_err(|error| Error::invalid("query", format!("the query string is malformed: {error}")))?
            .into_inner();
        let mut fields = Map::new();
        for (key, value) in pairs {
            match fields.get_mut(&key) {
                None => {
                    fields.insert(key, Value::String(value));
                }
                Some(Value::Array(values)) => values.push(Value::String(value)),
                Some(first) => *first = Value::Array(vec![first.take(), Value::String(value)]),
            }
        }
        Ok(Self { fields, path: String::new(), is_query: true })
    }

    /// Parses a JSON body. No bytes are an empty object; a JSON string is parsed once more (very old clients).
    ///
    /// # Errors
    /// When it is no JSON object.
    pub fn from_body(body: &[u8]) -> Result<Self> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self::default());
        }
        let malformed = |error: serde_json::Error| Error::invalid("body", format!("The request body is not valid JSON: {error}"));
        let mut value: Value = serde_json::from_slice(body).map_err(malformed)?;
        if let Value::String(text) = &value {
            value = serde_json::from_str(text).map_err(malformed)?;
        }
        match value {
            Value::Object(fields) => Ok(Self::from_object(fields)),
            other => {
                Err(Error::invalid("body", format!("The request body must be a JSON object, but is of type '{}'.", python_type(&other))))
            }
        }
    }

    /// The path of one of this object's fields, for messages.
    #[must_use]
    pub fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// The error for a field that is absent or empty.
    #[must_use]
    pub fn missing(&self, name: &str) -> Error {
        let path = self.path_of(name);
        Error::invalid(&path, format!("Missing value for required parameter '{path}'. {HINT}"))
    }

    /// The error for a field whose value is of a wrong type or outside of its values.
    fn wrong(&self, name: &str, value: &Value) -> Error {
        let path = self.path_of(name);
        let mut shown = value.to_string();
        if shown.chars().count() > 200 {
            shown = shown.chars().take(200).collect::<String>() + "…";
        }
        let message =
            format!("Invalid value {shown} for parameter '{path}' supplied:  Hint: Value was of type '{}'. {HINT}", python_type(value));
        Error::invalid(&path, message)
    }

    /// The raw value of a field, under either spelling. Null counts as absent.
    ///
    /// # Errors
    /// When both spellings are given.
    pub fn value(&self, name: &str) -> Result<Option<&Value>> {
        let camel = camel_case(name);
        let value = match (self.fields.get(name), self.fields.get(&camel)) {
            (Some(_), Some(_)) if camel != name => {
                let path = self.path_of(name);
                return Err(Error::invalid(&path, format!("Request specifies both '{name}' and '{camel}'; provide only one of them.")));
            }
            (Some(value), _) | (None, Some(value)) => value,
            (None, None) => return Ok(None),
        };
        Ok((!value.is_null()).then_some(value))
    }

    /// Whether the field is given and not null.
    ///
    /// # Errors
    /// When both spellings are given.
    pub fn has(&self, name: &str) -> Result<bool> {
        Ok(self.value(name)?.is_some())
    }

    /// A text field.
    ///
    /// # Errors
    /// When it is no string, or holds a NUL character, which Postgres cannot store.
    pub fn text(&self, name: &str) -> Result<Option<String>> {
        self.value(name)?.map(|value| self.as_text(name, value)).transpose()
    }

    /// A text field that must be there and not be empty.
    ///
    /// # Errors
    /// When it is absent, empty, or no string.
    pub fn required_text(&self, name: &str) -> Result<String> {
        self.text(name)?.filter(|text| !text.is_empty()).ok_or_else(|| self.missing(name))
    }

    /// A text field under its name or a legacy one (`run_id`, `run_uuid`); the first wins. `None` when absent or empty.
    ///
    /// # Errors
    /// When it is no string.
    pub fn text_of_either(&self, name: &str, legacy: &str) -> Result<Option<String>> {
        let text = self.text(name)?.filter(|text| !text.is_empty());
        Ok(if text.is_some() { text } else { self.text(legacy)?.filter(|text| !text.is_empty()) })
    }

    /// The run id, as `run_id` or `run_uuid`.
    ///
    /// # Errors
    /// When it is absent, empty, or no string.
    pub fn required_run_id(&self) -> Result<String> {
        self.text_of_either("run_id", "run_uuid")?.ok_or_else(|| self.missing("run_id"))
    }

    /// An integer, written as number or string.
    ///
    /// # Errors
    /// When it is no integer of 64 bits.
    pub fn integer(&self, name: &str) -> Result<Option<i64>> {
        let Some(value) = self.value(name)? else { return Ok(None) };
        let number = match value {
            Value::Number(number) => number.as_i64().or_else(|| number.as_f64().and_then(whole)),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        number.map(Some).ok_or_else(|| self.wrong(name, value))
    }

    /// An integer that must be there.
    ///
    /// # Errors
    /// When it is absent or no integer.
    pub fn required_integer(&self, name: &str) -> Result<i64> {
        self.integer(name)?.ok_or_else(|| self.missing(name))
    }

    /// A floating-point number: a number, a numeric string, `"NaN"`, `"Infinity"` or `"-Infinity"`.
    ///
    /// # Errors
    /// When it is neither.
    pub fn float(&self, name: &str) -> Result<Option<f64>> {
        let Some(value) = self.value(name)? else { return Ok(None) };
        let number = match value {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        number.map(Some).ok_or_else(|| self.wrong(name, value))
    }

    /// A boolean; in a query string `true` or `false` in any case.
    ///
    /// # Errors
    /// When it is neither.
    pub fn boolean(&self, name: &str) -> Result<Option<bool>> {
        match self.value(name)? {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(Value::String(text)) if self.is_query && text.eq_ignore_ascii_case("true") => Ok(Some(true)),
            Some(Value::String(text)) if self.is_query && text.eq_ignore_ascii_case("false") => Ok(Some(false)),
            Some(Value::String(text)) if self.is_query => Err(Error::invalid(
                &self.path_of(name),
                format!("Invalid boolean value: {text}, must be 'true' or 'false' (parameter '{name}')."),
            )),
            Some(other) => Err(self.wrong(name, other)),
        }
    }

    /// An enum field, written as its name or its proto number.
    ///
    /// # Errors
    /// When it is none of `values`.
    pub fn one_of(&self, name: &str, values: &[(&'static str, i64)]) -> Result<Option<&'static str>> {
        let Some(value) = self.value(name)? else { return Ok(None) };
        let found = match value {
            Value::String(text) => {
                let number = text.parse::<i64>().ok();
                values.iter().find(|(known, n)| known == text || Some(*n) == number)
            }
            Value::Number(number) => values.iter().find(|(_, n)| number.as_i64() == Some(*n)),
            _ => None,
        };
        found.map(|(known, _)| Some(*known)).ok_or_else(|| self.wrong(name, value))
    }

    /// A list of texts; empty when absent.
    ///
    /// # Errors
    /// When it is no list of strings.
    pub fn texts(&self, name: &str) -> Result<Vec<String>> {
        match self.value(name)? {
            None => Ok(Vec::new()),
            Some(value @ Value::String(_)) if self.is_query => Ok(vec![self.as_text(name, value)?]),
            Some(Value::Array(items)) => items.iter().enumerate().map(|(i, item)| self.as_text(&format!("{name}[{i}]"), item)).collect(),
            Some(other) => Err(self.wrong(name, other)),
        }
    }

    /// A list of objects; empty when absent.
    ///
    /// # Errors
    /// When it is no list of objects.
    pub fn items(&self, name: &str) -> Result<Vec<Self>> {
        match self.value(name)? {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => items
                .iter()
                .enumerate()
                .map(|(i, item)| match item {
                    Value::Object(fields) => {
                        Ok(Self { fields: fields.clone(), path: self.path_of(&format!("{name}[{i}]")), is_query: false })
                    }
                    other => Err(self.wrong(&format!("{name}[{i}]"), other)),
                })
                .collect(),
            Some(other) => Err(self.wrong(name, other)),
        }
    }

    /// An object inside this one.
    ///
    /// # Errors
    /// When it is no object.
    pub fn object(&self, name: &str) -> Result<Option<Self>> {
        match self.value(name)? {
            None => Ok(None),
            Some(Value::Object(fields)) => Ok(Some(Self { fields: fields.clone(), path: self.path_of(name), is_query: false })),
            Some(other) => Err(self.wrong(name, other)),
        }
    }

    fn as_text(&self, name: &str, value: &Value) -> Result<String> {
        match value {
            Value::String(text) if text.contains('\0') => {
                let path = self.path_of(name);
                Err(Error::invalid(&path, format!("Invalid value for parameter '{path}' supplied: it contains a NUL character.")))
            }
            Value::String(text) => Ok(text.clone()),
            other => Err(self.wrong(name, other)),
        }
    }
}

impl FromRequest for Args {
    type Error = MlflowError;
    type Future = LocalBoxFuture<'static, std::result::Result<Self, MlflowError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        if matches!(*request.method(), Method::GET | Method::HEAD) {
            return Box::pin(ready(Self::from_query(request.query_string()).map_err(MlflowError)));
        }
        if matches!(*request.method(), Method::POST | Method::PUT)
            && let Err(error) = check_content_type(request)
        {
            return Box::pin(ready(Err(MlflowError(error))));
        }
        let mut payload = payload.take();
        Box::pin(async move {
            let mut body = web::BytesMut::new();
            while let Some(chunk) = payload.next().await {
                let chunk = chunk.map_err(|error| Error::invalid("body", format!("The request body ended early: {error}")))?;
                if body.len() + chunk.len() > BODY_LIMIT {
                    return Err(MlflowError(Error::TooLarge { what: "The request body".to_owned(), limit_bytes: BODY_LIMIT as u64 }));
                }
                body.extend_from_slice(&chunk);
            }
            Self::from_body(&body).map_err(MlflowError)
        })
    }
}

fn check_content_type(request: &HttpRequest) -> Result<()> {
    let Some(value) = request.headers().get(header::CONTENT_TYPE) else {
        return Err(Error::invalid("Content-Type", "Bad Request. Content-Type header is missing."));
    };
    let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        Ok(())
    } else {
        Err(Error::invalid("Content-Type", "Bad Request. Content-Type must be one of ['application/json']."))
    }
}

/// A float without a fraction, inside the range that floats count exactly.
#[allow(clippy::cast_possible_truncation, reason = "checked on the line before")]
fn whole(value: f64) -> Option<i64> {
    (value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0).then_some(value as i64)
}

fn camel_case(name: &str) -> String {
    let mut camel = String::with_capacity(name.len());
    let mut upper = false;
    for c in name.chars() {
        if c == '_' {
            upper = true;
        } else if upper {
            camel.push(c.to_ascii_uppercase());
            upper = false;
        } else {
            camel.push(c);
        }
    }
    camel
}

fn python_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "NoneType",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float",
        Value::Number(_) => "int",
        Value::String(_) => "str",
        Value::Array(_) => "list",
        Value::Object(_) => "dict",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(json: &str) -> Args {
        Args::from_body(json.as_bytes()).unwrap()
    }

    #[test]
    fn both_spellings_are_read_and_both_at_once_refused() {
        assert_eq!(args(r#"{"run_id": "a"}"#).text("run_id").unwrap().as_deref(), Some("a"));
        assert_eq!(args(r#"{"runId": "a"}"#).text("run_id").unwrap().as_deref(), Some("a"));
        let error = args(r#"{"run_id": "a", "runId": "a"}"#).text("run_id").unwrap_err();
        assert!(error.to_string().contains("specifies both"));
        assert_eq!(args(r#"{"run_uuid": "b"}"#).required_run_id().unwrap(), "b");
    }

    #[test]
    fn numbers_come_as_numbers_or_text() {
        let args = args(r#"{"a": 5, "b": "5", "c": 5.0, "d": 5.5, "e": true, "f": "NaN", "g": "-Infinity", "h": "1e3"}"#);
        for name in ["a", "b", "c"] {
            assert_eq!(args.integer(name).unwrap(), Some(5), "{name}");
        }
        for name in ["d", "e", "f"] {
            let error = args.integer(name).unwrap_err().to_string();
            assert!(error.contains(&format!("for parameter '{name}' supplied:  Hint: Value was of type '")), "{error}");
        }
        assert!(args.float("f").unwrap().unwrap().is_nan());
        assert_eq!(args.float("g").unwrap(), Some(f64::NEG_INFINITY));
        assert_eq!(args.float("h").unwrap(), Some(1000.0));
        assert!(args.float("e").is_err());
    }

    #[test]
    fn items_name_their_place() {
        let items = args(r#"{"metrics": [{"key": "a"}, {"key": 5}]}"#).items("metrics").unwrap();
        assert_eq!(
            items[0].required_integer("value").unwrap_err().to_string(),
            "Missing value for required parameter 'metrics[0].value'. See the API docs for more information about request parameters."
        );
        assert!(items[1].text("key").unwrap_err().to_string().contains("'metrics[1].key'"));
        assert!(args(r#"{"metrics": [3]}"#).items("metrics").is_err());
    }

    #[test]
    fn queries_repeat_lists() {
        let args = Args::from_query("stages=a&stages=b&one=x&yes=TRUE&max_results=7&bad=maybe").unwrap();
        assert_eq!(args.texts("stages").unwrap(), ["a", "b"]);
        assert_eq!(args.texts("one").unwrap(), ["x"]);
        assert_eq!(args.boolean("yes").unwrap(), Some(true));
        assert_eq!(args.integer("max_results").unwrap(), Some(7));
        assert!(args.boolean("bad").unwrap_err().to_string().contains("bad"));
        assert!(args.text("stages").is_err());
    }

    #[test]
    fn enums_are_names_or_numbers() {
        let values = [("ACTIVE_ONLY", 1), ("ALL", 3)];
        assert_eq!(args(r#"{"v": "ALL"}"#).one_of("v", &values).unwrap(), Some("ALL"));
        assert_eq!(args(r#"{"v": 1}"#).one_of("v", &values).unwrap(), Some("ACTIVE_ONLY"));
        assert!(args(r#"{"v": "BOGUS"}"#).one_of("v", &values).is_err());
    }

    #[test]
    fn bodies_are_objects() {
        assert_eq!(args(""), Args::default());
        assert_eq!(args(r#""{\"a\": 1}""#).integer("a").unwrap(), Some(1));
        for bad in ["{x", "[]", "3", "\"x\""] {
            assert!(Args::from_body(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(args("{\"a\": \"x\\u0000\"}").text("a").is_err());
    }
}
