//! A directory of the machine's file system.
//!
//! Invariants:
//! 1. Every path stays below the root: names like `..` are refused.
//! 2. Paths are resolved from the root's path at each call, so a root that was unmounted or moved away is noticed.
//! 3. [`Directory::create`] never opens what exists, links included.
//! 4. What is opened is a regular file: a device or a pipe says that it has no bytes, and whoever copied it would copy none.
//! 5. What a link leads to is read only: nothing outside the root is written to because somebody laid a link into it.

use std::fs;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};

use claystone_env::{ALIGNED_BYTES, Directory, DirectoryLock, File, Space};
use rustix::fs::{Advice, FallocateFlags, FlockOperation, OFlags, fadvise, fallocate, flock, statfs, statvfs, syncfs};
use rustix::io::Errno;

use crate::direct::{is_aligned, open_direct};

/// The files below one path.
#[derive(Debug, Clone)]
pub struct HostDirectory {
    root: PathBuf,
}

impl HostDirectory {
    /// The directory at `root`; it is not touched before the first call. `a`, `a/` and `./a` are one, by their label too.
    pub fn new(root: impl Into<PathBuf>) -> HostDirectory {
        let root: PathBuf = root.into();
        let plain: PathBuf = root.components().filter(|part| *part != Component::CurDir).collect();
        HostDirectory { root: if plain.as_os_str().is_empty() { root } else { plain } }
    }

    /// As [`HostDirectory::new`], making the directory and those above it where they are missing.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make(root: impl Into<PathBuf>) -> io::Result<HostDirectory> {
        let directory = HostDirectory::new(root);
        fs::create_dir_all(&directory.root)?;
        Ok(directory)
    }

    /// The root's path.
    pub fn path(&self) -> &Path {
        &self.root
    }

    fn resolve(&self, path: &str) -> io::Result<PathBuf> {
        if path.is_empty() {
            return Ok(self.root.clone());
        }
        let good = path.split('/').all(|name| !matches!(name, "" | "." | "..") && !name.contains('\0'));
        if !good {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{path:?} is not a path below a root")));
        }
        Ok(self.root.join(path))
    }
}

impl Directory for HostDirectory {
    fn label(&self) -> String {
        self.root.display().to_string()
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let path = self.resolve(path)?;
        let file = fs::OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(out_of_handles)?;
        Ok(Arc::new(HostFile::new(file)))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let path = self.resolve(path)?;
        // A pipe is not waited for: it is refused below.
        let flags = |flags: OFlags| (flags | OFlags::NONBLOCK).bits().cast_signed();
        let (both, reading) = (flags(OFlags::NOFOLLOW), flags(OFlags::empty()));
        let file = match fs::OpenOptions::new().read(true).write(true).custom_flags(both).open(&path) {
            Err(error) if is_read_only(&error) => {
                fs::OpenOptions::new().read(true).custom_flags(reading).open(&path).map(HostFile::read_only)
            }
            other => other.map(HostFile::new),
        };
        let file = file.map_err(out_of_handles)?;
        if !file.file.metadata()?.is_file() {
            let text = "a device, a pipe or a directory: it does not say how long it is";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(Arc::new(file))
    }

    fn make_dir(&self, path: &str) -> io::Result<()> {
        match fs::create_dir(self.resolve(path)?) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.resolve(path)?).map_err(out_of_handles)? {
            // A name that is no text is not ours; it still counts as something that is there.
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.resolve(from)?, self.resolve(to)?)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.resolve(path)?)
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        fs::File::open(self.resolve(path)?).map_err(out_of_handles)?.sync_all()
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(syncfs(fs::File::open(&self.root).map_err(out_of_handles)?)?)
    }

    fn prepare_sync(&self) {
        // One commit of the file system's journal instead of one for each file. Errors show in the files' own syncs.
        if let Ok(root) = fs::File::open(&self.root) {
            let _ = syncfs(&root);
        }
    }

    fn space(&self) -> io::Result<Space> {
        let found = statvfs(&self.root)?;
        // As `df` counts: what is kept for root alone is neither free nor a part of the whole.
        let used_blocks = found.f_blocks.saturating_sub(found.f_bfree);
        let total_blocks = used_blocks.saturating_add(found.f_bavail);
        Ok(Space { total_bytes: total_blocks * found.f_frsize, free_bytes: found.f_bavail * found.f_frsize })
    }

    fn favours_overwriting(&self) -> bool {
        // Those that are known to, and write in place. One that copies on write would gain nothing, whoever is not known
        // may be such a one.
        statfs(&self.root).is_ok_and(|found| OVERWRITTEN_IN_PLACE.contains(&(found.f_type as u32)))
    }

    fn lock(&self) -> io::Result<DirectoryLock> {
        // On the directory itself: no file is left behind, and the system frees it with the process.
        let root = fs::File::open(&self.root)?;
        flock(&root, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Box::new(root))
    }
}

struct HostFile {
    file: fs::File,
    /// The same file opened to write around the page cache, once somebody asked for it; `None` where that is refused.
    direct: OnceLock<Option<fs::File>>,
}

impl HostFile {
    fn new(file: fs::File) -> HostFile {
        HostFile { file, direct: OnceLock::new() }
    }

    fn read_only(file: fs::File) -> HostFile {
        HostFile { file, direct: OnceLock::from(None) }
    }

    /// Writes zeros: reserves space where the file system has no call for it.
    fn fill(&self, bytes: u64) -> io::Result<()> {
        let (held, mut filled) = (self.bytes()?, 0);
        while filled < bytes {
            // What is there is written again.
            let mut part = vec![0; FILLED_AT_ONCE.min(bytes - filled) as usize];
            let there = held.saturating_sub(filled).min(part.len() as u64) as usize;
            self.read_at(filled, &mut part[..there])?;
            self.write_at(filled, &part)?;
            filled += part.len() as u64;
        }
        Ok(())
    }

    fn direct(&self) -> Option<&fs::File> {
        self.direct.get_or_init(|| open_direct(&self.file, OFlags::WRONLY)).as_ref()
    }
}

impl File for HostFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset).map_err(|error| {
            // EBADF: opened for reading only, because the file system allowed no more or the path is a link.
            if error.raw_os_error() == Some(Errno::BADF.raw_os_error()) {
                io::Error::from(io::ErrorKind::ReadOnlyFilesystem)
            } else {
                error
            }
        })
    }

    fn write_around(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let aligned = offset.is_multiple_of(ALIGNED_BYTES as u64) && is_aligned(bytes);
        match self.direct() {
            Some(direct) if aligned => match direct.write_all_at(bytes, offset) {
                // A file system that opens a file so, but wants another alignment.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => self.write_at(offset, bytes),
                written => written,
            },
            _ => self.write_at(offset, bytes),
        }
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        match fallocate(&self.file, FallocateFlags::empty(), 0, bytes) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.fill(bytes),
            Err(Errno::BADF) => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
            other => Ok(other?),
        }
    }

    fn sync(&self) -> io::Result<()> {
        // Also what was written around the cache: it may be in the medium's own, and its place in the file is metadata.
        self.file.sync_data()
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn forget_cache(&self) {
        // Advice: where it is not taken, the next read is served from memory, which is no error.
        let _ = fadvise(&self.file, 0, None, Advice::DontNeed);
    }

    fn expect_overwriting(&self, offset: u64, bytes: u64) {
        // Advice too. A write of part of a page that is not in memory reads that page first, and waits for it.
        let _ = NonZeroU64::new(bytes).map(|bytes| fadvise(&self.file, offset, Some(bytes), Advice::WillNeed));
    }
}

/// Names the one error for which `std` has no kind and which says nothing about the disk.
pub(crate) fn out_of_handles(error: io::Error) -> io::Error {
    let handles = [Errno::MFILE, Errno::NFILE].map(|errno| Some(errno.raw_os_error()));
    if handles.contains(&error.raw_os_error()) {
        return io::Error::new(io::ErrorKind::ResourceBusy, "too many open files: raise the limit (ulimit -n)");
    }
    error
}

/// Whether a file that could not be opened for writing may be read nevertheless: the file system says so, or it is a link
/// or a program that runs.
pub(crate) fn is_read_only(error: &io::Error) -> bool {
    use io::ErrorKind::{ExecutableFileBusy, PermissionDenied, ReadOnlyFilesystem};
    let is_link = error.raw_os_error() == Some(Errno::LOOP.raw_os_error());
    is_link || matches!(error.kind(), ReadOnlyFilesystem | PermissionDenied | ExecutableFileBusy)
}

/// Types of file systems, as `statfs` tells them: ext4, and its forerunners under its number; XFS.
const OVERWRITTEN_IN_PLACE: [u32; 2] = [0xef53, 0x5846_5342];

/// Zeros written by one call.
const FILLED_AT_ONCE: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch() -> (tempfile::TempDir, HostDirectory) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let directory = HostDirectory::new(dir.path());
        (dir, directory)
    }

    #[test]
    fn a_file_holds_what_was_written() {
        let (_keep, directory) = scratch();
        directory.make_dir("a").expect("make");
        directory.make_dir("a").expect("making it again is no error");
        let file = directory.create("a/b").expect("create");
        file.write_at(3, b"xyz").expect("write");
        file.sync().expect("sync");
        directory.sync_dir("a").expect("sync");
        file.forget_cache();
        let again = directory.open("a/b").expect("open");
        let mut bytes = [9; 6];
        again.read_at(0, &mut bytes).expect("read");
        assert_eq!(&bytes, b"\0\0\0xyz");
        assert_eq!(again.bytes().expect("length"), 6);
        assert_eq!(again.read_at(1, &mut bytes).expect_err("short").kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(directory.create("a/b").err().expect("taken").kind(), io::ErrorKind::AlreadyExists);
        directory.rename("a/b", "c").expect("rename");
        assert_eq!(directory.list("").expect("list"), ["a", "c"]);
        directory.remove("c").expect("remove");
        assert_eq!(directory.open("c").err().expect("gone").kind(), io::ErrorKind::NotFound);
        assert!(directory.space().expect("space").total_bytes > 0);
    }

    #[test]
    fn writes_around_the_cache_mix_with_writes_through_it() {
        let (_keep, directory) = scratch();
        let file = directory.create("a").expect("create");
        let mut content = claystone_env::aligned_buffer(16 * 4096);
        content.extend((0..16 * 4096u32).map(|i| (i / 7) as u8));
        file.write_at(0, b"head").expect("write");
        file.write_around(4096, &content).expect("aligned");
        file.write_around(4096 + content.len() as u64, &content[..4099]).expect("an odd length");
        file.write_around(3 * 4096, &content[1..4097]).expect("an odd address");
        file.write_around(5, &content[..4096]).expect("an odd offset");
        file.sync().expect("sync");
        file.forget_cache();
        let mut expected = vec![0; 4096 * 17 + 4099];
        expected[..4].copy_from_slice(b"head");
        expected[4096..][..content.len()].copy_from_slice(&content);
        expected[17 * 4096..].copy_from_slice(&content[..4099]);
        expected[3 * 4096..][..4096].copy_from_slice(&content[1..4097]);
        expected[5..][..4096].copy_from_slice(&content[..4096]);
        let mut read = vec![0; expected.len()];
        file.read_at(0, &mut read).expect("read");
        assert!(read == expected);
        assert_eq!(file.bytes().expect("length"), expected.len() as u64);
    }

    #[test]
    fn reserved_bytes_are_there_and_read_as_zeros() {
        let (_keep, directory) = scratch();
        let bytes = (1 << 20) + 4097;
        // By the file system's call, and as where it has none.
        for (name, reserve) in [("a", HostFile::reserve as fn(&HostFile, u64) -> _), ("b", HostFile::fill)] {
            let path = directory.path().join(name);
            let file = fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path).expect("create");
            let file = HostFile::new(file);
            reserve(&file, bytes).expect("reserve");
            file.sync().expect("sync");
            assert_eq!(file.bytes().expect("length"), bytes);
            use std::os::unix::fs::MetadataExt;
            assert!(fs::metadata(&path).expect("there").blocks() * 512 >= bytes, "{name} takes its space");
            file.write_at(4096, b"xyz").expect("write");
            let mut read = vec![9; bytes as usize];
            file.read_at(0, &mut read).expect("read");
            assert!(&read[4096..4099] == b"xyz" && read.iter().filter(|byte| **byte != 0).count() == 3);
            assert_eq!(file.bytes().expect("length"), bytes);
        }
    }

    #[test]
    fn holes_are_filled_beside_what_is_there() {
        use std::os::unix::fs::MetadataExt;
        let (_keep, directory) = scratch();
        let bytes = 3 << 20;
        for (name, reserve) in [("a", HostFile::reserve as fn(&HostFile, u64) -> _), ("b", HostFile::fill)] {
            let path = directory.path().join(name);
            let file = fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path).expect("create");
            let file = HostFile::new(file);
            file.write_at(0, b"head").expect("write");
            file.write_at(bytes - 1, b"!").expect("write");
            reserve(&file, bytes).expect("reserve");
            file.sync().expect("sync");
            assert!(fs::metadata(&path).expect("there").blocks() * 512 >= bytes, "{name} takes its space");
            let mut read = vec![9; bytes as usize];
            file.read_at(0, &mut read).expect("read");
            assert!(read.starts_with(b"head\0") && read.ends_with(b"\0!"));
            assert_eq!(read.iter().filter(|byte| **byte != 0).count(), 5);
        }
    }

    #[test]
    fn paths_do_not_leave_the_root() {
        let (_keep, directory) = scratch();
        for path in ["..", "a/../b", "/etc/passwd", "a//b", "./a", "a\0b"] {
            assert_eq!(directory.open(path).err().expect(path).kind(), io::ErrorKind::InvalidInput, "{path:?}");
        }
    }

    #[test]
    fn one_directory_has_one_label_however_it_is_written() {
        for (written, label) in
            [("a", "a"), ("a/", "a"), ("./a", "a"), ("a/./b//", "a/b"), (".", "."), ("/", "/"), ("../a", "../a")]
        {
            assert_eq!(HostDirectory::new(written).label(), label, "{written}");
        }
    }

    #[test]
    fn only_regular_files_are_opened() {
        let (_keep, directory) = scratch();
        directory.make_dir("dir").expect("made");
        let pipe = directory.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
            .expect("a pipe");
        for (name, target) in [("zero", "/dev/zero"), ("pipe_link", "pipe"), ("dir_link", "dir")] {
            std::os::unix::fs::symlink(target, directory.path().join(name)).expect("a link");
        }
        for name in ["pipe", "zero", "pipe_link", "dir_link"] {
            assert_eq!(directory.open(name).err().expect(name).kind(), io::ErrorKind::InvalidInput, "{name}");
        }
        assert!(HostDirectory::new("/dev").open("zero").is_err());
    }

    #[test]
    fn what_a_link_leads_to_is_read_and_never_written() {
        let (_keep, directory) = scratch();
        let (_other, outside) = scratch();
        outside.create("precious").expect("create").write_at(0, b"abc").expect("write");
        std::os::unix::fs::symlink(outside.path().join("precious"), directory.path().join("link")).expect("a link");
        let link = directory.open("link").expect("open");
        let mut bytes = [0; 3];
        link.read_at(0, &mut bytes).expect("read");
        assert_eq!(&bytes, b"abc");
        assert_eq!(link.write_at(0, b"xyz").expect_err("a link").kind(), io::ErrorKind::ReadOnlyFilesystem);
        let aligned = vec![7; 8192];
        let start = aligned.as_ptr().align_offset(ALIGNED_BYTES);
        let around = link.write_around(0, &aligned[start..][..ALIGNED_BYTES]);
        assert_eq!(around.expect_err("a link").kind(), io::ErrorKind::ReadOnlyFilesystem);
        assert_eq!(fs::read(outside.path().join("precious")).expect("there"), b"abc");
    }

    #[test]
    fn the_lock_is_exclusive_until_dropped() {
        let (_keep, directory) = scratch();
        let lock = directory.lock().expect("free");
        assert_eq!(directory.clone().lock().map(|_| ()).expect_err("held").kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        directory.lock().expect("free again");
    }
}
