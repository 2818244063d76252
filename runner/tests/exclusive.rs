//! A test in a process of its own: it claims every orphan of the process, which other tests would not survive.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]

use std::{collections::BTreeMap, ffi::OsString, sync::Arc, time::Duration};

use sluice_runner::{
    log::LogWriter,
    process::{Command, Containment, JOB_MARKER},
    stop::Stop,
};

/// A daemon that takes every precaution against being found: no parent, a session of its own, an empty environment.
const DAEMON: &str = "(env -i setsid bash -c 'echo $$ > daemon.partial; mv daemon.partial daemon; while :; do sleep 0.05; done' &)
while [ ! -e daemon ]; do sleep 0.01; done";

#[tokio::test(flavor = "multi_thread")]
async fn even_a_daemon_without_any_mark_ends_with_its_job() {
    for cgroups in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let containment = Containment::new(&format!("exclusive-{}", std::process::id()), cgroups, true).unwrap();
        let scope = Arc::new(containment.scope("1.1").unwrap());
        let (log, _output) = LogWriter::channel(4);
        let env = BTreeMap::from([
            (JOB_MARKER.to_owned(), OsString::from("1.1")),
            ("PATH".to_owned(), std::env::var_os("PATH").unwrap_or_default()),
        ]);
        let command =
            Command { program: "bash".into(), args: ["-c", DAEMON].map(OsString::from).into(), cwd: folder.path().to_owned(), env };
        let ended = command.run(&scope, &mut Stop::default(), Duration::from_secs(1), &log).await.unwrap();
        assert_eq!(ended.code(), Some(0));
        let pid = std::fs::read_to_string(folder.path().join("daemon")).unwrap();
        assert!(!std::path::Path::new(&format!("/proc/{}", pid.trim())).exists(), "the daemon {pid} is left");
    }
}
