//! Git's smart-HTTP service, for the surface that speaks it. Which folder a request means is decided by
//! [`crate::repository::git_folder`].

pub use sluice_vcs::{Error, pkt, service};
