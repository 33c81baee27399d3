//! Requests of the kernel as calls of the tree.
//!
//! Invariants:
//! 1. Each request is answered exactly once, by the thread that took it.
//! 2. A reply that names a node is sent only after the node is held; if it cannot be sent, the count comes back by itself,
//!    because the kernel is gone then.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::BytesMut;
use claystone_env::{SECTOR_BYTES, aligned_buffer};
use claystone_files::{
    Attributes, FileError, FileTree, Inode, Kind, NewAttributes, NewNode, RenameMode, Seek, SpaceFigures,
};
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek,
    ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use futures::channel::oneshot;
use rustix::fs::{FallocateFlags, OFlags, XattrFlags};

use crate::held::HeldNodes;
use crate::listing::Listings;
use crate::mount::{DESCRIPTION_ATTRIBUTE, Description};
use crate::translate::{errno, file_attributes, file_type, inode, kind_of_mode, permissions, requested_time, setting};

/// See the module.
pub struct Bridge {
    tree: Arc<dyn FileTree>,
    held: HeldNodes,
    listings: Listings,
    writeback: bool,
    description: Option<Description>,
    /// Whether the kernel opens files without asking.
    opens_itself: bool,
    /// Dropped when the mount has ended.
    ended: Mutex<Option<oneshot::Sender<()>>>,
}

impl Bridge {
    /// Serves `tree`; with `writeback` the kernel collects writes.
    pub fn new(
        tree: Arc<dyn FileTree>,
        writeback: bool,
        description: Option<Description>,
        ended: oneshot::Sender<()>,
    ) -> Bridge {
        let held = HeldNodes::new(tree.clone());
        let listings = Listings::default();
        Bridge { tree, held, listings, writeback, description, opens_itself: false, ended: Mutex::new(Some(ended)) }
    }

    /// Holds what was found.
    fn hold(&self, found: Result<Attributes, FileError>) -> Result<Attributes, FileError> {
        let found = found?;
        self.held.hold(found.inode)?;
        Ok(found)
    }

    /// Answers with a node.
    fn entry(&self, reply: ReplyEntry, found: Result<Attributes, FileError>) {
        match self.hold(found) {
            Ok(found) => reply.entry(&FOREVER, &file_attributes(&found), GENERATION),
            Err(error) => reply.error(refusal(&error)),
        }
    }

    fn make(&self, parent: INodeNo, name: &OsStr, node: &NewNode, reply: ReplyEntry) {
        self.entry(reply, self.tree.make(inode(parent), name.as_bytes(), node));
    }

    fn write_and_sync(&self, node: Inode, offset: u64, data: &[u8], flags: OpenFlags) -> Result<(), FileError> {
        self.tree.write(node, offset, data)?;
        // O_SYNC contains O_DSYNC.
        if OFlags::from_bits_retain(flags.0 as u32).contains(OFlags::DSYNC) { self.tree.sync(node) } else { Ok(()) }
    }

    fn change_space(&self, node: Inode, offset: u64, length: u64, mode: i32) -> Result<(), Errno> {
        let mode = FallocateFlags::from_bits_retain(mode as u32);
        let keep_size = mode.contains(FallocateFlags::KEEP_SIZE);
        let rest = mode - FallocateFlags::KEEP_SIZE;
        let refused = |error| refusal(&error);
        if rest == FallocateFlags::PUNCH_HOLE && keep_size {
            self.tree.punch(node, offset, length).map_err(refused)
        } else if rest == FallocateFlags::ZERO_RANGE {
            // Without room for its holes nothing is zeroed. What is punched gives its own room away, and gets it again.
            self.tree.allocate(node, offset, length, keep_size).map_err(refused)?;
            self.tree.punch(node, offset, length).map_err(refused)?;
            self.tree.allocate(node, offset, length, keep_size).map_err(refused)
        } else if rest.is_empty() {
            self.tree.allocate(node, offset, length, keep_size).map_err(refused)
        } else {
            Err(Errno::EOPNOTSUPP)
        }
    }
}

impl Filesystem for Bridge {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // What a kernel lacks is done without.
        let offered = config.capabilities();
        let mut wanted = InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_NO_OPEN_SUPPORT;
        // Not FUSE_HANDLE_KILLPRIV_V2, with which set-user-id bits would be cleared here when a file is written: the kernel
        // goes on with the mode it knows (seen on 6.18). Instead it asks for `security.capability` before each write.
        if self.writeback {
            wanted |= InitFlags::FUSE_WRITEBACK_CACHE;
        }
        let agreed = config.add_capabilities(wanted & offered);
        agreed.map_err(|flags| io::Error::other(format!("the kernel takes back {flags:?}")))?;
        self.opens_itself = offered.contains(InitFlags::FUSE_NO_OPEN_SUPPORT);
        let limit = |value| io::Error::other(format!("the kernel allows {value}"));
        config.set_max_write(REQUEST_BYTES_MAX).map_err(limit)?;
        config.set_max_background(BACKGROUND_REQUESTS_MAX).map_err(|value| limit(value.into()))?;
        Ok(())
    }

    fn destroy(&mut self) {
        self.held.forget_all();
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.tree.lookup(inode(parent), name.as_bytes()) {
            // Inode 0 says that there is none, for the kernel to remember.
            Err(FileError::NotFound) => reply.entry(&FOREVER, &file_attributes(&absent()), GENERATION),
            found => self.entry(reply, found),
        }
    }

    fn forget(&self, _: &Request, node: INodeNo, count: u64) {
        self.held.forget(inode(node), count);
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.tree.attributes(inode(node)) {
            Ok(found) => reply.attr(&FOREVER, &file_attributes(&found)),
            Err(error) => reply.error(refusal(&error)),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        node: INodeNo,
        mode: Option<u32>,
        owner: Option<u32>,
        owner_group: Option<u32>,
        bytes: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        changed: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let new = NewAttributes {
            permissions: mode.map(permissions),
            owner,
            owner_group,
            bytes,
            accessed: accessed.map(setting),
            modified: modified.map(setting),
            changed: changed.map(requested_time),
            made: None,
        };
        match self.tree.set_attributes(inode(node), &new) {
            Ok(set) => reply.attr(&FOREVER, &file_attributes(&set)),
            Err(error) => reply.error(refusal(&error)),
        }
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        match self.tree.read_link(inode(node)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(refusal(&error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let Some(kind) = kind_of_mode(mode) else { return reply.error(Errno::EINVAL) };
        self.make(parent, name, &NewNode { device: device.into(), ..new_node(request, kind, mode) }, reply);
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        self.make(parent, name, &new_node(request, Kind::Directory, mode), reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes().to_vec();
        self.make(parent, name, &NewNode { target, ..new_node(request, Kind::Link, 0o777) }, reply);
    }

    fn create(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, _: i32, reply: ReplyCreate) {
        let made = self.tree.make(inode(parent), name.as_bytes(), &new_node(request, Kind::File, mode));
        match self.hold(made) {
            Ok(made) => reply.created(&FOREVER, &file_attributes(&made), GENERATION, FileHandle(0), KEEP_PAGES),
            Err(error) => reply.error(refusal(&error)),
        }
    }

    fn link(&self, _: &Request, node: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.entry(reply, self.tree.link(inode(node), inode(parent), name.as_bytes()));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(reply, self.tree.unlink(inode(parent), name.as_bytes()));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(reply, self.tree.remove_directory(inode(parent), name.as_bytes()));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mode = if flags.is_empty() {
            RenameMode::Replace
        } else if flags == RenameFlags::RENAME_NOREPLACE {
            RenameMode::Keep
        } else if flags == RenameFlags::RENAME_EXCHANGE {
            RenameMode::Exchange
        } else {
            return reply.error(Errno::EINVAL);
        };
        let (from, to) = ((inode(parent), name.as_bytes()), (inode(new_parent), new_name.as_bytes()));
        answer(reply, self.tree.rename(from, to, mode));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if self.opens_itself {
            // Once said, the kernel asks no more, and keeps pages.
            reply.error(Errno::ENOSYS);
        } else {
            reply.opened(FileHandle(0), KEEP_PAGES);
        }
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if size >= OWN_BYTES_MIN {
            return match self.tree.read_bytes(inode(node), offset, size as usize) {
                Ok(bytes) => reply.data(&bytes),
                Err(error) => reply.error(refusal(&error)),
            };
        }
        BUFFER.with_borrow_mut(|buffer| {
            // Below the least size for which the tree takes a buffer of its own.
            if buffer.len() < size as usize {
                // What the tree reads whole, the device can put right there.
                *buffer = aligned_buffer(size as usize);
                buffer.resize(size as usize, 0);
            }
            match self.tree.read(inode(node), offset, &mut buffer[..size as usize]) {
                Ok(count) => reply.data(&buffer[..count]),
                Err(error) => reply.error(refusal(&error)),
            }
        });
    }

    fn write(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.write_and_sync(inode(node), offset, data, flags) {
            // A request's data has at most 2^32 bytes.
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(refusal(&error)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Closing a file promises nothing; once told, the kernel asks no more.
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, node: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        answer(reply, self.tree.sync(inode(node)));
    }

    fn opendir(&self, _: &Request, node: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(self.listings.add(inode(node))), FopenFlags::empty());
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let read = self.listings.read(&*self.tree, handle.0, offset, |row, offset| {
            !reply.add(INodeNo(row.inode.0), offset, file_type(row.kind), OsStr::from_bytes(&row.name))
        });
        match read {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(refusal(&error)),
        }
    }

    fn readdirplus(&self, _: &Request, node: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        let read = self.listings.read(&*self.tree, handle.0, offset, |row, offset| {
            // The kernel counts no answer for those two.
            let own = row.name == b"." || row.name == b"..";
            let found = if own {
                self.tree.attributes(row.inode)
            } else {
                // The kernel remembers what it is told: not what had the name when the rows were read.
                self.hold(self.tree.lookup(inode(node), &row.name))
            };
            // Who is gone since is left out.
            let Ok(found) = found else { return true };
            let answer = file_attributes(&found);
            let full = reply.add(answer.ino, offset, OsStr::from_bytes(&row.name), &FOREVER, &answer, GENERATION);
            if full && !own {
                self.held.forget(found.inode, 1);
            }
            !full
        });
        match read {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(refusal(&error)),
        }
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.listings.close(handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, node: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        answer(reply, self.tree.sync(inode(node)));
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let SpaceFigures { data_sectors, free_sectors, inodes } = self.tree.space();
        // Inodes are not counted out: each free sector could be one.
        let inodes_max = inodes.saturating_add(free_sectors);
        let sector_bytes = SECTOR_BYTES as u32;
        reply.statfs(
            data_sectors,
            free_sectors,
            free_sectors,
            inodes_max,
            free_sectors,
            sector_bytes,
            255,
            sector_bytes,
        );
    }

    fn setxattr(&self, _: &Request, node: INodeNo, name: &OsStr, value: &[u8], flags: i32, _: u32, reply: ReplyEmpty) {
        if is_refused_attribute(name) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let there = match XattrFlags::from_bits_retain(flags as u32) {
            XattrFlags::CREATE => Some(false),
            XattrFlags::REPLACE => Some(true),
            _ => None,
        };
        answer(reply, self.tree.set_attribute(inode(node), name.as_bytes(), value, there));
    }

    fn getxattr(&self, _: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if is_refused_attribute(name) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        if let Some(description) = &self.description
            && inode(node) == Inode::ROOT
            && name == DESCRIPTION_ATTRIBUTE
        {
            return answer_sized(reply, size, Ok(description.tell()));
        }
        answer_sized(reply, size, self.tree.attribute(inode(node), name.as_bytes()));
    }

    fn listxattr(&self, _: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.tree.attribute_names(inode(node));
        let joined = names.map(|names| names.iter().flat_map(|name| name.iter().copied().chain([0])).collect());
        answer_sized(reply, size, joined);
    }

    fn removexattr(&self, _: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        if is_refused_attribute(name) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        answer(reply, self.tree.remove_attribute(inode(node), name.as_bytes()));
    }

    fn fallocate(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        match self.change_space(inode(node), offset, length, mode) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn lseek(&self, _: &Request, node: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        if self.writeback {
            // What the kernel holds back is no hole. Once told, it asks no more, and takes a file for data up to its end.
            return reply.error(Errno::ENOSYS);
        }
        // The kernel keeps the other kinds to itself.
        let what = match whence {
            SEEK_DATA => Seek::Data,
            SEEK_HOLE => Seek::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        match self.tree.seek(inode(node), offset, what).map(i64::try_from) {
            Ok(Ok(found)) => reply.offset(found),
            Ok(Err(_)) => reply.error(Errno::EOVERFLOW),
            Err(error) => reply.error(refusal(&error)),
        }
    }

    // The following are left to the kernel; without these lines each would be logged as missing.

    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }

    fn poll(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: PollNotifier,
        _: PollEvents,
        _: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(Errno::ENOSYS);
    }
}

/// The errno of an error, which is logged if somebody should look at the disk.
fn refusal(error: &FileError) -> Errno {
    match error {
        FileError::Lost { inode, sectors } => tracing::error!(%inode, sectors, "sectors are lost"),
        FileError::Failed { why } => tracing::error!(why, "the disk failed"),
        _ => {}
    }
    errno(error)
}

fn answer(reply: ReplyEmpty, result: Result<(), FileError>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(refusal(&error)),
    }
}

/// Answers with bytes, or with their count if the program asks for that.
fn answer_sized(reply: ReplyXattr, size: u32, bytes: Result<Vec<u8>, FileError>) {
    match bytes {
        Ok(bytes) if size == 0 => reply.size(u32::try_from(bytes.len()).unwrap_or(u32::MAX)),
        Ok(bytes) if bytes.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(bytes) => reply.data(&bytes),
        Err(error) => reply.error(refusal(&error)),
    }
}

fn new_node(request: &Request, kind: Kind, mode: u32) -> NewNode {
    NewNode {
        kind,
        permissions: permissions(mode),
        owner: request.uid(),
        owner_group: request.gid(),
        device: 0,
        target: Vec::new(),
    }
}

/// The attributes of nothing; only the inode 0 is looked at.
fn absent() -> Attributes {
    Attributes {
        inode: Inode(0),
        kind: Kind::File,
        permissions: 0,
        owner: 0,
        owner_group: 0,
        names: 0,
        bytes: 0,
        sectors: 0,
        device: 0,
        accessed: Default::default(),
        modified: Default::default(),
        changed: Default::default(),
        made: Default::default(),
    }
}

/// Access control lists would be kept and not obeyed.
fn is_refused_attribute(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b"system.")
}

thread_local! {
    /// Where a thread reads short requests into; it grows to what the kernel asks for at once.
    static BUFFER: RefCell<BytesMut> = RefCell::new(BytesMut::new());
}

/// Invariant 1 of the crate: until the kernel changes it itself. Ten years, because the kernel counts in ticks.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 86_400);
const KEEP_PAGES: FopenFlags = FopenFlags::FOPEN_KEEP_CACHE;
/// An inode names one node ever.
const GENERATION: Generation = Generation(0);
/// What the kernel takes without a changed `fs.fuse.max_pages_limit`.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// From here on the tree has a buffer of its own for what is read. Streams ask for more, nearly all the time for 1 MiB.
const OWN_BYTES_MIN: u32 = 64 << 10;
/// Reads ahead and writes behind that wait here at once.
const BACKGROUND_REQUESTS_MAX: u16 = 64;
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;
