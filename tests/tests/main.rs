//! All integration tests, in one binary.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod architecture;
mod browser_pages;
mod browser_support;
mod cli;
mod demo;
mod demo_training;
mod pipeline_bad_input;
mod pipeline_git;
mod pipeline_jobs;
mod pipeline_logs;
mod pipeline_support;
mod promotion_deploy;
mod promotion_gate;
mod promotion_line;
mod registry_artifacts;
mod registry_bad_input;
mod registry_client;
mod registry_guard;
mod registry_logged_models;
mod registry_models;
mod runner_faults;
mod runner_jobs;
mod runner_support;
mod serve_model;
mod smoke;
mod tracking_bad_input;
mod tracking_experiments;
mod tracking_fence;
mod tracking_runs;
mod tracking_search;
mod tracking_support;
mod up;
mod web_pages;
