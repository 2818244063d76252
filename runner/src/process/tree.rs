//! Finding and ending processes through `/proc`, where no control group may be made.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fs, io,
    time::{Duration, Instant},
};

use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, waitpid};

use super::{JOB_MARKER, RUNNER_MARKER};

/// A process, told apart from a later one with the same number by its start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProcessId {
    pub pid: i32,
    pub started: u64,
}

/// One line of `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    id: ProcessId,
    state: char,
    parent: i32,
    group: i32,
    session: i32,
}

impl Stat {
    fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X' | 'x')
    }
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The name is in parentheses and may hold spaces and parentheses itself.
    let (before, after) = (text.get(..text.find('(')?)?, text.get(text.rfind(')')? + 1..)?);
    let mut fields = after.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let session = fields.next()?.parse().ok()?;
    // starttime is field 22; session was field 6.
    let started = fields.nth(15)?.parse().ok()?;
    Some(Stat { id: ProcessId { pid: before.trim().parse().ok()?, started }, state, parent, group, session })
}

fn read_stat(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn all() -> Vec<Stat> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| read_stat(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// Whether the environment that the process was started with holds `NAME=VALUE`. Unreadable counts as no.
fn has_marker(pid: i32, markers: &[(&str, &str)]) -> bool {
    let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return false };
    let entries: HashSet<&[u8]> = environment.split(|byte| *byte == 0).collect();
    markers.iter().all(|(name, value)| entries.contains(format!("{name}={value}").as_bytes()))
}

/// What makes a process one of a job.
#[derive(Debug, Clone, Default)]
pub struct Membership {
    pub runner_id: String,
    /// `None`: of any job of the runner.
    pub job: Option<String>,
    /// What the runner started itself and has not waited for. Each leads a session; the number of a session is not
    /// given to another process while the session has members.
    pub mains: Vec<i32>,
    /// What was seen to be a member earlier. A process that hid its environment and lost its parents since then is
    /// found by this alone.
    pub seen: HashSet<ProcessId>,
}

impl Membership {
    /// The living members.
    pub fn find(&self) -> Vec<ProcessId> {
        let own = std::process::id().cast_signed();
        let processes = all();
        let mut children: HashMap<i32, Vec<&Stat>> = HashMap::new();
        for process in &processes {
            children.entry(process.parent).or_default().push(process);
        }
        let mut markers = vec![(RUNNER_MARKER, self.runner_id.as_str())];
        markers.extend(self.job.as_deref().map(|job| (JOB_MARKER, job)));
        let mut found: HashSet<ProcessId> = HashSet::new();
        let mut queue: Vec<&Stat> = Vec::new();
        for process in &processes {
            let pid = process.id.pid;
            let is_root = pid != own
                && (self.mains.iter().any(|main| *main == process.session || *main == process.group)
                    || self.seen.contains(&process.id)
                    || (process.is_alive() && has_marker(pid, &markers)));
            if is_root && found.insert(process.id) {
                queue.push(process);
            }
        }
        while let Some(process) = queue.pop() {
            for child in children.get(&process.id.pid).into_iter().flatten() {
                if child.id.pid != own && found.insert(child.id) {
                    queue.push(child);
                }
            }
        }
        processes.iter().filter(|process| process.is_alive() && found.contains(&process.id)).map(|process| process.id).collect()
    }

    /// Kills the members, and those that they made meanwhile, until none is left.
    pub fn kill(&self, limit: Duration) -> io::Result<usize> {
        let started = Instant::now();
        let mut known = self.clone();
        let mut killed = HashSet::new();
        loop {
            let members = known.find();
            if members.is_empty() {
                return Ok(killed.len());
            }
            if started.elapsed() > limit {
                let pids: Vec<i32> = members.iter().map(|member| member.pid).collect();
                return Err(io::Error::new(io::ErrorKind::TimedOut, format!("processes {pids:?} did not end")));
            }
            for member in members {
                // A child that is orphaned by its parent's death is found next time by having been seen, or by its marker.
                known.seen.insert(member);
                if kill(member) {
                    killed.insert(member);
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Kills exactly this process: a handle is opened first, so that a reused number is never hit.
fn kill(process: ProcessId) -> bool {
    let Some(pid) = Pid::from_raw(process.pid) else { return false };
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
    read_stat(process.pid).is_some_and(|stat| stat.id == process) && pidfd_send_signal(&handle, Signal::KILL).is_ok()
}

/// Living children of this process that it did not start.
pub fn adopted(owned: &BTreeSet<i32>) -> Vec<ProcessId> {
    let own = std::process::id().cast_signed();
    let orphans = all().into_iter().filter(|process| process.parent == own && process.is_alive() && !owned.contains(&process.id.pid));
    orphans.map(|process| process.id).collect()
}

/// Collects dead orphans that became children of this process, except those in `owned`, which have a waiter.
pub fn reap_orphans(owned: &BTreeSet<i32>) {
    let own = std::process::id().cast_signed();
    for process in all() {
        if process.parent == own && !process.is_alive() && !owned.contains(&process.id.pid) {
            let _ = waitpid(Pid::from_raw(process.id.pid), WaitOptions::NOHANG);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_lines_with_odd_names_are_read() {
        let line = "123 (a b) (c) S 1 123 77 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1000 10";
        let stat = parse_stat(line).unwrap();
        assert_eq!(stat, Stat { id: ProcessId { pid: 123, started: 98765 }, state: 'S', parent: 1, group: 123, session: 77 });
        assert_eq!(parse_stat("garbage"), None);
        let own = read_stat(std::process::id().cast_signed()).unwrap();
        assert!(own.is_alive() && own.id.started > 0);
    }
}
