//! The dependency direction of ARCHITECTURE.md, checked against `cargo metadata`.

use std::{collections::BTreeMap, process::Command};

/// Which crates of the workspace each crate may use.
const ALLOWED: &[(&str, &[&str])] = &[
    ("sluice-domain", &[]),
    ("sluice-stats", &["sluice-domain"]),
    ("sluice-ci", &["sluice-domain", "sluice-stats"]),
    ("sluice-store", &["sluice-domain"]),
    ("sluice-blob", &["sluice-domain"]),
    ("sluice-vcs", &[]),
    ("sluice-client", &["sluice-domain"]),
    ("sluice-app", &["sluice-domain", "sluice-stats", "sluice-ci", "sluice-store", "sluice-blob", "sluice-vcs"]),
    ("sluice-api", &["sluice-domain", "sluice-app"]),
    ("sluice-web", &["sluice-domain", "sluice-app"]),
    ("sluice-runner", &["sluice-domain", "sluice-client"]),
    (
        "sluice",
        &[
            "sluice-domain",
            "sluice-ci",
            "sluice-store",
            "sluice-blob",
            "sluice-app",
            "sluice-api",
            "sluice-web",
            "sluice-client",
            "sluice-runner",
        ],
    ),
    ("sluice-tests", &["sluice-domain", "sluice-client"]),
    ("xtask", &["sluice-domain", "sluice-client"]),
];

/// Libraries that only these crates may use.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("sqlx", &["sluice-store", "sluice-tests"]),
    ("git2", &["sluice-vcs", "sluice-runner"]),
    ("object_store", &["sluice-blob"]),
    ("askama", &["sluice-web"]),
    ("actix-web", &["sluice-api", "sluice-web", "sluice"]),
    ("ort", &["sluice"]),
];

fn normal_dependencies() -> BTreeMap<String, Vec<String>> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(sluice_tests::repository_root())
        .output()
        .expect("cargo metadata");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut found = BTreeMap::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let dependencies = package["dependencies"].as_array().expect("dependencies");
        let names = dependencies
            .iter()
            .filter(|dependency| dependency["kind"].is_null())
            .map(|dependency| dependency["name"].as_str().expect("name").to_owned());
        found.insert(package["name"].as_str().expect("name").to_owned(), names.collect());
    }
    found
}

#[test]
fn crates_depend_only_in_the_agreed_direction() {
    let found = normal_dependencies();
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.iter().copied().collect();
    for (name, dependencies) in &found {
        let may = allowed.get(name.as_str()).unwrap_or_else(|| panic!("{name} is new: add it to ARCHITECTURE.md and to this table"));
        for dependency in dependencies.iter().filter(|dependency| found.contains_key(*dependency)) {
            assert!(may.contains(&dependency.as_str()), "{name} may not depend on {dependency}");
        }
    }
    assert_eq!(found.len(), ALLOWED.len(), "the table names a crate that is gone");
}

#[test]
fn each_library_with_side_effects_has_one_home() {
    for (name, dependencies) in normal_dependencies() {
        for (library, homes) in ONLY_IN {
            assert!(
                !dependencies.iter().any(|dependency| dependency == library) || homes.contains(&name.as_str()),
                "{name} may not use {library}"
            );
        }
    }
}
