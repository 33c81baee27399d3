//! How much each stripe of a volume is written: a decayed count of writes, in memory only.
//!
//! A write adds 1; a half-life later it counts half. Nothing is kept over a restart: a stripe that is not known counts as
//! written a little when the volume was opened, so that nothing is taken for cold before it was watched for a while, and
//! nothing for hot before it is written again.

use std::collections::BTreeMap;
use std::time::Duration;

use claystone_env::Moment;

/// The heat of stripes by their positions.
#[derive(Debug)]
pub struct Heats {
    half_life: Duration,
    opened: Moment,
    stripes: BTreeMap<u64, Heat>,
}

/// A count and when it was that.
#[derive(Debug, Clone, Copy)]
struct Heat {
    writes: f64,
    at: Moment,
}

impl Heats {
    /// Of a volume opened now.
    pub fn new(half_life: Duration, opened: Moment) -> Heats {
        Heats { half_life, opened, stripes: BTreeMap::new() }
    }

    /// A stripe is written.
    pub fn written(&mut self, position: u64, now: Moment) {
        let writes = self.of(position, now) + 1.0;
        self.stripes.insert(position, Heat { writes, at: now });
    }

    /// Writes of a stripe, decayed.
    pub fn of(&self, position: u64, now: Moment) -> f64 {
        let Heat { writes, at } =
            self.stripes.get(&position).copied().unwrap_or(Heat { writes: UNKNOWN, at: self.opened });
        writes * 0.5f64.powf(now.since(at).as_secs_f64() / self.half_life.as_secs_f64())
    }

    /// A stripe is no more.
    pub fn forget(&mut self, position: u64) {
        self.stripes.remove(&position);
    }
}

/// Writes that a stripe of which nothing is known had when the volume was opened: two half-lives later it is cold.
const UNKNOWN: f64 = 4.0 * super::plan::COLD_BELOW;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_counts_half_after_a_half_life() {
        let at = |seconds| Moment::default().after(Duration::from_secs(seconds));
        let mut heats = Heats::new(Duration::from_secs(10), at(5));
        assert_eq!((heats.of(7, at(5)), heats.of(7, at(25))), (UNKNOWN, UNKNOWN / 4.0));
        heats.written(7, at(25));
        heats.written(7, at(25));
        assert_eq!((heats.of(7, at(25)), heats.of(7, at(35))), (UNKNOWN / 4.0 + 2.0, UNKNOWN / 8.0 + 1.0));
        assert_eq!(heats.of(8, at(25)), UNKNOWN / 4.0, "its neighbour was not written");
        heats.forget(7);
        assert_eq!(heats.of(7, at(25)), UNKNOWN / 4.0);
    }
}
