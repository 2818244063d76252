//! Means, variances, medians, quantiles.

use crate::error::{Error, Result, check_positive_sample, check_sample};

/// Arithmetic mean. Exact for values that are all the same.
///
/// # Errors
/// No values, or one that is not finite.
pub fn mean(values: &[f64]) -> Result<f64> {
    check_sample("the sample", values, 1)?;
    Ok(mean_of(values))
}

/// Mean of checked values. Deviations from the first value are summed, which keeps constants exact.
pub(crate) fn mean_of(values: &[f64]) -> f64 {
    let first = values[0];
    first + values.iter().map(|v| v - first).sum::<f64>() / values.len() as f64
}

/// Unbiased variance `Σ(x − x̄)² / (n − 1)` of checked values, at least two.
pub(crate) fn variance_of(values: &[f64]) -> f64 {
    let mean = mean_of(values);
    values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (values.len() as f64 - 1.0)
}

/// Median: the middle value, or the mean of the two middle values.
///
/// # Errors
/// No values, or one that is not finite.
pub fn median(values: &[f64]) -> Result<f64> {
    quantile(values, 0.5)
}

/// Quantile of type 7 (Hyndman & Fan 1996; the default of R and NumPy): linear interpolation at `(n − 1)·q`.
///
/// # Errors
/// No values, one that is not finite, or `q` outside 0 to 1.
pub fn quantile(values: &[f64], q: f64) -> Result<f64> {
    check_sample("the sample", values, 1)?;
    if !(0.0..=1.0).contains(&q) {
        return Err(Error::Argument { what: "quantile", value: q, rule: "from 0 to 1" });
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Ok(quantile_of_sorted(&sorted, q))
}

/// [`quantile`] of values in ascending order, at least one.
pub(crate) fn quantile_of_sorted(sorted: &[f64], q: f64) -> f64 {
    let at = (sorted.len() as f64 - 1.0) * q;
    let below = at.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (at - below as f64) * (sorted[above] - sorted[below])
}

/// Median of a scratch buffer, which is sorted on the way.
pub(crate) fn median_in_place(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    quantile_of_sorted(values, 0.5)
}

/// Raw samples without which a quantile says little: `10 / (1 − q)`, so that about ten lie beyond it (1 000 for p99).
#[must_use]
pub fn samples_for_quantile(q: f64) -> usize {
    // The small subtraction keeps 10 / (1 − 0.99) at 1 000 despite rounding.
    (10.0 / (1.0 - q) - 1e-6).ceil().max(1.0) as usize
}

/// Hodges–Lehmann estimate of a ratio: the median of all `xᵢ / yⱼ` (Hodges & Lehmann 1963, on a log scale).
///
/// # Errors
/// An empty sample, or values that are not finite and above 0.
pub fn hodges_lehmann_ratio(x: &[f64], y: &[f64]) -> Result<f64> {
    check_positive_sample("the first sample", x, 1)?;
    check_positive_sample("the second sample", y, 1)?;
    let mut ratios: Vec<f64> = x.iter().flat_map(|a| y.iter().map(move |b| a / b)).collect();
    Ok(median_in_place(&mut ratios))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_type_7() {
        let values = [4.0, 1.0, 3.0, 2.0];
        for (q, wanted) in [(0.0, 1.0), (0.25, 1.75), (0.5, 2.5), (0.9, 3.7), (1.0, 4.0)] {
            assert!((quantile(&values, q).unwrap() - wanted).abs() < 1e-12);
        }
        assert!(quantile(&[], 0.5).is_err() && quantile(&values, 1.5).is_err() && quantile(&[f64::NAN], 0.5).is_err());
    }

    #[test]
    fn quantiles_need_samples_beyond_them() {
        assert_eq!([0.5, 0.9, 0.95, 0.99].map(samples_for_quantile), [20, 100, 200, 1000]);
    }

    #[test]
    fn constants_have_no_variance() {
        assert_eq!((mean_of(&[0.1; 7]), variance_of(&[0.1; 7])), (0.1, 0.0));
    }
}
