//! `sluice ci validate FILE`, apart from reading files and printing.

use sluice_domain::plan::Plan;

use crate::{
    file_error::FileError,
    gate_file, keys,
    pipeline::plan_named,
    yaml::{self, Value},
};

/// Outcome of [`check_files`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckReport {
    /// What is wrong; empty when the file is good.
    pub errors: Vec<FileError>,
    /// For people: what the file asks for, or each error with `FILE:LINE:COLUMN` and a caret.
    pub text: String,
}

/// Checks a pipeline file with the gate file that it names, or a gate file by itself (told by its `checks` key).
/// `name` is how messages call the file; `read_file` reads a path relative to the root of the repository.
#[must_use]
pub fn check_files(name: &str, source: &str, repository: &str, read_file: &dyn Fn(&str) -> Option<String>) -> CheckReport {
    let outcome = if is_gate(source) {
        gate_file::policy(name, source).map(|policy| format!("{name} is valid: a gate of {}\n", count(policy.checks.len(), "check")))
    } else {
        plan_named(name, source, repository, read_file).map(|pipeline| summary(name, &pipeline.plan))
    };
    match outcome {
        Ok(text) => CheckReport { errors: Vec::new(), text },
        Err(errors) => {
            let mut text: String = errors.iter().map(FileError::render).collect();
            text.push_str(&format!("{name}: {}\n", count(errors.len(), "error")));
            CheckReport { errors, text }
        }
    }
}

fn summary(name: &str, plan: &Plan) -> String {
    let mut text = format!("{name} is valid: {}\n", count(plan.jobs.len(), "job"));
    for job in &plan.jobs {
        let needs = if job.needs.is_empty() { String::new() } else { format!("  needs {}", job.needs.join(", ")) };
        text.push_str(&format!("  {:<20} {}{needs}\n", job.name, job.work.kind()));
    }
    if let Some(promote) = &plan.promote {
        let checks = count(promote.policy.checks.len(), "check");
        text.push_str(&format!(
            "  promotes {} to {}@{} by {} ({checks})\n",
            promote.from.job, promote.model, promote.alias, promote.gate_file
        ));
    }
    if let Some(deploy) = &plan.deploy {
        text.push_str(&format!("  deploys {} to {}\n", deploy.alias, deploy.to));
    }
    text
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
        assert!(good.errors.is_empty());
        assert_eq!(
            good.text,
            "x.yml is valid: 4 jobs\n  train                run\n  export               export_onnx  needs train\n  export-tensorrt      export_tensorrt  needs export\n  bench                benchmark  needs train, export\n  promotes train to digits@champion by gates/champion.yml (5 checks)\n  deploys champion to production\n"
        );
        assert_eq!(check_files("g.yml", EXAMPLE_GATE, "demo", &gate).text, "g.yml is valid: a gate of 5 checks\n");
        let bad = check_files("x.yml", "version: 1\njobs:\n  a:\n    run: x\n    timeout: soon\n", "demo", &gate);
        assert_eq!((bad.errors.len(), bad.errors[0].column), (1, Some(14)));
        assert_eq!(
            bad.text,
            "x.yml:5:14: error: jobs.a.timeout: is \"soon\"; it must be none, or a whole number followed by s, m or h, from 1s to 720h\n 5 |     timeout: soon\n   |              ^\nx.yml: 1 error\n"
        );
    }
}
