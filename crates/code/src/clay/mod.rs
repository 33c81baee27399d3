//! Clay codes: any k of k + m chunks hold the data, and one lost chunk is repaired from 1/q of each of d helpers,
//! q = d - k + 1. Source: [clay §3], [clay §4]
//!
//! We differ from the paper in the scalar code (the normalised Cauchy matrix of `cauchy`) and hold no uncoupled copy of
//! the stripe: see `compile`.
//!
//! Invariants:
//! 1. `grid` is geometry, `planner` and `stages` choose what to read, `peel` and `compile` decide how to compute; only
//!    this file runs it.
//! 2. A program depends on the plan alone, so it is compiled once per plan and kept; at most [`PROGRAMS_MAX`] are.
//! 3. Once its program or repairer is kept, a plan is carried out without allocating.
//! 4. What is planned does not depend on the scalar code, and what is computed is right for any: tests take those of
//!    other implementations and compare whole chunks with theirs.

mod compile;
mod grid;
mod peel;
mod planner;
mod stages;

#[cfg(test)]
mod tests;

#[cfg(target_arch = "x86_64")]
use std::sync::OnceLock;
use std::sync::{Arc, Mutex, PoisonError};

#[cfg(target_arch = "x86_64")]
use self::compile::COUPLING;
use self::compile::compile;
pub(crate) use self::grid::Grid;
use crate::{
    ChunkIndex, ChunkRead, CodeSpec, ErasureCode, ReadCosts, ReadPlan, Shape, Tier, Unrecoverable, UpdatePlan,
    code::{assert_request, narrow},
    grs::Grs,
    kernel::{self, Program},
};
#[cfg(target_arch = "x86_64")]
use crate::{
    Method,
    kernel::{PlaneEncoder, PlaneRepairer},
};

/// Nodes of a grid that has a repairer: of 12 sections of 2, at most.
#[cfg(target_arch = "x86_64")]
const NODES_MAX: usize = 24;

/// Programs kept per code. A repair of one lost disk meets one pattern per lost place, n at most in most stripes.
const PROGRAMS_MAX: usize = 64;

/// `clay:k+m:d`.
#[derive(Debug)]
pub(crate) struct Clay {
    spec: CodeSpec,
    grid: Grid,
    scalar: Grs,
    tier: Tier,
    encoder: Program,
    /// Encodes faster, where it can.
    #[cfg(target_arch = "x86_64")]
    planes: Option<PlaneEncoder>,
    /// By chunk: repairs it faster, where it can, from a q-th of all others.
    #[cfg(target_arch = "x86_64")]
    repairers: Vec<OnceLock<Option<PlaneRepairer>>>,
    /// Programs of plans, the most recently used one last.
    programs: Mutex<Vec<(ReadPlan, Arc<Program>)>>,
}

impl Clay {
    /// `grid` must be that of `spec`.
    pub(crate) fn new(spec: CodeSpec, grid: Grid, tier: Tier) -> Self {
        Self::with_scalar(spec, grid, Grs::cauchy(grid.scalar_data(), grid.parity), tier)
    }

    /// With another code in the planes, of as many data chunks as the grid has data and zeros.
    fn with_scalar(spec: CodeSpec, grid: Grid, scalar: Grs, tier: Tier) -> Self {
        assert_eq!((scalar.data(), scalar.chunks()), (grid.scalar_data(), grid.nodes()), "a plane is a codeword");
        let parity: Vec<ChunkIndex> = (grid.data..grid.chunks()).map(ChunkIndex).collect();
        let whole = |chunk| ChunkRead { chunk: ChunkIndex(chunk), sub_chunks: planner::all(&grid) };
        let encoder = compile(&grid, &scalar, &(0..grid.data).map(whole).collect::<Vec<_>>(), &parity);
        Self {
            spec,
            grid,
            tier,
            encoder,
            #[cfg(target_arch = "x86_64")]
            planes: plane_encoder(&grid, &scalar, tier),
            #[cfg(target_arch = "x86_64")]
            repairers: (0..grid.chunks()).map(|_| OnceLock::new()).collect(),
            scalar,
            programs: Mutex::default(),
        }
    }

    /// The program of a plan: a kept one, or compiled now. Two threads may compile the same one; either will do.
    fn program(&self, plan: &ReadPlan) -> Arc<Program> {
        let lock = || self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        let mut programs = lock();
        if let Some(at) = programs.iter().rposition(|(kept, _)| names_same_program(kept, plan)) {
            let entry = programs.remove(at);
            let program = Arc::clone(&entry.1);
            programs.push(entry);
            return program;
        }
        drop(programs);
        let program = Arc::new(compile(&self.grid, &self.scalar, &plan.reads, &lost_wants(plan)));
        let mut programs = lock();
        if programs.len() >= PROGRAMS_MAX {
            programs.remove(0);
        }
        programs.push((plan.clone(), Arc::clone(&program)));
        program
    }
}

impl ErasureCode for Clay {
    fn spec(&self) -> CodeSpec {
        self.spec
    }

    fn shape(&self) -> Shape {
        Shape { data: self.grid.data, parity: self.grid.parity, alpha: self.grid.alpha }
    }

    fn tier(&self) -> Tier {
        self.tier
    }

    fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        assert_eq!(data.len(), usize::from(self.grid.data), "one buffer for each data chunk");
        assert_eq!(parity.len(), usize::from(self.grid.parity), "one buffer for each parity chunk");
        let sub_bytes = self.sub_bytes(data[0].len());
        #[cfg(target_arch = "x86_64")]
        if let Some(planes) = &self.planes {
            return planes.encode(data, parity, sub_bytes);
        }
        self.encoder.run(self.tier, data, parity.iter_mut().map(|parity| &mut **parity), sub_bytes);
    }

    fn plan_read(&self, want: &[ChunkIndex], costs: &ReadCosts) -> Result<ReadPlan, Unrecoverable> {
        assert_request(want, costs, self.grid.chunks());
        planner::plan_read(&self.grid, self.spec, want, costs)
    }

    fn recover(&self, plan: &ReadPlan, fetched: &[&[u8]], out: &mut [&mut [u8]]) {
        assert_eq!(fetched.len(), plan.reads.len(), "one buffer for each read");
        assert_eq!(out.len(), plan.want.len(), "one buffer for each wanted chunk");
        let Some(tile) = out.first().map(|out| out.len()) else {
            return;
        };
        let read_of = |chunk: &ChunkIndex| plan.reads.iter().position(|read| read.chunk == *chunk);
        let mut lost = 0;
        for (chunk, out) in plan.want.iter().zip(out.iter_mut()) {
            match read_of(chunk) {
                Some(at) => out.copy_from_slice(fetched[at]),
                None => lost += 1,
            }
        }
        if lost > 0 {
            let sub_bytes = self.sub_bytes(tile);
            #[cfg(target_arch = "x86_64")]
            if let Some(repairer) = self.repairer(plan).filter(|repairer| repairer.takes(sub_bytes)) {
                let mut helpers = [None; NODES_MAX];
                for (read, fetched) in plan.reads.iter().zip(fetched) {
                    helpers[usize::from(self.grid.node(read.chunk))] = Some(*fetched);
                }
                assert_eq!(helpers.iter().flatten().count(), plan.reads.len(), "each helper is read once");
                return repairer.repair(&helpers[..self.grid.nodes().into()], out[0], sub_bytes);
            }
            let targets = plan.want.iter().zip(out).filter(|(chunk, _)| read_of(chunk).is_none());
            let targets = targets.map(|(_, out)| &mut **out);
            self.program(plan).run(self.tier, fetched, targets, sub_bytes);
        }
    }

    fn plan_update(&self, chunk: ChunkIndex) -> UpdatePlan {
        assert!(chunk.0 < self.grid.data, "chunk {chunk} is no data chunk");
        UpdatePlan::Reencode
    }

    fn apply_delta(&self, coefficient: u16, delta: &[u8], parity: &mut [u8]) {
        kernel::add_product(self.tier, narrow(coefficient), delta, parity);
    }
}

impl Clay {
    /// What repairs the one chunk that a plan wants, if the plan reads a q-th of all others, and q is m.
    #[cfg(target_arch = "x86_64")]
    fn repairer(&self, plan: &ReadPlan) -> Option<&PlaneRepairer> {
        let grid = &self.grid;
        let ([lost], Method::ClayRepair { stages }) = (&plan.want[..], &plan.method) else { return None };
        let [stage] = &stages[..] else { return None };
        let node = grid.node(*lost);
        let (section, digit) = (grid.section(node), node % grid.q);
        let is_of_all =
            stage.section == section && stage.digits == [digit] && plan.reads.len() == usize::from(grid.chunks()) - 1;
        if grid.q != grid.parity || usize::from(grid.nodes()) > NODES_MAX || !is_of_all {
            return None;
        }
        let repairer = self.repairers[lost.at()].get_or_init(|| {
            let (mates, known): (Vec<u16>, Vec<u16>) =
                (0..grid.nodes()).partition(|node| grid.section(*node) == section);
            let rows = self.scalar.solve(&mates, &known);
            let [q, t, section, digit] = [grid.q, grid.t, section, digit].map(usize::from);
            let before = |node: usize| if node / q < section { node } else { node - q };
            PlaneRepairer::new(self.tier, [q, t], [section, digit], COUPLING, |mate, node| rows[mate][before(node)])
        });
        repairer.as_ref()
    }

    /// # Panics
    /// If a tile does not divide into alpha sub-chunks.
    fn sub_bytes(&self, tile: usize) -> usize {
        let alpha = self.grid.alpha as usize;
        assert!(tile.is_multiple_of(alpha), "a tile of {tile} bytes does not divide into {alpha} sub-chunks");
        tile / alpha
    }
}

/// The kernel for codes whose parity is the last section and whose first parity of a plane is plain XOR.
#[cfg(target_arch = "x86_64")]
fn plane_encoder(grid: &Grid, scalar: &Grs, tier: Tier) -> Option<PlaneEncoder> {
    if grid.q != grid.parity || (0..grid.scalar_data()).any(|node| scalar.coefficient(0, node) != 1) {
        return None;
    }
    let [q, t, data] = [grid.q, grid.t, grid.data].map(usize::from);
    let index = |at: usize| u16::try_from(at).expect("at most 256 nodes");
    PlaneEncoder::new(tier, [q, t - 1, data], COUPLING, |parity, node| scalar.coefficient(index(parity), index(node)))
}

/// The wanted chunks that are not read.
fn lost_wants(plan: &ReadPlan) -> Vec<ChunkIndex> {
    plan.want.iter().copied().filter(|chunk| plan.reads.iter().all(|read| read.chunk != *chunk)).collect()
}

/// Whether two plans of one code have the same program. Their ranges, up to thousands, need no comparison: they follow
/// from the rest (see `planner`). What does not fit a program's buffers is caught when it runs.
fn names_same_program(a: &ReadPlan, b: &ReadPlan) -> bool {
    let same_read = |(a, b): (&ChunkRead, &ChunkRead)| a.chunk == b.chunk && a.sub_chunks.len() == b.sub_chunks.len();
    a.want == b.want
        && a.method == b.method
        && a.reads.len() == b.reads.len()
        && a.reads.iter().zip(&b.reads).all(same_read)
}
