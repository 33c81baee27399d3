//! Groups that were written to in place, and no sync has covered it.
//!
//! A power cut may tear every write that is not synced. A group whose data and parity are being changed comes back all the same, for the
//! caller has what changes; and so does one of which up to m sectors are being mended. Both in one group would be more than it can lose.
//!
//! ```text
//! synced --mend--> mended --update: a sync first--> updated --sync--> synced
//!                     |                                 +---mend: not now, it will fail again
//!                     +---mend: not now if that makes more than m sectors
//! ```
//!
//! An update is under way from when it was prepared until it is written or given up. After a crash one may have been cut off: then what fails softly is
//! retried, and only what no retry reads is written again before the group is updated anew ([`crate::gathering::Gathering::retry_soft`]).
//! Sums sectors are mended as all groups whose CRCs they have.
//!
//! Left out: a group of which something is lost when it is updated, and a power cut then. While it is not mended one cut may take more.
//!
//! Invariants:
//! 1. Of a group whose update is under way or not synced nothing is mended; and who updates it knows whether something was before.
//! 2. Of no group more than m sectors are mended between two syncs, but for what is mended first and all at once: that is written however much it
//!    is, as more than m can be had from memory.
//! 3. A group counts as written until a sync has ended that began after the writing did.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use claystone_env::Sector;

use crate::GroupPlace;

/// Groups that are remembered as mended, in about: a scrub lets them be synced then.
const MENDED_MAX: usize = 1 << 16;

/// See the module. One update of a group is under way at a time.
#[derive(Debug, Default)]
pub(crate) struct Unsynced {
    groups: Mutex<Groups>,
    /// Told when something was mended.
    mended: Condvar,
}

/// Groups by their first sectors.
#[derive(Debug, Default)]
struct Groups {
    /// How many syncs have begun.
    syncs: u64,
    /// How many had when they had been updated; `None`: that is under way.
    updated: BTreeMap<Sector, Option<u64>>,
    mended: BTreeMap<Sector, Mended>,
    /// Something could not be mended because as much as may be was before.
    is_full: bool,
}

#[derive(Debug, Default)]
struct Mended {
    /// How many do.
    under_way: usize,
    /// How many syncs had begun when the last had.
    at: u64,
    /// How many sectors were, or are being, since it was not.
    sectors: u32,
}

impl Unsynced {
    /// Whether something of a group may be mended now.
    pub fn may_mend(&self, place: GroupPlace) -> bool {
        !self.groups().updated.contains_key(&place.first)
    }

    /// Whether something of a group was mended, and is not synced.
    pub fn is_mended(&self, place: GroupPlace) -> bool {
        self.groups().mended.contains_key(&place.first)
    }

    /// Mends so many sectors that all of these groups need, by `write`, if that may be of all, and of none of them of which something was mended
    /// before more than `most` are then. Returns whether it was.
    pub fn mend(
        &self,
        places: impl Iterator<Item = GroupPlace> + Clone,
        sectors: u32,
        most: u32,
        write: impl FnOnce(),
    ) -> bool {
        {
            let mut groups = self.groups();
            if places.clone().any(|place| groups.updated.contains_key(&place.first)) {
                return false;
            }
            let mended = |place: GroupPlace| groups.mended.get(&place.first).map_or(0, |mended| mended.sectors);
            if places.clone().any(|place| mended(place) > 0 && mended(place) + sectors > most) {
                groups.is_full = true;
                return false;
            }
            for place in places.clone() {
                let mended = groups.mended.entry(place.first).or_default();
                (mended.under_way, mended.sectors) = (mended.under_way + 1, mended.sectors + sectors);
            }
        }
        write();
        let mut groups = self.groups();
        let at = groups.syncs;
        for place in places {
            let mended = groups.mended.get_mut(&place.first).expect("it is kept while it is under way");
            (mended.under_way, mended.at) = (mended.under_way - 1, at);
        }
        self.mended.notify_all();
        true
    }

    /// Whether a sync lets groups be mended that cannot be now, or shortens what is remembered.
    pub fn wants_sync(&self) -> bool {
        let groups = self.groups();
        groups.is_full || groups.mended.len() > MENDED_MAX || groups.updated.values().any(Option::is_some)
    }

    /// An update of a group is under way. Returns whether something was mended of it, and is not synced.
    pub fn begin_update(&self, place: GroupPlace) -> bool {
        let mut groups = self.groups();
        groups.updated.insert(place.first, None);
        while groups.mended.get(&place.first).is_some_and(|mended| mended.under_way > 0) {
            groups = self.mended.wait(groups).unwrap_or_else(PoisonError::into_inner);
        }
        groups.mended.contains_key(&place.first)
    }

    /// The update is written, or nothing of it is going to be.
    pub fn end_update(&self, place: GroupPlace) {
        let mut groups = self.groups();
        let syncs = groups.syncs;
        groups.updated.insert(place.first, Some(syncs));
    }

    /// A sync begins; to be named when it has ended well.
    pub fn begin_sync(&self) -> u64 {
        let mut groups = self.groups();
        groups.syncs += 1;
        groups.syncs
    }

    /// The sync has ended.
    pub fn end_sync(&self, sync: u64) {
        let mut groups = self.groups();
        groups.updated.retain(|_, at| at.is_none_or(|at| at >= sync));
        groups.mended.retain(|_, mended| mended.under_way > 0 || mended.at >= sync);
        groups.is_full = false;
    }

    fn groups(&self) -> MutexGuard<'_, Groups> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(first: u64) -> GroupPlace {
        GroupPlace { first: Sector(first), data: 10, capacity: 10 }
    }

    fn mended(unsynced: &Unsynced, first: u64) -> bool {
        unsynced.mend([group(first)].into_iter(), 1, 2, || ())
    }

    #[test]
    fn between_two_syncs_a_group_is_mended_or_updated() {
        let unsynced = Unsynced::default();
        assert!(mended(&unsynced, 0) && mended(&unsynced, 0), "up to m sectors");
        assert!(unsynced.begin_update(group(0)) && !unsynced.begin_update(group(20)));
        assert!(!mended(&unsynced, 20), "under way");
        unsynced.end_update(group(20));
        assert!(!mended(&unsynced, 20) && mended(&unsynced, 60));
        let sync = unsynced.begin_sync();
        assert!(!mended(&unsynced, 20), "it has not ended");
        unsynced.end_sync(sync);
        assert!(mended(&unsynced, 20) && !unsynced.begin_update(group(60)));
        assert!(!mended(&unsynced, 0) && !unsynced.begin_update(group(0)), "under way, and what was mended is synced");
    }

    #[test]
    fn of_no_group_more_is_mended_between_two_syncs_than_it_can_lose() {
        let unsynced = Unsynced::default();
        let mend = |first, sectors| unsynced.mend([group(first)].into_iter(), sectors, 3, || ());
        assert!(mend(0, 2) && mend(20, 3) && !unsynced.wants_sync());
        assert!(!mend(0, 2) && unsynced.wants_sync() && mend(0, 1) && !mend(0, 1));
        let both = || [group(40), group(0)].into_iter();
        assert!(
            !unsynced.mend(both(), 1, 3, || panic!("the second has lost enough")) && !unsynced.is_mended(group(40))
        );
        let sync = unsynced.begin_sync();
        unsynced.end_sync(sync);
        assert!(!unsynced.wants_sync() && mend(0, 2) && unsynced.mend(both(), 1, 3, || ()));
        // What a group needs at once is written, however much that is.
        assert!(mend(60, 5) && !mend(60, 1));
    }

    #[test]
    fn what_several_groups_need_is_mended_if_none_is_updated() {
        let unsynced = Unsynced::default();
        let all = || [group(0), group(20)].into_iter();
        assert!(unsynced.mend(all(), 1, 2, || ()) && !unsynced.wants_sync());
        assert!(unsynced.begin_update(group(20)));
        assert!(!unsynced.mend(all(), 1, 2, || panic!("not beside an update")) && mended(&unsynced, 0));
        assert!(!unsynced.wants_sync(), "it would not end the update");
        unsynced.end_update(group(20));
        assert!(unsynced.wants_sync());
    }

    #[test]
    fn a_sync_covers_what_was_written_before_it_began() {
        let unsynced = Unsynced::default();
        let first = unsynced.begin_sync();
        unsynced.begin_update(group(0));
        unsynced.mend([group(20)].into_iter(), 1, 2, || unsynced.end_sync(first));
        let within = unsynced.begin_sync();
        unsynced.end_update(group(0));
        unsynced.end_sync(within);
        assert!(!unsynced.may_mend(group(0)));
        let last = unsynced.begin_sync();
        unsynced.end_sync(last);
        assert!(unsynced.may_mend(group(0)) && !unsynced.begin_update(group(20)));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "two at once are what is tested")]
    fn an_update_waits_for_who_mends() {
        let unsynced = Unsynced::default();
        std::thread::scope(|scope| {
            let mut updating = None;
            unsynced.mend([group(0)].into_iter(), 1, 2, || {
                updating = Some(scope.spawn(|| unsynced.begin_update(group(0))));
                while unsynced.may_mend(group(0)) {
                    std::thread::yield_now();
                }
                assert!(!updating.as_ref().expect("just set").is_finished());
            });
            assert!(updating.expect("just set").join().expect("it ends"), "something was mended");
        });
    }
}
