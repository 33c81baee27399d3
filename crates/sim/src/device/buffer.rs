//! A hard disk's buffer for sequential writes, in time alone: bytes since the last change say how long a write takes.
//!
//! ```text
//!  sync --> Fast --full--> Slow --slow_bytes written--> Mid --full--> Slow --> Mid ...
//!  a read, or a write elsewhere --> Mid, of which any part is taken
//!  idle in Mid --> writes its buffer out by itself; who comes meanwhile waits --> Mid, of which nothing is taken
//! ```
//!
//! Invariants:
//! 1. The write that does not fit any more is the first slow one, whatever its length.
//! 2. How much a stage takes is drawn when it begins, evenly within [`BufferModel::spread_percent`] of its mean either way.
//!
//! Source: [bcw §HDD Buffered-Write Model]; what a read, a write elsewhere and idleness do is our model of it.

use std::time::Duration;

use claystone_env::{Random, SECTOR_BYTES, SectorRange};

use super::model::{HddModel, Head};

/// Times of quick writes of one length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferedWrite {
    /// The length.
    pub bytes: u64,
    /// After a sync.
    pub fast: Duration,
    /// After a slow stage.
    pub mid: Duration,
}

/// What a buffer takes, and how long that takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferModel {
    /// Bytes that it takes after a sync.
    pub fast_bytes: u64,
    /// Bytes that it takes between two slow stages.
    pub mid_bytes: u64,
    /// Bytes that are written slowly until it takes some quickly again.
    pub slow_bytes: u64,
    /// By how much these vary, either way.
    pub spread_percent: u64,
    /// Times by length, ascending; those of other lengths are on the lines through these.
    pub writes: [BufferedWrite; 3],
    /// What a slow write takes longer than a quick one.
    pub slow: Duration,
    /// By how much times vary, either way.
    pub noise_percent: u64,
    /// After so long without a request, in a middle stage, it is written out.
    pub idle: Duration,
}

impl BufferModel {
    /// As the 10 TB drive of the paper: it takes 16 MiB after a sync, 16 KiB of them in 66 us; by a reader's notes of the paper
    /// 35 us for 4 KiB and 180 us for 64 KiB, 55 us for 4 KiB in the middle stage, 12 ms for a slow write.
    ///
    /// Assumed, because nobody published it: a middle stage of 8 MiB, a slow one of 64 KiB, a spread of 5 %, the ratio of 55 to
    /// 35 for longer writes too, noise of 10 %, and 10 ms until it is written out.
    // Source: [bcw §HDD Built-in Buffer]
    pub fn wd_10tb_like() -> BufferModel {
        BufferModel {
            fast_bytes: 16 << 20,
            mid_bytes: 8 << 20,
            slow_bytes: 64 << 10,
            spread_percent: 5,
            writes: [write(4, 35, 55), write(16, 66, 104), write(64, 180, 283)],
            slow: Duration::from_millis(12),
            noise_percent: 10,
            idle: Duration::from_millis(10),
        }
    }

    /// No drive: a small buffer that varies much and is slow for long.
    pub fn synthetic_small() -> BufferModel {
        BufferModel {
            fast_bytes: 8 << 20,
            mid_bytes: 4 << 20,
            slow_bytes: 256 << 10,
            spread_percent: 12,
            writes: [write(4, 50, 70), write(16, 95, 133), write(64, 260, 364)],
            slow: Duration::from_millis(20),
            noise_percent: 20,
            idle: Duration::from_millis(5),
        }
    }

    /// No drive: a large buffer that is hardly slower in the middle.
    pub fn synthetic_large() -> BufferModel {
        BufferModel {
            fast_bytes: 64 << 20,
            mid_bytes: 24 << 20,
            slow_bytes: 1 << 20,
            spread_percent: 8,
            writes: [write(4, 25, 28), write(16, 50, 56), write(64, 140, 157)],
            slow: Duration::from_millis(8),
            noise_percent: 10,
            idle: Duration::from_millis(20),
        }
    }

    pub(super) fn check(&self) {
        for bytes in [self.fast_bytes, self.mid_bytes, self.slow_bytes] {
            assert!(bytes >= SECTOR_BYTES as u64, "a stage of {bytes} bytes takes no sector");
        }
        assert!(self.spread_percent < 100 && self.noise_percent < 100, "a spread or noise of 100 %");
        assert!(self.writes.windows(2).all(|pair| pair[0].bytes < pair[1].bytes), "lengths ascend");
    }

    /// The mean time of a quick write.
    fn quick(&self, stage: Stage, bytes: u64) -> Duration {
        let above = self.writes.iter().position(|write| write.bytes >= bytes).unwrap_or(self.writes.len() - 1).max(1);
        let (low, high) = (&self.writes[above - 1], &self.writes[above]);
        let time = |write: &BufferedWrite| if stage == Stage::Fast { write.fast } else { write.mid }.as_nanos() as f64;
        let part = (bytes as f64 - low.bytes as f64) / (high.bytes - low.bytes) as f64;
        Duration::from_nanos((time(low) + (time(high) - time(low)) * part).max(0.0) as u64)
    }
}

const fn write(kib: u64, fast_us: u64, mid_us: u64) -> BufferedWrite {
    BufferedWrite { bytes: kib << 10, fast: Duration::from_micros(fast_us), mid: Duration::from_micros(mid_us) }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Fast,
    Mid,
    Slow,
}

/// See the module.
#[derive(Debug)]
pub struct Buffer {
    model: BufferModel,
    stage: Stage,
    taken: u64,
    takes: u64,
    /// Where a write goes on; `None`: anywhere.
    next: Option<u64>,
}

/// When an operation began, and since when the drive had nothing to do.
#[derive(Debug, Clone, Copy)]
pub struct Begin {
    pub at: Duration,
    pub idle_since: Duration,
}

impl Buffer {
    pub fn new(model: BufferModel, random: &dyn Random) -> Buffer {
        model.check();
        let mut buffer = Buffer { model, stage: Stage::Fast, taken: 0, takes: 0, next: None };
        buffer.enter(Stage::Fast, random);
        buffer
    }

    /// Takes a write; returns how long it takes, and whether what was in the buffer before went to the medium.
    pub fn write(
        &mut self,
        hdd: &HddModel,
        head: &mut Head,
        range: SectorRange,
        begin: Begin,
        random: &dyn Random,
    ) -> (Duration, bool) {
        let waits = self.writes_itself_out(hdd, begin, random);
        let follows = self.next.is_none_or(|next| next == range.first.0);
        self.next = Some(range.end().0);
        if !follows {
            let way = head.position(hdd, begin.at + waits, range.first.0) + hdd.transfer * range.sectors as u32;
            head.leave_at(range.end().0);
            self.enter_anywhere(random);
            return (waits + way, true);
        }
        head.leave_at(range.end().0);
        let bytes = range.sectors * SECTOR_BYTES as u64;
        let is_full = self.stage != Stage::Slow && self.taken + bytes > self.takes;
        if is_full {
            self.enter(Stage::Slow, random);
        }
        let mut took = noisy(self.model.quick(self.stage, bytes), self.model.noise_percent, random);
        self.taken += bytes;
        if self.stage == Stage::Slow {
            took += noisy(self.model.slow, self.model.noise_percent, random);
            if self.taken >= self.takes {
                self.enter(Stage::Mid, random);
            }
        }
        (waits + took, is_full)
    }

    /// Something was read.
    pub fn was_read(&mut self, random: &dyn Random) {
        self.enter_anywhere(random);
        self.next = None;
    }

    /// Writes all out; returns how long that takes.
    pub fn sync(&mut self, hdd: &HddModel, begin: Begin, random: &dyn Random) -> Duration {
        let waits = self.writes_itself_out(hdd, begin, random);
        let took = match self.taken {
            0 => Duration::ZERO,
            _ => self.write_out(hdd) + hdd.turn(),
        };
        self.enter(Stage::Fast, random);
        self.next = None;
        waits + took
    }

    /// If the drive was idle for so long that it writes its buffer out, or has: how long that takes still.
    fn writes_itself_out(&mut self, hdd: &HddModel, begin: Begin, random: &dyn Random) -> Duration {
        let begins = begin.idle_since + self.model.idle;
        if self.stage != Stage::Mid || self.taken == 0 || begin.at < begins {
            return Duration::ZERO;
        }
        let ends = begins + self.write_out(hdd);
        self.enter(Stage::Mid, random);
        ends.saturating_sub(begin.at)
    }

    fn write_out(&self, hdd: &HddModel) -> Duration {
        hdd.transfer * self.taken.div_ceil(SECTOR_BYTES as u64) as u32
    }

    fn enter(&mut self, stage: Stage, random: &dyn Random) {
        let mean = match stage {
            Stage::Fast => self.model.fast_bytes,
            Stage::Mid => self.model.mid_bytes,
            Stage::Slow => self.model.slow_bytes,
        };
        let spread = mean * self.model.spread_percent / 100;
        (self.stage, self.taken) = (stage, 0);
        self.takes = mean - spread + random.below(2 * spread + 1);
    }

    fn enter_anywhere(&mut self, random: &dyn Random) {
        self.enter(Stage::Mid, random);
        self.taken = random.below(self.takes);
    }
}

fn noisy(time: Duration, percent: u64, random: &dyn Random) -> Duration {
    let nanos = time.as_nanos() as u64;
    let spread = nanos * percent / 100;
    Duration::from_nanos(nanos - spread + random.below(2 * spread + 1))
}
