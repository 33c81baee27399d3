//! A log's space: a ring of sectors, taken at its head and freed at its tail.
//!
//! Invariants:
//! 1. Positions only grow; the place of a position is what is left of it by the sectors of the ring.
//! 2. What was taken does not go round the end, and is not taken again before the tail has passed it.

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ring {
    sectors: u64,
    tail: u64,
    head: u64,
}

impl Ring {
    /// A ring of so many sectors, of which those from position `tail` to `head` are taken.
    ///
    /// # Panics
    /// If that is more than there are.
    pub fn new(sectors: u64, tail: u64, head: u64) -> Ring {
        assert!(tail <= head, "the tail is behind the head");
        assert!(head - tail <= sectors, "no more is taken than there is");
        Ring { sectors, tail, head }
    }

    /// Where the next is taken.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Sectors that it has.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Sectors that are taken.
    pub fn used(&self) -> u64 {
        self.head - self.tail
    }

    /// The place of a position.
    pub fn place(&self, position: u64) -> u64 {
        position % self.sectors
    }

    /// Takes sectors that follow each other, if `reserve` more are left then. Returns their position.
    pub fn take(&mut self, sectors: u64, reserve: u64) -> Option<u64> {
        let position = self.next(sectors);
        let end = position + sectors;
        (end - self.tail + reserve <= self.sectors).then(|| {
            self.head = end;
            position
        })
    }

    /// Whether [`Ring::take`] would.
    pub fn has_room(&self, sectors: u64, reserve: u64) -> bool {
        let mut copy = *self;
        copy.take(sectors, reserve).is_some()
    }

    /// Frees all before a position.
    ///
    /// # Panics
    /// If that is not taken.
    pub fn free(&mut self, position: u64) {
        assert!(position <= self.head, "what is freed was taken");
        self.tail = self.tail.max(position);
    }

    fn next(&self, sectors: u64) -> u64 {
        let left = self.sectors - self.place(self.head);
        if sectors <= left { self.head } else { self.head + left }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_goes_round_the_end_and_nothing_is_taken_twice() {
        let mut ring = Ring::new(10, 0, 0);
        assert_eq!((ring.take(4, 0), ring.take(4, 0)), (Some(0), Some(4)));
        // Two are left at the end, and are skipped.
        assert_eq!(ring.take(3, 0), None);
        ring.free(4);
        assert_eq!((ring.take(3, 2), ring.take(3, 1)), (None, Some(10)));
        assert_eq!((ring.place(10), ring.used()), (0, 9));
        assert_eq!((ring.take(1, 0), ring.take(1, 0)), (Some(13), None));
        ring.free(4);
        assert_eq!(ring.used(), 10);
        ring.free(14);
        assert!(ring.has_room(4, 0) && ring.has_room(6, 0) && !ring.has_room(7, 0), "six up to the end");
    }
}
