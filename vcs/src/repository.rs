//! Reading and creating bare repositories.

use std::{collections::BTreeMap, path::Path};

use git2::{BranchType, ErrorCode, ObjectType, Oid, Repository, RepositoryInitOptions};

use crate::{Error, Result};

/// Files that are read from commits (pipeline files, gate files) are at most this large.
pub const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// What a commit says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitInfo {
    /// First line of the message.
    pub subject: String,
    /// `Name <mail>`.
    pub author: String,
}

/// Creates a bare repository in `folder`, whose HEAD names `default_branch`. An empty or half-made
/// repository that an interrupted call left there is taken over.
///
/// # Errors
/// When the folder cannot be written.
pub fn create_bare(folder: &Path, default_branch: &str) -> Result<()> {
    let mut options = RepositoryInitOptions::new();
    // no external template: a template folder of the host could bring hooks
    options.bare(true).mkpath(true).external_template(false).initial_head(default_branch);
    Repository::init_opts(folder, &options)?;
    Ok(())
}

/// Whether `name` may be a branch.
#[must_use]
pub fn is_branch_name(name: &str) -> bool {
    name.len() <= 200 && git2::Branch::name_is_valid(name).unwrap_or(false)
}

/// The commit that each branch points at: branch name → SHA in lowercase hex. Branches whose names are not
/// UTF-8 and branches that point at something else than a commit are left out.
///
/// # Errors
/// When the repository cannot be read.
pub fn branch_heads(folder: &Path) -> Result<BTreeMap<String, String>> {
    let repository = Repository::open_bare(folder)?;
    let mut heads = BTreeMap::new();
    for branch in repository.branches(Some(BranchType::Local))? {
        let (branch, _) = branch?;
        let Ok(name) = std::str::from_utf8(branch.name_bytes()?) else { continue };
        if let Ok(commit) = branch.get().peel_to_commit() {
            heads.insert(name.to_owned(), commit.id().to_string());
        }
    }
    Ok(heads)
}

/// Subject and author of a commit. Text that is not UTF-8 is replaced, as are control characters.
///
/// # Errors
/// When there is no such commit.
pub fn commit_info(folder: &Path, sha: &str) -> Result<CommitInfo> {
    let repository = Repository::open_bare(folder)?;
    let commit = repository.find_commit(Oid::from_str(sha)?)?;
    let message = String::from_utf8_lossy(commit.message_bytes()).into_owned();
    let author = commit.author();
    let author = format!("{} <{}>", String::from_utf8_lossy(author.name_bytes()), String::from_utf8_lossy(author.email_bytes()));
    Ok(CommitInfo {
        subject: one_line(message.lines().find(|line| !line.trim().is_empty()).unwrap_or_default()),
        author: one_line(&author),
    })
}

fn one_line(text: &str) -> String {
    text.trim().chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).take(500).collect()
}

/// Reads a file at a commit. `None`: the commit has no such file (or it is a folder or submodule).
///
/// # Errors
/// When there is no such commit or the file is larger than [`MAX_FILE_BYTES`].
pub fn read_file(folder: &Path, sha: &str, path: &str) -> Result<Option<Vec<u8>>> {
    let repository = Repository::open_bare(folder)?;
    let tree = repository.find_commit(Oid::from_str(sha)?)?.tree()?;
    let entry = match tree.get_path(Path::new(path)) {
        Ok(entry) => entry,
        Err(error) if error.code() == ErrorCode::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if entry.kind() != Some(ObjectType::Blob) {
        return Ok(None);
    }
    // the header tells the size before the content is read
    let (size, _) = repository.odb()?.read_header(entry.id())?;
    if size as u64 > MAX_FILE_BYTES {
        return Err(Error::TooLarge { path: path.to_owned(), bytes: size as u64, limit: MAX_FILE_BYTES });
    }
    Ok(Some(repository.find_blob(entry.id())?.content().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_what_was_committed() {
        let folder = std::env::temp_dir().join(format!("sluice-vcs-{}", std::process::id()));
        create_bare(&folder, "trunk").unwrap();
        create_bare(&folder, "trunk").unwrap();
        assert!(branch_heads(&folder).unwrap().is_empty());

        let repository = Repository::open_bare(&folder).unwrap();
        let blob = repository.blob(b"version: 1\n").unwrap();
        let mut tree = repository.treebuilder(None).unwrap();
        tree.insert(".sluice.yml", blob, 0o100_644).unwrap();
        let tree = repository.find_tree(tree.write().unwrap()).unwrap();
        let who = git2::Signature::new("Ada", "ada@example.org", &git2::Time::new(0, 0)).unwrap();
        let id = repository.commit(Some("refs/heads/exp/a"), &who, &who, "\nFirst\x07 line\n\nmore", &tree, &[]).unwrap().to_string();

        assert_eq!(branch_heads(&folder).unwrap(), BTreeMap::from([("exp/a".to_owned(), id.clone())]));
        assert_eq!(
            commit_info(&folder, &id).unwrap(),
            CommitInfo { subject: "First\u{fffd} line".to_owned(), author: "Ada <ada@example.org>".to_owned() }
        );
        assert_eq!(read_file(&folder, &id, ".sluice.yml").unwrap().unwrap(), b"version: 1\n");
        assert_eq!(read_file(&folder, &id, "none/such").unwrap(), None);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
