//! Metric points and the series row that sums them up.

use std::collections::{BTreeMap, HashMap};

use sluice_domain::{id::RunId, tracking::MetricPoint};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::Result;

/// Position of a point in the order of the latest: (step, timestamp, value), where NaN counts as 0.
fn rank(point: &MetricPoint) -> (i64, i64, f64) {
    (point.step, point.timestamp_ms, if point.value.is_nan() { 0.0 } else { point.value })
}

/// What the points of one key in one request add up to.
struct Sum<'a> {
    last: &'a MetricPoint,
    min: f64,
    max: f64,
}

/// Adds points to a run's series. Points that are there already are left alone. `attempt` is the number of
/// the job attempt that logs them, 0 outside of jobs: it replaces what earlier attempts logged at the same step.
///
/// Rows are locked in the order of their keys, so that concurrent writers wait for each other instead of
/// deadlocking.
///
/// # Errors
/// [`crate::Error::ForeignKey`] when the run does not exist.
pub async fn insert_points(db: &mut PgConnection, run: RunId, attempt: i32, points: &[MetricPoint]) -> Result<()> {
    if points.is_empty() {
        return Ok(());
    }
    let mut sums: BTreeMap<&str, Sum<'_>> = BTreeMap::new();
    for point in points {
        let sum = sums.entry(&point.key).or_insert(Sum { last: point, min: point.value, max: point.value });
        if rank(point) > rank(sum.last) {
            sum.last = point;
        }
        // f64::min and max pass over a NaN on either side
        sum.min = sum.min.min(point.value);
        sum.max = sum.max.max(point.value);
    }
    let replaced = if attempt > 1 { delete_earlier_attempts(&mut *db, run, attempt, points).await? } else { Vec::new() };
    let ids = upsert_series(&mut *db, run, &sums).await?;
    insert_into_series(&mut *db, attempt, points, &ids).await?;
    if !replaced.is_empty() {
        sum_up_again(db, &replaced).await?;
    }
    Ok(())
}

async fn upsert_series(db: &mut PgConnection, run: RunId, sums: &BTreeMap<&str, Sum<'_>>) -> Result<HashMap<String, i64>> {
    let keys: Vec<String> = sums.keys().map(|key| (*key).to_owned()).collect();
    let steps: Vec<i64> = sums.values().map(|sum| sum.last.step).collect();
    let timestamps: Vec<i64> = sums.values().map(|sum| sum.last.timestamp_ms).collect();
    let values: Vec<f64> = sums.values().map(|sum| sum.last.value).collect();
    let mins: Vec<f64> = sums.values().map(|sum| sum.min).collect();
    let maxs: Vec<f64> = sums.values().map(|sum| sum.max).collect();
    // Postgres sorts NaN above every number, so LEAST passes over it by itself.
    let rows = sqlx::query!(
        "INSERT INTO metric_series AS s (run_id, key, last_step, last_timestamp_ms, last_value, min_value, max_value, point_count)
         SELECT $1, t.key, t.step, t.ts, t.value, t.min, t.max, 0
         FROM UNNEST($2::text[], $3::bigint[], $4::bigint[], $5::float8[], $6::float8[], $7::float8[]) AS t(key, step, ts, value, min, max)
         ON CONFLICT (run_id, key) DO UPDATE SET
             (last_step, last_timestamp_ms, last_value) = (
                 SELECT n.step, n.ts, n.value
                 FROM (VALUES (s.last_step, s.last_timestamp_ms, s.last_value),
                              (EXCLUDED.last_step, EXCLUDED.last_timestamp_ms, EXCLUDED.last_value)) AS n(step, ts, value)
                 ORDER BY n.step DESC, n.ts DESC, CASE WHEN n.value = 'NaN' THEN 0 ELSE n.value END DESC LIMIT 1),
             min_value = LEAST(s.min_value, EXCLUDED.min_value),
             max_value = CASE WHEN s.max_value = 'NaN' THEN EXCLUDED.max_value
                              WHEN EXCLUDED.max_value = 'NaN' THEN s.max_value
                              ELSE GREATEST(s.max_value, EXCLUDED.max_value) END
         RETURNING s.id, s.key",
        run.0,
        &keys,
        &steps,
        &timestamps,
        &values,
        &mins,
        &maxs
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(|row| (row.key, row.id)).collect())
}

async fn insert_into_series(db: &mut PgConnection, attempt: i32, points: &[MetricPoint], ids: &HashMap<String, i64>) -> Result<()> {
    let series: Vec<i64> = points.iter().map(|point| ids[&point.key]).collect();
    let steps: Vec<i64> = points.iter().map(|point| point.step).collect();
    let timestamps: Vec<i64> = points.iter().map(|point| point.timestamp_ms).collect();
    let values: Vec<f64> = points.iter().map(|point| point.value).collect();
    sqlx::query!(
        "WITH added AS (
             INSERT INTO metric_points (series_id, step, timestamp_ms, value, attempt)
             SELECT t.series_id, t.step, t.ts, t.value, $5
             FROM UNNEST($1::bigint[], $2::bigint[], $3::bigint[], $4::float8[]) AS t(series_id, step, ts, value)
             ON CONFLICT DO NOTHING
             RETURNING series_id),
         counted AS (SELECT series_id, count(*) AS n FROM added GROUP BY series_id)
         UPDATE metric_series s SET point_count = s.point_count + counted.n FROM counted WHERE s.id = counted.series_id",
        &series,
        &steps,
        &timestamps,
        &values,
        attempt
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Deletes what earlier attempts logged at the steps of `points` and returns the series whose summary must be
/// made again because a deleted point may have been its least, greatest or latest.
async fn delete_earlier_attempts(db: &mut PgConnection, run: RunId, attempt: i32, points: &[MetricPoint]) -> Result<Vec<i64>> {
    let keys: Vec<String> = points.iter().map(|point| point.key.clone()).collect();
    let steps: Vec<i64> = points.iter().map(|point| point.step).collect();
    // First the locks, in the order in which the upsert takes them.
    sqlx::query!(r#"SELECT id FROM metric_series WHERE run_id = $1 AND key = ANY($2) ORDER BY key COLLATE "C" FOR UPDATE"#, run.0, &keys)
        .fetch_all(&mut *db)
        .await?;
    Ok(sqlx::query_scalar!(
        r#"WITH gone AS (
               DELETE FROM metric_points p
               USING metric_series s, (SELECT DISTINCT key, step FROM UNNEST($2::text[], $3::bigint[]) AS u(key, step)) t
               WHERE s.run_id = $1 AND s.key = t.key AND p.series_id = s.id AND p.step = t.step AND p.attempt > 0 AND p.attempt < $4
               RETURNING p.series_id, p.step, p.timestamp_ms, p.value),
           counted AS (SELECT series_id, count(*) AS n, min(value) AS min, max(value) AS max, max(step) AS step FROM gone GROUP BY series_id),
           updated AS (
               UPDATE metric_series s SET point_count = s.point_count - counted.n FROM counted WHERE s.id = counted.series_id
               RETURNING s.id, counted.min <= s.min_value OR counted.max >= s.max_value OR counted.step >= s.last_step AS stale)
           SELECT id AS "id!" FROM updated WHERE stale"#,
        run.0,
        &keys,
        &steps,
        attempt
    )
    .fetch_all(db)
    .await?)
}

async fn sum_up_again(db: &mut PgConnection, series: &[i64]) -> Result<()> {
    sqlx::query!(
        "UPDATE metric_series s
         SET (last_step, last_timestamp_ms, last_value) = (
                 SELECT p.step, p.timestamp_ms, p.value FROM metric_points p WHERE p.series_id = s.id
                 ORDER BY p.step DESC, p.timestamp_ms DESC, CASE WHEN p.value = 'NaN' THEN 0 ELSE p.value END DESC LIMIT 1),
             (min_value, max_value, point_count) = (
                 SELECT COALESCE(min(p.value) FILTER (WHERE p.value <> 'NaN'), 'NaN'),
                        COALESCE(max(p.value) FILTER (WHERE p.value <> 'NaN'), 'NaN'), count(*)
                 FROM metric_points p WHERE p.series_id = s.id)
         WHERE s.id = ANY($1)",
        series
    )
    .execute(db)
    .await?;
    Ok(())
}

/// A point that is also a measurement of a logged model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelPoint {
    pub model_id: String,
    pub dataset_name: String,
    pub dataset_digest: String,
    pub point: MetricPoint,
}

/// Adds measurements of logged models. Those that are there already are left alone.
///
/// # Errors
/// [`crate::Error::ForeignKey`] when a model or the run does not exist.
pub async fn insert_model_points(db: &mut PgConnection, run: RunId, points: &[ModelPoint]) -> Result<()> {
    let models: Vec<String> = points.iter().map(|point| point.model_id.clone()).collect();
    let names: Vec<String> = points.iter().map(|point| point.dataset_name.clone()).collect();
    let digests: Vec<String> = points.iter().map(|point| point.dataset_digest.clone()).collect();
    let keys: Vec<String> = points.iter().map(|point| point.point.key.clone()).collect();
    let steps: Vec<i64> = points.iter().map(|point| point.point.step).collect();
    let timestamps: Vec<i64> = points.iter().map(|point| point.point.timestamp_ms).collect();
    let values: Vec<f64> = points.iter().map(|point| point.point.value).collect();
    sqlx::query!(
        "INSERT INTO logged_model_metrics (model_id, run_id, key, step, timestamp_ms, value, dataset_name, dataset_digest)
         SELECT t.model, $1, t.key, t.step, t.ts, t.value, t.name, t.digest
         FROM UNNEST($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::float8[], $7::text[], $8::text[])
              AS t(model, key, step, ts, value, name, digest)
         ORDER BY t.model, t.key, t.ts, t.step, t.name, t.digest
         ON CONFLICT DO NOTHING",
        run.0,
        &models,
        &keys,
        &steps,
        &timestamps,
        &values,
        &names,
        &digests
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Where a page of history ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HistoryPosition {
    pub timestamp_ms: i64,
    pub step: i64,
    pub value: f64,
}

/// The points of a metric after a position, by (timestamp, step, value). Nothing when run or key do not exist.
///
/// # Errors
/// When the database fails.
pub async fn list_history(
    db: &mut PgConnection,
    run: RunId,
    key: &str,
    after: Option<HistoryPosition>,
    limit: Option<i64>,
) -> Result<Vec<MetricPoint>> {
    let rows = sqlx::query!(
        r#"SELECT p.step, p.timestamp_ms, p.value
           FROM metric_series s JOIN metric_points p ON p.series_id = s.id
           WHERE s.run_id = $1 AND s.key = $2
             AND ($3::bigint IS NULL
                  OR (p.timestamp_ms, p.step, CASE WHEN p.value = 'NaN' THEN 0 ELSE p.value END, p.value = 'NaN')
                   > ($3, $4::bigint, CASE WHEN $5::float8 = 'NaN' THEN 0 ELSE $5 END, $5 = 'NaN'))
           ORDER BY p.timestamp_ms, p.step, CASE WHEN p.value = 'NaN' THEN 0 ELSE p.value END, p.value = 'NaN'
           LIMIT $6"#,
        run.0,
        key,
        after.map(|position| position.timestamp_ms),
        after.map(|position| position.step),
        after.map(|position| position.value),
        limit
    )
    .fetch_all(db)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| MetricPoint { key: key.to_owned(), value: row.value, timestamp_ms: row.timestamp_ms, step: row.step })
        .collect())
}

/// At most `max` points of a metric for each run, evenly picked by rank of (step, timestamp, value), the last
/// one always among them. Runs come in the order of `runs`.
///
/// # Errors
/// When the database fails.
pub async fn sample_history(
    db: &mut PgConnection,
    runs: &[RunId],
    key: &str,
    steps: Option<(i64, i64)>,
    max: i32,
) -> Result<Vec<(RunId, MetricPoint)>> {
    let ids: Vec<Uuid> = runs.iter().map(|run| run.0).collect();
    let rows = sqlx::query!(
        r#"SELECT run_id AS "run_id!", step AS "step!", timestamp_ms AS "timestamp_ms!", value AS "value!"
           FROM (SELECT q.*, lag(bucket) OVER (PARTITION BY run_id ORDER BY place) AS bucket_before
                 FROM (SELECT s.run_id, p.step, p.timestamp_ms, p.value,
                              row_number() OVER w AS place, ntile($5) OVER w AS bucket, count(*) OVER (PARTITION BY s.run_id) AS total
                       FROM metric_series s JOIN metric_points p ON p.series_id = s.id
                       WHERE s.run_id = ANY($1) AND s.key = $2 AND ($3::bigint IS NULL OR p.step BETWEEN $3 AND $4::bigint)
                       WINDOW w AS (PARTITION BY s.run_id ORDER BY p.step, p.timestamp_ms,
                                    CASE WHEN p.value = 'NaN' THEN 0 ELSE p.value END, p.value = 'NaN')) q) b
           WHERE CASE WHEN total <= $5 THEN true
                      WHEN bucket = $5 THEN place = total
                      ELSE bucket IS DISTINCT FROM bucket_before END
           ORDER BY array_position($1, run_id), place"#,
        &ids,
        key,
        steps.map(|range| range.0),
        steps.map(|range| range.1),
        max
    )
    .fetch_all(db)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| {
            (RunId(row.run_id), MetricPoint { key: key.to_owned(), value: row.value, timestamp_ms: row.timestamp_ms, step: row.step })
        })
        .collect())
}

/// All points of a metric by (step, timestamp, value), as (step, timestamp, value).
///
/// # Errors
/// When the database fails.
pub async fn list_series(db: &mut PgConnection, run: RunId, key: &str) -> Result<Vec<(i64, i64, f64)>> {
    let rows = sqlx::query!(
        "SELECT p.step, p.timestamp_ms, p.value FROM metric_series s JOIN metric_points p ON p.series_id = s.id
         WHERE s.run_id = $1 AND s.key = $2 ORDER BY p.step, p.timestamp_ms, p.value",
        run.0,
        key
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(|row| (row.step, row.timestamp_ms, row.value)).collect())
}
