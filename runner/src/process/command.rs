//! Running one command inside a scope.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io,
    os::{fd::OwnedFd, unix::process::CommandExt as _, unix::process::ExitStatusExt as _},
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group, setsid};
use tokio::{
    io::AsyncReadExt as _,
    net::unix::pipe::Receiver,
    time::{Instant, MissedTickBehavior, interval, sleep_until, timeout},
};

use super::{JOB_MARKER, RUNNER_MARKER, Scope, scope::owned};
use crate::{
    log::LogWriter,
    stop::{Stop, StopReason},
};

/// How often the members of a scope are looked up while a command runs.
const OBSERVE_EVERY: Duration = Duration::from_secs(2);
/// How often it is checked whether a terminated job has ended.
const POLL_EVERY: Duration = Duration::from_millis(50);
/// How long output may still come after every process of the job is gone.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// A program, its arguments and its whole environment: nothing is inherited.
#[derive(Debug, Clone)]
pub struct Command {
    pub program: OsString,
    pub args: Vec<OsString>,
    pub cwd: PathBuf,
    pub env: BTreeMap<String, OsString>,
}

/// How a command came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// By itself. `oom`: the kernel killed a process of the job for want of memory meanwhile.
    Exited { status: ExitStatus, oom: bool },
    /// Because it was told to.
    Stopped(StopReason),
}

impl Ended {
    /// The exit code as a shell would give it.
    #[must_use]
    pub fn code(self) -> Option<i32> {
        match self {
            Self::Exited { status, .. } => status.code().or_else(|| status.signal().map(|signal| 128 + signal)),
            Self::Stopped(_) => None,
        }
    }
}

impl Command {
    /// Runs to the end, writing its output to the log as it arrives (both streams share one pipe, which keeps their order).
    /// When this returns, no process of the scope is left. A stop sends SIGTERM once to the process group of the
    /// command, gives every process of the job `grace` to end, and then kills what is left.
    ///
    /// # Errors
    /// When the program cannot be started, or processes survive SIGKILL.
    pub async fn run(&self, scope: &Arc<Scope>, stop: &mut Stop, grace: Duration, log: &LogWriter) -> io::Result<Ended> {
        if let Some(reason) = stop.reason() {
            return Ok(Ended::Stopped(reason));
        }
        let oom_before = scope.oom_kills();
        let (reader, writer) = io::pipe()?;
        let mut reader = Receiver::from_owned_fd(OwnedFd::from(reader))?;
        let mut child = self.spawn(scope, writer.into())?;
        let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));

        let mut buffer = vec![0; 64 * 1024];
        let mut open = true;
        let mut observe = interval(OBSERVE_EVERY);
        observe.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Set when the job was told to stop: the reason, and when to kill.
        let mut stopping: Option<(StopReason, Instant)> = None;
        let mut status = None;
        let mut stale = stop.clone();
        let result = loop {
            let deadline = stopping.map_or_else(far_away, |(_, deadline)| deadline);
            tokio::select! {
                read = reader.read(&mut buffer), if open => match read {
                    Ok(0) | Err(_) => open = false,
                    Ok(length) => log.write(&buffer[..length]).await,
                },
                ended = child.wait(), if status.is_none() => {
                    match ended {
                        Ok(ended) => status = Some(ended),
                        Err(error) => break Err(error),
                    }
                    if stopping.is_none() {
                        break Ok(());
                    }
                }
                reason = stop.wait(), if stopping.is_none() => {
                    if reason == StopReason::Stale {
                        // Another attempt may be running already: no grace.
                        stopping = Some((reason, Instant::now()));
                        break Ok(());
                    }
                    if let Some(pid) = pid
                        && let Err(error) = kill_process_group(pid, Signal::TERM)
                    {
                        tracing::debug!(%error, "process group to terminate is gone");
                    }
                    stopping = Some((reason, Instant::now() + grace));
                }
                () = sleep_until(deadline), if stopping.is_some() => break Ok(()),
                () = stale.wait_for(StopReason::Stale), if stopping.is_some() => break Ok(()),
                // The launcher may leave before its workers have written their checkpoints.
                () = tokio::time::sleep(POLL_EVERY), if stopping.is_some() && status.is_some() => {
                    if scope.members().is_ok_and(|members| members.is_empty()) {
                        break Ok(());
                    }
                }
                _ = observe.tick() => {
                    let scope = Arc::clone(scope);
                    let _ = tokio::task::spawn_blocking(move || scope.observe()).await;
                }
            }
        };
        // Also after an orderly end: nothing that the command left in the background survives it.
        let killed = scope.kill_all().await;
        if status.is_none() {
            status = timeout(DRAIN_LIMIT, child.wait()).await.ok().and_then(Result::ok);
        }
        if let Some(pid) = pid {
            scope.waited(pid.as_raw_nonzero().get());
        }
        let drained = timeout(DRAIN_LIMIT, async {
            while open {
                match reader.read(&mut buffer).await {
                    Ok(0) | Err(_) => open = false,
                    Ok(length) => log.write(&buffer[..length]).await,
                }
            }
        });
        if drained.await.is_err() {
            tracing::debug!("the output pipe is still held by a process outside of the job");
        }
        result?;
        killed?;
        match (stopping, status) {
            (Some((reason, _)), _) => Ok(Ended::Stopped(reason)),
            (None, Some(status)) => Ok(Ended::Exited { status, oom: scope.oom_kills() > oom_before }),
            (None, None) => Err(io::Error::other("the command ended without a status")),
        }
    }

    #[allow(unsafe_code, reason = "only code between fork and exec can start a session and join a group before the program runs")]
    fn spawn(&self, scope: &Scope, output: OwnedFd) -> io::Result<tokio::process::Child> {
        let mut command = std::process::Command::new(&self.program);
        command.args(&self.args).current_dir(&self.cwd).env_clear().envs(&self.env);
        let membership = [(RUNNER_MARKER, scope.containment.runner_id())];
        command.envs(membership).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        debug_assert!(self.env.contains_key(JOB_MARKER), "commands of jobs carry the marker of their job");
        let join = scope.cgroup.as_ref().map(super::cgroup::Cgroup::join_file).transpose()?;
        let prepare = move || {
            setsid()?;
            if let Some(file) = &join {
                rustix::io::write(file, b"0")?;
            }
            Ok(())
        };
        // SAFETY: the closure runs in the forked child and makes two system calls on what it owns: no allocation, no lock.
        unsafe { command.pre_exec(prepare) };
        let mut command = tokio::process::Command::from(command);
        // Held until the child is registered, so that it is not taken for an orphan.
        let mut owned = owned();
        let child = command.spawn().map_err(|error| {
            let program = self.program.to_string_lossy();
            io::Error::new(error.kind(), format!("{program} cannot be started in {}: {error}", self.cwd.display()))
        })?;
        if let Some(pid) = child.id() {
            owned.insert(pid.cast_signed());
            drop(owned);
            scope.started(pid.cast_signed());
        }
        Ok(child)
    }
}

fn far_away() -> Instant {
    Instant::now() + Duration::from_secs(86_400)
}
