//! How many losses of whole nodes a stripe survives, by where its chunks lie: pure functions.
//!
//! ```text
//!   rsm:12+3 on fifteen nodes, a chunk on each      any three nodes may be lost
//!   the same with two chunks on two of the nodes    one node may be lost, not these two: that is four chunks
//!   rsm:12+3 on five nodes, three chunks on each    one node may be lost
//! ```
//!
//! Invariants:
//! 1. What is counted is never more than what is survived: a code counts as one that survives its tolerance and no loss of
//!    more chunks, though some codes do.
//! 2. A disk that is not known is a node of its own.

use std::collections::{BTreeMap, BTreeSet};

use claystone_chunk::{DiskId, NodeId};
use claystone_code::{ChunkIndex, CodeSpec};
use claystone_meta::{DiskRecord, DiskState, StripeRecord};

/// Which disks share a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Nodes {
    of: BTreeMap<DiskId, usize>,
    /// Of each node, the disks that are there to be written to.
    disks: Vec<usize>,
}

/// The node of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node {
    /// One that is known, by a number.
    Known(usize),
    /// The one of this disk.
    Of(DiskId),
}

impl Nodes {
    /// The nodes of these disks. Those that are given up or drained are on their node still, and take nothing.
    pub fn of<'a>(known: impl IntoIterator<Item = &'a DiskRecord>) -> Nodes {
        let (mut nodes, mut numbers) = (Nodes::default(), BTreeMap::<&NodeId, usize>::new());
        for disk in known {
            let number = *numbers.entry(&disk.node).or_insert(nodes.disks.len());
            nodes.disks.resize(nodes.disks.len().max(number + 1), 0);
            nodes.disks[number] += usize::from(disk.state == DiskState::Active);
            nodes.of.insert(disk.id, number);
        }
        nodes
    }

    /// The node of a disk.
    pub fn node(&self, disk: DiskId) -> Node {
        self.of.get(&disk).map_or(Node::Of(disk), |number| Node::Known(*number))
    }

    /// Nodes with disks that are there to be written to.
    pub fn count(&self) -> usize {
        self.disks.iter().filter(|disks| **disks > 0).count()
    }

    /// The most chunks of a stripe that any node has when they are spread over all nodes as evenly as their disks allow, each
    /// on a disk of its own.
    pub fn most_when_spread(&self, chunks: u16) -> usize {
        self.spread(chunks).into_iter().max().unwrap_or(0)
    }

    /// How many nodes may be lost of those that have a stripe spread so. Copies beside a code are not counted on: without them it survives
    /// no more.
    pub fn losses_when_spread(&self, code: CodeSpec) -> usize {
        let chunks = match code {
            CodeSpec::Mirror { copies, .. } => copies.into(),
            // The larger of its sets.
            CodeSpec::Mixed { data, parity, copies, mirrored } => {
                (u16::from(data) - mirrored.count() + u16::from(parity)).max(copies.into())
            }
            _ => code.without_copies().shape().chunks(),
        };
        losses(self.spread(chunks), code.without_copies().tolerance())
    }

    /// Whether stripes of one code, spread so, survive as many losses of nodes as those of another.
    pub fn keep_safe(&self, code: CodeSpec, as_of: CodeSpec) -> bool {
        self.losses_when_spread(code) >= self.losses_when_spread(as_of)
    }

    /// How many nodes may be lost at least, whichever they are, of those that have these chunks of a stripe. Copies beside a code are not
    /// counted on.
    pub fn losses(&self, spec: CodeSpec, places: impl IntoIterator<Item = (ChunkIndex, DiskId)>) -> usize {
        // What is lost with its copies is lost, whatever is left of others: each mirrored data chunk counts for itself.
        let set = |chunk: ChunkIndex| spec.lost_with(chunk);
        let code = spec.without_copies();
        let mut sets: BTreeMap<Option<ChunkIndex>, BTreeMap<Node, usize>> = BTreeMap::new();
        for (chunk, disk) in places.into_iter().filter(|(chunk, _)| chunk.0 < code.shape().chunks()) {
            *sets.entry(set(chunk)).or_default().entry(self.node(disk)).or_default() += 1;
        }
        let of = |on: BTreeMap<Node, usize>| losses(on.into_values().collect(), code.tolerance());
        sets.into_values().map(of).min().unwrap_or(0)
    }

    /// The same of a stripe where its chunks lie now.
    pub fn losses_of(&self, stripe: &StripeRecord) -> usize {
        let places = (0..).map(ChunkIndex).zip(&stripe.places);
        self.losses(stripe.code, places.filter_map(|(chunk, place)| Some((chunk, place.as_ref()?.disk))))
    }

    /// How many chunks each node has, as `place_chunks` deals them out.
    fn spread(&self, chunks: u16) -> Vec<usize> {
        let mut on = vec![0; self.disks.len()];
        for _ in 0..chunks {
            let has_room = (0..on.len()).filter(|node| on[*node] < self.disks[*node]);
            let Some(emptiest) = has_room.min_by_key(|node| on[*node]) else { break };
            on[emptiest] += 1;
        }
        on
    }
}

/// The nodes in the order in which they were added, each with its disks.
pub(crate) fn in_order(known: &[DiskRecord]) -> Vec<BTreeSet<DiskId>> {
    let mut nodes: BTreeMap<&NodeId, Vec<&DiskRecord>> = BTreeMap::new();
    known.iter().for_each(|disk| nodes.entry(&disk.node).or_default().push(disk));
    let added = |disks: &[&DiskRecord]| disks.iter().map(|disk| disk.added).min();
    let mut nodes: Vec<(&NodeId, Vec<&DiskRecord>)> = nodes.into_iter().collect();
    nodes.sort_by_key(|(node, disks)| (added(disks), *node));
    nodes.into_iter().map(|(_, disks)| disks.into_iter().map(|disk| disk.id).collect()).collect()
}

/// How many nodes with so many chunks each may be lost when so many chunks may be.
fn losses(mut on: Vec<usize>, tolerance: u16) -> usize {
    on.sort_unstable_by(|one, other| other.cmp(one));
    let mut left = usize::from(tolerance);
    let fits = |chunks: &&usize| {
        let fits = **chunks <= left;
        left = left.saturating_sub(**chunks);
        fits
    };
    on.iter().take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use claystone_env::WallTime;

    use super::*;

    fn disk(id: u128, node: u128) -> DiskRecord {
        let node = NodeId(format!("n{node}"));
        DiskRecord { id: DiskId(id), node, path: String::new(), state: DiskState::Active, added: WallTime::default() }
    }

    /// Disks 0, 1, ... on nodes with so many disks each.
    fn nodes(disks: &[usize]) -> Nodes {
        let on = disks.iter().enumerate().flat_map(|(node, disks)| std::iter::repeat_n(node as u128, *disks));
        let disks: Vec<DiskRecord> = (0..).zip(on).map(|(id, node)| disk(id, node)).collect();
        Nodes::of(&disks)
    }

    fn spec(code: &str) -> CodeSpec {
        code.parse().expect("a valid code")
    }

    fn at(disks: &[u128]) -> Vec<(ChunkIndex, DiskId)> {
        (0..).map(ChunkIndex).zip(disks.iter().copied().map(DiskId)).collect()
    }

    #[test]
    fn two_nodes_with_two_chunks_each_are_four_losses() {
        let two_each = nodes(&[2; 15]);
        let code = spec("rsm:12+3");
        let apart: Vec<u128> = (0..15).map(|node| 2 * node).collect();
        assert_eq!(two_each.losses(code, at(&apart)), 3);
        // The second disks of the nodes 0 and 1 instead of the nodes 13 and 14.
        let crowded: Vec<u128> = apart[..13].iter().copied().chain([1, 3]).collect();
        assert_eq!(two_each.losses(code, at(&crowded)), 1);
        // Disks that nobody knows are on nodes of their own.
        assert_eq!(Nodes::default().losses(code, at(&crowded)), 3);
    }

    #[test]
    fn copies_count_each_data_chunk_for_itself() {
        let two_each = nodes(&[2; 3]);
        // Chunk d on node d, or on node 0, its copies on the next two.
        let apart = at(&[0, 2, 4, 2, 4, 0, 4, 0, 2]);
        assert_eq!(two_each.losses(spec("mirror:3x3"), apart), 2);
        let two_on_one = at(&[0, 2, 4, 1, 4, 0, 4, 0, 2]);
        assert_eq!(two_each.losses(spec("mirror:3x3"), two_on_one), 1);
        assert_eq!(two_each.losses_when_spread(spec("mirror:3x3")), 2);
    }

    #[test]
    fn copies_beside_a_code_are_not_counted_on() {
        let two_each = nodes(&[2; 3]);
        // Data and parity, two on each node, and the second copies together.
        let places = at(&[0, 2, 4, 1, 3, 5, 0, 0, 0, 0]);
        assert_eq!(two_each.losses(spec("hybrid:rsm:4+2x2"), places), 1);
        assert_eq!(two_each.losses_when_spread(spec("hybrid:rsm:4+2x2")), 1);
    }

    #[test]
    fn spread_chunks_fill_nodes_evenly_as_far_as_their_disks_go() {
        let cases = [
            (nodes(&[2; 15]), 1, 3),
            (nodes(&[3; 5]), 3, 1),
            (nodes(&[20]), 15, 0),
            // One node of one disk, two of many.
            (nodes(&[1, 9, 9]), 7, 0),
        ];
        for (at, (nodes, most, losses)) in cases.into_iter().enumerate() {
            assert_eq!(nodes.most_when_spread(15), most, "case {at}");
            assert_eq!(nodes.losses_when_spread(spec("rsm:12+3")), losses, "case {at}");
        }
    }

    #[test]
    fn disks_that_are_given_up_are_on_their_node_and_take_nothing() {
        let lost = DiskRecord { state: DiskState::Lost, ..disk(1, 1) };
        let known = Nodes::of(&[disk(0, 0), lost]);
        assert_eq!((known.count(), known.node(DiskId(1))), (1, Node::Known(1)));
    }
}
