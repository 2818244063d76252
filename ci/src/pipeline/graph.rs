//! The order of jobs: needs are known, free of cycles, and come first.

use std::collections::{BTreeMap, BTreeSet};

use super::jobs::Draft;
use crate::reader::Report;

/// Indices of the drafts in a topological order that keeps the file's order where it can. Unknown needs and
/// cycles are reported; jobs on a cycle come last.
pub(super) fn order(drafts: &[Draft<'_>], report: &mut Report<'_>) -> Vec<usize> {
    let index: BTreeMap<&str, usize> = drafts.iter().enumerate().map(|(i, draft)| (draft.name.as_str(), i)).collect();
    let mut needs: Vec<Vec<usize>> = Vec::with_capacity(drafts.len());
    for draft in drafts {
        let mut known = Vec::new();
        let mut seen = BTreeSet::new();
        for (name, spot) in &draft.needs {
            if !seen.insert(name) {
                spot.fail(report, format!("names the job {name:?} twice"));
            } else if *name == draft.name {
                spot.fail(report, format!("job {name:?} cannot need itself"));
            } else if let Some(i) = index.get(name.as_str()) {
                known.push(*i);
            } else {
                spot.fail(report, format!("there is no job {name:?}"));
            }
        }
        needs.push(known);
    }

    let mut order = Vec::with_capacity(drafts.len());
    let mut placed = vec![false; drafts.len()];
    while let Some(i) = (0..drafts.len()).find(|&i| !placed[i] && needs[i].iter().all(|&n| placed[n])) {
        placed[i] = true;
        order.push(i);
    }
    if let Some(cycle) = find_cycle(&needs, &placed) {
        let names: Vec<&str> = cycle.iter().map(|&i| drafts[i].name.as_str()).collect();
        let first = &drafts[cycle[0]];
        let at = first.needs_at.unwrap_or(first.spot.key_at);
        report.push(at, &format!("{}.needs", first.spot.path), format!("jobs need each other in a circle: {}", names.join(" → ")));
    }
    order.extend((0..drafts.len()).filter(|&i| !placed[i]));
    order
}

/// A cycle among the jobs that could not be placed, its first member repeated at the end.
fn find_cycle(needs: &[Vec<usize>], placed: &[bool]) -> Option<Vec<usize>> {
    let start = placed.iter().position(|p| !p)?;
    let mut path = vec![start];
    loop {
        let last = *path.last()?;
        // Every unplaced job has an unplaced need, so the walk goes on until it meets itself.
        let next = needs[last].iter().copied().find(|&n| !placed[n])?;
        if let Some(from) = path.iter().position(|&p| p == next) {
            let mut cycle = path.split_off(from);
            // Start at the job that stands first in the file.
            let smallest = cycle.iter().enumerate().min_by_key(|(_, job)| **job).map_or(0, |(i, _)| i);
            cycle.rotate_left(smallest);
            cycle.push(cycle[0]);
            return Some(cycle);
        }
        path.push(next);
    }
}
