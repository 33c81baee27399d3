//! How much buckets with a policy may take beyond their compact code before they come to their bound: what upkeep found when it looked at
//! them, and what was written since.
//!
//! ```text
//!   begin_look ---- upkeep goes through the bucket ---- found            the next look
//!        |.................. excess that is taken here counts from the look's beginning on: it may have been seen or not
//!                                                         |............. objects' bytes from its end on
//! ```
//!
//! What is too short for the compact code takes more than it would, whether there is room or not: for that the others leave some.
//!
//! So room is never thought to be larger than it is, but for what is deleted after a look. Only writers and splits take from it.
//!
//! Invariants:
//! 1. What was not looked at since the start, or under another policy, has no room. One that is known to be empty has.
//! 2. Nothing is handed out twice: who takes room has it until the next look that began after.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use claystone_meta::{BucketId, HeatPolicy};

/// The room of all buckets. Cheap to clone; calls may come from many tasks.
#[derive(Debug, Clone)]
pub struct Rooms {
    bound_from_bytes: u64,
    rooms: Arc<Mutex<BTreeMap<BucketId, Room>>>,
}

/// What was taken of a bucket's room before a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct TakenBefore(i64);

#[derive(Debug, Default)]
struct Room {
    /// Taken since the start.
    excess_bytes: i64,
    /// Bytes of objects written since the start.
    data_bytes: u64,
    found: Option<Found>,
}

#[derive(Debug)]
struct Found {
    /// Without what is new, which changes nothing of the bound.
    policy: HeatPolicy,
    data_bytes: u64,
    excess_bytes: i64,
    /// Of [`Room::excess_bytes`], what was taken before the look.
    excess_before: i64,
    /// Of [`Room::data_bytes`], what was written before its end.
    data_before: u64,
}

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
        TakenBefore(self.lock().get(&bucket).map_or(0, |room| room.excess_bytes))
    }

    /// Of a bucket with this policy, looks that began then or later found that its objects have so many bytes, and their chunks.
    pub fn found(
        &self,
        bucket: BucketId,
        policy: HeatPolicy,
        data_bytes: u64,
        chunks_bytes: u64,
        TakenBefore(excess_before): TakenBefore,
    ) {
        let mut rooms = self.lock();
        let room = rooms.entry(bucket).or_default();
        room.found = Some(Found {
            policy: of_bound(policy),
            data_bytes,
            excess_bytes: policy.excess_bytes(data_bytes, chunks_bytes),
            excess_before,
            data_before: room.data_bytes,
        });
    }

    /// A bucket with this policy has nothing in it.
    pub fn found_empty(&self, bucket: BucketId, policy: HeatPolicy) {
        let begin = self.begin_look(bucket);
        self.found(bucket, policy, 0, 0, begin);
    }

    /// Buckets of which something is known.
    pub fn buckets(&self) -> BTreeSet<BucketId> {
        self.lock().keys().copied().collect()
    }

    /// Whether it is known what a bucket with this policy takes.
    pub fn is_known(&self, bucket: BucketId, policy: &HeatPolicy) -> bool {
        self.lock().get(&bucket).is_some_and(|room| room.found_under(policy).is_some())
    }

    /// A bucket is gone, or has no policy.
    pub fn forget(&self, bucket: BucketId) {
        self.lock().remove(&bucket);
    }

    /// So many bytes of objects are about to be written, whose chunks take one of these numbers of bytes. Takes room for the first for
    /// which there is some, and says which it is; `None`: there is none for any.
    pub fn take(
        &self,
        bucket: BucketId,
        policy: &HeatPolicy,
        data_bytes: u64,
        chunks_bytes: impl IntoIterator<Item = u64>,
    ) -> Option<usize> {
        let mut rooms = self.lock();
        let room = rooms.entry(bucket).or_default();
        let found = room.found_under(policy)?;
        let all_bytes = found.data_bytes + (room.data_bytes - found.data_before) + data_bytes;
        let most = policy.excess_bytes_max(all_bytes, self.bound_from_bytes);
        let left = most - most / SPARE_SHARE - found.excess_bytes - (room.excess_bytes - found.excess_before);
        let excess = chunks_bytes.into_iter().map(|chunks_bytes| policy.excess_bytes(data_bytes, chunks_bytes));
        let (at, taken) = excess.enumerate().find(|(_, excess)| *excess <= left.max(0))?;
        room.excess_bytes += taken;
        room.data_bytes += data_bytes;
        Some(at)
    }

    /// So many bytes of objects are about to be written in chunks of so many bytes, whether there is room or not.
    pub fn take_anyway(&self, bucket: BucketId, policy: &HeatPolicy, data_bytes: u64, chunks_bytes: u64) {
        let mut rooms = self.lock();
        let room = rooms.entry(bucket).or_default();
        // What takes less than the compact code gives no room that could be taken before it is written.
        room.excess_bytes += policy.excess_bytes(data_bytes, chunks_bytes).max(0);
        room.data_bytes += data_bytes;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<BucketId, Room>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Room {
    fn found_under(&self, policy: &HeatPolicy) -> Option<&Found> {
        self.found.as_ref().filter(|found| found.policy == of_bound(*policy))
    }
}

fn of_bound(policy: HeatPolicy) -> HeatPolicy {
    HeatPolicy { fresh: None, ..policy }
}

/// One part in so many of the room is left to what takes it anyway: what is too short to be compact, and the ends of all else.
const SPARE_SHARE: i64 = 16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BUCKET: BucketId = BucketId(7);
    const GIB: u64 = 1 << 30;

    /// 150 % fast, 125 % compact, 135 % at most.
    fn policy() -> HeatPolicy {
        "rsm:4+2/rsm:8+2<=135%,0.25..1.00".parse().expect("valid")
    }

    fn takes_fast(rooms: &Rooms, data_bytes: u64) -> bool {
        rooms.take(BUCKET, &policy(), data_bytes, [data_bytes * 3 / 2]).is_some()
    }

    #[test]
    fn an_unknown_bucket_has_no_room_and_an_empty_one_has_that_of_a_gibibyte() {
        let rooms = Rooms::new(GIB);
        assert!(!takes_fast(&rooms, 4096));
        rooms.found_empty(BUCKET, policy());
        // A tenth of a gibibyte beyond 125 %, less a sixteenth of that.
        assert!(takes_fast(&rooms, GIB / 4) && takes_fast(&rooms, GIB / 8) && !takes_fast(&rooms, GIB / 8));
        let other = HeatPolicy { percent_max: 140, ..policy() };
        assert_eq!(rooms.take(BUCKET, &other, 4096, [6144]), None, "it was not looked at under this one");
        let same = HeatPolicy { fresh: Some("replica:3".parse().expect("valid")), ..policy() };
        rooms.found_empty(BUCKET, same);
        assert_eq!(rooms.take(BUCKET, &same, GIB / 8, [GIB / 8 * 3, GIB / 16 * 3]), Some(1), "copies are too many");
    }

    #[test]
    fn what_is_written_compact_makes_room_as_it_comes() {
        let rooms = Rooms::new(GIB);
        rooms.found_empty(BUCKET, policy());
        assert!(!takes_fast(&rooms, GIB));
        rooms.take_anyway(BUCKET, &policy(), 4 * GIB, 5 * GIB);
        assert!(takes_fast(&rooms, GIB), "a fifth of five");
        // What is smaller than it would be compact gives nothing to others.
        rooms.take_anyway(BUCKET, &policy(), GIB, 0);
        assert!(!takes_fast(&rooms, 3 * GIB));
    }

    #[test]
    fn what_is_taken_during_a_look_counts_after_it_and_its_bytes_do_not() {
        let rooms = Rooms::new(GIB);
        rooms.found_empty(BUCKET, policy());
        let begin = rooms.begin_look(BUCKET);
        assert!(takes_fast(&rooms, GIB / 4));
        // It was not seen.
        rooms.found(BUCKET, policy(), 0, 0, begin);
        assert!(!takes_fast(&rooms, GIB / 4));
        // It was.
        let begin = rooms.begin_look(BUCKET);
        rooms.found(BUCKET, policy(), GIB / 4, GIB / 8 * 3, begin);
        assert!(!takes_fast(&rooms, GIB / 4) && takes_fast(&rooms, GIB / 8));
        // It was merged.
        let begin = rooms.begin_look(BUCKET);
        rooms.found(BUCKET, policy(), GIB / 4, GIB / 16 * 5, begin);
        assert!(takes_fast(&rooms, GIB / 4));
        assert_eq!(rooms.buckets(), [BUCKET].into());
        rooms.forget(BUCKET);
        assert!(!takes_fast(&rooms, 4096));
    }

    #[test]
    fn a_bucket_over_its_bound_has_no_room() {
        let rooms = Rooms::new(GIB);
        rooms.found(BUCKET, policy(), 10 * GIB, 14 * GIB, TakenBefore::default());
        assert!(!takes_fast(&rooms, 4096));
        assert_eq!(rooms.take(BUCKET, &policy(), 4096, [6144, 5120]), Some(1), "as compact ones do");
    }

    proptest! {
        /// Whatever is written and merged while upkeep looks, some of which it sees: the bucket does not take more than its bound.
        #[test]
        fn what_is_written_keeps_the_bound(steps in prop::collection::vec((0u8..6, 1u64..40, any::<bool>()), 1..200)) {
            let (rooms, policy) = (Rooms::new(0), policy());
            rooms.found_empty(BUCKET, policy);
            let (mut data, mut chunks, mut fast) = (0u64, 0u64, 0u64);
            // When it began, and what it saw before.
            let mut look: Option<(TakenBefore, u64, u64)> = None;
            for (what, count, sees) in steps {
                let bytes = count * 8;
                match (what, look) {
                    (0, None) => look = Some((rooms.begin_look(BUCKET), data, chunks)),
                    (0, Some((begin, data_then, chunks_then))) => {
                        let (data, chunks) = if sees { (data, chunks) } else { (data_then, chunks_then) };
                        rooms.found(BUCKET, policy, data, chunks, begin);
                        look = None;
                    }
                    (1, None) => {
                        chunks -= fast / 4;
                        fast = 0;
                    }
                    _ => {
                        let at = rooms.take(BUCKET, &policy, bytes, [bytes * 5 / 2, bytes * 3 / 2]);
                        let taken = [bytes * 5 / 2, bytes * 3 / 2].get(at.unwrap_or(2)).copied().unwrap_or(bytes * 5 / 4);
                        if at.is_none() {
                            rooms.take_anyway(BUCKET, &policy, bytes, taken);
                        }
                        fast += if at == Some(1) { bytes } else { 0 };
                        (data, chunks) = (data + bytes, chunks + taken);
                        prop_assert!(chunks * 100 <= data * 135, "{chunks} of {data}");
                    }
                }
            }
        }
    }
}
