//! One line that says why a command failed.

use std::{
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::ExitStatus,
};

/// Where torchrun writes the first failure of its workers (`TORCHELASTIC_ERROR_FILE`), when they record it.
#[derive(Debug)]
pub struct ErrorFile(PathBuf);

impl ErrorFile {
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Forgets what an earlier command wrote.
    pub fn clear(&self) {
        let _ = std::fs::remove_file(&self.0);
    }

    pub fn read(&self) -> Option<String> {
        std::fs::read_to_string(&self.0).ok()
    }
}

/// The line.
pub fn message(status: ExitStatus, oom: bool, tail: &str, error_file: Option<&str>) -> String {
    let end = match (oom, status.signal(), status.code()) {
        (true, ..) => "out of memory".to_owned(),
        (_, Some(signal), _) => format!("killed by signal {signal}"),
        (_, _, Some(code @ 129..=159)) => format!("exit code {code} (signal {})", code - 128),
        (_, _, code) => format!("exit code {}", code.unwrap_or(-1)),
    };
    let why = error_file.and_then(recorded).or_else(|| torchrun_root_cause(tail)).or_else(|| last_line(tail));
    why.map_or_else(|| end.clone(), |why| format!("{end}: {why}"))
}

/// The message of a recorded error: `{"message": {"message": …, "extraInfo": …}}`, or `{"message": "…"}`.
fn recorded(json: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(json).ok()?;
    let message = value.get("message")?;
    let text = message.as_str().or_else(|| message.get("message")?.as_str())?;
    (!text.trim().is_empty()).then(|| text.trim().to_owned())
}

/// Torchrun ends with a block about the failure that it saw first; what the worker itself said stands before it.
fn torchrun_root_cause(tail: &str) -> Option<String> {
    let lines: Vec<&str> = tail.lines().collect();
    let block = lines.iter().rposition(|line| line.contains("Root Cause (first observed failure):"))?;
    let field = |name: &str| {
        lines[block..].iter().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        })
    };
    let rank = field("rank").and_then(|rank| rank.split_whitespace().next().map(str::to_owned))?;
    let code = field("exitcode").and_then(|code| code.split_whitespace().next().map(str::to_owned))?;
    // Other workers fail too when their peer is gone: only lines of the first one count, or of nobody in particular.
    let prefix = format!("[rank{rank}]:");
    let own = lines[..block].iter().rev().find_map(|line| is_exception(line.trim().strip_prefix(&prefix)?));
    let anyones = || lines[..block].iter().find_map(|line| if line.contains("ChildFailedError") { None } else { is_exception(line) });
    let how =
        if let Some(signal) = code.strip_prefix('-') { format!("was killed by signal {signal}") } else { format!("exited with {code}") };
    let worker = format!("worker of rank {rank} {how}");
    Some(own.or_else(anyones).map_or_else(|| worker.clone(), |what| format!("{worker}: {what}")))
}

/// The line, when it ends a Python traceback: `package.SomeError: text`.
fn is_exception(line: &str) -> Option<String> {
    let line = line.trim_end();
    let line = line.strip_prefix(' ').unwrap_or(line);
    let name = line.split([':', ' ']).next().unwrap_or_default();
    let class = name.rsplit('.').next().unwrap_or_default();
    let is_name = name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.'));
    let is_error = ["Error", "Exception", "Exit", "Interrupt", "Warning"].iter().any(|end| class.ends_with(end) && class.len() > end.len());
    (is_name && is_error).then(|| line.to_owned())
}

fn last_line(tail: &str) -> Option<String> {
    // A carriage return draws a progress bar over itself: what it ended with is what was seen.
    let lines = tail.lines().rev().map(|line| line.trim_end().rsplit('\r').next().unwrap_or_default().trim());
    lines.into_iter().find(|line| line.chars().any(char::is_alphanumeric)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TORCHRUN: &str = "\
epoch 1
[rank1]: Traceback (most recent call last):
[rank1]:   File \"train.py\", line 3, in <module>
[rank1]: ValueError: loss is not finite
[rank0]: torch.distributed.DistBackendError: Connection closed by peer
E1130 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: 3) local_rank: 1 (pid: 12)
Traceback (most recent call last):
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_20:00:00
  host      : vm
  rank      : 1 (local_rank: 1)
  exitcode  : 3 (pid: 12)
  error_file: <N/A>
============================================================
";

    fn exited(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    #[test]
    fn torchrun_names_the_worker_that_failed_first() {
        let text = message(exited(1), false, TORCHRUN, None);
        assert_eq!(text, "exit code 1: worker of rank 1 exited with 3: ValueError: loss is not finite");
        let killed = TORCHRUN.replace("exitcode  : 3", "exitcode  : -9").replace("[rank1]: ValueError: loss is not finite", "");
        let text = message(exited(1), false, &killed, None);
        assert!(text.starts_with("exit code 1: worker of rank 1 was killed by signal 9"), "{text}");
    }

    #[test]
    fn a_recorded_error_wins() {
        let file = r#"{"message":{"message":"RuntimeError: boom","extraInfo":{"py_callstack":"…"}}}"#;
        assert_eq!(message(exited(1), false, TORCHRUN, Some(file)), "exit code 1: RuntimeError: boom");
        assert_eq!(message(exited(1), false, "x\n", Some("not json")), "exit code 1: x");
    }

    #[test]
    fn otherwise_the_last_line_is_shown() {
        assert_eq!(message(exited(2), false, "a\nb: no such file\n\n---\n", None), "exit code 2: b: no such file");
        assert_eq!(message(exited(2), false, " 10%\r 100% done\n", None), "exit code 2: 100% done");
        assert_eq!(message(ExitStatus::from_raw(9), false, "", None), "killed by signal 9");
        assert_eq!(message(exited(137), false, "", None), "exit code 137 (signal 9)");
        assert_eq!(message(exited(1), true, "", None), "out of memory");
    }
}
