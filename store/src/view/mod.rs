//! Read models of the web pages: each query returns what one page shows, bounded by what is visible.

pub mod experiments;
pub mod jobs;
pub mod models;
pub mod operations;
pub mod pipelines;
pub mod runs;
