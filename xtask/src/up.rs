//! A `sluice up` of our own, and a clone to push to it.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};

use crate::setup;

/// `sluice up` as a child.
#[derive(Debug)]
pub struct Server {
    pub child: Child,
    pub url: String,
}

impl Server {
    /// Starts it with the shared cache; returns once it answers.
    ///
    /// # Errors
    /// When it does not answer within 60 s; the text holds its log.
    pub fn start(sluice: &Path, data: &Path, listen: &str) -> anyhow::Result<Self> {
        let url_file = data.join("url");
        let log_path = data.join("sluice.log");
        let log = fs::File::create(&log_path)?;
        let mut child = Command::new(sluice)
            .args(["up", "--listen", listen, "--data"])
            .arg(data)
            .arg("--cache")
            .arg(setup::cache())
            .arg("--url-file")
            .arg(&url_file)
            .env_remove("DATABASE_URL")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("starting sluice up")?;
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Ok(url) = fs::read_to_string(&url_file) {
                return Ok(Self { child, url });
            }
            if let Some(status) = child.try_wait()? {
                bail!("sluice up ended with {status}:\n{}", fs::read_to_string(&log_path).unwrap_or_default());
            }
            ensure!(Instant::now() < deadline, "sluice up did not answer within 60 s; see {}", log_path.display());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Stops it with SIGTERM and waits for its end.
    ///
    /// # Errors
    /// When it does not end cleanly.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status()?;
        let status = self.child.wait()?;
        ensure!(status.success(), "sluice up ended with {status}");
        Ok(())
    }
}

/// A working folder with the remote `origin`.
#[derive(Debug)]
pub struct Clone<'a> {
    pub folder: &'a Path,
}

impl<'a> Clone<'a> {
    /// Makes the folder a repository with the branch `main` and the remote.
    ///
    /// # Errors
    /// When git fails.
    pub fn init(folder: &'a Path, url: &str) -> anyhow::Result<Self> {
        let clone = Self { folder };
        clone.git(&["init", "--quiet", "--initial-branch", "main"])?;
        clone.git(&["remote", "add", "origin", url])?;
        Ok(clone)
    }

    /// Commits everything in the folder.
    ///
    /// # Errors
    /// When git fails.
    pub fn commit(&self, message: &str) -> anyhow::Result<()> {
        self.git(&["add", "--all"])?;
        self.git(&["commit", "--quiet", "-m", message]).map(drop)
    }

    /// Pushes `main`; gives what git and the server said.
    ///
    /// # Errors
    /// When git fails.
    pub fn push(&self) -> anyhow::Result<String> {
        self.git(&["push", "--quiet", "origin", "main"])
    }

    fn git(&self, args: &[&str]) -> anyhow::Result<String> {
        let output = Command::new("git")
            .args(["-c", "user.name=Sluice demo", "-c", "user.email=demo@sluice.example", "-c", "commit.gpgsign=false"])
            .args(args)
            .current_dir(self.folder)
            .env("GIT_TERMINAL_PROMPT", "0")
            .stdin(Stdio::null())
            .output()
            .context("running git")?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "git {} failed:\n{}", args.join(" "), text.trim());
        Ok(text)
    }
}
