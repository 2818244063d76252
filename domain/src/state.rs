//! Fixed vocabularies: statuses, causes, verdicts. Each is stored and sent as the text given here.

/// Defines an enum whose variants have one text form, used in SQL, JSON and `Display` alike.
macro_rules! text_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[$vmeta])* #[serde(rename = $text)] $variant),+ }

        impl $name {
            /// Every value, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The text form.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = UnknownText;

            fn from_str(s: &str) -> Result<Self, Self::Err> {
                match s {
                    $($text => Ok(Self::$variant),)+
                    _ => Err(UnknownText { kind: stringify!($name), text: s.to_owned(), allowed: &[$($text),+] }),
                }
            }
        }
    };
}

/// A text that is none of the values of its vocabulary.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {kind}: expected one of {}", allowed.join(", "))]
pub struct UnknownText {
    /// Name of the vocabulary.
    pub kind: &'static str,
    /// What was given.
    pub text: String,
    /// What would have been accepted.
    pub allowed: &'static [&'static str],
}

text_enum! {
    /// Status of a tracking run, as MLflow names it.
    RunStatus { Running = "RUNNING", Scheduled = "SCHEDULED", Finished = "FINISHED", Failed = "FAILED", Killed = "KILLED" }
}
text_enum! {
    /// Whether a run, experiment or logged model is live or soft-deleted.
    Lifecycle { Active = "active", Deleted = "deleted" }
}
text_enum! {
    /// Status of a pipeline.
    PipelineStatus {
        Running = "running", Succeeded = "succeeded", Failed = "failed",
        /// Every job succeeded and the gate refused the promotion.
        Blocked = "blocked",
        WaitingApproval = "waiting_approval", Cancelled = "cancelled",
    }
}
text_enum! {
    /// Status of a job. `Pending` needs unfinished jobs, `Queued` may be claimed by a runner.
    JobStatus {
        Pending = "pending", Queued = "queued", Running = "running", Succeeded = "succeeded",
        Failed = "failed", Cancelled = "cancelled", Skipped = "skipped",
    }
}
text_enum! {
    /// Status of one attempt at a job. `Lost`: its lease expired.
    AttemptStatus { Running = "running", Succeeded = "succeeded", Failed = "failed", Cancelled = "cancelled", Lost = "lost" }
}
text_enum! {
    /// Why a job failed. Retry policy is per cause: only `infra` and `lost` are retried.
    Cause {
        User = "user", Infra = "infra", Lost = "lost", Preempted = "preempted", Oom = "oom",
        Timeout = "timeout", Cancelled = "cancelled",
    }
}
text_enum! {
    /// What a job does.
    JobKind { Run = "run", Benchmark = "benchmark", ExportOnnx = "export_onnx", ExportTensorrt = "export_tensorrt" }
}
text_enum! {
    /// Outcome of a gate or of one check. Only `Pass` lets an alias move.
    Verdict { Pass = "pass", Fail = "fail", Inconclusive = "inconclusive", NoBaseline = "no_baseline", Error = "error" }
}
text_enum! {
    /// State of a pipeline's request to move an alias.
    PromotionStatus {
        Waiting = "waiting", WaitingApproval = "waiting_approval", Promoted = "promoted",
        Blocked = "blocked", Error = "error", Cancelled = "cancelled",
    }
}
text_enum! {
    /// State of a deployment.
    DeploymentStatus { Starting = "starting", Serving = "serving", Failed = "failed", Superseded = "superseded" }
}
text_enum! {
    /// Which way of a metric is better.
    Direction { Higher = "higher", Lower = "lower" }
}

impl JobStatus {
    /// Whether the job will not change any more.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled | Self::Skipped)
    }
}

impl PipelineStatus {
    /// Whether the pipeline will not change any more without a human.
    #[must_use]
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::Running | Self::WaitingApproval)
    }
}

impl Cause {
    /// Whether another attempt is made for a job that ended with this cause.
    #[must_use]
    pub const fn is_retried(self) -> bool {
        matches!(self, Self::Infra | Self::Lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_forms_parse_back() {
        for cause in Cause::ALL {
            assert_eq!(cause.as_str().parse::<Cause>().unwrap(), *cause);
        }
        let error = "melted".parse::<JobStatus>().unwrap_err();
        assert!(error.to_string().contains("pending, queued, running"));
    }
}
