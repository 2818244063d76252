//! Reading typed fields out of a YAML tree, collecting every error on the way instead of stopping at the first.

use std::ops::RangeInclusive;

use crate::{
    file_error::FileError,
    yaml::{Mark, Node, Value},
};

/// The errors found in one file so far.
#[derive(Debug)]
pub(crate) struct Report<'s> {
    file: &'s str,
    source: &'s str,
    pub errors: Vec<FileError>,
}

impl<'s> Report<'s> {
    pub fn new(file: &'s str, source: &'s str) -> Self {
        Self { file, source, errors: Vec::new() }
    }

    pub fn push(&mut self, at: Mark, field: &str, message: impl Into<String>) {
        self.errors.push(FileError::new(self.file, self.source, at, field, message));
    }
}

/// A node, where its key stands, and its path from the root.
#[derive(Debug, Clone)]
pub(crate) struct Spot<'n> {
    pub node: &'n Node,
    pub key_at: Mark,
    pub path: String,
}

impl<'n> Spot<'n> {
    pub fn root(node: &'n Node) -> Self {
        Self { node, key_at: Mark { line: 1, column: 1 }, path: String::new() }
    }

    /// Reports an error at the value.
    pub fn fail(&self, report: &mut Report<'_>, message: impl Into<String>) {
        let at = if self.node.at.line > 0 && self.node.value != Value::Null { self.node.at } else { self.key_at };
        report.push(at, &self.path, message);
    }

    fn wrong<T>(&self, report: &mut Report<'_>, wanted: &str) -> Option<T> {
        self.fail(report, format!("must be {wanted}, not {}", self.node.value.noun()));
        None
    }

    fn child_path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// A string of at least one character and at most `max` bytes, without NUL.
    pub fn text(&self, report: &mut Report<'_>, max: usize) -> Option<String> {
        let Value::Text(text) = &self.node.value else { return self.wrong(report, "a string") };
        self.bounded(report, text.clone(), 1, max)
    }

    /// Any scalar, as it was written; may be the empty string.
    pub fn scalar(&self, report: &mut Report<'_>, max: usize) -> Option<String> {
        let Some(text) = self.node.scalar_text(report.source) else { return self.wrong(report, "a string or number") };
        self.bounded(report, text, 0, max)
    }

    fn bounded(&self, report: &mut Report<'_>, text: String, min: usize, max: usize) -> Option<String> {
        let problem = if text.len() < min || (min > 0 && text.trim().is_empty()) {
            "must not be empty".to_owned()
        } else if text.len() > max {
            format!("has {} bytes; the limit is {max}", text.len())
        } else if text.contains('\0') {
            "must not contain a NUL character".to_owned()
        } else {
            return Some(text);
        };
        self.fail(report, problem);
        None
    }

    /// A string that passes a check, which says in its error what is allowed.
    pub fn checked(&self, report: &mut Report<'_>, check: impl Fn(&str) -> Result<(), String>) -> Option<String> {
        let text = self.text(report, 4096)?;
        match check(&text) {
            Ok(()) => Some(text),
            Err(message) => {
                self.fail(report, message);
                None
            }
        }
    }

    /// A whole number within a range.
    pub fn integer(&self, report: &mut Report<'_>, range: RangeInclusive<u32>) -> Option<u32> {
        let (min, max) = (range.start(), range.end());
        let Value::Int(n) = self.node.value else { return self.wrong(report, &format!("a whole number from {min} to {max}")) };
        match u32::try_from(n) {
            Ok(n) if range.contains(&n) => Some(n),
            _ => {
                self.fail(report, format!("is {n}; it must be from {min} to {max}"));
                None
            }
        }
    }

    /// A finite number.
    pub fn number(&self, report: &mut Report<'_>) -> Option<f64> {
        match self.node.value {
            Value::Int(n) => Some(n as f64),
            Value::Float(x) if x.is_finite() => Some(x),
            Value::Float(x) => {
                self.fail(report, format!("is {x}; it must be a finite number"));
                None
            }
            _ => self.wrong(report, "a number"),
        }
    }

    /// A finite number for which `ok` holds; `rule` says in words what that is.
    pub fn number_where(&self, report: &mut Report<'_>, ok: impl Fn(f64) -> bool, rule: &str) -> Option<f64> {
        let x = self.number(report)?;
        if ok(x) {
            Some(x)
        } else {
            self.fail(report, format!("is {x}; it must be {rule}"));
            None
        }
    }

    /// The items of a list with at least `min` and at most `max` of them.
    pub fn list(&self, report: &mut Report<'_>, min: usize, max: usize) -> Option<Vec<Self>> {
        let Value::List(items) = &self.node.value else { return self.wrong(report, "a list") };
        if items.len() < min || items.len() > max {
            self.fail(report, format!("has {} items; it must have {min} to {max}", items.len()));
            return None;
        }
        Some(items.iter().enumerate().map(|(i, node)| Self { node, key_at: node.at, path: format!("{}[{i}]", self.path) }).collect())
    }

    /// The entries of a map whose keys are free, at least `min` and at most `max` of them.
    pub fn entries(&self, report: &mut Report<'_>, min: usize, max: usize) -> Option<Vec<(&'n str, Self)>> {
        let Value::Map(entries) = &self.node.value else { return self.wrong(report, "a map") };
        if entries.len() < min || entries.len() > max {
            self.fail(report, format!("has {} entries; it must have {min} to {max}", entries.len()));
            return None;
        }
        let spots = entries.iter().map(|(key, at, node)| (key.as_str(), Self { node, key_at: *at, path: self.child_path(key) }));
        Some(spots.collect())
    }

    /// A map with fixed keys. Unknown ones are reported, with the nearest known one if there is one.
    pub fn object(&self, report: &mut Report<'_>, known: &'static [&'static str]) -> Option<Object<'n>> {
        let entries = self.entries(report, 0, usize::MAX)?;
        for (key, spot) in &entries {
            if known.contains(key) {
                continue;
            }
            let hint = nearest(key, known).map(|k| format!(" (did you mean {k:?}?)")).unwrap_or_default();
            report.push(spot.key_at, &spot.path, format!("unknown field {key:?}{hint}; allowed here: {}", known.join(", ")));
        }
        Some(Object { spot: self.clone(), entries })
    }
}

/// A map with fixed keys.
#[derive(Debug)]
pub(crate) struct Object<'n> {
    pub spot: Spot<'n>,
    entries: Vec<(&'n str, Spot<'n>)>,
}

impl<'n> Object<'n> {
    pub fn get(&self, key: &str) -> Option<Spot<'n>> {
        self.entries.iter().find(|(name, _)| *name == key).map(|(_, spot)| spot.clone())
    }

    /// The field, or an error that it is missing.
    pub fn require(&self, report: &mut Report<'_>, key: &str) -> Option<Spot<'n>> {
        let found = self.get(key);
        if found.is_none() {
            report.push(self.spot.key_at, &self.spot.child_path(key), "is missing");
        }
        found
    }
}

/// The known word within a small edit distance of a mistyped one.
fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    if word.len() > 64 {
        return None;
    }
    let (distance, best) = known.iter().map(|k| (edit_distance(word, k), *k)).min()?;
    (distance <= 2 && distance < best.len()).then_some(best)
}

/// Levenshtein distance.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replace = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_words_are_recognised() {
        assert_eq!(nearest("tiemout", &["timeout", "needs"]), Some("timeout"));
        assert_eq!(nearest("retries", &["timeout", "needs"]), None);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
    }
}
