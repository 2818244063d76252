//! Reading metrics: history in pages, samples over several runs, curves for charts.

use sluice_domain::{id::RunId, tracking::MetricPoint};
use sluice_stats::bucket::{Buckets, bucket};
use sluice_store::{
    metric::{self as store, HistoryPosition},
    run::find_run_info,
};

use crate::{
    App, Error, Result,
    page::{Page, decode_token, encode_token},
    tracking::{check_max_results, parse_run_id, run_not_found},
};

/// Most runs in one request for samples.
pub const MAX_SAMPLED_RUNS: usize = 100;
/// Most points per run in one request for samples.
pub const MAX_SAMPLES: i64 = 2500;
/// Most metrics in one request for curves.
pub const MAX_CURVES: usize = 100;
/// Most buckets of one curve.
pub const MAX_BUCKETS: i64 = 10_000;

/// The history of a metric by (timestamp, step, value), in pages when `max_results` is given. An unknown run or
/// key has none.
///
/// # Errors
/// [`Error::Invalid`] when size or token are malformed.
pub async fn get_history(
    app: &App,
    run_id: &str,
    key: &str,
    max_results: Option<i64>,
    page_token: Option<&str>,
) -> Result<Page<MetricPoint>> {
    if let Some(max_results) = max_results {
        check_max_results(max_results, i64::MAX - 1)?;
    }
    let scope = ("history", run_id, key);
    let after = match page_token {
        None => None,
        Some(token) => {
            let (timestamp_ms, step, bits) = decode_token::<(i64, i64, u64)>(&scope, token)?;
            Some(HistoryPosition { timestamp_ms, step, value: f64::from_bits(bits) })
        }
    };
    let Ok(run_id) = parse_run_id(run_id) else { return Ok(Page { items: Vec::new(), next_page_token: None }) };
    let mut tx = app.begin().await?;
    let mut points = store::list_history(&mut tx, run_id, key, after, max_results.map(|max| max + 1)).await?;
    let limit = max_results.and_then(|max| usize::try_from(max).ok()).unwrap_or(usize::MAX);
    let has_more = points.len() > limit;
    points.truncate(limit);
    let next_page_token = match points.last() {
        Some(last) if has_more => Some(encode_token(&scope, (last.timestamp_ms, last.step, last.value.to_bits()))),
        _ => None,
    };
    Ok(Page { items: points, next_page_token })
}

/// At most `max_results` points of a metric for each of several runs, evenly picked, the last always among them.
///
/// # Errors
/// [`Error::Invalid`] when there are too many runs, or the range of steps or the size is malformed.
pub async fn sample_history(
    app: &App,
    run_ids: &[String],
    key: &str,
    start_step: Option<i64>,
    end_step: Option<i64>,
    max_results: Option<i64>,
) -> Result<Vec<(RunId, MetricPoint)>> {
    if run_ids.len() > MAX_SAMPLED_RUNS {
        return Err(Error::invalid(
            "run_ids",
            format!(
                "GetMetricHistoryBulkInterval request must specify at most {MAX_SAMPLED_RUNS} run_ids. Received {} run_ids.",
                run_ids.len()
            ),
        ));
    }
    let max_results = max_results.unwrap_or(MAX_SAMPLES);
    if !(1..=MAX_SAMPLES).contains(&max_results) {
        return Err(Error::invalid("max_results", format!("max_results must be between 1 and {MAX_SAMPLES}.")));
    }
    let steps = match (start_step, end_step) {
        (None, None) => None,
        (Some(start), Some(end)) if start > end => {
            return Err(Error::invalid(
                "end_step",
                format!("end_step must be greater than start_step. Found start_step={start} and end_step={end}."),
            ));
        }
        (Some(start), Some(end)) => Some((start, end)),
        _ => {
            return Err(Error::invalid("end_step", "If either start step or end step are specified, both must be specified."));
        }
    };
    let ids: Vec<RunId> = run_ids.iter().filter_map(|id| parse_run_id(id).ok()).collect();
    let mut tx = app.begin().await?;
    let max_results = i32::try_from(max_results).unwrap_or(i32::MAX);
    Ok(store::sample_history(&mut tx, &ids, key, steps, max_results).await?)
}

/// The horizontal axis of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum XAxis {
    #[default]
    Step,
    /// Milliseconds since the epoch.
    Time,
}

/// The curves of a run's metrics, each cut into at most `buckets` buckets that keep every extreme. A metric that
/// the run does not have is empty.
///
/// # Errors
/// [`Error::NotFound`] for an unknown run, [`Error::Invalid`] when keys or size are outside of their limits.
pub async fn get_curves(app: &App, run_id: &str, keys: &[String], buckets: i64, axis: XAxis) -> Result<Vec<(String, Buckets)>> {
    if keys.is_empty() || keys.len() > MAX_CURVES {
        return Err(Error::invalid("key", format!("key must be given 1 to {MAX_CURVES} times, not {}", keys.len())));
    }
    let buckets = match usize::try_from(buckets) {
        Ok(count @ 1..) if buckets <= MAX_BUCKETS => count,
        _ => return Err(Error::invalid("px", format!("px must be 1 to {MAX_BUCKETS}, not {buckets}"))),
    };
    let id = parse_run_id(run_id)?;
    let mut tx = app.begin().await?;
    find_run_info(&mut tx, id).await?.ok_or_else(|| run_not_found(run_id))?;
    let mut curves = Vec::with_capacity(keys.len());
    for key in keys {
        let mut points = store::list_series(&mut tx, id, key).await?;
        if axis == XAxis::Time {
            points.sort_by_key(|(step, timestamp_ms, _)| (*timestamp_ms, *step));
        }
        #[allow(clippy::cast_precision_loss, reason = "a position on a chart")]
        let points: Vec<(f64, f64)> = points
            .into_iter()
            .map(|(step, timestamp_ms, value)| (if axis == XAxis::Step { step as f64 } else { timestamp_ms as f64 }, value))
            .collect();
        curves.push((key.clone(), bucket(&points, buckets)));
    }
    Ok(curves)
}
