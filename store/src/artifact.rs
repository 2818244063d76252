//! Where the artifacts of things are.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::Result;

/// The artifact root of a run, deleted or not.
///
/// # Errors
/// When the database fails.
pub async fn find_run_artifact_uri(db: &mut PgConnection, run_id: Uuid) -> Result<Option<String>> {
    Ok(sqlx::query_scalar!("SELECT artifact_uri FROM runs WHERE id = $1", run_id).fetch_optional(db).await?)
}
