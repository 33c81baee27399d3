//! Our own codes as contenders.

use std::hint::black_box;
use std::sync::Arc;

use claystone_code::{ChunkIndex, ErasureCode, ReadCosts, ReadPlan, Shape};

use crate::arena::Layout;
use crate::cells::no_buffers;
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

    /// The buffers that this code needs for the plan; those of the other contenders fit them.
    pub(crate) fn layout(&self, plan: &Plan) -> Layout {
        let Shape { data, parity, .. } = self.shape();
        match &plan.operation {
            Operation::Encode => Layout::even(data.into(), parity.into(), plan.chunk_bytes),
            Operation::Repair { lost } => {
                let sub_bytes = plan.chunk_bytes / self.shape().alpha as usize;
                let read = self.plan_read(lost, plan.chunk_bytes);
                Layout {
                    sources: read.reads.iter().map(|read| read.sub_chunks_total() as usize * sub_bytes).collect(),
                    targets: vec![plan.chunk_bytes; lost.len()],
                    stripes: 1,
                }
            }
            Operation::PlanRepair { .. } => no_buffers(),
        }
    }

    pub(crate) fn contender<'a>(self, plan: &Plan) -> Contender<'a> {
        let name = self.code.spec().to_string();
        match plan.operation.clone() {
            Operation::Encode => Contender::local(name, Role::Ours, move |stripe| {
                self.code.encode(&stripe.sources, &mut stripe.targets);
            }),
            Operation::Repair { lost } => {
                let read = self.plan_read(&lost, plan.chunk_bytes);
                Contender::local(name, Role::Ours, move |stripe| {
                    self.code.recover(&read, &stripe.sources, &mut stripe.targets);
                })
            }
            Operation::PlanRepair { lost } => {
                let chunk_bytes = plan.chunk_bytes;
                Contender::local(name, Role::Ours, move |_| {
                    black_box(self.plan_read(black_box(&lost), chunk_bytes));
                })
            }
        }
    }

    fn plan_read(&self, lost: &[u16], chunk_bytes: usize) -> ReadPlan {
        let Shape { alpha, .. } = self.shape();
        let costs: Vec<Option<u32>> =
            (0..self.shape().chunks()).map(|chunk| (!lost.contains(&chunk)).then_some(1)).collect();
        let want: Vec<ChunkIndex> = lost.iter().copied().map(ChunkIndex).collect();
        let sub_bytes = (chunk_bytes / alpha as usize) as u32;
        let costs = ReadCosts { chunks: &costs, sub_bytes, granule: 1 };
        self.code.plan_read(&want, &costs).expect("plans lose no more than the code can")
    }
}
