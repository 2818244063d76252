//! The `promote` and `deploy` parts, and what the gate needs from the jobs.

use sluice_domain::{
    gate::{CheckSpec, GatePolicy},
    names::{check_relative_path, check_slug},
    plan::{DeploySpec, JobOutput, JobSpec, PromoteSpec, Work},
    state::JobKind,
};

use super::{
    fields,
    jobs::{Draft, resolve_output},
};
use crate::{
    file_error::FileError,
    gate_file, keys,
    reader::{Report, Spot},
};

pub(super) fn read(
    spot: &Spot<'_>,
    drafts: &[Draft<'_>],
    jobs: &[JobSpec],
    read_file: &dyn Fn(&str) -> Option<String>,
    report: &mut Report<'_>,
    gate_errors: &mut Vec<FileError>,
) -> Option<PromoteSpec> {
    let object = spot.object(report, keys::PROMOTE)?;
    let model = object.require(report, "model").and_then(|m| m.checked(report, fields::check_model_name));
    let alias = object.require(report, "alias").and_then(|a| a.checked(report, fields::check_alias));
    let from = object.require(report, "from").and_then(|from| resolve_output(&from, drafts, "model", report));
    let gate = object.require(report, "gate").and_then(|gate| Some((gate.checked(report, check_relative_path)?, gate)));
    let policy = gate.as_ref().and_then(|(path, spot)| {
        let Some(text) = read_file(path) else {
            spot.fail(report, format!("the file {path:?} does not exist at this commit"));
            return None;
        };
        match gate_file::policy(path, &text) {
            Ok(policy) => Some(policy),
            Err(errors) => {
                gate_errors.extend(errors);
                None
            }
        }
    });
    let (model, alias, from, (gate_file, gate_spot), policy) = (model?, alias?, from?, gate?, policy?);
    check_export(jobs, &from, spot, report);
    check_policy(&policy, jobs, &model, &alias, &gate_spot, report);
    let needs = jobs
        .iter()
        .filter(|job| job.name == from.job || matches!(job.work.kind(), JobKind::Benchmark | JobKind::ExportOnnx))
        .map(|job| job.name.clone())
        .collect();
    Some(PromoteSpec { model, alias, from, needs, gate_file, policy })
}

/// What is gated and deployed must come from what is promoted: one ONNX export at most, of the same output.
fn check_export(jobs: &[JobSpec], from: &JobOutput, promote: &Spot<'_>, report: &mut Report<'_>) {
    let exports: Vec<_> =
        jobs.iter().filter_map(|job| if let Work::ExportOnnx(spec) = &job.work { Some((job, spec)) } else { None }).collect();
    if let [_, (second, _), ..] = exports[..] {
        let message = format!("a pipeline that promotes exports to ONNX once; job {:?} does it again", second.name);
        report.push(promote.key_at, "promote", message);
    } else if let Some((job, spec)) = exports.first().filter(|(_, spec)| spec.from != *from) {
        let message = format!(
            "is {}.{}, but job {:?} exports {}.{}: the gate would judge another model than the one promoted",
            from.job, from.output, job.name, spec.from.job, spec.from.output
        );
        report.push(promote.key_at, "promote.from", message);
    }
}

/// Checks that read evidence which no job of this file makes could only end in an error: said at once.
fn check_policy(policy: &GatePolicy, jobs: &[JobSpec], model: &str, alias: &str, gate: &Spot<'_>, report: &mut Report<'_>) {
    let onnx = jobs.iter().find_map(|job| if let Work::ExportOnnx(spec) = &job.work { Some(spec) } else { None });
    let benchmarks: Vec<_> =
        jobs.iter().filter_map(|job| if let Work::Benchmark(spec) = &job.work { Some((job, spec)) } else { None }).collect();
    for (i, check) in policy.checks.iter().enumerate() {
        let problem = match check {
            CheckSpec::MetricThreshold { .. } => None,
            CheckSpec::NonInferiority { metric, .. } => {
                let measuring: Vec<_> = benchmarks.iter().filter(|(_, spec)| spec.metrics.contains_key(metric)).collect();
                match measuring[..] {
                    [] => Some(format!("compares {metric:?}, which no benchmark job measures")),
                    [(job, spec)] => {
                        let same = spec.against.as_ref().is_some_and(|a| a.model == model && a.alias == alias);
                        (!same).then(|| {
                            format!("compares {metric:?} with {model}@{alias}, but job {:?} does not measure against that", job.name)
                        })
                    }
                    [_, _, ..] => Some(format!("compares {metric:?}, which more than one benchmark job measures")),
                }
            }
            CheckSpec::LatencyBudget { batch, .. } => match onnx {
                None => Some("needs a job that exports to ONNX".to_owned()),
                Some(spec) => (!spec.latency_batches.contains(batch))
                    .then(|| format!("has batch {batch}, which is not among the export's latency_batches {:?}", spec.latency_batches)),
            },
            CheckSpec::OnnxParity { .. } => onnx.is_none().then(|| "needs a job that exports to ONNX".to_owned()),
        };
        if let Some(problem) = problem {
            gate.fail(report, format!("checks[{i}].{} {problem}", check.kind()));
        }
    }
}

pub(super) fn read_deploy(spot: &Spot<'_>, promote: Option<&Spot<'_>>, jobs: &[JobSpec], report: &mut Report<'_>) -> Option<DeploySpec> {
    let object = spot.object(report, keys::DEPLOY)?;
    let alias_spot = object.require(report, "alias");
    let alias = alias_spot.as_ref().and_then(|a| a.checked(report, fields::check_alias));
    let to = object.require(report, "to").and_then(|to| to.checked(report, |text| check_slug(text, 60, "environment")));
    let Some(promote) = promote else {
        report.push(spot.key_at, &spot.path, "needs a promote part with the same alias");
        return None;
    };
    if let (Some(alias), Some(alias_spot), Some(promoted)) = (&alias, &alias_spot, promoted_alias(promote))
        && *alias != promoted
    {
        alias_spot.fail(report, format!("is {alias:?}, but promote.alias is {promoted:?}: they must be the same"));
    }
    if !jobs.iter().any(|job| job.work.kind() == JobKind::ExportOnnx) && report.errors.is_empty() {
        report.push(spot.key_at, &spot.path, "needs a job that exports to ONNX: the exported file is what is served");
    }
    Some(DeploySpec { alias: alias?, to: to? })
}

/// `promote.alias` without judging it: that is done in its own place.
fn promoted_alias(promote: &Spot<'_>) -> Option<String> {
    let crate::yaml::Value::Map(entries) = &promote.node.value else { return None };
    entries.iter().find(|(key, ..)| key == "alias").and_then(|(.., node)| match &node.value {
        crate::yaml::Value::Text(text) => Some(text.clone()),
        _ => None,
    })
}
