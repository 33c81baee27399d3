//! Figures of one code, asked of the code itself.
//!
//! Invariants:
//! 1. What is read is what the code's plans read, in whole sectors, with all other chunks there and equally cheap.
//! 2. Figures but `tier` and `encode_gb_s` are the same on every machine.

use std::time::Duration;

use anyhow::Context;
use claystone_code::{ChunkIndex, CodeSpec, ErasureCode, ReadCosts, UpdatePlan};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// What `claystone code info` says of a code.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// The spec.
    pub code: String,
    /// Data chunks.
    pub data: u16,
    /// Parity chunks.
    pub parity: u16,
    /// Bytes stored for each byte.
    pub overhead: f64,
    /// Chunks that may be lost, whichever they are.
    pub tolerance: u16,
    /// Sub-chunks in a tile.
    pub sub_chunks: u32,
    /// Bytes read for each lost byte when one chunk is lost, the mean over all chunks.
    pub repair_one: f64,
    /// The same when two are lost, over pairs; `None` if two are too many.
    pub repair_two: Option<f64>,
    /// Parity chunks that are written when a part of one data chunk changes, the mean over data chunks.
    pub update_writes: f64,
    /// Whether such a change reaches the parity as a difference: else the row is read and encoded anew.
    pub update_by_delta: bool,
    /// The instruction set that it runs with.
    pub tier: String,
    /// Data encoded by one thread, 10^9 bytes a second of its CPU time, 64 KiB chunks; `None` if not measured.
    pub encode_gb_s: Option<f64>,
}

impl Figures {
    /// Asks a code.
    ///
    /// # Errors
    /// The spec names no code.
    pub fn of(spec: CodeSpec, measure: bool) -> anyhow::Result<Figures> {
        let code = spec.build().with_context(|| spec.to_string())?;
        let shape = code.shape();
        let chunks = shape.chunks();
        let ones: Vec<Vec<ChunkIndex>> = sample(usize::from(chunks), PATTERNS_MAX)
            .map(|chunk| vec![ChunkIndex(u16::try_from(chunk).expect("one of the chunks"))])
            .collect();
        let count = usize::from(chunks) * usize::from(chunks - 1) / 2;
        let twos: Vec<Vec<ChunkIndex>> = sample(count, PATTERNS_MAX).map(|at| pair(at, chunks).into()).collect();
        let updates: Vec<UpdatePlan> = sample(usize::from(shape.data), PATTERNS_MAX)
            .map(|chunk| code.plan_update(ChunkIndex(u16::try_from(chunk).expect("one of the chunks"))))
            .collect();
        let writes = |plan: &UpdatePlan| match plan {
            UpdatePlan::Delta(parities) => parities.len(),
            UpdatePlan::Reencode => usize::from(shape.parity),
        };
        Ok(Figures {
            code: spec.to_string(),
            data: shape.data,
            parity: shape.parity,
            overhead: f64::from(chunks) / f64::from(shape.data),
            tolerance: spec.tolerance(),
            sub_chunks: shape.alpha,
            repair_one: if spec.tolerance() > 0 { read_per_lost(&*code, &ones)? } else { 0.0 },
            repair_two: if spec.tolerance() > 1 { Some(read_per_lost(&*code, &twos)?) } else { None },
            update_writes: updates.iter().map(writes).sum::<usize>() as f64 / updates.len() as f64,
            update_by_delta: updates.iter().all(|plan| matches!(plan, UpdatePlan::Delta(_))),
            tier: code.tier().to_string(),
            encode_gb_s: measure.then(|| encode_gb_s(&*code)),
        })
    }
}

/// Bytes read for each byte lost, over these losses.
fn read_per_lost(code: &dyn ErasureCode, losses: &[Vec<ChunkIndex>]) -> anyhow::Result<f64> {
    let shape = code.shape();
    let (mut read, mut lost) = (0, 0);
    for loss in losses {
        let costs: Vec<Option<u32>> =
            (0..shape.chunks()).map(|chunk| (!loss.contains(&ChunkIndex(chunk))).then_some(1)).collect();
        let costs = ReadCosts { chunks: &costs, sub_bytes: SECTOR, granule: SECTOR };
        read += code.plan_read(loss, &costs)?.bytes_read(SECTOR, SECTOR);
        lost += loss.len() as u64 * u64::from(shape.alpha) * u64::from(SECTOR);
    }
    Ok(read as f64 / lost as f64)
}

/// At most `most` of `0..count`, evenly.
fn sample(count: usize, most: usize) -> impl Iterator<Item = usize> {
    let taken = count.min(most);
    (0..taken).map(move |at| at * count / taken.max(1))
}

/// The pair of chunks with the number `at`, below `chunks * (chunks - 1) / 2`, where 0-1, 0-2, .., 1-2, .. are counted: two
/// thousand million of 65,535 chunks, which are not gone through.
fn pair(at: usize, chunks: u16) -> [ChunkIndex; 2] {
    let mut rest = at;
    for one in 0..chunks {
        let pairs = usize::from(chunks - one - 1);
        if rest < pairs {
            let behind = u16::try_from(rest).expect("fewer than chunks");
            return [ChunkIndex(one), ChunkIndex(one + 1 + behind)];
        }
        rest -= pairs;
    }
    panic!("{chunks} chunks have no pair {at}")
}

/// The best of several rounds: what the code can do when nobody else uses the core.
fn encode_gb_s(code: &dyn ErasureCode) -> f64 {
    let shape = code.shape();
    let tile = (CHUNK_BYTES / shape.alpha as usize).max(1) * shape.alpha as usize;
    let data: Vec<Vec<u8>> = (0..shape.data).map(|chunk| vec![(chunk % 251) as u8 + 1; tile]).collect();
    let mut parity = vec![vec![0; tile]; usize::from(shape.parity)];
    let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
    code.encode(&data, &mut parity);
    let bytes = data.len() * tile;
    let mut best: f64 = 0.0;
    for _ in 0..ROUNDS {
        let start = cpu_time();
        let mut times = 0;
        let spent = loop {
            code.encode(&data, &mut parity);
            times += 1;
            let spent = cpu_time() - start;
            if spent >= ROUND {
                break spent;
            }
        };
        best = best.max((bytes * times) as f64 / spent.as_secs_f64() / 1e9);
    }
    best
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Losses that are planned for a figure; of more, evenly chosen ones.
const PATTERNS_MAX: usize = 256;
const SECTOR: u32 = 4096;
const CHUNK_BYTES: usize = 64 << 10;
const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_millis(8);

#[cfg(test)]
mod tests {
    use super::*;

    fn of(spec: &str) -> Figures {
        Figures::of(spec.parse().expect("a spec"), false).expect("figures")
    }

    #[test]
    fn figures_are_those_of_the_theory() {
        let rs = of("rs:4+2");
        assert_eq!((rs.overhead, rs.tolerance, rs.repair_one, rs.repair_two), (1.5, 2, 4.0, Some(2.0)));
        assert_eq!((rs.update_writes, rs.update_by_delta), (2.0, true));
        let clay = of("clay:4+2:5");
        assert_eq!((clay.repair_one, clay.repair_two, clay.sub_chunks), (2.5, Some(2.0), 8));
        assert!(!clay.update_by_delta);
        let replica = of("replica:3");
        assert_eq!((replica.overhead, replica.repair_one, replica.tolerance), (3.0, 1.0, 2));
        assert_eq!(of("rs:3+1").repair_two, None);
    }

    #[test]
    fn speed_is_measured() {
        let figures = Figures::of("rs:4+2".parse().expect("a spec"), true).expect("figures");
        assert!(figures.encode_gb_s.expect("measured") > 0.01);
    }

    #[test]
    fn pairs_are_counted_by_their_first_chunk() {
        for chunks in [2, 3, 4, 23] {
            let all = (0..chunks).flat_map(|one| (one + 1..chunks).map(move |two| [one, two].map(ChunkIndex)));
            let all: Vec<_> = all.collect();
            assert!((0..all.len()).map(|at| pair(at, chunks)).eq(all), "{chunks}");
        }
        let count = 65_535 * 65_534 / 2;
        assert_eq!(pair(65_533, u16::MAX), [0, 65_534].map(ChunkIndex));
        assert_eq!(pair(65_534, u16::MAX), [1, 2].map(ChunkIndex));
        assert_eq!(pair(count - 1, u16::MAX), [65_533, 65_534].map(ChunkIndex));
    }

    /// Of the two thousand million pairs of chunks 256 are planned, and no other is looked at.
    #[test]
    fn figures_of_the_longest_codes_are_of_a_sample() {
        let longest = of("rs:65531+4");
        assert_eq!((longest.repair_one, longest.repair_two), (65_531.0, Some(32_765.5)));
    }

    #[test]
    fn samples_are_even_and_never_more_than_there_are() {
        assert_eq!(sample(3, 10).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(sample(10, 5).collect::<Vec<_>>(), [0, 2, 4, 6, 8]);
        assert_eq!(sample(0, 5).count(), 0);
    }
}
