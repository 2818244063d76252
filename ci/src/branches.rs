//! Branch patterns: `*` stands for any characters within one `/`-separated segment, `**` also across segments.

use serde::{Deserialize, Serialize};

/// A checked branch pattern.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BranchPattern(String);

impl BranchPattern {
    /// Checks a pattern.
    ///
    /// # Errors
    /// A sentence that states the rule.
    pub fn new(pattern: &str) -> Result<Self, String> {
        let ok = !pattern.is_empty()
            && pattern.len() <= 200
            && !pattern.starts_with('/')
            && !pattern.ends_with('/')
            && !pattern.contains("//")
            && !pattern.contains("..")
            && !pattern.contains("***")
            && !pattern.chars().any(|c| c.is_control() || " ~^:?[]{}\\!".contains(c));
        if ok {
            Ok(Self(pattern.to_owned()))
        } else {
            Err(format!(
                "branch pattern {pattern:?} must be a branch name of at most 200 bytes in which * stands for characters within a segment and ** across segments"
            ))
        }
    }

    /// The pattern as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a branch name (without `refs/heads/`) matches.
    #[must_use]
    pub fn matches(&self, branch: &str) -> bool {
        matches(self.0.as_bytes(), branch.as_bytes())
    }
}

/// Dynamic programming over the branch, so that many stars cost no more than pattern × branch.
fn matches(pattern: &[u8], branch: &[u8]) -> bool {
    let mut state = vec![false; branch.len() + 1];
    state[0] = true;
    let mut rest = pattern;
    while let Some((&first, tail)) = rest.split_first() {
        let mut next = vec![false; branch.len() + 1];
        if first == b'*' {
            let across = tail.first() == Some(&b'*');
            rest = if across { &tail[1..] } else { tail };
            let mut live = false;
            for i in 0..=branch.len() {
                live = state[i] || (live && (across || branch[i - 1] != b'/'));
                next[i] = live;
            }
        } else {
            rest = tail;
            for i in 0..branch.len() {
                next[i + 1] = state[i] && branch[i] == first;
            }
        }
        state = next;
    }
    state[branch.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stay_within_a_segment_and_double_stars_do_not() {
        for (pattern, branch, wanted) in [
            ("main", "main", true),
            ("main", "main2", false),
            ("main", "ma", false),
            ("exp/**", "exp/a", true),
            ("exp/**", "exp/a/b", true),
            ("exp/**", "exp", false),
            ("exp/*", "exp/a", true),
            ("exp/*", "exp/a/b", false),
            ("*", "main", true),
            ("*", "a/b", false),
            ("**", "a/b/c", true),
            ("release-*.x", "release-1.2.x", true),
            ("**/fix-*", "user/ann/fix-7", true),
            ("**/fix-*", "user/ann/fix-7/b", false),
        ] {
            assert_eq!(BranchPattern::new(pattern).unwrap().matches(branch), wanted, "{pattern} {branch}");
        }
        let evil = BranchPattern::new(&"*a".repeat(100)).unwrap();
        assert!(!evil.matches(&"a".repeat(99)));
    }

    #[test]
    fn patterns_that_no_branch_can_match_are_refused() {
        for bad in ["", "/a", "a/", "a//b", "a b", "!main", "a[bc]", "a..b", "a?"] {
            assert!(BranchPattern::new(bad).is_err(), "{bad:?}");
        }
    }
}
