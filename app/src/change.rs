//! A change: one transaction with its audit row, made by somebody who (still) may make it.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sluice_store::{PgConnection, Postgres, Transaction, audit::insert_audit, notify::notify};

use crate::{
    Actor, App, Result, context,
    fence::{self, Fenced},
};

/// Who calls, as the transport knows it.
#[derive(Debug, Clone)]
pub struct Caller {
    pub actor: Actor,
    /// Bearer token of the request; a job's is checked against its lease.
    pub token: Option<String>,
}

impl Caller {
    /// Sluice itself.
    #[must_use]
    pub fn system() -> Self {
        Self { actor: Actor::system(), token: None }
    }

    /// Whether the caller may still write: a job's token must belong to the attempt that holds the lease. For
    /// changes outside of the database; those inside are fenced by [`Change::begin`].
    ///
    /// # Errors
    /// [`crate::Error::StaleAttempt`] when it does not.
    pub async fn check(&self, app: &App) -> Result<()> {
        if self.token.is_some() {
            let mut tx = app.begin().await?;
            fence::check(&mut tx, &*app.clock, self.token.as_deref()).await?;
        }
        Ok(())
    }
}

/// An open change.
pub(crate) struct Change {
    pub tx: Transaction<'static, Postgres>,
    /// For audit rows.
    pub actor: String,
    pub now: DateTime<Utc>,
    /// The attempt that makes it, if a job does.
    pub fenced: Option<Fenced>,
}

impl Change {
    /// Begins a transaction in which a calling job keeps its lease.
    pub async fn begin(app: &App, caller: &Caller) -> Result<Self> {
        let mut tx = app.begin().await?;
        let fenced = fence::check(&mut tx, &*app.clock, caller.token.as_deref()).await?;
        let actor = fenced.as_ref().map_or_else(|| caller.actor.0.clone(), |fenced| format!("job:{}", fenced.job_id));
        Ok(Self { tx, actor, now: app.clock.now(), fenced })
    }

    pub fn db(&mut self) -> &mut PgConnection {
        &mut self.tx
    }

    pub async fn audit(&mut self, action: &str, subject: &str, detail: &Value) -> Result<()> {
        Ok(insert_audit(&mut self.tx, self.now, &self.actor, action, subject, detail).await?)
    }

    pub async fn notify(&mut self, topic: &str) -> Result<()> {
        Ok(notify(&mut self.tx, topic).await?)
    }

    pub async fn commit(self) -> Result<()> {
        context::commit(self.tx).await
    }
}
