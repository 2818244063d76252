//! Texts that templates print: times, numbers, sizes, and what a status looks like. No HTML.

use chrono::{DateTime, Utc};
use sluice_domain::time::{Clock as _, SystemClock};

/// A moment, in any of the forms in which views hold one.
pub trait Moment {
    /// The moment, if there is one.
    fn moment(&self) -> Option<DateTime<Utc>>;
}

impl Moment for DateTime<Utc> {
    fn moment(&self) -> Option<DateTime<Utc>> {
        Some(*self)
    }
}

/// Milliseconds since the epoch.
impl Moment for i64 {
    fn moment(&self) -> Option<DateTime<Utc>> {
        DateTime::from_timestamp_millis(*self)
    }
}

impl<M: Moment> Moment for Option<M> {
    fn moment(&self) -> Option<DateTime<Utc>> {
        self.as_ref().and_then(Moment::moment)
    }
}

impl<M: Moment> Moment for &M {
    fn moment(&self) -> Option<DateTime<Utc>> {
        (**self).moment()
    }
}

/// For the `datetime` attribute.
pub fn iso(at: &impl Moment) -> String {
    at.moment().map(|at| at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)).unwrap_or_default()
}

/// Absolute, for tooltips.
pub fn full(at: &impl Moment) -> String {
    at.moment().map(|at| at.format("%Y-%m-%d %H:%M:%S UTC").to_string()).unwrap_or_default()
}

/// Relative to now, e.g. `3 min ago`.
pub fn ago(at: &impl Moment) -> String {
    at.moment().map(|at| ago_at(at, SystemClock.now())).unwrap_or_default()
}

fn ago_at(at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let secs = (now - at).num_seconds();
    match secs {
        i64::MIN..=-60 => at.format("%Y-%m-%d %H:%M").to_string(),
        -59..=4 => "just now".to_owned(),
        5..=59 => format!("{secs} s ago"),
        60..=3599 => format!("{} min ago", secs / 60),
        3600..=86_399 => format!("{} h ago", secs / 3600),
        86_400..=2_591_999 => format!("{} d ago", secs / 86_400),
        _ => at.format("%Y-%m-%d").to_string(),
    }
}

/// How long something took, up to now when it has not ended; empty when it has not started.
pub fn span(from: &impl Moment, to: &impl Moment) -> String {
    let Some(from) = from.moment() else { return String::new() };
    duration_ms((to.moment().unwrap_or_else(|| SystemClock.now()) - from).num_milliseconds())
}

/// How long ago something that still lasts began.
pub fn since(from: &impl Moment) -> String {
    span(from, &None::<i64>)
}

/// `430 ms`, `12.3 s`, `4 min 05 s`, `2 h 14 min`, `3 d 4 h`.
pub fn duration_ms(ms: i64) -> String {
    let ms = ms.max(0);
    let secs = ms / 1000;
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..60_000 => format!("{}.{} s", secs, ms % 1000 / 100),
        60_000..3_600_000 => format!("{} min {:02} s", secs / 60, secs % 60),
        3_600_000..86_400_000 => format!("{} h {:02} min", secs / 3600, secs % 3600 / 60),
        _ => format!("{} d {} h", secs / 86_400, secs % 86_400 / 3600),
    }
}

/// Four significant digits; the full value belongs in a title.
pub fn num(value: &f64) -> String {
    let value = *value;
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "∞" } else { "−∞" }.to_owned();
    }
    let size = value.abs();
    let text = if value == 0.0 {
        "0".to_owned()
    } else if value.fract() == 0.0 && size < 1e7 {
        format!("{value:.0}")
    } else if !(1e-4..1e6).contains(&size) {
        let text = format!("{value:.3e}");
        match text.split_once('e') {
            Some((mantissa, exponent)) => format!("{}e{exponent}", trim_zeros(mantissa)),
            None => text,
        }
    } else {
        let digits_before = size.log10().floor() as i32 + 1;
        let decimals = usize::try_from(4 - digits_before).unwrap_or(0);
        trim_zeros(&format!("{value:.decimals$}")).to_owned()
    };
    text.replace('-', "−")
}

fn trim_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// [`num`] of a value that may be missing.
pub fn opt_num(value: &Option<f64>) -> String {
    value.as_ref().map_or_else(|| "–".to_owned(), num)
}

/// `1.2 MiB`
pub fn bytes(count: &u64) -> String {
    let mut size = *count as f64;
    if *count < 1024 {
        return format!("{count} B");
    }
    for unit in ["KiB", "MiB", "GiB"] {
        size /= 1024.0;
        if size < 1024.0 {
            return format!("{size:.1} {unit}");
        }
    }
    format!("{:.1} TiB", size / 1024.0)
}

/// [`bytes`] of a stored count.
pub fn stored_bytes(count: &i64) -> String {
    bytes(&u64::try_from(*count).unwrap_or_default())
}

/// The first eight digits of a commit or digest.
pub fn short(sha: impl AsRef<str>) -> String {
    sha.as_ref().chars().take(8).collect()
}

/// At most `most` characters, the last an ellipsis when text was cut.
pub fn clip(text: impl AsRef<str>, most: usize) -> String {
    let text = text.as_ref();
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// `Ana Perez` of `Ana Perez <ana@example.org>`.
pub fn person(author: &str) -> &str {
    author.split('<').next().map(str::trim).filter(|name| !name.is_empty()).unwrap_or(author)
}

/// What a job does, in words.
pub fn kind(kind: &sluice_domain::state::JobKind) -> &'static str {
    use sluice_domain::state::JobKind;
    match kind {
        JobKind::Run => "run",
        JobKind::Benchmark => "benchmark",
        JobKind::ExportOnnx => "ONNX export",
        JobKind::ExportTensorrt => "TensorRT export",
    }
}

/// `1 run`, `2 runs`
pub fn count(n: &i64, one: &str, many: &str) -> String {
    format!("{n} {}", if *n == 1 { one } else { many })
}

/// How a status is drawn: colour by `tone`, shape by `icon`, and always a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Badge {
    pub tone: &'static str,
    pub icon: &'static str,
    pub word: &'static str,
}

/// A status in any of the forms in which views hold one.
pub trait Status {
    /// Its text form.
    fn text(&self) -> &str;
}

impl Status for str {
    fn text(&self) -> &str {
        self
    }
}

impl Status for String {
    fn text(&self) -> &str {
        self
    }
}

impl<S: Status + ?Sized> Status for &S {
    fn text(&self) -> &str {
        (**self).text()
    }
}

macro_rules! statuses {
    ($($name:ident),+) => {
        $(impl Status for sluice_domain::state::$name {
            fn text(&self) -> &str {
                self.as_str()
            }
        })+
    };
}
statuses!(RunStatus, PipelineStatus, JobStatus, AttemptStatus, Verdict, PromotionStatus, DeploymentStatus);

/// What any status, verdict or state of Sluice looks like.
pub fn badge(status: &(impl Status + ?Sized)) -> Badge {
    let (tone, icon, word) = match status.text() {
        "FINISHED" => ("good", "ok", "finished"),
        "succeeded" => ("good", "ok", "succeeded"),
        "pass" => ("good", "ok", "pass"),
        "promoted" => ("good", "ok", "promoted"),
        "serving" => ("good", "ok", "serving"),
        "READY" => ("good", "ok", "ready"),
        "idle" => ("good", "ok", "idle"),
        "RUNNING" | "running" => ("busy", "run", "running"),
        "busy" => ("busy", "run", "busy"),
        "starting" => ("busy", "run", "starting"),
        "SCHEDULED" => ("calm", "wait", "scheduled"),
        "pending" => ("calm", "wait", "pending"),
        "queued" => ("calm", "wait", "queued"),
        "waiting" => ("calm", "wait", "waiting"),
        "PENDING" => ("calm", "wait", "pending"),
        "FAILED" | "failed" => ("bad", "fail", "failed"),
        "fail" => ("bad", "fail", "fail"),
        "blocked" => ("bad", "block", "blocked"),
        "lost" => ("bad", "fail", "lost"),
        "error" => ("bad", "warn", "error"),
        "KILLED" => ("warn", "block", "killed"),
        "waiting_approval" => ("warn", "person", "needs approval"),
        "no_baseline" => ("warn", "question", "no baseline"),
        "inconclusive" => ("warn", "question", "inconclusive"),
        "cancelled" => ("calm", "block", "cancelled"),
        "skipped" => ("calm", "skip", "skipped"),
        "superseded" => ("calm", "skip", "superseded"),
        "offline" => ("calm", "skip", "offline"),
        "deleted" => ("calm", "block", "deleted"),
        _ => ("calm", "question", "unknown"),
    };
    Badge { tone, icon, word }
}

/// The outline of an icon on a 16 × 16 grid, as SVG path data.
pub fn icon_path(name: &str) -> &'static str {
    match name {
        "ok" => "M8 1.6a6.4 6.4 0 1 0 0 12.8A6.4 6.4 0 1 0 8 1.6M5.1 8.2l2 2 3.8-4.1",
        "fail" => "M8 1.6a6.4 6.4 0 1 0 0 12.8A6.4 6.4 0 1 0 8 1.6M5.7 5.7l4.6 4.6M10.3 5.7l-4.6 4.6",
        "block" => "M8 1.6a6.4 6.4 0 1 0 0 12.8A6.4 6.4 0 1 0 8 1.6M3.6 3.6l8.8 8.8",
        "run" => "M8 1.6a6.4 6.4 0 1 0 0 12.8A6.4 6.4 0 1 0 8 1.6M6.6 5.3v5.4L10.8 8z",
        "wait" => "M8 1.6a6.4 6.4 0 1 0 0 12.8A6.4 6.4 0 1 0 8 1.6M8 4.4V8l2.4 1.6",
        "skip" => "M8 1.6a6.4 6.4 0 1 0 0 12.8A6.4 6.4 0 1 0 8 1.6M5 8h6",
        "warn" => "M8 1.9 14.6 14H1.4zM8 6.3v3.6M8 11.7v.4",
        "question" => "M8 1.6a6.4 6.4 0 1 0 0 12.8A6.4 6.4 0 1 0 8 1.6M6.1 6.3a1.95 1.95 0 1 1 2.8 1.8c-.6.3-.9.7-.9 1.3M8 11.4v.3",
        "person" => "M8 1.8a2.9 2.9 0 1 0 0 5.8 2.9 2.9 0 1 0 0-5.8M2.2 14.2c.5-3 2.8-4.5 5.8-4.5s5.3 1.5 5.8 4.5",
        "experiments" => "M6 1.8h4M6.6 1.8v4.3L2.4 13a1 1 0 0 0 .9 1.4h9.4a1 1 0 0 0 .9-1.4L9.4 6.1V1.8M4.3 10h7.4",
        "models" => "M8 1.5 14 4.8v6.4L8 14.5 2 11.2V4.8zM2 4.8l6 3.3 6-3.3M8 8.1v6.4",
        "pipelines" => {
            "M4 2.2a1.8 1.8 0 1 0 0 3.6 1.8 1.8 0 1 0 0-3.6M4 5.8v4.4M4 10.2a1.8 1.8 0 1 0 0 3.6 1.8 1.8 0 1 0 0-3.6M12 6.2a1.8 1.8 0 1 0 0 3.6 1.8 1.8 0 1 0 0-3.6M4 5.8C4 8 6 8 10.2 8"
        }
        "deployments" => {
            "M8 1.6c3 1.8 3.8 5.4 2.6 9H5.4C4.2 7 5 3.4 8 1.6M8 5.2v1.6M4.8 8.2 2.6 11v2.2l2.8-1.4M11.2 8.2l2.2 2.8v2.2l-2.8-1.4M7 12.6h2"
        }
        "runners" => "M4 4h8v8H4zM6.5 6.5h3v3h-3zM6 1.6V4M10 1.6V4M6 12v2.4M10 12v2.4M1.6 6H4M1.6 10H4M12 6h2.4M12 10h2.4",
        "repositories" => "M3.2 2.4A1.2 1.2 0 0 1 4.4 1.4h8.2v10H4.4a1.2 1.2 0 0 0-1.2 1.2zM3.2 12.6a1.4 1.4 0 0 0 1.2 1.8h8.2v-3M6 4.2h4",
        "audit" => "M3 1.6h10v12.8H3zM5.4 5h5.2M5.4 8h5.2M5.4 11h3",
        "commit" => "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 1 0 0-5.6M1 8h4.2M10.8 8H15",
        "branch" => {
            "M4.5 1.8a1.6 1.6 0 1 0 0 3.2 1.6 1.6 0 1 0 0-3.2M4.5 5v6M4.5 11a1.6 1.6 0 1 0 0 3.2 1.6 1.6 0 1 0 0-3.2M11.5 3.8a1.6 1.6 0 1 0 0 3.2 1.6 1.6 0 1 0 0-3.2M11.5 7c0 2.6-4 2.4-6.6 4.2"
        }
        "file" => "M3.6 1.5h5.6l3.2 3.2v9.8H3.6zM9.2 1.5v3.2h3.2",
        "folder" => "M1.8 3.2h4.6l1.4 1.6h6.4v8.4H1.8z",
        "download" => "M8 2v8M4.8 7 8 10.2 11.2 7M2.6 13.4h10.8",
        "theme" => "M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 1 0 8 1.8M8 1.8v12.4M8 5h3.8M8 8h6M8 11h3.8",
        "arrow" => "M3 8h10M9 4l4 4-4 4",
        _ => "M8 1.6a6.4 6.4 0 1 0 0 12.8A6.4 6.4 0 1 0 8 1.6",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.913_462, "0.9135"),
            (12.0, "12"),
            (123.456, "123.5"),
            (12_345.678, "12346"),
            (0.000_123_4, "0.0001234"),
            (-0.012_34, "−0.01234"),
            (1.5e-7, "1.5e−7"),
            (2.5e9, "2.5e9"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "−∞"),
        ] {
            assert_eq!(num(&value), text, "{value}");
        }
    }

    #[test]
    fn durations_and_sizes_are_short() {
        for (ms, text) in
            [(430, "430 ms"), (12_345, "12.3 s"), (245_000, "4 min 05 s"), (8_040_000, "2 h 14 min"), (273_600_000, "3 d 4 h")]
        {
            assert_eq!(duration_ms(ms), text);
        }
        assert_eq!(bytes(&1023), "1023 B");
        assert_eq!(bytes(&1_572_864), "1.5 MiB");
    }

    #[test]
    fn times_are_relative() {
        let now = DateTime::from_timestamp(1_000_000_000, 0).unwrap();
        let before = |secs| ago_at(now - chrono::Duration::seconds(secs), now);
        assert_eq!(before(0), "just now");
        assert_eq!(before(30), "30 s ago");
        assert_eq!(before(7200), "2 h ago");
        assert_eq!(before(90 * 86_400), "2001-06-11");
    }

    #[test]
    fn every_state_has_a_look() {
        use sluice_domain::state::{AttemptStatus, DeploymentStatus, JobStatus, PipelineStatus, PromotionStatus, RunStatus, Verdict};
        let all = RunStatus::ALL.iter().map(|s| s.as_str());
        let all = all.chain(JobStatus::ALL.iter().map(|s| s.as_str())).chain(AttemptStatus::ALL.iter().map(|s| s.as_str()));
        let all = all.chain(PipelineStatus::ALL.iter().map(|s| s.as_str())).chain(PromotionStatus::ALL.iter().map(|s| s.as_str()));
        for status in all.chain(DeploymentStatus::ALL.iter().map(|s| s.as_str())).chain(Verdict::ALL.iter().map(|s| s.as_str())) {
            assert_ne!(badge(status).word, "unknown", "{status}");
        }
    }
}
