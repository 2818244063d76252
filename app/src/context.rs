//! What every use case is given.

use std::{path::PathBuf, sync::Arc, time::Duration};

use sluice_blob::BlobStore;
use sluice_domain::time::Clock;
use sluice_store::{PgConnection, PgPool, Postgres, Transaction};
use tokio::sync::broadcast;

use crate::Result;

/// Who acts, for audit rows: a login, `anonymous` on an open server, `runner:NAME`, `pipeline:ID`, `system`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor(pub String);

impl Actor {
    /// Sluice itself: schedulers, reapers, supervisors.
    #[must_use]
    pub fn system() -> Self {
        Self("system".to_owned())
    }

    /// A user of a server without logins.
    #[must_use]
    pub fn anonymous() -> Self {
        Self("anonymous".to_owned())
    }
}

/// Settings that use cases read.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Data folder: `repositories/`, `artifacts/`, `deployments/`.
    pub data_dir: PathBuf,
    /// URL under which users reach this server, without a trailing slash.
    pub public_url: String,
    /// How long a runner's lease lasts without renewal.
    pub lease: Duration,
    /// This program, for child processes (`sluice serve-model`).
    pub executable: PathBuf,
    /// ONNX Runtime's shared library for local deployments, when it is known at start.
    pub onnxruntime: Option<PathBuf>,
}

/// Shared by every request and background loop. Cheap to clone.
#[derive(Debug, Clone)]
pub struct App {
    pub pool: PgPool,
    pub blob: BlobStore,
    pub clock: Arc<dyn Clock>,
    pub settings: Arc<Settings>,
    /// Notices from the database (see `sluice_store::notify`), fanned out in this process.
    pub notices: broadcast::Sender<String>,
}

impl App {
    /// Begins a transaction.
    ///
    /// # Errors
    /// When the database cannot be reached.
    pub async fn begin(&self) -> Result<Transaction<'static, Postgres>> {
        Ok(self.pool.begin().await.map_err(sluice_store::Error::from)?)
    }

    /// A connection for reads that need no transaction.
    ///
    /// # Errors
    /// When the database cannot be reached.
    pub async fn connection(&self) -> Result<impl std::ops::DerefMut<Target = PgConnection> + use<>> {
        Ok(self.pool.acquire().await.map_err(sluice_store::Error::from)?)
    }
}

/// Commits, mapping the error. `tx.commit()` alone would leak the SQL crate's error type.
///
/// # Errors
/// When the commit fails.
pub(crate) async fn commit(tx: Transaction<'static, Postgres>) -> Result<()> {
    Ok(tx.commit().await.map_err(sluice_store::Error::from)?)
}
