//! Welch's comparison of two means with unequal variances.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::{
    describe::{mean_of, variance_of},
    error::{Error, Result, check_sample},
};

/// Outcome of [`welch`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Welch {
    /// `x̄ − ȳ`.
    pub difference: f64,
    /// Standard error of the difference.
    pub se: f64,
    /// Welch–Satterthwaite degrees of freedom.
    pub df: f64,
    /// Probability of a difference at least this large either way if the means were equal.
    pub p_two_sided: f64,
    /// One-sided bounds at the confidence asked for; together an interval of twice the error.
    pub lower: f64,
    pub upper: f64,
    /// Neither sample varies: the means are compared exactly, `p` is 0 or 1, the bounds are the difference.
    pub degenerate: bool,
}

/// Compares the means of two samples (Welch 1947):
/// `A = s²x/n`, `B = s²y/m`, `se = √(A + B)`, `t = (x̄ − ȳ)/se`, `ν = (A + B)² / (A²/(n−1) + B²/(m−1))`.
///
/// # Errors
/// Fewer than two values in a sample, a value that is not finite, a confidence outside 0.5 to 1.
pub fn welch(x: &[f64], y: &[f64], confidence: f64) -> Result<Welch> {
    check_sample("the first sample", x, 2)?;
    check_sample("the second sample", y, 2)?;
    if !(0.5..1.0).contains(&confidence) {
        return Err(Error::Argument { what: "confidence", value: confidence, rule: "at least 0.5 and below 1" });
    }
    let (n, m) = (x.len() as f64, y.len() as f64);
    let difference = mean_of(x) - mean_of(y);
    if !difference.is_finite() {
        return Err(Error::NotFinite { what: "the difference of means" });
    }
    let (a, b) = (variance_of(x) / n, variance_of(y) / m);
    let se = (a + b).sqrt();
    // Spread that is only rounding would give t = 10¹⁴; it counts as none.
    let scale = x.iter().chain(y).fold(0.0_f64, |scale, v| scale.max(v.abs()));
    if se <= 8.0 * f64::EPSILON * scale || se == 0.0 {
        let same = difference.abs() <= 8.0 * f64::EPSILON * scale;
        return Ok(Welch {
            difference: if same { 0.0 } else { difference },
            se: 0.0,
            df: n + m - 2.0,
            p_two_sided: if same { 1.0 } else { 0.0 },
            lower: if same { 0.0 } else { difference },
            upper: if same { 0.0 } else { difference },
            degenerate: true,
        });
    }
    // Shares instead of A and B themselves: their squares may underflow.
    let (share_a, share_b) = (a / (a + b), b / (a + b));
    let df = 1.0 / (share_a * share_a / (n - 1.0) + share_b * share_b / (m - 1.0));
    let distribution = StudentsT::new(0.0, 1.0, df).map_err(|_| Error::NotFinite { what: "the degrees of freedom" })?;
    let reach = distribution.inverse_cdf(confidence) * se;
    Ok(Welch {
        difference,
        se,
        df,
        p_two_sided: (2.0 * distribution.sf((difference / se).abs())).min(1.0),
        lower: difference - reach,
        upper: difference + reach,
        degenerate: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn quantiles_of_t_agree_with_tables() {
        for (df, p, wanted) in [(8.0, 0.95, 1.859_548_037_5), (3.0, 0.975, 3.182_446_305_3), (1.0, 0.95, 6.313_751_514_7)] {
            let t = StudentsT::new(0.0, 1.0, df).unwrap().inverse_cdf(p);
            assert!((t - wanted).abs() < 1e-6, "{df} {p} {t}");
            let back = StudentsT::new(0.0, 1.0, df).unwrap().cdf(t);
            assert!((back - p).abs() < 1e-9, "{df} {p} {back}");
        }
    }

    #[test]
    fn no_variance_is_compared_exactly() {
        let same = welch(&[0.1, 0.1, 0.1], &[0.1, 0.1], 0.95).unwrap();
        assert!(same.degenerate && same.p_two_sided == 1.0 && same.difference == 0.0);
        let apart = welch(&[0.3, 0.3], &[0.1, 0.1], 0.95).unwrap();
        assert!(apart.degenerate && apart.p_two_sided == 0.0 && apart.lower == apart.upper);
        let rounding = welch(&[0.1 + 0.2, 0.3, 0.3], &[0.3, 0.3, 0.3], 0.95).unwrap();
        assert!(rounding.degenerate && rounding.difference == 0.0);
        assert!(!welch(&[1.0, 1.0], &[1.0, 1.1], 0.95).unwrap().degenerate);
    }

    #[test]
    fn bad_samples_are_errors() {
        assert!(matches!(welch(&[1.0], &[1.0, 2.0], 0.95), Err(Error::TooFew { got: 1, .. })));
        assert!(matches!(welch(&[1.0, f64::NAN], &[1.0, 2.0], 0.95), Err(Error::NotFinite { .. })));
        assert!(matches!(welch(&[f64::MAX, f64::MAX], &[-f64::MAX, -f64::MAX], 0.95), Err(Error::NotFinite { .. })));
        assert!(welch(&[1.0, 2.0], &[1.0, 2.0], 1.0).is_err());
    }

    /// When nothing differs, a test at 5 % cries wolf in 5 % of cases: 3.5 to 6.5 % of 2 000 (± 3 standard errors).
    #[test]
    fn null_calibration() {
        let mut rng = Rng::new(20_261_130);
        for (n, m) in [(8, 8), (5, 12)] {
            let mut rejected = 0;
            for _ in 0..2000 {
                let x: Vec<f64> = (0..n).map(|_| rng.normal()).collect();
                let y: Vec<f64> = (0..m).map(|_| rng.normal()).collect();
                rejected += u32::from(welch(&x, &y, 0.95).unwrap().p_two_sided < 0.05);
            }
            let rate = f64::from(rejected) / 2000.0;
            assert!((0.035..=0.065).contains(&rate), "{n} {m} {rate}");
        }
    }
}
