//! The one interface of all codes.
//!
//! Invariants:
//! 1. A code is immutable and shared: any number of threads may call any method at once.
//! 2. `encode`, `encode_add`, `apply_delta` and `recover` work in the caller's buffers and allocate nothing, once a call
//!    like it was made on the thread (tested: `tests/allocations.rs`): what they need besides, and Clay's compiled plans,
//!    is kept. Only where `encode_add` says so it takes memory.
//! 3. Every byte of a result depends only on the bytes at the same offset within the sub-chunks read for it, so a
//!    tile may be cut at any `sub_bytes`, down to 1.
//!
//! Left out: tiling a stripe (the stripe layer cuts chunks into tiles of alpha sub-chunks).

use std::fmt::Debug;

use crate::{
    ChunkIndex, CodeSpec, LocateError, Method, ReadCosts, ReadPlan, Shape, Tier, Unrecoverable, UpdatePlan, locate,
};

/// An erasure code over tiles of `alpha * sub_bytes` bytes per chunk. `sub_bytes` is the caller's choice, any length at
/// any alignment, but it must be the same for encode and recover: other bytes are coupled otherwise.
pub trait ErasureCode: Send + Sync + Debug {
    /// The code's name.
    fn spec(&self) -> CodeSpec;

    /// The code's size.
    fn shape(&self) -> Shape;

    /// The instruction set that it runs with.
    fn tier(&self) -> Tier;

    /// Computes all parity of one tile: `data` holds k and `parity` m buffers, each `alpha * sub_bytes` long. What the
    /// parity buffers held before is ignored. Where alpha is 1, a tile may be as long as the chunk.
    ///
    /// # Panics
    /// If a count or a length is not as said.
    fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]);

    /// Adds to `parity` what the data chunks `first..first + data.len()` contribute to it: parity that held zeros holds
    /// the parity of a stripe once every data chunk was added, in groups of any size and order. With old data + new
    /// data (XOR) in place of data, it carries a change of these chunks to all parity at once.
    ///
    /// Groups of four and more are worth it: each call reads and writes all parity. Where a code does not do this by
    /// itself, which is Clay alone, it is done by encoding the rest as zeros, in memory of m + 1 chunks that each call
    /// allocates: where a whole tile fits, `encode` is better.
    ///
    /// # Panics
    /// If there are no such data chunks, or a count or a length is not as `encode` wants it.
    fn encode_add(&self, first: ChunkIndex, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        let shape = self.shape();
        assert_data_part(first, data.len(), shape.data);
        assert_eq!(parity.len(), usize::from(shape.parity), "one buffer for each parity chunk");
        let Some(bytes) = data.first().map(|data| data.len()) else {
            return;
        };
        let zeros = vec![0; bytes];
        let mut all = vec![&zeros[..]; shape.data.into()];
        all[first.at()..][..data.len()].copy_from_slice(data);
        let mut parts = vec![vec![0; bytes]; shape.parity.into()];
        self.encode(&all, &mut parts.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        for (part, parity) in parts.iter().zip(parity) {
            self.apply_delta(1, part, parity);
        }
    }

    /// Plans to get the chunks in `want`. One that can be read is read whole; the lost ones are recovered from what
    /// reads the fewest bytes in granules, and among equals from the cheapest chunks, lower index first. No plan reads
    /// more than reading the wanted chunks that are left, and further whole chunks up to k independent ones. A
    /// replicated code reads the cheapest copy, whichever was wanted.
    ///
    /// # Errors
    /// [`Unrecoverable`] if a wanted chunk is lost and the chunks that can be read do not determine it: fewer than k of
    /// an MDS code, and of codes with groups, rows and columns, fewer than k independent ones and no short check.
    ///
    /// # Panics
    /// If `costs.chunks` has not one entry per chunk, `costs.granule` is 0, or `want` names a chunk that is none or
    /// names one twice.
    fn plan_read(&self, want: &[ChunkIndex], costs: &ReadCosts) -> Result<ReadPlan, Unrecoverable>;

    /// Carries out a plan of this code on one tile. `fetched[i]` is the concatenation of the ranges of `plan.reads[i]`
    /// (see [`crate::ChunkRead::cut`]); `out[j]` is `alpha * sub_bytes` long and receives `plan.want[j]`.
    ///
    /// # Panics
    /// If a count or a length is not as said, or the plan is not one that this code makes.
    fn recover(&self, plan: &ReadPlan, fetched: &[&[u8]], out: &mut [&mut [u8]]);

    /// Names the chunks whose bytes are wrong though nobody said so, ascending; none if the stripe is right. `chunks[z]`
    /// is the tile of chunk z, `None` if it cannot be read. With r chunks to spare up to r / 2 wrong ones are found:
    /// m / 2 of a whole stripe under a code that tolerates any m losses. All bytes are checked. Reed-Solomon does so
    /// at the speed of encoding; copies by what most of them say; other codes by trial, which takes long where more than
    /// one chunk is wrong.
    ///
    /// # Errors
    /// [`LocateError::NothingToCheck`] if no chunk can be spared, [`LocateError::TooManyWrong`] if more are wrong than
    /// can be found and the bytes show it, [`LocateError::TooManySets`] if trial would take too long,
    /// [`LocateError::TooLong`] if a sub-chunk has 4 GiB.
    ///
    /// # Panics
    /// If a count or a length is not as said.
    fn locate(&self, chunks: &[Option<&[u8]>]) -> Result<Vec<ChunkIndex>, LocateError> {
        locate::by_trial(self, chunks)
    }

    /// How a change of the data chunk `chunk` reaches the parity.
    ///
    /// # Panics
    /// If `chunk` is no data chunk.
    fn plan_update(&self, chunk: ChunkIndex) -> UpdatePlan;

    /// Adds `coefficient * delta` to `parity`, in the code's field; delta is old data + new data (XOR).
    ///
    /// # Panics
    /// If the lengths differ, or the coefficient is not in the code's field.
    fn apply_delta(&self, coefficient: u16, delta: &[u8], parity: &mut [u8]);
}

/// Asserts that `want` and `costs` fit a code of `chunks` chunks.
pub(crate) fn assert_request(want: &[ChunkIndex], costs: &ReadCosts, chunks: u16) {
    assert_eq!(costs.chunks.len(), usize::from(chunks), "one cost per chunk");
    assert!(costs.granule > 0, "a granule of no bytes");
    let mut wanted = vec![false; usize::from(chunks)];
    for chunk in want {
        assert!(chunk.0 < chunks, "chunk {chunk} of {chunks}");
        assert!(!std::mem::replace(&mut wanted[chunk.at()], true), "chunk {chunk} is wanted twice");
    }
}

/// Asserts that the chunks `first..first + count` are data chunks.
pub(crate) fn assert_data_part(first: ChunkIndex, count: usize, data: u16) {
    assert!(first.at() + count <= usize::from(data), "chunks {first} to {} of {data} data chunks", first.at() + count);
}

/// A coefficient of a code over GF(2^8).
///
/// # Panics
/// If it is not in the field.
pub(crate) fn narrow(coefficient: u16) -> u8 {
    u8::try_from(coefficient).unwrap_or_else(|_| panic!("{coefficient} is not in GF(2^8)"))
}

/// What is read under a code any k chunks of which determine all: wanted chunks that are there, and if any is lost, the
/// cheapest others up to k. Returns the chunks to read, ascending, and the lost ones, in the order wanted.
pub(crate) fn read_any(
    spec: CodeSpec,
    want: &[ChunkIndex],
    costs: &ReadCosts,
) -> Result<(Vec<ChunkIndex>, Vec<u16>), Unrecoverable> {
    let shape = spec.shape();
    assert_request(want, costs, shape.chunks());
    let (mut read, lost): (Vec<ChunkIndex>, Vec<ChunkIndex>) =
        want.iter().partition(|chunk| costs.chunks[chunk.at()].is_some());
    let needed = usize::from(shape.data);
    if !lost.is_empty() {
        let rest = cheapest(costs, &read, needed.saturating_sub(read.len()));
        read.extend(rest);
        if read.len() < needed {
            let count = |len: usize| u16::try_from(len).expect("at most 65,535 chunks");
            return Err(Unrecoverable {
                spec,
                wanted_lost: count(lost.len()),
                available: count(read.len()),
                needed: shape.data,
                chunks: shape.chunks(),
            });
        }
    }
    read.sort_unstable();
    Ok((read, lost.into_iter().map(|chunk| chunk.0).collect()))
}

/// Where the wanted chunks are among those that are read, if none is lost.
///
/// # Panics
/// If one is not read.
pub(crate) fn copies(want: &[ChunkIndex], read: &[ChunkIndex]) -> Method {
    let place = |chunk: &ChunkIndex| read.binary_search(chunk).expect("every wanted chunk is read");
    Method::Copy {
        from: want.iter().map(|chunk| u16::try_from(place(chunk)).expect("at most 65,535 chunks")).collect(),
    }
}

/// The `count` cheapest chunks that can be read and are not in `taken`, lower index first among equals.
pub(crate) fn cheapest(costs: &ReadCosts, taken: &[ChunkIndex], count: usize) -> Vec<ChunkIndex> {
    let mut costs = costs.chunks.to_vec();
    for chunk in taken {
        costs[chunk.at()] = None;
    }
    let mut rest: Vec<(u32, u16)> =
        (0..=u16::MAX).zip(costs).filter_map(|(chunk, cost)| cost.map(|cost| (cost, chunk))).collect();
    rest.sort_unstable();
    rest.truncate(count);
    rest.into_iter().map(|(_, chunk)| ChunkIndex(chunk)).collect()
}
