//! The harness of the integration tests: real servers as processes, each on a database and folder of its own.
//!
//! `cargo xtask test` provides what it needs: `SLUICE_TEST_DATABASE_URL` (a Postgres where databases may be
//! created) and a built `sluice` beside the test binary.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use reqwest::Method;
use serde_json::Value;
use sqlx::{Connection as _, PgConnection, PgPool};
use tokio::process::{Child, Command};

/// The `sluice` binary that was built with these tests.
///
/// # Panics
/// When it was not built.
#[must_use]
pub fn sluice_binary() -> PathBuf {
    let test = std::env::current_exe().expect("path of the test binary");
    let binary = test.parent().and_then(Path::parent).expect("target folder").join("sluice");
    assert!(binary.exists(), "{} is missing: run `cargo build -p sluice` (cargo xtask test does)", binary.display());
    binary
}

/// A Python with the demo project's requirements, made by `cargo xtask test`.
///
/// # Panics
/// When `SLUICE_TEST_PYTHON` is not set.
#[must_use]
pub fn python() -> PathBuf {
    std::env::var_os("SLUICE_TEST_PYTHON").map(PathBuf::from).expect("SLUICE_TEST_PYTHON is not set: run the tests with `cargo xtask test`")
}

/// Root of the repository. Cargo says where its package is, which may be another clone than the one built in.
///
/// # Panics
/// When the package has no parent folder.
#[must_use]
pub fn repository_root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.parent().expect("workspace root").to_owned()
}

/// Waits until `condition` gives a value, looking again every 50 ms, and panics with `what` after `limit`.
pub async fn wait_for<T, F: Future<Output = Option<T>>>(what: &str, limit: Duration, mut condition: impl FnMut() -> F) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(Instant::now() < deadline, "waited {limit:?} in vain for: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A database of its own, dropped at the end.
#[derive(Debug)]
pub struct TestDatabase {
    /// URL of the database.
    pub url: String,
    admin_url: String,
    name: String,
}

impl TestDatabase {
    /// Creates an empty database.
    ///
    /// # Panics
    /// When `SLUICE_TEST_DATABASE_URL` is not set or does not work.
    pub async fn create() -> Self {
        let admin_url =
            std::env::var("SLUICE_TEST_DATABASE_URL").expect("SLUICE_TEST_DATABASE_URL is not set: run the tests with `cargo xtask test`");
        let name = format!("test_{}", uuid::Uuid::new_v4().simple());
        let mut admin = PgConnection::connect(&admin_url).await.expect("connect to SLUICE_TEST_DATABASE_URL");
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut admin).await.expect("create database");
        let (base, options) =
            admin_url.split_once('?').map_or((admin_url.as_str(), String::new()), |(base, options)| (base, format!("?{options}")));
        let server = base.rsplit_once('/').expect("a database name in the URL").0;
        Self { url: format!("{server}/{name}{options}"), admin_url, name }
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        // in a thread of its own: drop may run inside or outside of a runtime
        let (url, name) = (self.admin_url.clone(), self.name.clone());
        let _ = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
            runtime.block_on(async {
                if let Ok(mut admin) = PgConnection::connect(&url).await {
                    let _ = sqlx::raw_sql(sqlx::AssertSqlSafe(format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")))
                        .execute(&mut admin)
                        .await;
                }
            });
        })
        .join();
    }
}

/// An answer: status and body, JSON when it is JSON (otherwise a JSON string of the text).
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub body: Value,
}

impl Answer {
    /// The body, after checking the status.
    ///
    /// # Panics
    /// When the status is another.
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "unexpected status; body: {}", self.body);
        self.body
    }
}

/// A `sluice server` process.
#[derive(Debug)]
pub struct TestServer {
    /// Its URL, without a trailing slash. Stays the same over [`TestServer::restart`].
    pub url: String,
    /// Its data folder.
    pub data: tempfile::TempDir,
    pub database: TestDatabase,
    pub pool: PgPool,
    arguments: Vec<String>,
    child: Child,
    http: reqwest::Client,
}

impl TestServer {
    /// Starts a server with default settings.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts a server with further arguments, e.g. `&["--lease-secs", "2"]`.
    ///
    /// # Panics
    /// When it does not start within 60 s.
    pub async fn start_with(arguments: &[&str]) -> Self {
        let database = TestDatabase::create().await;
        let data = tempfile::Builder::new().prefix("sluice-test-").tempdir().expect("temporary folder");
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let (child, url) = spawn_server(&database.url, data.path(), "127.0.0.1:0", &arguments).await;
        let pool = sqlx::postgres::PgPoolOptions::new().max_connections(2).connect(&database.url).await.expect("connect");
        Self { url, data, database, pool, arguments, child, http: reqwest::Client::new() }
    }

    /// Kills the server process with SIGKILL and waits for its end.
    pub async fn kill9(&mut self) {
        self.child.kill().await.expect("kill the server");
    }

    /// Process id of the server.
    ///
    /// # Panics
    /// When it has ended.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id().expect("the server runs")
    }

    /// Starts the server again on the same address, database and folder (after [`TestServer::kill9`]).
    pub async fn restart(&mut self) {
        let listen = self.url.strip_prefix("http://").expect("http URL").to_owned();
        (self.child, _) = spawn_server(&self.database.url, self.data.path(), &listen, &self.arguments).await;
    }

    /// A request builder for a path that starts with `/`.
    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url))
    }

    /// GET.
    pub async fn get(&self, path: &str) -> Answer {
        answer(self.request(Method::GET, path)).await
    }

    /// POST with a JSON body.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        answer(self.request(Method::POST, path).json(body)).await
    }

    /// POST with a JSON body and a bearer token.
    pub async fn post_as(&self, token: &str, path: &str, body: &Value) -> Answer {
        answer(self.request(Method::POST, path).bearer_auth(token).json(body)).await
    }

    /// Starts a `sluice runner` process for this server, with further arguments.
    pub async fn runner(&self, name: &str, arguments: &[&str]) -> TestRunner {
        let folder = tempfile::Builder::new().prefix("sluice-runner-").tempdir().expect("temporary folder");
        let mut command = Command::new(sluice_binary());
        command.args(["runner", "--server", &self.url, "--name", name, "--work-dir"]).arg(folder.path());
        if let Some(cache) = std::env::var_os("SLUICE_TEST_CACHE") {
            command.arg("--cache").arg(cache);
        } else {
            command.arg("--cache").arg(folder.path().join("cache"));
        }
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        TestRunner { child: command.spawn().expect("start a runner"), folder }
    }
}

/// A `sluice runner` process; killed when dropped.
#[derive(Debug)]
pub struct TestRunner {
    pub child: Child,
    /// Its work folder.
    pub folder: tempfile::TempDir,
}

/// Sends a request and reads the whole answer.
///
/// # Panics
/// When no answer comes.
pub async fn answer(request: reqwest::RequestBuilder) -> Answer {
    let response = request.timeout(Duration::from_secs(60)).send().await.expect("an answer");
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let text = response.text().await.expect("a body");
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    Answer { status, headers, body }
}

async fn spawn_server(database_url: &str, data: &Path, listen: &str, arguments: &[String]) -> (Child, String) {
    let url_file = data.join("url");
    let _ = std::fs::remove_file(&url_file);
    let log = std::fs::OpenOptions::new().create(true).append(true).open(data.join("server.log")).expect("server log");
    let child = Command::new(sluice_binary())
        .args(["server", "--listen", listen, "--data"])
        .arg(data)
        .arg("--url-file")
        .arg(&url_file)
        .args(arguments)
        .env("DATABASE_URL", database_url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .expect("start the server");
    let url = wait_for("the server's URL", Duration::from_secs(60), || async { std::fs::read_to_string(&url_file).ok() }).await;
    (child, url)
}
