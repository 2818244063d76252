//! Is the candidate worse than the champion by more than a margin? Three answers, none of them "p > 0.05".

use sluice_domain::state::Direction;

use crate::{
    bootstrap::{RESAMPLES, RatioOfMedians, ratio_of_medians},
    error::{Error, Result},
    welch::{Welch, welch},
};

/// Confidence of each one-sided bound.
pub const CONFIDENCE: f64 = 0.95;

/// What the data allow to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Not worse by the margin or more.
    Pass,
    /// Worse by more than the margin.
    Fail,
    /// Neither is shown: more repeats are needed.
    Inconclusive,
}

/// A judged difference. `estimate` and bounds are as measured (candidate − champion, or candidate / champion);
/// `limit` is the value on the same scale that the candidate must stay on the good side of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    pub estimate: f64,
    pub lower: f64,
    pub upper: f64,
    pub limit: f64,
    pub decision: Decision,
}

/// With Δ = candidate − champion, signed so that bigger is better, and a margin δ > 0: pass if the lower one-sided
/// bound of Δ is above −δ, fail if the upper one is below −δ, else inconclusive.
///
/// # Errors
/// Bounds that are not finite, or a margin that is not above 0.
pub fn decide(lower: f64, upper: f64, margin: f64) -> Result<Decision> {
    if !(margin > 0.0 && margin.is_finite()) {
        return Err(Error::Argument { what: "margin", value: margin, rule: "above 0" });
    }
    if !(lower.is_finite() && upper.is_finite()) {
        return Err(Error::NotFinite { what: "the interval" });
    }
    Ok(if lower > -margin {
        Decision::Pass
    } else if upper < -margin {
        Decision::Fail
    } else {
        Decision::Inconclusive
    })
}

/// Non-inferiority of means, by Welch's bounds. The margin is in units of the metric.
///
/// # Errors
/// As [`welch`] and [`decide`].
pub fn by_welch(candidate: &[f64], champion: &[f64], direction: Direction, margin: f64) -> Result<(Comparison, Welch)> {
    let test = welch(candidate, champion, CONFIDENCE)?;
    let (decision, limit) = match direction {
        Direction::Higher => (decide(test.lower, test.upper, margin)?, -margin),
        Direction::Lower => (decide(-test.upper, -test.lower, margin)?, margin),
    };
    Ok((Comparison { estimate: test.difference, lower: test.lower, upper: test.upper, limit, decision }, test))
}

/// Non-inferiority of the ratio of medians, by bootstrap bounds. The margin is a fraction: 0.05 allows 5 % worse.
///
/// # Errors
/// As [`ratio_of_medians`] and [`decide`].
pub fn by_ratio_of_medians(
    candidate: &[f64],
    champion: &[f64],
    direction: Direction,
    margin: f64,
    seed: u64,
) -> Result<(Comparison, RatioOfMedians)> {
    let test = ratio_of_medians(candidate, champion, RESAMPLES, seed)?;
    let (lower, upper) = (test.bound(1.0 - CONFIDENCE), test.bound(CONFIDENCE));
    let (decision, limit) = match direction {
        Direction::Higher => (decide(lower - 1.0, upper - 1.0, margin)?, 1.0 - margin),
        Direction::Lower => (decide(1.0 - upper, 1.0 - lower, margin)?, 1.0 + margin),
    };
    Ok((Comparison { estimate: test.ratio, lower, upper, limit, decision }, test))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Case<'a> = (&'a [f64], &'a [f64], f64, (f64, f64), (f64, f64), Decision);

    /// Known answers: Δ, p (from, to), 90 % interval, verdict at margin 0.30.
    const CASES: &[Case<'_>] = &[
        (
            &[76.12, 76.05, 76.20, 76.10, 76.15],
            &[76.10, 76.08, 76.18, 76.05, 76.14],
            0.014,
            (0.6895, 0.6905),
            (-0.049, 0.077),
            Decision::Pass,
        ),
        (&[75.2, 76.6, 75.1], &[76.3, 75.9, 76.7], -0.667, (0.3055, 0.3065), (-1.954, 0.620), Decision::Inconclusive),
        (
            &[76.00, 76.02, 75.98, 76.01, 75.99],
            &[76.10, 76.12, 76.08, 76.11, 76.09],
            -0.100,
            (0.5e-5, 1.5e-5),
            (-0.119, -0.081),
            Decision::Pass,
        ),
        (&[75.4, 75.5, 75.3, 75.45, 75.35], &[76.1, 76.0, 76.2, 76.05, 76.15], -0.700, (0.0, 1e-5), (-0.793, -0.607), Decision::Fail),
    ];

    #[test]
    fn known_verdicts() {
        for (candidate, champion, delta, p, interval, decision) in CASES {
            let (comparison, test) = by_welch(candidate, champion, Direction::Higher, 0.30).unwrap();
            assert!((comparison.estimate - delta).abs() < 5e-4, "{comparison:?}");
            assert!(p.0 <= test.p_two_sided && test.p_two_sided <= p.1, "{test:?}");
            assert!((comparison.lower - interval.0).abs() < 6e-4 && (comparison.upper - interval.1).abs() < 6e-4, "{comparison:?}");
            assert_eq!(comparison.decision, *decision, "{comparison:?}");

            let negated = |values: &[f64]| values.iter().map(|v| -v).collect::<Vec<_>>();
            let (mirror, _) = by_welch(&negated(candidate), &negated(champion), Direction::Lower, 0.30).unwrap();
            assert_eq!((mirror.decision, mirror.limit), (*decision, 0.30));
        }
    }

    #[test]
    fn ratios_are_judged_by_direction() {
        let slow = [1.30, 1.31, 1.29, 1.32, 1.30];
        let fast = [1.00, 1.01, 0.99, 1.02, 1.00];
        let verdict = |x, y, direction, margin| by_ratio_of_medians(x, y, direction, margin, 1).unwrap().0.decision;
        assert_eq!(verdict(&slow, &fast, Direction::Lower, 0.05), Decision::Fail);
        assert_eq!(verdict(&slow, &fast, Direction::Higher, 0.05), Decision::Pass);
        assert_eq!(verdict(&fast, &slow, Direction::Lower, 0.05), Decision::Pass);
        assert_eq!(verdict(&fast, &slow, Direction::Higher, 0.05), Decision::Fail);
        assert_eq!(verdict(&slow, &fast, Direction::Lower, 0.30), Decision::Inconclusive);
    }

    #[test]
    fn degenerate_data_are_compared_exactly() {
        let decision = |a: f64, b: f64| by_welch(&[a, a, a], &[b, b, b], Direction::Higher, 0.1).unwrap().0.decision;
        assert_eq!((decision(1.0, 1.0), decision(0.95, 1.0), decision(0.8, 1.0)), (Decision::Pass, Decision::Pass, Decision::Fail));
    }

    #[test]
    fn no_verdict_without_numbers() {
        assert!(by_welch(&[1.0], &[1.0, 1.0], Direction::Higher, 0.1).is_err());
        assert!(by_welch(&[1.0, f64::NAN], &[1.0, 1.0], Direction::Higher, 0.1).is_err());
        assert!(by_welch(&[1.0, 1.0], &[1.0, 1.0], Direction::Higher, f64::NAN).is_err());
        assert!(decide(f64::NAN, 1.0, 0.1).is_err());
    }
}
