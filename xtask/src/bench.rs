//! `cargo xtask bench`: first figures of a release build.

/// Options of `cargo xtask bench`.
#[derive(Debug, clap::Args)]
pub struct BenchArgs {
    /// Write the figures to this file, as JSON.
    #[arg(long)]
    pub out: Option<std::path::PathBuf>,
}

/// Measures.
///
/// # Errors
/// When a server cannot be started or a request fails.
pub fn bench(_args: &BenchArgs) -> anyhow::Result<()> {
    anyhow::bail!("not there yet")
}
