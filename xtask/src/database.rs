//! A throwaway Postgres for tests and for checking SQL at compile time.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};

use crate::setup;

/// A Postgres in a temporary folder, tuned for speed and not for safety; ended when dropped.
#[derive(Debug)]
pub struct ScratchPostgres {
    /// URL of its database `postgres`.
    pub url: String,
    child: Child,
    _folder: tempfile::TempDir,
}

impl ScratchPostgres {
    /// Creates and starts it on a free loopback port.
    ///
    /// # Errors
    /// When no Postgres is installed or it does not start.
    pub fn start() -> anyhow::Result<Self> {
        let bin = binaries()?;
        let folder = tempfile::Builder::new().prefix("sluice-postgres-").tempdir()?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let owner = unprivileged()?;
        let inside = folder.path().join("postgres");
        fs::create_dir(&inside)?;
        if let Some((uid, gid)) = owner {
            std::os::unix::fs::chown(&inside, Some(uid), Some(gid))?;
        }
        let command = |program: &str| {
            let mut command = Command::new(bin.join(program));
            command.current_dir(&inside).env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
            if let Some((uid, gid)) = owner {
                command.gid(gid).uid(uid);
            }
            command
        };
        let output = command("initdb")
            .args(["-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"])
            .output()?;
        ensure!(output.status.success(), "initdb failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let log = fs::File::create(folder.path().join("log"))?;
        let mut postgres = command("postgres");
        postgres.arg("-D").arg(inside.join("data")).arg("-p").arg(port.to_string()).arg("-k").arg(&inside);
        for setting in ["listen_addresses=127.0.0.1", "fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=300"]
        {
            postgres.args(["-c", setting]);
        }
        let child = postgres.stdout(log.try_clone()?).stderr(log).spawn().context("starting Postgres")?;
        let mut scratch = Self { url: format!("postgres://postgres@127.0.0.1:{port}/postgres"), child, _folder: folder };
        let deadline = Instant::now() + Duration::from_secs(30);
        while !command("pg_isready").args(["-q", "-h", "127.0.0.1", "-p"]).arg(port.to_string()).status()?.success() {
            if let Some(status) = scratch.child.try_wait()? {
                bail!("Postgres ended with {status}");
            }
            ensure!(Instant::now() < deadline, "Postgres did not start within 30 s");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(scratch)
    }
}

impl Drop for ScratchPostgres {
    fn drop(&mut self) {
        // SIGQUIT: at once, without a checkpoint; nothing here is kept
        let _ = Command::new("kill").args(["-QUIT", &self.child.id().to_string()]).status();
        let _ = self.child.wait();
    }
}

fn binaries() -> anyhow::Result<PathBuf> {
    let mut found: Vec<PathBuf> =
        fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path().join("bin")).collect();
    found.retain(|bin| bin.join("initdb").exists());
    found.sort();
    if let Some(bin) = found.pop() {
        return Ok(bin);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let initdb = std::env::split_paths(&path).map(|folder| folder.join("initdb")).find(|file| file.exists());
    initdb
        .and_then(|file| Some(file.canonicalize().ok()?.parent()?.to_owned()))
        .context("no Postgres found: install it (Debian: apt-get install postgresql)")
}

/// Postgres refuses root: the ids of an unprivileged user when this is root.
fn unprivileged() -> anyhow::Result<Option<(u32, u32)>> {
    let uid = Command::new("id").arg("-u").output()?;
    if uid.stdout.trim_ascii() != b"0" {
        return Ok(None);
    }
    let passwd = fs::read_to_string("/etc/passwd")?;
    for name in ["postgres", "nobody"] {
        let row: Option<Vec<&str>> = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|row| row.first() == Some(&name));
        if let Some([_, _, uid, gid, ..]) = row.as_deref() {
            return Ok(Some((uid.parse()?, gid.parse()?)));
        }
    }
    bail!("root needs a user postgres or nobody to run Postgres as")
}

/// Writes `.sqlx`, or with `check` fails when it is not what the queries and migrations say.
///
/// # Errors
/// When Postgres or the build fails, or the check finds a difference.
pub fn prepare(check: bool) -> anyhow::Result<()> {
    setup::ensure_packages(&[setup::RUN])?;
    let postgres = ScratchPostgres::start()?;
    apply_migrations(&postgres.url)?;
    let committed = setup::root().join(".sqlx");
    let scratch = tempfile::tempdir()?;
    let out = if check { scratch.path().to_owned() } else { committed.clone() };
    if !check {
        let _ = fs::remove_dir_all(&committed);
    }
    fs::create_dir_all(&out)?;
    // the macros write their files while the crate is checked; touching it makes sure that it is
    let source = setup::root().join("store/src/lib.rs");
    fs::File::options().append(true).open(&source)?.set_modified(std::time::SystemTime::now())?;
    setup::run(
        Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["check", "--quiet", "--package", "sluice-store"])
            .current_dir(setup::root())
            .env("SQLX_OFFLINE", "false")
            .env("SQLX_OFFLINE_DIR", &out)
            .env("DATABASE_URL", &postgres.url),
    )?;
    let names = |folder: &Path| -> anyhow::Result<Vec<(String, Vec<u8>)>> {
        let mut files: Vec<(String, Vec<u8>)> = fs::read_dir(folder)
            .into_iter()
            .flatten()
            .map(|entry| -> anyhow::Result<_> {
                let entry = entry?;
                Ok((entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?))
            })
            .collect::<Result<_, _>>()?;
        files.sort();
        Ok(files)
    };
    let written = names(&out)?;
    ensure!(!written.is_empty(), "no query was described");
    if check {
        ensure!(written == names(&committed)?, ".sqlx is not true to the queries and migrations: run `cargo xtask db` and commit it");
    }
    println!("{} queries {}", written.len(), if check { "match .sqlx" } else { "written to .sqlx" });
    Ok(())
}

fn apply_migrations(url: &str) -> anyhow::Result<()> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(setup::root().join("migrations"))?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    files.sort();
    for file in files {
        setup::run(Command::new(binaries()?.join("psql")).args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f"]).arg(&file).arg(url))?;
    }
    Ok(())
}
