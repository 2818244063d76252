//! Types and rules without I/O: ids, names, enums, state machines, wire messages, error codes.
//!
//! Time and randomness come in as arguments; the one place that asks the machine for them is [`time`].

pub mod evidence;
pub mod filter;
pub mod gate;
pub mod id;
pub mod key;
pub mod logged_model;
pub mod names;
pub mod plan;
pub mod problem;
pub mod registry;
pub mod runner;
pub mod state;
pub mod time;
pub mod tracking;
