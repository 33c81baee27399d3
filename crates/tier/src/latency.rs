//! How long a drive takes for sequential writes, by their length and by what its buffer does.
//!
//! Invariants:
//! 1. Between two lengths that were measured, and beyond them, times follow the line through the nearest two; but a write that is shorter
//!    than the shortest takes no less than nothing, and one that is longer than the longest no less than that. What waits in a queue is
//!    longer than any that was measured.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a write meets in a drive's buffer.
// Source: [bcw §HDD Buffered-Write Model]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WriteState {
    /// Low latency: the buffer was emptied by a sync and fills.
    Fast,
    /// A little more: the buffer fills while the drive empties it.
    Mid,
    /// A spike: the buffer is full.
    Slow,
}

/// Times of writes of one length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeLatency {
    /// The length.
    pub bytes: u64,
    /// Mean time in nanoseconds of a fast write.
    pub fast_ns: u64,
    /// Of a write between.
    pub mid_ns: u64,
    /// Of a slow one.
    pub slow_ns: u64,
    /// From here on a write counts as slow.
    pub slow_from_ns: u64,
}

impl SizeLatency {
    fn of(&self, state: WriteState) -> u64 {
        match state {
            WriteState::Fast => self.fast_ns,
            WriteState::Mid => self.mid_ns,
            WriteState::Slow => self.slow_ns,
        }
    }
}

/// The mean time of a write, by lengths that were measured, ascending.
///
/// # Panics
/// If there are none.
pub fn latency(sizes: &[SizeLatency], state: WriteState, bytes: u64) -> Duration {
    along(sizes, bytes, |size| size.of(state))
}

/// From when on a write counts as slow.
///
/// # Panics
/// If there are no sizes.
pub fn slow_from(sizes: &[SizeLatency], bytes: u64) -> Duration {
    along(sizes, bytes, |size| size.slow_from_ns)
}

fn along(sizes: &[SizeLatency], bytes: u64, value: impl Fn(&SizeLatency) -> u64) -> Duration {
    let (low, high) = match sizes {
        [] => panic!("no length was measured"),
        [only] => (only, only),
        sizes => {
            let above = sizes.iter().position(|size| size.bytes >= bytes).unwrap_or(sizes.len() - 1).max(1);
            (&sizes[above - 1], &sizes[above])
        }
    };
    let (from, to) = (value(low) as f64, value(high) as f64);
    let least = if bytes > high.bytes { to } else { 0.0 };
    let part =
        if high.bytes == low.bytes { 0.0 } else { (bytes as f64 - low.bytes as f64) / (high.bytes - low.bytes) as f64 };
    Duration::from_nanos((from + (to - from) * part).max(least) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(bytes: u64, fast_ns: u64) -> SizeLatency {
        SizeLatency { bytes, fast_ns, mid_ns: 2 * fast_ns, slow_ns: 100 * fast_ns, slow_from_ns: 10 * fast_ns }
    }

    #[test]
    fn times_are_on_the_lines_between_lengths() {
        let sizes = [size(4, 40), size(16, 100), size(64, 340)];
        let fast = |bytes| latency(&sizes, WriteState::Fast, bytes).as_nanos();
        assert_eq!([fast(4), fast(10), fast(16), fast(40), fast(64)], [40, 70, 100, 220, 340]);
        // Beyond both ends.
        assert_eq!([fast(2), fast(128)], [30, 660]);
        assert_eq!(latency(&sizes, WriteState::Mid, 10).as_nanos(), 140);
        assert_eq!(latency(&sizes, WriteState::Slow, 10).as_nanos(), 7000);
        assert_eq!(slow_from(&sizes, 10).as_nanos(), 700);
        // A line that would go below zero, and a single length.
        assert_eq!(latency(&[size(100, 1), size(200, 1000)], WriteState::Fast, 10).as_nanos(), 0);
        assert_eq!(latency(&sizes[..1], WriteState::Fast, 99).as_nanos(), 40);
        // Of a long length that was quicker than a short one nothing follows for longer ones.
        let falling = [size(4, 40), size(16, 30)];
        assert_eq!([10, 16, 100].map(|bytes| latency(&falling, WriteState::Fast, bytes).as_nanos()), [35, 30, 30]);
    }
}
