//! Change notices: one Postgres channel, `sluice`, with payloads `TOPIC:ID`, sent on commit.
//!
//! A notice only says "look again"; readers always take the truth from the tables.

use futures_util::{Stream, StreamExt as _};
use sqlx::{PgConnection, PgPool, postgres::PgListener};

use crate::Result;

/// Sends a notice when the surrounding transaction commits. Topics in use: `queue` (a job may be
/// claimed), `job:ID`, `log:JOB_ID`, `pipeline:ID`, `promotion:ID`, `run:ID`, `model:NAME`,
/// `deployment:ID`.
///
/// # Errors
/// When the database fails.
pub async fn notify(db: &mut PgConnection, payload: &str) -> Result<()> {
    sqlx::query!("SELECT pg_notify('sluice', $1)", payload).fetch_one(db).await?;
    Ok(())
}

/// Listens for notices. The stream reconnects by itself; after a reconnect it yields `resync`.
///
/// # Errors
/// When the first connection fails.
pub async fn listen(pool: &PgPool) -> Result<impl Stream<Item = String> + Send + use<>> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen("sluice").await?;
    Ok(futures_util::stream::unfold(listener, |mut listener| async move {
        loop {
            match listener.try_recv().await {
                Ok(Some(notice)) => return Some((notice.payload().to_owned(), listener)),
                Ok(None) => return Some(("resync".to_owned(), listener)),
                Err(error) => {
                    tracing::debug!(%error, "waiting for the database");
                    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
                }
            }
        }
    })
    .boxed())
}
