//! Whether whoever writes flushes each of his writes, as databases do: then the sync begins when the write is in effect, and
//! his flush finds it under way.
//!
//! Invariants:
//! 1. This decides when a sync begins, never what one is good for.
//! 2. A sync that was begun for nobody is the last of its kind until there were [`FLUSHES_IN_A_ROW`] flushes again.

/// What came since the last flush, and how it was before.
#[derive(Debug, Default)]
pub(super) struct Habit {
    /// Batches of appends that came into effect since.
    batches: u32,
    /// Flushes in a row that each came behind one batch.
    flushes: u32,
}

impl Habit {
    /// A batch of appends came into effect.
    pub(super) fn in_effect(&mut self) {
        self.batches = self.batches.saturating_add(1);
        if self.batches > 1 {
            self.flushes = 0;
        }
    }

    /// Somebody flushes.
    pub(super) fn flushed(&mut self) {
        let behind_one = std::mem::take(&mut self.batches) == 1;
        self.flushes = if behind_one { self.flushes.saturating_add(1) } else { 0 };
    }

    /// Whether a flush is to be expected now.
    pub(super) fn expects_flush(&self) -> bool {
        self.batches == 1 && self.flushes >= FLUSHES_IN_A_ROW
    }
}

/// A habit is what was done so often.
const FLUSHES_IN_A_ROW: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_is_expected_of_who_flushed_each_write() {
        let mut habit = Habit::default();
        for _ in 0..FLUSHES_IN_A_ROW {
            habit.in_effect();
            assert!(!habit.expects_flush(), "not yet a habit");
            habit.flushed();
            assert!(!habit.expects_flush(), "nothing to flush");
        }
        habit.in_effect();
        assert!(habit.expects_flush());
        // He does not: that was one sync for nobody, and no other comes.
        habit.in_effect();
        assert!(!habit.expects_flush());
        habit.flushed();
        habit.in_effect();
        assert!(!habit.expects_flush());
    }
}
