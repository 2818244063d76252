//! Curves cut into buckets along x, so that a chart of any width keeps every extreme.

/// A curve in at most as many buckets as were asked for; one entry per bucket in each list.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Buckets {
    /// Position of the bucket's last point.
    pub x: Vec<f64>,
    /// Least and greatest value that is a number; NaN when the bucket has none.
    pub min: Vec<f64>,
    pub max: Vec<f64>,
    /// Value of the bucket's last point, which may be NaN.
    pub last: Vec<f64>,
    /// Points in the bucket.
    pub n: Vec<u64>,
    pub total_points: u64,
    /// False: every bucket is one point, nothing was summed up.
    pub bucketed: bool,
}

/// Cuts `points`, which are sorted by x, into at most `max_buckets` (at least 1) buckets of equal width in x.
/// Few enough points stay as they are. Buckets without points are left out.
#[must_use]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "clamped to the number of buckets")]
pub fn bucket(points: &[(f64, f64)], max_buckets: usize) -> Buckets {
    let max_buckets = max_buckets.max(1);
    let mut buckets = Buckets { total_points: points.len() as u64, bucketed: points.len() > max_buckets, ..Buckets::default() };
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return buckets };
    let width = (last.0 - first.0) / max_buckets as f64;
    let mut current = None;
    for (i, &(x, y)) in points.iter().enumerate() {
        let index = match buckets.bucketed {
            false => i,
            true if width > 0.0 => (((x - first.0) / width) as usize).min(max_buckets - 1),
            true => 0,
        };
        if current != Some(index) {
            current = Some(index);
            buckets.x.push(x);
            buckets.min.push(f64::NAN);
            buckets.max.push(f64::NAN);
            buckets.last.push(y);
            buckets.n.push(0);
        }
        let at = buckets.x.len() - 1;
        buckets.x[at] = x;
        // f64::min and max pass over a NaN on either side
        buckets.min[at] = buckets.min[at].min(y);
        buckets.max[at] = buckets.max[at].max(y);
        buckets.last[at] = y;
        buckets.n[at] += 1;
    }
    buckets
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn few_points_stay() {
        let buckets = bucket(&[(0.0, 1.0), (5.0, f64::NAN), (6.0, f64::INFINITY)], 3);
        assert!(!buckets.bucketed);
        assert_eq!(buckets.x, [0.0, 5.0, 6.0]);
        assert!(buckets.min[1].is_nan() && buckets.last[1].is_nan());
        assert_eq!(buckets.max[2], f64::INFINITY);
        assert_eq!(bucket(&[], 5), Buckets::default());
    }

    #[test]
    fn one_spike_in_a_million_survives() {
        let mut points: Vec<_> = (0..1_000_000).map(|i| (f64::from(i), 0.5)).collect();
        points[777_777].1 = 9.0;
        let buckets = bucket(&points, 1000);
        assert_eq!(buckets.x.len(), 1000);
        assert_eq!(buckets.max[777], 9.0);
        assert_eq!(buckets.total_points, 1_000_000);
    }

    #[test]
    fn equal_positions_are_one_bucket() {
        let buckets = bucket(&[(3.0, 1.0), (3.0, 2.0), (3.0, 0.0)], 2);
        assert_eq!((buckets.n[0], buckets.min[0], buckets.max[0], buckets.last[0]), (3, 0.0, 2.0, 0.0));
    }

    proptest! {
        #[test]
        fn extremes_counts_and_ends_survive(
            mut points in prop::collection::vec((-1e12..1e12f64, prop_oneof![-1e300..1e300f64, Just(f64::NAN)]), 1..300),
            max_buckets in 1usize..50,
        ) {
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let buckets = bucket(&points, max_buckets);
            prop_assert!(!buckets.bucketed || buckets.x.len() <= max_buckets);
            prop_assert_eq!(buckets.bucketed, points.len() > max_buckets);
            prop_assert_eq!(buckets.n.iter().sum::<u64>(), points.len() as u64);
            prop_assert!(buckets.x.is_sorted());
            prop_assert_eq!(*buckets.x.last().unwrap(), points.last().unwrap().0);
            let least = points.iter().map(|p| p.1).fold(f64::NAN, f64::min);
            let greatest = points.iter().map(|p| p.1).fold(f64::NAN, f64::max);
            let kept_least = buckets.min.iter().copied().fold(f64::NAN, f64::min);
            let kept_greatest = buckets.max.iter().copied().fold(f64::NAN, f64::max);
            prop_assert!(least == kept_least || (least.is_nan() && kept_least.is_nan()));
            prop_assert!(greatest == kept_greatest || (greatest.is_nan() && kept_greatest.is_nan()));
        }
    }
}
