//! The log of a job: cut into numbered chunks, kept on disk until the server has them.

mod chunker;
mod shipper;

pub use chunker::{Chunker, MAX_CHUNK_BYTES};
pub use shipper::{LogWriter, Shipper};
