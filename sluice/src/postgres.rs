//! A private Postgres in the data folder: found, initialised, started, watched and stopped by `sluice up`.
//!
//! It listens only on a unix socket in a 0700 folder. Postgres refuses to run as root, so a root Sluice
//! runs it as the user `postgres` (or `nobody`) and gives that user its part of the data folder.

use std::{
    fs,
    os::unix::{
        fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal};
use tokio::process::Child;
use tokio_util::sync::CancellationToken;

/// User that Postgres runs as when Sluice is root.
#[derive(Debug, Clone, Copy)]
struct Owner {
    uid: u32,
    gid: u32,
}

/// A private Postgres.
#[derive(Debug)]
pub struct Postgres {
    bin: PathBuf,
    folder: PathBuf,
    socket: PathBuf,
    owner: Option<Owner>,
    child: Child,
}

impl Postgres {
    /// Initialises the folder when it is new, ends a Postgres that an unclean stop left behind, and starts.
    ///
    /// # Errors
    /// When no Postgres is installed, the folder cannot be used, or the start fails; the text says what to do.
    pub async fn start(data: &Path) -> anyhow::Result<Self> {
        let bin = find_binaries()?;
        let folder = data.join("postgres");
        let owner = owner()?;
        if let Some(owner) = owner {
            ensure_reachable(data, owner)?;
        }
        make_private(&folder, owner)?;
        let socket = socket_folder(&folder);
        make_private(&socket, owner)?;
        let cluster = folder.join("data");
        if !cluster.join("PG_VERSION").exists() {
            initdb(&bin, &folder, &cluster, owner).await?;
        }
        end_leftover(&cluster).await?;
        let child = spawn(&bin, &folder, &socket, owner)?;
        let mut postgres = Self { bin, folder, socket, owner, child };
        postgres.wait_until_ready().await?;
        postgres.ensure_database().await?;
        Ok(postgres)
    }

    /// URL of the database for the server.
    #[must_use]
    pub fn url(&self) -> String {
        let host: String = self.socket.to_string_lossy().bytes().map(escape_byte).collect();
        format!("postgres://sluice@localhost/sluice?host={host}")
    }

    /// Keeps Postgres running until `stop`, starting it again when it dies; then stops it cleanly.
    pub async fn supervise(mut self, stop: CancellationToken) {
        loop {
            tokio::select! {
                status = self.child.wait() => {
                    tracing::error!(?status, "Postgres ended unexpectedly; starting it again");
                    self.restart(&stop).await;
                    if stop.is_cancelled() {
                        break;
                    }
                }
                () = stop.cancelled() => break,
            }
        }
        self.stop().await;
    }

    async fn restart(&mut self, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            // after a kill -9 its backends may hold the shared memory for a moment
            match spawn(&self.bin, &self.folder, &self.socket, self.owner) {
                Ok(child) => {
                    self.child = child;
                    match self.wait_until_ready().await {
                        Ok(()) => return tracing::info!("Postgres is back"),
                        Err(error) => tracing::warn!(error = format!("{error:#}"), "Postgres did not start; trying again"),
                    }
                }
                Err(error) => tracing::warn!(error = format!("{error:#}"), "cannot start Postgres; trying again"),
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    async fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("Postgres ended with {status} while starting; its log ends with:\n{}", log_tail(&self.folder));
            }
            if self.client("pg_isready").arg("-q").status().await?.success() {
                return Ok(());
            }
            ensure!(
                tokio::time::Instant::now() < deadline,
                "Postgres did not become ready within 60 s; see {}",
                log_path(&self.folder).display()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn ensure_database(&self) -> anyhow::Result<()> {
        let exists =
            self.client("psql").args(["-XAtqc", "SELECT 1 FROM pg_database WHERE datname = 'sluice'", "postgres"]).output().await?;
        if exists.stdout.trim_ascii() != b"1" {
            let made = self.client("createdb").arg("sluice").output().await?;
            ensure!(made.status.success(), "createdb failed: {}", String::from_utf8_lossy(&made.stderr).trim());
        }
        Ok(())
    }

    fn client(&self, program: &str) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(self.bin.join(program));
        command.arg("-h").arg(&self.socket).args(["-U", "sluice"]).env_clear().stdin(Stdio::null());
        command
    }

    async fn stop(&mut self) {
        // SIGINT is Postgres's fast shutdown: it ends sessions and writes a checkpoint
        if let Some(pid) = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
            let _ = rustix::process::kill_process(pid, Signal::INT);
        }
        if tokio::time::timeout(Duration::from_secs(30), self.child.wait()).await.is_err() {
            tracing::warn!("Postgres did not stop within 30 s; killing it (it recovers at the next start)");
            let _ = self.child.kill().await;
        }
    }
}

fn escape_byte(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.') { char::from(byte).to_string() } else { format!("%{byte:02X}") }
}

/// Finds the folder with `postgres` and `initdb`: `PATH`, Debian's, Homebrew's; the newest version wins.
fn find_binaries() -> anyhow::Result<PathBuf> {
    let mut versioned: Vec<(u32, PathBuf)> = Vec::new();
    for root in ["/usr/lib/postgresql", "/opt/homebrew/opt", "/usr/local/opt"] {
        for entry in fs::read_dir(root).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let version = name.strip_prefix("postgresql@").unwrap_or(&name).parse().unwrap_or(0);
            let bin = entry.path().join("bin");
            if version > 0 && bin.join("initdb").exists() && bin.join("postgres").exists() {
                versioned.push((version, bin));
            }
        }
    }
    versioned.sort();
    if let Some((_, bin)) = versioned.pop() {
        return Ok(bin);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    for folder in std::env::split_paths(&path) {
        let initdb = fs::canonicalize(folder.join("initdb")).unwrap_or_default();
        if let Some(bin) = initdb.parent().filter(|bin| bin.join("postgres").exists()) {
            return Ok(bin.to_owned());
        }
    }
    bail!("no Postgres found on PATH or in /usr/lib/postgresql: install it (Debian: apt-get install postgresql) or set DATABASE_URL")
}

fn owner() -> anyhow::Result<Option<Owner>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let passwd = fs::read_to_string("/etc/passwd").context("reading /etc/passwd")?;
    for name in ["postgres", "nobody"] {
        let row = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|row| row.first() == Some(&name));
        if let Some([_, _, uid, gid, ..]) = row.as_deref() {
            return Ok(Some(Owner { uid: uid.parse()?, gid: gid.parse()? }));
        }
    }
    bail!(
        "Postgres refuses to run as root and there is neither a user postgres nor nobody; start Sluice as an ordinary user or set DATABASE_URL"
    )
}

/// Checks that the other user may pass through every parent of the data folder.
fn ensure_reachable(data: &Path, owner: Owner) -> anyhow::Result<()> {
    for folder in data.ancestors().skip(1) {
        let meta = fs::metadata(folder).with_context(|| format!("reading {}", folder.display()))?;
        let mode = meta.mode();
        let may_pass = if meta.uid() == owner.uid {
            mode & 0o100
        } else if meta.gid() == owner.gid {
            mode & 0o010
        } else {
            mode & 0o001
        };
        ensure!(
            may_pass != 0,
            "Postgres cannot run as root, and its user may not enter {}: choose a --data folder that others can reach, e.g. under /var/lib, or set DATABASE_URL",
            folder.display()
        );
    }
    let mode = fs::metadata(data)?.permissions().mode();
    if mode & 0o001 == 0 {
        fs::set_permissions(data, fs::Permissions::from_mode(mode | 0o011))?;
    }
    Ok(())
}

fn make_private(folder: &Path, owner: Option<Owner>) -> anyhow::Result<()> {
    if !folder.exists() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    if let Some(owner) = owner {
        std::os::unix::fs::chown(folder, Some(owner.uid), Some(owner.gid))
            .with_context(|| format!("giving {} to Postgres's user", folder.display()))?;
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    Ok(())
}

/// A unix socket's path may have 107 bytes at most; deep data folders get theirs under the temporary folder.
fn socket_folder(folder: &Path) -> PathBuf {
    let beside = folder.join("socket");
    if beside.as_os_str().len() <= 85 {
        return beside;
    }
    use sha2::Digest as _;
    let digest = sha2::Sha256::digest(folder.as_os_str().as_encoded_bytes());
    let name: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    std::env::temp_dir().join(format!("sluice-{name}"))
}

fn log_path(folder: &Path) -> PathBuf {
    folder.join("postgres.log")
}

fn log_tail(folder: &Path) -> String {
    let text = fs::read_to_string(log_path(folder)).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

fn as_owner(program: &Path, folder: &Path, owner: Option<Owner>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("LC_ALL", "C.UTF-8").env("PATH", "/usr/bin:/bin").current_dir(folder).stdin(Stdio::null());
    // a terminal's Ctrl-C goes to the whole foreground group: Postgres must wait for the server to stop first
    command.process_group(0);
    if let Some(owner) = owner {
        command.gid(owner.gid).uid(owner.uid);
    }
    command
}

async fn initdb(bin: &Path, folder: &Path, cluster: &Path, owner: Option<Owner>) -> anyhow::Result<()> {
    // built beside and renamed, so that an interrupted initdb is not mistaken for a database
    let fresh = folder.join("data.new");
    if fresh.exists() {
        fs::remove_dir_all(&fresh)?;
    }
    let mut command = as_owner(&bin.join("initdb"), folder, owner);
    command.arg("-D").arg(&fresh).args(["-U", "sluice", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-instructions"]);
    let output = tokio::process::Command::from(command).output().await.context("running initdb")?;
    ensure!(output.status.success(), "initdb failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    fs::rename(&fresh, cluster)?;
    Ok(())
}

/// Ends the Postgres of an earlier Sluice that could not stop it (kill -9).
async fn end_leftover(cluster: &Path) -> anyhow::Result<()> {
    let Ok(text) = fs::read_to_string(cluster.join("postmaster.pid")) else { return Ok(()) };
    let Some(pid) = text.lines().next().and_then(|line| line.trim().parse().ok()).and_then(Pid::from_raw) else { return Ok(()) };
    let is_ours = || {
        fs::read_link(format!("/proc/{}/cwd", pid.as_raw_nonzero())).is_ok_and(|cwd| cwd == cluster)
            || fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero()))
                .is_ok_and(|line| line.windows(cluster.as_os_str().len()).any(|part| part == cluster.as_os_str().as_encoded_bytes()))
    };
    if !is_ours() {
        return Ok(());
    }
    tracing::info!(pid = %pid.as_raw_nonzero(), "stopping the Postgres that an earlier run left");
    let _ = rustix::process::kill_process(pid, Signal::INT);
    for _ in 0..600 {
        if !is_ours() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bail!("another Sluice may be using {}: its Postgres (pid {}) does not stop", cluster.display(), pid.as_raw_nonzero())
}

fn spawn(bin: &Path, folder: &Path, socket: &Path, owner: Option<Owner>) -> anyhow::Result<Child> {
    let log = fs::OpenOptions::new().create(true).append(true).open(log_path(folder))?;
    let mut command = as_owner(&bin.join("postgres"), folder, owner);
    command.arg("-D").arg(folder.join("data"));
    command.arg("-k").arg(socket);
    for setting in ["listen_addresses=", "max_connections=100", "shared_buffers=128MB", "unix_socket_permissions=0700", "jit=off"] {
        command.args(["-c", setting]);
    }
    command.stdout(log.try_clone()?).stderr(log);
    tokio::process::Command::from(command).spawn().context("starting Postgres")
}
