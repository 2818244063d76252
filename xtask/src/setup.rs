//! What a fresh machine lacks: Debian packages and Python environments. Says what it does and how long it took.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context as _, bail, ensure};

/// Root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(|| PathBuf::from("."), Path::to_owned)
}

/// A Debian package and how to see that it (or its like) is there.
#[derive(Debug, Clone, Copy)]
pub struct Package {
    name: &'static str,
    present: fn() -> bool,
}

/// For running Sluice with its demo.
pub const RUN: &[Package] = &[
    Package { name: "postgresql", present: has_postgres },
    Package { name: "git", present: || runs("git", &["--version"]) },
    Package { name: "python3-venv", present: || runs("python3", &["-c", "import venv, ensurepip"]) },
    Package { name: "ca-certificates", present: || Path::new("/etc/ssl/certs/ca-certificates.crt").exists() },
];

/// For the browser tests, beside [`RUN`].
pub const BROWSER: &[Package] = &[
    Package { name: "chromium", present: || runs("chromium", &["--version"]) },
    Package { name: "chromium-driver", present: || runs("chromedriver", &["--version"]) },
    Package { name: "fonts-dejavu-core", present: || Path::new("/usr/share/fonts/truetype/dejavu").exists() },
];

fn runs(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn has_postgres() -> bool {
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().any(|entry| entry.path().join("bin/initdb").exists());
    debian || runs("initdb", &["--version"])
}

/// Installs what is missing, as root or through sudo; otherwise says which command would.
///
/// # Errors
/// When something is missing and cannot be installed.
pub fn ensure_packages(lists: &[&[Package]]) -> anyhow::Result<()> {
    let missing: Vec<&str> = lists.concat().iter().filter(|package| !(package.present)()).map(|package| package.name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let by_hand = format!("apt-get install -y --no-install-recommends {}", missing.join(" "));
    ensure!(runs("apt-get", &["--version"]), "missing: {}. Install them with your system's package manager", missing.join(", "));
    let prefix: &[&str] = if rustix_is_root() {
        &[]
    } else if runs("sudo", &["-n", "true"]) {
        &["sudo", "-n"]
    } else {
        bail!("missing: {}. Run `sudo {by_hand}`", missing.join(", "))
    };
    println!("  installing {}", missing.join(", "));
    let began = Instant::now();
    // an image may come without package lists, or with old ones
    for args in [vec!["apt-get", "update", "-q"], [&["apt-get", "install", "-y", "-q", "--no-install-recommends"], missing.as_slice()].concat()] {
        let words = [prefix, args.as_slice()].concat();
        let output = Command::new(words[0]).args(&words[1..]).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()).output().context("running apt-get")?;
        ensure!(output.status.success(), "`{}` failed:\n{}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    println!("  installed in {:.0} s", began.elapsed().as_secs_f64());
    Ok(())
}

fn rustix_is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// Runs cargo in the repository, with its output shown.
///
/// # Errors
/// When cargo fails.
pub fn cargo(args: &[&str]) -> anyhow::Result<()> {
    run(Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())).args(args).current_dir(root()))
}

/// Runs a command with its output shown.
///
/// # Errors
/// When it cannot start or fails.
pub fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("running {}", command.get_program().display()))?;
    ensure!(status.success(), "{} {} failed ({status})", command.get_program().display(), command.get_args().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" "));
    Ok(())
}

/// Folder of the built binaries of a profile: `debug` or `release`.
#[must_use]
pub fn target(profile: &str) -> PathBuf {
    // this program runs from the same target folder
    let beside = std::env::current_exe().ok().and_then(|path| Some(path.parent()?.parent()?.to_owned()));
    beside.unwrap_or_else(|| root().join("target")).join(profile)
}

/// Where runners keep environments between jobs, shared by the demo, the tests and `sluice up`.
#[must_use]
pub fn cache() -> PathBuf {
    std::env::var_os("SLUICE_CACHE").map(PathBuf::from).unwrap_or_else(|| {
        let base = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
        base.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/tmp".into())).join(".cache")).join("sluice")
    })
}

/// Builds (or finds) the demo project's environment exactly as a runner would; gives its Python.
///
/// # Errors
/// When the set-up command fails.
pub fn demo_environment(sluice: &Path) -> anyhow::Result<PathBuf> {
    let mut command = Command::new(sluice);
    command.args(["env", "--setup", "pip install -r requirements.txt", "--cache"]).arg(cache()).arg(root().join("demo/project"));
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("running sluice env")?;
    ensure!(output.status.success(), "the demo project's Python environment could not be built");
    let path = String::from_utf8(output.stdout)?;
    Ok(PathBuf::from(path.trim()).join("bin/python"))
}
