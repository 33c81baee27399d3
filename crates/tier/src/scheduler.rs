//! Where a write goes: to the solid-state drive, or to a hard disk whose buffer takes it sooner.
//!
//! Source: [bcw §Mixed IO scheduler], [bcw §Strategies in MIOS].
//!
//! Invariants:
//! 1. Nothing is sent to a hard disk that is predicted to be slow.
//! 2. Of several hard disks that would do, the least waited for; of those, the one whose stage ends first: so it comes to its
//!    slow stage while the others have much left, and the slow stages stay apart. Nothing more is done for that (decision 56).

use std::time::Duration;

use crate::latency::WriteState;
use crate::profile::Profile;
use crate::ssd_queue::SsdView;

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
    /// When it is long for short writes before; `None`: never.
    pub early: Option<Early>,
    /// A hard disk takes no more writes than this at a time: behind them a write would wait longer than it gains.
    pub waiting_max: usize,
    /// Longer writes go to the solid-state drive, which is better at them; `None`: the drive's profile alone says what is too long.
    pub longest: Option<u64>,
}

/// When a queue that is not slower than a hard disk yet is left to those that are in it: each request that is there when the drive stalls
/// waits for the stall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Early {
    /// A queue with more requests than this is long,
    pub queue_max: usize,
    /// if they and the write have more bytes than this together: below, the drive is as quick with all of them as a hard disk with one.
    pub queue_bytes_max: u64,
    /// Longer writes wait: a hard disk takes much longer for them.
    pub bytes_max: u64,
}

impl Early {
    /// By the bench, workload B: the longest queue of 99 writes in a hundred is 2 requests instead of 7. Up to 64 KiB the slowest write in a
    /// hundred of A takes a fifth longer than without hard disks; with any number of bytes waiting that of C does twice as long.
    pub const SHORT: Early = Early { queue_max: 1, queue_bytes_max: 16 << 10, bytes_max: 32 << 10 };
}

impl Rule {
    /// By this mode: `queue_max` is from [`queue_threshold`].
    pub fn of(mode: Mode, queue_max: usize) -> Rule {
        let (early, longest) = match mode {
            // Of longer ones a stall brings so many that they take the buffer from all others.
            Mode::Disabled => (Some(Early::SHORT), Some(128 << 10)),
            Mode::EnabledFast | Mode::Enabled => (None, None),
        };
        Rule { mode, queue_max, early, waiting_max: WAITING_MAX, longest }
    }

    /// The same for a hard disk with this profile: what a small buffer takes is kept for stalls.
    pub fn for_drive(self, profile: &Profile) -> Rule {
        Rule { early: self.early.filter(|_| profile.mid.limit() >= STALL_BYTES), ..self }
    }

    /// Whether a write of so many bytes would wait in the solid-state drive for longer than it should.
    pub fn is_long(&self, ssd: &SsdView, bytes: u64) -> bool {
        let is_early = self.early.is_some_and(|early| {
            ssd.queue > early.queue_max
                && ssd.queue_bytes.saturating_add(bytes) > early.queue_bytes_max
                && bytes <= early.bytes_max
        });
        ssd.is_late || ssd.queue > self.queue_max || is_early
    }

    /// Whether no write would.
    pub fn is_calm(&self, ssd: &SsdView) -> bool {
        !ssd.is_late && ssd.queue <= self.early.map_or(self.queue_max, |early| early.queue_max.min(self.queue_max))
    }
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

/// Decides of a write of `bytes` bytes.
pub fn steer(rule: &Rule, ssd: &SsdView, bytes: u64, disks: &[DiskView]) -> Target {
    if rule.longest.is_some_and(|longest| bytes > longest) {
        return Target::Ssd;
    }
    let is_long = rule.is_long(ssd, bytes);
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

/// The longest queue at which the solid-state drive is not slower than a hard disk's buffer. `by_queue` tells how long a write
/// takes there that finds 0, 1, 2 ... others before it.
// Source: [bcw §Mixed IO scheduler]
pub fn queue_threshold(by_queue: &[Duration], hdd: Duration) -> usize {
    by_queue.iter().take_while(|ssd| **ssd <= hdd).count().saturating_sub(1)
}

/// As many as a drive's queue has places for.
const WAITING_MAX: usize = 32;
/// What the heaviest workload of the bench brings within a stall of the solid-state drive at its peak.
pub const STALL_BYTES: u64 = 6 << 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule(mode: Mode) -> Rule {
        Rule { mode, queue_max: 2, early: None, waiting_max: 3, longest: None }
    }

    fn ssd(queue: usize) -> SsdView {
        SsdView { queue, queue_bytes: 4096 * queue as u64, is_late: false }
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
            let target = steer(&rule(mode), &ssd(queue), 4096, &[disk(state, 1 << 20, 0)]);
            assert_eq!(target == Target::Hdd(0), goes, "{mode:?} {queue} {state:?}");
        }
        let capped = Rule { longest: Some(65536), ..rule(Mode::Enabled) };
        assert_eq!(steer(&capped, &ssd(9), 65537, &[disk(Fast, 1 << 20, 0)]), Target::Ssd);
        assert_eq!(steer(&rule(Mode::Enabled), &ssd(9), 4096, &[]), Target::Ssd);
    }

    #[test]
    fn a_drive_that_is_late_has_a_long_queue_for_all_but_the_longest() {
        let rule = Rule { longest: Some(65536), ..rule(Mode::Disabled) };
        let late = SsdView { is_late: true, ..ssd(1) };
        for (ssd, bytes, state, goes) in [
            (ssd(1), 4096, WriteState::Fast, false),
            (late, 4096, WriteState::Fast, true),
            (late, 65536, WriteState::Mid, true),
            (late, 65537, WriteState::Mid, false),
            (late, 4096, WriteState::Slow, false),
        ] {
            let target = steer(&rule, &ssd, bytes, &[disk(state, 1 << 20, 0)]);
            assert_eq!(target == Target::Hdd(0), goes, "{ssd:?} {bytes} {state:?}");
        }
        assert!(rule.is_calm(&ssd(2)) && !rule.is_calm(&ssd(3)) && !rule.is_calm(&late));
    }

    #[test]
    fn a_short_write_leaves_a_queue_early_if_it_has_some_bytes() {
        let early = Early { queue_max: 1, queue_bytes_max: 16384, bytes_max: 32768 };
        let rule = Rule { queue_max: 6, early: Some(early), ..rule(Mode::Disabled) };
        for (queue, queue_bytes, bytes, goes) in [
            (1, 1 << 20, 4096, false),
            (2, 12288, 4096, false),
            (2, 12288, 8192, true),
            (2, 16384, 32768, true),
            (2, 1 << 20, 36864, false),
            (6, 6, 4096, false),
            (7, 7, 4096, true),
            (7, 1 << 20, 36864, true),
        ] {
            let ssd = SsdView { queue, queue_bytes, is_late: false };
            let target = steer(&rule, &ssd, bytes, &[disk(WriteState::Mid, 1 << 20, 0)]);
            assert_eq!(target == Target::Hdd(0), goes, "{ssd:?} {bytes}");
        }
        assert!(rule.is_calm(&ssd(1)) && !rule.is_calm(&ssd(2)));
    }

    #[test]
    fn a_small_buffer_is_kept_for_stalls() {
        let small = |mean: u64| {
            let mut profile = crate::profile::tests::profile();
            profile.mid = crate::StageBytes { mean, deviation: 0, least: mean, seen: 20 };
            Rule::of(Mode::Disabled, 6).for_drive(&profile)
        };
        assert_eq!([small(STALL_BYTES).early, small(STALL_BYTES - 1).early], [Some(Early::SHORT), None]);
    }

    #[test]
    fn the_least_waited_for_and_then_the_one_that_ends_first() {
        use WriteState::{Fast, Mid, Slow};
        let rule = rule(Mode::EnabledFast);
        let disks = [disk(Mid, 300, 1), disk(Slow, 0, 0), disk(Mid, 200, 1), disk(Mid, 100, 2)];
        assert_eq!(steer(&rule, &ssd(9), 4096, &disks), Target::Hdd(2));
        // At a short queue only the fast one, however long it is waited for, but for the bound.
        assert_eq!(steer(&rule, &ssd(0), 4096, &[disk(Mid, 9, 0), disk(Fast, 9, 2)]), Target::Hdd(1));
        assert_eq!(steer(&rule, &ssd(0), 4096, &[disk(Mid, 9, 0), disk(Fast, 9, 3)]), Target::Ssd);
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
            match steer(&rule, &ssd(queue), 4096, &disks) {
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
