//! Files by content, and locks between runners.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read as _, Write as _},
    path::Path,
    time::Duration,
};

use sha2::{Digest as _, Sha256};

use crate::{
    halt::{Halt, JobResultOf, io},
    stop::Stop,
};

/// A digest that is being computed.
#[derive(Debug, Default)]
pub struct Hasher(Sha256);

impl Hasher {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Adds a part whose end cannot be confused with the start of the next.
    pub fn part(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    /// Lowercase hex.
    pub fn finish(self) -> String {
        use std::fmt::Write as _;
        self.0.finalize().iter().fold(String::with_capacity(64), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }
}

/// SHA-256 of a file and its length.
pub fn sha256_of(path: &Path) -> io::Result<(String, u64)> {
    let mut file = File::open(path)?;
    let mut hasher = Hasher::default();
    let length = pump(&mut file, |bytes| {
        hasher.update(bytes);
        Ok(())
    })?;
    Ok((hasher.finish(), length))
}

/// Copies a file, making folders on the way; answers the SHA-256 of what was copied.
pub fn copy_hashed(from: &Path, to: &Path) -> io::Result<String> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut source = File::open(from)?;
    let mut target = File::create(to)?;
    let mut hasher = Hasher::default();
    pump(&mut source, |bytes| {
        hasher.update(bytes);
        target.write_all(bytes)
    })?;
    Ok(hasher.finish())
}

fn pump(source: &mut File, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<u64> {
    let mut buffer = vec![0; 128 * 1024];
    let mut length = 0;
    loop {
        let read = source.read(&mut buffer)?;
        if read == 0 {
            return Ok(length);
        }
        take(&buffer[..read])?;
        length += read as u64;
    }
}

/// Work that would hold up the async threads.
pub async fn blocking<T: Send + 'static>(what: &str, work: impl FnOnce() -> io::Result<T> + Send + 'static) -> JobResultOf<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other).and_then(|result| result).map_err(io(what))
}

/// A lock that other processes respect. Released when dropped, and by the kernel when this process dies.
#[derive(Debug)]
pub struct FileLock {
    _file: File,
}

impl FileLock {
    /// Takes it if it is free.
    pub fn try_take(path: &Path) -> io::Result<Option<Self>> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let file = File::options().create(true).truncate(false).write(true).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Waits for it while the job is wanted.
    pub async fn take(path: &Path, stop: &mut Stop) -> JobResultOf<Self> {
        loop {
            if let Some(lock) = Self::try_take(path).map_err(io(path.display()))? {
                return Ok(lock);
            }
            tokio::select! {
                reason = stop.wait() => return Err(Halt::Stopped(reason)),
                () = tokio::time::sleep(Duration::from_millis(200)) => {}
            }
        }
    }
}
