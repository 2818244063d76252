//! Every process of a job ends, whatever it does to stay.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]

use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use sluice_runner::{
    log::LogWriter,
    process::{Command, Containment, Ended, JOB_MARKER, RUNNER_MARKER},
    stop::{Stop, StopReason},
};

const GRACE: Duration = Duration::from_millis(400);

/// Like torchrun: workers in sessions of their own, one of which ignores SIGTERM; and one that also hides its
/// environment and loses its parent after a while.
const TREE: &str = r#"
for i in 1 2; do setsid bash -c 'trap "" TERM; echo $$ > "$0"; while :; do sleep 0.05; done' worker$i & done
bash -c 'env -i setsid bash -c "trap \"\" TERM; echo \$\$ > hidden; while :; do sleep 0.05; done" & while [ ! -e known ]; do sleep 0.02; done' &
echo $$ > main
wait
"#;

struct Bench {
    folder: tempfile::TempDir,
    containment: Arc<Containment>,
}

impl Bench {
    fn new(id: &str, cgroups: bool) -> Self {
        let containment = Containment::new(&format!("{id}-{}", std::process::id()), cgroups, false).unwrap();
        Self { folder: tempfile::tempdir().unwrap(), containment }
    }

    fn command(&self, job: &str, script: &str) -> Command {
        let env = BTreeMap::from([
            (JOB_MARKER.to_owned(), OsString::from(job)),
            ("PATH".to_owned(), std::env::var_os("PATH").unwrap_or_default()),
        ]);
        Command { program: "bash".into(), args: ["-c", script].map(OsString::from).into(), cwd: self.folder.path().to_owned(), env }
    }
}

fn parent_of(pid: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.split_ascii_whitespace().nth(1)?.parse().ok()).unwrap_or_default()
}

fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim_start().starts_with(['Z', 'X']))
}

async fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "waited too long until {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn pid_in(folder: &Path, name: &str) -> i32 {
    let file = folder.join(name);
    let mut pid = None;
    wait_until(&format!("{name} is there"), || {
        pid = std::fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok());
        pid.is_some()
    })
    .await;
    pid.unwrap()
}

async fn a_stubborn_tree_ends(bench: Bench) {
    let scope = Arc::new(bench.containment.scope("7.1").unwrap());
    let folder: PathBuf = bench.folder.path().to_owned();
    let command = bench.command("7.1", TREE);
    let mut stop = Stop::default();
    let canceller = stop.clone();
    let (log, _output) = LogWriter::channel(64);
    let running = {
        let scope = Arc::clone(&scope);
        tokio::spawn(async move { command.run(&scope, &mut stop, GRACE, &log).await })
    };
    let mut pids = Vec::new();
    for name in ["main", "worker1", "worker2", "hidden"] {
        pids.push(pid_in(&folder, name).await);
    }
    // What the runner does every two seconds: the hidden one is known from now on.
    tokio::task::spawn_blocking({
        let scope = Arc::clone(&scope);
        move || scope.observe()
    })
    .await
    .unwrap();
    std::fs::write(folder.join("known"), "").unwrap();
    let hidden = pids[3];
    wait_until("the hidden one is an orphan", || parent_of(hidden) == std::process::id().cast_signed()).await;
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    let started = Instant::now();
    canceller.request(StopReason::Cancelled);
    let ended = running.await.unwrap().unwrap();
    assert_eq!(ended, Ended::Stopped(StopReason::Cancelled));
    assert!(started.elapsed() >= GRACE, "workers that ignore SIGTERM get their whole grace");
    assert!(started.elapsed() < GRACE + Duration::from_secs(5), "{:?}", started.elapsed());
    for pid in pids {
        assert!(!is_alive(pid), "process {pid} is left");
    }
    assert!(scope.members().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stubborn_tree_ends_through_proc() {
    let bench = Bench::new("tree", false);
    assert!(!bench.containment.uses_cgroups());
    a_stubborn_tree_ends(bench).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stubborn_tree_ends_through_its_control_group() {
    let bench = Bench::new("group", true);
    if !bench.containment.uses_cgroups() {
        eprintln!("no control group of version 2 may be made here; the other way is tested");
        return;
    }
    a_stubborn_tree_ends(bench).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_command_leaves_in_the_background_ends_with_it() {
    for cgroups in [false, true] {
        let bench = Bench::new("background", cgroups);
        let scope = Arc::new(bench.containment.scope("8.1").unwrap());
        let (log, mut output) = LogWriter::channel(64);
        let script = "setsid sleep 1000 & echo $! > left; echo out; echo err >&2; exit 3";
        let ended = bench.command("8.1", script).run(&scope, &mut Stop::default(), GRACE, &log).await.unwrap();
        assert_eq!(ended.code(), Some(3));
        drop(log);
        let mut text = Vec::new();
        while let Some(bytes) = output.recv().await {
            text.extend(bytes);
        }
        assert_eq!(String::from_utf8(text).unwrap(), "out\nerr\n", "both streams, in order");
        assert!(!is_alive(pid_in(bench.folder.path(), "left").await));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orderly_program_gets_its_grace_and_one_signal() {
    let bench = Bench::new("orderly", true);
    let scope = Arc::new(bench.containment.scope("9.1").unwrap());
    let (log, _output) = LogWriter::channel(64);
    let script = r#"trap 'echo term >> signals; sleep 0.2; echo saved > checkpoint; exit 0' TERM
        echo $$ > main; while :; do sleep 0.02; done"#;
    let command = bench.command("9.1", script);
    let mut stop = Stop::default();
    let canceller = stop.clone();
    let running = tokio::spawn(async move { command.run(&scope, &mut stop, Duration::from_secs(20), &log).await });
    pid_in(bench.folder.path(), "main").await;
    canceller.request(StopReason::Timeout);
    assert_eq!(running.await.unwrap().unwrap(), Ended::Stopped(StopReason::Timeout));
    assert_eq!(std::fs::read_to_string(bench.folder.path().join("checkpoint")).unwrap(), "saved\n");
    assert_eq!(std::fs::read_to_string(bench.folder.path().join("signals")).unwrap(), "term\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_job_gets_no_grace() {
    let bench = Bench::new("stale", true);
    let scope = Arc::new(bench.containment.scope("10.1").unwrap());
    let (log, _output) = LogWriter::channel(64);
    let command = bench.command("10.1", "trap '' TERM; echo $$ > main; while :; do sleep 0.02; done");
    let mut stop = Stop::default();
    let canceller = stop.clone();
    let running = tokio::spawn(async move { command.run(&scope, &mut stop, Duration::from_secs(3600), &log).await });
    let pid = pid_in(bench.folder.path(), "main").await;
    canceller.request(StopReason::Stale);
    assert_eq!(running.await.unwrap().unwrap(), Ended::Stopped(StopReason::Stale));
    assert!(!is_alive(pid));
}

#[tokio::test(flavor = "multi_thread")]
async fn strays_of_an_earlier_incarnation_end_at_start() {
    use std::os::unix::process::CommandExt as _;
    let id = format!("strays-{}", std::process::id());
    let mut stray = std::process::Command::new("sleep").arg("1000").env(RUNNER_MARKER, &id).process_group(0).spawn().unwrap();
    let mut other = std::process::Command::new("sleep").arg("1000").env(RUNNER_MARKER, "somebody-else").spawn().unwrap();
    let containment = Containment::new(&id, true, false).unwrap();
    assert!(!is_alive(stray.id().cast_signed()));
    assert!(is_alive(other.id().cast_signed()), "another runner's process is left alone");
    drop(containment);
    other.kill().unwrap();
    let _ = (stray.wait(), other.wait());
}

#[tokio::test]
async fn a_program_that_is_not_there_is_an_error_with_its_name() {
    let bench = Bench::new("missing", true);
    let scope = Arc::new(bench.containment.scope("11.1").unwrap());
    let (log, _output) = LogWriter::channel(4);
    let command = Command { program: "no-such-program".into(), ..bench.command("11.1", "") };
    let error = command.run(&scope, &mut Stop::default(), GRACE, &log).await.unwrap_err();
    assert!(error.to_string().contains("no-such-program"), "{error}");
}
