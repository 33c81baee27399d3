//! Why a pair of devices cannot be made one, or opened.

use claystone_env::DeviceError;

use crate::profile::ProfileError;

/// A tiered device cannot be formatted or opened.
#[derive(Debug, thiserror::Error)]
pub enum TierError {
    /// A device has no superblock of a pair.
    #[error("{label} is no side of a tiered disk: make it one with `claystone disk format HDD --ssd SSD`")]
    NotATier {
        /// The device.
        label: String,
    },
    /// It was formatted by a later program.
    #[error(
        "{label} has tier format {found}, and this program knows {supported}: it needs the claystone that it was formatted with"
    )]
    OtherVersion {
        /// The device.
        label: String,
        /// Its version.
        found: u16,
        /// The version known here.
        supported: u16,
    },
    /// The device is the other side, or has another size than when it was formatted.
    #[error("{label} is not the {side} of this pair, or not all of it is there")]
    OtherSide {
        /// The device.
        label: String,
        /// What it was to be.
        side: &'static str,
    },
    /// The two devices are of different pairs.
    #[error("{hdd} and {ssd} do not belong together: each is of another pair")]
    OtherPair {
        /// The hard disk.
        hdd: String,
        /// The solid-state drive.
        ssd: String,
    },
    /// The solid-state drive is as it was before the pair was opened last.
    #[error(
        "{ssd} is an older copy of the solid-state drive of {hdd} (superblock {found}, and {known} is known): what was written since then is not on it. Give the drive that the pair was opened with last"
    )]
    OlderCopy {
        /// The hard disk.
        hdd: String,
        /// The solid-state drive.
        ssd: String,
        /// The generation of its superblock.
        found: u64,
        /// The hard disk's, which is never the newer one.
        known: u64,
    },
    /// Newer writes may be on the solid-state drive, which was not given.
    #[error(
        "{hdd} is one of a pair, and its solid-state drive holds writes that are nowhere else: give it with the hard disk. If it is gone, format the hard disk anew and let the store rebuild it from the other disks"
    )]
    SsdMissing {
        /// The hard disk.
        hdd: String,
    },
    /// The hard disk has a solid-state drive that is not lost.
    #[error("{hdd} has a solid-state drive: that is given up first")]
    SsdThere {
        /// Its path.
        hdd: String,
    },
    /// A device is the solid-state drive that a hard disk has.
    #[error("{ssd} is the solid-state drive that {hdd} has")]
    SsdSame {
        /// The hard disk.
        hdd: String,
        /// The other.
        ssd: String,
    },
    /// The solid-state drive has what cannot be brought home.
    #[error(
        "{sectors} sectors of {hdd} wait on its drives and are not brought home: the solid-state drive is not given up"
    )]
    NotHome {
        /// The hard disk.
        hdd: String,
        /// How many.
        sectors: u64,
    },
    /// A device is too small for what it shall hold.
    #[error("{label} has {sectors} sectors, and at least {sectors_min} are needed")]
    TooSmall {
        /// The device.
        label: String,
        /// What it has.
        sectors: u64,
        /// What it takes.
        sectors_min: u64,
    },
    /// Settings that make no pair.
    #[error("{what} may be {least} to {most}, not {found}")]
    Setting {
        /// Which.
        what: &'static str,
        /// What was asked for.
        found: u64,
        /// The least that works.
        least: u64,
        /// The most.
        most: u64,
    },
    /// The drive's profile cannot be used.
    #[error("the profile of the hard disk cannot be used")]
    Profile(#[from] ProfileError),
    /// Something is damaged that was promised, and nothing tells what it was.
    #[error(
        "the logs of {label} are damaged beyond what they can tell ({damage}): format the pair anew and let the store rebuild it from the other disks"
    )]
    Damaged {
        /// The hard disk.
        label: String,
        /// What is missing.
        damage: Damage,
    },
    /// A device did not do what it was asked.
    #[error("a device of the pair failed")]
    Device(#[from] DeviceError),
}

/// What of the logs is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// A record that was promised is nowhere, nor the mark that lists it.
    #[error("record {seq} is missing, and so is its mark")]
    Missing {
        /// Its sequence.
        seq: u64,
    },
    /// So much of a log does not read that marks may be there.
    #[error("{sectors} sectors of a log do not read, where what was promised last may be")]
    Unread {
        /// How many.
        sectors: u64,
    },
    /// Records are of a later superblock than the one that was found.
    #[error("a record is of superblock {found}, and the last one that can be read is {known}")]
    Superblock {
        /// The record's.
        found: u64,
        /// The device's.
        known: u64,
    },
}
