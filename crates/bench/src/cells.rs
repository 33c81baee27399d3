//! The list of cells, and how a plan becomes one.

use claystone_code::{CodeSpec, Shape, SpecError};

use crate::cell::{Cell, Unit};
use crate::contender::Role;
use crate::ours::Ours;
use crate::peers::Peers;
use crate::plan::{Operation, Plan};

/// The cells of `claystone bench codes`.
pub fn codes() -> Vec<Plan> {
    let mut plans = Vec::new();
    for bytes in GRID_BYTES {
        plans.extend(GRID_CODES.map(|code| Plan::encode(code, bytes)));
    }
    plans.extend(["rs:10+4", "rs:17+3"].map(|code| Plan::encode(code, MIB).map(Plan::cold)));
    plans.extend(["rs:252+3", "rs:250+5", "rs:246+9"].map(|code| Plan::encode(code, 4 * KIB)));
    plans.extend(["rs:1019+4", "rs:1014+9", "rs:1004+19"].map(|code| Plan::encode(code, 4 * KIB)));
    plans.extend([1, 19].map(|lost| Plan::repair("rs:1004+19", 4 * KIB, lost)));
    plans.extend(["rs:10+4", "rs:17+3", "rs:20+4"].map(|code| Plan::repair(code, 8 * KIB, 1)));
    plans.push(Plan::repair("rs:10+4", 8 * KIB, 4));
    let lost = (1..=4).collect();
    plans.push(Plan::encode("rs:246+9", 4 * KIB).map(|plan| plan.doing(Operation::PlanRepair { lost })));
    plans.push(Plan::encode("rs:10+4", MIB).map(|plan| plan.doing(Operation::EncodeAdd { group: 5 })));
    plans.extend([64 * KIB, MIB, 4 * MIB].map(|bytes| Plan::encode("clay:16+4:19", bytes)));
    // An object of 9 x 114,048 = 1,026,432 bytes: with sub-chunks of 23 lines, not 22, it would be more than 1 MiB.
    plans.push(Plan::encode("clay:9+3:11", 81 * 1408));
    plans.push(Plan::encode("clay:4+2:5", 256 * KIB));
    plans.extend([64 * KIB, MIB].map(|bytes| Plan::repair("clay:16+4:19", bytes, 1)));
    for bytes in GRID_BYTES {
        plans.extend(SPARSE_CODES.map(|code| Plan::encode(code, bytes)));
    }
    plans.extend(SPARSE_CODES.map(|code| Plan::repair(code, 8 * KIB, 1)));
    plans.into_iter().collect::<Result<_, SpecError>>().expect("a test makes all of them")
}

/// The cells of `claystone bench clay`: beside our own Reed-Solomon.
pub fn clay() -> Vec<Plan> {
    let encode = |code, bytes| Plan::encode(code, bytes);
    let plans = [
        encode("clay:16+4:19", 64 * KIB),
        encode("clay:16+4:19", 4 * MIB).map(|plan| plan.in_tiles(64 * KIB)),
        encode("clay:16+4:19", 4 * MIB).map(|plan| plan.in_tiles(MIB)),
        // Sub-chunks of whole pages, as files and objects have them.
        encode("clay:4+2:5", 64 * KIB),
        encode("clay:6+3:8", 27 * 4 * KIB),
        encode("clay:9+3:11", 81 * 4 * KIB),
        encode("clay:10+4:13", MIB),
        encode("clay:16+4:19", 4 * MIB),
    ];
    plans.into_iter().collect::<Result<_, SpecError>>().expect("a test makes all of them")
}

/// Whether the plan is of the grid over which ISA-L's mean is taken.
pub fn is_in_grid(plan: &Plan) -> bool {
    let is_code = GRID_CODES.contains(&plan.code.to_string().as_str());
    is_code && GRID_BYTES.contains(&plan.chunk_bytes) && !plan.is_cold && plan.operation == Operation::Encode
}

/// The cell of a plan, with ours and those peers that can do it. Clay's encoding has Reed-Solomon of the same size beside
/// it, ours and ISA-L's; LRC, product and mergeable codes have ours, which takes as much space.
///
/// # Panics
/// If the plan's code is not valid, or cannot lose what the plan loses.
pub fn cell<'a>(plan: &Plan, peers: &'a Peers) -> Cell<'a> {
    let ours = Ours::new(plan);
    let data_bytes = (usize::from(ours.shape().data) * plan.chunk_bytes) as u64;
    let unit = match plan.operation {
        Operation::PlanRepair { .. } => Unit::Us,
        _ => Unit::GbPerS { run_bytes: data_bytes },
    };
    let layout = ours.layout(plan);
    let mut layout = if plan.is_cold { layout.filling(COLD_BYTES) } else { layout };
    let mut contenders = vec![ours.contender(plan, Role::Ours)];
    contenders.extend(peers.contenders(plan));
    if let (CodeSpec::Clay { data, parity, .. }, Operation::Encode) = (plan.code, &plan.operation) {
        let code = CodeSpec::ReedSolomon { data: data.into(), parity: parity.into() };
        let plain = Plan { code, tile_bytes: plan.chunk_bytes, ..plan.clone() };
        contenders.push(Ours::new(&plain).contender(&plain, Role::Reference(BESIDE_RS)));
        contenders.extend(peers.isal(&plain, &Role::Reference(BESIDE_ISAL_RS)));
    }
    let beside = match plan.operation {
        Operation::Encode => Some(BESIDE_RS),
        Operation::Repair { .. } => Some(REPAIR_BESIDE_RS),
        _ => None,
    };
    if let (CodeSpec::Lrc { .. } | CodeSpec::Product { .. } | CodeSpec::Mergeable { .. }, Some(metric)) =
        (plan.code, beside)
    {
        let Shape { data, parity, .. } = plan.code.shape();
        let plain = Plan { code: CodeSpec::ReedSolomon { data, parity }, ..plan.clone() };
        let reference = Ours::new(&plain);
        layout = layout.with_sources_of(reference.layout(&plain));
        contenders.push(reference.contender(&plain, Role::Reference(metric)));
    }
    Cell { case: plan.case(), metric: plan.metric(), unit, layout, contenders }
}

/// Encoding against our Reed-Solomon of as many data and parity chunks.
const BESIDE_RS: &str = "encode_beside_rs_gb_per_s";
/// The same for the repair of one chunk, which reads no less under Reed-Solomon.
const REPAIR_BESIDE_RS: &str = "repair_1_beside_rs_gb_per_s";
/// Clay's encoding against ISA-L's Reed-Solomon of the same size.
const BESIDE_ISAL_RS: &str = "encode_beside_isal_rs_gb_per_s";

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

const GRID_CODES: [&str; 7] = ["rs:4+2", "rs:6+3", "rs:10+4", "rs:12+4", "rs:16+4", "rs:17+3", "rs:20+4"];
const SPARSE_CODES: [&str; 5] = ["lrc:12+2+2", "lrc:12+6+2", "pc:2x5", "pc:6x5", "rsm:12+3"];
const GRID_BYTES: [usize; 3] = [8 * KIB, 128 * KIB, MIB];

/// More than caches hold, less than machines have.
const COLD_BYTES: usize = 640 * MIB;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{cell, clay, codes, is_in_grid};
    use crate::cell::{Effort, Samples, measure};
    use crate::gate::Gate;
    use crate::peers::Peers;

    #[test]
    fn no_two_cells_have_one_name() {
        for plans in [codes(), clay()] {
            let names: BTreeSet<String> = plans.iter().map(super::Plan::name).collect();
            assert_eq!(names.len(), plans.len());
        }
        assert_eq!(codes().iter().filter(|plan| is_in_grid(plan)).count(), 21);
    }

    #[test]
    fn every_kind_of_work_is_measured() {
        let effort = Effort { passes: 1, wanted: 1, rounds_max: 2, least: 1 };
        let (mut gate, peers) = (Gate::warmed(), Peers::none());
        let is_small = |plan: &super::Plan| plan.chunk_bytes <= 8 << 10 || plan.tile_bytes < plan.chunk_bytes;
        for plan in codes().into_iter().chain(clay()).filter(is_small) {
            let mut cell = cell(&plan, &peers);
            let mut samples = Samples::default();
            measure(&mut gate, &mut cell, effort, &mut samples).expect("ours works");
            assert!(samples.figures(cell.unit, effort)[0].value > 0.0, "{plan:?}");
        }
    }
}
