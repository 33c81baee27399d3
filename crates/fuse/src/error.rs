//! Why a tree could not be mounted or unmounted, and what to do about it.

use std::io;
use std::path::PathBuf;

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel offers no FUSE.
    #[error(
        "there is no /dev/fuse: load the kernel's module (`modprobe fuse`); a container must be given the device \
         (`--device /dev/fuse --cap-add SYS_ADMIN`)"
    )]
    NoDevice,
    /// Only root may mount by itself.
    #[error(
        "only root can mount: run it with sudo, or install fuse3, whose fusermount3 mounts for other users where they may \
         open /dev/fuse"
    )]
    NotRoot {
        /// What the attempt ended with.
        source: io::Error,
    },
    /// No such directory.
    #[error("there is no directory {}: make it first (`mkdir -p {}`)", directory.display(), directory.display())]
    Missing {
        /// Which.
        directory: PathBuf,
    },
    /// Something else has that name.
    #[error("{} is no directory: name one to mount at", directory.display())]
    NotDirectory {
        /// Which.
        directory: PathBuf,
    },
    /// Another file system is mounted there.
    #[error("something is mounted at {} already: `umount {}` first, or name another directory", directory.display(), directory.display())]
    Taken {
        /// Which.
        directory: PathBuf,
    },
    /// A program works in the mounted tree.
    #[error("{} is in use: `fuser -vm {}` shows the programs that must end or leave first", directory.display(), directory.display())]
    InUse {
        /// Which.
        directory: PathBuf,
    },
    /// The kernel says no.
    #[error("{} could not be {done}", directory.display())]
    Kernel {
        /// Which.
        directory: PathBuf,
        /// `mounted` or `unmounted`.
        done: &'static str,
        /// What the kernel says.
        source: io::Error,
    },
}
