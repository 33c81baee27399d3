//! The flash of a solid-state drive and the memory before it: what each unit does, and until when.
//!
//! Who asks, asks in the order of time.

use std::collections::VecDeque;
use std::time::Duration;

use claystone_env::{Random, SECTOR_BYTES};

use super::{SsdModel, SsdStats, WriteOrder};

/// See the module.
#[derive(Debug)]
pub struct Flash {
    /// When each unit has done what it was given.
    free_at: Vec<Duration>,
    /// Sectors in the drive's memory, by when they came, and where they go.
    waiting: VecDeque<(Duration, WriteOrder)>,
    /// Until when the whole drive takes nothing in.
    stalled_until: Duration,
    /// Sectors until the next stall, once it is drawn.
    stalls_in: Option<u64>,
    stats: SsdStats,
}

impl Flash {
    /// # Panics
    /// If the drive has no unit, no memory, or always collects.
    pub fn new(model: &SsdModel) -> Flash {
        assert!(model.units > 0, "a drive has flash");
        assert!(model.memory_sectors > 0, "a drive has memory");
        assert!(model.collect_every > 0, "one in 0 programs");
        Flash {
            free_at: vec![Duration::ZERO; model.units],
            waiting: VecDeque::new(),
            stalled_until: Duration::ZERO,
            stalls_in: None,
            stats: SsdStats::default(),
        }
    }

    pub fn stats(&self) -> SsdStats {
        self.stats
    }

    pub fn count_flush(&mut self) {
        self.stats.flushes += 1;
    }

    /// Takes a read that comes now; returns when its bytes are there.
    pub fn read(&mut self, bytes: u64, now: Duration, model: &SsdModel, random: &dyn Random) -> Duration {
        self.stats.reads += 1;
        let first = random.below(model.units as u64) as usize;
        let parts = bytes.div_ceil(PART_BYTES).max(1) as usize;
        let units = (first..first + parts).map(|unit| unit % model.units);
        let ends = units.map(|unit| {
            let free_at = &mut self.free_at[unit];
            *free_at = now.max(*free_at) + model.read;
            *free_at
        });
        ends.max().expect("at least one part")
    }

    /// Takes a write into the drive's memory, or says how long to wait before it asks again.
    pub fn take(
        &mut self,
        sectors: usize,
        order: WriteOrder,
        now: Duration,
        model: &SsdModel,
        random: &dyn Random,
    ) -> Result<(), Duration> {
        if let Some(wait) = self.stalled_until.checked_sub(now).filter(|wait| !wait.is_zero()) {
            return Err(wait);
        }
        if let Some(wait) = self.room_in(sectors, model.memory_sectors, now) {
            return Err(wait);
        }
        self.stats.writes += 1;
        self.stats.sectors_written += sectors as u64;
        self.waiting.extend(std::iter::repeat_n((now, order), sectors));
        self.count_to_stall(sectors as u64, now, model, random);
        Ok(())
    }

    /// Gives sectors of the drive's memory to units that were free before `now`.
    pub fn program_until(&mut self, now: Duration, model: &SsdModel, random: &dyn Random) {
        while let Some(start) = self.next_program().filter(|start| *start < now) {
            let Some((_, order)) = self.waiting.pop_front() else { return };
            let mut took = model.program;
            if order == WriteOrder::Random && random.below(model.collect_every) == 0 {
                took += model.collect;
                self.stats.collections += 1;
            }
            *self.first_free() = start + took;
        }
    }

    /// When the next sector is programmed, unless a read comes before.
    pub fn next_program(&self) -> Option<Duration> {
        let free_at = self.free_at.iter().min()?;
        self.waiting.front().map(|(came, _)| *came.max(free_at))
    }

    /// When every unit has done what it was given.
    pub fn busy_until(&self) -> Duration {
        self.free_at.iter().copied().max().unwrap_or_default()
    }

    fn first_free(&mut self) -> &mut Duration {
        self.free_at.iter_mut().min().expect("a drive has flash")
    }

    /// How long to wait before looking again for room in the drive's memory; `None`: there is room.
    fn room_in(&self, sectors: usize, sectors_max: usize, now: Duration) -> Option<Duration> {
        // What is longer than the memory goes through it when it is empty.
        if self.waiting.is_empty() || self.waiting.len() + sectors <= sectors_max {
            return None;
        }
        self.next_program().map(|next| next.saturating_sub(now) + TICK)
    }

    /// The sectors between two stalls are of any number up to twice the mean.
    fn count_to_stall(&mut self, sectors: u64, now: Duration, model: &SsdModel, random: &dyn Random) {
        if model.stall_every_sectors == 0 {
            return;
        }
        let left = self.stalls_in.get_or_insert_with(|| random.below(2 * model.stall_every_sectors));
        match left.checked_sub(sectors) {
            Some(less) => *left = less,
            None => {
                self.stalls_in = None;
                self.stalled_until = now + model.stall;
                self.stats.stalls += 1;
            }
        }
    }
}

/// Bytes that are so many sectors.
pub fn sectors_of(bytes: u64) -> usize {
    bytes.div_ceil(SECTOR_BYTES as u64) as usize
}

/// Bytes that follow each other and lie on one unit.
const PART_BYTES: u64 = 16 << 10;
/// The least time that the clock knows.
pub const TICK: Duration = Duration::from_micros(1);
