//! `cargo xtask test`: set-up, then every check.

use std::{process::Command, time::Instant};

use crate::{database, setup};

/// Options of `cargo xtask test`.
#[derive(Debug, clap::Args)]
pub struct TestArgs {
    /// Only tests whose name contains this (skips format, lints and SQL metadata).
    filter: Option<String>,
}

/// Sets up and runs every check.
///
/// # Errors
/// At the first check that fails.
pub fn test(args: &TestArgs) -> anyhow::Result<()> {
    let began = Instant::now();
    let step = |name: &str| println!("==> {name} ({:.0} s)", began.elapsed().as_secs_f64());
    step("packages");
    setup::ensure_packages(&[setup::RUN, setup::BROWSER])?;
    if args.filter.is_none() {
        step("format");
        setup::cargo(&["fmt", "--all", "--check"])?;
        step("lints");
        setup::cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
        step("SQL metadata");
        database::prepare(true)?;
    }
    step("build");
    setup::cargo(&["build", "--package", "sluice"])?;
    step("Python environment");
    let python = setup::demo_environment(&setup::target("debug").join("sluice"))?;
    let postgres = database::ScratchPostgres::start()?;
    let cargo_test = |arguments: &[&str]| {
        setup::run(
            Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
                .args(["test", "--workspace", "--no-fail-fast", "--"])
                .args(arguments)
                .current_dir(setup::root())
                .env("SLUICE_TEST_DATABASE_URL", &postgres.url)
                .env("SLUICE_TEST_PYTHON", &python)
                .env("SLUICE_TEST_CACHE", setup::cache()),
        )
    };
    step("tests");
    if let Some(filter) = &args.filter {
        cargo_test(&[filter])?;
    } else {
        // what trains or times takes all cores: one at a time, after the rest
        cargo_test(&["--skip", "demo"])?;
        step("tests that train");
        cargo_test(&["--test-threads", "1", "demo"])?;
    }
    step("all passed");
    Ok(())
}
