//! Page tokens: the position of a page's last row, bound to the query that it belongs to.

use base64::{Engine as _, prelude::BASE64_URL_SAFE};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest as _, Sha256};

use crate::{Error, Result};

/// A page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// For the page after this one; `None` on the last.
    pub next_page_token: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Token<P> {
    /// Digest of the query.
    q: String,
    /// Position.
    p: P,
}

fn fingerprint(query: &impl Serialize) -> String {
    let text = serde_json::to_string(query).unwrap_or_default();
    Sha256::digest(text.as_bytes()).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// Makes a token. `query` is everything that the position depends on (filter, order, scope), not the page size.
#[must_use]
pub fn encode_token(query: &impl Serialize, position: impl Serialize) -> String {
    BASE64_URL_SAFE.encode(serde_json::to_string(&Token { q: fingerprint(query), p: position }).unwrap_or_default())
}

/// Reads a token that [`encode_token`] made for the same query.
///
/// # Errors
/// [`Error::Invalid`] when it is none, or one of another query.
pub fn decode_token<P: DeserializeOwned>(query: &impl Serialize, token: &str) -> Result<P> {
    let invalid = |message: String| Error::invalid("page_token", message);
    let bytes = BASE64_URL_SAFE.decode(token).map_err(|_| invalid("Invalid page token, could not base64-decode".to_owned()))?;
    let decoded: Token<P> = serde_json::from_slice(&bytes)
        .map_err(|_| invalid(format!("Invalid page token, decoded value={}", String::from_utf8_lossy(&bytes))))?;
    if decoded.q != fingerprint(query) {
        return Err(invalid("Invalid page token, it belongs to a search with another filter, order or scope.".to_owned()));
    }
    Ok(decoded.p)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_bound_to_their_query() {
        let token = encode_token(&("a", 1), 77);
        assert_eq!(decode_token::<i64>(&("a", 1), &token).unwrap(), 77);
        assert!(decode_token::<i64>(&("b", 1), &token).unwrap_err().to_string().contains("another filter"));
        for bad in ["%%%", "e30=", "", "abc"] {
            assert!(decode_token::<i64>(&("a", 1), bad).is_err(), "{bad}");
        }
    }
}
