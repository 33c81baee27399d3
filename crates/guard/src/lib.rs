//! Erasure codes for callers who may be wrong: every argument is checked, nothing panics.
//!
//! `claystone-code` asserts what its callers promise. What stands between it and other languages cannot promise: the C
//! library and the Python package call [`Guard`] instead.
//!
//! Invariants:
//! 1. Whatever the arguments, a method returns; if it returns an error, no buffer was written.
//! 2. A plan is carried out only by the code that made it: [`Plan`] cannot be made otherwise.
//!
//! Left out: what a caller's pointers point to (`capi`, the Python package).

use std::ops::Range;
use std::sync::Arc;

use claystone_code::{
    ChunkIndex, CodeSpec, ErasureCode, ReadCosts, ReadPlan, Shape, SpecError, Unrecoverable, UpdatePlan,
};
use thiserror::Error;

#[cfg(test)]
mod tests;

/// A code whose methods check their arguments.
#[derive(Clone, Debug)]
pub struct Guard(Arc<dyn ErasureCode>);

/// What to read, made by one code.
#[derive(Clone, Debug)]
pub struct Plan {
    plan: ReadPlan,
    spec: CodeSpec,
}

/// What was wrong with a call.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Misuse {
    /// The spec names no code.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// Too much is lost.
    #[error(transparent)]
    Unrecoverable(#[from] Unrecoverable),
    /// A wrong number of something.
    #[error("{got} {what} were given, {expected} are needed")]
    Count {
        /// Of what.
        what: &'static str,
        /// How many there are.
        got: usize,
        /// How many it takes.
        expected: usize,
    },
    /// A buffer of another length than the others.
    #[error("{what} {at} has {got} bytes, {expected} are needed")]
    Length {
        /// Which kind of buffer.
        what: &'static str,
        /// Which of them.
        at: usize,
        /// Its bytes.
        got: usize,
        /// The bytes it takes.
        expected: usize,
    },
    /// A tile that does not divide into sub-chunks.
    #[error("a tile of {bytes} bytes does not divide into {alpha} sub-chunks")]
    Tile {
        /// Its bytes.
        bytes: usize,
        /// Sub-chunks of the code.
        alpha: u32,
    },
    /// A chunk that the code has not.
    #[error("there is no {what} {chunk}: the code has {count}, counted from {first}")]
    NoSuchChunk {
        /// Chunk, data chunk or parity chunk.
        what: &'static str,
        /// What was asked for.
        chunk: u16,
        /// The first one.
        first: u16,
        /// How many there are.
        count: u16,
    },
    /// A chunk that is wanted twice.
    #[error("chunk {chunk} is wanted twice")]
    WantedTwice {
        /// The chunk.
        chunk: u16,
    },
    /// A number that must not be 0.
    #[error("{what} must not be 0")]
    Zero {
        /// Which.
        what: &'static str,
    },
    /// A plan of another code.
    #[error("this plan was made by {made_by}, not by {code}")]
    ForeignPlan {
        /// Its code.
        made_by: CodeSpec,
        /// The code that was asked.
        code: CodeSpec,
    },
    /// Bytes that are written are in two buffers.
    #[error("a buffer to be written overlaps another buffer")]
    Overlap,
    /// The code has no such deltas.
    #[error("{code} changes its parity by encoding the tile again, not by differences")]
    NoDelta {
        /// The code.
        code: CodeSpec,
    },
}

impl Guard {
    /// Makes a code of its name, such as `clay:4+2:5`.
    ///
    /// # Errors
    /// [`Misuse::Spec`].
    pub fn new(spec: &str) -> Result<Guard, Misuse> {
        Ok(Guard(spec.parse::<CodeSpec>()?.build()?))
    }

    /// The code's name.
    pub fn spec(&self) -> CodeSpec {
        self.0.spec()
    }

    /// The code's size.
    pub fn shape(&self) -> Shape {
        self.0.shape()
    }

    /// Computes all parity of one tile.
    ///
    /// # Errors
    /// [`Misuse::Count`], [`Misuse::Length`], [`Misuse::Tile`].
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<(), Misuse> {
        let shape = self.shape();
        count("data buffers", data.len(), shape.data.into())?;
        count("parity buffers", parity.len(), shape.parity.into())?;
        let tile = data.first().map_or(0, |data| data.len());
        self.check_tile(tile)?;
        lengths("data buffer", data.iter().map(|data| data.len()), tile)?;
        lengths("parity buffer", parity.iter().map(|parity| parity.len()), tile)?;
        if tile > 0 {
            self.0.encode(data, parity);
        }
        Ok(())
    }

    /// Adds the data chunks from `first` on to the parity of one tile.
    ///
    /// # Errors
    /// [`Misuse::Count`], [`Misuse::Length`], [`Misuse::Tile`], [`Misuse::NoSuchChunk`].
    pub fn encode_add(&self, first: u16, data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<(), Misuse> {
        let shape = self.shape();
        count("parity buffers", parity.len(), shape.parity.into())?;
        if first >= shape.data {
            return Err(no_such("data chunk", first, 0, shape.data));
        }
        let room = usize::from(shape.data - first);
        if data.len() > room {
            return Err(Misuse::Count { what: "data buffers from there on", got: data.len(), expected: room });
        }
        let Some(tile) = data.first().map(|data| data.len()) else { return Ok(()) };
        self.check_tile(tile)?;
        lengths("data buffer", data.iter().map(|data| data.len()), tile)?;
        lengths("parity buffer", parity.iter().map(|parity| parity.len()), tile)?;
        if tile > 0 {
            self.0.encode_add(ChunkIndex(first), data, parity);
        }
        Ok(())
    }

    /// Plans to get the chunks in `want`; `costs` has one entry per chunk, `None` where it cannot be read.
    ///
    /// # Errors
    /// [`Misuse::Count`], [`Misuse::NoSuchChunk`], [`Misuse::WantedTwice`], [`Misuse::Zero`],
    /// [`Misuse::Unrecoverable`].
    pub fn plan_read(&self, want: &[u16], costs: &[Option<u32>], sub_bytes: u32, granule: u32) -> Result<Plan, Misuse> {
        let chunks = self.shape().chunks();
        count("costs", costs.len(), chunks.into())?;
        let mut seen = vec![false; chunks.into()];
        for chunk in want {
            let Some(seen) = seen.get_mut(usize::from(*chunk)) else {
                return Err(no_such("chunk", *chunk, 0, chunks));
            };
            if std::mem::replace(seen, true) {
                return Err(Misuse::WantedTwice { chunk: *chunk });
            }
        }
        for (what, number) in [("sub_bytes", sub_bytes), ("granule", granule)] {
            if number == 0 {
                return Err(Misuse::Zero { what });
            }
        }
        let want: Vec<ChunkIndex> = want.iter().copied().map(ChunkIndex).collect();
        let plan = self.0.plan_read(&want, &ReadCosts { chunks: costs, sub_bytes, granule })?;
        Ok(Plan { plan, spec: self.spec() })
    }

    /// Carries out a plan on one tile: `fetched[i]` is what `plan.reads[i]` names, `out[j]` receives `plan.want[j]`.
    ///
    /// # Errors
    /// [`Misuse::ForeignPlan`], [`Misuse::Count`], [`Misuse::Length`], [`Misuse::Tile`].
    pub fn recover(&self, plan: &Plan, fetched: &[&[u8]], out: &mut [&mut [u8]]) -> Result<(), Misuse> {
        if plan.spec != self.spec() {
            return Err(Misuse::ForeignPlan { made_by: plan.spec, code: self.spec() });
        }
        let reads = &plan.plan.reads;
        count("fetched buffers", fetched.len(), reads.len())?;
        count("out buffers", out.len(), plan.plan.want.len())?;
        let Some(tile) = out.first().map(|out| out.len()) else { return Ok(()) };
        self.check_tile(tile)?;
        lengths("out buffer", out.iter().map(|out| out.len()), tile)?;
        let sub_bytes = tile / self.shape().alpha as usize;
        for (at, (read, fetched)) in reads.iter().zip(fetched).enumerate() {
            let expected = read.sub_chunks_total() as usize * sub_bytes;
            if fetched.len() != expected {
                return Err(Misuse::Length { what: "fetched buffer", at, got: fetched.len(), expected });
            }
        }
        if tile > 0 {
            self.0.recover(&plan.plan, fetched, out);
        }
        Ok(())
    }

    /// How a change of a data chunk reaches the parity.
    ///
    /// # Errors
    /// [`Misuse::NoSuchChunk`].
    pub fn plan_update(&self, chunk: u16) -> Result<UpdatePlan, Misuse> {
        let data = self.shape().data;
        if chunk >= data {
            return Err(no_such("data chunk", chunk, 0, data));
        }
        Ok(self.0.plan_update(ChunkIndex(chunk)))
    }

    /// Brings `parity`, bytes of the parity chunk `parity_chunk`, up to date after the data chunk `chunk` changed by
    /// `delta` (old bytes XOR new bytes) at the same place.
    ///
    /// # Errors
    /// [`Misuse::NoSuchChunk`], [`Misuse::Length`], [`Misuse::Tile`], [`Misuse::NoDelta`].
    pub fn apply_delta(&self, chunk: u16, parity_chunk: u16, delta: &[u8], parity: &mut [u8]) -> Result<(), Misuse> {
        let shape = self.shape();
        if !(shape.data..shape.chunks()).contains(&parity_chunk) {
            return Err(no_such("parity chunk", parity_chunk, shape.data, shape.parity));
        }
        let UpdatePlan::Delta(parities) = self.plan_update(chunk)? else {
            return Err(Misuse::NoDelta { code: self.spec() });
        };
        lengths("parity buffer", [parity.len()].into_iter(), delta.len())?;
        self.check_tile(delta.len())?;
        let touched = parities.iter().find(|(touched, _)| touched.0 == parity_chunk);
        if let Some((_, coefficient)) = touched.filter(|_| !delta.is_empty()) {
            self.0.apply_delta(*coefficient, delta, parity);
        }
        Ok(())
    }

    fn check_tile(&self, bytes: usize) -> Result<(), Misuse> {
        let alpha = self.shape().alpha;
        if bytes.is_multiple_of(alpha as usize) { Ok(()) } else { Err(Misuse::Tile { bytes, alpha }) }
    }
}

impl Plan {
    /// The plan as data.
    pub fn data(&self) -> &ReadPlan {
        &self.plan
    }

    /// Bytes that a plan reads of a tile when a store reads whole granules.
    ///
    /// # Errors
    /// [`Misuse::Zero`].
    pub fn bytes_read(&self, sub_bytes: u32, granule: u32) -> Result<u64, Misuse> {
        if granule == 0 {
            return Err(Misuse::Zero { what: "granule" });
        }
        Ok(self.plan.bytes_read(sub_bytes, granule))
    }
}

/// Checks that no byte of `written` is in another range, of either kind; ranges are addresses.
///
/// # Errors
/// [`Misuse::Overlap`].
pub fn check_apart(read: &[Range<usize>], written: &[Range<usize>]) -> Result<(), Misuse> {
    let kinds = [(read, false), (written, true)];
    let mut ranges: Vec<(usize, usize, bool)> = kinds
        .iter()
        .flat_map(|(ranges, is_written)| ranges.iter().map(|range| (range.start, range.end, *is_written)))
        .filter(|(start, end, _)| start < end)
        .collect();
    ranges.sort_unstable();
    // How far the bytes go that were seen, and those of them to be written.
    let (mut seen_end, mut written_end) = (0, 0);
    for (start, end, is_written) in ranges {
        if start < written_end || (is_written && start < seen_end) {
            return Err(Misuse::Overlap);
        }
        seen_end = seen_end.max(end);
        if is_written {
            written_end = written_end.max(end);
        }
    }
    Ok(())
}

fn count(what: &'static str, got: usize, expected: usize) -> Result<(), Misuse> {
    if got == expected { Ok(()) } else { Err(Misuse::Count { what, got, expected }) }
}

fn lengths(what: &'static str, lengths: impl Iterator<Item = usize>, expected: usize) -> Result<(), Misuse> {
    match lengths.enumerate().find(|(_, got)| *got != expected) {
        Some((at, got)) => Err(Misuse::Length { what, at, got, expected }),
        None => Ok(()),
    }
}

fn no_such(what: &'static str, chunk: u16, first: u16, count: u16) -> Misuse {
    Misuse::NoSuchChunk { what, chunk, first, count }
}
