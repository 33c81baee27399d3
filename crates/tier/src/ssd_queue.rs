//! What waits in the solid-state drive: how many writes, how long they are, and whether it is late with one of them.
//!
//! A drive that collects garbage takes nothing for tens of milliseconds, and its queue is short when that begins. How long its oldest write
//! waits tells so before the queue is long.
//!
//! Source: [bcw §Mixed IO scheduler], where a queue's length stands for its time; the time itself is ours (decision 27).
//!
//! Invariants:
//! 1. A drive is late only with a write for which a hard disk in its middle stage would have been done twice, with all that waited before
//!    it too. So one that is as quick as a hard disk is never late.
//! 2. How the drive is is told without a look at all that waits: where more comes than it takes, tens of thousands do.

use std::collections::{BTreeMap, BTreeSet};

use claystone_env::Moment;

use crate::latency::WriteState;
use crate::profile::Profile;

/// A write that waits; for [`SsdQueue::end`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SsdTicket(u64);

/// The solid-state drive, for one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SsdView {
    /// Requests in it.
    pub queue: usize,
    /// Their bytes.
    pub queue_bytes: u64,
    /// It is late with one of them.
    pub is_late: bool,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct SsdQueue {
    waiting: BTreeMap<SsdTicket, Waiting>,
    /// By when each is due. One that came later may be due sooner, where much has ended in between.
    due: BTreeSet<(Moment, SsdTicket)>,
    next: u64,
    bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    bytes: u64,
    /// From then on the drive is late with it.
    due: Moment,
}

impl SsdQueue {
    /// A request of so many bytes is sent. `hdd`: what a hard disk would do with it.
    pub fn begin(&mut self, now: Moment, bytes: u64, hdd: &Profile) -> SsdTicket {
        self.bytes += bytes;
        let ticket = SsdTicket(self.next);
        self.next += 1;
        let due = now.after(hdd.latency(WriteState::Mid, self.bytes) * LATE_AFTER);
        self.waiting.insert(ticket, Waiting { bytes, due });
        self.due.insert((due, ticket));
        ticket
    }

    /// It ended.
    ///
    /// # Panics
    /// If it did before.
    pub fn end(&mut self, ticket: SsdTicket) {
        let ended = self.waiting.remove(&ticket).expect("a request ends once");
        self.due.remove(&(ended.due, ticket));
        self.bytes -= ended.bytes;
    }

    /// How it is now.
    pub fn view(&self, now: Moment) -> SsdView {
        let is_late = self.due.first().is_some_and(|(due, _)| *due < now);
        SsdView { queue: self.waiting.len(), queue_bytes: self.bytes, is_late }
    }
}

/// So many times the hard disk's time. One to four give the same figures in the bench: a stall takes a hundred times that.
const LATE_AFTER: u32 = 2;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::profile::tests::profile;

    #[test]
    fn a_drive_is_late_when_a_hard_disk_would_have_been_done_twice() {
        let hdd = profile();
        let at = |ns: u64| Moment(Duration::from_nanos(ns));
        let twice = |bytes: u64| 2 * hdd.latency(WriteState::Mid, bytes).as_nanos() as u64;
        let mut ssd = SsdQueue::default();
        assert_eq!(ssd.view(at(1_000_000)), SsdView::default(), "nothing waits");
        let first = ssd.begin(at(100), 4096, &hdd);
        let second = ssd.begin(at(110), 16384, &hdd);
        assert_eq!(ssd.view(at(110)), SsdView { queue: 2, queue_bytes: 20480, is_late: false });
        let due = 100 + twice(4096);
        assert!(!ssd.view(at(due)).is_late && ssd.view(at(due + 1)).is_late);
        // The second waits for the first, so it may take as long as both.
        ssd.end(first);
        let due = 110 + twice(20480);
        assert_eq!(ssd.view(at(due)), SsdView { queue: 1, queue_bytes: 16384, is_late: false });
        assert!(ssd.view(at(due + 1)).is_late);
        ssd.end(second);
        assert_eq!(ssd.view(at(due + 1)), SsdView::default());
    }
    #[test]
    fn who_came_later_may_be_due_sooner() {
        let hdd = profile();
        let at = |us: u64| Moment(Duration::from_micros(us));
        let mut ssd = SsdQueue::default();
        let long = ssd.begin(at(0), 64 << 10, &hdd);
        let behind_it = ssd.begin(at(1), 4096, &hdd);
        ssd.end(long);
        let alone = ssd.begin(at(2), 4096, &hdd);
        let due = at(2).after(2 * hdd.latency(WriteState::Mid, 8192));
        assert!(!ssd.view(due).is_late && ssd.view(due.after(Duration::from_nanos(1))).is_late);
        ssd.end(alone);
        assert!(!ssd.view(due.after(Duration::from_nanos(1))).is_late, "the other one has time");
        ssd.end(behind_it);
        assert_eq!(ssd.view(at(1_000_000)), SsdView::default());
    }
}
