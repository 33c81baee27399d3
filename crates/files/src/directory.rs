//! A disk as a [`Directory`], so that what keeps files in directories, such as the chunk store, can keep them on a disk.
//!
//! Invariants:
//! 1. Paths are resolved from the root at each call; links are not followed, for nobody makes any.
//! 2. An open file lives until it is dropped, named or not.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use claystone_env::{Directory, DirectoryLock, File, SECTOR_BYTES, SectorHealth, Space};

use crate::{Attributes, Disk, FileError, FileTree, Inode, Kind, NewNode, RenameMode};

/// The root directory of a disk.
#[derive(Debug, Clone)]
pub struct DiskDirectory {
    disk: Arc<Disk>,
}

impl DiskDirectory {
    /// The files of a disk, which others may use at the same time.
    pub fn new(disk: Arc<Disk>) -> DiskDirectory {
        DiskDirectory { disk }
    }

    /// The disk.
    pub fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    /// The directory that a path is in, and the last name of it.
    fn parent<'p>(&self, path: &'p str) -> io::Result<(Inode, &'p [u8])> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        if matches!(name, "" | "." | "..") {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{path:?} is not a path below a root")));
        }
        Ok((self.find(parent)?.inode, name.as_bytes()))
    }

    fn find(&self, path: &str) -> io::Result<Attributes> {
        let mut found = self.disk.attributes(Inode::ROOT).map_err(told)?;
        for name in path.split('/').filter(|_| !path.is_empty()) {
            if matches!(name, "" | "." | "..") {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("{path:?} is not a path below a root"),
                ));
            }
            found = self.disk.lookup(found.inode, name.as_bytes()).map_err(told)?;
        }
        Ok(found)
    }

    fn opened(&self, inode: Inode) -> io::Result<Arc<dyn File>> {
        self.disk.open(inode).map_err(told)?;
        Ok(Arc::new(DiskFile { disk: self.disk.clone(), inode }))
    }
}

impl Directory for DiskDirectory {
    fn label(&self) -> String {
        self.disk.label()
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let (directory, name) = self.parent(path)?;
        let made = self.disk.make(directory, name, &node(Kind::File, 0o600)).map_err(told)?;
        self.opened(made.inode)
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let found = self.find(path)?;
        if found.kind != Kind::File {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{path:?} is no file")));
        }
        self.opened(found.inode)
    }

    fn make_dir(&self, path: &str) -> io::Result<()> {
        let (directory, name) = self.parent(path)?;
        match self.disk.make(directory, name, &node(Kind::Directory, 0o700)) {
            Ok(_) | Err(FileError::Exists) => Ok(()),
            Err(error) => Err(told(error)),
        }
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let directory = self.find(path)?.inode;
        let mut names = Vec::new();
        let mut after: Option<Vec<u8>> = None;
        loop {
            let rows = self.disk.read_directory(directory, after.as_deref(), LISTED_AT_ONCE).map_err(told)?;
            let Some(last) = rows.last() else { break };
            after = Some(last.name.clone());
            names.extend(rows.iter().map(|row| String::from_utf8_lossy(&row.name).into_owned()));
        }
        names.sort_unstable();
        Ok(names)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (self.parent(from)?, self.parent(to)?);
        self.disk.rename(from, to, RenameMode::Replace).map_err(told)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let (directory, name) = self.parent(path)?;
        self.disk.unlink(directory, name).map_err(told)
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        let found = self.find(path)?;
        self.disk.sync(found.inode).map_err(told)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.disk.sync_all().map_err(told)
    }

    fn space(&self) -> io::Result<Space> {
        let space = self.disk.space();
        let bytes = |sectors: u64| sectors * SECTOR_BYTES as u64;
        Ok(Space { total_bytes: bytes(space.data_sectors), free_bytes: bytes(space.free_sectors) })
    }

    fn sectors(&self) -> Option<SectorHealth> {
        Some(self.disk.health())
    }

    fn lock(&self) -> io::Result<DirectoryLock> {
        if self.disk.locked.swap(true, Ordering::AcqRel) {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "somebody else holds it"));
        }
        Ok(Box::new(Held(self.disk.clone())))
    }
}

/// The lock on a directory; it ends with this.
struct Held(Arc<Disk>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.locked.store(false, Ordering::Release);
    }
}

/// An open file.
struct DiskFile {
    disk: Arc<Disk>,
    inode: Inode,
}

impl File for DiskFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let read = self.disk.read(self.inode, offset, into).map_err(told)?;
        match read == into.len() {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file ends before")),
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.write(self.inode, offset, bytes).map_err(told)
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.disk.allocate(self.inode, 0, bytes, false).map_err(told)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync(self.inode).map_err(told)
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.disk.attributes(self.inode).map_err(told)?.bytes)
    }
}

impl Drop for DiskFile {
    fn drop(&mut self) {
        self.disk.release(self.inode);
    }
}

fn node(kind: Kind, permissions: u16) -> NewNode {
    NewNode { kind, permissions, owner: 0, owner_group: 0, device: 0, target: Vec::new() }
}

/// What the system would say.
fn told(error: FileError) -> io::Error {
    let kind = match &error {
        FileError::NotFound => io::ErrorKind::NotFound,
        FileError::Exists => io::ErrorKind::AlreadyExists,
        FileError::NotDirectory => io::ErrorKind::NotADirectory,
        FileError::IsDirectory => io::ErrorKind::IsADirectory,
        FileError::NotEmpty => io::ErrorKind::DirectoryNotEmpty,
        FileError::NoSpace => io::ErrorKind::StorageFull,
        FileError::ReadOnly { .. } => io::ErrorKind::ReadOnlyFilesystem,
        FileError::TooLarge { .. } => io::ErrorKind::FileTooLarge,
        FileError::Invalid | FileError::NameTooLong { .. } => io::ErrorKind::InvalidInput,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

const LISTED_AT_ONCE: usize = 1024;
