//! Chunk files that have no name yet.
//!
//! Invariants:
//! 1. A file gets its name only after its content, its table and its head are synced.
//! 2. Dropped, it takes away what got no name.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use claystone_env::{Directory, DirectoryLock, File};

use crate::Error;
use crate::chunk_file::{ChunkFile, path, read_head};
use crate::identity::{Agreement, AnyHead, Identity};
use crate::manifest::NoHead;
use crate::name::{PART_SUFFIX, part};

/// Files under `.part` names.
#[derive(Default)]
pub struct Parts(Vec<ChunkFile>);

impl Parts {
    /// Makes one more; what a killed writer left under its name is removed.
    pub fn add(&mut self, directory: &Arc<dyn Directory>, identity: &Identity, chunk: u16) -> Result<(), Error> {
        let part = part(&identity.name);
        let whole = path(&**directory, &part);
        let made = match directory.create(&part) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                directory.remove(&part).and_then(|()| directory.create(&part))
            }
            other => other,
        };
        let file = made.map_err(Error::io(whole.clone(), "making the file"))?;
        let place = (Arc::clone(directory), part, file);
        let file = ChunkFile::new(place, identity, chunk, Arc::new(AtomicU64::new(0)));
        self.0.push(file.map_err(Error::io(whole, "looking at its length"))?);
        Ok(())
    }

    /// The files, in the order they were added.
    pub fn files(&self) -> impl Iterator<Item = &ChunkFile> {
        self.0.iter()
    }

    /// Writes the heads, `head` of each chunk, and makes everything durable.
    pub fn sync(&self, head: impl Fn(u16) -> Vec<u8>) -> Result<(), Error> {
        for file in &self.0 {
            file.write_head(&head(file.chunk)).map_err(Error::io(file.path(), "writing"))?;
        }
        if let Some(first) = self.0.first() {
            first.directory.prepare_sync();
        }
        self.0.iter().try_for_each(|file| file.sync().map_err(Error::io(file.path(), "syncing")))
    }

    /// Gives the synced files their names. After an error each file has its name or is removed.
    pub fn give_names(&mut self) -> Result<(), Error> {
        while let Some(file) = self.0.last() {
            let name = file.name.strip_suffix(PART_SUFFIX).expect("it was made as a part");
            file.directory.rename(&file.name, name).map_err(Error::io(file.path(), "renaming"))?;
            self.0.pop();
        }
        Ok(())
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        for file in &self.0 {
            // What cannot be removed now is replaced by the next writer.
            let _ = file.directory.remove(&file.name);
        }
    }
}

/// Takes a directory for writing.
pub fn lock(directory: &dyn Directory) -> Result<DirectoryLock, Error> {
    directory.lock().map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => Error::Busy { directory: directory.label() },
        _ => Error::io(directory.label(), "locking the directory")(error),
    })
}

/// Takes each of several directories once.
pub fn lock_all<'a>(directories: impl Iterator<Item = &'a Arc<dyn Directory>>) -> Result<Vec<DirectoryLock>, Error> {
    let mut labels = BTreeSet::new();
    directories.filter(|directory| labels.insert(directory.label())).map(|directory| lock(&**directory)).collect()
}

/// Whether what has the name of a manifest's own file is that, or what is left of it: it is as long, or its beginning. Nothing else is
/// written over.
pub fn is_manifest(file: &dyn File, manifest: &[u8]) -> bool {
    let is_as_long = file.bytes().is_ok_and(|bytes| bytes == manifest.len() as u64);
    match read_head(file) {
        Ok(bytes) if bytes == manifest => true,
        Ok(bytes) => {
            let is_left = is_as_long || (bytes.len() < manifest.len() && manifest.starts_with(&bytes));
            is_left && matches!(AnyHead::decode(&bytes), Err(NoHead::Damaged(_)))
        }
        Err(_) => is_as_long,
    }
}

/// Writes the manifest's own file and syncs the directory.
pub fn write_manifest(directory: &dyn Directory, agreement: &Agreement) -> Result<(), Error> {
    let (name, bytes) = agreement.manifest_file();
    let part = part(&name);
    let write = || {
        if let Err(error) = directory.remove(&part)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let file = directory.create(&part)?;
        file.write_at(0, &bytes)?;
        file.sync()?;
        directory.rename(&part, &name)?;
        directory.sync_dir("")
    };
    write().map_err(Error::io(path(directory, &name), "writing"))
}
