//! How much each data chunk of a volume is written: a decayed count of writes, in memory only.
//!
//! A write adds 1; a half-life later it counts half. Nothing is kept over a restart: a chunk that is not known counts as
//! written a little when the volume was opened, so that nothing is taken for cold before it was watched for a while, and
//! nothing for hot before it is written again.

use std::collections::BTreeMap;
use std::time::Duration;

use claystone_code::ChunkIndex;
use claystone_env::Moment;

/// The heat of data chunks, by the positions of their stripes.
#[derive(Debug)]
pub struct Heats {
    half_life: Duration,
    opened: Moment,
    chunks: BTreeMap<(u64, ChunkIndex), Heat>,
    forgot: Moment,
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
        Heats { half_life, opened, chunks: BTreeMap::new(), forgot: opened }
    }

    /// A chunk is written.
    pub fn written(&mut self, position: u64, column: ChunkIndex, now: Moment) {
        let writes = self.of(position, column, now) + 1.0;
        self.chunks.insert((position, column), Heat { writes, at: now });
    }

    /// Writes of a chunk, decayed.
    fn of(&self, position: u64, column: ChunkIndex, now: Moment) -> f64 {
        let known = self.chunks.get(&(position, column)).copied();
        known.unwrap_or(self.unknown()).decayed(self.half_life, now)
    }

    /// Writes of a whole stripe, decayed.
    pub fn of_stripe(&self, position: u64, now: Moment) -> f64 {
        let unknown = self.unknown().decayed(self.half_life, now);
        let all = (position, ChunkIndex(0))..=(position, ChunkIndex(u16::MAX));
        let known = self.chunks.range(all).map(|(_, heat)| heat.decayed(self.half_life, now) - unknown);
        unknown + known.sum::<f64>()
    }

    /// Writes of each of so many chunks of a stripe, decayed.
    pub fn of_chunks(&self, position: u64, columns: u16, now: Moment) -> Vec<f64> {
        let mut heats = vec![self.unknown().decayed(self.half_life, now); columns.into()];
        let all = (position, ChunkIndex(0))..(position, ChunkIndex(columns));
        for ((_, column), heat) in self.chunks.range(all) {
            heats[column.at()] = heat.decayed(self.half_life, now);
        }
        heats
    }

    /// Whether some chunk of a stripe was written lately. No other is hot.
    pub fn knows(&self, position: u64) -> bool {
        let all = (position, ChunkIndex(0))..=(position, ChunkIndex(u16::MAX));
        self.chunks.range(all).next().is_some()
    }

    fn unknown(&self) -> Heat {
        Heat { writes: UNKNOWN, at: self.opened }
    }

    /// Forgets what is as cold as what nobody knows, once in a half-life.
    pub fn forget_cold(&mut self, now: Moment) {
        if self.unknown().decayed(self.half_life, now) > FORGOTTEN || now.since(self.forgot) < self.half_life {
            return;
        }
        self.forgot = now;
        let half_life = self.half_life;
        self.chunks.retain(|_, heat| heat.decayed(half_life, now) > FORGOTTEN);
    }

    /// A stripe is no more.
    pub fn forget(&mut self, position: u64) {
        let all = (position, ChunkIndex(0))..=(position, ChunkIndex(u16::MAX));
        let known: Vec<_> = self.chunks.range(all).map(|(chunk, _)| *chunk).collect();
        for chunk in known {
            self.chunks.remove(&chunk);
        }
    }
}

impl Heat {
    fn decayed(self, half_life: Duration, now: Moment) -> f64 {
        self.writes * 0.5f64.powf(now.since(self.at).as_secs_f64() / half_life.as_secs_f64())
    }
}

/// Writes that a chunk of which nothing is known had when the volume was opened: two half-lives later it is cold.
const UNKNOWN: f64 = 4.0 * super::plan::COLD_BELOW;
const _: () = assert!(UNKNOWN < super::plan::HOT_FROM);
/// Writes that count for none.
const FORGOTTEN: f64 = super::plan::COLD_BELOW / 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_counts_half_after_a_half_life() {
        let at = |seconds| Moment::default().after(Duration::from_secs(seconds));
        let mut heats = Heats::new(Duration::from_secs(10), at(5));
        let (one, other) = (ChunkIndex(1), ChunkIndex(2));
        assert_eq!((heats.of(7, one, at(5)), heats.of(7, one, at(25))), (UNKNOWN, UNKNOWN / 4.0));
        heats.written(7, one, at(25));
        heats.written(7, one, at(25));
        assert_eq!((heats.of(7, one, at(25)), heats.of(7, one, at(35))), (UNKNOWN / 4.0 + 2.0, UNKNOWN / 8.0 + 1.0));
        assert_eq!(
            [heats.of(7, other, at(25)), heats.of(8, one, at(25))],
            [UNKNOWN / 4.0; 2],
            "others were not written"
        );
        heats.written(8, one, at(25));
        let chunks = heats.of_chunks(7, 3, at(25));
        assert_eq!(chunks, [UNKNOWN / 4.0, UNKNOWN / 4.0 + 2.0, UNKNOWN / 4.0]);
        heats.written(7, other, at(25));
        assert_eq!(heats.of_stripe(7, at(25)), UNKNOWN / 4.0 + 3.0);
        assert_eq!([7, 8, 9].map(|position| heats.knows(position)), [true, true, false]);
        heats.forget(7);
        assert_eq!((heats.of(7, one, at(25)), heats.of(8, one, at(25))), (UNKNOWN / 4.0, UNKNOWN / 4.0 + 1.0));
    }

    #[test]
    fn what_is_cold_is_forgotten_and_stays_cold() {
        let at = |seconds| Moment::default().after(Duration::from_secs(seconds));
        let mut heats = Heats::new(Duration::from_secs(10), at(0));
        let (one, other) = (ChunkIndex(1), ChunkIndex(2));
        heats.written(7, one, at(1));
        heats.forget_cold(at(60));
        assert!(heats.chunks.contains_key(&(7, one)), "what is not known counts for something yet");
        heats.written(7, other, at(180));
        heats.forget_cold(at(200));
        assert_eq!(heats.chunks.len(), 1);
        let chunks = heats.of_chunks(7, 3, at(200));
        assert!(chunks[1] < FORGOTTEN && chunks[2] > 0.2, "{chunks:?}");
    }
}
