//! Headless Chromium, driven over WebDriver, that remembers what it asked for and complained about.

use std::{process::Stdio, time::Duration};

use serde_json::{Value, json};
use sluice_tests::{TestServer, wait_for};
use thirtyfour::prelude::*;
use tokio::process::{Child, Command};

/// Long enough for a browser on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A browser on a server's pages.
pub struct Browser {
    pub driver: WebDriver,
    origin: String,
    _driver_process: Child,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts a browser.
    pub async fn start(server: &TestServer) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("address").port();
        let process = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("chromedriver: install chromium and chromium-driver (cargo xtask test does)");
        let url = format!("http://127.0.0.1:{port}");
        let http = reqwest::Client::new();
        wait_for("chromedriver", LIMIT, || async { http.get(format!("{url}/status")).send().await.ok() }).await;

        let profile = tempfile::Builder::new().prefix("sluice-browser-").tempdir().expect("temporary folder");
        let mut capabilities = DesiredCapabilities::chrome();
        for argument in [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-default-apps",
            "--disable-sync",
            "--window-size=1300,1000",
            &format!("--user-data-dir={}", profile.path().display()),
        ] {
            capabilities.add_arg(argument).expect("argument");
        }
        capabilities.set("goog:loggingPrefs", json!({ "browser": "ALL", "performance": "ALL" })).expect("capability");
        let driver = WebDriver::new(&url, capabilities).await.expect("start chromium");
        Self { driver, origin: server.url.clone(), _driver_process: process, _profile: profile }
    }

    /// Opens a page of the server.
    pub async fn open(&self, path: &str) {
        self.driver.goto(format!("{}{path}", self.origin)).await.expect("open a page");
    }

    /// Path and query of the page that is shown.
    pub async fn path(&self) -> String {
        let url = self.driver.current_url().await.expect("URL").to_string();
        url.strip_prefix(&self.origin).unwrap_or(&url).to_owned()
    }

    /// Runs a script and gives what it returns.
    pub async fn script(&self, script: &str) -> Value {
        self.driver.execute(script, vec![]).await.expect("run a script").json().clone()
    }

    /// Waits until a script returns something true, and gives that.
    pub async fn wait_script(&self, what: &str, script: &str) -> Value {
        wait_for(what, LIMIT, || async {
            let value = self.script(script).await;
            (!matches!(value, Value::Null | Value::Bool(false)) && value != json!("") && value != json!(0)).then_some(value)
        })
        .await
    }

    /// Clicks the first link or button with this text.
    pub async fn click(&self, text: &str) {
        let found = wait_for(&format!("{text:?} to click"), LIMIT, || async {
            for kind in ["a", "button"] {
                let path = format!("//main//{kind}[normalize-space(.)={text:?}]");
                if let Ok(element) = self.driver.find(By::XPath(path)).await {
                    return Some(element);
                }
            }
            None
        })
        .await;
        found.click().await.unwrap_or_else(|error| panic!("click {text:?}: {error}"));
    }

    /// The visible text of an element.
    pub async fn text(&self, css: &str) -> String {
        let found = wait_for(css, LIMIT, || async { self.driver.find(By::Css(css)).await.ok() }).await;
        found.text().await.expect("text")
    }

    /// Waits until the visible text of an element has a part.
    pub async fn wait_text(&self, css: &str, part: &str) -> String {
        wait_for(&format!("{part:?} in {css}"), LIMIT, || async {
            let text = self.driver.find(By::Css(css)).await.ok()?.text().await.ok()?;
            text.contains(part).then_some(text)
        })
        .await
    }

    /// Checks that nothing was complained about and nothing was asked of another host, and ends the browser.
    pub async fn finish(self) {
        let console = self.driver.get_log("browser").await.expect("console");
        let complaints: Vec<_> = console.iter().filter(|entry| matches!(entry.level.as_str(), "SEVERE" | "WARNING")).collect();
        assert!(complaints.is_empty(), "the console has errors: {complaints:#?}");

        let mut asked = 0;
        for entry in self.driver.get_log("performance").await.expect("network log") {
            let message: Value = serde_json::from_str(&entry.message).expect("JSON");
            if message["message"]["method"] != "Network.requestWillBeSent" {
                continue;
            }
            let url = message["message"]["params"]["request"]["url"].as_str().expect("URL").to_owned();
            let own = url.strip_prefix(&self.origin).is_some_and(|rest| rest.starts_with('/'));
            assert!(own || url.starts_with("data:") || url.starts_with("chrome:"), "a request left the server: {url}");
            asked += 1;
        }
        assert!(asked > 3, "the network log has only {asked} requests");
        self.driver.quit().await.expect("end the browser");
    }
}
