//! Mann–Whitney's rank test.

use statrs::distribution::{ContinuousCDF, Normal};

use crate::error::{Result, check_sample};

/// How a p-value is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Exact when there are no ties, a sample has at most 8 values and none more than 100; else normal.
    Auto,
    /// Normal approximation with tie and continuity correction.
    Normal,
}

/// Outcome of [`mann_whitney`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MannWhitney {
    /// Pairs in which the first sample's value is larger, ties counting half.
    pub u: f64,
    pub p_two_sided: f64,
    pub exact: bool,
}

/// Compares two samples by ranks (Mann & Whitney 1947).
///
/// Normal form: `z = (max(U, nm − U) − nm/2 − ½) / σ`, `σ² = nm/12 · ((N + 1) − Σ(t³ − t) / (N(N − 1)))`, t the sizes of
/// groups of ties. When all values are equal p is 1.
///
/// # Errors
/// An empty sample or a value that is not finite.
pub fn mann_whitney(x: &[f64], y: &[f64], method: Method) -> Result<MannWhitney> {
    check_sample("the first sample", x, 1)?;
    check_sample("the second sample", y, 1)?;
    let (n, m) = (x.len() as f64, y.len() as f64);
    let mut all: Vec<(f64, bool)> = x.iter().map(|v| (*v, true)).chain(y.iter().map(|v| (*v, false))).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut rank_sum, mut ties) = (0.0, 0.0);
    let mut from = 0;
    // `total_cmp` puts −0 before 0; they are still one group because groups are formed by `==`.
    while from < all.len() {
        let to = from + all[from..].iter().take_while(|(v, _)| *v == all[from].0).count();
        let size = (to - from) as f64;
        let rank = (from + 1 + to) as f64 / 2.0;
        rank_sum += rank * all[from..to].iter().filter(|(_, first)| *first).count() as f64;
        ties += size * size * size - size;
        from = to;
    }
    let u = rank_sum - n * (n + 1.0) / 2.0;
    let larger = u.max(n * m - u);
    if method == Method::Auto && ties == 0.0 && x.len().min(y.len()) <= 8 && x.len().max(y.len()) <= 100 {
        return Ok(MannWhitney { u, p_two_sided: exact_p(x.len(), y.len(), larger as usize), exact: true });
    }
    let total = n + m;
    let variance = n * m / 12.0 * ((total + 1.0) - ties / (total * (total - 1.0)).max(1.0));
    let p_two_sided = if variance > 0.0 {
        let z = (larger - n * m / 2.0 - 0.5) / variance.sqrt();
        (2.0 * Normal::standard().sf(z)).min(1.0)
    } else {
        1.0
    };
    Ok(MannWhitney { u, p_two_sided, exact: false })
}

/// `2·P(U ≥ u)` when every arrangement is equally likely. The counts are the coefficients of the Gaussian binomial
/// `Π (1 − q^(m+i)) / (1 − q^i)`, i = 1…n.
fn exact_p(n: usize, m: usize, u: usize) -> f64 {
    let (n, m) = (n.min(m), n.max(m));
    let mut counts = vec![0.0_f64; n * m + 1];
    counts[0] = 1.0;
    for i in 1..=n {
        for k in (m + i..counts.len()).rev() {
            counts[k] -= counts[k - m - i];
        }
        for k in i..counts.len() {
            counts[k] += counts[k - i];
        }
    }
    let total: f64 = counts.iter().sum();
    (2.0 * counts[u..].iter().sum::<f64>() / total).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(from: u32, to: u32) -> Vec<f64> {
        (from..to).map(f64::from).collect()
    }

    #[test]
    fn pinpoints_values() {
        for (x, y, wanted) in [
            (range(0, 10), range(20, 30), 0.000_182_671_79),
            (range(0, 5), range(0, 10), 0.139_863_576_88),
            (vec![0.0; 5], vec![1.0; 5], 0.003_976_75),
        ] {
            let p = mann_whitney(&x, &y, Method::Auto).unwrap().p_two_sided;
            assert!((p - wanted).abs() < 1e-8, "{p} {wanted}");
        }
        assert_eq!(mann_whitney(&[3.0; 4], &[3.0; 9], Method::Auto).unwrap().p_two_sided, 1.0);
    }

    #[test]
    fn the_smallest_exact_p() {
        for (n, wanted) in [(3, 0.1), (4, 0.0286), (5, 0.0079), (6, 0.0022), (8, 0.00016)] {
            let test = mann_whitney(&range(0, n), &range(100, 100 + n), Method::Auto).unwrap();
            assert!(test.exact && (test.p_two_sided - wanted).abs() < 5e-5, "{n} {test:?}");
        }
        // U = 2 of 3 × 4 (scipy.stats.mannwhitneyu: 0.22857142857).
        let p = mann_whitney(&[1.0, 2.0, 5.0], &[3.0, 4.0, 6.0, 7.0], Method::Auto).unwrap().p_two_sided;
        assert!((p - 0.228_571_428_57).abs() < 1e-9, "{p}");
    }
}
