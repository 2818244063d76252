//! Telling a job to stop.

use std::sync::Arc;

use tokio::sync::watch;

/// Why a job must stop, weakest first: a stronger reason replaces a weaker one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopReason {
    /// Its time is up.
    Timeout,
    /// A user cancelled it.
    Cancelled,
    /// The runner goes down; another attempt shall run elsewhere.
    Shutdown,
    /// The lease is over: nothing more may be written.
    Stale,
}

/// Both ends of the request to stop one job. Clones share it.
#[derive(Debug, Clone)]
pub struct Stop {
    sender: Arc<watch::Sender<Option<StopReason>>>,
    receiver: watch::Receiver<Option<StopReason>>,
}

impl Default for Stop {
    fn default() -> Self {
        let (sender, receiver) = watch::channel(None);
        Self { sender: Arc::new(sender), receiver }
    }
}

impl Stop {
    /// Asks the job to stop.
    pub fn request(&self, reason: StopReason) {
        self.sender.send_if_modified(|current| {
            let stronger = current.is_none_or(|current| current < reason);
            if stronger {
                *current = Some(reason);
            }
            stronger
        });
    }

    /// The reason, when the job was asked to stop.
    #[must_use]
    pub fn reason(&self) -> Option<StopReason> {
        *self.receiver.borrow()
    }

    /// Waits until the job is asked to stop.
    pub async fn wait(&mut self) -> StopReason {
        // `self` holds a sender, so the channel is never closed, and there is a reason now.
        let reason = self.receiver.wait_for(Option::is_some).await.map_or(None, |reason| *reason);
        reason.unwrap_or(StopReason::Shutdown)
    }

    /// Waits for this reason or a stronger one.
    pub async fn wait_for(&mut self, least: StopReason) {
        let _ = self.receiver.wait_for(|reason| *reason >= Some(least)).await.map(|_| ());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_strongest_reason_wins() {
        let mut stop = Stop::default();
        assert_eq!(stop.reason(), None);
        stop.request(StopReason::Shutdown);
        stop.request(StopReason::Cancelled);
        assert_eq!(stop.wait().await, StopReason::Shutdown);
        stop.request(StopReason::Stale);
        stop.wait_for(StopReason::Stale).await;
        assert_eq!(stop.reason(), Some(StopReason::Stale));
    }
}
