//! The search language: `metrics.loss < 0.5 AND params.optimizer = 'adam'`, and `order_by` items.
//!
//! A [`Grammar`] says which entities, keys and comparators one kind of search allows; the result is a list of
//! typed comparisons, all of which must hold. What a comparison means in SQL is the store's business.

mod cursor;

use cursor::{Cursor, RawValue, quoted_words};

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

#[cfg(test)]
mod tests;
