//! Which parity a change of data reaches under a code without sub-chunks.

use std::collections::{BTreeMap, BTreeSet};

use claystone_code::{ChunkIndex, ErasureCode, UpdatePlan};

/// What depends on what in a row of a stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reach {
    /// By data chunk: the parity chunks that it is in, and its coefficient in each.
    parity: Vec<Vec<(ChunkIndex, u16)>>,
    /// By parity chunk: the data chunks that are in it.
    data: BTreeMap<ChunkIndex, Vec<ChunkIndex>>,
}

impl Reach {
    /// That of a code.
    pub fn of(code: &dyn ErasureCode) -> Reach {
        let shape = code.shape();
        let all_parity = || (shape.data..shape.chunks()).map(|parity| (ChunkIndex(parity), 0));
        let reached = |column: u16| match code.plan_update(ChunkIndex(column)) {
            UpdatePlan::Delta(deltas) => deltas,
            UpdatePlan::Reencode => all_parity().collect(),
        };
        let parity: Vec<Vec<(ChunkIndex, u16)>> = (0..shape.data).map(reached).collect();
        let mut data: BTreeMap<ChunkIndex, Vec<ChunkIndex>> = BTreeMap::new();
        for (column, reached) in (0..).map(ChunkIndex).zip(&parity) {
            for (parity, _) in reached {
                data.entry(*parity).or_default().push(column);
            }
        }
        Reach { parity, data }
    }

    /// The parity chunks that changes of these data chunks reach.
    pub fn parity_of(&self, columns: &BTreeSet<ChunkIndex>) -> BTreeSet<ChunkIndex> {
        columns.iter().flat_map(|column| &self.parity[column.at()]).map(|(parity, _)| *parity).collect()
    }

    /// The data chunks that are in these parity chunks.
    pub fn data_of(&self, parity: &BTreeSet<ChunkIndex>) -> BTreeSet<ChunkIndex> {
        parity.iter().filter_map(|parity| self.data.get(parity)).flatten().copied().collect()
    }

    /// The data chunk whose bytes a parity chunk has, if it is a copy.
    pub fn copied(&self, parity: ChunkIndex) -> Option<ChunkIndex> {
        match self.data.get(&parity)?.as_slice() {
            [column] => self.parity[column.at()].contains(&(parity, 1)).then_some(*column),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use claystone_code::CodeSpec;

    use super::*;

    #[test]
    fn copies_are_known_from_the_coefficients() {
        let reach = |code: &str| Reach::of(&*code.parse::<CodeSpec>().expect("valid").build().expect("valid"));
        let copied =
            |code: &str| (0..9).map(|at| reach(code).copied(ChunkIndex(at)).map(|data| data.0)).collect::<Vec<_>>();
        assert_eq!(copied("mirror:3x2"), [None, None, None, Some(0), Some(1), Some(2), None, None, None]);
        assert_eq!(copied("replica:3"), [None, Some(0), Some(0), None, None, None, None, None, None]);
        assert!(copied("rs:4+2").iter().all(Option::is_none));
    }
}
