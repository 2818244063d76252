//! `cargo xtask …`: what a person or CI does with this repository, in one command each.

mod bench;
mod database;
mod demo;
mod setup;
mod test;
mod up;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Sets up, demonstrates, tests and measures Sluice")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Set up, start Sluice, push three commits of the demo project and follow them.
    Demo(demo::DemoArgs),
    /// Set up and run every check: format, lints, SQL metadata, all tests.
    Test(test::TestArgs),
    /// Measure throughput and memory of a release build.
    Bench(bench::BenchArgs),
    /// Write the offline metadata of compile-time checked SQL (`.sqlx`), or check that it is true.
    Db {
        /// Compare instead of writing.
        #[arg(long)]
        check: bool,
    },
}

fn main() -> std::process::ExitCode {
    let outcome = match Cli::parse().command {
        Command::Demo(args) => demo::demo(&args),
        Command::Test(args) => test::test(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Db { check } => database::prepare(check),
    };
    match outcome {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
