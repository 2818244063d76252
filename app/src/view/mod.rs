//! What the web pages show. Reads only; every function is bounded by what is visible.

pub mod experiments;
pub mod jobs;
pub mod models;
pub mod operations;
pub mod pipelines;
pub mod runs;
