//! Environments: built once, found again by content.
//!
//! The key is made of what the result depends on: the set-up command, the files that it names, the interpreter and
//! the platform. An environment is a virtual environment at `CACHE_DIR/envs/KEY`; the file `complete`, written last,
//! says that it may be used.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    fs, io as stdio,
    path::{Path, PathBuf},
};

use crate::{
    context::Context,
    files::{FileLock, Hasher, blocking, sha256_of},
    halt::{Halt, JobResultOf, io},
    process::Command,
};

/// What the steps of a job run with.
#[derive(Debug, Clone)]
pub struct Environment {
    pub python: PathBuf,
    /// Variables of every step.
    pub variables: BTreeMap<String, OsString>,
}

const COMPLETE: &str = "complete";
const LAST_USED: &str = "last-used";
/// Bumped when environments of earlier versions must not be used any more.
const LAYOUT: &str = "1";

impl Context {
    /// The step `setup`. Answers whether something was built.
    pub async fn set_up(&self) -> JobResultOf<(Environment, bool)> {
        let python = self.base_python();
        let Some(setup) = self.assignment.job.setup.as_deref().filter(|setup| !setup.trim().is_empty()) else {
            let mut variables = self.job_environment();
            if let Some(folder) = python.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                prepend_path(&mut variables, folder);
            }
            return Ok((Environment { python, variables }, false));
        };
        let key = self.environment_key(setup).await?;
        let folder = self.config.cache_dir.join("envs").join(&key);
        let environment = self.environment_at(&folder);
        let mut stop = self.stop.clone();
        let lock = FileLock::take(&folder.with_extension("lock"), &mut stop).await?;
        let built = !folder.join(COMPLETE).is_file();
        if built {
            self.log.line(&format!("sluice: building environment {key} with: {setup}")).await;
            // What an interrupted build left cannot be trusted.
            let half_built = folder.clone();
            blocking("environment", move || crate::workspace::remove(&half_built)).await?;
            if let Err(halt) = self.build(&folder, setup).await {
                let failed = folder.clone();
                let _ = blocking("environment", move || crate::workspace::remove(&failed)).await;
                return Err(halt);
            }
        } else {
            self.log.line(&format!("sluice: environment {key} is reused")).await;
        }
        fs::write(folder.join(LAST_USED), "").map_err(io("environment"))?;
        drop(lock);
        Ok((environment, built))
    }

    async fn build(&self, folder: &Path, setup: &str) -> JobResultOf<()> {
        let mut env = self.setup_environment();
        let args = [OsStr::new("-m"), OsStr::new("venv"), folder.as_os_str()].map(OsStr::to_owned);
        let venv = Command { program: self.base_python().into(), args: args.into(), cwd: self.folders.repo.clone(), env: env.clone() };
        // Without an interpreter no commit can succeed here: not the commit's fault.
        self.run("python -m venv", venv).await.map_err(|halt| match halt {
            Halt::Failed(failure) => Halt::infra(failure.message),
            stopped => stopped,
        })?;
        enter(&mut env, folder);
        self.run("setup", self.shell(setup, env)).await?;
        let partial = folder.join("complete.partial");
        fs::write(&partial, format!("{setup}\n")).map_err(io("environment"))?;
        fs::File::open(&partial).and_then(|file| file.sync_all()).map_err(io("environment"))?;
        fs::rename(partial, folder.join(COMPLETE)).map_err(io("environment"))
    }

    /// What set-up commands see: the network's settings, but not the run, and of the pipeline file's variables only
    /// pip's, because the result must not depend on the others.
    fn setup_environment(&self) -> BTreeMap<String, OsString> {
        let mut env = self.base_environment();
        env.retain(|name, _| !name.starts_with("MLFLOW_"));
        env.extend(self.config.host.network.clone());
        env.entry("PIP_CACHE_DIR".to_owned()).or_insert_with(|| self.config.cache_dir.join("pip").into());
        env.entry("PIP_DISABLE_PIP_VERSION_CHECK".to_owned()).or_insert_with(|| "1".into());
        env.extend(self.pip_variables().map(|(name, value)| (name.clone(), value.into())));
        env
    }

    fn pip_variables(&self) -> impl Iterator<Item = (&String, &String)> {
        self.assignment.job.env.iter().filter(|(name, _)| name.starts_with("PIP_"))
    }

    fn environment_at(&self, folder: &Path) -> Environment {
        let mut variables = self.job_environment();
        enter(&mut variables, folder);
        Environment { python: folder.join("bin/python"), variables }
    }

    async fn environment_key(&self, setup: &str) -> JobResultOf<String> {
        let probe = "import sys, platform; print(sys.version, sys.base_prefix, platform.machine(), platform.libc_ver())";
        let args = [OsString::from("-I"), "-c".into(), probe.into()];
        let env = self.base_environment();
        let command = Command { program: self.base_python().into(), args: args.into(), cwd: self.folders.tmp.clone(), env };
        let python = self.capture("python", command).await?;
        let mut facts =
            vec![LAYOUT.to_owned(), setup.to_owned(), python, std::env::consts::OS.to_owned(), std::env::consts::ARCH.to_owned()];
        facts.extend(self.pip_variables().map(|(name, value)| format!("{name}={value}")));
        let (checkout, setup) = (self.folders.repo.clone(), setup.to_owned());
        blocking("environment", move || content_key(&facts, &checkout, &setup)).await
    }
}

/// Makes the variables those of an activated virtual environment.
fn enter(env: &mut BTreeMap<String, OsString>, folder: &Path) {
    env.insert("VIRTUAL_ENV".to_owned(), folder.into());
    prepend_path(env, &folder.join("bin"));
}

fn prepend_path(env: &mut BTreeMap<String, OsString>, folder: &Path) {
    let mut path = folder.as_os_str().to_owned();
    if let Some(rest) = env.get("PATH").filter(|rest| !rest.is_empty()) {
        path.push(":");
        path.push(rest);
    }
    env.insert("PATH".to_owned(), path);
}

/// Key of an environment: `facts`, and the content of every file of the checkout that the set-up command names, also
/// through `-r` and `-c` lines of requirement files. A named folder counts with all its files.
fn content_key(facts: &[String], checkout: &Path, setup: &str) -> stdio::Result<String> {
    let mut files = BTreeSet::new();
    let mut folders = BTreeSet::new();
    let mut queue: Vec<String> = words(setup).map(str::to_owned).collect();
    while let Some(word) = queue.pop() {
        let relative = word.strip_prefix("./").unwrap_or(&word);
        if relative.starts_with('/') || Path::new(relative).components().any(|part| part == std::path::Component::ParentDir) {
            continue;
        }
        let path = checkout.join(relative);
        let Ok(kind) = fs::symlink_metadata(&path) else { continue };
        if kind.is_dir() {
            folders.insert(path);
        } else if kind.is_file() && files.insert(path.clone()) {
            let base = Path::new(relative).parent().unwrap_or(Path::new(""));
            let text = fs::read_to_string(&path).unwrap_or_default();
            queue.extend(included(&text).map(|name| base.join(name).to_string_lossy().into_owned()));
        }
    }
    for folder in folders {
        collect(&folder, &mut files)?;
    }
    let mut hasher = Hasher::default();
    for fact in facts {
        hasher.part(fact.as_bytes());
    }
    for file in files {
        hasher.part(file.strip_prefix(checkout).unwrap_or(&file).as_os_str().as_encoded_bytes());
        hasher.part(sha256_of(&file)?.0.as_bytes());
    }
    let mut key = hasher.finish();
    // 128 bits tell environments apart, and the path stays short enough for `#!` lines.
    key.truncate(32);
    Ok(key)
}

/// Words of a shell command, however they are quoted or joined to options (`--file=x`).
fn words(command: &str) -> impl Iterator<Item = &str> {
    command.split(|c: char| c.is_whitespace() || "\"'`;|&<>(){}=,$".contains(c)).filter(|word| !word.is_empty())
}

/// Files that a requirement file includes.
fn included(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let line = line.split(" #").next().unwrap_or_default().trim();
        let option = ["-r", "-c", "--requirement", "--constraint"].iter().find_map(|option| line.strip_prefix(option))?;
        Some(option.trim_start_matches('=').trim()).filter(|name| !name.is_empty() && !name.contains(' '))
    })
}

fn collect(folder: &Path, files: &mut BTreeSet<PathBuf>) -> stdio::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() && entry.file_name() != ".git" {
            collect(&entry.path(), files)?;
        } else if kind.is_file() {
            files.insert(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(checkout: &Path, setup: &str) -> String {
        content_key(&[setup.to_owned(), "3.11".to_owned()], checkout, setup).unwrap()
    }

    #[test]
    fn the_key_follows_the_content_of_named_files_only() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        fs::create_dir_all(folder.path().join("deps")).unwrap();
        fs::create_dir_all(folder.path().join(".git")).unwrap();
        write("requirements.txt", "-r deps/more.txt\nnumpy\n");
        write("deps/more.txt", "--constraint=pins.txt\ntorch\n");
        write("deps/pins.txt", "torch==1\n");
        write("train.py", "x");
        let setup = "pip install -r requirements.txt";
        let first = key(folder.path(), setup);
        assert_eq!(first.len(), 32);
        write("train.py", "y");
        write(".git/index", "z");
        assert_eq!(key(folder.path(), setup), first, "an unrelated file changed");
        write("deps/pins.txt", "torch==2\n");
        let second = key(folder.path(), setup);
        assert_ne!(second, first, "an included file changed");
        write("requirements.txt", "-r deps/more.txt\nnumpy==2\n");
        assert_ne!(key(folder.path(), setup), second, "the named file changed");
        assert_ne!(key(folder.path(), "pip install --requirement='requirements.txt' x"), key(folder.path(), setup));
        let whole = key(folder.path(), "pip install .");
        write("train.py", "z");
        assert_ne!(key(folder.path(), "pip install ."), whole, "a file of the named folder changed");
    }

    #[test]
    fn words_and_includes_are_found_in_every_spelling() {
        assert_eq!(words("a && b --file=c.txt 'd e';f").collect::<Vec<_>>(), ["a", "b", "--file", "c.txt", "d", "e", "f"]);
        let text = "-ra.txt\n-r b.txt # why\n--requirement=c.txt\n--constraint d.txt\nnumpy -r\n# -r e.txt\n";
        assert_eq!(included(text).collect::<Vec<_>>(), ["a.txt", "b.txt", "c.txt", "d.txt"]);
    }
}
