//! Which chunks of a new stripe are synced before it is acknowledged, where not all have to be: a pure function.
//!
//! ```text
//!   rs:4+2 on six nodes, a chunk on each     none is synced: the power of a node takes one chunk
//!   on three nodes, two on each              none: it takes two
//!   the same, and one was not written        one on each node that has two
//!   on two nodes, three on each              one on each
//!   on one node                              four
//! ```
//!
//! Invariants:
//! 1. Whichever one node loses power: without what is missing, and what is volatile there, the code recovers the stripe.
//! 2. No fewer syncs would do.
//! 3. Of what lies on one node parity is left volatile first, so that what a power cut takes is seldom data.
//!
//! Left out: nodes that lose power one soon after another, which is what `sync` is for.

use std::collections::{BTreeMap, BTreeSet};

use claystone_code::{ChunkIndex, CodeSpec};

use crate::nodes::Node;

/// How a chunk of a stripe is kept that is about to be acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// It was not written.
    Missing,
    /// In the memory of this node.
    Volatile(Node),
    /// It survives a power cut.
    Synced,
}

/// The fewest volatile chunks that must be synced before a stripe of these chunks may be acknowledged.
///
/// The losses that a code recovers are the independent sets of a matroid, so that of each node as many chunks stay volatile as
/// can when one after another does, wherever one begins.
///
/// # Panics
/// If the code does not recover the stripe without those that are missing, or `kept` is of another number of chunks.
pub(crate) fn plan_syncs(code: CodeSpec, kept: &[Kept]) -> BTreeSet<ChunkIndex> {
    assert_eq!(kept.len(), usize::from(code.shape().chunks()), "chunks of {code}");
    let indices: Vec<(ChunkIndex, Kept)> = (0..).map(ChunkIndex).zip(kept.iter().copied()).collect();
    let missing: Vec<ChunkIndex> =
        indices.iter().filter(|(_, kept)| *kept == Kept::Missing).map(|(index, _)| *index).collect();
    assert!(code.tolerance_left(&missing) >= 0, "{code} without {missing:?} is lost already");
    let mut syncs = BTreeSet::new();
    // Of each node, what its power takes.
    let mut taken: BTreeMap<Node, Vec<ChunkIndex>> = BTreeMap::new();
    for (index, kept) in indices.into_iter().rev() {
        let Kept::Volatile(node) = kept else { continue };
        let lost = taken.entry(node).or_insert_with(|| missing.clone());
        lost.push(index);
        if code.tolerance_left(lost) < 0 {
            lost.pop();
            syncs.insert(index);
        }
    }
    syncs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spec(code: &str) -> CodeSpec {
        code.parse().expect("a valid code")
    }

    /// Chunks on these nodes, none synced; those on node 9 are missing.
    fn on(nodes: &[usize]) -> Vec<Kept> {
        let kept = |node: &usize| if *node == 9 { Kept::Missing } else { Kept::Volatile(Node::Known(*node)) };
        nodes.iter().map(kept).collect()
    }

    fn planned(code: &str, nodes: &[usize]) -> Vec<u16> {
        plan_syncs(spec(code), &on(nodes)).into_iter().map(|index| index.0).collect()
    }

    #[test]
    fn as_many_are_synced_as_a_node_has_beyond_the_tolerance() {
        assert_eq!(planned("rs:4+2", &[0, 1, 2, 3, 4, 5]), []);
        assert_eq!(planned("rs:4+2", &[0, 1, 2, 0, 1, 2]), []);
        assert_eq!(planned("rs:4+2", &[0, 1, 0, 1, 0, 1]), [0, 1]);
        assert_eq!(planned("rs:4+2", &[0, 0, 0, 0, 0, 0]), [0, 1, 2, 3]);
        assert_eq!(planned("replica:3", &[0, 0, 0]), [0]);
        assert_eq!(planned("replica:1", &[0]), [0]);
        assert_eq!(planned("clay:4+2:5", &[0, 0, 0, 1, 1, 1]), [0, 3]);
    }

    #[test]
    fn what_is_missing_counts_on_every_node() {
        assert_eq!(planned("rs:4+2", &[0, 1, 2, 0, 1, 9]), [0, 1]);
        assert_eq!(planned("rs:4+2", &[0, 1, 2, 3, 4, 9]), []);
        assert_eq!(planned("rs:4+2", &[0, 1, 2, 3, 9, 9]), [0, 1, 2, 3]);
    }

    #[test]
    fn what_is_synced_needs_no_other() {
        let mut kept = on(&[0; 6]);
        kept[4] = Kept::Synced;
        kept[5] = Kept::Synced;
        let syncs: Vec<u16> = plan_syncs(spec("rs:4+2"), &kept).into_iter().map(|index| index.0).collect();
        assert_eq!(syncs, [0, 1]);
    }

    #[test]
    fn of_copies_one_of_each_data_chunk_is_synced_where_one_node_has_all() {
        // Two data chunks, three copies: those of chunk 0 on one node, those of chunk 1 on three.
        assert_eq!(planned("mirror:2x3", &[0, 0, 0, 1, 0, 2]), [0]);
        // A local code recovers one more in each group: of eight on one node four stay.
        assert_eq!(planned("lrc:4+2+2", &[0; 8]).len(), 4);
    }

    /// Whether no node's power takes the stripe.
    fn is_safe(code: CodeSpec, kept: &[Kept], syncs: &BTreeSet<ChunkIndex>) -> bool {
        (0..8).map(Node::Known).all(|node| {
            let is_lost = |(index, kept): &(ChunkIndex, &Kept)| match kept {
                Kept::Missing => true,
                Kept::Volatile(on) => *on == node && !syncs.contains(index),
                Kept::Synced => false,
            };
            let lost: Vec<ChunkIndex> =
                (0..).map(ChunkIndex).zip(kept).filter(is_lost).map(|(index, _)| index).collect();
            code.tolerance_left(&lost) >= 0
        })
    }

    proptest! {
        #[test]
        fn no_node_takes_the_stripe_and_no_fewer_syncs_would_do(
            code in prop::sample::select(vec![
                "rs:3+2", "rs:4+2", "clay:4+2:5", "replica:3", "mirror:3x3", "mirror:4x2", "lrc:4+2+2", "pc:2x2", "rsm:3+2",
                "hybrid:rsm:3+1x2",
            ]),
            nodes in prop::collection::vec(0usize..4, 9),
            // Of a chunk: 0 it is missing, 1 it is synced, else it is volatile.
            how in prop::collection::vec(0usize..8, 9),
            node_count in 1usize..4,
        ) {
            let code = spec(code);
            let chunks = usize::from(code.shape().chunks());
            let mut kept: Vec<Kept> = (0..chunks).map(|at| Kept::Volatile(Node::Known(nodes[at % 9] % node_count))).collect();
            let mut missing = Vec::new();
            for (at, how) in (0..chunks).map(|at| (at, how[at % 9])) {
                missing.push(ChunkIndex(at as u16));
                match how {
                    0 if code.tolerance_left(&missing) >= 0 => kept[at] = Kept::Missing,
                    1 => kept[at] = Kept::Synced,
                    _ => {}
                }
                if kept[at] != Kept::Missing {
                    missing.pop();
                }
            }
            let syncs = plan_syncs(code, &kept);
            prop_assert!(is_safe(code, &kept, &syncs), "{:?} of {:?}", syncs, kept);
            let is_volatile = |index: &ChunkIndex| matches!(kept[index.at()], Kept::Volatile(_));
            prop_assert!(syncs.iter().all(is_volatile));
            // Every smaller choice.
            for set in 0u32..1 << chunks {
                let fewer: BTreeSet<ChunkIndex> =
                    (0..chunks).filter(|at| set >> at & 1 == 1).map(|at| ChunkIndex(at as u16)).collect();
                if fewer.len() < syncs.len() {
                    prop_assert!(!is_safe(code, &kept, &fewer), "{:?} instead of {:?} of {:?}", fewer, syncs, kept);
                }
            }
        }
    }
}
