//! Starting the processes of a job, and ending all of them.
//!
//! Launchers such as torchrun put their workers into sessions of their own, so neither the process group nor the
//! session of what was started reaches everything. Two ways are used: a control group of version 2, whose
//! `cgroup.kill` reaches every member at once; or, where no such group may be made, [`tree`]: this process becomes the
//! reaper of orphans and looks through `/proc` for descendants and for the markers in the environment.

mod cgroup;
mod command;
mod scope;
mod tree;

pub use command::{Command, Ended};
pub use scope::{Containment, Scope};

/// Marker in the environment of every process of a job: the id of the runner that started it.
pub const RUNNER_MARKER: &str = "SLUICE_RUNNER_ID";
/// Marker in the environment of every process of a job: `JOB.ATTEMPT`.
pub const JOB_MARKER: &str = "SLUICE_JOB";
