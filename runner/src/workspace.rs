//! The folders of one attempt.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// `WORK_DIR/jobs/JOB.ATTEMPT/…`
#[derive(Debug, Clone)]
pub struct Folders {
    pub root: PathBuf,
    /// The checkout; where steps run.
    pub repo: PathBuf,
    /// Outputs of needed jobs: `JOB/OUTPUT/PATH`.
    pub inputs: PathBuf,
    /// The same of the champion's pipeline.
    pub champion: PathBuf,
    pub tmp: PathBuf,
    pub home: PathBuf,
}

impl Folders {
    /// Makes them, empty.
    pub fn create(work_dir: &Path, job: &str) -> io::Result<Self> {
        let root = jobs_dir(work_dir).join(job);
        remove(&root)?;
        let folders = Self {
            repo: root.join("repo"),
            inputs: root.join("inputs"),
            champion: root.join("champion"),
            tmp: root.join("tmp"),
            home: root.join("home"),
            root,
        };
        for folder in [&folders.repo, &folders.inputs, &folders.champion, &folders.tmp, &folders.home] {
            fs::create_dir_all(folder)?;
        }
        // The token of the attempt and the code of the repository are nobody else's business.
        fs::set_permissions(&folders.root, fs::Permissions::from_mode(0o700))?;
        Ok(folders)
    }

    /// Where the log waits for the server.
    pub fn log_spool(&self) -> PathBuf {
        self.root.join("log.spool")
    }

    pub fn remove(&self) {
        if let Err(error) = remove(&self.root) {
            tracing::warn!(folder = %self.root.display(), %error, "workspace left behind");
        }
    }
}

/// Where workspaces are.
pub fn jobs_dir(work_dir: &Path) -> PathBuf {
    work_dir.join("jobs")
}

/// Removes a folder if it is there, also one whose owner took away his own right to write into parts of it.
pub fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            make_writable(folder)?;
            fs::remove_dir_all(folder)
        }
        other => other,
    }
}

fn make_writable(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            make_writable(&entry.path())?;
        }
    }
    Ok(())
}
