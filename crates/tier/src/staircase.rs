//! What sequential writes took, and what that says about the drive's buffer.
//!
//! Invariants:
//! 1. A finding is made from the times alone, whatever drive they are of.
//! 2. A drive has a profile only if slow writes stand apart from all others by [`GAP`] and come after bytes that can be told in
//!    advance: that of a solid-state drive or a virtual disk mostly does not, and then it is said why.

use std::fmt;

use crate::latency::SizeLatency;
use crate::profile::{FORMAT_VERSION, Profile};
use crate::stage::StageBytes;

/// Writes of one length, one behind the other, after a sync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Length of each.
    pub bytes: u64,
    /// Nanoseconds of each, in their order.
    pub took_ns: Vec<u64>,
}

/// What was measured of a drive: runs of several lengths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staircase {
    /// The drive, as a person knows it.
    pub device: String,
    /// In the order in which they were made.
    pub runs: Vec<Run>,
}

/// What a staircase says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// Slow writes can be told in advance.
    Buffered(Profile),
    /// They cannot.
    Unpredictable(Irregularity),
}

/// Why slow writes cannot be told in advance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Irregularity {
    /// No writes stand apart from the others.
    NoSlowWrites,
    /// Some do, but too few stages between them were seen whole.
    TooFewStages {
        /// How many.
        seen: u32,
    },
    /// They come after anything.
    NoOrder {
        /// Which bytes: "before the first", "between two".
        stage: &'static str,
        /// What they come after.
        bytes: StageBytes,
    },
    /// So many are slow that a stage hardly takes a write.
    TooShort {
        /// What they come after.
        bytes: StageBytes,
    },
}

impl fmt::Display for Irregularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Irregularity::NoSlowWrites => write!(
                f,
                "no writes are slower than all others by more than {GAP} times: it buffers nothing, or more than was written, \
                 as solid-state drives and virtual disks do"
            ),
            Irregularity::TooFewStages { seen } => write!(
                f,
                "only {seen} stages between slow writes were seen whole, {STAGES_MIN} are wanted: more must be written"
            ),
            Irregularity::NoOrder { stage, bytes } => write!(
                f,
                "there are slow writes, but not after bytes that could be told in advance: {stage} slow write(s) {} KiB on the \
                 average, with a deviation of {} KiB, as on solid-state drives and virtual disks",
                bytes.mean >> 10,
                bytes.deviation >> 10
            ),
            Irregularity::TooShort { bytes } => {
                write!(f, "slow writes come after {} KiB, and as little as {} KiB", bytes.mean >> 10, bytes.least >> 10)
            }
        }
    }
}

impl Run {
    /// From how many nanoseconds on its writes are slow: in the widest gap, in ratios, above the median; `None` where it is
    /// not wide.
    // Source: [bcw §HDD Write Behaviors]; the notes leave the two thresholds open.
    pub fn slow_from_ns(&self) -> Option<u64> {
        let mut sorted = self.took_ns.clone();
        sorted.sort_unstable();
        let upper = &sorted[sorted.len() / 2..];
        let ratio = |pair: &[u64]| pair[1] as f64 / pair[0].max(1) as f64;
        let widest = upper.windows(2).max_by(|one, two| ratio(one).total_cmp(&ratio(two)))?;
        (ratio(widest) >= GAP).then(|| (widest[0].max(1) as f64 * widest[1] as f64).sqrt() as u64)
    }
}

/// Stages of a run, in bytes, and the times of its writes by stage.
#[derive(Debug, Default)]
struct Stages {
    fast: Vec<u64>,
    mid: Vec<u64>,
    slow: Vec<u64>,
    fast_ns: Vec<u64>,
    mid_ns: Vec<u64>,
    slow_ns: Vec<u64>,
}

impl Stages {
    fn add(&mut self, run: &Run, slow_from_ns: u64) {
        // Bytes of the present stage, and of the slow one before it.
        let (mut taken, mut slow, mut is_first) = (0, 0, true);
        for &took in &run.took_ns {
            if took >= slow_from_ns {
                if taken > 0 || is_first {
                    if is_first { &mut self.fast } else { &mut self.mid }.push(taken);
                    (is_first, taken) = (false, 0);
                }
                slow += run.bytes;
                self.slow_ns.push(took);
            } else {
                if slow > 0 {
                    self.slow.push(slow);
                    slow = 0;
                }
                taken += run.bytes;
                if is_first { &mut self.fast_ns } else { &mut self.mid_ns }.push(took);
            }
        }
    }
}

impl Staircase {
    /// What it says.
    pub fn finding(&self) -> Finding {
        match self.profile() {
            Ok(profile) => Finding::Buffered(profile),
            Err(irregularity) => Finding::Unpredictable(irregularity),
        }
    }

    fn profile(&self) -> Result<Profile, Irregularity> {
        let mut lengths: Vec<u64> = self.runs.iter().map(|run| run.bytes).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let mut all = Stages::default();
        let mut sizes = Vec::new();
        for bytes in lengths {
            let runs = || self.runs.iter().filter(|run| run.bytes == bytes);
            let together = Run { bytes, took_ns: runs().flat_map(|run| run.took_ns.iter().copied()).collect() };
            let slow_from_ns = together.slow_from_ns().ok_or(Irregularity::NoSlowWrites)?;
            let mut of_size = Stages::default();
            runs().for_each(|run| of_size.add(run, slow_from_ns));
            let fast_ns = mean(&of_size.fast_ns);
            let mid_ns = if of_size.mid_ns.is_empty() { fast_ns } else { mean(&of_size.mid_ns) };
            sizes.push(SizeLatency { bytes, fast_ns, mid_ns, slow_ns: mean(&of_size.slow_ns), slow_from_ns });
            all.fast.extend(of_size.fast);
            all.mid.extend(of_size.mid);
            all.slow.extend(of_size.slow);
        }
        let stage = |bytes: &[u64]| StageBytes::of(bytes).ok_or(Irregularity::TooFewStages { seen: 0 });
        let (fast, mid, slow) = (stage(&all.fast)?, stage(&all.mid)?, stage(&all.slow)?);
        if mid.seen < STAGES_MIN {
            return Err(Irregularity::TooFewStages { seen: mid.seen });
        }
        for (name, bytes) in [("before the first", fast), ("between two", mid)] {
            if !bytes.is_regular() {
                return Err(Irregularity::NoOrder { stage: name, bytes });
            }
            if sizes.last().is_some_and(|size| bytes.limit() < size.bytes) {
                return Err(Irregularity::TooShort { bytes });
            }
        }
        Ok(Profile { version: FORMAT_VERSION, device: self.device.clone(), fast, mid, slow, sizes })
    }
}

fn mean(of: &[u64]) -> u64 {
    let sum: u128 = of.iter().map(|value| u128::from(*value)).sum();
    (sum / of.len().max(1) as u128) as u64
}

/// How many times longer the quickest slow write takes than the slowest other one.
pub const GAP: f64 = 3.0;
/// Stages between slow writes that must be seen.
const STAGES_MIN: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of a drive that takes `fast` writes, then `mid` writes again and again, one slow one between.
    fn run(bytes: u64, fast: usize, mids: &[usize], unit_ns: u64) -> Run {
        let mut took_ns = vec![unit_ns; fast];
        for mid in mids {
            took_ns.push(12_000_000);
            took_ns.extend((0..*mid).map(|at| unit_ns * 3 / 2 + at as u64 % 7));
        }
        Run { bytes, took_ns }
    }

    fn staircase(runs: Vec<Run>) -> Staircase {
        Staircase { device: "a drive".to_owned(), runs }
    }

    // Test of: [bcw §HDD Write Behaviors]
    #[test]
    fn stages_are_found_by_their_bytes() {
        let runs = vec![
            run(4096, 4096, &[2048, 2000, 2100, 2048, 5], 35_000),
            run(65536, 256, &[128, 125, 131, 128, 7], 180_000),
        ];
        let Finding::Buffered(profile) = staircase(runs).finding() else { panic!("a buffer") };
        profile.check().expect("a profile that can be used");
        assert_eq!((profile.fast.mean, profile.fast.deviation, profile.fast.seen), (16 << 20, 0, 2));
        // The last stage of each run is not whole.
        assert_eq!(profile.mid.seen, 8);
        assert!(profile.mid.mean.abs_diff(8 << 20) < 64 << 10, "{:?}", profile.mid);
        assert_eq!(profile.mid.least, 2000 * 4096);
        assert_eq!(profile.slow.mean, (4096 + 65536) / 2);
        assert_eq!((profile.sizes[0].fast_ns, profile.sizes[0].slow_ns), (35_000, 12_000_000));
        assert!(profile.sizes[1].mid_ns.abs_diff(270_000) < 10, "{:?}", profile.sizes);
    }

    #[test]
    fn what_has_no_such_buffer_is_told_why() {
        let why = |took_ns: Vec<u64>| match staircase(vec![Run { bytes: 4096, took_ns }]).finding() {
            Finding::Unpredictable(why) => why,
            Finding::Buffered(profile) => panic!("{profile:?}"),
        };
        assert_eq!(why((0..1000).map(|at| 30_000 + at * 17 % 20_000).collect()), Irregularity::NoSlowWrites);
        assert_eq!(why(vec![]), Irregularity::NoSlowWrites);
        // Collections of a solid-state drive: after anything.
        let mut numbers = 12345u64;
        let mut chance = || {
            numbers = numbers.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            numbers >> 33
        };
        let ssd: Vec<u64> = (0..20_000).map(|_| if chance() % 100 == 0 { 5_000_000 } else { 30_000 }).collect();
        let irregular = why(ssd);
        assert!(matches!(irregular, Irregularity::NoOrder { .. }), "{irregular:?}");
        assert!(irregular.to_string().contains("not after bytes that could be told"), "{irregular}");
        let few = why(run(4096, 100, &[50, 50], 35_000).took_ns);
        assert!(matches!(few, Irregularity::TooFewStages { seen: 1 }), "{few:?}");
    }
}
