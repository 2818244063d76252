//! The query string as the state of a page: read it, change one part, link to the result.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Kept readable in URLs beside letters and digits.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/').remove(b':').remove(b',');

/// Kept readable in a path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Encodes one segment of a path.
pub fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

/// The pairs of a query string, in order. Keys may repeat.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses a query string; what is not UTF-8 is replaced, empty values are dropped.
    pub fn parse(text: &str) -> Self {
        let decode = |part: &str| percent_decode_str(&part.replace('+', " ")).decode_utf8_lossy().into_owned();
        let pairs = text.split('&').filter_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (!key.is_empty() && !value.is_empty()).then(|| (decode(key), decode(value)))
        });
        Self(pairs.collect())
    }

    /// The first value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
    }

    /// Every value of a key.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> + use<'a> {
        self.0.iter().filter(move |(k, _)| k == key).map(|(_, value)| value.as_str())
    }

    /// The first value of a key as a number or the like; `None` when it is missing or malformed.
    pub fn parsed<T: std::str::FromStr>(&self, key: &str) -> Option<T> {
        self.get(key)?.parse().ok()
    }

    /// The same query with `key` set to one value, or without it.
    #[must_use]
    pub fn with(&self, key: &str, value: Option<&str>) -> Self {
        let mut pairs: Vec<_> = self.0.iter().filter(|(k, _)| k != key).cloned().collect();
        if let Some(value) = value {
            pairs.push((key.to_owned(), value.to_owned()));
        }
        Self(pairs)
    }

    /// The pairs whose key is not `key`, for hidden fields of a form that sets `key`.
    pub fn others(&self, keys: &[&str]) -> Vec<(String, String)> {
        self.0.iter().filter(|(k, _)| !keys.contains(&k.as_str())).cloned().collect()
    }

    /// `path` with this query.
    pub fn link(&self, path: &str) -> String {
        if self.0.is_empty() {
            return path.to_owned();
        }
        let encode = |text: &str| utf8_percent_encode(text, PLAIN).to_string();
        let pairs: Vec<_> = self.0.iter().map(|(key, value)| format!("{}={}", encode(key), encode(value))).collect();
        format!("{path}?{}", pairs.join("&"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_survives_the_round_trip() {
        let query = Query::parse("filter=metrics.%22val%2Facc%22+%3E+0.9&col=a&col=b&empty=&x");
        assert_eq!(query.get("filter"), Some("metrics.\"val/acc\" > 0.9"));
        assert_eq!(query.all("col").collect::<Vec<_>>(), ["a", "b"]);
        let link = query.link("/p");
        assert_eq!(Query::parse(link.split_once('?').unwrap().1), query);
        assert_eq!(query.with("col", None).with("filter", None).link("/p"), "/p");
    }

    #[test]
    fn segments_cannot_leave_their_place() {
        assert_eq!(segment("../a b?#"), "..%2Fa%20b%3F%23");
    }
}
