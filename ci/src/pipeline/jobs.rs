//! The `jobs` part. Read in two passes: first each job by itself, then what refers to other jobs.

use std::collections::BTreeMap;

use sluice_domain::{
    names::{check_relative_path, check_slug},
    plan::{BenchmarkSpec, JobOutput, JobSpec, ModelAlias, OnnxExportSpec, Resources, TensorrtExportSpec, Work},
    state::Direction,
};

use super::{Defaults, MAX_JOBS, fields};
use crate::{
    keys,
    reader::{Object, Report, Spot},
    yaml::{Mark, Value},
};

/// Output of an ONNX export job, and the file that the exporter writes it to.
pub const ONNX_OUTPUT: (&str, &str) = ("onnx", "sluice-export/model.onnx");
/// Output of a TensorRT export job, and the file that the exporter writes it to.
pub const ENGINE_OUTPUT: (&str, &str) = ("engine", "sluice-export/model.plan");

const MODEL_OUTPUT: &str = "model";
const MAX_BATCH: u32 = 4096;
const PRECISIONS: &[&str] = &["fp32", "fp16", "bf16", "int8", "fp8"];

/// A job before its references to other jobs are resolved.
#[derive(Clone)]
pub(super) struct Draft<'n> {
    pub name: String,
    pub spot: Spot<'n>,
    pub needs: Vec<(String, Spot<'n>)>,
    pub needs_at: Option<Mark>,
    pub outputs: BTreeMap<String, String>,
    experiment: String,
    setup: Option<String>,
    env: BTreeMap<String, String>,
    cpus: u32,
    timeout_secs: Option<u64>,
    work: Option<DraftWork<'n>>,
}

#[derive(Clone)]
enum DraftWork<'n> {
    Ready(Work),
    Benchmark { spec: BenchmarkSpec, against: Option<Spot<'n>> },
    Onnx { spec: OnnxExportSpec, spot: Spot<'n>, from: Option<Spot<'n>> },
    Tensorrt { spec: TensorrtExportSpec, spot: Spot<'n>, from: Option<Spot<'n>> },
}

/// First pass over all jobs. An export of both kinds becomes two drafts.
pub(super) fn read_all<'n>(jobs: &Spot<'n>, defaults: &Defaults<'_>, report: &mut Report<'_>) -> Vec<Draft<'n>> {
    let mut drafts: Vec<Draft<'n>> = Vec::new();
    for (name, spot) in jobs.entries(report, 1, MAX_JOBS).unwrap_or_default() {
        if let Err(message) = check_slug(name, 60, "job name") {
            report.push(spot.key_at, &spot.path, message);
            continue;
        }
        let Some(object) = spot.object(report, keys::JOB) else { continue };
        for draft in read_job(name, &object, defaults, report) {
            if let Some(other) = drafts.iter().find(|d| d.name == draft.name) {
                let message = format!("the name {:?} is also that of the TensorRT part of an export", other.name);
                report.push(spot.key_at, &spot.path, message);
            } else {
                drafts.push(draft);
            }
        }
    }
    drafts
}

fn read_job<'n>(name: &str, object: &Object<'n>, defaults: &Defaults<'_>, report: &mut Report<'_>) -> Vec<Draft<'n>> {
    let needs_spot = object.get("needs");
    let mut needs = Vec::new();
    for item in needs_spot.as_ref().and_then(|spot| spot.list(report, 0, MAX_JOBS)).unwrap_or_default() {
        if let Some(needed) = item.text(report, 100) {
            needs.push((needed, item));
        }
    }
    let check_experiment = |text: &str| fields::check_label(text, 250, "experiment name");
    let mut env = defaults.env.clone();
    if let Some(own) = object.get("env") {
        env.extend(fields::environment(&own, report));
    }
    let setup = match object.get("setup") {
        Some(own) => own.text(report, fields::MAX_COMMAND),
        None => defaults.setup.clone(),
    };
    let cpus = object.get("resources").and_then(|r| r.object(report, keys::RESOURCES)).and_then(|r| r.get("cpus"));
    let base = Draft {
        name: name.to_owned(),
        spot: object.spot.clone(),
        needs,
        needs_at: needs_spot.map(|spot| spot.key_at),
        outputs: object.get("outputs").map(|outputs| fields::outputs(&outputs, report)).unwrap_or_default(),
        experiment: object
            .get("experiment")
            .and_then(|spot| spot.checked(report, check_experiment))
            .unwrap_or_else(|| defaults.experiment.to_owned()),
        setup,
        env,
        cpus: cpus.and_then(|spot| spot.integer(report, 1..=256)).unwrap_or(1),
        timeout_secs: fields::timeout(object.get("timeout"), report),
        work: None,
    };
    read_work(base, object, report)
}

fn read_work<'n>(base: Draft<'n>, object: &Object<'n>, report: &mut Report<'_>) -> Vec<Draft<'n>> {
    const KINDS: &[&str] = &["run", "launch", "benchmark", "export"];
    let given: Vec<&str> = KINDS.iter().copied().filter(|kind| object.get(kind).is_some()).collect();
    let [kind] = given[..] else {
        let what = if given.is_empty() { "none".to_owned() } else { given.join(" and ") };
        report.push(object.spot.key_at, &object.spot.path, format!("must have exactly one of {}; it has {what}", KINDS.join(", ")));
        return vec![base];
    };
    let Some(spot) = object.get(kind) else { return vec![base] };
    let with = |work: Option<DraftWork<'n>>| vec![Draft { work, ..base.clone() }];
    match kind {
        "run" => {
            let command = spot.text(report, fields::MAX_COMMAND);
            with(command.map(|command| DraftWork::Ready(Work::Run { command })))
        }
        "launch" => with(read_launch(&spot, report).map(DraftWork::Ready)),
        "benchmark" => with(read_benchmark(&spot, report)),
        _ => read_export(base, object, &spot, report),
    }
}

fn read_launch(spot: &Spot<'_>, report: &mut Report<'_>) -> Option<Work> {
    let object = spot.object(report, keys::LAUNCH)?;
    let with = object.require(report, "with").and_then(|with| with.checked(report, |text| one_of(text, &["torchrun"])));
    let processes = match object.get("processes") {
        Some(processes) => processes.integer(report, 1..=64),
        None => Some(1),
    };
    let script = object.require(report, "script").and_then(|script| script.checked(report, check_relative_path));
    let mut args = Vec::new();
    for item in object.get("args").and_then(|list| list.list(report, 0, 1000)).unwrap_or_default() {
        args.extend(item.scalar(report, 32 * 1024));
    }
    with?;
    Some(Work::Torchrun { processes: processes?, script: script?, args })
}

fn one_of(text: &str, allowed: &[&str]) -> Result<(), String> {
    if allowed.contains(&text) { Ok(()) } else { Err(format!("is {text:?}; it must be one of {}", allowed.join(", "))) }
}

fn read_benchmark<'n>(spot: &Spot<'n>, report: &mut Report<'_>) -> Option<DraftWork<'n>> {
    let object = spot.object(report, keys::BENCHMARK)?;
    let command = object.require(report, "command").and_then(|command| command.text(report, fields::MAX_COMMAND));
    let repeats = match object.get("repeats") {
        Some(repeats) => repeats.integer(report, 1..=100),
        None => Some(5),
    };
    let mut metrics = BTreeMap::new();
    for (name, value) in object.require(report, "metrics").and_then(|m| m.entries(report, 1, 100)).unwrap_or_default() {
        if let Err(message) = fields::check_label(name, 250, "metric name") {
            report.push(value.key_at, &value.path, message);
        } else if let Some(text) = value.checked(report, |text| one_of(text, &["higher", "lower"])) {
            metrics.insert(name.to_owned(), if text == "higher" { Direction::Higher } else { Direction::Lower });
        }
    }
    let spec = BenchmarkSpec { command: command?, against: None, repeats: repeats?, metrics };
    Some(DraftWork::Benchmark { spec, against: object.get("against") })
}

fn read_export<'n>(base: Draft<'n>, job: &Object<'n>, spot: &Spot<'n>, report: &mut Report<'_>) -> Vec<Draft<'n>> {
    let Some(object) = spot.object(report, keys::EXPORT) else { return vec![base] };
    if let Some(outputs) = job.get("outputs") {
        report.push(outputs.key_at, &outputs.path, "an export job has no outputs of its own: they are onnx and engine");
    }
    let with_output = |draft: &Draft<'n>, (name, path): (&str, &str), work: Option<DraftWork<'n>>| Draft {
        outputs: BTreeMap::from([(name.to_owned(), path.to_owned())]),
        work,
        ..draft.clone()
    };
    let mut drafts = Vec::new();
    if let Some(onnx) = object.get("onnx") {
        drafts.push(with_output(&base, ONNX_OUTPUT, read_onnx(&onnx, report)));
    }
    if let Some(tensorrt) = object.get("tensorrt") {
        let mut draft = with_output(&base, ENGINE_OUTPUT, read_tensorrt(&tensorrt, report));
        if object.get("onnx").is_some() {
            draft.name = format!("{}-tensorrt", base.name);
            draft.needs = vec![(base.name.clone(), tensorrt)];
        }
        drafts.push(draft);
    }
    if drafts.is_empty() {
        spot.fail(report, "must have onnx, tensorrt or both");
        drafts.push(base);
    }
    drafts
}

fn read_onnx<'n>(spot: &Spot<'n>, report: &mut Report<'_>) -> Option<DraftWork<'n>> {
    let object = spot.object(report, keys::ONNX)?;
    let opset = match object.get("opset") {
        Some(opset) => opset.integer(report, 13..=25),
        None => Some(20),
    };
    let mut dynamic = Vec::new();
    for item in object.get("dynamic").and_then(|list| list.list(report, 0, 1)).unwrap_or_default() {
        dynamic.extend(item.checked(report, |text| one_of(text, &["batch"])));
    }
    let spec = OnnxExportSpec {
        from: JobOutput { job: String::new(), output: String::new() },
        opset: opset?,
        dynamic,
        parity_batches: batches(object.get("parity_batches"), &[1, 3, 8, 17], report),
        latency_batches: batches(object.get("latency_batches"), &[1, 32], report),
        output: ONNX_OUTPUT.0.to_owned(),
    };
    Some(DraftWork::Onnx { spec, spot: spot.clone(), from: object.get("from") })
}

fn batches(spot: Option<Spot<'_>>, default: &[u32], report: &mut Report<'_>) -> Vec<u32> {
    let Some(spot) = spot else { return default.to_vec() };
    let mut sizes = Vec::new();
    for item in spot.list(report, 1, 16).unwrap_or_default() {
        match item.integer(report, 1..=MAX_BATCH) {
            Some(size) if sizes.contains(&size) => item.fail(report, format!("names the batch size {size} twice")),
            Some(size) => sizes.push(size),
            None => {}
        }
    }
    sizes
}

fn read_tensorrt<'n>(spot: &Spot<'n>, report: &mut Report<'_>) -> Option<DraftWork<'n>> {
    let object = spot.object(report, keys::TENSORRT)?;
    let precision = match object.get("precision") {
        Some(precision) => precision.checked(report, |text| one_of(text, PRECISIONS)),
        None => Some("fp16".to_owned()),
    };
    let spec = TensorrtExportSpec { from: JobOutput { job: String::new(), output: String::new() }, precision: precision? };
    Some(DraftWork::Tensorrt { spec, spot: spot.clone(), from: object.get("from") })
}

/// Second pass: jobs in the given order, with references resolved. `model` is `promote.model`.
pub(super) fn resolve_all(drafts: &[Draft<'_>], order: &[usize], model: Option<&str>, report: &mut Report<'_>) -> Vec<JobSpec> {
    let mut jobs = Vec::with_capacity(drafts.len());
    for &i in order {
        let draft = &drafts[i];
        let Some(work) = resolve_work(draft, drafts, model, report) else { continue };
        let requires = if matches!(work, Work::ExportTensorrt(_)) { vec!["tensorrt".to_owned()] } else { Vec::new() };
        jobs.push(JobSpec {
            name: draft.name.clone(),
            needs: draft.needs.iter().map(|(name, _)| name.clone()).collect(),
            experiment: draft.experiment.clone(),
            setup: draft.setup.clone(),
            env: draft.env.clone(),
            work,
            resources: Resources { cpus: draft.cpus },
            timeout_secs: draft.timeout_secs,
            outputs: draft.outputs.clone(),
            requires,
        });
    }
    jobs
}

fn resolve_work(draft: &Draft<'_>, drafts: &[Draft<'_>], model: Option<&str>, report: &mut Report<'_>) -> Option<Work> {
    match draft.work.clone()? {
        DraftWork::Ready(work) => Some(work),
        DraftWork::Benchmark { spec, against } => {
            let against = match against {
                Some(spot) => Some(read_against(&spot, model, report)?),
                None => None,
            };
            Some(Work::Benchmark(BenchmarkSpec { against, ..spec }))
        }
        DraftWork::Onnx { spec, spot, from } => {
            let from = resolve_source(draft, drafts, &spot, from.as_ref(), MODEL_OUTPUT, report)?;
            Some(Work::ExportOnnx(OnnxExportSpec { from, ..spec }))
        }
        DraftWork::Tensorrt { spec, spot, from } => {
            let from = resolve_source(draft, drafts, &spot, from.as_ref(), ONNX_OUTPUT.0, report)?;
            Some(Work::ExportTensorrt(TensorrtExportSpec { from, ..spec }))
        }
    }
}

fn read_against(spot: &Spot<'_>, model: Option<&str>, report: &mut Report<'_>) -> Option<ModelAlias> {
    if let Value::Map(_) = spot.node.value {
        let object = spot.object(report, keys::AGAINST)?;
        let model = object.require(report, "model").and_then(|m| m.checked(report, fields::check_model_name));
        let alias = object.require(report, "alias").and_then(|a| a.checked(report, fields::check_alias));
        return Some(ModelAlias { model: model?, alias: alias? });
    }
    let alias = spot.checked(report, fields::check_alias)?;
    let Some(model) = model else {
        spot.fail(report, "names an alias of promote.model, and there is no promote part: write {model: NAME, alias: NAME}");
        return None;
    };
    Some(ModelAlias { model: model.to_owned(), alias })
}

/// The output that an export reads: as given, or the output of a usual name of the only needed job.
fn resolve_source(
    draft: &Draft<'_>,
    drafts: &[Draft<'_>],
    part: &Spot<'_>,
    from: Option<&Spot<'_>>,
    usual: &str,
    report: &mut Report<'_>,
) -> Option<JobOutput> {
    let Some(from) = from else {
        let only = match &draft.needs[..] {
            [(name, _)] => drafts.iter().find(|other| other.name == *name),
            _ => None,
        };
        if let Some(job) = only.filter(|job| job.outputs.contains_key(usual)) {
            return Some(JobOutput { job: job.name.clone(), output: usual.to_owned() });
        }
        let message = format!("is missing: it can be left out only when the job needs exactly one job, which has an output {usual:?}");
        report.push(part.key_at, &format!("{}.from", part.path), message);
        return None;
    };
    let source = resolve_output(from, drafts, usual, report)?;
    if !draft.needs.iter().any(|(name, _)| *name == source.job) {
        from.fail(report, format!("job {:?} must be in the needs of job {:?}", source.job, draft.name));
        return None;
    }
    Some(source)
}

/// Resolves `JOB.OUTPUT`, or `JOB` for its output of the usual name. Names may hold dots, so every split is tried.
pub(super) fn resolve_output(spot: &Spot<'_>, drafts: &[Draft<'_>], usual: &str, report: &mut Report<'_>) -> Option<JobOutput> {
    let text = spot.text(report, 200)?;
    let splits = text.match_indices('.').map(|(dot, _)| (&text[..dot], &text[dot + 1..]));
    let mut job_seen = None;
    for (name, output) in splits.chain([(text.as_str(), usual)]) {
        let Some(job) = drafts.iter().find(|draft| draft.name == name) else { continue };
        if job.outputs.contains_key(output) {
            return Some(JobOutput { job: name.to_owned(), output: output.to_owned() });
        }
        job_seen = job_seen.or(Some((job, output)));
    }
    match job_seen {
        Some((job, output)) if job.outputs.is_empty() => {
            spot.fail(report, format!("is {text:?}, but job {:?} has no output {output:?} (it has none)", job.name));
        }
        Some((job, output)) => {
            let has: Vec<&str> = job.outputs.keys().map(String::as_str).collect();
            spot.fail(report, format!("is {text:?}, but job {:?} has no output {output:?} (it has {})", job.name, has.join(", ")));
        }
        None => spot.fail(report, format!("is {text:?}; it must be JOB.OUTPUT with a job of this file")),
    }
    None
}
