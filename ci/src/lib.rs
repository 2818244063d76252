//! Pure logic of continuous integration: pipeline file → plan, gate file → policy, evidence → verdict.
//! No I/O, no clock; randomness comes in as a seed.

mod branches;
mod check;
mod file_error;
pub mod gate;
pub mod gate_file;
mod keys;
pub mod pipeline;
mod reader;
pub mod schema;
mod yaml;

pub use branches::BranchPattern;
pub use check::{CheckReport, check_files};
pub use file_error::FileError;
pub use pipeline::{PIPELINE_FILE, Pipeline, plan};
