//! The step `inputs`: outputs of needed jobs, laid where the job finds them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use sluice_domain::{names::check_relative_path, runner::InputFile};

use crate::{
    context::Context,
    files::{Hasher, blocking, copy_hashed},
    halt::{Halt, JobResultOf, io},
};

impl Context {
    /// Lays out the inputs, and the champion's beside them.
    pub async fn fetch_inputs(&self) -> JobResultOf<()> {
        let assignment = &self.assignment;
        self.lay_out(&assignment.inputs, &self.folders.inputs).await?;
        if let Some(champion) = &assignment.champion {
            self.lay_out(&champion.inputs, &self.folders.champion).await?;
            self.log.line(&format!("sluice: champion is {} version {}", champion.model, champion.version)).await;
        }
        Ok(())
    }

    async fn lay_out(&self, inputs: &[InputFile], root: &Path) -> JobResultOf<()> {
        for input in inputs {
            let target = target(root, input)?;
            let title = format!("input {}/{}/{}", input.job, input.output, input.path);
            let blob = self.config.cache_dir.join("blobs").join(blob_path(&input.sha256)?);
            // A cached file is checked while it is copied: disks fail, and jobs can reach the cache.
            for from_server in [false, true] {
                if from_server {
                    self.download(&title, input, &blob).await?;
                } else if !blob.is_file() {
                    continue;
                }
                let (from, to) = (blob.clone(), target.clone());
                let sha256 = blocking(&title, move || copy_hashed(&from, &to)).await?;
                if sha256 == input.sha256 {
                    break;
                }
                let _ = fs::remove_file(&blob);
                if from_server {
                    return Err(Halt::infra(format!("{title}: the cached file changed while it was read")));
                }
            }
        }
        if !inputs.is_empty() {
            let bytes: i64 = inputs.iter().map(|input| input.bytes).sum();
            self.log.line(&format!("sluice: {} input files, {bytes} bytes", inputs.len())).await;
        }
        Ok(())
    }

    async fn download(&self, title: &str, input: &InputFile, blob: &Path) -> JobResultOf<()> {
        let folder = blob.parent().unwrap_or(blob);
        fs::create_dir_all(folder).map_err(io(title))?;
        // Several jobs may want the same file: each brings its own copy and the last rename wins.
        let partial = tempfile::Builder::new().prefix(".partial-").tempfile_in(folder).map_err(io(title))?;
        let path = partial.path();
        let (sha256, bytes) = self
            .call(title, || async move {
                let mut hasher = Hasher::default();
                let bytes = self.client.download_artifact(&input.uri, path, |piece| hasher.update(piece)).await?;
                Ok((hasher.finish(), bytes))
            })
            .await?;
        if sha256 != input.sha256 {
            return Err(Halt::infra(format!("{title}: SHA-256 of the {bytes} bytes received is {sha256}, expected {}", input.sha256)));
        }
        partial.persist(blob).map_err(|error| io(title)(error.error))?;
        Ok(())
    }
}

/// Where an input goes. What the server says about paths is checked here as well: they become files.
fn target(root: &Path, input: &InputFile) -> JobResultOf<PathBuf> {
    let relative = format!("{}/{}/{}", input.job, input.output, input.path);
    check_relative_path(&relative).map_err(|error| Halt::infra(format!("input: {error}")))?;
    Ok(root.join(relative))
}

fn blob_path(sha256: &str) -> JobResultOf<String> {
    let ok = sha256.len() == 64 && sha256.bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase());
    if ok { Ok(format!("{}/{sha256}", &sha256[..2])) } else { Err(Halt::infra(format!("{sha256:?} is not a SHA-256"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_cannot_leave_their_folder() {
        let input = |path: &str| InputFile {
            job: "train".into(),
            output: "model".into(),
            path: path.into(),
            uri: String::new(),
            sha256: String::new(),
            bytes: 0,
        };
        assert_eq!(target(Path::new("/in"), &input("data/m.pt")).unwrap(), Path::new("/in/train/model/data/m.pt"));
        for bad in ["../x", "/etc/passwd", "a/../../b", ""] {
            assert!(target(Path::new("/in"), &input(bad)).is_err(), "{bad:?}");
        }
        assert!(blob_path("../../x").is_err());
        assert!(blob_path(&"ab".repeat(32)).unwrap().starts_with("ab/ab"));
    }
}
