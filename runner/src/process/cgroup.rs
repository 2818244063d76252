//! Control groups, version 2: membership is inherited and cannot be left without rights, so `cgroup.kill` is exact.

use std::{
    fs, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// The group of one job.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Makes (or takes over) the group `name` below `root`, which is made again if it was tidied away.
    pub fn create(root: &Path, name: &str) -> io::Result<Self> {
        let path = root.join(name);
        fs::create_dir_all(root)?;
        // Memory is accounted per job where we may ask for that; without it, being out of memory is not recognised.
        let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
        fs::create_dir_all(&path)?;
        Ok(Self { path })
    }

    /// The file to which a process writes `0` to join. Opened by the parent: the child must not allocate.
    pub fn join_file(&self) -> io::Result<OwnedFd> {
        Ok(fs::OpenOptions::new().write(true).open(self.path.join("cgroup.procs"))?.into())
    }

    /// Ids of the processes in the group.
    pub fn members(&self) -> io::Result<Vec<i32>> {
        Ok(fs::read_to_string(self.path.join("cgroup.procs"))?.lines().filter_map(|line| line.trim().parse().ok()).collect())
    }

    /// Kills every member and waits until the kernel says that the group is empty.
    pub fn kill(&self, limit: Duration) -> io::Result<()> {
        let started = Instant::now();
        while self.is_populated()? {
            fs::write(self.path.join("cgroup.kill"), "1")?;
            if started.elapsed() > limit {
                return Err(io::Error::new(io::ErrorKind::TimedOut, format!("processes {:?} did not end", self.members()?)));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// How often the kernel killed a member for want of memory. 0 where memory is not accounted.
    pub fn oom_kills(&self) -> u64 {
        let text = fs::read_to_string(self.path.join("memory.events")).unwrap_or_default();
        field(&text, "oom_kill").unwrap_or(0)
    }

    /// Removes the (empty) group and groups that the job made below it.
    pub fn remove(&self) {
        remove_tree(&self.path);
    }

    fn is_populated(&self) -> io::Result<bool> {
        Ok(field(&fs::read_to_string(self.path.join("cgroup.events"))?, "populated") == Some(1))
    }
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

fn remove_tree(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    if let Err(error) = fs::remove_dir(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::debug!(path = %path.display(), %error, "control group left behind");
    }
}

/// Finds or makes the group below which this runner may make groups for jobs. `None`: none may be made here.
pub fn find_root(runner_id: &str) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default().to_owned();
    let mut candidates = Vec::new();
    for mount in mounts_of_v2(&mounts) {
        // Below our own group first: that is what a delegating service manager allows.
        candidates.push(mount.join(&own));
        candidates.push(mount);
    }
    candidates.dedup();
    candidates.into_iter().find_map(|parent| usable_root(&parent, runner_id))
}

fn usable_root(parent: &Path, runner_id: &str) -> Option<PathBuf> {
    let root = parent.join(format!("sluice-{runner_id}"));
    match fs::create_dir(&root) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return None,
        _ => {}
    }
    let probe = Cgroup::create(&root, "probe").ok()?;
    // Kernels before 5.14 have no cgroup.kill; without rights on the parent, processes cannot be moved in.
    let usable = root.join("probe/cgroup.kill").exists() && can_join(&probe);
    let _ = probe.kill(Duration::from_secs(1));
    probe.remove();
    if usable {
        tidy(parent)
    } else {
        remove_tree(&root)
    }
    usable.then_some(root)
}

/// Removes what runners that were killed and never came back left here. Only groups that are empty can be removed; a
/// living runner makes its own again when it needs it.
fn tidy(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("sluice-") {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Whether a process may be moved into the group: tried with one that ends at once.
fn can_join(group: &Cgroup) -> bool {
    let procs = group.path.join("cgroup.procs");
    let _no_reaping = super::scope::owned();
    let status = std::process::Command::new("/bin/sh")
        .args(["-c", "echo $$ > \"$0\""])
        .arg(procs)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

fn mounts_of_v2(mounts: &str) -> Vec<PathBuf> {
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    fields.filter(|fields| fields.get(2) == Some(&"cgroup2")).filter_map(|fields| fields.get(1).map(PathBuf::from)).collect()
}

/// Kills what is left in the groups of an earlier incarnation, and removes them. Answers how many processes there were.
pub fn clear_root(root: &Path) -> usize {
    let mut killed = 0;
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let group = Cgroup { path: entry.path() };
            killed += group.members().map_or(0, |members| members.len());
            if let Err(error) = group.kill(Duration::from_secs(10)) {
                tracing::warn!(group = %entry.path().display(), %error, "strays of an earlier runner could not be ended");
            }
            group.remove();
        }
    }
    killed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_layouts_of_mounts_are_found() {
        let hybrid =
            "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(mounts_of_v2(hybrid), [PathBuf::from("/sys/fs/cgroup/unified")]);
        assert_eq!(mounts_of_v2("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"), [PathBuf::from("/sys/fs/cgroup")]);
        assert!(mounts_of_v2("proc /proc proc rw 0 0\n").is_empty());
    }

    #[test]
    fn events_are_read_by_name() {
        let events = "low 0\noom 1\noom_kill 2\noom_group_kill 0\n";
        assert_eq!(field(events, "oom_kill"), Some(2));
        assert_eq!(field(events, "max"), None);
    }
}
