//! What a round of merging takes on.

use std::collections::BTreeMap;
use std::iter::once_with;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::{Inner, PutOff};
use crate::diffs::Diffs;

/// Stripes, and which of their diffs.
pub(super) struct Choice {
    pub(super) positions: Vec<u64>,
    /// The newest segment whose diffs it takes, of stripes that there are and nobody shares.
    pub(super) up_to: u64,
}

impl Inner {
    /// What to merge. Where room in the log is wanted, what keeps its oldest segment, and of it what is hardly written again
    /// ([`up_to`]). Else the coldest stripes, whole.
    pub(super) fn choose(&self, pages_max: u64) -> Choice {
        let round = self.rounds.fetch_add(1, Ordering::Relaxed);
        let mut put_off = self.put_off.lock().unwrap_or_else(PoisonError::into_inner);
        let diffs = self.diffs();
        put_off.retain(|position, put_off| put_off.until > round || diffs.has(*position));
        let of = |first: &[u64], up_to: u64| {
            let others = |position: &u64| first.binary_search(position).is_err();
            let first = in_turn(&put_off, round, || first.iter().copied());
            let coldest = in_turn(&put_off, round, || diffs.coldest().filter(others));
            Choice { positions: enough(&diffs, first.chain(coldest), up_to, pages_max), up_to }
        };
        let wants_room = self.log_is_long() || self.used_percent_with(&diffs) >= self.settings.merge_from_percent;
        if let Some(oldest) = diffs.oldest_live().filter(|_| wants_room) {
            let needed = |(segment, bytes)| Needed { segment, bytes, things: diffs.live_in(segment) };
            let segments: Vec<Needed> = self.log.view().lengths_from(oldest).into_iter().map(needed).collect();
            let chosen = of(&diffs.pinning(oldest), up_to(&segments, pages_max).unwrap_or(oldest));
            if !chosen.positions.is_empty() {
                return chosen;
            }
        }
        of(&[], u64::MAX)
    }

    /// The coldest stripes, whole, of those that nobody else has and that are not put off.
    pub(super) fn choose_others(&self, pages_max: u64) -> Vec<u64> {
        let coldest: Vec<u64> = self.diffs().coldest().collect();
        let put_off = self.put_off.lock().unwrap_or_else(PoisonError::into_inner);
        let round = self.rounds.load(Ordering::Relaxed);
        let others = in_turn(&put_off, round, || coldest.iter().copied());
        let others: Vec<u64> = others.filter(|position| !self.is_held(*position)).take(STRIPES_MAX).collect();
        enough(&self.diffs(), others.into_iter(), u64::MAX, pages_max)
    }
}

/// Those of these stripes that may be tried in a round: who was put off until then comes behind those that nobody tried yet, the one that has
/// waited longest first, so that each has its turn.
fn in_turn<'a, I: Iterator<Item = u64> + 'a>(
    put_off: &'a BTreeMap<u64, PutOff>,
    round: u64,
    positions: impl Fn() -> I + 'a,
) -> impl Iterator<Item = u64> + 'a {
    let untried = positions().filter(|position| !put_off.contains_key(position));
    let due = move || {
        let since = |position: u64| Some((put_off.get(&position)?.until, position));
        let mut due: Vec<(u64, u64)> = positions().filter_map(since).filter(|(until, _)| *until <= round).collect();
        due.sort_by_key(|(until, _)| *until);
        due.into_iter().map(|(_, position)| position)
    };
    untried.chain(once_with(due).flatten())
}

/// A segment of the log, and how much in it is needed: diffs, and intents.
#[derive(Debug, Clone, Copy)]
struct Needed {
    segment: u64,
    bytes: u64,
    things: u64,
}

/// Up to which of these segments, the oldest first, a round of `pages_max` pages takes diffs: at most to the middle one, since
/// of what was written lately much is written again. What the older ones have less of was written again while it waited; so
/// one that has much more is left alone, unless those before it do not fill the round, which costs as much however little it
/// merges.
fn up_to(segments: &[Needed], pages_max: u64) -> Option<u64> {
    let (oldest, half) = (segments.first()?, segments.len().div_ceil(2));
    let mut filled = 0;
    let taken = segments[..half].iter().take_while(|next| {
        let is_wanted = filled < pages_max || share(next) <= share(oldest) * HARDLY_MORE;
        filled += next.things;
        is_wanted
    });
    taken.last().map(|last| last.segment)
}

/// What is needed of a segment, for each of its bytes.
fn share(needed: &Needed) -> f64 {
    needed.things as f64 / needed.bytes.max(1) as f64
}

/// Of these stripes so many that they have about `pages_max` diffs in segments up to this one.
fn enough(diffs: &Diffs, positions: impl Iterator<Item = u64>, up_to: u64, pages_max: u64) -> Vec<u64> {
    let mut pages = 0;
    let mut chosen = Vec::new();
    for position in positions {
        if pages >= pages_max || chosen.len() == STRIPES_MAX {
            break;
        }
        let to_merge = diffs.stripe_up_to(position, up_to).len() as u64;
        pages += to_merge;
        chosen.extend((to_merge > 0).then_some(position));
    }
    chosen
}

/// Stripes merged in one round.
const STRIPES_MAX: usize = 256;
/// So many times what the oldest segment has is hardly more.
const HARDLY_MORE: f64 = 1.5;

#[cfg(test)]
mod tests {
    use super::super::Lacks;
    use super::*;

    /// Segments from number 10 on that have so many things in 64 KiB.
    fn up_to_of(things: &[u64], pages_max: u64) -> Option<u64> {
        let needed = |(segment, things): (u64, &u64)| Needed { segment, bytes: 65536, things: *things };
        up_to(&(10..).zip(things).map(needed).collect::<Vec<_>>(), pages_max)
    }

    #[test]
    fn who_was_put_off_first_is_tried_again_first_behind_those_nobody_tried() {
        let put_off = [(1, 20), (2, 19), (4, 19), (5, 21), (6, 18)];
        let put_off = put_off.map(|(position, until)| (position, PutOff { until, lacks: Lacks::Disks }));
        let put_off = BTreeMap::from(put_off);
        let turns = |round| in_turn(&put_off, round, || 1..9).collect::<Vec<u64>>();
        assert_eq!(turns(17), [3, 7, 8]);
        assert_eq!(turns(20), [3, 7, 8, 6, 2, 4, 1]);
    }

    #[test]
    fn what_nobody_writes_again_is_merged_up_to_the_middle() {
        let counts = [1, 2, 3, 4, 5].map(|count| up_to_of(&vec![1000; count], 512));
        assert_eq!(counts, [10, 10, 11, 11, 12].map(Some));
        assert_eq!(up_to_of(&[], 512), None);
    }

    #[test]
    fn what_is_written_again_waits_unless_the_round_is_not_full() {
        // As they age less and less of them is left.
        let hot = [700, 1000, 1600, 2600, 4300, 6500, 11_000];
        assert_eq!(up_to_of(&hot, 512), Some(11));
        assert_eq!(up_to_of(&hot, 1024), Some(11));
        assert_eq!(up_to_of(&hot, 2048), Some(12));
        assert_eq!(up_to_of(&hot, u64::MAX), Some(13), "half of all");
        // One that is nearly merged goes with the next.
        assert_eq!(up_to_of(&[50, 620, 940, 1500, 1850, 3700, 6000], 512), Some(11));
    }

    #[test]
    fn a_short_segment_counts_by_its_length() {
        let needed = |segment, bytes, things| Needed { segment, bytes, things };
        let segments = [needed(1, 4096, 100), needed(2, 65536, 1000), needed(3, 4096, 1000), needed(4, 4096, 1000)];
        assert_eq!(up_to(&segments, 64), Some(2));
        assert_eq!(up_to(&segments[..3], 64), Some(2));
        let unlike = [needed(1, 65536, 100), needed(2, 4096, 100), needed(3, 1, 1)];
        assert_eq!(up_to(&unlike, 64), Some(1));
    }
}
