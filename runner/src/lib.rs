//! The worker agent: leases jobs over HTTP, runs them under full control, and reports what happened.
//!
//! [`run`] registers and claims; each claimed job goes through `job`, step by step, with a `context::Context`. All
//! processes are started and ended by [`process`].

mod agent;
mod checkout;
mod config;
mod context;
mod diagnosis;
mod environment;
mod files;
mod halt;
mod inputs;
mod job;
pub mod log;
mod outputs;
pub mod process;
mod steps;
pub mod stop;
mod work;
mod workspace;

pub use agent::run;
pub use config::{HostEnvironment, RunnerConfig};
