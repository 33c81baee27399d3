//! What a tiered device did, and how it is: for people and metrics.

use claystone_env::{BufferState, LogFill, PairHealth, SECTOR_BYTES, SsdState};

use super::TieredDevice;
use super::guide::Guide;
use super::state::State;
use crate::predictor::{Counts, Stage};
use crate::superblock::{PairId, SIDES};

/// Counts since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TierCounts {
    /// Writes; one that is longer than a record counts as several.
    pub writes: u64,
    /// Sectors that were written.
    pub write_sectors: u64,
    /// Of them, writes that went to the hard disk's log.
    pub redirected_writes: u64,
    /// Their sectors.
    pub redirected_sectors: u64,
    /// Sectors written to the solid-state drive: data, headers, marks and superblocks.
    pub ssd_sectors: u64,
    /// Sectors of padding on the hard disk.
    pub padding_sectors: u64,
    /// Syncs of the hard disk that only its predictor wanted.
    pub upkeep_syncs: u64,
    /// Redirected sectors that were copied to the solid-state drive by a sync, because that was cheaper.
    pub copied_sectors: u64,
    /// Syncs that had something to make durable.
    pub syncs: u64,
    /// Of them, those that synced the hard disk.
    pub hdd_syncs: u64,
    /// Sectors written home from the logs.
    pub drained_sectors: u64,
    /// Times that somebody waited for room in a log.
    pub waits: u64,
    /// Sectors of logs that were found lost.
    pub lost_sectors: u64,
    /// Indexes that were written,
    pub indexes: u64,
    /// and their sectors, with those of the superblocks that name them.
    pub index_sectors: u64,
}

/// What an opening read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Opening {
    /// Sectors of indexes; 0: there was none, or it could not be read.
    pub index_sectors: u64,
    /// Sectors of both logs, whether their content was read or passed over.
    pub log_sectors: u64,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierInfo {
    /// Which pair.
    pub id: PairId,
    /// How often it was opened.
    pub epoch: u32,
    /// Whether the solid-state drive is there and works.
    pub ssd_works: bool,
    /// Sectors of the home.
    pub sectors: u64,
    /// The log of the solid-state drive, and that of the hard disk.
    pub logs: [LogFill; 2],
    /// What its opening read.
    pub opening: Opening,
    /// Sectors in both logs that are in no index: an opening reads them.
    pub unindexed_sectors: u64,
    /// Sectors that wait in the logs.
    pub waiting_sectors: u64,
    /// Sectors of them that cannot be read until they are written.
    pub lost_sectors: u64,
    /// What it did.
    pub counts: TierCounts,
    /// Where the hard disk's buffer is believed to be, if that can be told, and what its predictor saw; `None`: nothing is predicted.
    pub predicted: Option<(Option<Stage>, Counts)>,
}

impl TieredDevice {
    /// How it is. Takes no time.
    pub fn info(&self) -> TierInfo {
        self.info_of(&self.state())
    }

    fn info_of(&self, state: &State) -> TierInfo {
        TierInfo {
            id: state.superblock.id,
            epoch: state.superblock.epoch,
            ssd_works: state.ssd == SsdState::Present,
            sectors: self.home.sectors,
            logs: SIDES.map(|side| {
                let ring = &state.rings[side as usize];
                LogFill { used_bytes: bytes(ring.used()), bytes: bytes(ring.sectors()) }
            }),
            opening: state.opening,
            unindexed_sectors: state.unindexed_below(u64::MAX),
            waiting_sectors: state.overlay.sectors(),
            lost_sectors: state.overlay.lost(),
            counts: state.counts,
            predicted: state.guide.as_ref().map(Guide::seen),
        }
    }

    /// How it is, in the words of every device.
    pub(super) fn health(&self) -> PairHealth {
        let state = self.state();
        let TierInfo { logs: [ssd_log, hdd_log], unindexed_sectors, lost_sectors, counts, predicted, .. } =
            self.info_of(&state);
        PairHealth {
            ssd: state.ssd,
            buffer: state.guide.as_ref().map_or(BufferState::Unknown, Guide::buffer),
            written_bytes: bytes(counts.write_sectors),
            ssd_bytes: bytes(counts.ssd_sectors),
            redirected_writes: counts.redirected_writes,
            redirected_bytes: bytes(counts.redirected_sectors),
            copied_bytes: bytes(counts.copied_sectors),
            padding_bytes: bytes(counts.padding_sectors),
            upkeep_syncs: counts.upkeep_syncs,
            slow_stages: predicted.map_or(0, |(_, counts)| counts.slow_stages),
            surprises: predicted.map_or(0, |(_, counts)| counts.user_surprises),
            drained_bytes: bytes(counts.drained_sectors),
            lost_sectors,
            ssd_log,
            hdd_log,
            unindexed_bytes: bytes(unindexed_sectors),
        }
    }
}

fn bytes(sectors: u64) -> u64 {
    sectors * SECTOR_BYTES as u64
}
