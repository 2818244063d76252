//! Gathering what a gate may read, and finding what no policy may overlook.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};
use sluice_domain::{
    evidence::{BenchmarkEvidence, Evidence, OnnxEvidence},
    gate::{CheckResult, GateEvidence, GateOutcome},
    plan::{Plan, PromoteSpec, Work},
    state::Verdict,
};
use sluice_store::{
    PgConnection, approval,
    gate_input::{self, JobInput},
    model_alias,
};

use crate::Result;

/// The file that is judged, and deployed when it passes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Artifact {
    pub uri: String,
    pub sha256: String,
}

/// Everything that one evaluation looks at.
#[derive(Debug)]
pub(super) struct Collected {
    pub evidence: GateEvidence,
    pub artifact: Option<Artifact>,
    /// Evidence that contradicts itself or is missing: the gate is an error whatever the checks say.
    pub faults: Vec<Fault>,
}

/// One thing that is wrong with the evidence as such.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub name: &'static str,
    pub reason: String,
}

/// Reads the evidence for a version out of the jobs that the promotion needs.
pub(super) async fn collect(
    db: &mut PgConnection,
    promotion_id: i64,
    version: i32,
    plan: &Plan,
    promote: &PromoteSpec,
    jobs: &BTreeMap<String, JobInput>,
) -> Result<Collected> {
    let mut faults = Vec::new();
    let mut candidate_metrics = BTreeMap::new();
    if let Some(run_id) = jobs.get(&promote.from.job).and_then(|job| job.run_id) {
        for (key, value) in gate_input::list_latest_metrics(db, run_id).await? {
            candidate_metrics.insert(key, value.is_finite().then_some(value));
        }
    }
    let mut benchmarks = Vec::new();
    let mut exports = Vec::new();
    for spec in plan.jobs.iter().filter(|spec| promote.needs.contains(&spec.name)) {
        let Some(job) = jobs.get(&spec.name) else { continue };
        for body in gate_input::list_evidence(db, job.id, job.attempt).await? {
            match (serde_json::from_value(body), &spec.work) {
                (Ok(Evidence::Benchmark(found)), Work::Benchmark(_)) => benchmarks.push((spec.name.clone(), found)),
                // another model's export says nothing about this one
                (Ok(Evidence::Onnx(found)), Work::ExportOnnx(export)) if export.from == promote.from => {
                    let files = gate_input::list_output_files(db, job.id, job.attempt, &export.output).await?;
                    exports.push((spec.name.clone(), export.output.clone(), found, files));
                }
                (Ok(_), _) => {}
                (Err(error), _) => {
                    faults.push(Fault { name: "evidence", reason: format!("evidence of job {} is malformed: {error}", spec.name) })
                }
            }
        }
    }
    let (onnx, artifact) = match exports.len() {
        0 => {
            if plan.deploy.as_ref().is_some_and(|deploy| deploy.alias == promote.alias) {
                faults.push(Fault {
                    name: "artifact",
                    reason: format!(
                        "nothing to deploy: no ONNX export of {}.{} is among the jobs that the promotion needs",
                        promote.from.job, promote.from.output
                    ),
                });
            }
            (None, None)
        }
        1 => {
            let (job, output, mut found, files) = exports.remove(0);
            let bound = bind(&mut found, &job, &output, &files).map_err(|fault| faults.push(fault));
            (Some(found), bound.ok())
        }
        _ => {
            let names: Vec<_> = exports.iter().map(|(job, ..)| job.as_str()).collect();
            faults.push(Fault { name: "artifact", reason: format!("more than one ONNX export to judge: jobs {}", names.join(", ")) });
            (None, None)
        }
    };
    let benchmark = match merge(benchmarks) {
        Ok(benchmark) => benchmark,
        Err(fault) => {
            faults.push(fault);
            None
        }
    };
    let champion_version = model_alias::find_holder(db, &promote.model, &promote.alias).await?;
    let approvals = approval::list_approvals(db, &promote.model, version, Some(&promote.alias)).await?;
    let evidence = GateEvidence {
        candidate_metrics,
        champion_version,
        benchmark,
        onnx,
        approved_by: approvals.into_iter().map(|approval| approval.actor).collect(),
        bootstrap_seed: bootstrap_seed(promotion_id),
    };
    Ok(Collected { evidence, artifact, faults })
}

/// Ties ONNX evidence to the uploaded file: the digest that was measured must be the one that was stored.
fn bind(onnx: &mut OnnxEvidence, job: &str, output: &str, files: &[gate_input::OutputFile]) -> std::result::Result<Artifact, Fault> {
    let fault = |reason| Fault { name: "artifact", reason };
    let models: Vec<_> = match files {
        [only] => vec![only],
        several => several.iter().filter(|file| file.path.ends_with(".onnx")).collect(),
    };
    let &[file] = models.as_slice() else {
        return Err(fault(format!("job {job} must leave exactly one ONNX file in output {output}, found {}", models.len())));
    };
    onnx.uri.clone_from(&file.uri);
    if onnx.sha256.eq_ignore_ascii_case(&file.sha256) {
        Ok(Artifact { uri: file.uri.clone(), sha256: file.sha256.clone() })
    } else {
        Err(fault(format!("digest mismatch: job {job} measured a file with SHA-256 {} and uploaded one with {}", onnx.sha256, file.sha256)))
    }
}

/// Several benchmark jobs may measure different metrics, against the same champion.
fn merge(mut found: Vec<(String, BenchmarkEvidence)>) -> std::result::Result<Option<BenchmarkEvidence>, Fault> {
    if found.is_empty() {
        return Ok(None);
    }
    let (first_job, mut all) = found.remove(0);
    for (job, next) in found {
        if next.champion_version != all.champion_version {
            let reason = format!("jobs {first_job} and {job} measured different champions");
            return Err(Fault { name: "benchmark", reason });
        }
        for (metric, samples) in next.metrics {
            if all.metrics.insert(metric.clone(), samples).is_some() {
                return Err(Fault { name: "benchmark", reason: format!("two jobs measured {metric}: one of them is {job}") });
            }
        }
    }
    Ok(Some(all))
}

/// The seed is a function of the promotion, so that every evaluation of it resamples alike. 48 bits:
/// every JSON reader takes it exactly.
fn bootstrap_seed(promotion_id: i64) -> u64 {
    let digest = Sha256::digest(format!("promotion:{promotion_id}"));
    digest.iter().take(6).fold(0, |seed, byte| seed << 8 | u64::from(*byte))
}

/// Lets faults decide before the checks do: they come first and make the whole gate an error.
pub(super) fn with_faults(mut outcome: GateOutcome, faults: &[Fault]) -> GateOutcome {
    if let Some(first) = faults.first() {
        outcome.verdict = Verdict::Error;
        outcome.reason = format!("{}: {}", first.name, first.reason);
        let checks = faults.iter().map(|fault| CheckResult {
            name: fault.name.to_owned(),
            kind: fault.name.to_owned(),
            verdict: Verdict::Error,
            value: None,
            limit: None,
            unit: String::new(),
            interval: None,
            direction: None,
            reason: fault.reason.clone(),
            details: BTreeMap::new(),
        });
        outcome.checks.splice(0..0, checks);
    }
    outcome
}

#[cfg(test)]
mod tests {
    use sluice_domain::{evidence::BenchmarkMetric, state::Direction};

    use super::*;

    fn onnx(sha256: &str) -> OnnxEvidence {
        OnnxEvidence {
            sha256: sha256.to_owned(),
            bytes: 1,
            opset: 20,
            uri: String::new(),
            inputs: vec![],
            outputs: vec![],
            parity: vec![],
            latency: vec![],
            runtime: String::new(),
            provider: String::new(),
        }
    }

    fn file(path: &str, sha256: &str) -> gate_input::OutputFile {
        gate_input::OutputFile { path: path.to_owned(), uri: format!("mlflow-artifacts:/0/{path}"), sha256: sha256.to_owned() }
    }

    fn benchmark(champion_version: Option<i32>, metric: &str) -> BenchmarkEvidence {
        let samples = BenchmarkMetric { direction: Direction::Lower, candidate: vec![], champion: vec![] };
        BenchmarkEvidence { metrics: BTreeMap::from([(metric.to_owned(), samples)]), champion_version, environment: BTreeMap::new() }
    }

    #[test]
    fn evidence_about_other_bytes_than_the_uploaded_ones_is_a_fault() {
        let mut measured = onnx("aa");
        let artifact = bind(&mut measured, "export", "onnx", &[file("model.onnx", "aa")]).unwrap();
        assert_eq!(measured.uri, "mlflow-artifacts:/0/model.onnx");
        assert_eq!(artifact.sha256, "aa");
        let fault = bind(&mut measured, "export", "onnx", &[file("model.onnx", "bb")]).unwrap_err();
        assert!(fault.reason.starts_with("digest mismatch"), "{}", fault.reason);
    }

    #[test]
    fn the_onnx_file_must_be_the_only_one() {
        let bind = |files: &[gate_input::OutputFile]| bind(&mut onnx("aa"), "export", "onnx", files);
        assert!(bind(&[]).is_err());
        assert!(bind(&[file("a.onnx", "aa"), file("b.onnx", "bb")]).is_err());
        assert!(bind(&[file("a.onnx", "aa"), file("report.json", "bb")]).is_ok());
    }

    #[test]
    fn benchmarks_add_up_only_when_they_agree() {
        assert_eq!(merge(vec![]).unwrap(), None);
        let both = merge(vec![("a".into(), benchmark(Some(1), "x")), ("b".into(), benchmark(Some(1), "y"))]).unwrap().unwrap();
        assert_eq!(both.metrics.len(), 2);
        assert!(merge(vec![("a".into(), benchmark(Some(1), "x")), ("b".into(), benchmark(Some(2), "y"))]).is_err());
        assert!(merge(vec![("a".into(), benchmark(Some(1), "x")), ("b".into(), benchmark(Some(1), "x"))]).is_err());
    }

    #[test]
    fn a_fault_makes_a_passing_gate_an_error() {
        let passed = GateOutcome { verdict: Verdict::Pass, checks: vec![], reason: "all passed".to_owned() };
        let judged = with_faults(passed, &[Fault { name: "artifact", reason: "gone".to_owned() }]);
        assert_eq!(judged.verdict, Verdict::Error);
        assert_eq!(judged.checks.len(), 1);
        assert_eq!(judged.reason, "artifact: gone");
    }

    #[test]
    fn the_seed_depends_on_the_promotion_alone() {
        assert_eq!(bootstrap_seed(7), bootstrap_seed(7));
        assert_ne!(bootstrap_seed(7), bootstrap_seed(8));
        assert!(bootstrap_seed(7) < 1 << 48);
    }
}
