//! McNemar's test: two models on the same examples.

use statrs::distribution::{Binomial, ChiSquared, ContinuousCDF, DiscreteCDF};

/// Outcome of [`mcnemar`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct McNemar {
    /// Exact two-sided p: twice the smaller tail of Binomial(b + c, ½).
    pub p_exact: f64,
    /// `(|b − c| − 1)² / (b + c)`, with Edwards' continuity correction.
    pub chi_squared: f64,
    /// Its p with one degree of freedom.
    pub p_chi_squared: f64,
}

/// Compares two models by the examples on which they disagree (McNemar 1947): `b` only the first has right,
/// `c` only the second. Without disagreement both p-values are 1.
#[must_use]
pub fn mcnemar(b: u64, c: u64) -> McNemar {
    let none = McNemar { p_exact: 1.0, chi_squared: 0.0, p_chi_squared: 1.0 };
    let n = b + c;
    let (Ok(binomial), Ok(chi)) = (Binomial::new(0.5, n), ChiSquared::new(1.0)) else { return none };
    if n == 0 {
        return none;
    }
    let excess = (b.abs_diff(c) as f64 - 1.0).max(0.0);
    let chi_squared = excess * excess / n as f64;
    McNemar { p_exact: (2.0 * binomial.cdf(b.min(c))).min(1.0), chi_squared, p_chi_squared: chi.sf(chi_squared) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answer() {
        let test = mcnemar(40, 62);
        assert!((test.p_exact - 0.0371).abs() < 5e-5, "{test:?}");
        assert!((test.chi_squared - 4.3235).abs() < 5e-5 && (test.p_chi_squared - 0.0376).abs() < 5e-5, "{test:?}");
        assert_eq!((mcnemar(0, 0).p_exact, mcnemar(5, 5).p_exact), (1.0, 1.0));
    }
}
