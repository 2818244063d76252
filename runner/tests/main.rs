//! Tests of the runner against real processes and a real (if small) HTTP server.

mod process;
