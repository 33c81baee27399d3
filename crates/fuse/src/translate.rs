//! The tree's words in FUSE's.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use claystone_env::SECTOR_BYTES;
use claystone_files::{Attributes, FileError, Inode, Kind, Setting, Timestamp};
use fuser::{Errno, FileAttr, FileType, INodeNo, TimeOrNow};

/// What a program is told of a node.
pub fn file_attributes(attributes: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(attributes.inode.0),
        size: attributes.bytes,
        blocks: attributes.sectors * SECTOR_BYTES as u64 / 512,
        atime: system_time(attributes.accessed),
        mtime: system_time(attributes.modified),
        ctime: system_time(attributes.changed),
        crtime: system_time(attributes.made),
        kind: file_type(attributes.kind),
        perm: attributes.permissions,
        nlink: attributes.names,
        uid: attributes.owner,
        gid: attributes.owner_group,
        // The kernel's encoding of device numbers has 32 bits; they came from there.
        rdev: attributes.device as u32,
        blksize: SECTOR_BYTES as u32,
        flags: 0,
    }
}

/// What a program is told of a kind.
pub fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Link => FileType::Symlink,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::CharacterDevice => FileType::CharDevice,
        Kind::Pipe => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
    }
}

/// The kind in a mode of `mknod`.
pub fn kind_of_mode(mode: u32) -> Option<Kind> {
    match rustix::fs::FileType::from_raw_mode(mode) {
        rustix::fs::FileType::RegularFile => Some(Kind::File),
        rustix::fs::FileType::BlockDevice => Some(Kind::BlockDevice),
        rustix::fs::FileType::CharacterDevice => Some(Kind::CharacterDevice),
        rustix::fs::FileType::Fifo => Some(Kind::Pipe),
        rustix::fs::FileType::Socket => Some(Kind::Socket),
        _ => None,
    }
}

/// The low 12 bits of a mode.
pub fn permissions(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

/// The inode of a request.
pub fn inode(number: INodeNo) -> Inode {
    Inode(number.0)
}

/// A time to set.
pub fn setting(time: TimeOrNow) -> Setting {
    match time {
        TimeOrNow::Now => Setting::Now,
        TimeOrNow::SpecificTime(time) => Setting::At(requested_time(time)),
    }
}

/// A time from a request. Before the epoch, fuser 0.18 counts the nanoseconds away from it: where the kernel said -2 s and
/// 250,000,000 ns, it gives 2.25 s before the epoch. So the two parts are taken as the kernel said them.
pub fn requested_time(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Timestamp { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() },
        Err(error) => {
            let before = error.duration();
            Timestamp { seconds: -(before.as_secs() as i64), nanoseconds: before.subsec_nanos() }
        }
    }
}

fn system_time(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = if time.seconds < 0 { UNIX_EPOCH.checked_sub(seconds) } else { UNIX_EPOCH.checked_add(seconds) };
    let time = whole.and_then(|whole| whole.checked_add(Duration::from_nanos(time.nanoseconds.into())));
    // No clock shows what does not fit.
    time.unwrap_or(UNIX_EPOCH)
}

/// What a program is told of an error.
pub fn errno(error: &FileError) -> Errno {
    match error {
        FileError::NotFound => Errno::ENOENT,
        FileError::Exists => Errno::EEXIST,
        FileError::NotDirectory => Errno::ENOTDIR,
        FileError::IsDirectory => Errno::EISDIR,
        FileError::NotEmpty => Errno::ENOTEMPTY,
        FileError::Invalid => Errno::EINVAL,
        FileError::NameTooLong { .. } => Errno::ENAMETOOLONG,
        FileError::TooManyNames { .. } => Errno::EMLINK,
        FileError::TooLarge { .. } => Errno::EFBIG,
        FileError::NoSpace | FileError::Placeless { .. } => Errno::ENOSPC,
        FileError::NoAttribute => Errno::NO_XATTR,
        FileError::AttributeTooLong { .. } => Errno::E2BIG,
        FileError::NothingThere => Errno::ENXIO,
        FileError::ReadOnly { .. } => Errno::EROFS,
        FileError::Lost { .. } | FileError::Failed { .. } => Errno::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_there_and_back() {
        for (seconds, nanoseconds) in [(0, 0), (5, 250_000_000), (-1, 0), (-2, 999_999_999), (1 << 33, 1)] {
            let time = Timestamp { seconds, nanoseconds };
            let shown = system_time(time);
            if seconds >= 0 || nanoseconds == 0 {
                assert_eq!(requested_time(shown), time);
            } else {
                assert_eq!(shown, UNIX_EPOCH - Duration::from_nanos(1_000_000_001));
                // As fuser hands it in.
                let handed_in = UNIX_EPOCH - Duration::new(2, 999_999_999);
                assert_eq!(requested_time(handed_in), time);
            }
        }
    }
}
