//! When the log is looked after while nothing is merged: at once when its disks or its segments change, and then less and less often.
//!
//! ```text
//!  well --a segment is on a disk that takes no writes, or misses copies--> tended --after 5, 10, 20, 40, 60, 60 s--> tended
//!    ^                                                                       |  ^                                     |
//!    +---------------------------- it has all copies ------------------------+  +-------- something changed ----------+
//! ```
//!
//! Invariants:
//! 1. Who drains a disk does not wait for a turn: it is a change. So is a disk that is back, or has room again.
//! 2. A disk that failed and shows nothing of it is tried again within the turns: after half a minute it may get segments.

use std::time::Duration;

use claystone_chunk::DiskId;
use claystone_env::Moment;

/// What tending depends on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Situation {
    /// Segments on disks that take no writes, or on too few that do, and their disks.
    pub(crate) unwell: Vec<(u64, Vec<DiskId>)>,
    /// Disks that take writes, and whether they have room for a segment.
    pub(crate) takers: Vec<(DiskId, bool)>,
}

/// When it was tended.
#[derive(Debug, Default)]
pub(crate) struct Tending {
    /// How it was last, and how long that is left alone from then on.
    seen: Option<(Situation, Duration)>,
    at: Moment,
}

impl Tending {
    /// Whether it is to be tended now; who is told so does it.
    pub(crate) fn is_due(&mut self, now: Moment, situation: Situation) -> bool {
        if situation.unwell.is_empty() {
            self.seen = None;
            return false;
        }
        let wait = match &self.seen {
            Some((seen, _)) if *seen == situation && now < self.at => return false,
            Some((seen, wait)) if *seen == situation => WAIT_MAX.min(*wait * 2),
            _ => WAIT_MIN,
        };
        self.seen = Some((situation, wait));
        self.at = now.after(wait);
        true
    }
}

const WAIT_MIN: Duration = Duration::from_secs(5);
const WAIT_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn situation(unwell: &[u64], roomy: bool) -> Situation {
        let unwell = unwell.iter().map(|number| (*number, vec![DiskId(1)])).collect();
        Situation { unwell, takers: vec![(DiskId(1), roomy)] }
    }

    /// The seconds at which it is tended, of so many.
    fn turns(tending: &mut Tending, from: u64, to: u64, situation: &Situation) -> Vec<u64> {
        let at = |second: &u64| Moment(Duration::from_secs(*second));
        (from..to).filter(|second| tending.is_due(at(second), situation.clone())).collect()
    }

    #[test]
    fn a_log_that_cannot_be_helped_is_looked_at_less_and_less_often() {
        let mut tending = Tending::default();
        assert!(turns(&mut tending, 0, 100, &situation(&[], true)).is_empty());
        let helpless = situation(&[7], false);
        assert_eq!(turns(&mut tending, 100, 400, &helpless), [100, 105, 115, 135, 175, 235, 295, 355]);
        // A disk has room, and it has another copy then, but not all.
        assert_eq!(turns(&mut tending, 400, 401, &situation(&[7], true)), [400]);
        assert_eq!(turns(&mut tending, 401, 411, &situation(&[8], true)), [401, 406]);
        assert!(turns(&mut tending, 411, 420, &situation(&[], true)).is_empty());
        assert_eq!(turns(&mut tending, 420, 426, &helpless), [420, 425]);
    }
}
