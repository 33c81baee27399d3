//! Indexing: what marks have since the last index goes into one, so that an opening after a crash need not read it from the logs.
//!
//! ```text
//! marked --staged: it has its place in the solid-state drive's log--> written --synced--> durable --superblock names it--> an opening goes by it
//! ```
//!
//! | the power goes when it is | then |
//! |---|---|
//! | staged, or written in part | the superblock names the index before; the logs are read from where that ends, and this one is nothing |
//! | durable | the same |
//! | named in one slot of the superblock, or in both | that superblock is the newest: the logs are read from where this one ends |
//!
//! Invariants:
//! 1. What an index has is durable and in marks before it is staged, and stays so: all of it is at the last durable mark or before.
//! 2. No mark is written between the place of an index and its sync, so nobody misses one that was not written.
//! 3. It lies behind all that it has, and is freed when all that it has is.

use claystone_env::{DeviceError, SECTOR_BYTES};

use super::TieredDevice;
use super::append::Staged;
use super::state::{Coverage, Held, SsdState, State};
use crate::index::{IndexAt, Item, Writer};
use crate::record::{Entry, Kind};
use crate::superblock::{Side, Superblock};

/// An index that has its place.
struct StagedIndex {
    staged: Staged,
    at: IndexAt,
    /// What indexes cover with it.
    coverage: Coverage,
}

impl TieredDevice {
    /// Writes an index, if enough was marked since the last one. Returns whether it did; there may be more then, where one index has no room for
    /// all. Where the solid-state drive fails, the next sync settles that. For who may wait in their place, as [`TieredDevice::sync_early`].
    pub fn index(&self) -> bool {
        if !self.is_index_due(&self.state()) {
            return false;
        }
        let _draining = self.draining.take(&*self.bell);
        let syncing = self.syncing.take(&*self.bell);
        let index = self.stage_index(&mut self.state());
        let Some(StagedIndex { staged, at, coverage }) = index else { return false };
        let sectors = (staged.bytes.len() / SECTOR_BYTES) as u64;
        let written = self.write_mark(&staged);
        drop(syncing);
        let state = self.state();
        let index = Some(at);
        let superblock = Superblock { index, generation: state.superblock.generation + 1, ..state.superblock.clone() };
        drop(state);
        let stored = written.and_then(|()| {
            let ssd = self.device(Side::Ssd).map_err(|source| DeviceError::Sync { source })?;
            superblock.store(ssd, Side::Ssd)
        });
        if let Err(error) = stored {
            self.ssd_failed(&error);
            return false;
        }
        let mut state = self.state();
        (state.superblock, state.indexed) = (superblock, coverage);
        state.counts.ssd_sectors += 2;
        state.counts.indexes += 1;
        state.counts.index_sectors += sectors + 2;
        true
    }

    fn is_index_due(&self, state: &State) -> bool {
        let every = self.tuning.index_every_sectors;
        state.ssd == SsdState::Present
            && !state.failed
            && !state.superblock.at_rest
            && state.durable_mark >= state.indexed.next
            // This tells most of the time, and is quick.
            && state.unindexed_below(u64::MAX) >= every
            && self.is_long_enough(state, state.unindexed_below(state.durable_mark + 1))
    }

    /// Whether an index of so many sectors is written now. Nobody waits for it, so it comes between the writes of others while there are such moments.
    fn is_long_enough(&self, state: &State, sectors: u64) -> bool {
        let every = self.tuning.index_every_sectors;
        let is_idle = || state.guide.as_ref().is_none_or(|guide| guide.is_ssd_idle((self.now)()));
        sectors >= LATEST * every || (sectors >= every && is_idle())
    }

    /// Takes sequence and place for the next index; nothing, if none is due any more, or there is no room. The caller holds `draining` and `syncing`.
    fn stage_index(&self, state: &mut State) -> Option<StagedIndex> {
        if !self.is_index_due(state) {
            return None;
        }
        let IndexPlan { from, payload, coverage } = plan_index(state);
        let reserve = state.reserve(Side::Ssd);
        let staged = self.stage_list(state, (Side::Ssd, Kind::Index), from, payload, reserve)?;
        let at = IndexAt { seq: staged.seq, place: staged.first.0 - self.logs[Side::Ssd as usize].first.0 };
        Some(StagedIndex { staged, at, coverage })
    }
}

/// So many times what it waits for, an index is written though others write.
const LATEST: u64 = 4;

/// What the next index is.
struct IndexPlan {
    /// Its first sequence.
    from: u64,
    payload: Vec<u8>,
    /// What indexes cover with it.
    coverage: Coverage,
}

/// The next index: of what the last durable mark and those before it have, as much as there is room for.
fn plan_index(state: &State) -> IndexPlan {
    let Coverage { next: from, mut positions } = state.indexed;
    let mut to = state.durable_mark;
    let mut writer = Writer::new(from, state.superblock.index);
    for (seq, held) in state.records.range(from..=to) {
        if !writer.push(&item_of(state, *seq, held), state.list_bytes_max()) {
            to = *seq - 1;
            break;
        }
        let end = &mut positions[held.side as usize];
        *end = (*end).max(held.position + held.sectors);
    }
    assert!(from <= to, "a record has room in an index");
    IndexPlan { from, payload: writer.end(to), coverage: Coverage { next: to + 1, positions } }
}

fn item_of(state: &State, seq: u64, held: &Held) -> Item {
    let Held { side, position, sectors, kind, replaces, told, entries, .. } = held;
    let place = state.rings[*side as usize].place(*position);
    let record_sectors = (sectors - kind.header_sectors()) as u32;
    let (told, entries): (_, Vec<Entry>) = (told.clone(), entries.clone());
    Item { seq, place, replaces: *replaces, side: *side, kind: *kind, record_sectors, told, entries }
}
