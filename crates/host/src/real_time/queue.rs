//! Which of the calls that wait for a device is next.
//!
//! Invariants:
//! 1. The one whose first sector is nearest ahead of where the last one ended; if none is ahead, the one with the least.
//! 2. No call is overtaken more than [`OVERTAKEN`] times: then it is next, wherever it is.

use claystone_env::SectorRange;

/// How often a call may be overtaken. A drive's queue has 32 places.
const OVERTAKEN: u32 = 32;

/// A call that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(u64);

struct Waiting {
    ticket: Ticket,
    /// Where it brings the head; `None` if it leaves it where it is.
    at: Option<SectorRange>,
    overtaken: u32,
}

/// See the module.
#[derive(Default)]
pub struct Queue {
    /// In the order in which they came.
    waiting: Vec<Waiting>,
    came: u64,
    /// Where the last one left the head.
    head: u64,
}

impl Queue {
    /// A call on these sectors came.
    pub fn enter(&mut self, at: Option<SectorRange>) -> Ticket {
        let ticket = Ticket(self.came);
        self.came += 1;
        self.waiting.push(Waiting { ticket, at, overtaken: 0 });
        ticket
    }

    /// How many wait.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Takes out the next, if somebody waits.
    pub fn next(&mut self) -> Option<Ticket> {
        let head = self.head;
        let first_of = |waiting: &Waiting| waiting.at.map_or(head, |at| at.first.0);
        let next = (0..self.waiting.len()).min_by_key(|&at| {
            let waiting = &self.waiting[at];
            let first = first_of(waiting);
            (waiting.overtaken < OVERTAKEN, first < head, first)
        })?;
        for waiting in &mut self.waiting[..next] {
            waiting.overtaken += 1;
        }
        let next = self.waiting.remove(next);
        self.head = next.at.map_or(head, |at| at.end().0);
        Some(next.ticket)
    }
}

#[cfg(test)]
mod tests {
    use claystone_env::Sector;

    use super::*;

    fn at(first: u64) -> Option<SectorRange> {
        Some(SectorRange { first: Sector(first), sectors: 10 })
    }

    fn order(queue: &mut Queue) -> Vec<u64> {
        std::iter::from_fn(|| queue.next()).map(|ticket| ticket.0).collect()
    }

    #[test]
    fn calls_go_ahead_and_begin_again_at_the_front() {
        let mut queue = Queue::default();
        queue.enter(at(100));
        assert_eq!(order(&mut queue), [0]);
        for first in [300, 20, 110, 105, 90] {
            queue.enter(at(first));
        }
        assert_eq!(order(&mut queue), [3, 1, 2, 5, 4], "110 ahead at once, 300, then from 20 on");
    }

    #[test]
    fn calls_without_a_place_and_those_on_the_same_go_in_turn() {
        let mut queue = Queue::default();
        for first in [at(0), None, at(0), None] {
            queue.enter(first);
        }
        // The first leaves the head at 10: what has no place is there already.
        assert_eq!(order(&mut queue), [0, 1, 3, 2]);
    }

    #[test]
    fn nobody_waits_for_ever() {
        let mut queue = Queue::default();
        queue.enter(at(1000));
        queue.next();
        let behind = queue.enter(at(0));
        for turn in 0..=u64::from(OVERTAKEN) {
            queue.enter(at(1010 + 10 * turn));
            let next = queue.next();
            assert_eq!(next == Some(behind), turn == u64::from(OVERTAKEN), "turn {turn}");
        }
    }
}
