//! A device: numbered sectors of a drive, a partition or an image, as blocking calls for a disk's
//! [`Worker`](crate::Worker).
//!
//! The calls block, as those of [`Directory`](crate::Directory) do. Direct reads and writes block in the system anyway,
//! and a drive's queue is filled by the several threads of its disk's worker; planners and executors above stay plain
//! code, without a suspension point between a decision and its write; and a simulator runs such a call at once and
//! charges its time afterwards, so one thread replays a run.
//!
//! What a caller may count on, in every implementation:
//! 1. A read tells of each sector whether it was read, in time or at all. A sector that was read may still be wrong
//!    (a flipped bit, a misdirected write): checksums are the caller's.
//! 2. What was written before a returned [`Device::sync`] is there after a power cut.
//! 3. A sector written and not synced is, after a power cut, old, or new, or any of the contents it was given since, or
//!    torn: any 512-byte part from any of these; or unreadable until it is written. Each sector by itself: a later write
//!    may have survived and an earlier one not. Sectors that were not written are not changed.
//! 4. After a failed [`Device::sync`] every later one fails, until the device is opened anew: systems forget what they
//!    could not write, and the next sync would promise it.
//! 5. Calls may come from several threads at once. Where two writes overlap, each sector is that of one of them.
//! 6. The requests of one [`Device::read_each`] or [`Device::write_each`] are like calls from several threads: each by
//!    itself, in no order.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::PairHealth;

/// The unit in which a device reads, writes and fails.
pub const SECTOR_BYTES: usize = 4096;

/// The number of a sector, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Sector(pub u64);

/// Consecutive sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SectorRange {
    /// The first one.
    pub first: Sector,
    /// How many.
    pub sectors: u64,
}

impl SectorRange {
    /// The sector behind the last one.
    pub fn end(&self) -> Sector {
        Sector(self.first.0 + self.sectors)
    }
}

impl fmt::Display for SectorRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sectors {}..{}", self.first.0, self.end().0)
    }
}

/// What a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// How many sectors it has.
    pub sectors: u64,
    /// Whether it can be told to report a sector that does not read at once. Where it cannot, [`Effort::FailFast`] is
    /// done as [`Effort::Retry`].
    pub fails_fast: bool,
    /// Whether it has turning disks, so that another place costs a seek.
    pub rotational: bool,
}

impl Geometry {
    /// The sectors of a request for `bytes` bytes from `first`.
    ///
    /// # Panics
    /// If they are not whole sectors, at least one, on the device.
    pub fn range(&self, first: Sector, bytes: usize) -> SectorRange {
        assert!(bytes.is_multiple_of(SECTOR_BYTES), "{bytes} bytes are not whole sectors");
        let range = SectorRange { first, sectors: (bytes / SECTOR_BYTES) as u64 };
        self.assert_holds(range);
        range
    }

    /// Asserts that a request is for sectors of the device.
    ///
    /// # Panics
    /// If it is not, or is for none.
    pub fn assert_holds(&self, range: SectorRange) {
        assert!(range.sectors > 0, "a request for no sector");
        let end = range.first.0.checked_add(range.sectors);
        assert!(end.is_some_and(|end| end <= self.sectors), "{range:?} of {} sectors", self.sectors);
    }
}

/// How long a device shall try to read a sector.
// Source: [lec §3.1]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effort {
    /// Once: what does not read is reported, and the caller decodes it from its group.
    FailFast,
    /// As long as the drive knows a way, which takes tens of milliseconds for a sector, and seconds for a lost one.
    Retry,
}

/// How a sector was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SectorFailure {
    /// Not at once. [`Effort::Retry`] may read it, or find it lost. Never the result of [`Effort::Retry`].
    Soft,
    /// Not by any retry: until it is written, it stays so.
    Lost,
}

/// A sector that was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FailedSector {
    /// Which.
    pub sector: Sector,
    /// How.
    pub failure: SectorFailure,
}

/// A whole request failed.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The device did not answer. Says nothing about single sectors.
    #[error("the device did not read {range}")]
    Read {
        /// What was asked for.
        range: SectorRange,
        /// What the system said.
        source: io::Error,
    },
    /// Each of these sectors may be old, new, torn or unreadable.
    #[error("the device did not write {range}")]
    Write {
        /// What was asked for.
        range: SectorRange,
        /// What the system said.
        source: io::Error,
    },
    /// An image had no space to hold these sectors; as with [`DeviceError::Write`], some may be new.
    #[error("no space to write {range}")]
    NoSpace {
        /// What was asked for.
        range: SectorRange,
    },
    /// The device takes no writes; nothing changed.
    #[error("the device is read-only: {range} not written")]
    ReadOnly {
        /// What was asked for.
        range: SectorRange,
    },
    /// What was written since the last sync may not be there after a power cut, nor be read before one.
    #[error("the device did not make its writes durable")]
    Sync {
        /// What the system said.
        source: io::Error,
    },
}

/// See the module.
pub trait Device: Send + Sync + 'static {
    /// What a person would call it: its path.
    fn label(&self) -> String;

    /// How it does requests and gives up on sectors: a sentence each, for people. None where there is nothing to say.
    fn manner(&self) -> Vec<String> {
        Vec::new()
    }

    /// How its two devices are, if it is made of a hard disk and a solid-state drive.
    fn pair(&self) -> Option<PairHealth> {
        None
    }

    /// Whether it knows that it has lost what any of these sectors held, after a sync had promised that, and nothing was written there
    /// since: as a pair that lost one of its drives. Of others that do not read it may be that nothing was promised.
    fn has_lost(&self, _range: SectorRange) -> bool {
        false
    }

    /// How large it is and what it can do. Does not change while it is open.
    fn geometry(&self) -> Geometry;

    /// The time by which requests take theirs, from any moment on: what passes of it during a call is what the call took. `None` where
    /// nobody measures it.
    fn elapsed(&self) -> Option<Duration> {
        None
    }

    /// Fills `into`, whole sectors, from `first`. Returns the sectors that were not read, in ascending order, usually
    /// none; their bytes are zeros, so that nobody takes what was in `into` for theirs.
    ///
    /// # Errors
    /// [`DeviceError::Read`].
    ///
    /// # Panics
    /// As [`Geometry::range`].
    fn read(&self, first: Sector, into: &mut [u8], effort: Effort) -> Result<Vec<FailedSector>, DeviceError>;

    /// Writes `bytes`, whole sectors, from `first`. A sector that could not be read can be again.
    ///
    /// # Errors
    /// [`DeviceError::Write`], [`DeviceError::NoSpace`], [`DeviceError::ReadOnly`].
    ///
    /// # Panics
    /// As [`Geometry::range`].
    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Reads several requests, given as for [`Device::read`], at once where the device can. Returns for each, in their
    /// order, what [`Device::read`] would: one that fails says nothing of the others.
    ///
    /// # Panics
    /// As [`Geometry::range`] for any of them, and then none was read.
    fn read_each(
        &self,
        reads: &mut [(Sector, &mut [u8])],
        effort: Effort,
    ) -> Vec<Result<Vec<FailedSector>, DeviceError>> {
        for (first, into) in reads.iter() {
            self.geometry().range(*first, into.len());
        }
        reads.iter_mut().map(|(first, into)| self.read(*first, into, effort)).collect()
    }

    /// Writes several requests, given as for [`Device::write`], at once where the device can. Until a sync, any of them
    /// may survive a power cut and any other not, whatever their order.
    ///
    /// # Errors
    /// As [`Device::write`], of one that failed. Of the others each was written, failed too, or was not begun: each
    /// sector of any of them may be old, new, torn or unreadable. A device that takes no writes takes none of them.
    ///
    /// # Panics
    /// As [`Geometry::range`] for any of them, and then none was written.
    fn write_each(&self, writes: &[(Sector, &[u8])]) -> Result<(), DeviceError> {
        for (first, bytes) in writes {
            self.geometry().range(*first, bytes.len());
        }
        writes.iter().try_for_each(|(first, bytes)| self.write(*first, bytes))
    }

    /// Makes all durable that was written before.
    ///
    /// # Errors
    /// [`DeviceError::Sync`], and then always.
    fn sync(&self) -> Result<(), DeviceError>;

    /// Brings to its place what the device keeps elsewhere, where it does that: for the end of its use. It may be used again.
    ///
    /// # Errors
    /// As [`Device::write`] and [`Device::sync`].
    fn rest(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Tells the device that nobody needs what these sectors hold. They read as anything until they are written; a
    /// device may also do nothing.
    ///
    /// # Errors
    /// As [`Device::write`].
    ///
    /// # Panics
    /// As [`Geometry::assert_holds`].
    fn discard(&self, range: SectorRange) -> Result<(), DeviceError>;
}
