//! From a directory to a disk: formatting, recognising, opening.
//!
//! Invariants:
//! 1. The identity is the last file that formatting makes, so a directory with one is formatted completely.
//! 2. Nothing is written to a directory before it is known to be the expected disk.

use std::io;
use std::sync::Arc;

use claystone_chunk::DiskId;
use claystone_env::{Directory, Worker, call};

use crate::error::OpenError;
use crate::files::{Files, Options};
use crate::identity::{ClusterId, FORMAT_VERSION, IDENTITY_BYTES, IDENTITY_FILE, Identity, IdentityError};
use crate::index::{CHUNK_DIRS, dir_path};

const NEW_IDENTITY_FILE: &str = "claystone.disk.new";

/// Which disk a caller expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// The cluster.
    pub cluster: ClusterId,
    /// The disk.
    pub disk: DiskId,
}

/// Makes an empty directory a disk. Durable when it returns; after a crash before, the directory can be formatted
/// again.
///
/// # Errors
/// `NotEmpty`, `AlreadyADisk`, `InUse`, `Unusable`, `WorkerStopped`, and those of [`read_identity`].
pub async fn format(worker: &dyn Worker, directory: Arc<dyn Directory>, identity: Identity) -> Result<(), OpenError> {
    let label = directory.label();
    let done = call(worker, move || format_now(&*directory, &identity)).await;
    done.map_err(|_| OpenError::WorkerStopped { label })?
}

/// The identity of the disk in a directory, or `None` if the directory is empty.
///
/// # Errors
/// `NotADisk`, `IdentityDamaged`, `NewerFormat`, `Unusable`, `WorkerStopped`.
pub async fn read_identity(worker: &dyn Worker, directory: Arc<dyn Directory>) -> Result<Option<Identity>, OpenError> {
    let label = directory.label();
    let done = call(worker, move || read_identity_now(&*directory)).await;
    done.map_err(|_| OpenError::WorkerStopped { label })?
}

/// Opens the expected disk. Blocking.
pub(crate) fn open_now(
    directory: Arc<dyn Directory>,
    expected: Expected,
    options: Options,
) -> Result<Files, OpenError> {
    let label = directory.label();
    let identity =
        read_identity_now(&*directory)?.ok_or(OpenError::Empty { label: label.clone(), expected: expected.disk })?;
    if identity.cluster != expected.cluster {
        return Err(OpenError::ForeignCluster { label, found: identity.cluster, expected: expected.cluster });
    }
    if identity.disk != expected.disk {
        return Err(OpenError::OtherDisk { label, found: identity.disk, expected: expected.disk });
    }
    let lock = lock(&*directory)?;
    let files = Files::new(directory, identity, options, lock);
    files.probe_writes();
    files.find_spares();
    Ok(files)
}

fn lock(directory: &dyn Directory) -> Result<claystone_env::DirectoryLock, OpenError> {
    let label = directory.label();
    directory.lock().map_err(|source| match source.kind() {
        io::ErrorKind::WouldBlock => OpenError::InUse { label },
        _ => OpenError::Unusable { label, source },
    })
}

fn format_now(directory: &dyn Directory, identity: &Identity) -> Result<(), OpenError> {
    let label = directory.label();
    if let Some(found) = read_formatted(directory)? {
        return Err(OpenError::AlreadyADisk { label, disk: found.disk, cluster: found.cluster });
    }
    let _lock = lock(directory)?;
    let unusable = |source| OpenError::Unusable { label: label.clone(), source };
    for name in directory.list("").map_err(unusable)? {
        match name.as_str() {
            "lost+found" => (),
            // What a crash while formatting leaves.
            NEW_IDENTITY_FILE => directory.remove(&name).map_err(unusable)?,
            "chunks" if !has_chunks(directory).map_err(unusable)? => (),
            _ => return Err(OpenError::NotEmpty { label, name }),
        }
    }
    format_empty(directory, identity).map_err(unusable)
}

fn format_empty(directory: &dyn Directory, identity: &Identity) -> io::Result<()> {
    directory.make_dir("chunks")?;
    for dir in 0..CHUNK_DIRS {
        directory.make_dir(&dir_path(dir))?;
    }
    directory.sync_dir("chunks")?;
    let file = directory.create(NEW_IDENTITY_FILE)?;
    file.write_at(0, &identity.encode())?;
    file.sync()?;
    directory.sync_dir("")?;
    directory.rename(NEW_IDENTITY_FILE, IDENTITY_FILE)?;
    directory.sync_dir("")
}

fn has_chunks(directory: &dyn Directory) -> io::Result<bool> {
    for dir in directory.list("chunks")? {
        if !directory.list(&format!("chunks/{dir}"))?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn read_identity_now(directory: &dyn Directory) -> Result<Option<Identity>, OpenError> {
    let found = read_formatted(directory)?;
    if found.is_some() {
        return Ok(found);
    }
    let label = directory.label();
    match directory.list("") {
        Ok(names) if names.iter().all(|name| name == "lost+found") => Ok(None),
        Ok(_) => Err(OpenError::NotADisk { label }),
        Err(source) => Err(OpenError::Unusable { label, source }),
    }
}

/// The identity, or `None` if there is no such file.
fn read_formatted(directory: &dyn Directory) -> Result<Option<Identity>, OpenError> {
    let label = directory.label();
    let bytes = directory.open(IDENTITY_FILE).and_then(|file| {
        // A longer file is damaged, and later formats may be longer; the first bytes tell.
        let mut bytes = vec![0; file.bytes()?.min(IDENTITY_BYTES as u64 + 1) as usize];
        file.read_at(0, &mut bytes)?;
        Ok(bytes)
    });
    let bytes = match bytes {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(OpenError::Unusable { label, source }),
        Ok(bytes) => bytes,
    };
    match Identity::decode(&bytes) {
        Ok(identity) => Ok(Some(identity)),
        Err(IdentityError::Newer { found }) => Err(OpenError::NewerFormat { label, found, supported: FORMAT_VERSION }),
        Err(IdentityError::Damaged(reason)) => Err(OpenError::IdentityDamaged { label, reason }),
    }
}
