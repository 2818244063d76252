//! The set of processes that belong to one job.

use std::{
    collections::BTreeSet,
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use rustix::process::{Pid, set_child_subreaper};

use super::{
    cgroup::{self, Cgroup},
    tree::{self, Membership},
};

/// How long the kernel may take to end killed processes (they may sit in uninterruptible I/O).
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// How this runner keeps hold of processes.
#[derive(Debug)]
pub struct Containment {
    runner_id: String,
    /// Group below which each job gets its own; `None`: through `/proc`.
    cgroup_root: Option<PathBuf>,
    adopts: bool,
    scopes: AtomicUsize,
}

/// Children of this process that have a waiter. Locked while a child is started, so that no reaping comes between.
static OWNED: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

pub(super) fn owned() -> MutexGuard<'static, BTreeSet<i32>> {
    OWNED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Containment {
    /// Takes hold: finds out which way works here and ends strays that an earlier incarnation of this runner left.
    ///
    /// `exclusive` says that this process starts no children but those of jobs. Then an orphan that carries no marker
    /// can only be a job's; while a single job runs it is ended with it.
    ///
    /// # Errors
    /// When this process cannot become the reaper of orphans.
    pub fn new(runner_id: &str, allow_cgroups: bool, exclusive: bool) -> io::Result<Arc<Self>> {
        // Orphans of jobs come to us instead of to init: they stay findable, and their remains are collected.
        set_child_subreaper(Some(Pid::INIT))?;
        let cgroup_root = if allow_cgroups { cgroup::find_root(runner_id) } else { None };
        let mut strays = cgroup_root.as_deref().map_or(0, cgroup::clear_root);
        let membership = Membership { runner_id: runner_id.to_owned(), ..Membership::default() };
        match membership.kill(KILL_LIMIT) {
            Ok(killed) => strays += killed,
            Err(error) => tracing::warn!(%error, "strays of an earlier runner could not be ended"),
        }
        if strays > 0 {
            tracing::warn!(strays, "ended processes that an earlier incarnation of this runner left behind");
        }
        let way = cgroup_root.as_ref().map_or_else(|| "process tree".to_owned(), |root| format!("control group {}", root.display()));
        tracing::debug!(%way, "jobs are contained");
        Ok(Arc::new(Self { runner_id: runner_id.to_owned(), cgroup_root, adopts: exclusive, scopes: AtomicUsize::new(0) }))
    }

    /// The value of [`super::RUNNER_MARKER`].
    #[must_use]
    pub fn runner_id(&self) -> &str {
        &self.runner_id
    }

    /// Whether jobs get control groups.
    #[must_use]
    pub fn uses_cgroups(&self) -> bool {
        self.cgroup_root.is_some()
    }

    /// Opens the scope of a job, named `JOB.ATTEMPT`.
    ///
    /// # Errors
    /// When its control group cannot be made.
    pub fn scope(self: &Arc<Self>, job: &str) -> io::Result<Scope> {
        let cgroup = self.cgroup_root.as_deref().map(|root| Cgroup::create(root, job)).transpose()?;
        let membership = Membership { runner_id: self.runner_id.clone(), job: Some(job.to_owned()), ..Membership::default() };
        self.scopes.fetch_add(1, Ordering::SeqCst);
        Ok(Scope { containment: Arc::clone(self), cgroup, membership: Mutex::new(membership) })
    }
}

impl Drop for Containment {
    fn drop(&mut self) {
        if let Some(root) = &self.cgroup_root {
            cgroup::clear_root(root);
            // Fails while groups are left, and then the next incarnation clears them.
            let _ = std::fs::remove_dir(root);
        }
    }
}

/// The processes of one job.
#[derive(Debug)]
pub struct Scope {
    pub(super) containment: Arc<Containment>,
    pub(super) cgroup: Option<Cgroup>,
    membership: Mutex<Membership>,
}

impl Scope {
    fn membership(&self) -> MutexGuard<'_, Membership> {
        self.membership.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn started(&self, pid: i32) {
        self.membership().mains.push(pid);
    }

    pub(super) fn waited(&self, pid: i32) {
        self.membership().mains.retain(|main| *main != pid);
        owned().remove(&pid);
    }

    /// Looks who is there, and remembers it.
    pub fn observe(&self) {
        if self.cgroup.is_none() {
            let snapshot = self.membership().clone();
            let found = snapshot.find();
            self.membership().seen = found.into_iter().collect();
        }
        tree::reap_orphans(&owned());
    }

    /// Ids of the living processes of the job.
    ///
    /// # Errors
    /// When the control group cannot be read.
    pub fn members(&self) -> io::Result<Vec<i32>> {
        match &self.cgroup {
            Some(cgroup) => cgroup.members(),
            None => {
                let snapshot = self.membership().clone();
                Ok(snapshot.find().into_iter().map(|process| process.pid).collect())
            }
        }
    }

    /// Kills every process of the job and returns when none is left. Takes time; not for async code.
    ///
    /// # Errors
    /// When processes are left after ten seconds.
    pub fn kill_all_blocking(&self) -> io::Result<()> {
        let ended = match &self.cgroup {
            Some(cgroup) => cgroup.kill(KILL_LIMIT),
            None => {
                let mut snapshot = self.membership().clone();
                if self.containment.adopts && self.containment.scopes.load(Ordering::SeqCst) == 1 {
                    snapshot.seen.extend(tree::adopted(&owned()));
                }
                let ended = snapshot.kill(KILL_LIMIT).map(|_| ());
                self.membership().seen.clear();
                ended
            }
        };
        tree::reap_orphans(&owned());
        ended
    }

    /// [`Self::kill_all_blocking`] away from the async threads.
    ///
    /// # Errors
    /// When processes are left after ten seconds.
    pub async fn kill_all(self: &Arc<Self>) -> io::Result<()> {
        let scope = Arc::clone(self);
        tokio::task::spawn_blocking(move || scope.kill_all_blocking()).await.map_err(io::Error::other)?
    }

    /// How often the kernel killed a process of the job for want of memory.
    #[must_use]
    pub fn oom_kills(&self) -> u64 {
        self.cgroup.as_ref().map_or(0, Cgroup::oom_kills)
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if let Err(error) = self.kill_all_blocking() {
            tracing::error!(%error, "processes of a job could not be ended");
        }
        if let Some(cgroup) = &self.cgroup {
            cgroup.remove();
        }
        self.containment.scopes.fetch_sub(1, Ordering::SeqCst);
    }
}
