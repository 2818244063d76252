//! The only crate with SQL. One module per aggregate; functions take a connection, `app` owns transactions.
//!
//! Names: `find_x` → `Option`, `get_x` → [`Error::NotFound`], `list_x` → page, `insert_x`, `update_x`,
//! `delete_x`, `claim_x`, `upsert_x`.

pub mod artifact;
pub mod audit;
mod error;
pub mod notify;
pub mod pool;

pub use error::{Error, Result};
pub use sqlx::{PgConnection, PgPool, Postgres, Transaction};
