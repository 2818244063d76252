//! The two services of git's smart HTTP protocol, run by the stock git program.

use std::{path::Path, process::Stdio, str::FromStr};

use tokio::{
    io::AsyncReadExt as _,
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
};

use crate::Result;

/// One of git's two network services. Nothing else is ever run for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// Clone and fetch.
    UploadPack,
    /// Push.
    ReceivePack,
}

impl Service {
    /// The name in URLs and content types.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UploadPack => "git-upload-pack",
            Self::ReceivePack => "git-receive-pack",
        }
    }
}

impl FromStr for Service {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        match text {
            "git-upload-pack" => Ok(Self::UploadPack),
            "git-receive-pack" => Ok(Self::ReceivePack),
            _ => Err(()),
        }
    }
}

/// A running service. Dropping the child kills git.
#[derive(Debug)]
pub struct Process {
    pub child: Child,
    pub stdin: ChildStdin,
    pub stdout: ChildStdout,
    pub stderr: ChildStderr,
}

/// Starts a service on the repository in `folder`. `protocol` is the client's `Git-Protocol` header;
/// `advertise` asks for the list of references instead of an exchange.
///
/// # Errors
/// When git cannot be started.
pub fn spawn(service: Service, folder: &Path, protocol: Option<&str>, advertise: bool) -> Result<Process> {
    let mut command = Command::new("git");
    command.env_clear();
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    // neither the host's configuration nor that of the repository decides what a push may run
    command.envs([("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_TERMINAL_PROMPT", "0"), ("LC_ALL", "C")]);
    command.env("HOME", "/nonexistent");
    if let Some(protocol) = protocol.filter(|text| is_protocol(text)) {
        command.env("GIT_PROTOCOL", protocol);
    }
    let safe = format!("safe.directory={}", folder.display());
    for setting in [
        "core.hooksPath=/dev/null",
        "transfer.fsckObjects=true",
        "receive.autogc=false",
        "receive.denyDeletes=false",
        "receive.denyNonFastForwards=false",
        // a runner asks for a commit by its SHA, also after the branch has moved on
        "uploadpack.allowAnySHA1InWant=true",
        "uploadpack.allowFilter=true",
        safe.as_str(),
    ] {
        command.args(["-c", setting]);
    }
    command.arg(match service {
        Service::UploadPack => "upload-pack",
        Service::ReceivePack => "receive-pack",
    });
    if service == Service::UploadPack {
        command.arg("--strict");
    }
    command.arg("--stateless-rpc");
    if advertise {
        command.arg("--advertise-refs");
    }
    command.arg(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn()?;
    let broken = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
    let stdin = child.stdin.take().ok_or_else(broken)?;
    let stdout = child.stdout.take().ok_or_else(broken)?;
    let stderr = child.stderr.take().ok_or_else(broken)?;
    Ok(Process { child, stdin, stdout, stderr })
}

/// Whether the text may become `GIT_PROTOCOL`: colon-separated keys and values such as `version=2`.
fn is_protocol(text: &str) -> bool {
    text.len() <= 200 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"=:._-/".contains(&byte))
}

/// The list of references, as the body of `GET info/refs?service=…`.
///
/// # Errors
/// When git fails.
pub async fn advertise(service: Service, folder: &Path, protocol: Option<&str>) -> Result<Vec<u8>> {
    let Process { mut child, stdin, mut stdout, mut stderr } = spawn(service, folder, protocol, true)?;
    drop(stdin);
    let mut body = crate::pkt::line(format!("# service={}\n", service.as_str()).as_bytes());
    body.extend_from_slice(crate::pkt::FLUSH);
    let mut errors = Vec::new();
    let (output, _) = tokio::try_join!(stdout.read_to_end(&mut body), stderr.read_to_end(&mut errors))?;
    let status = child.wait().await?;
    if !status.success() {
        let errors = String::from_utf8_lossy(&errors);
        return Err(std::io::Error::other(format!("{} {status} after {output} bytes: {}", service.as_str(), errors.trim())).into());
    }
    Ok(body)
}
