//! Swaths: 16 data sectors of a bulk run in a row, whose CRCs are in one sums sector. Memory knows one sum of each, in a sixteenth of the
//! room of a sums sector, so of sixteen times as much data; who reads some sectors by themselves reads the rest of their swath too, and
//! needs nothing else of the device to know that they are right. On a hard disk that is 0.5 ms instead of a second place, 5 ms.
//!
//! ```text
//! unknown --put, load--> known        a sums sector is read or written
//! known --forget--> unknown           something else is written there, or others take the room
//! ```
//!
//! Invariants:
//! 1. The sum of a swath is the CRC-32C of its sectors one behind the other, made from those of its sectors, which stand for themselves if
//!    one only is wrong: two that are pass for right once in 2^32.
//! 2. It shows that all of a swath is right, or nothing: then its sums sector tells which sectors are wrong, as if no sum of it were known.
//! 3. A swath with a sector in a group that no window shows is not read.
//! 4. Who reads on behind another read takes the sums sector: a stream reads nothing twice, and passes the next one.

use std::ops::Range;
use std::sync::LazyLock;

use bytes::Bytes;
use claystone_env::{SECTOR_BYTES, Sector, SectorRange};
use crc_fast::{CrcAlgorithm, checksum_combine};

use crate::bulk::room;
use crate::gathering::effort;
use crate::groups::Failure;
use crate::{BulkRun, GroupError, Groups, SUMS_PER_SECTOR, ShownRun, SumsSector, sector_sum};

/// Data sectors of a swath; the last one of a sums sector has fewer.
const SWATH_SECTORS: usize = 16;
/// Swaths of a sums sector.
pub(crate) const SWATHS: usize = SUMS_PER_SECTOR.div_ceil(SWATH_SECTORS);

/// The sums of the swaths of a sums sector.
#[derive(Clone)]
pub(crate) struct SwathSums(Box<[u32; SWATHS]>);

impl SwathSums {
    /// Those of the CRCs in a sums sector.
    pub fn of(sums: &SumsSector) -> SwathSums {
        let mut of_swaths = Box::new([0; SWATHS]);
        for (number, sum) in of_swaths.iter_mut().enumerate() {
            let first = number * SWATH_SECTORS;
            *sum = swath_sum((first..SUMS_PER_SECTOR.min(first + SWATH_SECTORS)).map(|at| sums.at(at)));
        }
        SwathSums(of_swaths)
    }

    /// Their bytes, 4 each.
    pub fn encode(&self, into: &mut [u8]) {
        for (field, sum) in into.chunks_exact_mut(4).zip(self.0.iter()) {
            field.copy_from_slice(&sum.to_le_bytes());
        }
    }

    /// Undoes [`SwathSums::encode`].
    pub fn parse(bytes: &[u8]) -> SwathSums {
        let mut of_swaths = Box::new([0; SWATHS]);
        for (sum, field) in of_swaths.iter_mut().zip(bytes.chunks_exact(4)) {
            *sum = u32::from_le_bytes(field.try_into().expect("four bytes"));
        }
        SwathSums(of_swaths)
    }

    /// Those of some swaths.
    pub fn copy(&self, swaths: Range<usize>) -> Vec<u32> {
        self.0[swaths].to_vec()
    }
}

/// The sum of a swath, from the CRCs of its sectors; those that it lacks count as 0.
fn swath_sum(sums: impl Iterator<Item = u32>) -> u32 {
    sums.chain(std::iter::repeat(0)).take(SWATH_SECTORS).fold(0, |so_far, sum| moved_on(so_far) ^ sum)
}

/// What a CRC adds to that of the bytes before and of a sector behind them.
fn moved_on(sum: u32) -> u32 {
    static MOVED: LazyLock<[[u32; 256]; 4]> = LazyLock::new(|| {
        let moved = |sum: u32| checksum_combine(CrcAlgorithm::Crc32Iscsi, sum.into(), 0, SECTOR_BYTES as u64) as u32;
        [0, 8, 16, 24].map(|shift| std::array::from_fn(|byte| moved((byte as u32) << shift)))
    });
    let bytes = sum.to_le_bytes().map(usize::from);
    MOVED.iter().zip(bytes).fold(0, |so_far, (moved, byte)| so_far ^ moved[byte])
}

/// Whole swaths of a run.
struct Swaths {
    /// Their data sectors.
    data: Range<u64>,
    /// The sum of each.
    sums: Vec<u32>,
}

impl Groups {
    /// Reads data sectors with the rest of their swaths, where memory knows the sums of these and not their CRCs. `None` where that is
    /// not so, or not all of the swaths is read at once and right.
    ///
    /// # Errors
    /// [`GroupError::Device`].
    pub(crate) fn read_by_swaths(&self, shown: ShownRun<'_>, wanted: &Range<u64>) -> Result<Option<Bytes>, GroupError> {
        let Some(swaths) = self.swaths_of(shown, wanted) else { return Ok(None) };
        let place = |sector: u64| shown.run.place_of(sector, self.shape()).0;
        let (first, end) = (place(swaths.data.start), place(swaths.data.end - 1) + 1);
        if !self.lost().among(first..end).is_empty() {
            return Ok(None);
        }
        let (entry, _) = self.recent().begin(std::iter::once(first..end).collect());
        let mut buffer = self.recent().buffer((end - first) as usize * SECTOR_BYTES);
        let effort = effort(self.shape().parity);
        let mut unread = self.read_each(&mut [(Sector(first), &mut buffer)], effort);
        let buffer = buffer.freeze();
        entry.arrive(buffer.clone(), vec![(Sector(first), buffer.clone())], &unread);
        let failed = self.checked(Sector(first), &buffer, effort, unread.pop().expect("one for each read")?, |_| None);
        let bytes_at = |sector: u64| (place(sector) - first) as usize * SECTOR_BYTES;
        let sum = |sector: u64| sector_sum(&buffer[bytes_at(sector)..][..SECTOR_BYTES]);
        let firsts = swaths.data.clone().step_by(SWATH_SECTORS);
        let is_right = |(first, expected): (u64, &u32)| {
            let end = swaths.data.end.min(first + SWATH_SECTORS as u64);
            swath_sum((first..end).map(sum)) == *expected
        };
        let are_right = failed.is_empty() && firsts.zip(&swaths.sums).all(is_right);
        Ok(are_right.then(|| buffer.slice(bytes_at(wanted.start)..bytes_at(wanted.end - 1) + SECTOR_BYTES)))
    }

    /// The swaths of data sectors of one group that are read by themselves, if memory knows their sums and nothing of their sums sector, and that
    /// is not on its way.
    fn swaths_of(&self, shown: ShownRun<'_>, wanted: &Range<u64>) -> Option<Swaths> {
        let (run, shape, k) = (shown.run, self.shape(), u64::from(self.shape().data));
        let (number, first) = BulkRun::sums_of(wanted.start);
        let (last_number, last) = BulkRun::sums_of(wanted.end - 1);
        let place = run.sums(number, shape);
        if number != last_number || wanted.start / k != (wanted.end - 1) / k || !self.sums_cache().knows_swaths(place) {
            return None;
        }
        let is_on_its_way = self.recent().is_under_way(place);
        if self.sums_cache().holds(place) || is_on_its_way || self.goes_on(run, wanted.start) {
            return None;
        }
        let swaths = first / SWATH_SECTORS..last / SWATH_SECTORS + 1;
        let sums = self.sums_cache().copy_swaths(place, swaths.clone())?;
        let summed = run.summed(number);
        let sector = |swath: usize| summed.end.min(summed.start + (swath * SWATH_SECTORS) as u64);
        let data = sector(swaths.start)..sector(swaths.end);
        let groups = (data.start / k) as u32..data.end.div_ceil(k) as u32;
        groups.into_iter().all(|group| shown.shows(group, shape)).then_some(Swaths { data, sums })
    }

    /// Reads the sums sectors of a run that memory does not know the sums of swaths of, as far as there is room for them: not those of
    /// which no window shows a group. Returns of how many memory still does not know them: what no retry reads is left to whoever needs it.
    ///
    /// # Errors
    /// [`GroupError::Device`].
    pub fn load_swaths<'r>(&self, run: impl Into<ShownRun<'r>>) -> Result<usize, GroupError> {
        let (shown, shape) = (run.into(), self.shape());
        let run = shown.run;
        let is_shown = |number: &u32| run.summed_groups(*number, shape).any(|group| shown.shows(group, shape));
        let places = (0..run.sums_sectors()).filter(is_shown).map(|number| run.sums(number, shape));
        let unknown: Vec<Sector> = places.filter(|place| !self.sums_cache().knows_swaths(*place)).collect();
        let places = &unknown[..unknown.len().min(self.sums_cache().swaths_room())];
        if places.is_empty() {
            return Ok(unknown.len());
        }
        let mut bytes = room(places.len());
        let mut reads: Vec<(Sector, &mut [u8])> =
            places.iter().copied().zip(bytes.chunks_exact_mut(SECTOR_BYTES)).collect();
        let effort = effort(shape.parity);
        let unread = self.read_each(&mut reads, effort);
        for ((place, bytes), unread) in places.iter().zip(bytes.chunks_exact_mut(SECTOR_BYTES)).zip(unread) {
            let is_read = match self.checked(*place, bytes, effort, unread?, |_| None)[..] {
                [] => true,
                [(_, Failure::Soft)] => self.read_retrying(*place, bytes)?,
                _ => false,
            };
            if let Some(sums) = SumsSector::parse(bytes, self.disk(), *place).ok().filter(|_| is_read) {
                self.sums_cache().load_swaths(*place, SwathSums::of(&sums));
            }
        }
        Ok(unknown.iter().filter(|place| !self.sums_cache().knows_swaths(**place)).count())
    }

    /// Whether the sums of some swaths that memory knew went for those of others.
    pub fn some_swaths_went(&self) -> bool {
        self.sums_cache().some_swaths_went()
    }

    /// Forgets the sums of the swaths of sums sectors in a range, which nobody shows any more.
    pub fn forget_swaths(&self, sectors: SectorRange) {
        self.sums_cache().forget_swaths(sectors.first.0..sectors.end().0);
    }

    /// Whether memory has room for the sums of further swaths.
    pub fn has_room_for_swaths(&self) -> bool {
        self.sums_cache().swaths_room() > 0
    }
}

#[cfg(test)]
mod tests {
    use claystone_env::testing::sector_pattern;
    use proptest::prelude::*;

    use super::{SWATH_SECTORS, SWATHS, SwathSums, swath_sum};
    use crate::{SUMS_PER_SECTOR, SumsSector, sector_sum};

    #[test]
    fn a_swath_has_the_crc_of_its_bytes() {
        let bytes = sector_pattern(5, SUMS_PER_SECTOR);
        let sums = SumsSector::of(&bytes.chunks_exact(4096).collect::<Vec<_>>());
        let known = SwathSums::of(&sums).copy(0..SWATHS);
        for (swath, bytes) in known.iter().zip(bytes.chunks_exact(SWATH_SECTORS * 4096)) {
            assert_eq!(*swath, sector_sum(bytes), "CRC-32C, whatever the length");
        }
        let last = bytes.chunks_exact(SWATH_SECTORS * 4096).remainder();
        assert_eq!(known[SWATHS - 1], swath_sum(last.chunks_exact(4096).map(sector_sum)));
    }

    proptest! {
        #[test]
        fn sectors_that_exchange_places_show(sums in prop::array::uniform16(any::<u32>()), a in 0usize..16, b in 0usize..16) {
            let mut exchanged = sums;
            exchanged.swap(a, b);
            prop_assert_eq!(
                swath_sum(exchanged.into_iter()) == swath_sum(sums.into_iter()),
                sums[a] == sums[b]
            );
        }
    }
}
