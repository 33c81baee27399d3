//! A disk's files as a mounted file system; the only crate that knows FUSE.
//!
//! Invariants:
//! 1. Nobody but this mount changes the tree while it is mounted. So what the kernel learns stays true until the kernel
//!    itself changes it: names, attributes and pages are cached without an end, and never invalidated from here.
//! 2. Every node that the kernel knows is held open in the tree ([`held`]); what a program has open is known to the kernel,
//!    so opening a file needs no call. When the mount ends, all are released.
//! 3. The kernel checks permissions from the attributes (`default_permissions`) and keeps locks.
//! 4. A call that failed for what lies on the disk is logged here, once, and is EIO for the program.
//!
//! Left out: syncfs (Linux sends FUSE_SYNCFS to virtiofs and to mounts of block devices by `fuseblk` only, and fuser 0.18 does not
//! know it; `sync` of a whole mount hands over what the kernel holds, and promises nothing), files without a name from the start (O_TMPFILE), access control lists (`system.` attributes are refused, so
//! that nobody believes in them), copies inside the tree (the kernel copies through its pages), export over NFS.

mod bridge;
mod error;
mod held;
mod listing;
mod mount;
mod translate;

pub use error::MountError;
pub use mount::{DESCRIPTION_ATTRIBUTE, Description, Mount, MountOptions};
