//! What a disk has seen of its device, from the first opening on, and what follows for its parity.
//!
//! Invariants:
//! 1. Counts are kept with checkpoints. A crash takes what was counted since the last one, and nothing depends on it.
//! 2. The chance of a soft failure is judged by the last reads, one to two [`WINDOW`]s of them, so that a device that
//!    becomes worse shows, however long it was good.
//! 3. Nothing is said of parity before the bounds of that chance lie on one side of what parity is enough for.

use claystone_env::{ParityVerdict, SectorHealth, SoftChance};
use claystone_group::{GroupShape, StatisticsNow};
use claystone_model::{Estimate, loss_chance, parity_of_group};

use crate::catalog::Catalog;
use crate::commit::unless_full;
use crate::disk::{Disk, guard};
use crate::error::DiskError;
use crate::shrink::COMPACTED_PAGES_MAX;
use crate::{Change, FileError, Table, keys};

/// Counts as they were kept last, and when the windows of reads began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    kept: Counts,
    /// Of the window before, and of the one under way.
    marks: [Mark; 2],
}

/// What is counted: of groups, and of reads of what is kept several times too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    groups: StatisticsNow,
    copies_mended: u64,
    copies_lost: u64,
}

/// Counts of reads that were to be done at once, when a window began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Mark {
    reads: u64,
    failed: u64,
}

impl Seen {
    /// As the catalog has it. What it does not have was never counted.
    ///
    /// # Errors
    /// The catalog does not read.
    pub fn load(catalog: &Catalog) -> Result<Seen, DiskError> {
        Ok(catalog.get(Table::State, keys::SEEN)?.map(|value| Seen::decode(&value)).unwrap_or_default())
    }

    /// All counts, with what was counted since.
    fn plus(&self, since: Counts) -> Counts {
        let [kept, since] = [self.kept, since].map(Counts::fields);
        let mut sums = kept.into_iter().zip(since).map(|(kept, since)| kept.saturating_add(since));
        Counts::of(|| sums.next().unwrap_or(0))
    }

    /// Begins a window if the last one is full.
    fn turn(&mut self, now: Mark) {
        if now.reads.saturating_sub(self.marks[1].reads) >= WINDOW {
            self.marks = [self.marks[1], now];
        }
    }

    /// The stored bytes once the counts are these.
    fn encode(&self, counts: Counts) -> Vec<u8> {
        let marks = self.marks.iter().flat_map(|mark| [mark.reads, mark.failed]);
        counts.fields().into_iter().chain(marks).flat_map(u64::to_le_bytes).collect()
    }

    /// Undoes [`Seen::encode`] as far as there are bytes: what is missing was not counted, what comes behind is not known
    /// here.
    fn decode(value: &[u8]) -> Seen {
        let mut fields = value.chunks_exact(8).map(|field| u64::from_le_bytes(field.try_into().expect("eight bytes")));
        let mut next = || fields.next().unwrap_or(0);
        let kept = Counts::of(&mut next);
        Seen { kept, marks: [(); 2].map(|()| Mark { reads: next(), failed: next() }) }
    }

    /// The chance of a soft failure, as seen since the window before began.
    fn soft(&self, now: Mark, stated: f64) -> SoftChance {
        let begun = self.marks[0];
        let reads = now.reads.saturating_sub(begun.reads);
        let estimate = Estimate::of(now.failed.saturating_sub(begun.failed).min(reads), reads, DOUBT);
        SoftChance {
            stated,
            reads,
            seen: estimate.map(|estimate| estimate.seen),
            at_least: estimate.map(|estimate| estimate.at_least),
            at_most: estimate.map(|estimate| estimate.at_most),
        }
    }
}

impl Counts {
    /// In the order in which they are stored.
    fn fields(self) -> [u64; COUNTS] {
        let groups = self.groups;
        [
            groups.sectors_read,
            groups.sectors_fail_fast,
            groups.soft_failures,
            groups.mismatches,
            groups.mended,
            groups.mismatches_mended,
            groups.retries,
            groups.retries_avoided,
            groups.sums_learnt,
            groups.mends_not_written,
            groups.sectors_lost,
            self.copies_mended,
            self.copies_lost,
        ]
    }

    /// Undoes [`Counts::fields`].
    fn of(mut next: impl FnMut() -> u64) -> Counts {
        Counts {
            groups: StatisticsNow {
                sectors_read: next(),
                sectors_fail_fast: next(),
                soft_failures: next(),
                mismatches: next(),
                mended: next(),
                mismatches_mended: next(),
                retries: next(),
                retries_avoided: next(),
                sums_learnt: next(),
                mends_not_written: next(),
                sectors_lost: next(),
            },
            copies_mended: next(),
            copies_lost: next(),
        }
    }

    fn mark(&self) -> Mark {
        Mark { reads: self.groups.sectors_fail_fast, failed: self.groups.soft_failures }
    }
}

impl Disk {
    /// How the disk's sectors are.
    pub fn health(&self) -> SectorHealth {
        let superblock = self.superblock.current();
        let counts = self.counts();
        let groups = counts.groups;
        let mut soft = guard(&self.seen).soft(counts.mark(), superblock.p_h);
        let fails_fast = self.shape.parity > 0 && self.device.geometry().fails_fast;
        if !fails_fast {
            soft = SoftChance { stated: soft.stated, ..SoftChance::default() };
        }
        let (verdict, parity_wanted) = match fails_fast {
            true => judge(self.shape, &soft, superblock.p_s),
            false => (ParityVerdict::Unseen, None),
        };
        SectorHealth {
            sectors_read: groups.sectors_read,
            soft_failures: groups.soft_failures,
            mended: groups.mended,
            mismatches_mended: groups.mismatches_mended,
            retries: groups.retries,
            retries_avoided: groups.retries_avoided,
            sectors_lost: groups.sectors_lost + counts.copies_lost,
            copies_mended: counts.copies_mended,
            parity: self.shape.parity,
            soft,
            parity_wanted,
            verdict,
            scrub: guard(&self.pass).progress(),
            pair: self.device.pair(),
        }
    }

    /// Brings everything to its place and the catalog up to date, and with it what was counted; what finds no place, into the journal. As
    /// [`Disk::close`], for a disk that others may still use: what they write from now on waits again.
    ///
    /// # Errors
    /// As [`crate::FileTree::sync_all`].
    pub fn rest(&self) -> Result<(), FileError> {
        let mut flushing = self.lock_flusher();
        let flushed = self.flush_all(&flushing);
        let kept = self.keep_placeless(flushed, &flushing);
        let checkpointed = self.checkpoint(&flushing);
        if checkpointed == Err(FileError::NoSpace) {
            // The next opening replays what the catalog has no room for.
            self.commit_flushing(&flushing)?;
        } else {
            checkpointed?;
            unless_full(self.shrink_if_loose(COMPACTED_PAGES_MAX, &flushing))?;
            self.keep_swaths(&flushing)?;
        }
        // Another one would take away what was kept.
        flushing.checkpointed_now();
        kept
    }

    /// What a checkpoint takes along: counts, and how far the scrub is.
    pub(crate) fn kept_rows(&self) -> Vec<Change> {
        let counts = self.counts();
        let seen = {
            let mut seen = guard(&self.seen);
            seen.turn(counts.mark());
            seen.encode(counts)
        };
        let scrub = guard(&self.pass).encode();
        let row = |key: &[u8], value| Change { table: Table::State, key: key.to_vec(), value: Some(value) };
        vec![row(keys::SEEN, seen), row(keys::SCRUB, scrub)]
    }

    /// All counts.
    fn counts(&self) -> Counts {
        let (mut groups, reads) = (self.groups.statistics().now(), self.copies.reads());
        groups.sectors_read += reads.sectors;
        groups.sectors_fail_fast += reads.fail_fast;
        groups.soft_failures += reads.soft_failures;
        groups.retries += reads.retries;
        groups.retries_avoided += reads.retries_avoided;
        let since = Counts { groups, copies_mended: self.copies.mended(), copies_lost: self.copies.lost() };
        guard(&self.seen).plus(since)
    }
}

/// Whether the parity of groups of this shape suffices, and which would for certain.
// Source: [lec §3.1]
fn judge(shape: GroupShape, soft: &SoftChance, loss_target: f64) -> (ParityVerdict, Option<u32>) {
    let (Some(at_least), Some(at_most)) = (soft.at_least, soft.at_most) else { return (ParityVerdict::Open, None) };
    let sectors = shape.data + shape.parity;
    let wanted = || parity_of_group(sectors, at_most, loss_target);
    if loss_chance(sectors, shape.parity, at_most) <= loss_target {
        (ParityVerdict::Enough, wanted())
    } else if loss_chance(sectors, shape.parity, at_least) > loss_target {
        (ParityVerdict::TooLittle, wanted())
    } else {
        (ParityVerdict::Open, None)
    }
}

/// Reads of a window: 16 GiB. At the usual chance of 1e-3 four thousand of them fail, which tells it to 7 %.
const WINDOW: u64 = 1 << 22;
/// The chance of a wrong verdict. It is looked at often, so it is small.
const DOUBT: f64 = 1e-4;
const COUNTS: usize = 13;

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: GroupShape = GroupShape { data: 250, parity: 5 };

    fn verdict(failed: u64, reads: u64) -> (ParityVerdict, Option<u32>) {
        let soft = Seen::default().soft(Mark { reads, failed }, 1e-3);
        judge(SHAPE, &soft, 1e-6)
    }

    #[test]
    fn stored_counts() {
        let mut next = 0..;
        let counts = Counts::of(|| next.next().expect("without end"));
        let marks = [Mark { reads: 13, failed: 14 }, Mark { reads: 15, failed: 16 }];
        let seen = Seen { kept: counts, marks };
        let bytes = seen.encode(counts);
        assert_eq!(bytes, (0..17u64).flat_map(u64::to_le_bytes).collect::<Vec<u8>>());
        assert_eq!(Seen::decode(&bytes), seen);
        // Of another version, or damaged: no reason to refuse a disk.
        assert_eq!(Seen::decode(&[bytes.clone(), vec![9; 21]].concat()), seen);
        assert_eq!(Seen::decode(&bytes[..8 * 13 + 5]), Seen { marks: [Mark::default(); 2], ..seen });
        assert_eq!(Seen::decode(b""), Seen::default());
    }

    #[test]
    fn counts_go_on_where_they_were_kept() {
        let mut next = 0..;
        let seen = Seen { kept: Counts::of(|| next.next().expect("without end")), ..Seen::default() };
        let mut tens = (0..).map(|number| number * 10);
        let sum = seen.plus(Counts::of(|| tens.next().expect("without end")));
        assert_eq!(sum.fields(), std::array::from_fn(|number| number as u64 * 11));
    }

    // Test of: [lec §3.1]: (250, 5) suffices for 1e-3 at 1e-6, and for hardly more.
    #[test]
    fn parity_is_judged_once_the_bounds_lie_on_one_side() {
        assert_eq!(verdict(0, 0), (ParityVerdict::Open, None));
        assert_eq!(verdict(0, 5000), (ParityVerdict::Open, None), "none of few says nothing");
        assert_eq!(verdict(3, 100), (ParityVerdict::Open, None), "nor do three of a hundred");
        assert_eq!(verdict(4000, 4_000_000), (ParityVerdict::Enough, Some(5)));
        assert_eq!(verdict(0, 100_000), (ParityVerdict::Enough, Some(3)));
        assert_eq!(verdict(1_230, 1_000_000), (ParityVerdict::Open, None), "too near to what five are enough for");
        assert_eq!(verdict(6000, 4_000_000), (ParityVerdict::TooLittle, Some(6)));
        assert_eq!(verdict(60, 10_000), (ParityVerdict::TooLittle, Some(13)));
        assert_eq!(verdict(999_000, 1_000_000), (ParityVerdict::TooLittle, None), "no parity suffices");
    }

    #[test]
    fn a_device_that_becomes_worse_shows() {
        let mut seen = Seen::default();
        let mut now = Mark::default();
        let mut last = None;
        // Years of good reads, then 48 GiB of bad ones.
        for million in 0..1000 {
            let chance = if million < 988 { 100 } else { 2000 };
            now = Mark { reads: now.reads + 1_000_000, failed: now.failed + chance };
            seen.turn(now);
            let soft = seen.soft(now, 1e-3);
            assert!(million < 8 || (WINDOW..=3 * WINDOW).contains(&soft.reads), "{}", soft.reads);
            last = Some(judge(SHAPE, &soft, 1e-6).0);
            assert!(million >= 988 || last == Some(ParityVerdict::Enough));
        }
        assert_eq!(last, Some(ParityVerdict::TooLittle));
    }
}
