//! Bounded or endless repetition with backoff, for faults that pass.

use std::{future::Future, time::Duration};

use crate::{Error, Result};

/// How often and how patiently to try again.
#[derive(Debug, Clone, Copy)]
pub struct RetryPolicy {
    /// Calls at most, the first included; `None`: for ever.
    pub attempts: Option<u32>,
    pub first_delay: Duration,
    pub max_delay: Duration,
}

impl Default for RetryPolicy {
    /// Six calls within about six seconds.
    fn default() -> Self {
        Self { attempts: Some(6), first_delay: Duration::from_millis(200), max_delay: Duration::from_secs(5) }
    }
}

impl RetryPolicy {
    /// Until it succeeds or is refused: for reports that must arrive.
    #[must_use]
    pub fn forever() -> Self {
        Self { attempts: None, ..Self::default() }
    }

    /// The delay before call number `call + 1`, given what the server asked for.
    #[must_use]
    pub fn delay(&self, call: u32, asked: Option<Duration>) -> Duration {
        let backoff = self.first_delay.saturating_mul(1 << call.saturating_sub(1).min(16)).min(self.max_delay);
        // A server that asks for hours is not obeyed: the cap keeps cancellation and shutdown timely.
        asked.map_or(backoff, |asked| asked.min(self.max_delay).max(backoff))
    }
}

/// Calls until it succeeds, fails with an error that does not pass, or the policy is used up.
///
/// # Errors
/// The last error.
pub async fn retry<T, F, Fut>(policy: RetryPolicy, what: &str, mut call: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T>>,
{
    let mut calls = 0;
    loop {
        let error: Error = match call().await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        calls += 1;
        if !error.is_passing() || policy.attempts.is_some_and(|limit| calls >= limit) {
            return Err(error);
        }
        let delay = policy.delay(calls, error.retry_after());
        tracing::debug!(%error, calls, ?delay, "{what}: trying again");
        tokio::time::sleep(delay).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ApiError;

    fn refused(status: u16) -> Error {
        Error::Api(ApiError::parse(status, None, b""))
    }

    #[tokio::test]
    async fn passing_faults_are_repeated_and_refusals_are_not() {
        let policy = RetryPolicy { first_delay: Duration::from_millis(1), ..RetryPolicy::default() };
        let mut calls = 0;
        let answer = retry(policy, "test", || {
            calls += 1;
            std::future::ready(if calls < 3 { Err(refused(503)) } else { Ok(calls) })
        })
        .await;
        assert_eq!(answer.unwrap(), 3);
        let mut calls = 0;
        let answer: Result<()> = retry(policy, "test", || {
            calls += 1;
            std::future::ready(Err(refused(409)))
        })
        .await;
        assert!(answer.is_err());
        assert_eq!(calls, 1);
    }

    #[test]
    fn backoff_doubles_up_to_its_cap() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.delay(1, None), Duration::from_millis(200));
        assert_eq!(policy.delay(3, None), Duration::from_millis(800));
        assert_eq!(policy.delay(60, None), Duration::from_secs(5));
        assert_eq!(policy.delay(1, Some(Duration::from_secs(2))), Duration::from_secs(2));
        assert_eq!(policy.delay(1, Some(Duration::from_secs(2000))), Duration::from_secs(5));
    }
}
