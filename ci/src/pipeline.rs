//! `.sluice.yml` → plan. All errors of a file are found together, each with its field and position.

mod fields;
mod graph;
mod jobs;
mod promote;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sluice_domain::plan::Plan;

use crate::{
    branches::BranchPattern,
    file_error::FileError,
    keys,
    reader::{Object, Report, Spot},
    yaml,
};

/// Name of the pipeline file at the root of a repository.
pub const PIPELINE_FILE: &str = ".sluice.yml";
/// Most jobs that one file may define.
pub const MAX_JOBS: usize = 100;

/// A checked pipeline file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pipeline {
    /// `on.push.branches`; empty: every branch.
    pub branches: Vec<BranchPattern>,
    pub plan: Plan,
}

impl Pipeline {
    /// Whether a push to a branch (its name without `refs/heads/`) starts this pipeline.
    #[must_use]
    pub fn runs_on_branch(&self, branch: &str) -> bool {
        self.branches.is_empty() || self.branches.iter().any(|pattern| pattern.matches(branch))
    }
}

/// Makes the plan of a pipeline file. `repository` names the experiment of jobs that name none;
/// `read_file` gives the text of another file at the same commit (gate files), `None` when there is none.
///
/// # Errors
/// Everything that is wrong with the file and the gate file it names, in the order of the text.
pub fn plan(source: &str, repository: &str, read_file: &dyn Fn(&str) -> Option<String>) -> Result<Pipeline, Vec<FileError>> {
    plan_named(PIPELINE_FILE, source, repository, read_file)
}

/// [`plan`] for a file that goes by another name in error messages.
///
/// # Errors
/// As [`plan`].
pub fn plan_named(
    file: &str,
    source: &str,
    repository: &str,
    read_file: &dyn Fn(&str) -> Option<String>,
) -> Result<Pipeline, Vec<FileError>> {
    let mut report = Report::new(file, source);
    let root = match yaml::parse(source) {
        Ok(root) => root,
        Err(error) => {
            report.push(error.at, "", error.message);
            return Err(report.errors);
        }
    };
    let mut gate_errors = Vec::new();
    let made = read_root(&Spot::root(&root), repository, read_file, &mut report, &mut gate_errors);
    let mut errors = report.errors;
    errors.sort_by_key(|error| (error.line, error.column));
    errors.append(&mut gate_errors);
    match made {
        Some(pipeline) if errors.is_empty() => Ok(pipeline),
        _ => Err(errors),
    }
}

/// What holds for every job unless it says otherwise.
struct Defaults<'a> {
    experiment: &'a str,
    setup: Option<String>,
    env: BTreeMap<String, String>,
}

fn read_root(
    root: &Spot<'_>,
    repository: &str,
    read_file: &dyn Fn(&str) -> Option<String>,
    report: &mut Report<'_>,
    gate_errors: &mut Vec<FileError>,
) -> Option<Pipeline> {
    let object = root.object(report, keys::ROOT)?;
    if let Some(version) = object.require(report, "version") {
        version.integer(report, 1..=1);
    }
    let branches = object.get("on").and_then(|on| read_branches(&on, report)).unwrap_or_default();
    let defaults = Defaults {
        experiment: repository,
        setup: object.get("setup").and_then(|setup| setup.text(report, fields::MAX_COMMAND)),
        env: object.get("env").map(|env| fields::environment(&env, report)).unwrap_or_default(),
    };
    let drafts = object.require(report, "jobs").map(|jobs| jobs::read_all(&jobs, &defaults, report)).unwrap_or_default();
    let order = graph::order(&drafts, report);
    let promote = object.get("promote");
    let model = promote.as_ref().and_then(promote_model);
    let jobs = jobs::resolve_all(&drafts, &order, model.as_deref(), report);
    let promote = promote.and_then(|spot| promote::read(&spot, &drafts, &jobs, read_file, report, gate_errors));
    let deploy = object.get("deploy").and_then(|spot| promote::read_deploy(&spot, object.get("promote").as_ref(), &jobs, report));
    Some(Pipeline { branches, plan: Plan { jobs, promote, deploy } })
}

/// `promote.model` without judging it: benchmarks refer to it before it is checked in its own place.
fn promote_model(promote: &Spot<'_>) -> Option<String> {
    let yaml::Value::Map(entries) = &promote.node.value else { return None };
    entries.iter().find(|(key, ..)| key == "model").and_then(|(.., node)| match &node.value {
        yaml::Value::Text(text) => Some(text.clone()),
        _ => None,
    })
}

fn read_branches(on: &Spot<'_>, report: &mut Report<'_>) -> Option<Vec<BranchPattern>> {
    let on: Object<'_> = on.object(report, keys::ON)?;
    let push = on.get("push")?.object(report, keys::PUSH)?;
    let list = push.get("branches")?.list(report, 1, 100)?;
    let patterns = list.iter().filter_map(|item| {
        let text = item.checked(report, |text| BranchPattern::new(text).map(drop))?;
        BranchPattern::new(&text).ok()
    });
    Some(patterns.collect())
}
