//! What the last long reads brought, and what reads under way are bringing: a sector that failed is mended from that.
//!
//! A stream asks for a file in requests that end anywhere in a group, several at once. When a sector fails, the rest of its
//! group was read a moment ago, or is being read, or is what the stream asks for next. Reading it once more for the mending
//! takes the head of a hard disk back and forth, 9 ms; so it is kept, waited for, or read for both.
//!
//! ```text
//! begin: under way --arrive--> kept --later reads take its buffer--> gone       a read of the device
//! gather: claimed --keep_ahead--> kept, for who reads on --> gone               what a mending still reads
//! ```
//!
//! Invariants:
//! 1. What is kept is as it was on the device, which still holds the same: who writes forgets it first. Whoever uses it checks
//!    it all the same, where it has a CRC.
//! 2. Whoever is entered as under way, or has claimed, waits for the device and for nobody else. So no two wait for each
//!    other.
//! 3. At most [`READS_MAX`] reads are kept, of at most [`BYTES_MAX`] together.
//! 4. Nothing is copied but what follows a failure.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use claystone_env::{DeviceError, FailedSector, SECTOR_BYTES, Sector, aligned_buffer};

/// See the module.
#[derive(Default)]
pub(crate) struct Recent {
    state: Mutex<State>,
    /// Told when something under way has arrived, or is given up.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The oldest first.
    kept: VecDeque<Kept>,
    under_way: Vec<UnderWay>,
    numbers: u64,
}

/// A buffer, and which sectors of the device are in it.
#[derive(Default)]
struct Kept {
    buffer: Bytes,
    pieces: Vec<(Sector, Bytes)>,
    /// Of their sectors, those that did not read.
    failed: Vec<Sector>,
    /// Whether a mending read them for who reads on.
    ahead: bool,
}

struct UnderWay {
    number: u64,
    sectors: Vec<Range<u64>>,
    /// By a mending.
    claimed: bool,
}

/// What is known of a sector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// It was read.
    Read(Bytes),
    /// It did not read.
    Failed,
}

/// Ends what is under way, at the latest when it is dropped.
pub(crate) struct Entry<'a> {
    recent: &'a Recent,
    number: u64,
}

impl Recent {
    /// A buffer of so many bytes, aligned as devices want it, with anything in it: the oldest one if nobody uses it.
    pub fn buffer(&self, bytes: usize) -> BytesMut {
        let oldest = {
            let mut state = self.state();
            if state.kept.len() < READS_MAX { None } else { state.kept.pop_front() }
        };
        let oldest = oldest.and_then(|Kept { buffer, pieces, .. }| {
            drop(pieces);
            buffer.try_into_mut().ok()
        });
        let mut buffer = oldest.filter(|buffer| buffer.capacity() >= bytes).unwrap_or_else(|| aligned_buffer(bytes));
        buffer.resize(bytes, 0);
        buffer
    }

    /// Keeps a handle on a buffer for [`Recent::buffer`], and for nothing else; returns the other.
    pub fn keep_buffer(&self, buffer: BytesMut) -> Bytes {
        let buffer = buffer.freeze();
        self.keep(&mut self.state(), Kept { buffer: buffer.clone(), ..Kept::default() });
        buffer
    }

    /// Enters a read of these sectors, the first of which is wanted: waits until nobody is mending with that one, and returns
    /// what such a mending has kept, from there on.
    pub fn begin(&self, sectors: Vec<Range<u64>>) -> (Entry<'_>, Vec<Bytes>) {
        let first = sectors[0].clone();
        let is_claimed = |state: &mut State| {
            let meets =
                |other: &UnderWay| other.claimed && other.sectors.iter().any(|range| range.contains(&first.start));
            state.under_way.iter().any(meets)
        };
        let state = self.changed.wait_while(self.state(), is_claimed);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        let ahead = || state.kept.iter().rev().filter(|kept| kept.ahead);
        let find = |sector: u64| match ahead().find_map(|kept| kept.find(Sector(sector)))? {
            Found::Read(bytes) => Some(bytes),
            Found::Failed => None,
        };
        let found = first.map_while(find).collect();
        (self.enter(&mut state, sectors, false), found)
    }

    /// Whether a read of this sector is under way.
    pub fn is_under_way(&self, sector: Sector) -> bool {
        self.state().under_way.iter().any(|other| other.sectors.iter().any(|range| range.contains(&sector.0)))
    }

    /// Whether a sector was read a moment ago, or its reading is under way.
    pub fn is_known(&self, sector: Sector) -> bool {
        self.is_under_way(sector) || self.state().find(sector).is_some()
    }

    /// Looks for sectors, ascending: waits for all those that are under way, and claims the ones that are not to be had.
    /// Who calls reads them then, and keeps nobody waiting.
    pub fn gather(&self, sectors: &[Sector]) -> (Vec<Option<Found>>, Entry<'_>) {
        let mut state = self.state();
        loop {
            let found: Vec<Option<Found>> = sectors.iter().map(|sector| state.find(*sector)).collect();
            let missing =
                || sectors.iter().zip(&found).filter(|(_, found)| found.is_none()).map(|(sector, _)| sector.0);
            let comes = |other: &UnderWay| missing().any(|at| other.sectors.iter().any(|range| range.contains(&at)));
            if !state.under_way.iter().any(comes) {
                let claim = ranges(missing());
                let entry = self.enter(&mut state, claim, true);
                return (found, entry);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Keeps sectors from `first` on that a mending has read, for who reads on there.
    pub fn keep_ahead(&self, first: Sector, sectors: &[&[u8]]) {
        let mut buffer = self.buffer(sectors.len() * SECTOR_BYTES);
        for (into, sector) in buffer.chunks_exact_mut(SECTOR_BYTES).zip(sectors) {
            into.copy_from_slice(sector);
        }
        let buffer = buffer.freeze();
        let pieces = vec![(first, buffer.clone())];
        self.keep(&mut self.state(), Kept { buffer, pieces, failed: Vec::new(), ahead: true });
    }

    /// Forgets sectors, because they are written.
    pub fn forget(&self, sectors: Range<u64>) {
        let meets = |(first, bytes): &(Sector, Bytes)| {
            first.0 < sectors.end && sectors.start < first.0 + (bytes.len() / SECTOR_BYTES) as u64
        };
        self.state().kept.iter_mut().for_each(|kept| kept.pieces.retain(|piece| !meets(piece)));
    }

    fn enter(&self, state: &mut State, sectors: Vec<Range<u64>>, claimed: bool) -> Entry<'_> {
        state.numbers += 1;
        let number = state.numbers;
        state.under_way.push(UnderWay { number, sectors, claimed });
        Entry { recent: self, number }
    }

    fn keep(&self, state: &mut State, kept: Kept) {
        state.kept.push_back(kept);
        let bytes = |state: &State| state.kept.iter().map(|kept| kept.buffer.len()).sum::<usize>();
        while state.kept.len() > READS_MAX || bytes(state) > BYTES_MAX {
            state.kept.pop_front();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry<'_> {
    /// Keeps what was read: `buffer`, and the sectors in it and elsewhere; `unread` tells which of them were not read. If the
    /// device failed, there is nothing to keep.
    pub fn arrive(
        self,
        buffer: Bytes,
        pieces: Vec<(Sector, Bytes)>,
        unread: &[Result<Vec<FailedSector>, DeviceError>],
    ) {
        if unread.iter().all(Result::is_ok) {
            let failed = unread.iter().flatten().flatten().map(|failed| failed.sector).collect();
            self.recent.keep(&mut self.recent.state(), Kept { buffer, pieces, failed, ahead: false });
        }
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.recent.state().under_way.retain(|other| other.number != self.number);
        self.recent.changed.notify_all();
    }
}

impl State {
    /// What was read last of a sector, or that it failed when nothing was.
    fn find(&self, sector: Sector) -> Option<Found> {
        let found = || self.kept.iter().rev().filter_map(|kept| kept.find(sector));
        found().find(|found| matches!(found, Found::Read(_))).or_else(|| found().next())
    }
}

impl Kept {
    fn find(&self, sector: Sector) -> Option<Found> {
        self.pieces.iter().find_map(|(first, bytes)| {
            let at = sector.0.checked_sub(first.0)? as usize * SECTOR_BYTES;
            if at >= bytes.len() {
                return None;
            }
            Some(match self.failed.contains(&sector) {
                true => Found::Failed,
                false => Found::Read(bytes.slice(at..at + SECTOR_BYTES)),
            })
        })
    }
}

/// Ascending sectors as ranges.
fn ranges(sectors: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for sector in sectors {
        match ranges.last_mut() {
            Some(last) if last.end == sector => last.end += 1,
            _ => ranges.push(sector..sector + 1),
        }
    }
    ranges
}

/// A group of 1023 lies in five requests of a mebibyte; as many are under way before and behind.
const READS_MAX: usize = 16;
/// 16 MiB.
const BYTES_MAX: usize = READS_MAX << 20;
