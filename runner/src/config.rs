//! What a runner is told when it starts.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

/// Settings of a runner.
#[derive(Debug, Clone)]
pub struct RunnerConfig {
    /// E.g. `http://127.0.0.1:5000`; also what jobs get as tracking URI.
    pub server_url: String,
    /// Unique among the runners of a server.
    pub name: String,
    /// Folder of this runner alone: its id, and the workspaces of its jobs.
    pub work_dir: PathBuf,
    /// Environments, git objects and downloaded inputs. May be shared by runners of one machine and user.
    pub cache_dir: PathBuf,
    /// Cores that jobs may be given together.
    pub cpus: u32,
    /// Labels that jobs may require, beside those that the runner finds out itself (`tensorrt`).
    pub capabilities: Vec<String>,
    /// Time between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Interpreter that environments are made from; `None`: `python3` of `PATH`.
    pub python: Option<PathBuf>,
    /// Whether control groups may be used where they work. Off: jobs are held by `/proc` alone.
    pub cgroups: bool,
    /// Whether this process starts no children of its own beside those of jobs (see `Containment::new`).
    pub exclusive: bool,
    /// Variables of this machine that jobs or their set-up may see.
    pub host: HostEnvironment,
}

impl RunnerConfig {
    /// Usual settings: everything below `data_dir`, all cores, ten seconds of grace.
    #[must_use]
    pub fn new(server_url: &str, name: &str, data_dir: &Path) -> Self {
        let host = HostEnvironment::capture();
        Self {
            server_url: server_url.trim_end_matches('/').to_owned(),
            name: name.to_owned(),
            work_dir: data_dir.join("runner"),
            cache_dir: data_dir.join("cache"),
            cpus: std::thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(1)),
            capabilities: Vec::new(),
            grace: Duration::from_secs(10),
            python: host.python.clone(),
            cgroups: true,
            exclusive: true,
            host,
        }
    }
}

/// What is taken over from the runner's own environment. Everything else stays out of jobs.
#[derive(Debug, Clone, Default)]
pub struct HostEnvironment {
    /// For every process.
    pub common: BTreeMap<String, OsString>,
    /// Only while environments are built and commits are fetched: package indexes, proxies, certificates.
    pub network: BTreeMap<String, OsString>,
    /// `SLUICE_PYTHON`
    pub python: Option<PathBuf>,
}

/// Variables for every process. Devices are machine facts that a launcher cannot guess.
const COMMON: &[&str] =
    &["PATH", "LANG", "LC_ALL", "TZ", "USER", "LOGNAME", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "LD_LIBRARY_PATH"];
/// Variables for what goes to the network, beside `PIP_*` and `UV_*`. Proxies are also written in lower case.
const NETWORK: &[&str] = &[
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
];
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl HostEnvironment {
    /// Takes over from this process.
    #[must_use]
    pub fn capture() -> Self {
        Self::select(std::env::vars_os())
    }

    fn select(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut host = Self::default();
        let mut home = None;
        for (name, value) in variables {
            let Some(name) = name.to_str().map(str::to_owned) else { continue };
            let upper = name.to_ascii_uppercase();
            if COMMON.contains(&name.as_str()) {
                host.common.insert(name, value);
            } else if NETWORK.contains(&upper.as_str()) || name.starts_with("PIP_") || name.starts_with("UV_") {
                host.network.insert(name, value);
            } else if name == "SLUICE_PYTHON" && !value.is_empty() {
                host.python = Some(PathBuf::from(value));
            } else if name == "HOME" {
                home = Some(PathBuf::from(value));
            }
        }
        host.common.entry("PATH".to_owned()).or_insert_with(|| DEFAULT_PATH.into());
        host.common.entry("LANG".to_owned()).or_insert_with(|| "C.UTF-8".into());
        // Jobs get a home of their own; the user's pip settings (index, certificates) shall hold all the same.
        if let Some(home) = home
            && !host.network.contains_key("PIP_CONFIG_FILE")
            && let Some(file) = [".config/pip/pip.conf", ".pip/pip.conf"].iter().map(|file| home.join(file)).find(|file| file.is_file())
        {
            host.network.insert("PIP_CONFIG_FILE".to_owned(), file.into_os_string());
        }
        host
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_variables_are_taken_over() {
        let given =
            [("AWS_SECRET_ACCESS_KEY", "x"), ("PATH", "/bin"), ("PIP_INDEX_URL", "u"), ("http_proxy", "p"), ("SLUICE_PYTHON", "/p")];
        let host = HostEnvironment::select(given.map(|(name, value)| (OsString::from(name), OsString::from(value))));
        assert_eq!(host.common.keys().collect::<Vec<_>>(), ["LANG", "PATH"]);
        assert_eq!(host.network.keys().collect::<Vec<_>>(), ["PIP_INDEX_URL", "http_proxy"]);
        assert_eq!(host.python, Some(PathBuf::from("/p")));
    }
}
