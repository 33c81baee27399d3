//! Where fast stripes go so that they can be merged: each on the disks of one lane, and those of different lanes share none.
//!
//! A merge leaves data where it is, so its sources must lie on different disks. Chosen freely, two stripes of six chunks on
//! fifteen disks do so once in sixty pairs. So the disks are dealt out to as many lanes as a merge has sources, and stripes
//! with chunks of one length go to the lanes by turns: then any two of different lanes can be merged, whatever their heat.
//!
//! ```text
//!            lane 0: disks 0 2 4 6 8 10 12 14      lane 1: disks 1 3 5 7 9 11 13        rsm:6+3 on fifteen disks
//!   stripe a data on 0 2 4 8 10 12, parity anywhere else
//!   stripe b                                       data on 1 3 5 7 9 11, parity anywhere else
//!   merged   all of these data chunks, new parity on what is left: 6 13 14
//! ```
//!
//! Where nodes are set apart and there are enough, whole nodes are dealt out: two disks of one node in two lanes would bring two
//! chunks of a merged stripe together on it.
//!
//! What is new may have copies of its data chunks instead of parity, or beside it: then the data chunks lie where those of a fast
//! stripe would, and copies anywhere; parity that a merge keeps is in the lane of the data, or made there.
//!
//! Invariants:
//! 1. Lanes are a preference: where a lane lacks disks with room, a stripe is placed as any other.
//! 2. A disk that is added leaves those there were in their lanes, unless with it there are nodes enough to deal out whole.
//! 3. A stripe in a lane survives as many losses of nodes as one that is spread over all of them.
//!
//! What is rebuilt, or moved off a disk, goes to the lane where most of what a merge keeps of its stripe lies.
//!
//! Left out: chunks of compact stripes, which go anywhere; whether stripes can be merged is looked at when they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use claystone_chunk::DiskId;
use claystone_code::{ChunkIndex, CodeSpec, ConversionGoal, plan_conversion};
use claystone_meta::DiskRecord;

use crate::nodes::in_order;
use crate::{Candidate, Nodes, Placed, place_chunks};

/// What becomes of a stripe that is written under one of these codes, or under one with copies of the same data chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Family {
    /// Those that are merged.
    pub fast: CodeSpec,
    /// What they are merged into.
    pub compact: CodeSpec,
}

/// The disks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Disks<'a> {
    /// Those that take new chunks and have room.
    pub(crate) candidates: &'a [Candidate],
    /// All, also those that are no candidates now.
    pub(crate) known: &'a [DiskRecord],
}

/// What placing in lanes remembers. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lanes(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Chunks of a fast stripe that merging keeps, by both codes.
    kept: BTreeMap<(CodeSpec, CodeSpec), Arc<BTreeSet<ChunkIndex>>>,
    /// The lane of the next stripe, by its codes and the bytes of its chunks.
    next: BTreeMap<(CodeSpec, CodeSpec, u64), u16>,
}

impl Lanes {
    /// The chunks that a stripe of `fast` keeps when it becomes one of `compact`, alone or with others; none if it cannot.
    pub(crate) fn kept(&self, fast: CodeSpec, compact: CodeSpec) -> Arc<BTreeSet<ChunkIndex>> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = state.kept.entry((fast, compact)).or_insert_with(|| {
            let plan = plan_conversion(fast, compact, ConversionGoal::FewestReads);
            let kept = plan.map(|plan| plan.kept.iter().map(|kept| kept.from.chunk).collect());
            Arc::new(kept.unwrap_or_default())
        });
        found.clone()
    }

    fn next(&self, fast: CodeSpec, compact: CodeSpec, chunk_bytes: u64, lanes: u16) -> u16 {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.next.len() >= TURNS_MAX {
            state.next.clear();
        }
        let next = state.next.entry((fast, compact, chunk_bytes)).or_insert(0);
        let lane = *next % lanes;
        *next = (lane + 1) % lanes;
        lane
    }

    /// Chooses disks for all chunks of a stripe of `code`, the fast one of its family or one with copies of its data chunks, that is
    /// to merge into one of the compact code, as [`place_chunks`] does.
    pub(crate) fn place(
        &self,
        code: CodeSpec,
        Family { fast, compact }: Family,
        chunk_bytes: u64,
        Disks { candidates, known }: Disks<'_>,
        mut draw: impl FnMut(u64) -> u64,
    ) -> Vec<Option<DiskId>> {
        let data = fast.shape().data;
        assert_eq!(code.shape().data, data, "{code} has the data chunks of {fast}");
        let chunks: Vec<ChunkIndex> = (0..code.shape().chunks()).map(ChunkIndex).collect();
        let lanes = compact.shape().data / data;
        let kept = self.kept(fast, compact);
        let is_kept = |chunk: &ChunkIndex| chunk.0 < data || (code.without_copies() == fast && kept.contains(chunk));
        let (stay, go): (Vec<ChunkIndex>, Vec<ChunkIndex>) = chunks.iter().partition(|chunk| is_kept(chunk));
        // Data chunks lie as the fast code wants them, whatever is beside them.
        let mut attempt = |of: &[Candidate]| {
            let first = place_chunks(fast, of, &[], &stay, &mut draw);
            let placed = placed(&stay, &first, of);
            (placed.len() == stay.len()).then(|| {
                let rest = place_chunks(code, candidates, &placed, &go, &mut draw);
                let mut disks: Vec<(ChunkIndex, Option<DiskId>)> =
                    stay.iter().copied().zip(first).chain(go.iter().copied().zip(rest)).collect();
                disks.sort_unstable_by_key(|(chunk, _)| *chunk);
                disks.into_iter().map(|(_, disk)| disk).collect::<Vec<_>>()
            })
        };
        if lanes > 1 {
            let turn = self.next(fast, compact, chunk_bytes, lanes);
            if let Some(disks) = attempt(&of_lane(candidates, &lane(known, turn, lanes, kept.len())))
                && is_spread(code, (0..).map(ChunkIndex).zip(disks.iter().copied()), candidates, known)
            {
                return disks;
            }
        }
        let copies = (code != fast).then(|| attempt(candidates)).flatten();
        copies.unwrap_or_else(|| place_chunks(code, candidates, &[], &chunks, draw))
    }

    /// Chooses disks for chunks `writes` of a stripe of `code`, the fast one of its family or one with copies of its data chunks, of
    /// which `taken` lies already: those that a merge keeps go to the lane where others of them are, if it has room, all others as
    /// [`place_chunks`] does.
    pub(crate) fn place_beside(
        &self,
        code: CodeSpec,
        Family { fast, compact }: Family,
        Disks { candidates, known }: Disks<'_>,
        taken: &[Placed],
        writes: &[ChunkIndex],
        mut draw: impl FnMut(u64) -> u64,
    ) -> Vec<Option<DiskId>> {
        let data = fast.shape().data;
        assert_eq!(code.shape().data, data, "{code} has the data chunks of {fast}");
        let kept = self.kept(fast, compact);
        let is_kept = |chunk: ChunkIndex| chunk.0 < data || (code.without_copies() == fast && kept.contains(&chunk));
        let (stay, go): (Vec<ChunkIndex>, Vec<ChunkIndex>) = writes.iter().partition(|chunk| is_kept(**chunk));
        let lanes = compact.shape().data / data;
        if stay.is_empty() || lanes < 2 {
            return place_chunks(code, candidates, taken, writes, draw);
        }
        let there = |turn: &u16| {
            let members = lane(known, *turn, lanes, kept.len());
            taken.iter().filter(|placed| is_kept(placed.chunk) && members.contains(&placed.disk)).count()
        };
        let turn = (0..lanes).max_by_key(there).expect("there are lanes");
        let mut of_lane = of_lane(candidates, &lane(known, turn, lanes, kept.len()));
        // Copies may share disks with other data, and what a merge keeps may not.
        of_lane.retain(|candidate| !taken.iter().any(|placed| is_kept(placed.chunk) && placed.disk == candidate.disk));
        let first = place_chunks(code, &of_lane, taken, &stay, &mut draw);
        if first.iter().flatten().collect::<BTreeSet<_>>().len() < stay.len() {
            return place_chunks(code, candidates, taken, writes, draw);
        }
        let beside: Vec<Placed> = taken.iter().cloned().chain(placed(&stay, &first, candidates)).collect();
        let rest = place_chunks(code, candidates, &beside, &go, &mut draw);
        let disks: BTreeMap<ChunkIndex, Option<DiskId>> =
            stay.into_iter().zip(first).chain(go.into_iter().zip(rest)).collect();
        let in_lane: Vec<Option<DiskId>> = writes.iter().map(|chunk| disks[chunk]).collect();
        let with = |disks: &[Option<DiskId>]| {
            let there = taken.iter().map(|placed| (placed.chunk, Some(placed.disk)));
            there.chain(writes.iter().copied().zip(disks.iter().copied())).collect::<Vec<_>>()
        };
        if is_spread(code, with(&in_lane).into_iter(), candidates, known) {
            return in_lane;
        }
        // Where it lies may survive less than it could, wherever these go.
        let anywhere = place_chunks(code, candidates, taken, writes, draw);
        let losses = |disks: &[Option<DiskId>]| losses(code, with(disks).into_iter(), known);
        if losses(&in_lane) >= losses(&anywhere) { in_lane } else { anywhere }
    }
}

fn of_lane(candidates: &[Candidate], lane: &BTreeSet<DiskId>) -> Vec<Candidate> {
    candidates.iter().filter(|candidate| lane.contains(&candidate.disk)).cloned().collect()
}

/// Those of the chunks that were given one of the candidates.
fn placed(chunks: &[ChunkIndex], disks: &[Option<DiskId>], candidates: &[Candidate]) -> Vec<Placed> {
    let placed = |(chunk, disk): (&ChunkIndex, &Option<DiskId>)| {
        let candidate = candidates.iter().find(|candidate| Some(candidate.disk) == *disk)?;
        Some(Placed { chunk: *chunk, disk: candidate.disk, node: candidate.node.clone() })
    };
    chunks.iter().zip(disks).filter_map(placed).collect()
}

/// The disks of a lane: whole nodes in the order in which they were added, if there is one for each of the `kept` chunks of all
/// sources of a merge; else single disks in that order, those added at once node by node, so that each lane has some of each node.
fn lane(known: &[DiskRecord], lane: u16, lanes: u16, kept: usize) -> BTreeSet<DiskId> {
    let nodes = in_order(known);
    if nodes.len() >= usize::from(lanes) * kept {
        return nodes.into_iter().skip(lane.into()).step_by(lanes.into()).flatten().collect();
    }
    let mut known: Vec<&DiskRecord> = known.iter().collect();
    known.sort_unstable_by_key(|disk| (disk.added, &disk.node, disk.id));
    known.iter().skip(lane.into()).step_by(lanes.into()).map(|disk| disk.id).collect()
}

/// Whether chunks that lie so survive as many losses of nodes as they would if they were spread over all candidates: a lane may
/// have room on a few of its nodes only.
fn is_spread(
    code: CodeSpec,
    places: impl Iterator<Item = (ChunkIndex, Option<DiskId>)>,
    candidates: &[Candidate],
    known: &[DiskRecord],
) -> bool {
    let takes: BTreeSet<DiskId> = candidates.iter().map(|candidate| candidate.disk).collect();
    let writable = Nodes::of(known.iter().filter(|disk| takes.contains(&disk.id)));
    losses(code, places, known) >= writable.losses_when_spread(code)
}

/// How many losses of nodes chunks survive that lie so.
fn losses(code: CodeSpec, places: impl Iterator<Item = (ChunkIndex, Option<DiskId>)>, known: &[DiskRecord]) -> usize {
    Nodes::of(known).losses(code, places.filter_map(|(chunk, disk)| Some((chunk, disk?))))
}

/// Lengths of chunks whose turn is remembered; then all begin anew, which costs a partner here and there.
const TURNS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use claystone_chunk::NodeId;
    use claystone_code::Coded;
    use claystone_env::WallTime;
    use claystone_meta::DiskState;

    use super::*;

    fn disks_of(count: u128) -> Vec<DiskRecord> {
        let disk = |id: u128| DiskRecord {
            id: DiskId(id),
            node: NodeId(format!("n{}", id % 4)),
            path: String::new(),
            state: DiskState::Active,
            added: WallTime::default(),
        };
        (0..count).map(disk).collect()
    }

    fn candidates(known: &[DiskRecord]) -> Vec<Candidate> {
        let candidate = |disk: &DiskRecord| Candidate { disk: disk.id, node: disk.node.clone(), free_bytes: 1 << 40 };
        known.iter().map(candidate).collect()
    }

    fn disks<'a>(candidates: &'a [Candidate], known: &'a [DiskRecord]) -> Disks<'a> {
        Disks { candidates, known }
    }

    fn draws() -> impl FnMut(u64) -> u64 {
        let mut state = 7u64;
        move |bound| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % bound
        }
    }

    /// On as few disks as the compact code has chunks, as many stripes as it takes can be merged, again and again.
    #[test]
    fn stripes_of_all_lanes_share_no_disk_that_a_merge_keeps() {
        for (fast, compact) in [("rsm:6+3", "rsm:12+3"), ("rsm:10+4", "rsm:20+4"), ("pc:2x5", "pc:6x5")] {
            let codes: (CodeSpec, CodeSpec) = (fast.parse().expect("valid"), compact.parse().expect("valid"));
            let known = disks_of(codes.1.disks_min().into());
            let (lanes, mut draw) = (Lanes::default(), draws());
            let kept = lanes.kept(codes.0, codes.1);
            let family = Family { fast: codes.0, compact: codes.1 };
            let data = u8::try_from(codes.0.shape().data).expect("narrow");
            let copies = CodeSpec::Mirror { data, copies: 3 };
            let sources = usize::from(codes.1.shape().data / codes.0.shape().data);
            for round in 0..20 {
                let mut met: Vec<DiskId> = Vec::new();
                for _ in 0..sources {
                    let all_candidates = candidates(&known);
                    // Written as copies and then encoded, or at once, with copies beside or without.
                    let placed = if round % 3 == 0 {
                        let mirrored = lanes.place(copies, family, 1 << 20, disks(&all_candidates, &known), &mut draw);
                        let (data, parity): (Vec<ChunkIndex>, Vec<ChunkIndex>) =
                            (0..codes.0.shape().chunks()).map(ChunkIndex).partition(|chunk| chunk.0 < data.into());
                        assert!(mirrored.iter().all(Option::is_some));
                        let beside = super::placed(&data, &mirrored, &all_candidates);
                        let parity = lanes.place_beside(
                            family.fast,
                            family,
                            disks(&all_candidates, &known),
                            &beside,
                            &parity,
                            &mut draw,
                        );
                        mirrored[..data.len()].iter().copied().chain(parity).collect()
                    } else {
                        let hybrid = Coded::of(codes.0).map(|coded| CodeSpec::Hybrid { coded, copies: 2 });
                        let code = hybrid.filter(|_| round % 3 == 1).unwrap_or(codes.0);
                        let mut placed = lanes.place(code, family, 1 << 20, disks(&all_candidates, &known), &mut draw);
                        assert!(placed.iter().all(Option::is_some));
                        placed.truncate(codes.0.shape().chunks().into());
                        placed
                    };
                    let mut all: Vec<DiskId> = placed.iter().map(|disk| disk.expect("disks enough")).collect();
                    met.extend(kept.iter().map(|chunk| all[chunk.at()]));
                    all.sort_unstable();
                    all.dedup();
                    assert_eq!(all.len(), placed.len(), "each chunk on a disk of its own");
                }
                let distinct: BTreeSet<DiskId> = met.iter().copied().collect();
                assert_eq!(distinct.len(), met.len(), "{fast}, round {round}");
                assert_eq!(met.len(), sources * kept.len());
            }
        }
    }

    #[test]
    fn a_disk_that_is_added_changes_no_lane() {
        let mut known = disks_of(15);
        let before = [0, 1].map(|turn| lane(&known, turn, 2, 6));
        assert_eq!(before.each_ref().map(BTreeSet::len), [8, 7]);
        assert!(before[0].is_disjoint(&before[1]));
        known.push(DiskRecord { id: DiskId(99), added: WallTime { unix_ms: 1 }, ..known[0].clone() });
        let after = [0, 1].map(|turn| lane(&known, turn, 2, 6));
        assert_eq!(after[0], before[0]);
        assert!(after[1].is_superset(&before[1]));
    }

    /// Two disks on each of as many nodes as the compact code has chunks: stripes of all lanes share no node.
    #[test]
    fn stripes_of_all_lanes_share_no_node_where_there_are_enough() {
        let on_nodes = |disks: u128| -> Vec<DiskRecord> {
            let at = |disk: DiskRecord| DiskRecord { node: NodeId(format!("n{:02}", disk.id.0 / 2)), ..disk };
            disks_of(disks).into_iter().map(at).collect()
        };
        for (fast, compact) in [("rsm:6+3", "rsm:12+3"), ("pc:2x5", "pc:6x5")] {
            let family = Family { fast: fast.parse().expect("valid"), compact: compact.parse().expect("valid") };
            let known = on_nodes(2 * u128::from(family.compact.disks_min()));
            let (lanes, mut draw) = (Lanes::default(), draws());
            let kept = lanes.kept(family.fast, family.compact);
            for _ in 0..20 {
                let mut met: Vec<u128> = Vec::new();
                for _ in 0..family.compact.shape().data / family.fast.shape().data {
                    let placed =
                        lanes.place(family.fast, family, 1 << 20, disks(&candidates(&known), &known), &mut draw);
                    let nodes: Vec<u128> = placed.iter().map(|disk| disk.expect("disks enough").0 / 2).collect();
                    assert_eq!(nodes.iter().collect::<BTreeSet<_>>().len(), nodes.len(), "each chunk on its own node");
                    met.extend(kept.iter().map(|chunk| nodes[chunk.at()]));
                }
                assert_eq!(met.iter().collect::<BTreeSet<_>>().len(), met.len(), "{fast}: {met:?}");
            }
        }
    }

    #[test]
    fn a_lane_with_room_on_few_nodes_only_is_left() {
        let at = |disk: DiskRecord| DiskRecord { node: NodeId(format!("n{:02}", disk.id.0 / 2)), ..disk };
        let known: Vec<DiskRecord> = disks_of(30).into_iter().map(at).collect();
        let family = Family { fast: "rsm:6+3".parse().expect("valid"), compact: "rsm:12+3".parse().expect("valid") };
        let (lanes, mut draw) = (Lanes::default(), draws());
        // Of the even nodes, which are one lane, three have room, and all of the others: twenty disks.
        let roomy = |candidate: &Candidate| candidate.disk.0 / 2 % 2 == 1 || candidate.disk.0 < 12;
        let candidates: Vec<Candidate> = candidates(&known).into_iter().filter(roomy).collect();
        for _ in 0..4 {
            let placed = lanes.place(family.fast, family, 1 << 20, disks(&candidates, &known), &mut draw);
            let nodes: BTreeSet<u128> = placed.iter().flatten().map(|disk| disk.0 / 2).collect();
            assert_eq!(nodes.len(), 9, "{placed:?}");
        }
    }

    /// Each chunk of a stripe in turn is lost with its disk.
    #[test]
    fn what_is_rebuilt_goes_to_the_lane_of_its_stripe() {
        let family = Family { fast: "rsm:6+3".parse().expect("valid"), compact: "rsm:12+3".parse().expect("valid") };
        let at = |disk: DiskRecord| DiskRecord { node: NodeId(format!("n{:02}", disk.id.0)), ..disk };
        let known: Vec<DiskRecord> = disks_of(24).into_iter().map(at).collect();
        let (all_candidates, lanes, mut draw) = (candidates(&known), Lanes::default(), draws());
        for code in [family.fast, "mirror:6x3".parse().expect("valid")] {
            for turn in 0..2 {
                let placed = lanes.place(code, family, 1 << 20, disks(&all_candidates, &known), &mut draw);
                for (lost, disk) in (0..).map(ChunkIndex).zip(&placed) {
                    let others: Vec<ChunkIndex> = (0..)
                        .map(ChunkIndex)
                        .zip(&placed)
                        .filter(|(_, other)| *other != disk)
                        .map(|(at, _)| at)
                        .collect();
                    let at: Vec<Option<DiskId>> = others.iter().map(|chunk| placed[chunk.at()]).collect();
                    let taken = super::placed(&others, &at, &all_candidates);
                    let left: Vec<Candidate> =
                        all_candidates.iter().filter(|candidate| Some(candidate.disk) != *disk).cloned().collect();
                    let chosen = lanes.place_beside(code, family, disks(&left, &known), &taken, &[lost], &mut draw);
                    let chosen = chosen[0].expect("disks enough");
                    assert!(lost.0 >= 6 || lane(&known, turn, 2, 6).contains(&chosen), "{code}: {lost:?} on {chosen}");
                }
            }
        }
        // The lane is full: the chunk goes anywhere.
        let placed = lanes.place(family.fast, family, 1 << 20, disks(&all_candidates, &known), &mut draw);
        let others: Vec<ChunkIndex> = (1..9).map(ChunkIndex).collect();
        let taken = super::placed(&others, &placed[1..], &all_candidates);
        let of_lane = lane(&known, 0, 2, 6);
        let left: Vec<Candidate> =
            all_candidates.iter().filter(|candidate| !of_lane.contains(&candidate.disk)).cloned().collect();
        let chosen = lanes.place_beside(family.fast, family, disks(&left, &known), &taken, &[ChunkIndex(0)], &mut draw);
        assert!(chosen[0].is_some_and(|disk| !of_lane.contains(&disk)));
    }

    #[test]
    fn where_a_lane_lacks_disks_a_stripe_is_placed_as_any_other() {
        let family = Family { fast: "rsm:6+3".parse().expect("valid"), compact: "rsm:12+3".parse().expect("valid") };
        let (known, lanes, mut draw) = (disks_of(10), Lanes::default(), draws());
        for _ in 0..4 {
            let placed = lanes.place(family.fast, family, 1 << 20, disks(&candidates(&known), &known), &mut draw);
            let distinct: BTreeSet<DiskId> = placed.iter().flatten().copied().collect();
            assert_eq!(distinct.len(), 9);
            // Copies may share disks with other data, data chunks may not.
            let copies = "mirror:6x3".parse().expect("valid");
            let placed = lanes.place(copies, family, 1 << 20, disks(&candidates(&known), &known), &mut draw);
            let distinct: BTreeSet<DiskId> = placed[..6].iter().flatten().copied().collect();
            assert_eq!((distinct.len(), placed.iter().flatten().count()), (6, 18));
        }
    }
}
