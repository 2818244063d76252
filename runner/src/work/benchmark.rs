//! Benchmarks: candidate and champion measured by the same command, in fresh processes, interleaved so that whatever
//! drifts on the machine meets both alike.

use std::{collections::BTreeMap, ffi::OsString};

use sluice_domain::{
    evidence::{BenchmarkEvidence, BenchmarkMetric, ProcessSample},
    plan::BenchmarkSpec,
};

use super::{bench_result, machine};
use crate::{
    context::Context,
    environment::Environment,
    halt::{Halt, JobResultOf},
    process::Command,
};

/// Longest result file.
const MAX_RESULT_BYTES: u64 = 16 * 1024 * 1024;

/// Whose inputs a process measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Candidate,
    Champion,
}

impl Side {
    /// The value of `$SLUICE_SIDE`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Candidate => "candidate",
            Self::Champion => "champion",
        }
    }
}

/// One process of the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    pub order: u32,
    pub side: Side,
    /// From 0 for each side; also the seed, so that both sides see the same seeds.
    pub repeat: u32,
}

/// The order of the processes: A B B A A B B A …; without a champion, A A A ….
#[must_use]
pub fn schedule(repeats: u32, with_champion: bool) -> Vec<Position> {
    let pair = |repeat: u32| match (with_champion, repeat.is_multiple_of(2)) {
        (false, _) => vec![Side::Candidate],
        (true, true) => vec![Side::Candidate, Side::Champion],
        (true, false) => vec![Side::Champion, Side::Candidate],
    };
    let sides = (0..repeats).flat_map(|repeat| pair(repeat).into_iter().map(move |side| (repeat, side)));
    sides.zip(0..).map(|((repeat, side), order)| Position { order, side, repeat }).collect()
}

impl Context {
    /// Runs every process of the schedule.
    pub async fn benchmark(&self, spec: &BenchmarkSpec, environment: &Environment) -> JobResultOf<BenchmarkEvidence> {
        let champion = self.assignment.champion.as_ref();
        let mut facts = machine::facts();
        facts.extend(machine::load().map(|load| ("load_before".to_owned(), load)));
        facts.insert("python".to_owned(), self.python_version(environment).await?);
        let mut metrics: BTreeMap<String, BenchmarkMetric> = spec
            .metrics
            .iter()
            .map(|(name, direction)| (name.clone(), BenchmarkMetric { direction: *direction, candidate: Vec::new(), champion: Vec::new() }))
            .collect();
        let schedule = schedule(spec.repeats, champion.is_some());
        self.log.line(&format!("sluice: benchmark of {} processes: {}", schedule.len(), spec.command)).await;
        for position in &schedule {
            let values = self.measure(spec, *position, environment).await?;
            self.log.line(&format!("sluice: {}/{} {}", position.order + 1, schedule.len(), describe(*position, &values))).await;
            for (name, values) in values {
                let Some(metric) = metrics.get_mut(&name) else { continue };
                let sample = ProcessSample { order: position.order, seed: position.repeat, values };
                match position.side {
                    Side::Candidate => metric.candidate.push(sample),
                    Side::Champion => metric.champion.push(sample),
                }
            }
        }
        facts.extend(machine::load().map(|load| ("load_after".to_owned(), load)));
        Ok(BenchmarkEvidence { metrics, champion_version: champion.map(|champion| champion.version), environment: facts })
    }

    async fn measure(&self, spec: &BenchmarkSpec, position: Position, environment: &Environment) -> JobResultOf<bench_result::Values> {
        let side = position.side.as_str();
        let result = self.folders.tmp.join(format!("bench-{}.json", position.order));
        let inputs = match position.side {
            Side::Candidate => &self.folders.inputs,
            Side::Champion => &self.folders.champion,
        };
        let mut env = environment.variables.clone();
        let mut set = |name: &str, value: OsString| env.insert(name.to_owned(), value);
        set("SLUICE_SIDE", side.into());
        set("SLUICE_INPUTS", inputs.into());
        set("SLUICE_SEED", position.repeat.to_string().into());
        set("SLUICE_REPEAT", position.repeat.to_string().into());
        set("SLUICE_BENCH_RESULT", result.clone().into());
        let title = format!("benchmark of the {side}, seed {}", position.repeat);
        self.run(&title, self.shell(&spec.command, env)).await?;
        let text = match std::fs::metadata(&result) {
            Ok(file) if file.len() > MAX_RESULT_BYTES => Err(format!("$SLUICE_BENCH_RESULT is larger than {MAX_RESULT_BYTES} bytes")),
            Ok(_) => std::fs::read_to_string(&result).map_err(|error| format!("$SLUICE_BENCH_RESULT: {error}")),
            Err(_) => Err("the command wrote nothing to $SLUICE_BENCH_RESULT".to_owned()),
        };
        text.and_then(|text| bench_result::read(&text, spec.metrics.keys())).map_err(|problem| Halt::user(format!("{title}: {problem}")))
    }

    async fn python_version(&self, environment: &Environment) -> JobResultOf<String> {
        let args = [OsString::from("-I"), "-c".into(), "import platform; print(platform.python_version())".into()];
        let (cwd, env) = (self.folders.repo.clone(), environment.variables.clone());
        let command = Command { program: environment.python.clone().into(), args: args.into(), cwd, env };
        // A benchmark need not be Python's at all.
        match self.capture("python", command).await {
            Ok(version) => Ok(version.trim().to_owned()),
            Err(Halt::Failed(_)) => Ok("none".to_owned()),
            Err(stopped) => Err(stopped),
        }
    }
}

/// One line for the log: the side, the seed and the mean of each metric.
fn describe(position: Position, values: &bench_result::Values) -> String {
    let means = values.iter().map(|(name, values)| {
        let finite: Vec<f64> = values.iter().flatten().copied().collect();
        let missing = values.len() - finite.len();
        #[allow(clippy::cast_precision_loss, reason = "a count of values; for display")]
        let mean = finite.iter().sum::<f64>() / finite.len() as f64;
        match (finite.len(), missing) {
            (0, _) => format!("{name} not finite"),
            (1, 0) => format!("{name} {mean:.6}"),
            (count, 0) => format!("{name} mean {mean:.6} of {count}"),
            (count, missing) => format!("{name} mean {mean:.6} of {count}, {missing} not finite"),
        }
    });
    format!("{} seed {}: {}", position.side.as_str(), position.repeat, means.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_interleaved_and_share_their_seeds() {
        let letters: String = schedule(4, true).iter().map(|position| if position.side == Side::Candidate { 'A' } else { 'B' }).collect();
        assert_eq!(letters, "ABBAABBA");
        let plan = schedule(5, true);
        assert!(plan.iter().zip(0..).all(|(position, order)| position.order == order));
        for side in [Side::Candidate, Side::Champion] {
            let seeds: Vec<u32> = plan.iter().filter(|position| position.side == side).map(|position| position.repeat).collect();
            assert_eq!(seeds, [0, 1, 2, 3, 4]);
        }
        assert!(schedule(3, false).iter().all(|position| position.side == Side::Candidate));
        assert_eq!(schedule(3, false).len(), 3);
    }

    #[test]
    fn log_lines_say_what_is_not_finite() {
        let values = BTreeMap::from([("a".to_owned(), vec![Some(1.0), Some(2.0), None]), ("b".to_owned(), vec![None])]);
        let position = Position { order: 0, side: Side::Champion, repeat: 3 };
        assert_eq!(describe(position, &values), "champion seed 3: a mean 1.500000 of 2, 1 not finite, b not finite");
    }
}
