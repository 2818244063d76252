//! The one module that knows the YAML library: text → tree of nodes that remember where they stand.
//!
//! The files come from strangers: size, depth, node count and alias expansion are bounded before anything is built.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::{Location, Spanned};

/// Largest file that is read.
pub const MAX_BYTES: usize = 256 * 1024;
const MAX_DEPTH: usize = 32;
const MAX_NODES: usize = 20_000;

/// Position in a file, from 1. `line` 0: unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark {
    pub line: u32,
    pub column: u32,
}

impl From<Location> for Mark {
    fn from(at: Location) -> Self {
        let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        Self { line: narrow(at.line()), column: narrow(at.column()) }
    }
}

/// A value and where it was written.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub value: Value,
    pub at: Mark,
    /// Byte range of the value's text, when known.
    span: Option<(usize, usize)>,
}

/// What a node holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    /// Entries in the order of the file. Keys are unique.
    Map(Vec<(String, Mark, Node)>),
}

impl Value {
    /// What the value is, for messages such as "must be a list, not a number".
    #[must_use]
    pub const fn noun(&self) -> &'static str {
        match self {
            Self::Null => "empty",
            Self::Bool(_) => "true or false",
            Self::Int(_) | Self::Float(_) => "a number",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

impl Node {
    /// The scalar as it was written, so that `1.10` stays `1.10`. `None` for lists, maps and nothing.
    #[must_use]
    pub fn scalar_text(&self, source: &str) -> Option<String> {
        let fallback = match &self.value {
            Value::Text(text) => return Some(text.clone()),
            Value::Bool(b) => b.to_string(),
            Value::Int(n) => n.to_string(),
            Value::Float(x) => x.to_string(),
            Value::Null | Value::List(_) | Value::Map(_) => return None,
        };
        let written = self.span.and_then(|(from, to)| source.get(from..to)).map(str::trim);
        Some(match written {
            Some(text) if !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-._".contains(c)) => text.to_owned(),
            _ => fallback,
        })
    }
}

/// Why a text is not usable YAML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    pub message: String,
    pub at: Mark,
}

/// Parses one document.
///
/// # Errors
/// When the text is too large, not YAML, holds more than one document, repeats a key, or goes beyond the budgets.
pub fn parse(source: &str) -> Result<Node, SyntaxError> {
    if source.len() > MAX_BYTES {
        let message = format!("the file has {} bytes; the limit is {MAX_BYTES}", source.len());
        return Err(SyntaxError { message, at: Mark::default() });
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: 4 * MAX_NODES,
            max_aliases: 200,
            max_anchors: 100,
            max_documents: 1,
            max_merge_keys: 100,
            flow_nesting_limit: MAX_DEPTH,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_NODES,
            max_replay_stack_depth: 16,
        },
        emit_comments: false,
        reject_unsupported_tags: true,
        non_finite_float_policy: serde_saphyr::NonFiniteFloatPolicy::PassThrough,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options::<Node>(source, options).map_err(|error| {
        let at = error.location().map(Mark::from).unwrap_or_default();
        SyntaxError { message: without_position(&error.without_snippet().to_string()), at }
    })
}

/// Drops the library's own "at line L, column C": the position is reported apart.
fn without_position(message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    match first.rfind(" at line ").or_else(|| first.rfind(" (line ")) {
        Some(end) => first[..end].trim_end_matches([',', ':']).to_owned(),
        None => first.to_owned(),
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        let span = spanned.defined.span();
        let range = span.byte_offset().zip(span.byte_len()).and_then(|(from, len)| {
            let from = usize::try_from(from).ok()?;
            Some((from, from.checked_add(usize::try_from(len).ok()?)?))
        });
        Ok(Self { value: spanned.value, at: spanned.referenced.into(), span: range })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(Value::Int(v))
    }

    fn visit_u64<E: serde::de::Error>(self, v: u64) -> Result<Value, E> {
        i64::try_from(v).map(Value::Int).map_err(|_| E::custom(format!("the number {v} is too large")))
    }

    fn visit_i128<E: serde::de::Error>(self, v: i128) -> Result<Value, E> {
        Err(E::custom(format!("the number {v} is too large")))
    }

    fn visit_u128<E: serde::de::Error>(self, v: u128) -> Result<Value, E> {
        Err(E::custom(format!("the number {v} is too large")))
    }

    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(Value::Float(v))
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::Text(v.to_owned()))
    }

    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(Value::Text(v))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element::<Node>()? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries: Vec<(String, Mark, Node)> = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            if entries.iter().any(|(name, ..)| *name == key.value) {
                return Err(A::Error::custom(format!("the key {:?} is given twice", key.value)));
            }
            let value = map.next_value::<Node>()?;
            entries.push((key.value, key.referenced.into(), value));
        }
        Ok(Value::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_know_where_they_stand() {
        let source = "a: 1\nb:\n  - x: 1.10\n    y: [true, ~]\n";
        let root = parse(source).unwrap();
        let Value::Map(entries) = &root.value else { panic!("{root:?}") };
        assert_eq!((entries[0].0.as_str(), entries[0].1), ("a", Mark { line: 1, column: 1 }));
        let Value::List(items) = &entries[1].2.value else { panic!() };
        let Value::Map(inner) = &items[0].value else { panic!() };
        assert_eq!((inner[0].1, inner[0].2.at), (Mark { line: 3, column: 5 }, Mark { line: 3, column: 8 }));
        assert_eq!(inner[0].2.scalar_text(source).unwrap(), "1.10");
        let Value::List(flow) = &inner[1].2.value else { panic!() };
        assert_eq!((&flow[0].value, &flow[1].value), (&Value::Bool(true), &Value::Null));
    }

    #[test]
    fn bombs_and_broken_texts_are_refused_with_a_position() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for i in 1..9 {
            let refs = vec![format!("*a{}", i - 1); 9].join(", ");
            bomb.push_str(&format!("a{i}: &a{i} [{refs}]\n"));
        }
        let error = parse(&bomb).unwrap_err();
        assert!(error.at.line > 0, "{error:?}");
        assert!(parse(&"[".repeat(5000)).is_err());
        assert!(parse(&format!("a: {}", "x".repeat(MAX_BYTES))).unwrap_err().message.contains("262144"));
        let broken = parse("a: 1\nb: [1, 2\nc: 3\n").unwrap_err();
        assert!(broken.at.line >= 2, "{broken:?}");
        let twice = parse("a: 1\nb: 2\na: 3\n").unwrap_err();
        assert_eq!(twice.at.line, 3, "{twice:?}");
        assert!(parse("a: 1\n---\nb: 2\n").is_err());
        assert!(parse("a: !include /etc/passwd\n").is_err());
    }
}
