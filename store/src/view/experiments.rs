//! The list of experiments.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::Result;

/// One experiment with its activity.
#[derive(Debug, Clone)]
pub struct ExperimentRow {
    pub id: i32,
    pub name: String,
    pub created_at: DateTime<Utc>,
    pub runs: i64,
    pub running: i64,
    /// Start of the newest run, or when the experiment was created.
    pub activity_ms: i64,
}

/// Lists active experiments, most recently active first. `text` is a part of the name; `after` is the
/// (activity, id) of the last row of the page before.
///
/// # Errors
/// When the database fails.
pub async fn list_experiments(
    db: &mut PgConnection,
    text: Option<&str>,
    after: Option<(i64, i32)>,
    limit: i64,
) -> Result<Vec<ExperimentRow>> {
    let (after_ms, after_id) = after.unzip();
    Ok(sqlx::query_as!(
        ExperimentRow,
        r#"SELECT id, name, created_at, runs AS "runs!", running AS "running!", activity_ms AS "activity_ms!" FROM (
               SELECT e.id, e.name, e.created_at, count(r.id) AS runs, count(r.id) FILTER (WHERE r.status = 'RUNNING') AS running,
                      coalesce(max(r.start_time_ms), (extract(epoch FROM e.created_at) * 1000)::bigint) AS activity_ms
               FROM experiments e LEFT JOIN runs r ON r.experiment_id = e.id AND r.lifecycle = 'active'
               WHERE e.lifecycle = 'active' AND ($1::text IS NULL OR position(lower($1) IN lower(e.name)) > 0)
               GROUP BY e.id) AS e
           WHERE $2::bigint IS NULL OR (activity_ms, id) < ($2, $3::integer)
           ORDER BY activity_ms DESC, id DESC LIMIT $4"#,
        text,
        after_ms,
        after_id,
        limit
    )
    .fetch_all(db)
    .await?)
}

/// Name and lifecycle of one experiment.
#[derive(Debug, Clone)]
pub struct ExperimentHead {
    pub id: i32,
    pub name: String,
    pub lifecycle: String,
    pub runs: i64,
    pub running: i64,
}

/// Finds an experiment.
///
/// # Errors
/// When the database fails.
pub async fn find_experiment(db: &mut PgConnection, id: i32) -> Result<Option<ExperimentHead>> {
    Ok(sqlx::query_as!(
        ExperimentHead,
        r#"SELECT e.id, e.name, e.lifecycle,
                  (SELECT count(*) FROM runs r WHERE r.experiment_id = e.id AND r.lifecycle = 'active') AS "runs!",
                  (SELECT count(*) FROM runs r WHERE r.experiment_id = e.id AND r.lifecycle = 'active' AND r.status = 'RUNNING') AS "running!"
           FROM experiments e WHERE e.id = $1"#,
        id
    )
    .fetch_optional(db)
    .await?)
}
