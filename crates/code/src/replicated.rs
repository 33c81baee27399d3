//! The same bytes several times: a code of shape (1, copies - 1), so that nothing needs a second path.
//!
//! Invariants:
//! 1. Any one copy answers any read; a plan reads exactly one.

use crate::{
    ChunkIndex, ChunkRead, CodeSpec, ErasureCode, LocateError, Method, ReadCosts, ReadPlan, Shape, Tier, Unrecoverable,
    UpdatePlan,
    code::{assert_data_part, assert_request, narrow},
    kernel, locate, recover,
};

/// `replica:copies`.
#[derive(Debug)]
pub(crate) struct Replicated {
    copies: u8,
    tier: Tier,
}

impl Replicated {
    pub(crate) fn new(copies: u8, tier: Tier) -> Self {
        Self { copies, tier }
    }
}

impl ErasureCode for Replicated {
    fn spec(&self) -> CodeSpec {
        CodeSpec::Replicated { copies: self.copies }
    }

    fn shape(&self) -> Shape {
        self.spec().shape()
    }

    fn tier(&self) -> Tier {
        self.tier
    }

    fn locate(&self, chunks: &[Option<&[u8]>]) -> Result<Vec<ChunkIndex>, LocateError> {
        locate::by_majority(self, chunks)
    }

    fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        assert_eq!(data.len(), 1, "one data chunk");
        assert_eq!(parity.len(), usize::from(self.copies) - 1, "one buffer for each further copy");
        for copy in parity {
            copy.copy_from_slice(data[0]);
        }
    }

    fn encode_add(&self, first: ChunkIndex, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        assert_data_part(first, data.len(), 1);
        assert_eq!(parity.len(), usize::from(self.copies) - 1, "one buffer for each further copy");
        for data in data {
            parity.iter_mut().for_each(|copy| kernel::add_product(self.tier, 1, data, copy));
        }
    }

    fn plan_read(&self, want: &[ChunkIndex], costs: &ReadCosts) -> Result<ReadPlan, Unrecoverable> {
        assert_request(want, costs, self.copies.into());
        // Among equally cheap copies a wanted one, then the lower index.
        let source = (0u16..)
            .zip(costs.chunks)
            .filter_map(|(chunk, cost)| cost.map(|cost| (cost, !want.contains(&ChunkIndex(chunk)), ChunkIndex(chunk))))
            .min();
        let reads = match source {
            _ if want.is_empty() => Vec::new(),
            #[expect(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]
            Some((.., chunk)) => vec![ChunkRead { chunk, sub_chunks: vec![0..1] }],
            None => {
                return Err(Unrecoverable {
                    spec: self.spec(),
                    wanted_lost: u16::try_from(want.len()).expect("at most all chunks"),
                    available: 0,
                    needed: 1,
                    chunks: self.copies.into(),
                });
            }
        };
        Ok(ReadPlan { want: want.to_vec(), reads, method: Method::Copy { from: vec![0; want.len()] }, alpha: 1 })
    }

    fn recover(&self, plan: &ReadPlan, fetched: &[&[u8]], out: &mut [&mut [u8]]) {
        recover::run(self.tier, self.spec(), plan, fetched, out);
    }

    fn plan_update(&self, chunk: ChunkIndex) -> UpdatePlan {
        assert_eq!(chunk.0, 0, "chunk {chunk} is no data chunk");
        UpdatePlan::Delta((1..u16::from(self.copies)).map(|copy| (ChunkIndex(copy), 1)).collect())
    }

    fn apply_delta(&self, coefficient: u16, delta: &[u8], parity: &mut [u8]) {
        kernel::add_product(self.tier, narrow(coefficient), delta, parity);
    }
}
