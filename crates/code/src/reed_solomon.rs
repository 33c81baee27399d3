//! Systematic Reed-Solomon over GF(2^8), with our matrix or that of another library (`grs`).
//!
//! Invariants:
//! 1. With our matrix parity 0 is the XOR of the data, so a single loss among data and parity 0 is repaired without a product.
//! 2. A recovery is one pass over k reads that makes lost data and lost parity together.
//! 3. `encode`, `encode_add` and `apply_delta` allocate nothing.

use crate::{
    ChunkIndex, ChunkRead, CodeSpec, ErasureCode, LocateError, Method, ReadCosts, ReadPlan, Shape, Tier, Unrecoverable,
    UpdatePlan,
    code::{assert_data_part, copies, narrow, read_any},
    grs::Grs,
    kernel::{self, Matrix},
    locate, recover,
};

/// `rs:data+parity`, `isal:data+parity` or `klauspost:data+parity`.
#[derive(Debug)]
pub(crate) struct ReedSolomon {
    spec: CodeSpec,
    tier: Tier,
    generator: Grs,
    encoder: Matrix,
}

impl ReedSolomon {
    /// `generator` must be that of `spec`.
    pub(crate) fn new(spec: CodeSpec, generator: Grs, tier: Tier) -> Self {
        let index = |at: usize| u16::try_from(at).expect("at most 256 chunks");
        let Shape { data, parity, .. } = spec.shape();
        let coefficient = |row, term| generator.coefficient(index(row), index(term));
        Self { spec, tier, encoder: Matrix::dense(parity.into(), data.into(), coefficient), generator }
    }
}

impl ErasureCode for ReedSolomon {
    fn spec(&self) -> CodeSpec {
        self.spec
    }

    fn shape(&self) -> Shape {
        self.spec.shape()
    }

    fn tier(&self) -> Tier {
        self.tier
    }

    fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        self.encoder.combine(self.tier, data, parity);
    }

    fn encode_add(&self, first: ChunkIndex, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        assert_data_part(first, data.len(), self.generator.data());
        self.encoder.accumulate(self.tier, first.at(), data, parity);
    }

    #[expect(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]
    fn plan_read(&self, want: &[ChunkIndex], costs: &ReadCosts) -> Result<ReadPlan, Unrecoverable> {
        let (read, lost) = read_any(self.spec, want, costs)?;
        let method = if lost.is_empty() {
            copies(want, &read)
        } else {
            // More than k reads happen when many chunks are wanted: the first k of them solve for the lost ones.
            let have: Vec<u16> = read.iter().take(self.generator.data().into()).map(|chunk| chunk.0).collect();
            let mut solved = self.generator.solve(&lost, &have).into_iter();
            let row_of = |chunk: &ChunkIndex| {
                let mut row = match read.binary_search(chunk) {
                    Ok(at) => (0..read.len()).map(|i| u8::from(i == at)).collect(),
                    Err(_) => solved.next().expect("one row for each lost chunk, in the order wanted"),
                };
                row.resize(read.len(), 0);
                row
            };
            Method::Matrix(Matrix::new(&want.iter().map(row_of).collect::<Vec<_>>(), read.len()))
        };
        let reads = read.iter().map(|chunk| ChunkRead { chunk: *chunk, sub_chunks: vec![0..1] }).collect();
        Ok(ReadPlan { want: want.to_vec(), reads, method, alpha: 1 })
    }

    fn recover(&self, plan: &ReadPlan, fetched: &[&[u8]], out: &mut [&mut [u8]]) {
        recover::run(self.tier, self.spec, plan, fetched, out);
    }

    fn locate(&self, chunks: &[Option<&[u8]>]) -> Result<Vec<ChunkIndex>, LocateError> {
        locate::by_points(self.tier, self.spec, &self.generator, chunks)
    }

    fn plan_update(&self, chunk: ChunkIndex) -> UpdatePlan {
        let Shape { data, parity, .. } = self.shape();
        assert!(chunk.0 < data, "chunk {chunk} is no data chunk");
        let delta = |row| (ChunkIndex(data + row), self.generator.coefficient(row, chunk.0).into());
        UpdatePlan::Delta((0..parity).map(delta).collect())
    }

    fn apply_delta(&self, coefficient: u16, delta: &[u8], parity: &mut [u8]) {
        kernel::add_product(self.tier, narrow(coefficient), delta, parity);
    }
}
