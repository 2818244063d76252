//! The steps of an attempt as they are shown: which ran, when, and with what exit code.

use std::sync::{Mutex, MutexGuard, PoisonError};

use sluice_domain::{
    runner::StepReport,
    time::{Clock as _, SystemClock},
};

/// The steps so far.
#[derive(Debug, Default)]
pub struct Steps(Mutex<Vec<StepReport>>);

impl Steps {
    fn lock(&self) -> MutexGuard<'_, Vec<StepReport>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A step starts.
    pub fn begin(&self, name: &str) {
        self.lock().push(StepReport {
            name: name.to_owned(),
            status: "running".to_owned(),
            started_at_ms: SystemClock.now_ms(),
            finished_at_ms: None,
            exit_code: None,
        });
    }

    /// The running step ends.
    pub fn end(&self, status: &str, exit_code: Option<i32>) {
        if let Some(step) = self.lock().last_mut().filter(|step| step.finished_at_ms.is_none()) {
            status.clone_into(&mut step.status);
            step.finished_at_ms = Some(SystemClock.now_ms());
            step.exit_code = exit_code;
        }
    }

    /// A copy for a report.
    #[must_use]
    pub fn snapshot(&self) -> Vec<StepReport> {
        self.lock().clone()
    }
}
