//! SIGINT and SIGTERM as one stream.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The two signals that ask for a clean stop.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Begins to catch both.
    ///
    /// # Errors
    /// When the handlers cannot be installed.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for either; says which.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
