//! How the sectors under a place for files are, where something mends them.

use crate::{PairHealth, WallTime};

/// Counts since a disk was formatted, but for what a crash took from them, and what follows from them.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SectorHealth {
    /// Sectors asked of the device.
    pub sectors_read: u64,
    /// Sectors that did not read at once.
    pub soft_failures: u64,
    /// Sectors that failed in any way, and that their group or a cache gave back.
    pub mended: u64,
    /// Those of them that had read, and wrongly.
    pub mismatches_mended: u64,
    /// Sectors that the device was asked to retry after it had failed.
    pub retries: u64,
    /// Soft failures that were mended without a retry.
    pub retries_avoided: u64,
    /// Times that a sector was wanted and could not be had.
    pub sectors_lost: u64,
    /// Copies of what is not in groups that were bad and were written again.
    pub copies_mended: u64,
    /// Parity sectors of a group.
    pub parity: u32,
    /// The chance of a soft failure, as seen lately.
    pub soft: SoftChance,
    /// The parity sectors that a group of this length needs for the chance as seen; `None` where nothing can be said, and
    /// where no parity suffices.
    pub parity_wanted: Option<u32>,
    /// Whether parity is enough for it.
    pub verdict: ParityVerdict,
    /// Reading everything back.
    pub scrub: ScrubProgress,
    /// How the two devices are, if a hard disk and a solid-state drive are its device.
    pub pair: Option<PairHealth>,
}

/// The chance that a sector does not read at once, as it was stated and as it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SoftChance {
    /// For which parity was chosen.
    pub stated: f64,
    /// Reads that it is judged by.
    pub reads: u64,
    /// The share of them that failed so; `None` where the device does not tell, or nothing was read.
    pub seen: Option<f64>,
    /// It is hardly less than this,
    pub at_least: Option<f64>,
    /// nor more than this.
    pub at_most: Option<f64>,
}

/// Whether the parity of a disk keeps losses as rare as was asked for, by what was seen of its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ParityVerdict {
    /// It does, whatever the chance is within its bounds.
    Enough,
    /// It does not, whatever the chance is within its bounds.
    TooLittle,
    /// Too little was read to say.
    #[default]
    Open,
    /// The device retries by itself, or is not asked to fail at once: soft failures are not seen.
    Unseen,
}

impl ParityVerdict {
    /// In one word.
    pub fn word(self) -> &'static str {
        match self {
            ParityVerdict::Enough => "enough",
            ParityVerdict::TooLittle => "too_little",
            ParityVerdict::Open => "open",
            ParityVerdict::Unseen => "unseen",
        }
    }
}

/// How far the reading back of everything is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScrubProgress {
    /// Groups read in the pass under way.
    pub groups: u64,
    /// Groups that there were when it began; 0 where none is under way.
    pub groups_total: u64,
    /// Sectors that it found lost.
    pub lost: u64,
    /// Groups, and sectors of what is not in groups, that it could not read.
    pub unread: u64,
    /// When the last whole pass ended,
    pub ended: Option<WallTime>,
    /// how many sectors it found lost,
    pub ended_lost: u64,
    /// and what it could not read.
    pub ended_unread: u64,
}
