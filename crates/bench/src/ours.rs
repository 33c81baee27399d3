//! Our own codes as contenders.

use std::hint::black_box;
use std::sync::Arc;

use claystone_code::{ChunkIndex, ErasureCode, ReadCosts, ReadPlan, Shape};

use crate::arena::{Layout, Stripe};
use crate::contender::{Contender, Role};
use crate::plan::{Operation, Plan};

/// A code built for a plan.
#[derive(Debug)]
pub(crate) struct Ours {
    code: Arc<dyn ErasureCode>,
}

impl Ours {
    /// # Panics
    /// If the plan's code is not valid.
    pub(crate) fn new(plan: &Plan) -> Self {
        Self { code: plan.code.build().expect("plans hold valid codes") }
    }

    pub(crate) fn shape(&self) -> Shape {
        self.code.shape()
    }

    /// The buffers that this code needs for the plan; those of the other contenders are the same.
    pub(crate) fn layout(&self, plan: &Plan) -> Layout {
        let Shape { data, parity, alpha } = self.shape();
        match &plan.operation {
            Operation::Encode | Operation::EncodeAdd { .. } => {
                Layout::even(data.into(), parity.into(), plan.chunk_bytes)
            }
            Operation::Repair { lost } => {
                let sub_bytes = plan.chunk_bytes / alpha as usize;
                let reads = self.plan_read(lost, plan.chunk_bytes).reads;
                let sources = reads.iter().map(|read| read.sub_chunks_total() as usize * sub_bytes).collect();
                Layout { sources, targets: vec![plan.chunk_bytes; lost.len()], stripes: 1 }
            }
            Operation::PlanRepair { .. } => Layout::none(),
        }
    }

    pub(crate) fn contender<'a>(self, plan: &Plan, role: Role) -> Contender<'a> {
        let name = self.code.spec().to_string();
        let (chunk_bytes, tile_bytes) = (plan.chunk_bytes, plan.tile_bytes);
        match plan.operation.clone() {
            Operation::Encode if tile_bytes < chunk_bytes => {
                Contender::local(name, role, move |stripe| self.encode_tiles(stripe, tile_bytes))
            }
            Operation::Encode => Contender::local(name, role, move |stripe| {
                self.code.encode(&stripe.sources, &mut stripe.targets);
            }),
            Operation::EncodeAdd { group } => Contender::local(name, role, move |stripe| {
                for (first, data) in (0..).step_by(group).zip(stripe.sources.chunks(group)) {
                    self.code.encode_add(ChunkIndex(first), data, &mut stripe.targets);
                }
            }),
            Operation::Repair { lost } => {
                let read = self.plan_read(&lost, chunk_bytes);
                // Another contender may need more sources.
                let sources = read.reads.len();
                Contender::local(name, role, move |stripe| {
                    self.code.recover(&read, &stripe.sources[..sources], &mut stripe.targets);
                })
            }
            Operation::PlanRepair { lost } => Contender::local(name, role, move |_| {
                black_box(self.plan_read(black_box(&lost), chunk_bytes));
            }),
        }
    }

    /// Tile by tile, as a store does with long chunks.
    fn encode_tiles(&self, stripe: &mut Stripe<'_>, tile_bytes: usize) {
        let chunk_bytes = stripe.sources[0].len();
        for at in (0..chunk_bytes).step_by(tile_bytes) {
            let data: Vec<&[u8]> = stripe.sources.iter().map(|source| &source[at..][..tile_bytes]).collect();
            let mut parity: Vec<&mut [u8]> =
                stripe.targets.iter_mut().map(|target| &mut target[at..][..tile_bytes]).collect();
            self.code.encode(&data, &mut parity);
        }
    }

    fn plan_read(&self, lost: &[u16], chunk_bytes: usize) -> ReadPlan {
        let shape = self.shape();
        let costs: Vec<Option<u32>> = (0..shape.chunks()).map(|chunk| (!lost.contains(&chunk)).then_some(1)).collect();
        let want: Vec<ChunkIndex> = lost.iter().copied().map(ChunkIndex).collect();
        let sub_bytes = u32::try_from(chunk_bytes / shape.alpha as usize).expect("chunks of less than 4 GiB");
        let costs = ReadCosts { chunks: &costs, sub_bytes, granule: 1 };
        self.code.plan_read(&want, &costs).expect("plans lose no more than the code can")
    }
}
