//! `sluice ci validate FILE`, apart from reading files and printing.

use crate::{
    file_error::FileError,
    gate_file, keys,
    pipeline::{Pipeline, plan_named},
    yaml::{self, Value},
};

/// What a valid file turned out to be.
#[derive(Debug, Clone, PartialEq)]
pub enum Checked {
    Pipeline(Pipeline),
    Gate(sluice_domain::gate::GatePolicy),
}

/// Outcome of [`check_files`]: what to print, and whether the file is good.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckReport {
    pub outcome: Result<Checked, Vec<FileError>>,
    /// For people: one line when the file is good, else each error with `FILE:LINE:COLUMN` and a caret.
    pub text: String,
}

/// Checks a pipeline file with the gate file that it names, or a gate file by itself (told by its `checks` key).
/// `name` is how messages call the file; `read_file` reads a path relative to the root of the repository.
#[must_use]
pub fn check_files(name: &str, source: &str, repository: &str, read_file: &dyn Fn(&str) -> Option<String>) -> CheckReport {
    let outcome = if is_gate(source) {
        gate_file::policy(name, source).map(Checked::Gate)
    } else {
        plan_named(name, source, repository, read_file).map(Checked::Pipeline)
    };
    let text = match &outcome {
        Ok(Checked::Pipeline(pipeline)) => {
            let jobs: Vec<&str> = pipeline.plan.jobs.iter().map(|job| job.name.as_str()).collect();
            let promote = pipeline
                .plan
                .promote
                .as_ref()
                .map(|p| format!("; promotes {}@{} through {} checks", p.model, p.alias, p.policy.checks.len()));
            format!("{name}: ok: {} ({}){}\n", count(jobs.len(), "job"), jobs.join(", "), promote.unwrap_or_default())
        }
        Ok(Checked::Gate(policy)) => format!("{name}: ok: gate with {}\n", count(policy.checks.len(), "check")),
        Err(errors) => {
            let mut text: String = errors.iter().map(FileError::render).collect();
            text.push_str(&format!("{name}: {}\n", count(errors.len(), "error")));
            text
        }
    };
    CheckReport { outcome, text }
}

fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

fn is_gate(source: &str) -> bool {
    let Ok(root) = yaml::parse(source) else { return false };
    let Value::Map(entries) = &root.value else { return false };
    let has = |wanted: &str| entries.iter().any(|(key, ..)| key == wanted);
    keys::GATE.iter().all(|key| has(key)) && !has("jobs")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::tests::{EXAMPLE, EXAMPLE_GATE};

    #[test]
    fn reports_for_people() {
        let gate = |path: &str| (path == "gates/champion.yml").then(|| EXAMPLE_GATE.to_owned());
        let good = check_files("x.yml", EXAMPLE, "demo", &gate);
        assert!(good.outcome.is_ok());
        assert_eq!(good.text, "x.yml: ok: 4 jobs (train, export, export-tensorrt, bench); promotes digits@champion through 5 checks\n");
        assert_eq!(check_files("g.yml", EXAMPLE_GATE, "demo", &gate).text, "g.yml: ok: gate with 5 checks\n");
        let bad = check_files("x.yml", "version: 1\njobs:\n  a:\n    run: x\n    timeout: soon\n", "demo", &gate);
        assert_eq!(
            bad.text,
            "x.yml:5:14: error: jobs.a.timeout: is \"soon\"; it must be none, or a whole number followed by s, m or h, from 1s to 720h\n 5 |     timeout: soon\n   |              ^\nx.yml: 1 error\n"
        );
    }
}
