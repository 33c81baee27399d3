//! What the last long reads brought, what reads under way are bringing, and what updates wrote: a sector that failed is mended from what was
//! read, and an update reads only what is not there.
//!
//! A stream asks for a file in requests that end anywhere in a group, several at once. When a sector fails, the rest of its
//! group was read a moment ago, or is being read, or is what the stream asks for next. Reading it once more for the mending
//! takes the head of a hard disk back and forth, 9 ms; so it is kept, waited for, or read for both.
//!
//! ```text
//! begin: under way --arrive--> kept --later reads take its buffer--> gone       a read of the device
//! gather: claimed --keep_ahead--> kept, for who reads on --> gone               what a mending still reads
//! keep_written: kept until as much was written since --> gone                  an update
//! ```
//!
//! Invariants:
//! 1. What is kept is as it is on the device, or should be: who writes forgets it first, and a read that was under way then is not kept. Whoever
//!    uses it checks it all the same, where it has a CRC.
//! 2. Whoever is entered as under way, or has claimed, waits for the device and for nobody else. So no two wait for each
//!    other.
//! 3. At most [`READS_MAX`] reads are kept, of at most [`BYTES_MAX`] together; and what [`Written`] says.
//! 4. Nothing is copied but what follows a failure.
//! 5. Nothing is mended from what was written: the device may have lost it since, and whoever asks again has to get the same when memory is gone.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use claystone_env::{DeviceError, FailedSector, SECTOR_BYTES, Sector, aligned_buffer};

use crate::written::Written;

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
    written: Written,
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
    /// Some of it is written meanwhile.
    is_stale: bool,
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

    /// Keeps sectors from `first` on that an update has written.
    pub fn keep_written(&self, first: Sector, bytes: Bytes) {
        self.state().written.keep(first, bytes);
    }

    /// What is kept of these sectors, in no order; of one that several reads brought, all of these.
    pub fn kept(&self, sectors: Range<u64>) -> Vec<(Sector, Bytes)> {
        let (state, mut found) = (self.state(), Vec::new());
        let mut take = |first: u64, bytes: &Bytes, failed: &[Sector]| {
            let end = first + (bytes.len() / SECTOR_BYTES) as u64;
            for sector in (first.max(sectors.start)..end.min(sectors.end)).map(Sector) {
                let at = (sector.0 - first) as usize * SECTOR_BYTES;
                if !failed.contains(&sector) {
                    found.push((sector, bytes.slice(at..at + SECTOR_BYTES)));
                }
            }
        };
        for (first, bytes) in state.written.overlapping(sectors.clone()) {
            take(first, bytes, &[]);
        }
        for kept in state.kept.iter().rev() {
            kept.pieces.iter().for_each(|(first, bytes)| take(first.0, bytes, &kept.failed));
        }
        found
    }

    /// Forgets sectors, because they are written.
    pub fn forget(&self, sectors: Range<u64>) {
        let meets = |range: &Range<u64>| range.start < sectors.end && sectors.start < range.end;
        let mut state = self.state();
        for kept in &mut state.kept {
            if kept.pieces.iter().any(|piece| meets(&place_of(piece))) {
                let pieces = std::mem::take(&mut kept.pieces);
                kept.pieces = pieces.iter().flat_map(|piece| without(piece, &sectors)).collect();
            }
        }
        state.under_way.iter_mut().for_each(|read| read.is_stale |= read.sectors.iter().any(meets));
        state.written.forget(sectors);
    }

    fn enter(&self, state: &mut State, sectors: Vec<Range<u64>>, claimed: bool) -> Entry<'_> {
        state.numbers += 1;
        let number = state.numbers;
        state.under_way.push(UnderWay { number, sectors, claimed, is_stale: false });
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
            let mut state = self.recent.state();
            let is_stale = state.under_way.iter().any(|read| read.number == self.number && read.is_stale);
            // The buffer is used again all the same.
            let pieces = if is_stale { Vec::new() } else { pieces };
            self.recent.keep(&mut state, Kept { buffer, pieces, failed, ahead: false });
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

/// The sectors of a piece.
fn place_of((first, bytes): &(Sector, Bytes)) -> Range<u64> {
    first.0..first.0 + (bytes.len() / SECTOR_BYTES) as u64
}

/// What is left of a piece before and behind some sectors.
fn without(piece: &(Sector, Bytes), sectors: &Range<u64>) -> impl Iterator<Item = (Sector, Bytes)> + use<> {
    let (place, bytes) = (place_of(piece), piece.1.clone());
    let (before, behind) = (sectors.start.clamp(place.start, place.end), sectors.end.clamp(place.start, place.end));
    [place.start..before, behind..place.end].into_iter().filter(|left| !left.is_empty()).map(move |left| {
        let at = |sector: u64| (sector - place.start) as usize * SECTOR_BYTES;
        (Sector(left.start), bytes.slice(at(left.start)..at(left.end)))
    })
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use claystone_env::{SECTOR_BYTES, Sector};

    use super::{Found, Recent};

    fn sectors(count: usize, content: u8) -> Bytes {
        Bytes::from(vec![content; count * SECTOR_BYTES])
    }

    #[test]
    fn a_read_beside_which_something_is_written_is_not_kept() {
        for (written, is_kept) in [(12..13, false), (0..20, false), (14..20, true), (5..10, true)] {
            let recent = Recent::default();
            let (entry, _) = recent.begin(vec![10..12, 12..14]);
            recent.forget(written.clone());
            let read = sectors(4, 1);
            entry.arrive(read.clone(), vec![(Sector(10), read)], &[Ok(Vec::new())]);
            assert_eq!(recent.kept(10..14).len(), if is_kept { 4 } else { 0 }, "{written:?}");
        }
    }

    #[test]
    fn what_was_written_since_counts() {
        let recent = Recent::default();
        let (entry, _) = recent.begin(vec![10..12, 12..14]);
        let read = sectors(4, 1);
        entry.arrive(read.clone(), vec![(Sector(10), read)], &[Ok(Vec::new())]);
        recent.forget(12..13);
        let read = |sector| (Sector(sector), sectors(1, 1));
        assert_eq!(recent.kept(0..20), [read(10), read(11), read(13)]);
        recent.keep_written(Sector(12), sectors(1, 2));
        assert_eq!(recent.kept(11..13), [(Sector(12), sectors(1, 2)), read(11)]);
        let found = recent.gather(&[Sector(12), Sector(13), Sector(14)]).0;
        assert_eq!(found, [None, Some(Found::Read(sectors(1, 1))), None], "a mending reads what was written");
        recent.forget(11..14);
        assert_eq!(recent.kept(0..20), [read(10)]);
    }
}
