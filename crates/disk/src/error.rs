//! Why a directory is not taken as a disk, and why a disk refuses what it is asked.

use std::io;

use claystone_chunk::{ChunkError, DiskId, SegmentError};

use crate::identity::ClusterId;

/// A directory cannot be opened or formatted as a disk. Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory or a file that must be there cannot be used.
    #[error("{label} cannot be used as a disk; is it mounted and does its owner run this program?")]
    Unusable {
        /// The directory.
        label: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Nothing is where a disk was expected.
    #[error(
        "{label} is empty, but disk {expected} belongs there: mount it, or give it up with `claystone disk replace`"
    )]
    Empty {
        /// The directory.
        label: String,
        /// The disk that belongs there.
        expected: DiskId,
    },
    /// There are files, but no identity.
    #[error(
        "{label} is not a Claystone disk: it has files but no {}; name another directory, or an empty one to add",
        crate::identity::IDENTITY_FILE
    )]
    NotADisk {
        /// The directory.
        label: String,
    },
    /// The identity cannot be trusted.
    #[error(
        "the identity of {label} is damaged ({reason}): put back its {} from a copy, or `claystone disk replace` it",
        crate::identity::IDENTITY_FILE
    )]
    IdentityDamaged {
        /// The directory.
        label: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// The disk was written by a later program.
    #[error("{label} has disk format {found}, this program knows up to {supported}: it needs a newer claystone")]
    NewerFormat {
        /// The directory.
        label: String,
        /// Its format.
        found: u16,
        /// The newest that is known here.
        supported: u16,
    },
    /// The disk belongs to somebody else.
    #[error("{label} belongs to another cluster ({found}, not {expected}): mount the right disk, or empty this one")]
    ForeignCluster {
        /// The directory.
        label: String,
        /// Whose it is.
        found: ClusterId,
        /// Whose it should be.
        expected: ClusterId,
    },
    /// The disk is one of ours, in the wrong place.
    #[error("{label} is disk {found}, but {expected} belongs there: were disks swapped? mount each at its own path")]
    OtherDisk {
        /// The directory.
        label: String,
        /// Which it is.
        found: DiskId,
        /// Which it should be.
        expected: DiskId,
    },
    /// Somebody serves this disk.
    #[error("{label} is in use by another claystone: stop that one first")]
    InUse {
        /// The directory.
        label: String,
    },
    /// Only an empty directory is formatted.
    #[error("{label} is not empty (there is {name:?}): name an empty directory for a new disk")]
    NotEmpty {
        /// The directory.
        label: String,
        /// One of the names in it.
        name: String,
    },
    /// It is a disk already.
    #[error("{label} is already Claystone disk {disk} of cluster {cluster}")]
    AlreadyADisk {
        /// The directory.
        label: String,
        /// Which disk.
        disk: DiskId,
        /// Of which cluster.
        cluster: ClusterId,
    },
    /// The disk's worker has ended.
    #[error("the worker of {label} has stopped")]
    WorkerStopped {
        /// The directory.
        label: String,
    },
}

/// Why a disk does not do what it is asked, whether that is about chunks or about segments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// No room.
    Full {
        /// Which disk.
        disk: DiskId,
        /// What the operation needs.
        needed_bytes: u64,
        /// What there is above the reserve.
        free_bytes: u64,
    },
    /// Not in its state, or not now.
    Unavailable {
        /// Which disk.
        disk: DiskId,
        /// Why.
        reason: String,
    },
}

impl From<Refused> for ChunkError {
    fn from(refused: Refused) -> ChunkError {
        match refused {
            Refused::Full { disk, needed_bytes, free_bytes } => ChunkError::DiskFull { disk, needed_bytes, free_bytes },
            Refused::Unavailable { disk, reason } => ChunkError::Unavailable { disk, reason },
        }
    }
}

impl From<Refused> for SegmentError {
    fn from(refused: Refused) -> SegmentError {
        match refused {
            Refused::Full { disk, needed_bytes, free_bytes } => {
                SegmentError::DiskFull { disk, needed_bytes, free_bytes }
            }
            Refused::Unavailable { disk, reason } => SegmentError::Unavailable { disk, reason },
        }
    }
}
