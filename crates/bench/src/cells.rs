//! The list of cells, and how a plan becomes one.

use claystone_code::SpecError;

use crate::arena::Layout;
use crate::cell::{Cell, Unit};
use crate::ours::Ours;
use crate::peers::Peers;
use crate::plan::{Operation, Plan};

/// All cells of `claystone bench codes`.
pub fn codes() -> Vec<Plan> {
    let mut plans = Vec::new();
    for bytes in [8 << 10, 128 << 10, 1 << 20] {
        plans.extend(SHAPES.map(|code| Plan::encode(code, bytes)));
    }
    plans.extend(["rs:10+4", "rs:17+3"].map(|code| Plan::encode(code, 1 << 20).map(Plan::cold)));
    plans.extend(["rs:252+3", "rs:250+5", "rs:246+9"].map(|code| Plan::encode(code, 4 << 10)));
    plans.extend(["rs:10+4", "rs:17+3", "rs:20+4"].map(|code| Plan::repair(code, 8 << 10, 1)));
    plans.push(Plan::repair("rs:10+4", 8 << 10, 4));
    let setup = |plan: Plan| Plan { operation: Operation::PlanRepair { lost: (1..=4).collect() }, ..plan };
    plans.push(Plan::encode("rs:246+9", 4 << 10).map(setup));
    plans.into_iter().collect::<Result<_, SpecError>>().expect("a test makes all of them")
}

/// The cell of a plan, with ours and those peers that can do it.
///
/// # Panics
/// If the plan's code is not valid, or cannot lose what the plan loses.
pub fn cell<'a>(plan: &Plan, peers: &'a Peers) -> Cell<'a> {
    let ours = Ours::new(plan);
    let data_bytes = (usize::from(ours.shape().data) * plan.chunk_bytes) as u64;
    let unit = match plan.operation {
        Operation::Encode | Operation::Repair { .. } => Unit::GbPerS { run_bytes: data_bytes },
        Operation::PlanRepair { .. } => Unit::Us,
    };
    let layout = ours.layout(plan);
    let layout = if plan.is_cold { layout.filling(COLD_BYTES) } else { layout };
    let mut contenders = vec![ours.contender(plan)];
    contenders.extend(peers.contenders(plan, &layout));
    Cell { case: plan.case(), metric: plan.metric(), unit, layout, contenders }
}

/// No layout at all, for work without buffers.
pub(crate) fn no_buffers() -> Layout {
    Layout { sources: Vec::new(), targets: Vec::new(), stripes: 1 }
}

const SHAPES: [&str; 7] = ["rs:4+2", "rs:6+3", "rs:10+4", "rs:12+4", "rs:16+4", "rs:17+3", "rs:20+4"];

/// More than caches hold, less than machines have.
const COLD_BYTES: usize = 640 << 20;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{cell, codes};
    use crate::cell::{Effort, measure};
    use crate::gate::Gate;
    use crate::peers::Peers;

    #[test]
    fn no_two_cells_have_one_name() {
        let plans = codes();
        let names: BTreeSet<(String, String)> = plans.iter().map(|plan| (plan.case(), plan.metric())).collect();
        assert_eq!(names.len(), plans.len());
    }

    #[test]
    fn every_kind_of_cell_measures_something() {
        let effort = Effort { wanted: 1, least: 1, rounds_max: 2 };
        let mut gate = Gate::warmed();
        for plan in codes().into_iter().filter(|plan| plan.chunk_bytes <= 8 << 10) {
            let peers = Peers::none();
            let figures = measure(&mut gate, &mut cell(&plan, &peers), effort).expect("ours works");
            assert!(figures[0].value > 0.0, "{plan:?}");
        }
    }
}
