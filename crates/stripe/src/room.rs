//! How much buckets with a policy may take before they come to their bound: what upkeep found when it looked at them, and what was taken since.
//!
//! What chunks take beyond what their bytes of objects would under the compact code is their *excess*. Room is what is left of the excess that
//! the bound allows.
//!
//! ```text
//!   begin_look ---- upkeep goes through the bucket ---- found            the next look
//!        |.................. excess that is taken, or was not named before, counts from the look's beginning on
//!                                                         |............. objects' bytes from its end on, when they are named,
//!                                                                        but for as many as were being written then
//! ```
//!
//! So room is never thought to be larger than it is, but for what is deleted after a look. Writers leave a quarter of it to splits, and to
//! what takes more than the compact code and has no choice: what is too short.
//!
//! Invariants:
//! 1. What was not looked at since the start, or under another policy, has no room. One that is known to be empty has.
//! 2. Nothing is handed out twice: who takes room has it until a look that began when what he wrote was named, or until nothing came of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use claystone_code::CodeSpec;
use claystone_meta::{BucketId, HeatPolicy};

/// The room of all buckets. Cheap to clone; calls may come from many tasks.
#[derive(Debug, Clone)]
pub struct Rooms {
    bound_from_bytes: u64,
    rooms: Arc<Mutex<BTreeMap<BucketId, Room>>>,
}

/// Excess that was taken and named before a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct TakenBefore(i64);

/// Room for something that is being written. Dropped, it goes back: nothing came of it.
#[derive(Debug)]
#[must_use = "dropped, it goes back"]
pub struct Taken {
    rooms: Rooms,
    bucket: BucketId,
    excess_bytes: i64,
    data_bytes: u64,
}

#[derive(Debug, Default)]
struct Room {
    /// Taken since the start.
    excess_bytes: i64,
    /// Of this, for what is not named yet.
    unnamed_bytes: i64,
    /// Bytes of objects named since the start.
    data_bytes: u64,
    /// Bytes of objects that are being written, or are named and it was not said yet.
    unnamed_data_bytes: u64,
    found: Option<Found>,
}

#[derive(Debug)]
struct Found {
    bound: Bound,
    data_bytes: u64,
    excess_bytes: i64,
    /// Of [`Room::excess_bytes`], what was named before the look.
    excess_before: i64,
    /// Of [`Room::data_bytes`], now or later, what may have been named before its end.
    data_before: u64,
}

/// What of a policy room follows from.
type Bound = (CodeSpec, u32);

impl Rooms {
    /// Nothing is known of any bucket. One that has fewer bytes of objects than this has room as if it had as many.
    pub fn new(bound_from_bytes: u64) -> Rooms {
        Rooms { bound_from_bytes, rooms: Arc::default() }
    }

    /// The least bytes of objects that a bucket's room is that of.
    pub fn bound_from_bytes(&self) -> u64 {
        self.bound_from_bytes
    }

    /// A look at a bucket begins.
    pub fn begin_look(&self, bucket: BucketId) -> TakenBefore {
        TakenBefore(self.lock().get(&bucket).map_or(0, |room| room.excess_bytes - room.unnamed_bytes))
    }

    /// Of a bucket with this policy, looks that began then or later found that its objects have so many bytes, and their chunks.
    pub fn found(
        &self,
        bucket: BucketId,
        policy: &HeatPolicy,
        data_bytes: u64,
        chunks_bytes: u64,
        TakenBefore(excess_before): TakenBefore,
    ) {
        let mut rooms = self.lock();
        let room = rooms.entry(bucket).or_default();
        room.found = Some(Found {
            bound: bound(policy),
            data_bytes,
            excess_bytes: policy.excess_bytes(data_bytes, chunks_bytes),
            excess_before,
            data_before: room.data_bytes + room.unnamed_data_bytes,
        });
    }

    /// A bucket with this policy is new: all that was ever taken in it came since.
    pub fn found_new(&self, bucket: BucketId, policy: &HeatPolicy) {
        self.found(bucket, policy, 0, 0, TakenBefore::default());
    }

    /// Buckets of which something is known.
    pub fn buckets(&self) -> BTreeSet<BucketId> {
        self.lock().keys().copied().collect()
    }

    /// Whether it is known what a bucket with this policy takes.
    pub fn is_known(&self, bucket: BucketId, policy: &HeatPolicy) -> bool {
        self.lock().get(&bucket).is_some_and(|room| room.found_under(policy).is_some())
    }

    /// A bucket is gone, or has no policy. Room that somebody has is remembered until he is asked again.
    pub fn forget(&self, bucket: BucketId) {
        let mut rooms = self.lock();
        rooms.get_mut(&bucket).into_iter().for_each(|room| room.found = None);
        rooms.retain(|known, room| *known != bucket || room.has_unnamed());
    }

    /// Bytes that chunks of what is written next may take beyond what they would under the compact code; `None`: it is not known.
    pub fn left_bytes(&self, bucket: BucketId, policy: &HeatPolicy) -> Option<u64> {
        let left = self.lock().get(&bucket)?.left(policy, 0, self.bound_from_bytes)?;
        Some(left.max(0).unsigned_abs())
    }

    /// So many bytes of objects are about to be written, whose chunks take one of these numbers of bytes. Takes room for the first for
    /// which writers have some, and says which it is; `None`: there is none for any.
    pub fn take(
        &self,
        bucket: BucketId,
        policy: &HeatPolicy,
        data_bytes: u64,
        chunks_bytes: impl IntoIterator<Item = u64>,
    ) -> Option<(usize, Taken)> {
        let mut rooms = self.lock();
        let room = rooms.entry(bucket).or_default();
        let left = room.left(policy, data_bytes, self.bound_from_bytes)?;
        let excess = chunks_bytes.into_iter().map(|chunks_bytes| policy.excess_bytes(data_bytes, chunks_bytes).max(0));
        let (at, excess_bytes) = excess.enumerate().find(|(_, excess)| *excess <= left.max(0))?;
        Some((at, room.hand_out(self.clone(), bucket, excess_bytes, data_bytes)))
    }

    /// A stripe is about to be split and to take so many bytes more: `None` if there is no room for that. There always is in a bucket that is not
    /// known: nobody writes more to it than the compact code takes, and who plans splits looks at the bound.
    pub fn take_for_split(&self, bucket: BucketId, policy: &HeatPolicy, chunks_bytes: u64) -> Option<Taken> {
        let mut rooms = self.lock();
        let room = rooms.entry(bucket).or_default();
        let takes = policy.excess_bytes(0, chunks_bytes);
        let fits = room.used(policy, 0, self.bound_from_bytes).is_none_or(|(most, used)| takes <= most - used);
        fits.then(|| room.hand_out(self.clone(), bucket, takes, 0))
    }

    /// So many bytes of objects are about to be written in chunks of so many bytes, whether there is room or not.
    pub fn take_anyway(&self, bucket: BucketId, policy: &HeatPolicy, data_bytes: u64, chunks_bytes: u64) -> Taken {
        let mut rooms = self.lock();
        let room = rooms.entry(bucket).or_default();
        // What takes less than the compact code gives no room that could be taken before it is named.
        let excess_bytes = policy.excess_bytes(data_bytes, chunks_bytes).max(0);
        room.hand_out(self.clone(), bucket, excess_bytes, data_bytes)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<BucketId, Room>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, taken: &mut Taken, end: impl FnOnce(&mut Room)) {
        if let Some(room) = self.lock().get_mut(&taken.bucket) {
            room.unnamed_bytes -= taken.excess_bytes;
            room.unnamed_data_bytes -= taken.data_bytes;
            end(room);
        }
        // Nothing is left to be given back.
        (taken.excess_bytes, taken.data_bytes) = (0, 0);
    }
}

impl Room {
    fn found_under(&self, policy: &HeatPolicy) -> Option<&Found> {
        self.found.as_ref().filter(|found| found.bound == bound(policy))
    }

    /// The excess that the bound allows with so many bytes of objects more, and what of it is used; `None`: it is not known.
    fn used(&self, policy: &HeatPolicy, more_bytes: u64, bound_from_bytes: u64) -> Option<(i64, i64)> {
        let found = self.found_under(policy)?;
        // What is being written when a look ends may be in it: as many bytes as that count for nothing when they are named.
        let named_bytes = self.data_bytes.saturating_sub(found.data_before);
        let data_bytes = found.data_bytes + named_bytes + more_bytes;
        let used = found.excess_bytes + (self.excess_bytes - found.excess_before);
        Some((policy.excess_bytes_max(data_bytes, bound_from_bytes), used))
    }

    /// What of it writers may take.
    fn left(&self, policy: &HeatPolicy, more_bytes: u64, bound_from_bytes: u64) -> Option<i64> {
        let (most, used) = self.used(policy, more_bytes, bound_from_bytes)?;
        Some(most - most / SPARE_SHARE - used)
    }

    fn has_unnamed(&self) -> bool {
        self.unnamed_bytes != 0 || self.unnamed_data_bytes != 0
    }

    fn hand_out(&mut self, rooms: Rooms, bucket: BucketId, excess_bytes: i64, data_bytes: u64) -> Taken {
        self.excess_bytes += excess_bytes;
        self.unnamed_bytes += excess_bytes;
        self.unnamed_data_bytes += data_bytes;
        Taken { rooms, bucket, excess_bytes, data_bytes }
    }
}

impl Taken {
    /// What it was taken for is named, by objects or parts.
    pub fn name(mut self) {
        let data_bytes = self.data_bytes;
        self.rooms.clone().end(&mut self, |room| room.data_bytes += data_bytes);
    }

    /// Nobody knows whether it is named.
    pub fn leave(mut self) {
        self.rooms.clone().end(&mut self, |_| {});
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let excess_bytes = self.excess_bytes;
        if excess_bytes != 0 || self.data_bytes != 0 {
            self.rooms.clone().end(self, |room| room.excess_bytes -= excess_bytes);
        }
    }
}

fn bound(policy: &HeatPolicy) -> Bound {
    (policy.compact, policy.percent_max)
}

/// One part in so many of the room is not for writers.
const SPARE_SHARE: i64 = 4;

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    const BUCKET: BucketId = BucketId(7);
    const GIB: u64 = 1 << 30;

    /// 150 % fast, 125 % compact, 135 % at most.
    fn policy() -> HeatPolicy {
        "rsm:4+2/rsm:8+2<=135%,0.25..1.00".parse().expect("valid")
    }

    fn takes_fast(rooms: &Rooms, data_bytes: u64) -> bool {
        let taken = rooms.take(BUCKET, &policy(), data_bytes, [data_bytes * 3 / 2]);
        taken.map(|(_, taken)| taken.name()).is_some()
    }

    #[test]
    fn an_unknown_bucket_has_no_room_and_an_empty_one_has_that_of_a_gibibyte() {
        let rooms = Rooms::new(GIB);
        assert!(!takes_fast(&rooms, 4096) && !rooms.is_known(BUCKET, &policy()));
        assert_eq!(rooms.left_bytes(BUCKET, &policy()), None);
        assert!(rooms.take_for_split(BUCKET, &policy(), GIB).is_some());
        rooms.found_new(BUCKET, &policy());
        // A tenth of a gibibyte beyond 125 %, less a fourth of that.
        let left = |of| Some(GIB / 40 * 3 - of).map(|left| left / 4096);
        let told = || rooms.left_bytes(BUCKET, &policy()).map(|left| left / 4096);
        assert_eq!(told(), left(0));
        assert!(takes_fast(&rooms, GIB / 4) && !takes_fast(&rooms, GIB / 8));
        assert_eq!(told(), left(GIB / 16));
        assert!(rooms.take_for_split(BUCKET, &policy(), GIB / 40 + GIB / 100).is_some(), "which is for splits");
        assert!(rooms.take_for_split(BUCKET, &policy(), GIB / 25).is_none());
        let other = HeatPolicy { percent_max: 140, ..policy() };
        assert!(rooms.take(BUCKET, &other, 4096, [6144]).is_none(), "it was not looked at under this one");
        let same = HeatPolicy { fresh: Some("replica:3".parse().expect("valid")), ..policy() };
        rooms.found(BUCKET, &same, 0, 0, rooms.begin_look(BUCKET));
        let (at, _taken) = rooms.take(BUCKET, &same, GIB / 8, [GIB / 8 * 3, GIB / 16 * 3]).expect("room for one");
        assert_eq!(at, 1, "copies are too many");
    }

    #[test]
    fn what_is_written_compact_makes_room_when_it_is_named() {
        let rooms = Rooms::new(GIB);
        rooms.found_new(BUCKET, &policy());
        assert!(!takes_fast(&rooms, GIB));
        let compact = rooms.take_anyway(BUCKET, &policy(), 4 * GIB, 5 * GIB);
        assert!(!takes_fast(&rooms, GIB));
        compact.name();
        assert!(takes_fast(&rooms, GIB), "a fifth of five");
        // What is smaller than it would be compact gives nothing to others.
        rooms.take_anyway(BUCKET, &policy(), GIB, 0).name();
        assert!(!takes_fast(&rooms, 3 * GIB));
        // What nobody knows of takes room and makes none.
        let before = rooms.begin_look(BUCKET);
        rooms.take_anyway(BUCKET, &policy(), GIB, 2 * GIB).leave();
        assert!(before < rooms.begin_look(BUCKET) && !takes_fast(&rooms, 4096));
    }

    #[test]
    fn room_of_which_nothing_came_goes_back() {
        let rooms = Rooms::new(GIB);
        rooms.found_new(BUCKET, &policy());
        let taken = rooms.take(BUCKET, &policy(), GIB / 4, [GIB / 8 * 3]);
        assert!(taken.is_some() && !takes_fast(&rooms, GIB / 4));
        drop(taken);
        assert!(takes_fast(&rooms, GIB / 4));
    }

    #[test]
    fn what_is_taken_during_a_look_counts_after_it_and_its_bytes_do_not() {
        let rooms = Rooms::new(GIB);
        rooms.found_new(BUCKET, &policy());
        let begin = rooms.begin_look(BUCKET);
        let (_, taken) = rooms.take(BUCKET, &policy(), GIB / 4, [GIB / 8 * 3]).expect("room");
        // It was not seen, nor by the next look: it was not named.
        rooms.found(BUCKET, &policy(), 0, 0, begin);
        assert!(!takes_fast(&rooms, GIB / 8));
        rooms.found(BUCKET, &policy(), 0, 0, rooms.begin_look(BUCKET));
        assert!(!takes_fast(&rooms, GIB / 8));
        taken.name();
        assert!(!takes_fast(&rooms, GIB / 8));
        // It was seen.
        let begin = rooms.begin_look(BUCKET);
        rooms.found(BUCKET, &policy(), GIB / 4, GIB / 8 * 3, begin);
        assert!(!takes_fast(&rooms, GIB / 8) && takes_fast(&rooms, GIB / 25));
        // It was merged.
        let begin = rooms.begin_look(BUCKET);
        rooms.found(BUCKET, &policy(), GIB / 4, GIB / 16 * 5, begin);
        assert!(takes_fast(&rooms, GIB / 4));
        assert_eq!(rooms.buckets(), [BUCKET].into());
        let (_, late) = rooms.take(BUCKET, &policy(), GIB / 50, [GIB / 50 * 3 / 2]).expect("room");
        rooms.forget(BUCKET);
        assert!(!takes_fast(&rooms, 4096));
        rooms.found(BUCKET, &policy(), 0, 0, rooms.begin_look(BUCKET));
        drop(late);
        assert!(!takes_fast(&rooms, GIB / 3) && takes_fast(&rooms, GIB / 4), "it gives back what it had, no more");
        rooms.forget(BUCKET);
        assert!(rooms.buckets().is_empty() && !takes_fast(&rooms, 4096));
    }

    #[test]
    fn a_bucket_over_its_bound_has_no_room() {
        let rooms = Rooms::new(GIB);
        rooms.found(BUCKET, &policy(), 10 * GIB, 14 * GIB, TakenBefore::default());
        assert!(!takes_fast(&rooms, 4096) && rooms.take_for_split(BUCKET, &policy(), 1).is_none());
        assert_eq!(rooms.take(BUCKET, &policy(), 4096, [6144, 5120]).map(|(at, _)| at), Some(1), "as compact ones do");
    }

    #[test]
    fn what_is_named_before_a_look_ends_and_told_after_it_counts_once() {
        let rooms = Rooms::new(0);
        rooms.found_new(BUCKET, &policy());
        let [first, second] = [GIB, GIB].map(|bytes| rooms.take_anyway(BUCKET, &policy(), bytes, bytes / 4 * 5));
        rooms.found(BUCKET, &policy(), GIB, GIB / 4 * 5, rooms.begin_look(BUCKET));
        first.name();
        // A tenth of a gibibyte, less a fourth of that.
        assert!(!takes_fast(&rooms, GIB / 2) && takes_fast(&rooms, GIB / 4));
        let third = rooms.take_anyway(BUCKET, &policy(), GIB, GIB / 4 * 5);
        third.name();
        second.name();
        assert!(!takes_fast(&rooms, GIB) && takes_fast(&rooms, GIB / 2), "the look cannot have seen all three");
    }

    proptest! {
        /// Whatever is written, named, given up, split and merged while upkeep looks, some of which it sees: the bucket does not take more than its
        /// bound.
        #[test]
        fn what_is_written_keeps_the_bound(steps in prop::collection::vec((0u8..9, 1u64..40, any::<bool>()), 1..300)) {
            let (rooms, policy) = (Rooms::new(0), policy());
            rooms.found_new(BUCKET, &policy);
            let (mut data, mut chunks, mut fast) = (0u64, 0u64, 0u64);
            // What is written and not named, or not told of: its bytes, those of its chunks, and whether it is named.
            let mut unnamed: VecDeque<(Taken, u64, u64, bool)> = VecDeque::new();
            // When it began, and what it saw before.
            let mut look: Option<(TakenBefore, u64, u64)> = None;
            for (what, count, is_so) in steps {
                let bytes = count * 8;
                match (what, look) {
                    (0, None) => look = Some((rooms.begin_look(BUCKET), data, chunks)),
                    (0, Some((begin, data_then, chunks_then))) => {
                        let (data, chunks) = if is_so { (data, chunks) } else { (data_then, chunks_then) };
                        rooms.found(BUCKET, &policy, data, chunks, begin);
                        look = None;
                    }
                    (1, None) => (chunks, fast) = (chunks - fast / 4, 0),
                    (2, None) => {
                        if let Some(taken) = rooms.take_for_split(BUCKET, &policy, bytes / 4) {
                            (chunks, fast) = (chunks + bytes / 4, fast + bytes);
                            taken.name();
                        }
                    }
                    (3..6, _) => {
                        let at = count as usize % unnamed.len().max(1);
                        match unnamed.remove(at) {
                            None => {}
                            // Of two that are named, nobody hears of one.
                            Some((taken, .., true)) => if is_so { taken.name() } else { taken.leave() },
                            Some((taken, bytes, takes, false)) if is_so => {
                                fast += if takes == bytes * 3 / 2 { bytes } else { 0 };
                                (data, chunks) = (data + bytes, chunks + takes);
                                unnamed.push_back((taken, bytes, takes, true));
                            }
                            Some(_) => {}
                        }
                    }
                    _ => {
                        let options = [bytes * 5 / 2, bytes * 3 / 2];
                        let (takes, taken) = match rooms.take(BUCKET, &policy, bytes, options) {
                            Some((at, taken)) => (options[at], taken),
                            None => (bytes * 5 / 4, rooms.take_anyway(BUCKET, &policy, bytes, bytes * 5 / 4)),
                        };
                        unnamed.push_back((taken, bytes, takes, false));
                    }
                }
                prop_assert!(chunks * 100 <= data * 135, "{chunks} of {data}");
            }
        }
    }
}
