use sluice_domain::{
    gate::{CheckSpec, NonInferiorityTest},
    plan::{JobOutput, Work},
    state::{Direction, JobKind},
};

use super::*;

pub(crate) const EXAMPLE: &str = include_str!("../../examples/sluice.yml");
pub(crate) const EXAMPLE_GATE: &str = include_str!("../../examples/champion.yml");

fn example_files(path: &str) -> Option<String> {
    (path == "gates/champion.yml").then(|| EXAMPLE_GATE.to_owned())
}

fn errors(source: &str) -> Vec<FileError> {
    plan(source, "demo", &example_files).unwrap_err()
}

#[test]
fn the_example_becomes_the_plan() {
    let pipeline = plan(EXAMPLE, "demo", &example_files).unwrap();
    assert!(pipeline.runs_on_branch("main") && pipeline.runs_on_branch("exp/a/b") && !pipeline.runs_on_branch("dev"));
    let names: Vec<&str> = pipeline.plan.jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["train", "export", "export-tensorrt", "bench"]);

    let train = &pipeline.plan.jobs[0];
    assert_eq!(train.experiment, "digits");
    assert_eq!(train.setup.as_deref(), Some("pip install -r requirements.txt"));
    assert_eq!((train.env["A"].as_str(), train.resources.cpus, train.timeout_secs), ("b", 2, Some(1200)));
    assert_eq!(
        train.work,
        Work::Torchrun { processes: 2, script: "train.py".to_owned(), args: vec!["--epochs".to_owned(), "30".to_owned()] }
    );

    let model = JobOutput { job: "train".to_owned(), output: "model".to_owned() };
    let Work::ExportOnnx(onnx) = &pipeline.plan.jobs[1].work else { panic!() };
    assert_eq!((&onnx.from, onnx.opset, &onnx.parity_batches, &onnx.latency_batches), (&model, 20, &vec![1, 3, 8, 17], &vec![1, 32]));
    assert_eq!(pipeline.plan.jobs[1].experiment, "demo");
    assert_eq!(pipeline.plan.jobs[1].outputs["onnx"], jobs::ONNX_OUTPUT.1);
    assert_eq!(pipeline.plan.jobs[1].timeout_secs, Some(3600));

    let tensorrt = &pipeline.plan.jobs[2];
    let Work::ExportTensorrt(spec) = &tensorrt.work else { panic!() };
    assert_eq!(spec.from, JobOutput { job: "export".to_owned(), output: "onnx".to_owned() });
    assert_eq!((&tensorrt.requires[..], &tensorrt.needs[..]), (&["tensorrt".to_owned()][..], &["export".to_owned()][..]));

    let Work::Benchmark(bench) = &pipeline.plan.jobs[3].work else { panic!() };
    assert_eq!((bench.repeats, bench.metrics["accuracy"], bench.metrics["latency_ms"]), (5, Direction::Higher, Direction::Lower));
    let against = bench.against.as_ref().unwrap();
    assert_eq!((against.model.as_str(), against.alias.as_str()), ("digits", "champion"));

    let promote = pipeline.plan.promote.unwrap();
    assert_eq!((promote.from, &promote.needs[..]), (model, &["train".to_owned(), "export".to_owned(), "bench".to_owned()][..]));
    assert!(matches!(&promote.policy.checks[1], CheckSpec::NonInferiority { test: NonInferiorityTest::Welch, .. }));
    assert_eq!(pipeline.plan.deploy.unwrap().to, "production");
}

/// The demo project's own files, with comments, exponents and flow style.
#[test]
fn the_demo_project_is_valid() {
    let gate = include_str!("../../../demo/project/gates/champion.yml");
    let read = |path: &str| (path == "gates/champion.yml").then(|| gate.to_owned());
    let pipeline = plan(include_str!("../../../demo/project/.sluice.yml"), "digits", &read).unwrap();
    assert!(pipeline.plan.promote.unwrap().policy.checks.contains(&CheckSpec::OnnxParity { atol: 1e-4, rtol: 1e-3 }));
}

#[test]
fn sources_have_defaults_and_names_may_hold_dots() {
    let source = "version: 1\njobs:\n  a.b: {run: x, outputs: {model: m}}\n  e: {needs: [a.b], export: {onnx: {}}}\n  t: {needs: [e], export: {tensorrt: {}}}\n  x: {needs: [a.b], export: {onnx: {from: a.b}}}\n";
    let pipeline = plan(source, "demo", &|_| None).unwrap();
    for i in [1, 3] {
        let Work::ExportOnnx(spec) = &pipeline.plan.jobs[i].work else { panic!() };
        assert_eq!((spec.from.job.as_str(), spec.from.output.as_str()), ("a.b", "model"));
    }
    let Work::ExportTensorrt(spec) = &pipeline.plan.jobs[2].work else { panic!() };
    assert_eq!((spec.from.job.as_str(), spec.from.output.as_str()), ("e", "onnx"));
    assert!(pipeline.runs_on_branch("anything/at/all"));
    assert_eq!(pipeline.plan.jobs[0].work.kind(), JobKind::Run);
}

/// (pipeline file, field of the error, its line, part of its message)
pub(crate) const BAD: &[(&str, &str, u32, &str)] = &[
    ("version: 1\njobs: [1, 2", "", 2, ""),
    ("version: 2\njobs:\n  a: {run: x}\n", "version", 1, "from 1 to 1"),
    ("jobs:\n  a: {run: x}\n", "version", 1, "is missing"),
    ("version: 1\n", "jobs", 1, "is missing"),
    ("version: 1\njobs: {}\n", "jobs", 2, "1 to 100"),
    ("version: 1\njob:\n  a: {run: x}\n", "job", 2, "did you mean \"jobs\""),
    ("version: 1\njobs:\n  a:\n    run: x\n    tiemout: 5m\n", "jobs.a.tiemout", 5, "did you mean \"timeout\""),
    ("version: 1\njobs:\n  a:\n    run: x\n    timeout: soon\n", "jobs.a.timeout", 5, "none, or a whole number"),
    ("version: 1\njobs:\n  a:\n    run: x\n    timeout: 90\n", "jobs.a.timeout", 5, "s, m or h"),
    ("version: 1\njobs:\n  a:\n    run: 7\n", "jobs.a.run", 4, "must be a string, not a number"),
    ("version: 1\njobs:\n  a:\n    run: \"\"\n", "jobs.a.run", 4, "must not be empty"),
    ("version: 1\njobs:\n  a:\n    run: \"a\\0b\"\n", "jobs.a.run", 4, "NUL"),
    ("version: 1\njobs:\n  a: {env: {A: b}}\n", "jobs.a", 3, "exactly one of run, launch, benchmark, export; it has none"),
    ("version: 1\njobs:\n  a:\n    run: x\n    launch: {with: torchrun, script: t.py}\n", "jobs.a", 3, "it has run and launch"),
    ("version: 1\njobs:\n  a b: {run: x}\n", "jobs.a b", 3, "job name"),
    ("version: 1\njobs:\n  a: {run: x}\n  a: {run: y}\n", "", 4, ""),
    ("version: 1\njobs:\n  a:\n    run: x\n    needs: [b]\n", "jobs.a.needs[0]", 5, "there is no job \"b\""),
    ("version: 1\njobs:\n  a:\n    run: x\n    needs: [a]\n", "jobs.a.needs[0]", 5, "cannot need itself"),
    ("version: 1\njobs:\n  a: {run: x}\n  b: {run: x, needs: [a, a]}\n", "jobs.b.needs[1]", 4, "twice"),
    (
        "version: 1\njobs:\n  a: {run: x, needs: [c]}\n  b: {run: x, needs: [a]}\n  c: {run: x, needs: [b]}\n",
        "jobs.a.needs",
        3,
        "a → c → b → a",
    ),
    ("version: 1\njobs:\n  a:\n    run: x\n    needs: b\n", "jobs.a.needs", 5, "must be a list"),
    ("version: 1\njobs:\n  a:\n    run: x\n    resources: {cpus: 0}\n", "jobs.a.resources.cpus", 5, "from 1 to 256"),
    ("version: 1\njobs:\n  a:\n    run: x\n    resources: {gpus: 1}\n", "jobs.a.resources.gpus", 5, "unknown field"),
    ("version: 1\njobs:\n  a:\n    run: x\n    outputs: {model: ../x}\n", "jobs.a.outputs.model", 5, "relative"),
    ("version: 1\njobs:\n  a:\n    run: x\n    outputs: {model: /etc/passwd}\n", "jobs.a.outputs.model", 5, "relative"),
    ("version: 1\njobs:\n  a:\n    run: x\n    env: {1A: b}\n", "jobs.a.env.1A", 5, "environment variable name"),
    ("version: 1\njobs:\n  a:\n    run: x\n    env: {MLFLOW_RUN_ID: b}\n", "jobs.a.env.MLFLOW_RUN_ID", 5, "set by Sluice"),
    ("version: 1\njobs:\n  a:\n    run: x\n    env: {A: [b]}\n", "jobs.a.env.A", 5, "a string or number"),
    ("version: 1\nenv: {A: \"x\\0\"}\njobs:\n  a: {run: x}\n", "env.A", 2, "NUL"),
    ("version: 1\njobs:\n  a:\n    launch: {with: mpirun, script: t.py}\n", "jobs.a.launch.with", 4, "one of torchrun"),
    ("version: 1\njobs:\n  a:\n    launch: {with: torchrun, processes: 65, script: t.py}\n", "jobs.a.launch.processes", 4, "from 1 to 64"),
    ("version: 1\njobs:\n  a:\n    launch: {with: torchrun, script: ../t.py}\n", "jobs.a.launch.script", 4, "relative"),
    ("version: 1\njobs:\n  a:\n    launch: {with: torchrun}\n", "jobs.a.launch.script", 4, "is missing"),
    (
        "version: 1\njobs:\n  a:\n    benchmark: {command: x, repeats: 101, metrics: {m: lower}}\n",
        "jobs.a.benchmark.repeats",
        4,
        "from 1 to 100",
    ),
    ("version: 1\njobs:\n  a:\n    benchmark: {command: x, metrics: {m: down}}\n", "jobs.a.benchmark.metrics.m", 4, "one of higher, lower"),
    ("version: 1\njobs:\n  a:\n    benchmark: {command: x, metrics: {}}\n", "jobs.a.benchmark.metrics", 4, "1 to 100"),
    (
        "version: 1\njobs:\n  a:\n    benchmark: {command: x, against: champion, metrics: {m: lower}}\n",
        "jobs.a.benchmark.against",
        4,
        "no promote part",
    ),
    (
        "version: 1\njobs:\n  a: {run: x}\n  e:\n    needs: [a]\n    export: {onnx: {}}\n",
        "jobs.e.export.onnx.from",
        6,
        "an output \"model\"",
    ),
    (
        "version: 1\njobs:\n  a: {run: x, outputs: {w: w}}\n  e:\n    needs: [a]\n    export: {onnx: {from: a.model}}\n",
        "jobs.e.export.onnx.from",
        6,
        "it has w",
    ),
    (
        "version: 1\njobs:\n  a: {run: x, outputs: {model: w}}\n  e:\n    export: {onnx: {from: a.model}}\n",
        "jobs.e.export.onnx.from",
        5,
        "must be in the needs",
    ),
    (
        "version: 1\njobs:\n  a: {run: x, outputs: {model: w}}\n  e: {needs: [a], export: {}}\n",
        "jobs.e.export",
        4,
        "onnx, tensorrt or both",
    ),
    (
        "version: 1\njobs:\n  a: {run: x, outputs: {model: w}}\n  e: {needs: [a], export: {onnx: {parity_batches: [1, 5000]}}}\n",
        "jobs.e.export.onnx.parity_batches[1]",
        4,
        "from 1 to 4096",
    ),
    (
        "version: 1\njobs:\n  a: {run: x, outputs: {model: w}}\n  e: {needs: [a], export: {onnx: {dynamic: [height]}}}\n",
        "jobs.e.export.onnx.dynamic[0]",
        4,
        "one of batch",
    ),
    (
        "version: 1\njobs:\n  a: {run: x, outputs: {model: w}}\n  e: {needs: [a], export: {tensorrt: {precision: fp4}}}\n",
        "jobs.e.export.tensorrt.precision",
        4,
        "fp32, fp16",
    ),
    ("version: 1\non: {push: {branches: [\"a b\"]}}\njobs:\n  a: {run: x}\n", "on.push.branches[0]", 2, "branch pattern"),
    ("version: 1\non: {schedule: daily}\njobs:\n  a: {run: x}\n", "on.schedule", 2, "unknown field"),
    (
        "version: 1\njobs:\n  a: {run: x, outputs: {model: w}}\npromote: {model: m, alias: champion, from: a.model, gate: nowhere.yml}\n",
        "promote.gate",
        4,
        "does not exist",
    ),
    (
        "version: 1\njobs:\n  a: {run: x, outputs: {model: w}}\npromote: {model: m, alias: v1, from: b.model, gate: ../g}\n",
        "promote.alias",
        4,
        "neither latest",
    ),
    ("version: 1\njobs:\n  a: {run: x}\ndeploy: {alias: champion, to: production}\n", "deploy", 4, "promote part"),
];

#[test]
fn bad_files_name_field_and_line() {
    for (source, field, line, part) in BAD {
        let found = errors(source);
        let hit = found.iter().find(|e| e.field == *field && e.line == Some(*line) && e.message.contains(part));
        assert!(hit.is_some(), "{source}\nwanted {field:?} line {line} {part:?}, got {found:#?}");
        assert!(found.iter().all(|e| e.column.is_some() && e.snippet.contains('^') && !e.message.is_empty()), "{found:#?}");
        assert_eq!(found.len(), if field == &"promote.alias" { 3 } else { 1 + usize::from(field == &"job") }, "{source}\n{found:#?}");
    }
}

#[test]
fn gate_and_jobs_must_fit() {
    let bench = EXAMPLE.replace("accuracy: higher, ", "");
    let found = errors(&bench);
    assert_eq!((found.len(), found[0].field.as_str()), (1, "promote.gate"), "{found:#?}");
    assert!(found[0].message.contains("\"accuracy\", which no benchmark job measures"), "{found:#?}");

    let found = errors(&EXAMPLE.replace("latency_batches: [1, 32]", "latency_batches: [64]"));
    assert!(found[0].message.contains("not among the export's latency_batches [64]"), "{found:#?}");

    let found = errors(&EXAMPLE.replace("from: train.model, gate", "from: train.seeds, gate"));
    assert!(found.iter().any(|e| e.field == "promote.from" && e.message.contains("another model")), "{found:#?}");

    let found = errors(&EXAMPLE.replace("deploy: { alias: champion", "deploy: { alias: staging"));
    assert_eq!((found.len(), found[0].field.as_str()), (1, "deploy.alias"), "{found:#?}");
}

#[test]
fn errors_of_the_gate_file_name_that_file() {
    let found =
        plan(EXAMPLE, "demo", &|_| Some("checks:\n  - onnx_parity: {atol: 0, rtol: .nan}\n  - nonsense: {}\n".to_owned())).unwrap_err();
    let seen: Vec<(&str, &str, Option<u32>)> = found.iter().map(|e| (e.file.as_str(), e.field.as_str(), e.line)).collect();
    let file = "gates/champion.yml";
    assert_eq!(
        seen,
        [
            (file, "checks[0].onnx_parity.atol", Some(2)),
            (file, "checks[0].onnx_parity.rtol", Some(2)),
            (file, "checks[1].nonsense", Some(3)),
        ]
    );
}

/// (gate file, field of the error, its line)
pub(crate) const BAD_GATES: &[(&str, &str, u32)] = &[
    ("checks: []\n", "checks", 1),
    ("check: []\n", "check", 1),
    ("checks:\n  - metric_threshold: {metric: a}\n", "checks[0].metric_threshold", 2),
    ("checks:\n  - metric_threshold: {min: 1}\n", "checks[0].metric_threshold.metric", 2),
    ("checks:\n  - metric_threshold: {metric: a, min: .inf}\n", "checks[0].metric_threshold.min", 2),
    ("checks:\n  - metric_threshold: {metric: a, min: 2, max: 1}\n", "checks[0].metric_threshold.max", 2),
    ("checks:\n  - metric_threshold: {metric: a, min: 1}\n    latency_budget: {}\n", "checks[0]", 2),
    ("checks:\n  - non_inferiority: {metric: a, test: t, margin: 1}\n", "checks[0].non_inferiority.test", 2),
    ("checks:\n  - non_inferiority: {metric: a, test: welch, margin: 0}\n", "checks[0].non_inferiority.margin", 2),
    ("checks:\n  - non_inferiority: {metric: a, test: ratio_of_medians, margin: 5}\n", "checks[0].non_inferiority.margin", 2),
    ("checks:\n  - latency_budget: {batch: 1, quantile: 0.999, max_ms: 1}\n", "checks[0].latency_budget.quantile", 2),
    ("checks:\n  - latency_budget: {batch: 0, quantile: 0.5, max_ms: 1}\n", "checks[0].latency_budget.batch", 2),
    ("checks:\n  - latency_budget: {batch: 1, quantile: 0.5, max_ms: fast}\n", "checks[0].latency_budget.max_ms", 2),
];

#[test]
fn bad_gate_files_name_field_and_line() {
    for (source, field, line) in BAD_GATES {
        let found = crate::gate_file::policy("g.yml", source).unwrap_err();
        assert!(found.iter().any(|e| e.field == *field && e.line == Some(*line)), "{source}: {found:#?}");
    }
}

proptest::proptest! {
    /// Jobs that need only jobs with smaller numbers, written in any order, come out in an order that respects needs.
    #[test]
    fn plans_are_topological(edges in proptest::collection::vec((0usize..20, 0usize..20), 0..60), shift in 0usize..20) {
        let mut source = "version: 1\njobs:\n".to_owned();
        for i in 0..20 {
            let job = (i * 7 + shift) % 20;
            let mut needs: Vec<String> = edges.iter().filter(|(a, b)| a.max(b) == &job && a != b).map(|(a, b)| format!("j{}", a.min(b))).collect();
            needs.sort();
            needs.dedup();
            source.push_str(&format!("  j{job}: {{run: x, needs: [{}]}}\n", needs.join(", ")));
        }
        let pipeline = plan(&source, "demo", &|_| None).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for job in &pipeline.plan.jobs {
            proptest::prop_assert!(job.needs.iter().all(|need| seen.contains(need)));
            seen.insert(job.name.clone());
        }
        proptest::prop_assert_eq!(seen.len(), 20);
    }

    /// No text makes the reader panic.
    #[test]
    fn any_text_is_answered(text in "[a-z:{}\\[\\], \n*&!'\"0-9-]{0,200}") {
        let _ = plan(&text, "demo", &|_| None);
        let _ = crate::gate_file::policy("g", &text);
    }
}
