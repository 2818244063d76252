//! Connecting and migrating.

use std::time::Duration;

use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use crate::Result;

static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("../migrations");

/// Opens a pool of at most `max_connections`. Connections are opened when first needed; a caller waits at
/// most 5 s for one.
///
/// # Errors
/// When `url` is not a Postgres URL.
pub fn connect_lazy(url: &str, max_connections: u32) -> Result<PgPool> {
    let options: PgConnectOptions = url.parse()?;
    Ok(PgPoolOptions::new()
        .max_connections(max_connections)
        .acquire_timeout(Duration::from_secs(5))
        .connect_lazy_with(options.application_name("sluice")))
}

/// Brings the schema up to date, under an advisory lock. Data is never rewritten silently.
///
/// # Errors
/// When the database cannot be reached or is newer than this binary.
pub async fn migrate(pool: &PgPool) -> Result<()> {
    MIGRATIONS.run(pool).await.map_err(|error| match error {
        sqlx::migrate::MigrateError::Execute(error) => error.into(),
        other => crate::Error::Malformed { what: "schema", message: other.to_string() },
    })
}
