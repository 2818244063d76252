//! Keys of metrics, params and tags, and names for runs that were given none.

use rand::{Rng, seq::IndexedRandom as _};

/// Longest key, in characters.
pub const MAX_KEY_CHARS: usize = 250;

/// Checks the key of a metric, param or tag: letters, digits and `_ - . / :` and spaces, and a path that is
/// already in its normal form, because keys may become file names. Its length is not looked at.
///
/// # Errors
/// A sentence that states the rule.
pub fn check_key(key: &str) -> Result<(), String> {
    if !key.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':' | ' ')) {
        return Err(
            "Names may only contain alphanumerics, underscores (_), dashes (-), periods (.), spaces ( ), colon(:) and slashes (/)."
                .to_owned(),
        );
    }
    let normal = normal_path(key);
    if normal != key || normal == "." || normal.starts_with("..") || normal.starts_with('/') {
        return Err(format!(
            "Names may be treated as files in certain cases, and must not resolve to other names when treated as such. This name would resolve to '{normal}'"
        ));
    }
    Ok(())
}

/// The path without empty, `.` and (where possible) `..` parts, as POSIX has it.
#[must_use]
pub fn normal_path(path: &str) -> String {
    let root = match path.len() - path.trim_start_matches('/').len() {
        0 => "",
        2 => "//",
        _ => "/",
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if !root.is_empty() => {}
            other => parts.push(other),
        }
    }
    let normal = format!("{root}{}", parts.join("/"));
    if normal.is_empty() { ".".to_owned() } else { normal }
}

const ADJECTIVES: &[&str] = &[
    "amber", "brave", "brisk", "calm", "clever", "crisp", "deep", "eager", "early", "fair", "fleet", "fresh", "gentle", "glad", "golden",
    "grand", "happy", "keen", "kind", "light", "lively", "lucid", "lucky", "mellow", "merry", "mild", "neat", "noble", "proud", "quick",
    "quiet", "rapid", "ready", "silver", "smart", "steady", "still", "sunny", "swift", "tidy", "vivid", "warm", "wise", "young",
];
const NOUNS: &[&str] = &[
    "anchor", "barge", "beacon", "bridge", "brook", "canal", "cedar", "cliff", "coral", "crane", "creek", "delta", "dune", "falcon",
    "ferry", "fjord", "gate", "grove", "gull", "harbor", "heron", "inlet", "island", "lagoon", "lock", "marsh", "meadow", "otter", "pier",
    "pond", "reed", "reef", "ridge", "river", "shore", "spring", "stream", "tide", "trout", "wave", "weir", "willow",
];

/// A random `adjective-noun-123` of at most 20 characters.
pub fn random_name(rng: &mut impl Rng) -> String {
    let adjective = ADJECTIVES.choose(rng).copied().unwrap_or("calm");
    let noun = NOUNS.choose(rng).copied().unwrap_or("river");
    format!("{adjective}-{noun}-{}", rng.random_range(0..1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        for good in ["loss", "val/loss", "a b", "x:y", "été_1", "a.b-c", "..."] {
            // "..." begins with ".." and is refused like the others below
            assert_eq!(check_key(good).is_ok(), good != "...", "{good:?}");
        }
        for bad in ["a%b", "a\nb", "/a", "a/", "a//b", "../a", "a/../b", ".", "", "./a", "a{b}", "a\\b"] {
            assert!(check_key(bad).is_err(), "{bad:?}");
        }
        assert!(check_key("a/../b").unwrap_err().contains("resolve to 'b'"));
    }

    #[test]
    fn random_names_are_short() {
        let mut rng = rand::rng();
        for _ in 0..500 {
            let name = random_name(&mut rng);
            assert!(name.len() <= 20 && check_key(&name).is_ok(), "{name}");
        }
    }
}
