//! `sluice.toml`: defaults for flags. Flags win over the environment, the environment over the file.
//!
//! One table per command, keys are the long flags: `[up]`, `[server]`, `[runner]`.

use std::path::Path;

use anyhow::{Context as _, bail, ensure};

/// Name of the file that is read from the working folder when `--config` does not name another.
pub const DEFAULT_FILE: &str = "sluice.toml";

/// Puts the file's values in as defaults of the command's flags.
///
/// # Errors
/// When a named file is missing, or the file says something that no flag knows.
pub fn apply(mut command: clap::Command, named: Option<&Path>) -> anyhow::Result<clap::Command> {
    let path = named.unwrap_or(Path::new(DEFAULT_FILE));
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => return Ok(command),
        Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
    };
    let tables: toml::Table = text.parse().with_context(|| format!("reading {}", path.display()))?;
    for (name, table) in tables {
        let toml::Value::Table(settings) = table else { bail!("{}: `{name}` must be in a table such as [up]", path.display()) };
        ensure!(command.find_subcommand(&name).is_some(), "{}: [{name}] is no command of sluice", path.display());
        for (flag, value) in settings {
            let text = match value {
                toml::Value::String(text) => text,
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::Float(number) => number.to_string(),
                toml::Value::Boolean(truth) => truth.to_string(),
                other => bail!("{}: {name}.{flag} must be a text, number or truth value, not {}", path.display(), other.type_str()),
            };
            let id = command
                .find_subcommand(&name)
                .and_then(|sub| sub.get_arguments().find(|arg| arg.get_long() == Some(&flag)))
                .map(|arg| arg.get_id().clone())
                .with_context(|| format!("{}: `sluice {name}` has no flag --{flag}", path.display()))?;
            command = command.mut_subcommand(&name, |sub| sub.mut_arg(id, |arg| arg.default_value(text).required(false)));
        }
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};

    use super::*;
    use crate::server::ServerArgs;

    fn parse(file: &str, args: &[&str]) -> anyhow::Result<ServerArgs> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("sluice.toml");
        std::fs::write(&path, file)?;
        let command = clap::Command::new("sluice").subcommand(ServerArgs::augment_args(clap::Command::new("server")));
        let matches = apply(command, Some(&path))?.try_get_matches_from([&["sluice", "server"], args].concat())?;
        Ok(ServerArgs::from_arg_matches(matches.subcommand().context("a command")?.1)?)
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        let args = parse("[server]\nlisten = \"127.0.0.1:7000\"\nlease-secs = 9\n", &["--lease-secs", "5"]).unwrap();
        assert_eq!(args.listen.port(), 7000);
        assert_eq!(args.lease_secs, 5);
    }

    #[test]
    fn an_unknown_key_is_named() {
        let error = parse("[server]\nlissen = \"x\"\n", &[]).unwrap_err();
        assert!(format!("{error:#}").contains("no flag --lissen"), "{error:#}");
    }
}
