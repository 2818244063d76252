//! Time as Sluice keeps it: UTC, truncated to microseconds, which is what Postgres stores.

use chrono::{DateTime, SubsecRound, Utc};

/// Source of the present moment. Production uses [`SystemClock`], tests a [`ManualClock`].
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// The present moment in UTC, at microsecond precision.
    fn now(&self) -> DateTime<Utc>;

    /// The present moment in milliseconds since the epoch.
    fn now_ms(&self) -> i64 {
        self.now().timestamp_millis()
    }
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that asks the machine")]
    fn now(&self) -> DateTime<Utc> {
        Utc::now().trunc_subsecs(6)
    }
}

/// A clock that stands still until it is moved.
#[derive(Debug)]
pub struct ManualClock(std::sync::Mutex<DateTime<Utc>>);

impl ManualClock {
    /// A clock that shows `at`.
    #[must_use]
    pub fn new(at: DateTime<Utc>) -> Self {
        Self(std::sync::Mutex::new(at.trunc_subsecs(6)))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: chrono::Duration) {
        let mut now = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *now += by;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> DateTime<Utc> {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
