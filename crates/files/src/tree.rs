//! A tree of files as POSIX knows it, without paths, users or locks: what a mount needs from a disk.
//!
//! What a caller may count on, in every implementation:
//! 1. Each call is atomic against the others, and after a crash it has happened as a whole or not at all, in the order of
//!    the calls, but for [`FileTree::write`]: its sectors, each whole, may survive one without the other.
//! 2. What [`FileTree::sync`] or [`FileTree::sync_all`] was called for and returned is there after a crash.
//! 3. A file without a name lives until its last [`FileTree::release`], or a crash.
//! 4. Every node that a call names by inode must have been returned by an earlier one and not be forgotten: an
//!    inode that is not there is [`FileError::NotFound`], never a panic.
//! 5. Calls may come from several threads at once.
//! 6. Times: a call that changes rows of a directory sets its `modified` and `changed`. A change of a file's bytes (also
//!    one to the same length, or by [`FileTree::punch`] and [`FileTree::allocate`]) sets its `modified` and `changed`. A
//!    change of attributes, extended ones and names included, sets `changed`; a rename does so for what it moves and
//!    replaces. Reading a file, a link or a directory sets `accessed` where it is not later than `modified` and
//!    `changed`, or a day old.
//! 7. A directory that was removed and is still open takes no new rows: [`FileError::NotFound`].
//!
//! Left out: permission checks (the kernel makes them from the attributes), locks (the kernel keeps them), paths.

use std::fmt;

use bytes::{Bytes, BytesMut};
use claystone_env::WallTime;

/// The number of a file, directory or other node; the root is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inode(pub u64);

impl Inode {
    /// The root directory.
    pub const ROOT: Inode = Inode(1);
}

impl fmt::Display for Inode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A moment of wall time as files know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Seconds since the Unix epoch.
    pub seconds: i64,
    /// Nanoseconds within the second; also before the epoch they count forward.
    pub nanoseconds: u32,
}

impl From<WallTime> for Timestamp {
    fn from(WallTime { unix_ms }: WallTime) -> Timestamp {
        Timestamp { seconds: (unix_ms / 1000) as i64, nanoseconds: (unix_ms % 1000) as u32 * 1_000_000 }
    }
}

/// What a node is. The numbers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A file.
    File = 1,
    /// A directory.
    Directory = 2,
    /// A symbolic link.
    Link = 3,
    /// A block device.
    BlockDevice = 4,
    /// A character device.
    CharacterDevice = 5,
    /// A pipe.
    Pipe = 6,
    /// A socket.
    Socket = 7,
}

/// What is known of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    /// Its number.
    pub inode: Inode,
    /// What it is.
    pub kind: Kind,
    /// The low 12 bits of its mode: permissions, set-uid, set-gid, sticky.
    pub permissions: u16,
    /// Its owner.
    pub owner: u32,
    /// Its owner's group.
    pub owner_group: u32,
    /// Names that it has; of a directory 2 and one for each directory in it.
    pub names: u32,
    /// Bytes of a file; of a link, those of its target; of others 0.
    pub bytes: u64,
    /// Sectors of the device that it takes, parity and checksums included, and what is written and not yet placed.
    pub sectors: u64,
    /// The number of a device.
    pub device: u64,
    /// When it was last read.
    pub accessed: Timestamp,
    /// When its content was last changed.
    pub modified: Timestamp,
    /// When its attributes were last changed.
    pub changed: Timestamp,
    /// When it was made.
    pub made: Timestamp,
}

/// A node to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNode {
    /// What it is.
    pub kind: Kind,
    /// The low 12 bits of its mode.
    pub permissions: u16,
    /// Its owner.
    pub owner: u32,
    /// Its owner's group. In a directory with set-gid the directory's group is taken, and a new directory is set-gid too.
    pub owner_group: u32,
    /// The number of a device.
    pub device: u64,
    /// The target of a link.
    pub target: Vec<u8>,
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// Now, by the disk's clock.
    Now,
    /// This.
    At(Timestamp),
}

/// Attributes to set; what is `None` stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewAttributes {
    /// The low 12 bits of the mode.
    pub permissions: Option<u16>,
    /// The owner.
    pub owner: Option<u32>,
    /// The owner's group.
    pub owner_group: Option<u32>,
    /// The bytes of a file: it is cut, or grows by a hole.
    pub bytes: Option<u64>,
    /// When it was last read.
    pub accessed: Option<Setting>,
    /// When its content was last changed.
    pub modified: Option<Setting>,
    /// When its attributes were last changed; else now.
    pub changed: Option<Timestamp>,
    /// When it was made.
    pub made: Option<Timestamp>,
}

/// A row of a directory. `.` and `..` are not among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name.
    pub name: Vec<u8>,
    /// Whose.
    pub inode: Inode,
    /// What it is.
    pub kind: Kind,
}

/// What to do where the new name is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameMode {
    /// Replace what has it, as POSIX says.
    Replace,
    /// Fail.
    Keep,
    /// Let the two change places.
    Exchange,
}

/// What to look for in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// The next byte that is not in a hole.
    Data,
    /// The next hole; the end of the file is one.
    Hole,
}

/// How full a disk is, in sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceFigures {
    /// All that files can ever use for data: parity, checksums and the disk's own sectors are taken off.
    pub data_sectors: u64,
    /// Of these, how many are free.
    pub free_sectors: u64,
    /// Nodes there are.
    pub inodes: u64,
}

/// Why a call on a tree failed; in brackets what POSIX calls it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// No such name, or no such inode (ENOENT).
    #[error("no such file or directory")]
    NotFound,
    /// The name is taken (EEXIST).
    #[error("the name is taken")]
    Exists,
    /// A directory is needed (ENOTDIR).
    #[error("not a directory")]
    NotDirectory,
    /// A directory cannot be used so (EISDIR).
    #[error("it is a directory")]
    IsDirectory,
    /// The directory has entries (ENOTEMPTY).
    #[error("the directory is not empty")]
    NotEmpty,
    /// The call makes no sense for this node: reading a pipe, moving a directory into itself (EINVAL).
    #[error("not possible for this node")]
    Invalid,
    /// The name is longer than 255 bytes (ENAMETOOLONG).
    #[error("a name of {bytes} bytes; at most 255 are possible")]
    NameTooLong {
        /// Its length.
        bytes: usize,
    },
    /// The node has as many names as it can (EMLINK).
    #[error("the node has {names} names; no more are possible")]
    TooManyNames {
        /// How many.
        names: u32,
    },
    /// Larger than a file can be (EFBIG).
    #[error("{bytes} bytes; a file has at most {bytes_max}")]
    TooLarge {
        /// What was asked for.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// The disk is full (ENOSPC).
    #[error("the disk is full")]
    NoSpace,
    /// Written sectors found no place, and no room in the journal: they are in memory only (ENOSPC).
    #[error("{sectors} sectors found neither a place nor room in the journal, and are in memory only")]
    Placeless {
        /// How many.
        sectors: u64,
    },
    /// No such extended attribute (ENODATA).
    #[error("no such attribute")]
    NoAttribute,
    /// The value of an extended attribute is too long (E2BIG).
    #[error("an attribute of {bytes} bytes; at most 65,536 are possible")]
    AttributeTooLong {
        /// Its length.
        bytes: usize,
    },
    /// Nothing of that kind behind this offset (ENXIO).
    #[error("nothing there to seek")]
    NothingThere,
    /// The disk does not take writes (EROFS).
    #[error("the disk takes no writes: {why}")]
    ReadOnly {
        /// Why.
        why: String,
    },
    /// Sectors could not be read, nor decoded (EIO).
    #[error("{sectors} sectors of inode {inode} are lost")]
    Lost {
        /// Whose.
        inode: Inode,
        /// How many.
        sectors: u64,
    },
    /// The device failed, or what lies on it makes no sense (EIO).
    #[error("the disk failed: {why}")]
    Failed {
        /// What happened, with the numbers.
        why: String,
    },
}

/// See the module. Names are bytes without `/` and 0, at most 255, neither `.` nor `..`.
pub trait FileTree: Send + Sync {
    /// The node that a directory has under a name; `.` and `..` are known too.
    fn lookup(&self, directory: Inode, name: &[u8]) -> Result<Attributes, FileError>;

    /// What is known of a node.
    fn attributes(&self, inode: Inode) -> Result<Attributes, FileError>;

    /// Sets attributes and returns all.
    fn set_attributes(&self, inode: Inode, new: &NewAttributes) -> Result<Attributes, FileError>;

    /// Makes a node under a name that is free.
    fn make(&self, directory: Inode, name: &[u8], node: &NewNode) -> Result<Attributes, FileError>;

    /// Gives a node that is no directory, and has a name, one more.
    fn link(&self, inode: Inode, directory: Inode, name: &[u8]) -> Result<Attributes, FileError>;

    /// Takes a name from a node that is no directory.
    fn unlink(&self, directory: Inode, name: &[u8]) -> Result<(), FileError>;

    /// Removes an empty directory.
    fn remove_directory(&self, directory: Inode, name: &[u8]) -> Result<(), FileError>;

    /// Moves a name. Where both names are of one node, [`RenameMode::Replace`] does nothing. No directory moves below
    /// itself ([`FileError::Invalid`]).
    fn rename(&self, from: (Inode, &[u8]), to: (Inode, &[u8]), mode: RenameMode) -> Result<(), FileError>;

    /// The target of a link.
    fn read_link(&self, inode: Inode) -> Result<Vec<u8>, FileError>;

    /// Up to `limit` rows of a directory in the order of names, behind the name `after`.
    fn read_directory(
        &self,
        directory: Inode,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<DirectoryEntry>, FileError>;

    /// Keeps the node while it is open, named or not. A mount holds all nodes that the kernel knows, so that very many
    /// may be open, and the call should not wait for the device.
    fn open(&self, inode: Inode) -> Result<(), FileError>;

    /// Undoes one [`FileTree::open`].
    fn release(&self, inode: Inode);

    /// Reads from `offset` on and returns how many bytes; fewer than asked only at the end of the file.
    fn read(&self, inode: Inode, offset: u64, into: &mut [u8]) -> Result<usize, FileError>;

    /// As [`FileTree::read`] of up to `count` bytes, for who reads much: into a buffer of the tree's own, on which it may keep a
    /// handle.
    fn read_bytes(&self, inode: Inode, offset: u64, count: usize) -> Result<Bytes, FileError> {
        let mut buffer = BytesMut::zeroed(count);
        let count = self.read(inode, offset, &mut buffer)?;
        buffer.truncate(count);
        Ok(buffer.freeze())
    }

    /// Writes all of `bytes` at `offset`; the file grows where it must.
    fn write(&self, inode: Inode, offset: u64, bytes: &[u8]) -> Result<(), FileError>;

    /// Makes sure that writes to these bytes will find space. Unless `keep_size`, the file grows to hold them.
    fn allocate(&self, inode: Inode, offset: u64, bytes: u64, keep_size: bool) -> Result<(), FileError>;

    /// Makes a hole of these bytes, as far as the file goes: they read as zeros.
    fn punch(&self, inode: Inode, offset: u64, bytes: u64) -> Result<(), FileError>;

    /// The next data or hole at or behind `offset`.
    fn seek(&self, inode: Inode, offset: u64, what: Seek) -> Result<u64, FileError>;

    /// Makes durable what was written to a node, and that it exists under the names it has.
    fn sync(&self, inode: Inode) -> Result<(), FileError>;

    /// Makes all durable.
    ///
    /// # Errors
    /// [`FileError::Placeless`]; [`FileError::Lost`] where what waits belongs to groups that are lost, and is durable elsewhere.
    fn sync_all(&self) -> Result<(), FileError>;

    /// The value of an extended attribute.
    fn attribute(&self, inode: Inode, name: &[u8]) -> Result<Vec<u8>, FileError>;

    /// The names of all extended attributes, sorted.
    fn attribute_names(&self, inode: Inode) -> Result<Vec<Vec<u8>>, FileError>;

    /// Sets an extended attribute: `Some(true)` only where it is there already, `Some(false)` only where it is not.
    fn set_attribute(&self, inode: Inode, name: &[u8], value: &[u8], there: Option<bool>) -> Result<(), FileError>;

    /// Removes an extended attribute.
    fn remove_attribute(&self, inode: Inode, name: &[u8]) -> Result<(), FileError>;

    /// How full the disk is.
    fn space(&self) -> SpaceFigures;
}
