//! Validated names. Each says in its error what is allowed.

/// Checks the name of a repository: 1 to 100 of `a-z A-Z 0-9 . _ -`, starting with a letter or digit.
///
/// # Errors
/// A sentence that states the rule.
pub fn check_repository_name(name: &str) -> Result<(), String> {
    check_slug(name, 100, "repository name")
}

/// Checks the name of a job, output, environment or runner: 1 to 100 of `a-z A-Z 0-9 . _ -`,
/// starting with a letter or digit.
///
/// # Errors
/// A sentence that states the rule.
pub fn check_slug(name: &str, max: usize, what: &str) -> Result<(), String> {
    let ok = !name.is_empty()
        && name.len() <= max
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
        && !name.contains("..")
        && !name.ends_with(".git")
        && !name.ends_with(".lock");
    if ok {
        Ok(())
    } else {
        Err(format!(
            "{what} {name:?} must be 1 to {max} characters of a-z A-Z 0-9 . _ -, start with a letter or digit, hold no \"..\" and not end in .git or .lock"
        ))
    }
}

/// Checks a relative path inside a checkout or artifact folder: no empty, `.` or `..` part, no leading
/// slash, no backslash, no NUL or other control character.
///
/// # Errors
/// A sentence that states the rule.
pub fn check_relative_path(path: &str) -> Result<(), String> {
    let ok = !path.is_empty()
        && path.len() <= 1024
        && !path.contains('\\')
        && !path.chars().any(char::is_control)
        && path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    if ok {
        Ok(())
    } else {
        Err(format!(
            "path {path:?} must be relative, at most 1024 bytes, without \"..\", \".\", empty parts, backslashes or control characters"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn climbing_paths_are_refused() {
        for bad in ["", "/etc", "../x", "a/../b", "a//b", "a/", ".", "a\\b", "a\0b"] {
            assert!(check_relative_path(bad).is_err(), "{bad:?}");
        }
        for good in ["a", "out/model", "a.b/c-d"] {
            assert!(check_relative_path(good).is_ok(), "{good:?}");
        }
    }

    #[test]
    fn slugs_are_plain() {
        for bad in ["", "-a", "a b", "a..b", "x.git", "ä"] {
            assert!(check_repository_name(bad).is_err(), "{bad:?}");
        }
        assert!(check_repository_name("digits-2.x_y").is_ok());
    }
}
