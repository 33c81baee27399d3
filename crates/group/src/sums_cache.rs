//! Sums sectors in memory, by place, some of them known in part; and of more of them, the sums of their swaths ([`swath`](crate::swath)).
//!
//! ```text
//! absent --put--> whole          read from the device or written there
//! absent --begin--> in part      it did not read: nothing is known yet
//! in part --learn--> in part     a group was found to be a codeword, so its sums are known
//! in part --learn--> whole       that was the last group in use: the sector is to be written again
//! any --forget--> absent         something else is written there
//! ```
//!
//! Invariants:
//! 1. What is known is what the device should hold: whoever changes sums on the device puts them here.
//! 2. At most so many are kept; the one not used for longest goes first. Its swaths stay known: of these others go, one after the other by
//!    their places, for what is written or read; what is only loaded finds room or is not kept.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use claystone_env::Sector;

use crate::swath::SwathSums;
use crate::{SUMS_PER_SECTOR, SumsSector};

/// See the module.
pub(crate) struct SumsCache {
    most: usize,
    swaths_most: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<u64, Entry>,
    // Places by when they were last used.
    order: BTreeMap<u64, u64>,
    uses: u64,
    // Those of whole sums sectors, by their places, and where the next one goes for another.
    swaths: BTreeMap<u64, SwathSums>,
    next_gone: u64,
    // Whether some went for others.
    some_went: bool,
}

struct Entry {
    used: u64,
    sums: SumsSector,
    // Which are known, while not all are.
    known: Option<Box<[bool; SUMS_PER_SECTOR]>>,
    // No retry reads it.
    given_up: bool,
    // It reads as zeros, which no sums sector is.
    wiped: bool,
}

impl SumsCache {
    /// Keeps at most `most` sums sectors, at least one, and the sums of the swaths of at most `swaths_most`.
    pub fn new(most: usize, swaths_most: usize) -> SumsCache {
        SumsCache { most: most.max(1), swaths_most, state: Mutex::default() }
    }

    /// Appends the sums at `range`, `None` for those not known; returns whether there is such a sector here.
    pub fn copy(&self, place: Sector, range: Range<usize>, into: &mut Vec<Option<u32>>) -> bool {
        let mut state = self.state();
        let Some(entry) = state.used(place) else {
            return false;
        };
        let known = |at: usize| entry.known.as_ref().is_none_or(|known| known[at]);
        into.extend(range.map(|at| known(at).then(|| entry.sums.at(at))));
        true
    }

    /// A sector all of whose sums are known.
    pub fn whole(&self, place: Sector) -> Option<SumsSector> {
        let mut state = self.state();
        state.used(place).filter(|entry| entry.known.is_none()).map(|entry| entry.sums.clone())
    }

    /// The places of all sectors of which all sums are known, ascending.
    pub fn whole_places(&self) -> Vec<Sector> {
        let state = self.state();
        let whole = state.entries.iter().filter(|(_, entry)| entry.known.is_none());
        whole.map(|(place, _)| Sector(*place)).collect()
    }

    /// Puts a sector in place of what was known of it.
    pub fn put(&self, place: Sector, sums: SumsSector) {
        let mut state = self.state();
        state.put_swaths(place, || SwathSums::of(&sums), self.swaths_most);
        state.insert(place, Entry { used: 0, sums, known: None, given_up: false, wiped: false }, self.most);
    }

    /// Puts what is known of the swaths of a sector, if there is room for it. Returns whether there was.
    pub fn load_swaths(&self, place: Sector, sums: SwathSums) -> bool {
        let mut state = self.state();
        let has_room = state.swaths.len() < self.swaths_most;
        if has_room {
            state.put_swaths(place, || sums, self.swaths_most);
        }
        has_room
    }

    /// The sums of swaths of a sector, by their numbers there.
    pub fn copy_swaths(&self, place: Sector, swaths: Range<usize>) -> Option<Vec<u32>> {
        self.state().swaths.get(&place.0).map(|sums| sums.copy(swaths))
    }

    /// Whether the sums of the swaths of a sector are here.
    pub fn knows_swaths(&self, place: Sector) -> bool {
        self.state().swaths.contains_key(&place.0)
    }

    /// Of how many sectors the sums of the swaths are here.
    pub fn swaths_known(&self) -> usize {
        self.state().swaths.len()
    }

    /// The sums of the swaths of the next `most` sectors from a place on, ascending.
    pub fn swaths_from(&self, place: Sector, most: usize) -> Vec<(Sector, SwathSums)> {
        let state = self.state();
        state.swaths.range(place.0..).take(most).map(|(place, sums)| (Sector(*place), sums.clone())).collect()
    }

    /// Whether the sums of some swaths went for those of others.
    pub fn some_swaths_went(&self) -> bool {
        self.state().some_went
    }

    /// Forgets the sums of the swaths of all sectors in a range.
    pub fn forget_swaths(&self, sectors: Range<u64>) {
        self.state().forget_swaths(sectors);
    }

    /// Of how many more sectors the sums of swaths have room.
    pub fn swaths_room(&self) -> usize {
        self.swaths_most.saturating_sub(self.state().swaths.len())
    }

    /// Notes that a sector did not read, unless something is known of it.
    pub fn begin(&self, place: Sector) {
        let mut state = self.state();
        if state.used(place).is_none() {
            let known = Some(Box::new([false; SUMS_PER_SECTOR]));
            let sums = SumsSector::default();
            state.insert(place, Entry { used: 0, sums, known, given_up: false, wiped: false }, self.most);
        }
    }

    /// Notes that a sector that [`SumsCache::begin`] was called for reads as zeros.
    pub fn note_wiped(&self, place: Sector) {
        if let Some(entry) = self.state().entries.get_mut(&place.0) {
            entry.wiped = true;
        }
    }

    /// Whether a sector of which not all is known reads as zeros.
    pub fn is_wiped(&self, place: Sector) -> bool {
        self.state().entries.get(&place.0).is_some_and(|entry| entry.known.is_some() && entry.wiped)
    }

    /// Whether not all of a sector is known, and it may be read by retrying.
    pub fn may_be_retried(&self, place: Sector) -> bool {
        self.state().entries.get(&place.0).is_none_or(|entry| entry.known.is_some() && !entry.given_up)
    }

    /// Notes that no retry reads a sector of which not all is known.
    pub fn give_up(&self, place: Sector) {
        if let Some(entry) = self.state().entries.get_mut(&place.0) {
            entry.given_up = true;
        }
    }

    /// Whether a sector is here, if only in part.
    pub fn holds(&self, place: Sector) -> bool {
        self.state().used(place).is_some()
    }

    /// Whether a sector is here of which not all is known.
    pub fn is_in_part(&self, place: Sector) -> bool {
        self.state().entries.get(&place.0).is_some_and(|entry| entry.known.is_some())
    }

    /// Adds sums from `first` on to a sector known in part. Returns it if now all are known that are `wanted`.
    pub fn learn(
        &self,
        place: Sector,
        first: usize,
        sums: &[u32],
        wanted: impl Fn(usize) -> bool,
    ) -> Option<SumsSector> {
        let mut state = self.state();
        let entry = state.used(place)?;
        let known = entry.known.as_mut()?;
        for (at, sum) in (first..).zip(sums) {
            entry.sums.set(at, *sum);
            known[at] = true;
        }
        known.iter().enumerate().all(|(at, known)| *known || !wanted(at)).then(|| {
            entry.known = None;
            entry.sums.clone()
        })
    }

    /// Forgets all sectors in a range.
    pub fn forget(&self, sectors: Range<u64>) {
        let mut state = self.state();
        let gone: Vec<u64> = state.entries.range(sectors.clone()).map(|(place, _)| *place).collect();
        gone.into_iter().for_each(|place| state.remove(place));
        state.forget_swaths(sectors);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn used(&mut self, place: Sector) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(&place.0)?;
        self.uses += 1;
        self.order.remove(&entry.used);
        self.order.insert(self.uses, place.0);
        entry.used = self.uses;
        Some(entry)
    }

    fn insert(&mut self, place: Sector, entry: Entry, most: usize) {
        self.remove(place.0);
        if self.entries.len() == most {
            let oldest = self.order.first_key_value().map(|(_, place)| *place);
            self.remove(oldest.expect("every entry has its place in the order"));
        }
        self.uses += 1;
        self.order.insert(self.uses, place.0);
        self.entries.insert(place.0, Entry { used: self.uses, ..entry });
    }

    /// Puts the sums of the swaths of a sector, for which those of another one go if there are `most`.
    fn put_swaths(&mut self, place: Sector, sums: impl FnOnce() -> SwathSums, most: usize) {
        if most == 0 {
            return;
        }
        if self.swaths.len() >= most && !self.swaths.contains_key(&place.0) {
            let next = self.swaths.range(self.next_gone..).next().or(self.swaths.first_key_value());
            let gone = next.map(|(place, _)| *place).expect("there are some");
            self.swaths.remove(&gone);
            self.next_gone = gone + 1;
            self.some_went = true;
        }
        self.swaths.insert(place.0, sums());
    }

    fn forget_swaths(&mut self, sectors: Range<u64>) {
        let gone: Vec<u64> = self.swaths.range(sectors).map(|(place, _)| *place).collect();
        gone.into_iter().for_each(|place| drop(self.swaths.remove(&place)));
    }

    fn remove(&mut self, place: u64) {
        if let Some(entry) = self.entries.remove(&place) {
            self.order.remove(&entry.used);
        }
    }
}

#[cfg(test)]
mod tests {
    use claystone_env::Sector;

    use super::SumsCache;
    use crate::SumsSector;
    use crate::swath::SwathSums;

    fn sums(first: u32) -> SumsSector {
        let mut sums = SumsSector::default();
        sums.set(0, first);
        sums
    }

    fn first(cache: &SumsCache, place: u64) -> Option<Option<u32>> {
        let mut found = Vec::new();
        cache.copy(Sector(place), 0..1, &mut found).then(|| found[0])
    }

    #[test]
    fn the_longest_unused_goes_first() {
        let cache = SumsCache::new(2, 0);
        cache.put(Sector(1), sums(1));
        cache.put(Sector(2), sums(2));
        assert_eq!(first(&cache, 1), Some(Some(1)));
        cache.put(Sector(3), sums(3));
        assert_eq!((first(&cache, 1), first(&cache, 2), first(&cache, 3)), (Some(Some(1)), None, Some(Some(3))));
        cache.put(Sector(3), sums(4));
        assert_eq!((first(&cache, 1), first(&cache, 3)), (Some(Some(1)), Some(Some(4))));
        cache.forget(2..4);
        assert_eq!((first(&cache, 1), first(&cache, 3)), (Some(Some(1)), None));
    }

    #[test]
    fn sums_are_learnt_group_by_group() {
        let cache = SumsCache::new(2, 0);
        let wanted = |at| at < 3;
        assert_eq!(cache.learn(Sector(1), 0, &[7], wanted), None, "nobody asked for it");
        cache.begin(Sector(1));
        assert_eq!(first(&cache, 1), Some(None));
        assert_eq!(cache.learn(Sector(1), 0, &[7, 8], wanted), None);
        cache.begin(Sector(1));
        assert_eq!(first(&cache, 1), Some(Some(7)), "what is known stays");
        assert!(cache.whole(Sector(1)).is_none() && cache.is_in_part(Sector(1)));
        let whole = cache.learn(Sector(1), 2, &[9], wanted).expect("the last one");
        assert_eq!((whole.at(0), whole.at(1), whole.at(2), whole.at(3)), (7, 8, 9, 0));
        assert_eq!(cache.whole(Sector(1)), Some(whole));
        assert!(!cache.is_in_part(Sector(1)));
        assert_eq!(cache.learn(Sector(1), 0, &[1], wanted), None, "what is whole is not learnt");
    }

    #[test]
    fn swaths_stay_known_when_their_sector_goes() {
        let cache = SumsCache::new(1, 2);
        cache.put(Sector(1), sums(1));
        cache.put(Sector(2), sums(2));
        assert!(!cache.holds(Sector(1)) && cache.swaths_room() == 0);
        let known = |place| cache.copy_swaths(Sector(place), 0..1);
        let (first, second) = (known(1).expect("known"), known(2).expect("known"));
        assert_ne!(first, second);
        assert!(!cache.load_swaths(Sector(3), SwathSums::of(&sums(3))));
        assert_eq!((known(1), known(3)), (Some(first), None), "no room");
        cache.put(Sector(1), sums(2));
        assert_eq!(known(1), Some(second), "what is written over is known as it is now");
        cache.forget(1..2);
        assert_eq!((known(1), cache.knows_swaths(Sector(2)), cache.swaths_room()), (None, true, 1));
        let none = SumsCache::new(1, 0);
        none.put(Sector(1), sums(1));
        assert!(!none.knows_swaths(Sector(1)));
    }

    #[test]
    fn swaths_are_given_out_in_portions() {
        let cache = SumsCache::new(1, 9);
        for place in [10, 20, 30] {
            cache.put(Sector(place), sums(place as u32));
        }
        let places = |from, most| -> Vec<u64> {
            cache.swaths_from(Sector(from), most).into_iter().map(|(place, _)| place.0).collect()
        };
        assert_eq!((places(0, 2), places(21, 2), places(31, 2)), (vec![10, 20], vec![30], vec![]));
        assert_eq!(cache.swaths_known(), 3);
    }

    #[test]
    fn swaths_go_in_turn_for_what_is_written() {
        let cache = SumsCache::new(1, 3);
        for place in [10, 20, 30, 25, 5, 40] {
            cache.put(Sector(place), sums(place as u32));
        }
        let known: Vec<u64> = (0..50).filter(|place| cache.knows_swaths(Sector(*place))).collect();
        assert_eq!(known, [5, 30, 40], "10, then 20, then 25");
        assert!(cache.some_swaths_went());
        cache.forget_swaths(20..31);
        assert_eq!(cache.swaths_known(), 2);
    }

    #[test]
    fn what_nobody_wants_needs_not_be_learnt() {
        let cache = SumsCache::new(2, 0);
        cache.begin(Sector(1));
        let wanted = |at| at == 0 || at == 1000;
        assert_eq!(cache.learn(Sector(1), 0, &[7], wanted), None);
        let whole = cache.learn(Sector(1), 1000, &[9], wanted).expect("the last one");
        assert_eq!((whole.at(0), whole.at(1), whole.at(1000)), (7, 0, 9));
    }
}
