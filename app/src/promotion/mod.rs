//! Promotions: when the jobs that a pipeline's `promote` part needs have ended, the version is registered,
//! the gate is evaluated over the evidence, and the alias moves by compare-and-swap, or does not.
//!
//! Every step is one transaction and may be repeated: a server that dies between two of them goes on with
//! the next `tick`. The state is in the `promotions` row; a `waiting` promotion with ended jobs is due.

mod approve;
mod evidence;
mod judge;
mod rollback;
mod view;

use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub use approve::approve;
pub use judge::{advance, tick};
pub(crate) use rollback::{ROLLBACK, move_back};
pub use rollback::{RolledBack, rollback};
pub(crate) use view::from_text;
pub use view::{GateRecord, Promotion, find_promotion_of_pipeline, get_gate_record, list_gate_records, list_promotions};

use crate::App;

/// How often due promotions are looked for when no notice comes.
const POLL: Duration = Duration::from_secs(2);

/// Advances promotions until `shutdown`, woken by notices about pipelines, jobs and promotions.
pub async fn run(app: App, shutdown: CancellationToken) {
    let mut notices = app.notices.subscribe();
    while !shutdown.is_cancelled() {
        if let Err(error) = tick(&app).await {
            tracing::warn!(error = format!("{:#}", anyhow::Error::from(error)), "promotions could not be looked at");
        }
        let woken = async {
            loop {
                match notices.recv().await {
                    Ok(notice) if !(notice.starts_with("pipeline:") || notice.starts_with("promotion:") || notice == "resync") => {}
                    Err(tokio::sync::broadcast::error::RecvError::Closed) => std::future::pending().await,
                    // missed notices: look at everything
                    Ok(_) | Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => return,
                }
            }
        };
        tokio::select! {
            () = woken => {}
            () = tokio::time::sleep(POLL) => {}
            () = shutdown.cancelled() => {}
        }
    }
}
