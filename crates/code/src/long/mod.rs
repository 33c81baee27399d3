//! Reed-Solomon over GF(2^16), for stripes of more than 256 chunks.
//!
//! The code: with T the least power of two that is at least m, parity i stands at point i and data chunk j at point T + j
//! of `field16`; the group of T data chunks at a coset of the first T points has one polynomial of degree below T through
//! its data, and parity i is the sum of all groups' polynomials at point i. That is the Cauchy code of `cauchy16`, so it
//! is MDS: the group's Lagrange polynomial of x_j is s_t(x) + s_t(x_j) over (x + x_j), since the derivative of s_t is 1,
//! and at the parity points s_t(x) = 0.
//!
//! The sum is taken of coefficients in the novel polynomial basis X_i(x), the product of s_b(x) over the bits b of i:
//! an inverse additive FFT for each group, and one FFT of the sums. The butterfly on level b at point r has the factor
//! s_b(point(r)) = point(r >> b); below 256 that lies in GF(2^8), where a product costs half.
//!
//! Layout: alpha is 2. The first sub-chunk of a tile holds the low bytes of the symbols, the second their high bytes.
//!
//! Invariants:
//! 1. The codes of one T are nested: parity does not depend on m, and trailing data chunks that are not there are zeros.
//! 2. Recovery encodes what was read, zeros for what was not, and solves e equations for e lost data chunks; never k.
//! 3. Only plans are allocated; what encoding and recovery take besides is kept for the thread's next call.
//!
//! Left out: codes of k + T > 65,536, for which the field has no points.

mod cauchy16;
pub(crate) mod field16;
mod locate;

#[cfg(test)]
mod tests;

use std::cell::Cell;

use crate::{
    ChunkIndex, ChunkRead, CodeSpec, ErasureCode, LocateError, Method, ReadCosts, ReadPlan, Shape, Tier, Unrecoverable,
    UpdatePlan,
    code::{assert_data_part, copies, read_any},
    kernel::{
        self, Matrix,
        long::{Part, Wanted},
        scratch::lend_list,
    },
};

/// `rs:data+parity` with more than 256 chunks.
#[derive(Debug)]
pub(crate) struct LongReedSolomon {
    data: u16,
    parity: u16,
    tier: Tier,
    levels: u32,
}

impl LongReedSolomon {
    /// The points that a code of so many chunks takes: k + T.
    pub(crate) fn points(data: u16, parity: u16) -> u32 {
        u32::from(data) + u32::from(parity).next_power_of_two()
    }

    /// # Panics
    /// If there are no data or no parity chunks or more points than [`CodeSpec::POINTS_MAX`].
    pub(crate) fn new(data: u16, parity: u16, tier: Tier) -> Self {
        assert!(data > 0 && parity > 0, "no data or no parity chunks");
        assert!(Self::points(data, parity) <= CodeSpec::POINTS_MAX, "more points than the field has");
        Self { data, parity, tier, levels: u32::from(parity).next_power_of_two().ilog2() }
    }

    fn part<'a>(&self, first: usize, sources: &'a [&'a [u8]], tile: usize) -> Part<'a> {
        assert!(tile.is_multiple_of(2), "a tile of {tile} bytes is not two sub-chunks");
        Part { tier: self.tier, levels: self.levels, first, sources, sub_bytes: tile / 2 }
    }
}

impl ErasureCode for LongReedSolomon {
    fn spec(&self) -> CodeSpec {
        CodeSpec::ReedSolomon { data: self.data, parity: self.parity }
    }

    fn shape(&self) -> Shape {
        Shape { data: self.data, parity: self.parity, alpha: 2 }
    }

    fn tier(&self) -> Tier {
        self.tier
    }

    fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        assert_eq!(data.len(), usize::from(self.data), "one buffer for each data chunk");
        self.sum(0, data, parity, false);
    }

    fn encode_add(&self, first: ChunkIndex, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        assert_data_part(first, data.len(), self.data);
        self.sum(first.at(), data, parity, true);
    }

    #[expect(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]
    fn plan_read(&self, want: &[ChunkIndex], costs: &ReadCosts) -> Result<ReadPlan, Unrecoverable> {
        let (read, lost) = read_any(self.spec(), want, costs)?;
        let method = if lost.is_empty() {
            copies(want, &read)
        } else {
            let data_read = read.partition_point(|chunk| chunk.0 < self.data);
            let unread: Vec<u16> =
                (0..self.data).filter(|data| read.binary_search(&ChunkIndex(*data)).is_err()).collect();
            let parities: Vec<u16> =
                read[data_read..].iter().take(unread.len()).map(|chunk| chunk.0 - self.data).collect();
            let rows = cauchy16::solve(self.levels, self.data, &lost, &unread, &parities);
            Method::Syndromes { sums: planes(&rows, unread.len()) }
        };
        let reads = read.iter().map(|chunk| ChunkRead { chunk: *chunk, sub_chunks: vec![0..2] }).collect();
        Ok(ReadPlan { want: want.to_vec(), reads, method, alpha: 2 })
    }

    fn recover(&self, plan: &ReadPlan, fetched: &[&[u8]], out: &mut [&mut [u8]]) {
        assert_eq!(fetched.len(), plan.reads.len(), "one buffer for each read");
        assert_eq!(out.len(), plan.want.len(), "one buffer for each wanted chunk");
        match &plan.method {
            Method::Copy { from } => {
                for (out, from) in out.iter_mut().zip(from) {
                    out.copy_from_slice(fetched[usize::from(*from)]);
                }
            }
            Method::Syndromes { sums } => self.recover_lost(plan, sums, fetched, out),
            _ => panic!("not a plan of {}", self.spec()),
        }
    }

    fn locate(&self, chunks: &[Option<&[u8]>]) -> Result<Vec<ChunkIndex>, LocateError> {
        crate::locate::by_column(self, chunks, |column, most| {
            let symbol = |bytes: &Vec<u8>| u16::from_le_bytes([bytes[0], bytes[1]]);
            let column: Vec<Option<u16>> = column.iter().map(|bytes| bytes.as_ref().map(symbol)).collect();
            Ok(self.wrong(&column, most).filter(|found| !found.is_empty()))
        })
    }

    fn plan_update(&self, chunk: ChunkIndex) -> UpdatePlan {
        assert!(chunk.0 < self.data, "chunk {chunk} is no data chunk");
        let delta = |parity| (ChunkIndex(self.data + parity), cauchy16::coefficient(self.levels, parity, chunk.0));
        UpdatePlan::Delta((0..self.parity).map(delta).collect())
    }

    fn apply_delta(&self, coefficient: u16, delta: &[u8], parity: &mut [u8]) {
        assert_eq!(delta.len(), parity.len(), "delta and parity differ in length");
        assert!(delta.len().is_multiple_of(2), "a tile of {} bytes is not two sub-chunks", delta.len());
        let (low, high) = parity.split_at_mut(delta.len() / 2);
        let deltas = delta.split_at(delta.len() / 2);
        let [of_low, of_high] = [0, 1].map(|term| [0, 1].map(|row| field16::parts(coefficient)[2 * row + term]));
        kernel::add_products(self.tier, [of_low, of_high], deltas.into(), [low, high]);
    }
}

impl LongReedSolomon {
    fn sum(&self, first: usize, data: &[&[u8]], parity: &mut [&mut [u8]], kept: bool) {
        assert_eq!(parity.len(), usize::from(self.parity), "one buffer for each parity chunk");
        let tile = parity[0].len();
        assert!(data.iter().all(|data| data.len() == tile), "data and parity differ in length");
        kernel::long::encode(self.part(first, data, tile), parity, kept);
    }

    /// Copies what was read and recovers the rest in one pass.
    fn recover_lost(&self, plan: &ReadPlan, sums: &Matrix, fetched: &[&[u8]], out: &mut [&mut [u8]]) {
        let tile = fetched.first().map_or(0, |read| read.len());
        assert!(fetched.iter().all(|read| read.len() == tile), "reads differ in length");
        let syndromes = sums.terms() / 2;
        lend_list(&SOURCES, |sources: &mut Vec<&[u8]>| {
            lend_list(&KNOWN, |known: &mut Vec<(usize, &[u8])>| {
                sources.resize(self.data.into(), &[]);
                for (read, bytes) in plan.reads.iter().zip(fetched) {
                    match read.chunk.0.checked_sub(self.data) {
                        None => sources[read.chunk.at()] = bytes,
                        Some(parity) if known.len() < syndromes => known.push((usize::from(parity), *bytes)),
                        Some(_) => {}
                    }
                }
                assert_eq!(known.len(), syndromes, "one parity read for each syndrome");
                lend_list(&WANTED, |wanted: &mut Vec<Wanted>| {
                    for (chunk, out) in plan.want.iter().zip(out) {
                        match plan.reads.binary_search_by_key(chunk, |read| read.chunk) {
                            Ok(at) => out.copy_from_slice(fetched[at]),
                            Err(_) => {
                                wanted.push(Wanted { parity: chunk.0.checked_sub(self.data).map(usize::from), out });
                            }
                        }
                    }
                    assert_eq!(2 * wanted.len(), sums.rows(), "two rows for each lost chunk");
                    kernel::long::recover(self.part(0, sources, tile), known, sums, wanted);
                });
            });
        });
    }
}

thread_local! {
    static SOURCES: Cell<Vec<&'static [u8]>> = const { Cell::new(Vec::new()) };
    static KNOWN: Cell<Vec<(usize, &'static [u8])>> = const { Cell::new(Vec::new()) };
    static WANTED: Cell<Vec<Wanted<'static>>> = const { Cell::new(Vec::new()) };
}

/// A matrix over GF(2^16) as one over GF(2^8) on planes: rows and terms are low, high, low, high, ...
fn planes(rows: &[Vec<u16>], terms: usize) -> Matrix {
    Matrix::dense(2 * rows.len(), 2 * terms, |row, term| {
        field16::parts(rows[row / 2][term / 2])[2 * (row % 2) + term % 2]
    })
}
