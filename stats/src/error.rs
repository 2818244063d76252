//! Why numbers cannot be judged.

/// Data that no comparison may be made of.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    #[error("{what} has {got} values; at least {needed} are needed")]
    TooFew { what: &'static str, needed: usize, got: usize },
    #[error("{what} has a value that is not a finite number")]
    NotFinite { what: &'static str },
    #[error("{what} has the value {value}; a ratio needs values above 0")]
    NotPositive { what: &'static str, value: f64 },
    #[error("{what} is {value}; it must be {rule}")]
    Argument { what: &'static str, value: f64, rule: &'static str },
}

/// Result of a comparison.
pub type Result<T> = std::result::Result<T, Error>;

/// At least `needed` values, all finite.
pub(crate) fn check_sample(what: &'static str, values: &[f64], needed: usize) -> Result<()> {
    if values.len() < needed {
        return Err(Error::TooFew { what, needed, got: values.len() });
    }
    if values.iter().any(|v| !v.is_finite()) {
        return Err(Error::NotFinite { what });
    }
    Ok(())
}

/// As [`check_sample`], and all values above 0.
pub(crate) fn check_positive_sample(what: &'static str, values: &[f64], needed: usize) -> Result<()> {
    check_sample(what, values, needed)?;
    match values.iter().find(|v| **v <= 0.0) {
        Some(value) => Err(Error::NotPositive { what, value: *value }),
        None => Ok(()),
    }
}
