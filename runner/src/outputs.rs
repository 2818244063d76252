//! The step `outputs`: what the job leaves behind, sent file by file.

use std::{
    fs, io as stdio,
    path::{Path, PathBuf},
};

use crate::{
    context::Context,
    files::{blocking, sha256_of},
    halt::{Halt, JobResultOf, io},
};

/// A file of an output.
#[derive(Debug, PartialEq, Eq)]
struct OutputFile {
    /// Relative to the output, with `/`.
    name: String,
    path: PathBuf,
}

impl Context {
    /// Uploads every output that the pipeline file names.
    pub async fn upload_outputs(&self) -> JobResultOf<()> {
        for (name, path) in &self.assignment.job.outputs {
            let (root, relative) = (self.folders.repo.clone(), path.clone());
            let found = blocking("outputs", move || Ok(find(&root, &relative))).await?;
            let (files, skipped) = found.map_err(|problem| Halt::user(format!("output {name}: {path} {problem}")))?;
            for link in skipped {
                self.log.line(&format!("sluice: output {name}: {link} is left out: a link, or not a plain file")).await;
            }
            for file in &files {
                self.upload(name, &file.name, &file.path).await?;
            }
            self.log.line(&format!("sluice: output {name}: {} files of {path}", files.len())).await;
        }
        Ok(())
    }

    /// Where the plan wants the file of an output that the runner itself makes; its folder is there afterwards.
    pub fn output_file(&self, output: &str) -> JobResultOf<PathBuf> {
        let relative = self.assignment.job.outputs.get(output).ok_or_else(|| Halt::infra(format!("the plan has no output {output}")))?;
        let file = self.folders.repo.join(relative);
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder).map_err(io(output))?;
        }
        Ok(file)
    }

    /// Uploads one file of an output.
    async fn upload(&self, output: &str, name: &str, path: &Path) -> JobResultOf<()> {
        let title = format!("output {output}: {name}");
        let local = path.to_owned();
        let (sha256, _) = blocking(&title, move || sha256_of(&local)).await?;
        let (job, attempt) = (self.assignment.job_id, self.assignment.attempt);
        let stored = self.call(&title, || self.client.put_output(job, attempt, output, name, path)).await?;
        if stored.sha256 == sha256 {
            Ok(())
        } else {
            Err(Halt::infra(format!("{title}: the server stored SHA-256 {}, the file has {sha256}", stored.sha256)))
        }
    }
}

type Found = (Vec<OutputFile>, Vec<String>);

/// The files of an output in order, and what was left out. The error says what is wrong with the path.
fn find(repo: &Path, relative: &str) -> Result<Found, String> {
    let repo = fs::canonicalize(repo).map_err(|error| error.to_string())?;
    let path = match fs::canonicalize(repo.join(relative)) {
        Ok(path) => path,
        Err(error) if error.kind() == stdio::ErrorKind::NotFound => return Err("is missing".to_owned()),
        Err(error) => return Err(format!("cannot be read: {error}")),
    };
    if !path.starts_with(&repo) {
        return Err("leads out of the checkout".to_owned());
    }
    let mut found = (Vec::new(), Vec::new());
    if path.is_file() {
        let name = Path::new(relative).file_name().and_then(|name| name.to_str()).ok_or("has no name in UTF-8")?;
        found.0.push(OutputFile { name: name.to_owned(), path });
        return Ok(found);
    }
    walk(&repo, &path, "", &mut found)?;
    if found.0.is_empty() {
        return Err("holds no file".to_owned());
    }
    found.0.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

fn walk(repo: &Path, folder: &Path, prefix: &str, found: &mut Found) -> Result<(), String> {
    for entry in fs::read_dir(folder).map_err(|error| format!("cannot be read: {error}"))? {
        let entry = entry.map_err(|error| format!("cannot be read: {error}"))?;
        let name = entry.file_name();
        let name = name.to_str().ok_or_else(|| format!("holds the file {name:?}, whose name is not UTF-8"))?;
        let name = format!("{prefix}{name}");
        let kind = entry.file_type().map_err(|error| format!("cannot be read: {error}"))?;
        let path = entry.path();
        if kind.is_dir() {
            walk(repo, &path, &format!("{name}/"), found)?;
        } else if kind.is_file() {
            found.0.push(OutputFile { name, path });
        } else {
            // A link to a file of the checkout is that file; anything else could be any file of this machine.
            match fs::canonicalize(&path) {
                Ok(target) if kind.is_symlink() && target.starts_with(repo) && target.is_file() => {
                    found.0.push(OutputFile { name, path: target })
                }
                _ => found.1.push(name),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_in_order_and_links_stay_inside() {
        let folder = tempfile::tempdir().unwrap();
        let repo = folder.path().join("repo");
        fs::create_dir_all(repo.join("out/b")).unwrap();
        fs::create_dir_all(repo.join("empty")).unwrap();
        fs::write(repo.join("out/b/x"), "1").unwrap();
        fs::write(repo.join("out/a"), "2").unwrap();
        fs::write(folder.path().join("secret"), "3").unwrap();
        std::os::unix::fs::symlink("a", repo.join("out/inside")).unwrap();
        std::os::unix::fs::symlink("../../secret", repo.join("out/outside")).unwrap();
        std::os::unix::fs::symlink("../secret", repo.join("escape")).unwrap();
        let (files, skipped) = find(&repo, "out").unwrap();
        assert_eq!(files.iter().map(|file| file.name.as_str()).collect::<Vec<_>>(), ["a", "b/x", "inside"]);
        assert_eq!(skipped, ["outside"]);
        assert_eq!(find(&repo, "out/b/x").unwrap().0[0].name, "x");
        assert_eq!(find(&repo, "nothing").unwrap_err(), "is missing");
        assert_eq!(find(&repo, "empty").unwrap_err(), "holds no file");
        assert_eq!(find(&repo, "escape").unwrap_err(), "leads out of the checkout");
    }
}
