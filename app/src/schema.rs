//! The published JSON Schemas of pipeline and gate files.

pub use sluice_ci::schema::{GATE, PIPELINE};
