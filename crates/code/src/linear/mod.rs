//! Any systematic linear code over GF(2^8), from its generator: `lrc`, `product`, `mergeable`, `mirror`, `hybrid` and `mixed` only say which.
//!
//! Invariants:
//! 1. Whatever can be recovered is: plans go by rank, not by a code's least distance.
//! 2. A chunk that a short check determines is repaired from that check alone.
//! 3. Encoding spends products on coefficients above 1 only, and nothing on zeros.

mod generator;
mod planner;
mod span;

#[cfg(test)]
mod tests;

pub(crate) use self::{generator::Generator, span::Span};
use crate::{
    ChunkIndex, CodeSpec, ErasureCode, LocateError, ReadCosts, ReadPlan, Shape, Tier, Unrecoverable, UpdatePlan,
    code::{assert_data_part, assert_request, narrow},
    kernel::{self, Matrix},
    locate, recover,
};

/// A code that is its generator.
#[derive(Debug)]
pub(crate) struct Linear {
    spec: CodeSpec,
    generator: Generator,
    tier: Tier,
    encoder: Matrix,
}

impl Linear {
    /// `generator` must be that of `spec`.
    pub(crate) fn new(spec: CodeSpec, generator: Generator, tier: Tier) -> Self {
        let encoder = Matrix::new(generator.parity(), generator.data().into());
        Self { spec, generator, tier, encoder }
    }
}

impl ErasureCode for Linear {
    fn spec(&self) -> CodeSpec {
        self.spec
    }

    fn shape(&self) -> Shape {
        let data = self.generator.data();
        Shape { data, parity: self.generator.chunks() - data, alpha: 1 }
    }

    fn tier(&self) -> Tier {
        self.tier
    }

    fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        self.encoder.combine(self.tier, data, parity);
    }

    fn locate(&self, chunks: &[Option<&[u8]>]) -> Result<Vec<ChunkIndex>, LocateError> {
        match self.spec {
            CodeSpec::Mirror { .. } => locate::by_majority(self, chunks),
            _ => locate::by_trial(self, chunks),
        }
    }

    fn encode_add(&self, first: ChunkIndex, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        assert_data_part(first, data.len(), self.generator.data());
        self.encoder.accumulate(self.tier, first.at(), data, parity);
    }

    fn plan_read(&self, want: &[ChunkIndex], costs: &ReadCosts) -> Result<ReadPlan, Unrecoverable> {
        assert_request(want, costs, self.generator.chunks());
        planner::plan_read(&self.generator, self.spec, want, costs)
    }

    fn recover(&self, plan: &ReadPlan, fetched: &[&[u8]], out: &mut [&mut [u8]]) {
        recover::run(self.tier, self.spec, plan, fetched, out);
    }

    fn plan_update(&self, chunk: ChunkIndex) -> UpdatePlan {
        assert!(chunk.0 < self.generator.data(), "chunk {chunk} is no data chunk");
        let coefficients = self.generator.parity().iter().map(|row| row[chunk.at()]);
        let parity = (self.generator.data()..).map(ChunkIndex).zip(coefficients);
        UpdatePlan::Delta(parity.filter(|(_, coefficient)| *coefficient != 0).map(|(at, by)| (at, by.into())).collect())
    }

    fn apply_delta(&self, coefficient: u16, delta: &[u8], parity: &mut [u8]) {
        kernel::add_product(self.tier, narrow(coefficient), delta, parity);
    }
}
