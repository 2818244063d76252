//! The search language: `metrics.loss < 0.5 AND params.optimizer = 'adam'`, and `order_by` items.
//!
//! A [`Grammar`] says which entities, keys and comparators one kind of search allows; the result is a list of
//! typed comparisons, all of which must hold. What a comparison means in SQL is the store's business.

/// What a key belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Entity {
    Attribute,
    Metric,
    Param,
    Tag,
    Dataset,
}

impl Entity {
    /// Its name in messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Attribute => "attribute",
            Self::Metric => "metric",
            Self::Param => "parameter",
            Self::Tag => "tag",
            Self::Dataset => "dataset",
        }
    }
}

/// A comparison operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operator {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Like,
    ILike,
    In,
    NotIn,
    IsNull,
    IsNotNull,
}

impl Operator {
    /// Its text, which is also its SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Eq => "=",
            Self::Ne => "!=",
            Self::Lt => "<",
            Self::Le => "<=",
            Self::Gt => ">",
            Self::Ge => ">=",
            Self::Like => "LIKE",
            Self::ILike => "ILIKE",
            Self::In => "IN",
            Self::NotIn => "NOT IN",
            Self::IsNull => "IS NULL",
            Self::IsNotNull => "IS NOT NULL",
        }
    }
}

/// Operators of numbers.
pub const NUMERIC: &[Operator] = &[Operator::Eq, Operator::Ne, Operator::Lt, Operator::Le, Operator::Gt, Operator::Ge];
/// Operators of texts.
pub const TEXT: &[Operator] = &[Operator::Eq, Operator::Ne, Operator::Like, Operator::ILike];
/// Operators of texts that may also be compared with a list.
pub const TEXT_OR_LIST: &[Operator] = &[Operator::Eq, Operator::Ne, Operator::Like, Operator::ILike, Operator::In, Operator::NotIn];
/// Operators of texts that may be absent.
pub const TEXT_OR_NULL: &[Operator] = &[Operator::Eq, Operator::Ne, Operator::Like, Operator::ILike, Operator::IsNull, Operator::IsNotNull];

/// The right side of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    /// Of `IS NULL` and `IS NOT NULL`.
    None,
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<String>),
}

impl Literal {
    /// The number, if it is one.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "metrics are compared as doubles")]
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Int(value) => Some(*value as f64),
            Self::Float(value) => Some(*value),
            _ => None,
        }
    }
}

/// One comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    pub entity: Entity,
    /// For a named key, its first name in the grammar.
    pub key: String,
    pub operator: Operator,
    pub value: Literal,
}

/// One item of `order_by`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderBy {
    pub entity: Entity,
    pub key: String,
    pub descending: bool,
}

/// What the values of a key are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Quoted.
    Text,
    Number,
    /// A number without a fraction.
    Integer,
}

/// A key, or all keys of an entity.
#[derive(Debug, Clone, Copy)]
pub struct KeyRule {
    /// The first is canonical, the others are aliases. Not used for entities with free keys.
    pub names: &'static [&'static str],
    pub kind: Kind,
    pub operators: &'static [Operator],
}

/// Which keys an entity has.
#[derive(Debug, Clone, Copy)]
pub enum Keys {
    /// Any key; all follow the same rule.
    Free(KeyRule),
    Named(&'static [KeyRule]),
}

/// An entity of a search.
#[derive(Debug, Clone, Copy)]
pub struct EntityRule {
    pub entity: Entity,
    /// How it may be written before the dot.
    pub names: &'static [&'static str],
    pub keys: Keys,
}

/// What one kind of search allows.
#[derive(Debug, Clone, Copy)]
pub struct Grammar {
    pub entities: &'static [EntityRule],
    /// Whether values may stand in double quotes as well as in single ones.
    pub double_quotes: bool,
}

/// Why a filter or an `order_by` item was refused: one sentence for the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FilterError(pub String);

/// Most comparisons in one filter.
pub const MAX_COMPARISONS: usize = 100;

type Result<T> = std::result::Result<T, FilterError>;

fn refuse<T>(message: impl Into<String>) -> Result<T> {
    Err(FilterError(message.into()))
}

impl Grammar {
    /// Parses a filter; an empty one allows everything.
    ///
    /// # Errors
    /// When it does not follow the grammar.
    pub fn parse(&self, filter: &str) -> Result<Vec<Comparison>> {
        if filter.is_empty() {
            return Ok(Vec::new());
        }
        let mut cursor = Cursor { text: filter, at: 0 };
        if cursor.skip_space() {
            return refuse(format!("Invalid filter '{filter}'. Could not be parsed."));
        }
        let mut comparisons = Vec::new();
        loop {
            if comparisons.len() == MAX_COMPARISONS {
                return refuse(format!("Search filter has more than {MAX_COMPARISONS} comparisons."));
            }
            comparisons.push(self.comparison(&mut cursor)?);
            if cursor.skip_space() {
                break;
            }
            if cursor.rest().starts_with(';') {
                return match cursor.rest()[1..].trim() {
                    "" => refuse("Invalid clause(s) in filter string: ';'"),
                    _ => refuse(format!("Search filter contained multiple expression '{filter}'. Provide AND-ed expression list.")),
                };
            }
            if !cursor.take_keyword("AND") {
                return refuse(format!("Invalid clause(s) in filter string: {}", quoted_words(cursor.rest())));
            }
            // a trailing AND is tolerated
            if cursor.skip_space() {
                break;
            }
        }
        Ok(comparisons)
    }

    /// Parses `order_by` items, each `key [ASC|DESC]`. The grammar's operators do not matter here.
    ///
    /// # Errors
    /// When an item does not follow the grammar, or a field comes twice.
    pub fn parse_order(&self, items: &[String]) -> Result<Vec<OrderBy>> {
        if items.len() > MAX_COMPARISONS {
            return refuse(format!("`order_by` has more than {MAX_COMPARISONS} fields."));
        }
        let mut orders: Vec<OrderBy> = Vec::with_capacity(items.len());
        for item in items {
            let order = self.order(item)?;
            if orders.iter().any(|other| other.entity == order.entity && other.key == order.key) {
                return refuse(format!("`order_by` contains duplicate fields: {items:?}"));
            }
            orders.push(order);
        }
        Ok(orders)
    }

    fn order(&self, item: &str) -> Result<OrderBy> {
        let mut cursor = Cursor { text: item, at: 0 };
        if cursor.skip_space() {
            return refuse(format!("Invalid order_by clause '{item}'. Could not be parsed."));
        }
        let (rule, key, _) = self.identifier(&mut cursor)?;
        cursor.skip_space();
        let descending = match cursor.rest().trim() {
            "" => false,
            word if word.eq_ignore_ascii_case("asc") => false,
            word if word.eq_ignore_ascii_case("desc") => true,
            _ => return refuse(format!("Invalid ordering key in order_by clause '{item}'.")),
        };
        Ok(OrderBy { entity: rule.entity, key, descending })
    }

    fn comparison(&self, cursor: &mut Cursor<'_>) -> Result<Comparison> {
        let start = cursor.at;
        let (rule, key, key_rule) = self.identifier(cursor)?;
        let entity = rule.entity;
        cursor.skip_space();
        let Some(operator) = cursor.operator()? else {
            return refuse(format!("Invalid clause(s) in filter string: {}", quoted_words(&cursor.text[start..])));
        };
        if matches!(operator, Operator::IsNull | Operator::IsNotNull) {
            if !key_rule.operators.contains(&operator) {
                return refuse(format!(
                    "IS NULL / IS NOT NULL is only supported for tags and params, not for '{}' '{key}'",
                    entity.as_str()
                ));
            }
            return Ok(Comparison { entity, key, operator, value: Literal::None });
        }
        cursor.skip_space();
        let value = cursor.value(self.double_quotes, start)?;
        let value = check_value(rule, &key, key_rule, operator, value)?;
        Ok(Comparison { entity, key, operator, value })
    }

    /// Reads `entity.key` or a bare attribute.
    fn identifier(&self, cursor: &mut Cursor<'_>) -> Result<(&'static EntityRule, String, KeyRule)> {
        let start = cursor.at;
        let first = cursor.name_part(true);
        if cursor.rest().starts_with('.') {
            cursor.at += 1;
            let Some(rule) = self.entities.iter().find(|rule| rule.names.contains(&first.as_str())) else {
                let known: Vec<_> = self.entities.iter().map(|rule| format!("'{}'", rule.entity.as_str())).collect();
                return refuse(format!("Invalid entity type '{first}'. Valid values are [{}]", known.join(", ")));
            };
            let key = cursor.name_part(false);
            if key.is_empty() {
                return refuse(format!("Invalid identifier '{}'. A key must follow the dot.", &cursor.text[start..cursor.at]));
            }
            let (key, key_rule) = named_key(rule, key)?;
            return Ok((rule, key, key_rule));
        }
        let Some(rule) = self.entities.iter().find(|rule| rule.entity == Entity::Attribute) else {
            return refuse(format!("Invalid identifier '{first}'. Columns should be specified as 'ENTITY.KEY'."));
        };
        if first.is_empty() {
            return refuse(format!("Invalid clause(s) in filter string: {}", quoted_words(&cursor.text[start..])));
        }
        // an attribute of two words, such as `run name`
        let after_first = cursor.at;
        cursor.skip_space();
        let two_words = format!("{first} {}", cursor.name_part(true));
        if let Ok((key, key_rule)) = named_key(rule, two_words) {
            return Ok((rule, key, key_rule));
        }
        cursor.at = after_first;
        let (key, key_rule) = named_key(rule, first)?;
        Ok((rule, key, key_rule))
    }
}

fn named_key(rule: &'static EntityRule, key: String) -> Result<(String, KeyRule)> {
    match rule.keys {
        Keys::Free(key_rule) => Ok((key, key_rule)),
        Keys::Named(named) => match named.iter().find(|known| known.names.contains(&key.as_str())) {
            Some(known) => Ok((known.names[0].to_owned(), *known)),
            None => {
                let valid: Vec<_> = named.iter().flat_map(|known| known.names).map(|name| format!("'{name}'")).collect();
                refuse(format!("Invalid {} key '{key}' specified. Valid keys are '{{{}}}'", rule.entity.as_str(), valid.join(", ")))
            }
        },
    }
}

fn check_value(rule: &'static EntityRule, key: &str, key_rule: KeyRule, operator: Operator, value: RawValue) -> Result<Literal> {
    let is_list = matches!(operator, Operator::In | Operator::NotIn);
    if (is_list || matches!(value, RawValue::List(_))) && !key_rule.operators.contains(&Operator::In) && key_rule.kind == Kind::Text {
        let mut with_lists = match rule.keys {
            Keys::Named(named) => {
                named.iter().filter(|known| known.operators.contains(&Operator::In)).map(|known| known.names[0]).collect()
            }
            Keys::Free(_) => Vec::new(),
        };
        if !with_lists.is_empty() {
            with_lists.sort_unstable();
            return refuse(
                format!("Only {with_lists:?} attributes support comparison with a list of quoted string values.").replace('"', "'"),
            );
        }
    }
    if !key_rule.operators.contains(&operator) {
        let valid: Vec<_> = key_rule.operators.iter().map(|known| format!("'{}'", known.as_str())).collect();
        return refuse(format!(
            "Invalid comparator '{}' not one of '{{{}}}' ({} '{key}')",
            operator.as_str(),
            valid.join(", "),
            rule.entity.as_str()
        ));
    }
    match (key_rule.kind, value) {
        (Kind::Number | Kind::Integer, RawValue::Int(number)) => Ok(Literal::Int(number)),
        (Kind::Number, RawValue::Float(number)) => Ok(Literal::Float(number)),
        (Kind::Integer, RawValue::Float(number)) => refuse(format!("Invalid value for numeric attribute '{key}': '{number}'")),
        (Kind::Number | Kind::Integer, other) if rule.entity == Entity::Metric => {
            refuse(format!("Expected numeric value type for metric. Found {other}"))
        }
        (Kind::Number | Kind::Integer, other) => refuse(format!("Expected numeric value type for numeric attribute: {key}. Found {other}")),
        (Kind::Text, RawValue::Text(text)) if is_list => refuse(format!(
            "While parsing a list in the query, expected a list of string values after {}, but got '{text}'",
            operator.as_str()
        )),
        (Kind::Text, RawValue::Text(text)) => {
            if matches!(operator, Operator::Like | Operator::ILike) && text.chars().rev().take_while(|c| *c == '\\').count() % 2 == 1 {
                return refuse(format!("Invalid pattern '{text}' for {}: it ends in an escape character.", operator.as_str()));
            }
            if text.contains('\0') {
                return refuse("Invalid filter: a value contains a NUL character.");
            }
            Ok(Literal::Text(text))
        }
        (Kind::Text, RawValue::List(items)) if is_list => Ok(Literal::List(items)),
        (Kind::Text, RawValue::List(_)) => refuse(format!(
            "Expected a quoted string value for {} '{key}' with {}, but got a list",
            rule.entity.as_str(),
            operator.as_str()
        )),
        (Kind::Text, RawValue::Word(word)) => refuse(format!(
            "Parameter value is either not quoted or unidentified quote types used for string value {word}. Use either single or double quotes."
        )),
        (Kind::Text, number) => {
            let what = match rule.entity {
                Entity::Attribute => "attributes".to_owned(),
                Entity::Dataset => "dataset attributes".to_owned(),
                other => format!("{} (e.g. 'my-value')", other.as_str()),
            };
            refuse(format!("Expected a quoted string value for {what}. Got value {number}"))
        }
    }
}

/// A right side as it was written.
#[derive(Debug)]
enum RawValue {
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

struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Skips white space; true at the end of the text.
    fn skip_space(&mut self) -> bool {
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
    fn take_keyword(&mut self, keyword: &str) -> bool {
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
    fn name_part(&mut self, until_dot: bool) -> String {
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
    fn operator(&mut self) -> Result<Option<Operator>> {
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
    fn value(&mut self, double_quotes: bool, start: usize) -> Result<RawValue> {
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
fn quoted_words(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().take(20).map(|word| format!("'{word}'")).collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE_TEXT: KeyRule = KeyRule { names: &[], kind: Kind::Text, operators: TEXT_OR_NULL };
    const GRAMMAR: Grammar = Grammar {
        double_quotes: true,
        entities: &[
            EntityRule {
                entity: Entity::Metric,
                names: &["metric", "metrics"],
                keys: Keys::Free(KeyRule { names: &[], kind: Kind::Number, operators: NUMERIC }),
            },
            EntityRule { entity: Entity::Param, names: &["param", "params"], keys: Keys::Free(FREE_TEXT) },
            EntityRule { entity: Entity::Tag, names: &["tag", "tags"], keys: Keys::Free(FREE_TEXT) },
            EntityRule {
                entity: Entity::Attribute,
                names: &["attribute", "attributes", "run"],
                keys: Keys::Named(&[
                    KeyRule { names: &["run_id"], kind: Kind::Text, operators: TEXT_OR_LIST },
                    KeyRule { names: &["run_name", "run name", "Run name"], kind: Kind::Text, operators: TEXT },
                    KeyRule { names: &["start_time", "created"], kind: Kind::Integer, operators: NUMERIC },
                ]),
            },
        ],
    };

    fn one(filter: &str) -> Comparison {
        let mut comparisons = GRAMMAR.parse(filter).unwrap_or_else(|error| panic!("{filter}: {error}"));
        assert_eq!(comparisons.len(), 1, "{filter}");
        comparisons.remove(0)
    }

    fn text(entity: Entity, key: &str, operator: Operator, value: &str) -> Comparison {
        Comparison { entity, key: key.to_owned(), operator, value: Literal::Text(value.to_owned()) }
    }

    #[test]
    fn left_sides() {
        use Entity::{Attribute, Param, Tag};
        assert_eq!(one("params.a.b = 'x'"), text(Param, "a.b", Operator::Eq, "x"));
        assert_eq!(one("param.`a b`='x'"), text(Param, "a b", Operator::Eq, "x"));
        assert_eq!(one("params.\"a = b\" = 'x'"), text(Param, "a = b", Operator::Eq, "x"));
        assert_eq!(one("tags.mlflow.runName LIKE '%a_'"), text(Tag, "mlflow.runName", Operator::Like, "%a_"));
        assert_eq!(one("`tags`.`x` = 'y'"), text(Tag, "x", Operator::Eq, "y"));
        assert_eq!(one("run name = \"it's\""), text(Attribute, "run_name", Operator::Eq, "it's"));
        assert_eq!(one("attributes.run_name iLike 'A'"), text(Attribute, "run_name", Operator::ILike, "A"));
        assert_eq!(one("run.run_id != 'a'"), text(Attribute, "run_id", Operator::Ne, "a"));
    }

    #[test]
    fn values() {
        assert_eq!(one("metrics.m >= -3").value, Literal::Int(-3));
        assert_eq!(one("metrics.m<1e-3").value, Literal::Float(1e-3));
        assert_eq!(one("created > 5").key, "start_time");
        assert_eq!(one("run_id IN ('a', \"b\")").value, Literal::List(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(one("run_id not  in ('a')").operator, Operator::NotIn);
        assert_eq!(one("params.p IS  NOT null").operator, Operator::IsNotNull);
        assert_eq!(one("params.p = 'a AND b'").value, Literal::Text("a AND b".to_owned()));
    }

    #[test]
    fn clauses_are_anded() {
        assert_eq!(GRAMMAR.parse("").unwrap(), []);
        assert_eq!(GRAMMAR.parse("metrics.a > 1 and params.b = 'x' AND tags.c != 'y' AND").unwrap().len(), 3);
        // no quadratic surprise, and a limit
        let many = vec!["metrics.a > 1"; 101].join(" AND ");
        assert!(GRAMMAR.parse(&many).unwrap_err().0.contains("more than 100"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (filter, part) in [
            ("   ", "Could not be parsed"),
            ("metrics.a > 1 OR metrics.b > 2", "Invalid clause(s) in filter string: 'OR'"),
            ("metrics.a", "Invalid clause(s)"),
            ("metrics.a BETWEEN 1", "Invalid clause(s)"),
            ("metrics.a >", "Invalid clause(s)"),
            ("metrics. > 1", "A key must follow the dot"),
            ("metrics.a > '0'", "Expected numeric value type for metric. Found '0'"),
            ("metrics.a LIKE 'x'", "Invalid comparator 'LIKE'"),
            ("metrics.a == 1", "Invalid comparator '=='"),
            ("params.p = 5", "Expected a quoted string value for parameter (e.g. 'my-value'). Got value 5"),
            ("params.p = V0", "used for string value V0"),
            ("params.p > 'a'", "Invalid comparator '>'"),
            ("params.p = 'a", "Invalid clause(s)"),
            ("params.p LIKE 'a\\'", "ends in an escape character"),
            ("foo.p = 'a'", "Invalid entity type 'foo'. Valid values are ['metric', 'parameter', 'tag', 'attribute']"),
            ("m = 'a'", "Invalid attribute key 'm' specified. Valid keys are"),
            ("run_name IN ('a')", "Only ['run_id'] attributes support comparison with a list"),
            ("run_id IN ()", "empty list"),
            ("run_id IN ('a' 'b')", "ill-formed list"),
            ("run_id IN ('a', 5)", "different type in list: ('a', 5)"),
            ("run_id IN 'a'", "list of string values"),
            ("run_id = ('a')", "got a list"),
            ("start_time > 1.5", "Invalid value for numeric attribute 'start_time': '1.5'"),
            ("start_time > '1'", "Expected numeric value type for numeric attribute: start_time"),
            ("start_time IS NULL", "only supported for tags and params"),
            ("metrics.a > 1; DROP", "multiple expression"),
            ("metrics.a > 1;", "Invalid clause(s) in filter string: ';'"),
            ("1 = metrics.a", "Invalid attribute key '1'"),
            ("(metrics.a > 1)", "Invalid clause(s)"),
            ("metrics.a > nan", "Expected numeric"),
        ] {
            let error = GRAMMAR.parse(filter).expect_err(filter).0;
            assert!(error.contains(part), "{filter}: {error}");
        }
    }

    #[test]
    fn orders() {
        let items: Vec<String> = ["metrics.`a b` DESC", "params.x", "start_time asc", "Run name desc"].map(str::to_owned).to_vec();
        let orders = GRAMMAR.parse_order(&items).unwrap();
        assert_eq!(orders[0], OrderBy { entity: Entity::Metric, key: "a b".to_owned(), descending: true });
        assert_eq!(orders[3], OrderBy { entity: Entity::Attribute, key: "run_name".to_owned(), descending: true });
        for (bad, part) in [
            ("metrics.m FOO", "Invalid ordering key in order_by clause 'metrics.m FOO'."),
            (" ", "Could not be parsed"),
            ("bogus", "Invalid attribute key"),
        ] {
            assert!(GRAMMAR.parse_order(&[bad.to_owned()]).unwrap_err().0.contains(part), "{bad}");
        }
        let twice = ["created".to_owned(), "start_time DESC".to_owned()];
        assert!(GRAMMAR.parse_order(&twice).unwrap_err().0.contains("duplicate fields"));
    }

    proptest::proptest! {
        #[test]
        fn no_input_panics(filter in "\\PC{0,60}") {
            let _ = GRAMMAR.parse(&filter);
            let _ = GRAMMAR.parse_order(&[filter]);
        }

        #[test]
        fn near_misses_do_not_panic(filter in "(metrics|params|run_id|tags|`| |\\.|=|!=|<|IN|\\(|\\)|'|\"|,|5|x|AND|IS|NOT|NULL|;|é){0,14}") {
            let _ = GRAMMAR.parse(&filter);
        }

        #[test]
        fn quoted_values_come_back_unchanged(value in "[^'\0]{0,40}", key in "[a-zA-Z0-9_/.]{1,20}") {
            let filter = format!("params.{key} = '{value}'");
            proptest::prop_assert_eq!(one(&filter), text(Entity::Param, &key, Operator::Eq, &value));
        }

        #[test]
        fn numbers_come_back_unchanged(number in proptest::num::f64::NORMAL) {
            let filter = format!("metrics.m > {number:e}");
            proptest::prop_assert_eq!(one(&filter).value.as_f64(), Some(number));
        }
    }
}
