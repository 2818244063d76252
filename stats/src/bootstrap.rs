//! Bootstrap of the ratio of two medians.

use crate::{
    describe::{median_in_place, quantile_of_sorted},
    error::{Error, Result, check_positive_sample},
    rng::Rng,
};

/// Resamples that gates take.
pub const RESAMPLES: usize = 10_000;

/// The ratio of two medians and how it varies.
#[derive(Debug, Clone, PartialEq)]
pub struct RatioOfMedians {
    /// `median(x) / median(y)`.
    pub ratio: f64,
    sorted: Vec<f64>,
}

impl RatioOfMedians {
    /// Percentile bound: the ratio below which a fraction `q` of the resampled ratios lies.
    #[must_use]
    pub fn bound(&self, q: f64) -> f64 {
        quantile_of_sorted(&self.sorted, q.clamp(0.0, 1.0))
    }
}

/// Percentile bootstrap (Efron 1979) of `median(x) / median(y)`: both samples are resampled with replacement,
/// independently. The same seed gives the same answer.
///
/// # Errors
/// Fewer than two values in a sample, values that are not finite and above 0, no resamples.
pub fn ratio_of_medians(x: &[f64], y: &[f64], resamples: usize, seed: u64) -> Result<RatioOfMedians> {
    check_positive_sample("the first sample", x, 2)?;
    check_positive_sample("the second sample", y, 2)?;
    if resamples == 0 {
        return Err(Error::Argument { what: "number of resamples", value: 0.0, rule: "at least 1" });
    }
    let mut rng = Rng::new(seed);
    let (mut bag_x, mut bag_y) = (x.to_vec(), y.to_vec());
    let ratio = median_in_place(&mut bag_x) / median_in_place(&mut bag_y);
    let mut sorted: Vec<f64> = (0..resamples)
        .map(|_| {
            bag_x.fill_with(|| x[rng.below(x.len())]);
            bag_y.fill_with(|| y[rng.below(y.len())]);
            median_in_place(&mut bag_x) / median_in_place(&mut bag_y)
        })
        .collect();
    if !ratio.is_finite() || sorted.iter().any(|r| !r.is_finite()) {
        return Err(Error::NotFinite { what: "the ratio of medians" });
    }
    sorted.sort_by(f64::total_cmp);
    Ok(RatioOfMedians { ratio, sorted })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        describe::{hodges_lehmann_ratio, mean_of},
        mann_whitney::{Method, mann_whitney},
        welch::welch,
    };

    /// One outlier hides a regression of 5 % from means, not from medians and ranks.
    #[test]
    fn the_outlier_case() {
        let a = [12.1, 12.3, 12.0, 12.2, 12.1, 12.4, 12.2, 12.0, 12.3, 18.9];
        let b = [12.8, 12.9, 12.7, 13.0, 12.8, 12.9, 13.1, 12.7, 12.8, 12.9];
        let near = |got: f64, wanted: f64, within: f64| assert!((got - wanted).abs() <= within, "{got} {wanted}");
        near(mean_of(&b) / mean_of(&a), 1.0008, 5e-5);
        near(welch(&b, &a, 0.95).unwrap().p_two_sided, 0.988, 5e-4);
        near(mann_whitney(&b, &a, Method::Auto).unwrap().p_two_sided, 0.0027, 5e-5);
        near(hodges_lehmann_ratio(&b, &a).unwrap(), 1.0567, 5e-5);
        let medians = ratio_of_medians(&b, &a, RESAMPLES, 7).unwrap();
        near(medians.ratio, 1.0533, 5e-5);
        near(medians.bound(0.025), 1.041, 0.002);
        near(medians.bound(0.975), 1.066, 0.002);
    }

    #[test]
    fn a_seed_gives_the_same_answer_and_ratios_need_positive_values() {
        let (x, y) = ([1.0, 2.0, 3.0], [2.0, 2.5, 4.0]);
        assert_eq!(ratio_of_medians(&x, &y, 100, 1).unwrap(), ratio_of_medians(&x, &y, 100, 1).unwrap());
        assert!(matches!(ratio_of_medians(&[1.0, 0.0], &y, 10, 1), Err(Error::NotPositive { .. })));
        assert!(matches!(ratio_of_medians(&x, &[1.0], 10, 1), Err(Error::TooFew { .. })));
        assert!(matches!(ratio_of_medians(&x, &[1.0, f64::INFINITY], 10, 1), Err(Error::NotFinite { .. })));
    }
}
