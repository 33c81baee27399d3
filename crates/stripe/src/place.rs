//! Which disks a stripe's chunks go to: a pure function.

use std::collections::BTreeMap;

use claystone_chunk::{DiskId, NodeId};

/// A disk that takes new chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The disk.
    pub disk: DiskId,
    /// Its failure domain.
    pub node: NodeId,
    /// Bytes it can still take.
    pub free_bytes: u64,
}

/// Chooses `count` distinct disks for new chunks of a stripe that has chunks on `taken` already.
///
/// Chunks are spread over the nodes as evenly as the disks allow: the next chunk goes to a node with the fewest
/// chunks of this stripe. Among the disks of such nodes one is drawn with a chance in proportion to its free space,
/// so that disks fill up together. `draw(bound)` gives a random number below `bound`.
///
/// Returns fewer than `count` disks if there are no more; a disk never gets two chunks of a stripe.
pub fn place(
    candidates: &[Candidate],
    taken: &[(DiskId, NodeId)],
    count: usize,
    mut draw: impl FnMut(u64) -> u64,
) -> Vec<DiskId> {
    let mut chunks_of_node: BTreeMap<&NodeId, usize> = BTreeMap::new();
    for (_, node) in taken {
        *chunks_of_node.entry(node).or_default() += 1;
    }
    let mut rest: Vec<&Candidate> =
        candidates.iter().filter(|candidate| taken.iter().all(|(disk, _)| *disk != candidate.disk)).collect();
    let mut chosen = Vec::with_capacity(count);
    while chosen.len() < count && !rest.is_empty() {
        let chunks = |candidate: &Candidate| chunks_of_node.get(&candidate.node).copied().unwrap_or(0);
        let fewest = rest.iter().map(|candidate| chunks(candidate)).min().unwrap_or(0);
        let eligible: Vec<usize> = (0..rest.len()).filter(|&i| chunks(rest[i]) == fewest).collect();
        let weight = |i: usize| rest[i].free_bytes / WEIGHT_BYTES + 1;
        let mut ticket = draw(eligible.iter().map(|&i| weight(i)).sum());
        let winner = eligible.iter().copied().find(|&i| {
            let wins = ticket < weight(i);
            ticket = ticket.saturating_sub(weight(i));
            wins
        });
        let candidate = rest.remove(winner.expect("the ticket is below the sum of weights"));
        *chunks_of_node.entry(&candidate.node).or_default() += 1;
        chosen.push(candidate.disk);
    }
    chosen
}

/// Free space is weighed in these units, so that the sum of weights stays far below 2^64.
const WEIGHT_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidates(nodes: &[&str]) -> Vec<Candidate> {
        let candidate = |(i, node): (usize, &&str)| Candidate {
            disk: DiskId(i as u128),
            node: NodeId((*node).to_owned()),
            free_bytes: 1 << 30,
        };
        nodes.iter().enumerate().map(candidate).collect()
    }

    #[test]
    fn six_chunks_on_three_nodes_are_two_on_each() {
        let candidates = candidates(&["a", "a", "a", "a", "b", "b", "b", "c", "c"]);
        let disks = place(&candidates, &[], 6, |bound| bound / 2);
        let mut nodes: Vec<&str> = disks.iter().map(|disk| candidates[disk.0 as usize].node.0.as_str()).collect();
        nodes.sort_unstable();
        assert_eq!(nodes, ["a", "a", "b", "b", "c", "c"]);
    }

    #[test]
    fn a_replacement_goes_to_the_node_with_the_fewest_chunks() {
        let candidates = candidates(&["a", "a", "b", "b"]);
        let taken = [(DiskId(0), NodeId("a".into())), (DiskId(2), NodeId("b".into())), (DiskId(9), NodeId("b".into()))];
        assert_eq!(place(&candidates, &taken, 1, |_| 0), [DiskId(1)]);
    }

    #[test]
    fn a_full_disk_is_drawn_rarely() {
        let mut candidates = candidates(&["a", "b"]);
        candidates[0].free_bytes = 0;
        let first = (0..1025).filter(|&ticket| place(&candidates, &[], 1, |_| ticket) == [DiskId(0)]).count();
        assert_eq!(first, 1);
    }

    proptest! {
        #[test]
        fn disks_are_distinct_and_as_many_as_there_can_be(
            nodes in prop::collection::vec(0u8..4, 0..12), count in 0usize..14, seed in any::<u64>(),
        ) {
            let names: Vec<String> = nodes.iter().map(u8::to_string).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let candidates = candidates(&names);
            let mut state = seed;
            let disks = place(&candidates, &[], count, |bound| { state = state.wrapping_mul(6364136223846793005).wrapping_add(1); (state >> 33) % bound });
            let distinct: std::collections::BTreeSet<_> = disks.iter().collect();
            prop_assert_eq!(distinct.len(), disks.len());
            prop_assert_eq!(disks.len(), count.min(candidates.len()));
        }
    }
}
