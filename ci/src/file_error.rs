//! What is wrong with a pipeline or gate file, and where.

use serde::{Deserialize, Serialize};

use crate::yaml::Mark;

/// One thing that is wrong in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileError {
    /// Path of the file at the commit, e.g. `.sluice.yml`.
    pub file: String,
    /// One line: what is wrong, and what is allowed.
    pub message: String,
    /// Path of the field, e.g. `jobs.train.timeout`. Empty when the whole file is meant.
    pub field: String,
    /// From 1; `None` when the error has no place in the text.
    pub line: Option<u32>,
    pub column: Option<u32>,
    /// The line with its number and a caret below the column, for a monospaced font. May be empty.
    pub snippet: String,
}

impl FileError {
    /// An error at a place of a text.
    pub fn new(file: &str, source: &str, at: Mark, field: impl Into<String>, message: impl Into<String>) -> Self {
        let known = at.line > 0;
        Self {
            file: file.to_owned(),
            message: message.into(),
            field: field.into(),
            line: known.then_some(at.line),
            column: known.then_some(at.column),
            snippet: if known { snippet(source, at) } else { String::new() },
        }
    }

    /// The error for a terminal: `FILE:LINE:COLUMN: FIELD: MESSAGE` and the snippet below.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = self.file.clone();
        if let (Some(line), Some(column)) = (self.line, self.column) {
            text.push_str(&format!(":{line}:{column}"));
        }
        text.push_str(": error: ");
        if !self.field.is_empty() {
            text.push_str(&self.field);
            text.push_str(": ");
        }
        text.push_str(&self.message);
        text.push('\n');
        if !self.snippet.is_empty() {
            text.push_str(&self.snippet);
            text.push('\n');
        }
        text
    }
}

/// The source line with a gutter and a caret. Long lines are cut around the column.
fn snippet(source: &str, at: Mark) -> String {
    const AROUND: usize = 60;
    let Some(line) = source.lines().nth(at.line as usize - 1) else { return String::new() };
    let chars: Vec<char> = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let column = (at.column.max(1) as usize - 1).min(chars.len());
    let from = column.saturating_sub(AROUND);
    let to = (column + AROUND).min(chars.len());
    let shown: String = chars[from..to].iter().collect();
    let lead = if from > 0 { "…" } else { "" };
    let tail = if to < chars.len() { "…" } else { "" };
    let number = at.line.to_string();
    let pad = " ".repeat(number.len());
    let caret = " ".repeat(column - from + lead.chars().count());
    format!(" {number} | {lead}{shown}{tail}\n {pad} | {caret}^")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_stands_below_the_column() {
        let error = FileError::new("f.yml", "a: 1\nbé: twö\n", Mark { line: 2, column: 5 }, "b", "is wrong");
        assert_eq!(error.render(), "f.yml:2:5: error: b: is wrong\n 2 | bé: twö\n   |     ^\n");
        let long = format!("{}X{}", "a".repeat(300), "b".repeat(300));
        let cut = FileError::new("f", &long, Mark { line: 1, column: 301 }, "", "m").snippet;
        let lines: Vec<Vec<char>> = cut.lines().map(|l| l.chars().collect()).collect();
        assert_eq!(lines[0][lines[1].iter().position(|c| *c == '^').unwrap()], 'X');
    }
}
