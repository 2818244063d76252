//! Use cases: check → transaction (with audit row and notice) → commit. Called by `api`, `web` and the
//! binary, which know nothing of SQL. One module per aggregate; background work is a `tick` function.

pub mod artifact;
mod context;
pub mod deployment;
mod error;
pub mod fence;
pub mod model;
pub mod page;
pub mod promotion;
pub mod schema;

pub use context::{Actor, App, Settings};
pub use error::{Error, Result};
