//! Files opened around the page cache.

use std::fs;
use std::os::fd::AsRawFd;

use claystone_env::ALIGNED_BYTES;
use rustix::fs::{Mode, OFlags};

/// The file that `file` is, opened again for `access` around the page cache; `None` where the system refuses that.
pub fn open_direct(file: &fs::File, access: OFlags) -> Option<fs::File> {
    let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::open(itself, access | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty()).ok().map(fs::File::from)
}

/// Whether memory is where, and as long as, a direct read or write wants it.
pub fn is_aligned(bytes: &[u8]) -> bool {
    bytes.len().is_multiple_of(ALIGNED_BYTES) && bytes.as_ptr().align_offset(ALIGNED_BYTES) == 0
}
