//! Reading a filter's text from left to right.

use super::{Operator, Result, refuse};

/// A right side as it was written.
#[derive(Debug)]
pub(super) enum RawValue {
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<String>),
    /// Neither number nor quoted.
    Word(String),
}

impl std::fmt::Display for RawValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Int(number) => number.fmt(f),
            Self::Float(number) => number.fmt(f),
            Self::Text(text) => write!(f, "'{text}'"),
            Self::List(items) => write!(f, "{items:?}"),
            Self::Word(word) => word.fmt(f),
        }
    }
}

pub(super) struct Cursor<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Skips white space; true at the end of the text.
    pub(super) fn skip_space(&mut self) -> bool {
        self.at += self.rest().len() - self.rest().trim_start().len();
        self.rest().is_empty()
    }

    fn take_while(&mut self, keep: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let taken = &rest[..rest.find(|c| !keep(c)).unwrap_or(rest.len())];
        self.at += taken.len();
        taken
    }

    /// Takes a keyword in any case, if a whole one stands here.
    pub(super) fn take_keyword(&mut self, keyword: &str) -> bool {
        let rest = self.rest();
        let Some(candidate) = rest.get(..keyword.len()) else { return false };
        let ends = !rest[keyword.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let found = ends && candidate.eq_ignore_ascii_case(keyword);
        if found {
            self.at += keyword.len();
        }
        found
    }

    /// The text inside the quotes that start here, if they are closed.
    fn quoted(&mut self, quote: char) -> Option<&'a str> {
        let inner = self.rest().strip_prefix(quote)?;
        let end = inner.find(quote)?;
        self.at += quote.len_utf8() * 2 + end;
        Some(&inner[..end])
    }

    /// A part of a left side: in quotes, or up to a space, an operator or (when asked) a dot.
    pub(super) fn name_part(&mut self, until_dot: bool) -> String {
        if let Some(quote @ ('`' | '"' | '\'')) = self.peek()
            && let Some(inner) = self.quoted(quote)
        {
            return inner.to_owned();
        }
        self.take_while(|c| {
            !(c.is_whitespace() || matches!(c, '=' | '<' | '>' | '!' | '(' | ')' | ',' | ';' | '\'' | '"' | '`') || (until_dot && c == '.'))
        })
        .to_owned()
    }

    /// The operator that stands here, if one does.
    pub(super) fn operator(&mut self) -> Result<Option<Operator>> {
        let symbols = self.take_while(|c| matches!(c, '=' | '<' | '>' | '!' | '~'));
        if !symbols.is_empty() {
            return match symbols {
                "=" => Ok(Some(Operator::Eq)),
                "!=" => Ok(Some(Operator::Ne)),
                "<" => Ok(Some(Operator::Lt)),
                "<=" => Ok(Some(Operator::Le)),
                ">" => Ok(Some(Operator::Gt)),
                ">=" => Ok(Some(Operator::Ge)),
                other => refuse(format!("Invalid comparator '{other}' not one of '{{'=', '!=', '<', '<=', '>', '>='}}'")),
            };
        }
        for (keyword, operator) in [("LIKE", Operator::Like), ("ILIKE", Operator::ILike), ("IN", Operator::In)] {
            if self.take_keyword(keyword) {
                return Ok(Some(operator));
            }
        }
        let start = self.at;
        if self.take_keyword("NOT") {
            self.skip_space();
            if self.take_keyword("IN") {
                return Ok(Some(Operator::NotIn));
            }
        } else if self.take_keyword("IS") {
            self.skip_space();
            let not = self.take_keyword("NOT");
            self.skip_space();
            if self.take_keyword("NULL") {
                return Ok(Some(if not { Operator::IsNotNull } else { Operator::IsNull }));
            }
        }
        self.at = start;
        Ok(None)
    }

    /// The value that stands here. `start` is where the comparison began, for messages.
    pub(super) fn value(&mut self, double_quotes: bool, start: usize) -> Result<RawValue> {
        let value = match self.peek() {
            Some(quote @ ('\'' | '"')) if quote == '\'' || double_quotes => match self.quoted(quote) {
                Some(inner) => RawValue::Text(inner.to_owned()),
                None => return refuse(format!("Invalid clause(s) in filter string: {}", quoted_words(&self.text[start..]))),
            },
            Some('(') => RawValue::List(self.list(double_quotes)?),
            _ => {
                let word = self.take_while(|c| !(c.is_whitespace() || matches!(c, '(' | ')' | ',' | ';')));
                let is_number = word.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'))
                    && word.chars().all(|c| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E'));
                match (word.parse::<i64>(), word.parse::<f64>()) {
                    _ if word.is_empty() => {
                        return refuse(format!("Invalid clause(s) in filter string: {}", quoted_words(&self.text[start..])));
                    }
                    (Ok(number), _) if is_number => RawValue::Int(number),
                    (_, Ok(number)) if is_number => RawValue::Float(number),
                    _ => RawValue::Word(word.to_owned()),
                }
            }
        };
        if self.peek().is_some_and(|c| !c.is_whitespace() && c != ';') {
            return refuse(format!("Invalid clause(s) in filter string: {}", quoted_words(&self.text[start..])));
        }
        Ok(value)
    }

    fn list(&mut self, double_quotes: bool) -> Result<Vec<String>> {
        const WHILE: &str = "While parsing a list in the query, expected";
        let ill_formed = || refuse(format!("{WHILE} a non-empty list of string values, but got ill-formed list."));
        let start = self.at;
        self.at += 1;
        let mut items = Vec::new();
        self.skip_space();
        if self.peek() == Some(')') {
            self.at += 1;
            return refuse(format!("{WHILE} a non-empty list of string values, but got empty list"));
        }
        loop {
            self.skip_space();
            match self.peek() {
                Some(quote @ ('\'' | '"')) if quote == '\'' || double_quotes => match self.quoted(quote) {
                    Some(inner) if inner.contains('\0') => return refuse("Invalid filter: a value contains a NUL character."),
                    Some(inner) => items.push(inner.to_owned()),
                    None => return ill_formed(),
                },
                None | Some(',' | ')') => return ill_formed(),
                Some(_) => {
                    let rest = &self.text[start..];
                    let list = &rest[..rest.find(')').map_or(rest.len(), |end| end + 1)];
                    return refuse(format!("{WHILE} string value, punctuation, or whitespace, but got different type in list: {list}"));
                }
            }
            self.skip_space();
            match self.peek() {
                Some(',') => {
                    self.at += 1;
                    self.skip_space();
                    // a tuple of one is written ('a',)
                    if self.peek() == Some(')') && items.len() == 1 {
                        self.at += 1;
                        return Ok(items);
                    }
                }
                Some(')') => {
                    self.at += 1;
                    return Ok(items);
                }
                _ => return ill_formed(),
            }
        }
    }
}

/// The words of a text, each in quotes, as messages show what could not be understood.
pub(super) fn quoted_words(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().take(20).map(|word| format!("'{word}'")).collect();
    words.join(", ")
}
