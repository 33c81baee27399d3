//! Where waiting sectors of a file go: a pure planner.
//!
//! What fills whole groups goes into new ones, also over sectors that have a place: the old place becomes free, and nothing
//! is written twice. What is less goes home, by way of the journal, where it has a home; else into a group of its own, which takes in
//! small neighbours, so that a file that grows or fills up in little steps ends in few groups.

use std::ops::Range;

use crate::run::{Run, Window};

/// What to do with some of the waiting sectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Write them into one new bulk run.
    Bulk {
        /// Sectors of the file: whole groups.
        sectors: Range<u64>,
    },
    /// Write one new group.
    Single {
        /// Sectors of the file; what does not wait is read from the windows there are.
        sectors: Range<u64>,
        /// Sectors to keep room for.
        capacity: u32,
    },
    /// Write a group where room for it is promised.
    Promised {
        /// Sectors of the file that the room is promised to.
        sectors: Range<u64>,
        /// How many of them wait.
        waiting: u64,
    },
    /// Apply them where they are, or into the room behind what is there: journal first, then in place.
    Home {
        /// The first sector of the window.
        window: u64,
        /// Sectors of the file, ascending.
        sectors: Vec<u64>,
    },
}

/// How much of what waits is placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All.
    All,
    /// Bulk runs of full length, where there are any, and else all: what a file still grows by stays together.
    FullRuns,
    /// The same of a share: about as much as is applied together, further on in the file each time.
    Share,
    /// What waits in the journal.
    Journaled,
}

impl Scope {
    /// Whether what fills no full run may wait on.
    pub fn leaves_rest(self) -> bool {
        matches!(self, Scope::FullRuns | Scope::Share)
    }
}

/// What a plan keeps to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Data sectors of a group, k.
    pub data: u32,
    /// The longest bulk run.
    pub sectors_max: u64,
    /// What has a place stays there: its group may be half written, and is encoded again.
    pub in_place: bool,
    /// How much is placed.
    pub scope: Scope,
}

/// Plans for `waiting` sectors of a file, ascending, over the `windows` that hold, precede and follow them: those with data, and
/// those for which room is kept. What fills bulk runs may be written elsewhere, so that its room becomes free; what is less goes
/// where it has room.
pub(crate) fn plan(waiting: &[u64], windows: &[Window], limits: Limits) -> Vec<Step> {
    let (promised, windows): (Vec<&Window>, Vec<&Window>) = windows.iter().partition(|window| window.is_promised());
    let windows: Vec<Window> = windows.into_iter().cloned().collect();
    if promised.is_empty() {
        return plan_placing(waiting, &windows, limits);
    }
    let mut steps = Vec::new();
    let mut left: Vec<u64> = waiting.to_vec();
    if !limits.in_place {
        steps = plan_placing(waiting, &windows, limits);
        steps.retain(|step| matches!(step, Step::Bulk { .. }));
        let covered =
            |sector: &u64| steps.iter().any(|step| matches!(step, Step::Bulk { sectors } if sectors.contains(sector)));
        left.retain(|sector| !covered(sector));
        if limits.scope.leaves_rest() && !steps.is_empty() {
            return steps;
        }
    }
    for window in promised {
        let before = left.len();
        left.retain(|sector| !(window.first..window.end()).contains(sector));
        if left.len() < before {
            steps.push(Step::Promised { sectors: window.first..window.end(), waiting: (before - left.len()) as u64 });
        }
    }
    steps.extend(plan_placing(&left, &windows, limits));
    steps
}

/// Sectors that do not wait and are to be filled with zeros, so that what waits behind them in promised room can be written
/// there: a group is in use up to its last sector.
pub(crate) fn gaps_in_promised_room(waiting: &[u64], windows: &[Window]) -> Vec<u64> {
    let mut gaps = Vec::new();
    for &sector in waiting {
        let behind = windows.partition_point(|window| window.first <= sector);
        let Some(before) = behind.checked_sub(1).map(|index| &windows[index]) else { continue };
        if (before.end()..before.end() + before.promised_room()).contains(&sector) {
            let known = gaps.last().map_or(0, |last| last + 1);
            gaps.extend(before.end().max(known)..sector);
        }
    }
    gaps.retain(|gap| waiting.binary_search(gap).is_err());
    gaps
}

/// Plans over windows with data only.
fn plan_placing(waiting: &[u64], windows: &[Window], limits: Limits) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let Limits { data, sectors_max, in_place, scope } = limits;
    let k = u64::from(data);
    let full = (sectors_max / k).max(BULK_GROUPS_MIN) * k;
    for cluster in clusters(waiting) {
        let mut at = cluster.start;
        while at < cluster.end {
            let (holding, before, after) = around(windows, at);
            let next = after.map_or(u64::MAX, |after| after.first);
            let rest = if in_place { cluster.end.min(next) - at } else { cluster.end - at };
            if let Some(window) = holding.filter(|_| in_place) {
                let end = cluster.end.min(window.end());
                home(&mut steps, window.first, at..end);
                at = end;
            } else if let Some(window) = before.filter(|window| window.end() == at)
                && let room @ 1.. = window.room()
                && holding.is_none()
            {
                let end = cluster.end.min(at + room).min(next);
                home(&mut steps, window.first, at..end);
                at = end;
            } else if rest >= BULK_GROUPS_MIN * k {
                let sectors = (rest / k * k).min(full);
                steps.push(Step::Bulk { sectors: at..at + sectors });
                at += sectors;
            } else if rest >= k {
                steps.push(Step::Single { sectors: at..at + k, capacity: data });
                at += k;
            } else if let Some(window) = holding {
                let end = cluster.end.min(window.end());
                home(&mut steps, window.first, at..end);
                at = end;
            } else {
                let end = cluster.end.min(next);
                let (before, after) = if in_place { (None, None) } else { (before, after) };
                steps.push(alone(at..end, before, after, data));
                at = end;
            }
        }
    }
    let is_full = |step: &Step| matches!(step, Step::Bulk { sectors } if sectors.end - sectors.start == full);
    if scope.leaves_rest() && steps.iter().any(is_full) {
        steps.retain(is_full);
    }
    steps
}

/// From this many groups on, sums go into sectors of their own and not into the catalog.
const BULK_GROUPS_MIN: u64 = 4;

/// A group for less than k sectors without a home: with its small neighbours, if they fit into it too.
fn alone(sectors: Range<u64>, before: Option<&Window>, after: Option<&Window>, data: u32) -> Step {
    let k = u64::from(data);
    let (mut all, mut joined) = (sectors.clone(), false);
    if let Some(before) = before.filter(|window| is_single(window) && window.end() == sectors.start)
        && all.end - before.first <= k
    {
        (all.start, joined) = (before.first, true);
    }
    if let Some(after) = after.filter(|window| is_single(window) && window.first == sectors.end)
        && after.end() - all.start <= k
    {
        (all.end, joined) = (after.end(), true);
    }
    let len = (all.end - all.start) as u32;
    Step::Single { sectors: all, capacity: if joined { (2 * len).min(data) } else { len } }
}

/// Whether it may move: what has promised room keeps it.
fn is_single(window: &Window) -> bool {
    matches!(window.run, Run::Single { promised: false, .. })
}

fn home(steps: &mut Vec<Step>, window: u64, sectors: Range<u64>) {
    match steps.last_mut() {
        Some(Step::Home { window: last, sectors: all }) if *last == window => all.extend(sectors),
        _ => steps.push(Step::Home { window, sectors: sectors.collect() }),
    }
}

/// The window that holds a sector, the last one before it, the first one behind it.
fn around(windows: &[Window], sector: u64) -> (Option<&Window>, Option<&Window>, Option<&Window>) {
    let behind = windows.partition_point(|window| window.first <= sector);
    let at_or_before = behind.checked_sub(1).map(|index| &windows[index]);
    let holding = at_or_before.filter(|window| sector < window.end());
    (holding, at_or_before.filter(|_| holding.is_none()), windows.get(behind))
}

/// The maximal rows of consecutive numbers.
pub(crate) fn clusters(sectors: &[u64]) -> Vec<Range<u64>> {
    let mut clusters: Vec<Range<u64>> = Vec::new();
    for &sector in sectors {
        match clusters.last_mut() {
            Some(last) if last.end == sector => last.end += 1,
            _ => clusters.push(sector..sector + 1),
        }
    }
    clusters
}

#[cfg(test)]
mod tests {
    use claystone_env::Sector;
    use claystone_group::{BulkRun, GroupPlace};

    use super::{Limits, Scope, Step};
    use crate::run::{Run, Window};

    fn single(first: u64, sectors: u32, capacity: u32) -> Window {
        let place = GroupPlace { first: Sector(1000), data: sectors, capacity };
        let run = Run::Single { place, sums: vec![0; sectors as usize], promised: false };
        Window { first, sectors, skipped: 0, run }
    }

    fn promised(first: u64, sectors: u32) -> Window {
        Window { first, sectors, skipped: 0, run: Run::Promised { first: Sector(9000) } }
    }

    fn roomy(first: u64, sectors: u32, capacity: u32) -> Window {
        let place = GroupPlace { first: Sector(9000), data: sectors, capacity };
        let run = Run::Single { place, sums: vec![0; sectors as usize], promised: true };
        Window { first, sectors, skipped: 0, run }
    }

    fn bulk(first: u64, sectors: u32) -> Window {
        Window { first, sectors, skipped: 0, run: Run::Bulk { run: BulkRun { first: Sector(5000), data: sectors } } }
    }

    fn plan(waiting: impl IntoIterator<Item = u64>, windows: &[Window]) -> Vec<Step> {
        plan_in(Scope::All, waiting, windows)
    }

    fn plan_in(scope: Scope, waiting: impl IntoIterator<Item = u64>, windows: &[Window]) -> Vec<Step> {
        let limits = Limits { data: 10, sectors_max: 100, in_place: false, scope };
        super::plan(&waiting.into_iter().collect::<Vec<_>>(), windows, limits)
    }

    fn plan_in_place(waiting: impl IntoIterator<Item = u64>, windows: &[Window]) -> Vec<Step> {
        let limits = Limits { data: 10, sectors_max: 100, in_place: true, scope: Scope::All };
        super::plan(&waiting.into_iter().collect::<Vec<_>>(), windows, limits)
    }

    #[test]
    fn a_little_goes_where_room_is_promised_and_what_fills_runs_need_not() {
        let windows = [promised(0, 10), promised(10, 10), promised(20, 10), promised(30, 10), promised(40, 10)];
        let promised = |first: u64, waiting| Step::Promised { sectors: first..first + 10, waiting };
        assert_eq!(plan([3, 4, 17], &windows), [promised(0, 2), promised(10, 1)]);
        assert_eq!(plan(5..48, &windows), [Step::Bulk { sectors: 5..45 }, promised(40, 3)]);
        assert_eq!(plan_in_place(5..25, &windows), [promised(0, 5), promised(10, 10), promised(20, 5)]);
        assert_eq!(plan([9, 60], &windows), [promised(0, 1), Step::Single { sectors: 60..61, capacity: 1 }]);
    }

    #[test]
    fn what_waits_in_promised_room_behind_a_gap_takes_the_gap_along() {
        let windows = [roomy(0, 2, 10), promised(10, 10)];
        assert_eq!(super::gaps_in_promised_room(&[1, 4, 7, 12], &windows), [2, 3, 5, 6]);
        assert_eq!(plan(2..8, &windows), [Step::Home { window: 0, sectors: (2..8).collect() }]);
        assert_eq!(super::gaps_in_promised_room(&[4], &[single(0, 2, 10)]), [0; 0]);
        // What has promised room does not move.
        assert_eq!(plan([4], &[roomy(5, 2, 10)]), [Step::Single { sectors: 4..5, capacity: 1 }]);
    }

    #[test]
    fn what_fills_groups_is_written_anew_wherever_it_was() {
        assert_eq!(
            plan(0..45, &[bulk(0, 60)]),
            [Step::Bulk { sectors: 0..40 }, Step::Home { window: 0, sectors: (40..45).collect() }]
        );
        assert_eq!(
            plan(0..120, &[]),
            [
                Step::Bulk { sectors: 0..100 },
                Step::Single { sectors: 100..110, capacity: 10 },
                Step::Single { sectors: 110..120, capacity: 10 }
            ]
        );
    }

    #[test]
    fn a_little_goes_home_or_into_a_group_of_its_size() {
        assert_eq!(
            plan([3, 4, 70], &[bulk(0, 60)]),
            [Step::Home { window: 0, sectors: vec![3, 4] }, Step::Single { sectors: 70..71, capacity: 1 }]
        );
    }

    #[test]
    fn a_growing_tail_is_moved_once_and_then_fills_its_room() {
        assert_eq!(plan([3], &[single(0, 3, 3)]), [Step::Single { sectors: 0..4, capacity: 8 }]);
        assert_eq!(plan(4..7, &[single(0, 4, 10)]), [Step::Home { window: 0, sectors: vec![4, 5, 6] }]);
        assert_eq!(
            plan(8..14, &[single(0, 8, 10)]),
            [Step::Home { window: 0, sectors: vec![8, 9] }, Step::Single { sectors: 10..14, capacity: 4 }]
        );
    }

    #[test]
    fn a_file_under_way_is_placed_in_full_runs_only() {
        assert_eq!(
            plan_in(Scope::FullRuns, 0..245, &[]),
            [Step::Bulk { sectors: 0..100 }, Step::Bulk { sectors: 100..200 }]
        );
        assert_eq!(plan_in(Scope::Share, 0..45, &[]), plan(0..45, &[]));
    }

    #[test]
    fn small_neighbours_become_one_group() {
        assert_eq!(plan([2], &[single(0, 2, 2), single(3, 4, 4)]), [Step::Single { sectors: 0..7, capacity: 10 }]);
        assert_eq!(plan([2], &[single(0, 2, 2), single(3, 9, 9)]), [Step::Single { sectors: 0..3, capacity: 6 }]);
    }
}
