use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{TryStreamExt as _, stream};

use super::*;

fn store() -> (tempfile::TempDir, BlobStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = BlobStore::local(folder.path()).unwrap();
    (folder, store)
}

fn key(text: &str) -> Key {
    Key::parse(text).unwrap()
}

fn chunks(parts: &[&[u8]]) -> impl futures_util::Stream<Item = Result<Bytes, std::io::Error>> {
    stream::iter(parts.iter().map(|part| Ok(Bytes::copy_from_slice(part))).collect::<Vec<_>>())
}

async fn put(store: &BlobStore, at: &str, content: &[u8]) -> Result<Stored, Error> {
    store.put_stream(&key(at), chunks(&[content])).await?.publish().await
}

async fn read(store: &BlobStore, at: &str, range: Option<Range>) -> Result<Vec<u8>, Error> {
    let object = store.get(&key(at), range).await?;
    let parts: Vec<_> = object.stream.try_collect().await?;
    Ok(parts.concat())
}

/// Files on disk, staged ones included.
fn files(folder: &FsPath) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        if entry.path().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.file_name().into_string().unwrap());
        }
    }
    found
}

#[tokio::test]
async fn an_upload_is_visible_only_when_published() {
    let (folder, store) = store();
    let staged = store.put_stream(&key("0/run/m.bin"), chunks(&[b"ab", b"", b"c"])).await.unwrap();
    assert_eq!(staged.stored().sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert!(matches!(read(&store, "0/run/m.bin", None).await, Err(Error::NotFound(_))));
    assert!(store.list(Some(&key("0/run"))).await.unwrap().is_empty());
    let stored = staged.publish().await.unwrap();
    assert_eq!(stored.bytes, 3);
    assert_eq!(read(&store, "0/run/m.bin", None).await.unwrap(), b"abc");
    assert_eq!(files(folder.path()), ["m.bin"]);
}

#[tokio::test]
async fn a_broken_or_dropped_upload_leaves_nothing_and_keeps_the_old_object() {
    let (folder, store) = store();
    put(&store, "a", b"old").await.unwrap();
    let broken = stream::iter([Ok(Bytes::from_static(b"new")), Err("connection reset")]);
    assert!(matches!(store.put_stream(&key("a"), broken).await, Err(Error::Interrupted(_))));
    drop(store.put_stream(&key("a"), chunks(&[b"newer"])).await.unwrap());
    let deadline = Instant::now() + Duration::from_secs(10);
    while files(folder.path()) != ["a"] {
        assert!(Instant::now() < deadline, "left: {:?}", files(folder.path()));
        tokio::task::yield_now().await;
    }
    assert_eq!(read(&store, "a", None).await.unwrap(), b"old");
}

#[tokio::test]
async fn large_objects_go_in_parts_and_come_back_in_ranges() {
    let (_folder, store) = store();
    let content: Vec<u8> = (0..12 * 1024 * 1024_u32).map(|i| (i % 251) as u8).collect();
    let parts: Vec<&[u8]> = content.chunks(64 * 1024).collect();
    let stored = store.put_stream(&key("big"), chunks(&parts)).await.unwrap().publish().await.unwrap();
    assert_eq!(stored.bytes, content.len() as u64);
    assert!(read(&store, "big", None).await.unwrap() == content);
    let size = content.len() as u64;
    assert_eq!(read(&store, "big", Some(Range::FromTo(5_242_879, 5_242_881))).await.unwrap(), content[5_242_879..5_242_882]);
    assert_eq!(read(&store, "big", Some(Range::FromTo(size - 2, size + 99))).await.unwrap(), content[content.len() - 2..]);
    assert_eq!(read(&store, "big", Some(Range::From(size - 1))).await.unwrap().len(), 1);
    assert_eq!(read(&store, "big", Some(Range::Last(7))).await.unwrap(), content[content.len() - 7..]);
    for bad in [Range::From(size), Range::FromTo(size, size), Range::Last(0)] {
        assert!(matches!(read(&store, "big", Some(bad)).await, Err(Error::RangeNotSatisfiable { bytes }) if bytes == size));
    }
    put(&store, "empty", b"").await.unwrap();
    assert!(read(&store, "empty", None).await.unwrap().is_empty());
    assert!(matches!(read(&store, "empty", Some(Range::Last(3))).await, Err(Error::RangeNotSatisfiable { bytes: 0 })));
}

#[tokio::test]
async fn odd_names_come_back_as_they_were_put() {
    let (_folder, store) = store();
    let names = ["100%.txt", "[1]~{x}.txt", "a b*?.txt", "q\"<>|^`'.txt", "ünï.txt", "日本"];
    for name in names {
        put(&store, &format!("d/{name}/{name}"), name.as_bytes()).await.unwrap();
        put(&store, &format!("d/f-{name}"), name.as_bytes()).await.unwrap();
        assert_eq!(read(&store, &format!("d/{name}/{name}"), None).await.unwrap(), name.as_bytes());
    }
    let mut expected: Vec<Entry> = names.iter().map(|name| Entry { name: (*name).to_owned(), is_dir: true, bytes: 0 }).collect();
    expected.extend(names.iter().map(|name| Entry { name: format!("f-{name}"), is_dir: false, bytes: name.len() as u64 }));
    expected.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(store.list(Some(&key("d"))).await.unwrap(), expected);
    let below = Entry { name: "100%.txt".to_owned(), is_dir: false, bytes: 8 };
    assert_eq!(store.list(Some(&key("d/100%.txt"))).await.unwrap(), [below]);
}

#[tokio::test]
async fn files_and_folders_do_not_take_each_others_place() {
    let (folder, store) = store();
    put(&store, "d/f", b"x").await.unwrap();
    assert!(matches!(put(&store, "d/f/g", b"y").await, Err(Error::NotAFile(_))));
    assert!(matches!(put(&store, "d", b"y").await, Err(Error::NotAFile(_))));
    let staged = store.put_stream(&key("e"), chunks(&[b"x"])).await.unwrap();
    put(&store, "e/f", b"x").await.unwrap();
    assert!(matches!(staged.publish().await, Err(Error::NotAFile(_))), "a folder came meanwhile");
    assert!(matches!(read(&store, "d", None).await, Err(Error::NotAFile(_))));
    assert!(matches!(read(&store, "d/f/g", None).await, Err(Error::NotFound(_))));
    assert!(store.list(Some(&key("d/f"))).await.unwrap().is_empty());
    assert!(store.list(Some(&key("d/f/g"))).await.unwrap().is_empty());
    store.delete(&key("d/f/g")).await.unwrap();
    assert!(store.list(Some(&key("nowhere"))).await.unwrap().is_empty());
    store.delete(&key("e")).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while files(folder.path()) != ["f"] {
        assert!(Instant::now() < deadline, "left: {:?}", files(folder.path()));
        tokio::task::yield_now().await;
    }
    assert_eq!(store.list(None).await.unwrap().first(), Some(&Entry { name: "d".to_owned(), is_dir: true, bytes: 0 }));
}

#[tokio::test]
async fn deleting_takes_a_file_or_a_tree_and_not_its_neighbours() {
    let (_folder, store) = store();
    for at in ["r/a/1", "r/a/b/2", "r/ab", "r/c"] {
        put(&store, at, b"x").await.unwrap();
    }
    store.delete(&key("r/a")).await.unwrap();
    store.delete(&key("r/c")).await.unwrap();
    store.delete(&key("r/none")).await.unwrap();
    let left = Entry { name: "ab".to_owned(), is_dir: false, bytes: 1 };
    assert_eq!(store.list(Some(&key("r"))).await.unwrap(), [left]);
    put(&store, "r/a", b"now a file").await.unwrap();
}

#[tokio::test]
async fn a_fetched_file_appears_only_with_the_expected_digest() {
    let (folder, store) = store();
    let stored = put(&store, "m.onnx", b"abc").await.unwrap();
    let to = folder.path().join("local");
    store.fetch(&key("m.onnx"), Some(&stored.sha256), &to).await.unwrap();
    assert_eq!(std::fs::read(&to).unwrap(), b"abc");
    put(&store, "m.onnx", b"abd").await.unwrap();
    let other = folder.path().join("other");
    let error = store.fetch(&key("m.onnx"), Some(&stored.sha256), &other).await.unwrap_err();
    assert!(matches!(&error, Error::DigestMismatch { expected, .. } if *expected == stored.sha256), "{error}");
    assert!(!other.exists() && !folder.path().join("other.partial").exists());
}

#[tokio::test]
async fn what_a_killed_process_staged_is_swept_away() {
    let (folder, store) = store();
    put(&store, "r/a", b"x").await.unwrap();
    std::fs::write(folder.path().join("r/b#1"), "half").unwrap();
    let before = std::fs::metadata(folder.path().join("r/b#1")).unwrap().modified().unwrap();
    assert_eq!(store.remove_abandoned(before).await.unwrap(), 0, "still being written");
    assert_eq!(store.remove_abandoned(before + Duration::from_secs(1)).await.unwrap(), 1);
    assert_eq!(files(folder.path()), ["a"]);
}
