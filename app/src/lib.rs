//! Use cases: check → transaction (with audit row and notice) → commit. Called by `api`, `web` and the
//! binary, which know nothing of SQL. One module per aggregate; background work is a `tick` function.

pub mod artifact;
pub mod attempt;
pub mod change;
mod context;
pub mod deployment;
mod error;
pub mod experiment;
pub mod fence;
pub mod git;
pub mod job;
pub mod job_log;
pub mod job_output;
pub mod logged_model;
pub mod logging;
pub mod metric;
pub mod model;
pub mod page;
pub mod pipeline;
pub mod promotion;
pub mod registry;
pub mod repository;
pub mod run;
pub mod run_io;
pub mod run_search;
pub mod runner;
pub mod schema;
pub mod tracking;
pub mod trigger;

pub use context::{Actor, App, Settings};
pub use error::{Error, Result};

// read models of the web pages
pub mod view;
