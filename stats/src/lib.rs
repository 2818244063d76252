//! Pure numerics for benchmarks and gates: comparisons of two samples, intervals, adjusted p-values.
//!
//! The unit of replication is a process or a seed. Steps inside one run are not independent and never count.

pub mod bootstrap;
pub mod bucket;
pub mod describe;
mod error;
pub mod mann_whitney;
pub mod mcnemar;
pub mod multiplicity;
pub mod non_inferiority;
pub mod rng;
pub mod welch;

pub use error::{Error, Result};
