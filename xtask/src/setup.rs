//! What a fresh machine lacks: Debian packages and Python environments. Says what it does and how long it took.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context as _, bail, ensure};

use crate::up::{Clone, Server};

/// Root of the repository. Cargo says where its package is; a target folder shared by several clones may hold a program
/// that was built in another one.
#[must_use]
pub fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.parent().map_or_else(|| PathBuf::from("."), Path::to_owned)
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
    Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn has_postgres() -> bool {
    let debian =
        std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().any(|entry| entry.path().join("bin/initdb").exists());
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
    for args in
        [vec!["apt-get", "update", "-q"], [&["apt-get", "install", "-y", "-q", "--no-install-recommends"], missing.as_slice()].concat()]
    {
        let words = [prefix, args.as_slice()].concat();
        let output = Command::new(words[0])
            .args(&words[1..])
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .output()
            .context("running apt-get")?;
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
    ensure!(
        status.success(),
        "{} {} failed ({status})",
        command.get_program().display(),
        command.get_args().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ")
    );
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

/// Lets a runner build (or find) the demo project's environment, through a pipeline like any other; gives its Python.
///
/// # Errors
/// When the set-up command fails; the end of its log is in the error.
pub fn demo_environment(sluice: &Path) -> anyhow::Result<PathBuf> {
    let data = tempfile::Builder::new().prefix("sluice-setup-").tempdir()?;
    // the private Postgres of a root server runs as another user, who must be able to pass
    std::fs::set_permissions(data.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let mut server = Server::start(sluice, data.path(), "127.0.0.1:0")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let built = runtime.block_on(build_environment(&server.url));
    server.stop()?;
    built
}

async fn build_environment(url: &str) -> anyhow::Result<PathBuf> {
    let client = sluice_client::Client::new(url)?;
    let repository = client.create_repository("environment", None).await?;
    let folder = tempfile::tempdir()?;
    let project = root().join("demo/project");
    std::fs::copy(project.join("requirements.txt"), folder.path().join("requirements.txt"))?;
    let pipeline = "version: 1\njobs:\n  environment:\n    setup: pip install -r requirements.txt\n    run: python -c 'import sys; print(\"prefix\", sys.prefix)'\n    timeout: 1h\n";
    std::fs::write(folder.path().join(".sluice.yml"), pipeline)?;
    let clone = Clone::init(folder.path(), &repository.git_url)?;
    clone.commit("Build the environment")?;
    clone.push()?;
    let newest = client.pipelines(None, None, None, None, None).await?.items.into_iter().next().context("the push started no pipeline")?;
    let deadline = Instant::now() + std::time::Duration::from_secs(3600);
    let (mut log, mut from, mut said) = (String::new(), 0, Instant::now());
    loop {
        let pipeline = client.pipeline(newest.id).await?;
        let job = pipeline.jobs.first().context("the pipeline has no job")?;
        if !job.attempts.is_empty() {
            let page = client.job_logs(job.id, None, from).await?;
            from = page.next;
            log.extend(page.chunks.into_iter().map(|chunk| chunk.content));
        }
        if said.elapsed().as_secs() >= 15 {
            said = Instant::now();
            let last: String = log.lines().last().unwrap_or("waiting for the runner").chars().take(100).collect();
            println!("      {last}");
        }
        if pipeline.status.is_final() {
            let lines: Vec<&str> = log.lines().collect();
            let prefix = lines.iter().rev().find_map(|line| line.strip_prefix("prefix "));
            return prefix.map(|prefix| PathBuf::from(prefix.trim()).join("bin/python")).with_context(|| {
                format!(
                    "the environment could not be built ({}); the log ends with:\n{}",
                    pipeline.status_reason,
                    lines[lines.len().saturating_sub(20)..].join("\n")
                )
            });
        }
        ensure!(Instant::now() < deadline, "the environment was not built within an hour");
        tokio::time::sleep(std::time::Duration::from_millis(250)).await;
    }
}
