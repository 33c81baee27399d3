//! Where a write goes: to the solid-state drive, or to a hard disk whose buffer takes it sooner.
//!
//! Source: [bcw §Mixed IO scheduler], [bcw §Strategies in MIOS].
//!
//! Invariants:
//! 1. Nothing is sent to a hard disk that is predicted to be slow.
//! 2. Of several hard disks that would do, the least waited for; of those, the one whose stage ends first: so it comes to its
//!    slow stage while the others have much left, and the slow stages stay apart.

use std::time::Duration;

use crate::latency::WriteState;

/// What hard disks are used for while the solid-state drive is not in demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Nothing: the paper's MIOS_D. Least latency.
    Disabled,
    /// Writes in a fast stage only: MIOS_E as one reader of the paper has it. It saves little, because a fast stage comes once
    /// after each sync.
    EnabledFast,
    /// Every write that is not slow: MIOS_E as its figures have it. Least wear of the solid-state drive.
    Enabled,
}

/// When a write is redirected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// What becomes of writes at a short queue.
    pub mode: Mode,
    /// A queue of the solid-state drive with more requests than this is long. From [`queue_threshold`].
    pub queue_max: usize,
    /// A hard disk takes no more writes than this at a time: behind them a write would wait longer than it gains.
    pub waiting_max: usize,
    /// Longer writes go to the solid-state drive, which is better at them; `None`: the drive's profile alone says what is too long.
    pub longest: Option<u64>,
}

/// A hard disk, for one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskView {
    /// What the write would meet.
    pub predicted: WriteState,
    /// Bytes that its stage takes still.
    pub left_bytes: u64,
    /// Writes on their way to it.
    pub waiting: usize,
}

/// Where a write goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// To the solid-state drive.
    Ssd,
    /// To the hard disk of this number.
    Hdd(usize),
}

/// Decides of a write of `bytes` bytes, while so many requests are in the solid-state drive's queue.
pub fn steer(rule: &Rule, ssd_queue: usize, bytes: u64, disks: &[DiskView]) -> Target {
    if rule.longest.is_some_and(|longest| bytes > longest) {
        return Target::Ssd;
    }
    let is_long = ssd_queue > rule.queue_max;
    let takes = |disk: &DiskView| {
        let state = match disk.predicted {
            WriteState::Slow => false,
            WriteState::Fast => is_long || rule.mode != Mode::Disabled,
            WriteState::Mid => is_long || rule.mode == Mode::Enabled,
        };
        state && disk.waiting < rule.waiting_max
    };
    let best = disks.iter().enumerate().filter(|(_, disk)| takes(disk));
    match best.min_by_key(|(_, disk)| (disk.waiting, disk.left_bytes)) {
        Some((number, _)) => Target::Hdd(number),
        None => Target::Ssd,
    }
}

/// The disk that is to be taken through its slow stage now, though something fits still, so that no two come to theirs
/// together: where two of them have at most `apart_bytes` left each, the one with less. Nobody, while any is slow.
pub fn disk_to_advance(disks: &[DiskView], apart_bytes: u64) -> Option<usize> {
    if disks.iter().any(|disk| disk.predicted == WriteState::Slow) {
        return None;
    }
    let near = disks.iter().enumerate().filter(|(_, disk)| disk.left_bytes <= apart_bytes);
    if near.clone().count() < 2 {
        return None;
    }
    near.min_by_key(|(_, disk)| disk.left_bytes).map(|(number, _)| number)
}

/// The longest queue at which the solid-state drive is not slower than a hard disk's buffer. `by_queue` tells how long a write
/// takes there that finds 0, 1, 2 ... others before it.
// Source: [bcw §Mixed IO scheduler]
pub fn queue_threshold(by_queue: &[Duration], hdd: Duration) -> usize {
    by_queue.iter().take_while(|ssd| **ssd <= hdd).count().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule(mode: Mode) -> Rule {
        Rule { mode, queue_max: 2, waiting_max: 3, longest: None }
    }

    fn disk(predicted: WriteState, left_bytes: u64, waiting: usize) -> DiskView {
        DiskView { predicted, left_bytes, waiting }
    }

    #[test]
    fn a_short_queue_sends_only_fast_writes_and_only_if_enabled() {
        use WriteState::{Fast, Mid, Slow};
        for (mode, queue, state, goes) in [
            (Mode::Disabled, 2, Fast, false),
            (Mode::Disabled, 2, Mid, false),
            (Mode::Disabled, 3, Fast, true),
            (Mode::Disabled, 3, Mid, true),
            (Mode::Disabled, 99, Slow, false),
            (Mode::EnabledFast, 0, Fast, true),
            (Mode::EnabledFast, 2, Mid, false),
            (Mode::EnabledFast, 3, Mid, true),
            (Mode::EnabledFast, 99, Slow, false),
            (Mode::Enabled, 0, Fast, true),
            (Mode::Enabled, 0, Mid, true),
            (Mode::Enabled, 99, Slow, false),
        ] {
            let target = steer(&rule(mode), queue, 4096, &[disk(state, 1 << 20, 0)]);
            assert_eq!(target == Target::Hdd(0), goes, "{mode:?} {queue} {state:?}");
        }
        let capped = Rule { longest: Some(65536), ..rule(Mode::Enabled) };
        assert_eq!(steer(&capped, 9, 65537, &[disk(Fast, 1 << 20, 0)]), Target::Ssd);
        assert_eq!(steer(&rule(Mode::Enabled), 9, 4096, &[]), Target::Ssd);
    }

    #[test]
    fn the_least_waited_for_and_then_the_one_that_ends_first() {
        use WriteState::{Fast, Mid, Slow};
        let rule = rule(Mode::EnabledFast);
        let disks = [disk(Mid, 300, 1), disk(Slow, 0, 0), disk(Mid, 200, 1), disk(Mid, 100, 2)];
        assert_eq!(steer(&rule, 9, 4096, &disks), Target::Hdd(2));
        // At a short queue only the fast one, however long it is waited for, but for the bound.
        assert_eq!(steer(&rule, 0, 4096, &[disk(Mid, 9, 0), disk(Fast, 9, 2)]), Target::Hdd(1));
        assert_eq!(steer(&rule, 0, 4096, &[disk(Mid, 9, 0), disk(Fast, 9, 3)]), Target::Ssd);
    }

    #[test]
    fn one_of_two_that_would_end_together_is_advanced() {
        use WriteState::{Fast, Mid, Slow};
        assert_eq!(disk_to_advance(&[disk(Mid, 90, 0), disk(Mid, 80, 0)], 100), Some(1));
        assert_eq!(disk_to_advance(&[disk(Mid, 90, 0), disk(Fast, 101, 0)], 100), None);
        assert_eq!(disk_to_advance(&[disk(Mid, 90, 0), disk(Mid, 80, 0), disk(Slow, 0, 0)], 100), None);
        assert_eq!(disk_to_advance(&[disk(Mid, 90, 0)], 100), None);
    }

    #[test]
    fn a_threshold_is_where_the_solid_state_drive_becomes_slower() {
        let us = |us: &[u64]| us.iter().map(|us| Duration::from_micros(*us)).collect::<Vec<_>>();
        let hdd = Duration::from_micros(100);
        assert_eq!(queue_threshold(&us(&[30, 50, 100, 120, 90]), hdd), 2);
        assert_eq!(queue_threshold(&us(&[130]), hdd), 0);
        assert_eq!(queue_threshold(&us(&[30, 40]), hdd), 1, "as far as was measured");
        assert_eq!(queue_threshold(&[], hdd), 0);
    }

    proptest! {
        #[test]
        fn nothing_goes_where_it_is_slow_or_crowded(
            disks in prop::collection::vec((0..3u8, 0..1000u64, 0..6usize), 0..5),
            queue in 0..10usize,
            mode in prop::sample::select(vec![Mode::Disabled, Mode::EnabledFast, Mode::Enabled]),
        ) {
            let states = [WriteState::Fast, WriteState::Mid, WriteState::Slow];
            let disks: Vec<DiskView> =
                disks.iter().map(|(state, left, waiting)| disk(states[usize::from(*state)], *left, *waiting)).collect();
            let rule = rule(mode);
            match steer(&rule, queue, 4096, &disks) {
                Target::Hdd(number) => {
                    prop_assert!(disks[number].predicted != WriteState::Slow);
                    prop_assert!(disks[number].waiting < rule.waiting_max);
                }
                Target::Ssd if queue > rule.queue_max => {
                    let takes = |disk: &DiskView| disk.predicted != WriteState::Slow && disk.waiting < rule.waiting_max;
                    prop_assert!(!disks.iter().any(takes), "a disk would have taken it");
                }
                Target::Ssd => {}
            }
        }
    }
}
