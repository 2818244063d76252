//! Getting the commit. Objects are fetched once per repository into a bare cache; a workspace borrows them from there.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io as stdio,
    path::{Path, PathBuf},
};

use git2::{Oid, Repository, build::CheckoutBuilder};

use crate::{
    context::Context,
    files::{FileLock, blocking},
    halt::{Halt, JobResultOf, io},
    process::Command,
};

impl Context {
    /// The step `checkout`.
    pub async fn checkout(&self) -> JobResultOf<()> {
        let sha = &self.assignment.sha;
        self.log.line(&format!("sluice: checkout of {} {sha}", self.assignment.repository)).await;
        let oid = Oid::from_str(sha).map_err(|error| Halt::infra(format!("commit {sha:?}: {error}")))?;
        let name = cache_name(&self.assignment.git_path);
        let cache = self.config.cache_dir.join("git").join(&name);
        let mut stop = self.stop.clone();
        let lock = FileLock::take(&cache.with_extension("lock"), &mut stop).await?;
        if !has_commit(&cache, oid) {
            self.fetch(&cache, oid).await?;
        }
        drop(lock);
        let repo = self.folders.repo.clone();
        blocking("checkout", move || check_out(&cache, &repo, oid).map_err(stdio::Error::other)).await
    }

    async fn fetch(&self, cache: &Path, oid: Oid) -> JobResultOf<()> {
        if Repository::open_bare(cache).is_err() {
            crate::workspace::remove(cache).map_err(io(cache.display()))?;
            Repository::init_bare(cache).map_err(|error| Halt::infra(format!("git cache: {error}")))?;
        }
        let url = format!("{}{}", self.config.server_url, self.assignment.git_path);
        self.git(cache, &["fetch", "--quiet", "--force", "--no-tags", &url, "+refs/heads/*:refs/remotes/sluice/*"]).await?;
        // The branch may have moved on by force: the server still gives out the commit by its name.
        if !has_commit(cache, oid) {
            self.git(cache, &["fetch", "--quiet", "--no-tags", &url, &oid.to_string()]).await?;
        }
        let repository = Repository::open_bare(cache).map_err(|error| Halt::infra(format!("git cache: {error}")))?;
        // Named, so that it stays when the branch is gone.
        let kept = repository.reference(&format!("refs/sluice/{oid}"), oid, true, "kept for checkouts");
        kept.map(|_| ()).map_err(|error| Halt::infra(format!("commit {oid} is not on the server: {error}")))
    }

    async fn git(&self, cache: &Path, args: &[&str]) -> JobResultOf<()> {
        let mut env = self.base_environment();
        env.remove("MLFLOW_TRACKING_TOKEN");
        env.extend(self.config.host.network.clone());
        env.extend(git_environment(&self.config.server_url));
        let mut all = vec![OsString::from("-c"), "gc.auto=0".into(), "-C".into(), cache.into()];
        all.extend(args.iter().map(OsString::from));
        let fetched = self.run("git fetch", Command { program: "git".into(), args: all, cwd: self.folders.tmp.clone(), env }).await;
        // Not the commit's fault: another attempt may do.
        fetched.map_err(|halt| if let Halt::Failed(failure) = halt { Halt::infra(failure.message) } else { halt })
    }
}

/// Git without anybody's settings, prompts or (towards this machine) proxies.
fn git_environment(server_url: &str) -> BTreeMap<String, OsString> {
    let mut env = BTreeMap::from([
        ("GIT_TERMINAL_PROMPT".to_owned(), OsString::from("0")),
        ("GIT_CONFIG_NOSYSTEM".to_owned(), "1".into()),
        ("GIT_CONFIG_GLOBAL".to_owned(), "/dev/null".into()),
    ]);
    let host = server_url.split("://").nth(1).unwrap_or_default();
    if ["127.", "localhost", "[::1]"].iter().any(|start| host.starts_with(start)) {
        env.extend(["NO_PROXY", "no_proxy"].map(|name| (name.to_owned(), OsString::from("*"))));
    }
    env
}

/// Folder of a repository's cache: `digits.git` for `/git/digits.git`.
fn cache_name(git_path: &str) -> PathBuf {
    let name: String =
        git_path.rsplit('/').next().unwrap_or_default().chars().filter(|c| c.is_ascii_alphanumeric() || "._-".contains(*c)).collect();
    PathBuf::from(if name.trim_matches('.').is_empty() { "repository.git".to_owned() } else { name })
}

fn has_commit(cache: &Path, oid: Oid) -> bool {
    // A commit without its files (an interrupted fetch) does not count: the reference is made last.
    Repository::open_bare(cache)
        .is_ok_and(|repository| repository.find_commit(oid).is_ok() && repository.find_commit(oid).and_then(|commit| commit.tree()).is_ok())
}

fn check_out(cache: &Path, target: &Path, oid: Oid) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let objects = Repository::init(target)?.path().join("objects");
    let alternate = fs::canonicalize(cache)?.join("objects");
    fs::create_dir_all(objects.join("info"))?;
    fs::write(objects.join("info/alternates"), format!("{}\n", alternate.display()))?;
    // Opened again: alternates are read when the object database is.
    let repository = Repository::open(target)?;
    repository.set_head_detached(oid)?;
    let mut options = CheckoutBuilder::new();
    repository.checkout_head(Some(options.force()))?;
    let head = repository.head()?.peel_to_commit()?.id();
    if head == oid { Ok(()) } else { Err(format!("HEAD is {head}, expected {oid}").into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_laid_out_from_the_cache() {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("cache.git");
        let repository = Repository::init_bare(&cache).unwrap();
        let blob = repository.blob(b"print(1)\n").unwrap();
        let mut tree = repository.treebuilder(None).unwrap();
        tree.insert("train.py", blob, 0o100_755).unwrap();
        let tree = repository.find_tree(tree.write().unwrap()).unwrap();
        let author = git2::Signature::now("a", "a@b").unwrap();
        let oid = repository.commit(None, &author, &author, "first", &tree, &[]).unwrap();

        assert!(has_commit(&cache, oid));
        assert!(!has_commit(&cache, Oid::from_str(&"1".repeat(40)).unwrap()));
        let target = folder.path().join("repo");
        check_out(&cache, &target, oid).unwrap();
        assert_eq!(fs::read(target.join("train.py")).unwrap(), b"print(1)\n");
        assert!(Repository::open(&target).unwrap().head_detached().unwrap());
    }

    #[test]
    fn cache_names_stay_in_their_folder() {
        assert_eq!(cache_name("/git/digits.git"), Path::new("digits.git"));
        assert_eq!(cache_name("/git/.."), Path::new("repository.git"));
        assert_eq!(cache_name(""), Path::new("repository.git"));
    }
}
