//! A device in memory whose sectors fail as told.

#![allow(dead_code, reason = "each test takes what it needs")]

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use claystone_env::testing::MemoryDevice;
use claystone_env::{
    Device, DeviceError, Effort, FailedSector, Geometry, SECTOR_BYTES, Sector, SectorFailure, SectorRange,
};
use claystone_group::{DiskId, GroupCode, Groups};

pub const DISK: DiskId = DiskId(*b"0123456789abcdef");

/// Sectors that fail: softly, so that a retry reads them, or for good, until they are written.
pub struct FaultyDevice {
    memory: MemoryDevice,
    state: Mutex<State>,
}

#[derive(Default)]
pub struct State {
    pub soft: BTreeSet<u64>,
    /// Sectors that fail softly the next time they are read, and then no more.
    pub soft_once: BTreeSet<u64>,
    /// It retries whatever it is told.
    pub retries_itself: bool,
    /// It has turning disks.
    pub turns: bool,
    pub lost: BTreeSet<u64>,
    pub read_only: bool,
    /// The write after so many others is nowhere to be found.
    pub loses_write: Option<usize>,
    /// Every read since the last look: first sector, sectors, effort.
    pub reads: Vec<(u64, u64, Effort)>,
    /// Calls that read since all was forgotten.
    pub calls: usize,
    /// Every write since the last look.
    pub writes: Vec<(u64, u64)>,
    pub syncs: usize,
    /// The time that reads took, where it is measured: each 5 ms, 33 us a sector, and 20 ms a retry.
    pub elapsed: Option<Duration>,
}

impl FaultyDevice {
    pub fn new(sectors: u64) -> Arc<FaultyDevice> {
        Arc::new(FaultyDevice { memory: MemoryDevice::new(sectors), state: Mutex::default() })
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panicked")
    }

    pub fn content(&self, sectors: Range<u64>) -> Vec<u8> {
        let mut bytes = vec![0; (sectors.end - sectors.start) as usize * SECTOR_BYTES];
        if !bytes.is_empty() {
            self.memory.read(Sector(sectors.start), &mut bytes, Effort::Retry).expect("memory");
        }
        bytes
    }

    pub fn overwrite(&self, sector: u64, bytes: &[u8]) {
        self.memory.write(Sector(sector), bytes).expect("memory");
    }

    pub fn flip(&self, sector: u64, bit: usize) {
        let mut bytes = self.content(sector..sector + 1);
        bytes[bit / 8] ^= 1 << (bit % 8);
        self.overwrite(sector, &bytes);
    }

    /// Forgets all that was noted.
    pub fn quiet(&self) {
        *self.state() = State::default();
    }

    /// Sectors read since the last look.
    pub fn sectors_read(&self) -> u64 {
        std::mem::take(&mut self.state().reads).iter().map(|(_, sectors, _)| sectors).sum()
    }

    /// Retries since the last look.
    pub fn retries(&self) -> usize {
        self.state().reads.iter().filter(|(_, _, effort)| *effort == Effort::Retry).count()
    }
}

impl FaultyDevice {
    fn read_one(&self, first: Sector, into: &mut [u8], effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        let range = self.geometry().range(first, into.len());
        let mut state = self.state();
        state.reads.push((first.0, range.sectors, effort));
        self.memory.read(first, into, effort)?;
        let retried = (first.0..range.end().0).filter(|sector| effort == Effort::Retry && state.soft.contains(sector));
        let took = 5000 + 33 * range.sectors + 20_000 * retried.count() as u64;
        state.elapsed = state.elapsed.map(|elapsed| elapsed + Duration::from_micros(took));
        let mut failed = Vec::new();
        for (sector, bytes) in (first.0..).zip(into.chunks_exact_mut(SECTOR_BYTES)) {
            let failure = match (effort, state.lost.contains(&sector)) {
                (Effort::Retry, true) => SectorFailure::Lost,
                (Effort::Retry, false) => continue,
                (Effort::FailFast, lost) if lost || state.soft.contains(&sector) => SectorFailure::Soft,
                (Effort::FailFast, false) if state.soft_once.remove(&sector) => SectorFailure::Soft,
                (Effort::FailFast, _) => continue,
            };
            bytes.fill(0);
            failed.push(FailedSector { sector: Sector(sector), failure });
        }
        Ok(failed)
    }
}

impl Device for FaultyDevice {
    fn label(&self) -> String {
        "faulty".to_owned()
    }

    fn geometry(&self) -> Geometry {
        let state = self.state();
        Geometry { fails_fast: !state.retries_itself, rotational: state.turns, ..self.memory.geometry() }
    }

    fn elapsed(&self) -> Option<Duration> {
        self.state().elapsed
    }

    fn read(&self, first: Sector, into: &mut [u8], effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        self.state().calls += 1;
        self.read_one(first, into, effort)
    }

    fn read_each(
        &self,
        reads: &mut [(Sector, &mut [u8])],
        effort: Effort,
    ) -> Vec<Result<Vec<FailedSector>, DeviceError>> {
        self.state().calls += usize::from(!reads.is_empty());
        reads.iter_mut().map(|(first, into)| self.read_one(*first, into, effort)).collect()
    }

    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        let range = self.geometry().range(first, bytes.len());
        let mut state = self.state();
        if state.read_only {
            return Err(DeviceError::ReadOnly { range });
        }
        state.writes.push((first.0, range.sectors));
        if state.loses_write == Some(state.writes.len() - 1) {
            return Ok(());
        }
        for sector in first.0..range.end().0 {
            state.soft.remove(&sector);
            state.lost.remove(&sector);
        }
        self.memory.write(first, bytes)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.state().syncs += 1;
        Ok(())
    }

    fn discard(&self, range: SectorRange) -> Result<(), DeviceError> {
        self.memory.discard(range)
    }
}

pub fn groups(device: &Arc<FaultyDevice>, k: u32, m: u32) -> Groups {
    Groups::new(device.clone(), GroupCode::new(k, m).expect("a code"), DISK, 16 << 12)
}

pub fn sectors(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.chunks_exact(SECTOR_BYTES).collect()
}
