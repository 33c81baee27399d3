//! How long a hard disk takes: seek, rotation, transfer.
//!
//! Invariants:
//! 1. Sectors follow each other around a track and on to the next one without a gap, so streaming costs
//!    [`HddModel::transfer`] a sector and nothing else.
//! 2. A turn of the spindle takes as long as streaming one track.

use std::time::Duration;

use super::buffer::BufferModel;

/// How large and fast a hard disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HddModel {
    /// Its sectors.
    pub sectors: u64,
    /// Whether it can be told not to retry.
    pub fails_fast: bool,
    /// Time of a sector passing under the head.
    pub transfer: Duration,
    /// Sectors of a track.
    pub track_sectors: u64,
    /// Time of a seek to the next track.
    pub seek_min: Duration,
    /// Time of a seek across all tracks.
    pub seek_max: Duration,
    /// Time of reading a sector by retrying that did not read at once.
    pub retry: Duration,
    /// Time of all retries for a sector that is lost.
    pub give_up: Duration,
    /// Sectors that fit into the write cache. With 0, a write is on the medium when it returns.
    pub cache_sectors: u64,
    /// Time of a sector between host and cache, at most [`HddModel::transfer`].
    pub cache_transfer: Duration,
    /// How the write cache takes sequential writes, where its fast, middle and slow stages are to be seen. `None`: every write
    /// takes [`HddModel::cache_transfer`] a sector, and whoever fills the cache waits until all of it is on the medium.
    pub buffer: Option<BufferModel>,
}

impl HddModel {
    /// A 7200 rpm drive with the paper's times: 33 us a sector, a retry of 20 ms. A turn takes 8.3 ms, a seek 1 to 15 ms.
    // Source: [lec §4]
    pub fn new(sectors: u64) -> HddModel {
        HddModel {
            sectors,
            fails_fast: true,
            transfer: Duration::from_micros(33),
            track_sectors: 252,
            seek_min: Duration::from_millis(1),
            seek_max: Duration::from_millis(15),
            retry: Duration::from_millis(20),
            // What drives for arrays are shipped with.
            give_up: Duration::from_secs(7),
            // 64 MiB.
            cache_sectors: 16 * 1024,
            cache_transfer: Duration::from_micros(8),
            buffer: None,
        }
    }

    /// The same with a buffer.
    pub fn buffered(sectors: u64, buffer: BufferModel) -> HddModel {
        HddModel { buffer: Some(buffer), ..HddModel::new(sectors) }
    }

    /// # Panics
    /// If the numbers make no drive.
    pub fn check(&self) {
        assert!(self.sectors > 0 && self.track_sectors > 0, "a drive has sectors on tracks");
        assert!(self.seek_min <= self.seek_max, "a long seek takes longer");
        assert!(self.cache_transfer <= self.transfer, "the cache is no slower than the medium");
    }

    /// Time of a turn of the spindle.
    pub fn turn(&self) -> Duration {
        self.transfer * self.track_sectors as u32
    }

    /// Time of a seek over `tracks` tracks: the head speeds up on the first half of its way and slows down on the other,
    /// so time grows with the root of the distance.
    pub fn seek(&self, tracks: u64) -> Duration {
        let last = (self.sectors.div_ceil(self.track_sectors) - 1).max(2) - 1;
        match tracks {
            0 => Duration::ZERO,
            _ => {
                let part = ((tracks - 1) as f64 / last as f64).sqrt().min(1.0);
                self.seek_min + (self.seek_max - self.seek_min).mul_f64(part)
            }
        }
    }
}

/// Where the head is, and since when it has nothing to do.
#[derive(Debug, Default)]
pub struct Head {
    next: u64,
    free_at: Duration,
}

impl Head {
    /// When the last operation ends.
    pub fn free_at(&self) -> Duration {
        self.free_at
    }

    /// Notes when the last operation ends.
    pub fn set_free_at(&mut self, at: Duration) {
        self.free_at = at;
    }

    /// Notes that the head is before `sector`.
    pub fn leave_at(&mut self, sector: u64) {
        self.next = sector;
    }

    /// Time until the head is before `sector`, from `at` on.
    pub fn position(&self, model: &HddModel, at: Duration, sector: u64) -> Duration {
        if sector == self.next {
            return Duration::ZERO;
        }
        let track = |sector: u64| sector / model.track_sectors;
        let seek = model.seek(track(sector).abs_diff(track(self.next)));
        let turn = model.turn().as_nanos();
        let under = (at + seek).as_nanos() % turn;
        let wanted = u128::from(sector % model.track_sectors) * model.transfer.as_nanos();
        seek + Duration::from_nanos(((wanted + turn - under) % turn) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seek_takes_longer_over_more_tracks() {
        let model = HddModel::new(252 * 1000);
        assert_eq!(model.turn(), Duration::from_micros(8316));
        assert_eq!(model.seek(0), Duration::ZERO);
        assert_eq!(model.seek(1), model.seek_min);
        assert_eq!(model.seek(999), model.seek_max);
        assert!((1..999).all(|tracks| model.seek(tracks) < model.seek(tracks + 1)));
        // A drive of one track or two has no far end.
        for sectors in [1, 252, 253, 504, 505] {
            assert!(HddModel::new(sectors).seek(1) == model.seek_min);
        }
    }

    #[test]
    fn the_spindle_turns_while_the_head_waits() {
        let model = HddModel::new(252 * 1000);
        let us = Duration::from_micros;
        let mut head = Head::default();
        // On the same track: only the turn.
        assert_eq!(head.position(&model, us(0), 100), us(100 * 33));
        assert_eq!(head.position(&model, us(1000), 100), us(100 * 33 - 1000));
        // Just missed.
        assert_eq!(head.position(&model, us(100 * 33 + 1), 100), us(8316 - 1));
        // The next track: the spindle turns during the seek.
        assert_eq!(head.position(&model, us(0), 252 + 100), us(100 * 33));
        assert_eq!(head.position(&model, us(0), 252 + 10), us(8316 + 330));
        head.leave_at(352);
        assert_eq!(head.position(&model, us(77), 352), us(0));
    }
}
