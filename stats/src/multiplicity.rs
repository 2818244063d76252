//! Many tests at once: adjusted p-values.

/// Order of the p-values, smallest first.
fn ascending(p: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    order
}

/// Holm's adjusted p-values (Holm 1979), in the order given: `max over j ≤ i of min(1, (m − j + 1)·p(j))`.
/// Rejecting those at most α keeps the chance of any false rejection below α.
#[must_use]
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut adjusted = vec![0.0; p.len()];
    let mut largest = 0.0_f64;
    for (rank, i) in ascending(p).into_iter().enumerate() {
        largest = largest.max(((p.len() - rank) as f64 * p[i]).min(1.0));
        adjusted[i] = largest;
    }
    adjusted
}

/// Benjamini & Hochberg's adjusted p-values (1995), in the order given: `min over j ≥ i of m·p(j)/j`.
/// Rejecting those at most q keeps the expected share of false rejections below q.
#[must_use]
pub fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let mut adjusted = vec![0.0; p.len()];
    let mut smallest = 1.0_f64;
    for (rank, i) in ascending(p).into_iter().enumerate().rev() {
        smallest = smallest.min(p.len() as f64 * p[i] / (rank + 1) as f64);
        adjusted[i] = smallest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of Benjamini & Hochberg's paper.
    const P: [f64; 15] =
        [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0];

    #[test]
    fn benjamini_and_hochbergs_example() {
        let bh = benjamini_hochberg(&P);
        for (got, wanted) in bh.iter().zip([0.0015, 0.003, 0.0095, 0.0356, 0.0603]) {
            assert!((got - wanted).abs() < 5e-5, "{bh:?}");
        }
        let rejected = |adjusted: &[f64]| adjusted.iter().filter(|p| **p <= 0.05).count();
        assert_eq!((rejected(&bh), rejected(&holm(&P))), (4, 3));
    }

    #[test]
    fn answers_keep_the_order_of_the_question() {
        assert_eq!(holm(&[0.04, 0.01, 0.5]), [0.08, 0.03, 0.5]);
        assert_eq!(holm(&[]), Vec::<f64>::new());
    }
}
