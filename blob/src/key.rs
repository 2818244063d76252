//! Keys of stored objects: the path part of an `mlflow-artifacts:/…` URI, checked before any use.

use std::fmt;

use object_store::path::{Path, PathPart};
use sluice_domain::names::check_relative_path;

use crate::Error;

/// Longest name of one path part, in bytes as stored. File systems allow 255; the rest is for the suffix
/// of a staged upload.
const MAX_PART_BYTES: usize = 240;

/// A checked key: relative, without `..`, `.`, empty parts, backslashes, control characters or `#`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(String);

impl Key {
    /// Checks a path as a client sent it: percent-decoded until nothing changes any more, so that no layer
    /// behind this one can see another path by decoding once more.
    ///
    /// # Errors
    /// [`Error::InvalidKey`] with the rule that the path breaks.
    pub fn parse(raw: &str) -> Result<Self, Error> {
        let invalid = |rule: &str| Error::InvalidKey(format!("Invalid path {raw:?}: {rule}"));
        let path = decode_until_stable(raw).ok_or_else(|| invalid("its percent-decoded form must be UTF-8"))?;
        check_relative_path(&path).map_err(|rule| invalid(&rule))?;
        if path.contains('#') {
            return Err(invalid("\"#\" is not allowed"));
        }
        if has_drive_letter(&path) {
            return Err(invalid("drive letters are not allowed"));
        }
        if path.split('/').any(|part| PathPart::from(part).as_ref().len() > MAX_PART_BYTES) {
            return Err(invalid(&format!("each part may have at most {MAX_PART_BYTES} bytes")));
        }
        Ok(Self(path))
    }

    /// The key of a path below this one.
    ///
    /// # Errors
    /// As [`Key::parse`].
    pub fn join(&self, path: &str) -> Result<Self, Error> {
        Self::parse(&format!("{}/{path}", self.0))
    }

    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last part.
    #[must_use]
    pub fn file_name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    pub(crate) fn path(&self) -> Path {
        Path::from_iter(self.0.split('/'))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// `c:` or `c:/…` at the start, which names another root on Windows.
fn has_drive_letter(path: &str) -> bool {
    let bytes = path.as_bytes();
    bytes.len() >= 2 && bytes[0].is_ascii_alphabetic() && bytes[1] == b':' && matches!(bytes.get(2), None | Some(b'/'))
}

/// Percent-decodes until a fixed point; `None` when the bytes are not UTF-8. Ends because each pass that
/// changes the text makes it shorter.
fn decode_until_stable(raw: &str) -> Option<String> {
    let mut text = raw.to_owned();
    loop {
        let decoded = percent_decode(&text)?;
        if decoded == text {
            return Some(text);
        }
        text = decoded;
    }
}

/// One pass of percent-decoding; an escape that is not two hex digits stays as it is.
pub(crate) fn percent_decode(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escape = (bytes[at] == b'%').then(|| Some((hex(*bytes.get(at + 1)?)?, hex(*bytes.get(at + 2)?)?))).flatten();
        if let Some((high, low)) = escape {
            decoded.push(high << 4 | low);
            at += 3;
        } else {
            decoded.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(decoded).ok()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_until_nothing_changes() {
        assert_eq!(Key::parse("0/run/a%20b.txt").unwrap().as_str(), "0/run/a b.txt");
        assert_eq!(Key::parse("a%252Fb").unwrap().as_str(), "a/b");
        assert_eq!(Key::parse("100%.txt").unwrap().as_str(), "100%.txt");
        assert_eq!(Key::parse("ünï/日本.bin").unwrap().as_str(), "ünï/日本.bin");
    }

    #[test]
    fn paths_that_leave_the_store_are_refused() {
        for bad in [
            "",
            "/etc/passwd",
            "..",
            "../x",
            "a/../../b",
            "a/%2e%2e/b",
            "a/%252e%252e/b",
            "%2Fetc",
            "a//b",
            "a/",
            "./a",
            "a\\b",
            "a%5Cb",
            "a\0b",
            "a%00b",
            "a%0ab",
            "a#b",
            "a%23b",
            "a%2523b",
            "C:/x",
            "c:",
            "%ff",
            "a/%c3%28",
        ] {
            assert!(matches!(Key::parse(bad), Err(Error::InvalidKey(_))), "{bad:?}");
        }
        assert!(Key::parse(&"x".repeat(300)).is_err());
        assert!(Key::parse(&"~".repeat(100)).is_err(), "stored as %7E each");
        assert!(Key::parse("a").unwrap().join("../b").is_err());
    }
}
