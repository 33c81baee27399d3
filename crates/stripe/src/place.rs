//! Which disks a stripe's chunks go to: a pure function.

use std::collections::BTreeMap;

use claystone_chunk::{DiskId, NodeId};
use claystone_code::{ChunkIndex, CodeSpec};

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

/// A chunk of a stripe and where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// The chunk.
    pub chunk: ChunkIndex,
    /// Its disk.
    pub disk: DiskId,
    /// The disk's failure domain.
    pub node: NodeId,
}

/// Chooses disks for `chunks` of a stripe under `code`, of which others lie on `taken`; one entry for each chunk, `None`
/// where no disk may have it.
///
/// Two chunks share a disk only where the code says that they may ([`CodeSpec::may_share_disk`]). Of the disks that are
/// left to a chunk it gets one of those with, in this order,
/// 1. the fewest data chunks, if it is one: a stripe whose data chunks lie apart can get a code that wants all apart;
/// 2. the fewest chunks on its node with which it may not share a disk: all of the stripe, or its copies;
/// 3. the fewest chunks, on the disk and then on its node.
///
/// Among those one is drawn with a chance in proportion to its free space, so that disks fill up together.
/// `draw(bound)` gives a random number below `bound`.
///
/// # Panics
/// If a chunk is not one of the code, or is there twice.
pub fn place_chunks(
    code: CodeSpec,
    candidates: &[Candidate],
    taken: &[Placed],
    chunks: &[ChunkIndex],
    mut draw: impl FnMut(u64) -> u64,
) -> Vec<Option<DiskId>> {
    let is_data = |chunk: ChunkIndex| chunk.0 < code.shape().data;
    let mut placed = taken.to_vec();
    let mut choose = |chunk: &ChunkIndex| {
        let rank = |candidate: &Candidate| {
            let (mut data_on_disk, mut apart_on_node, mut on_disk, mut on_node) = (0, 0, 0, 0);
            for other in &placed {
                let beside = other.disk == candidate.disk;
                if !beside && other.node != candidate.node {
                    continue;
                }
                let apart = !code.may_share_disk(*chunk, other.chunk);
                if beside && apart {
                    return None;
                }
                data_on_disk += usize::from(beside && is_data(*chunk) && is_data(other.chunk));
                apart_on_node += usize::from(apart);
                on_disk += usize::from(beside);
                on_node += 1;
            }
            Some([data_on_disk, apart_on_node, on_disk, on_node])
        };
        let winner = best(candidates, rank, &mut draw)?;
        placed.push(Placed { chunk: *chunk, disk: winner.disk, node: winner.node.clone() });
        Some(winner.disk)
    };
    chunks.iter().map(&mut choose).collect()
}

/// The nodes where chunks of a stripe are to lie, of those for which that matters.
pub type Homes = BTreeMap<ChunkIndex, NodeId>;

/// Chooses disks for all chunks of a stripe as [`place_chunks`] does, but those with a home come first, and go to a disk there that has no
/// other data of it; where none may have one it goes where it would without.
pub fn place_at_home(
    code: CodeSpec,
    candidates: &[Candidate],
    homes: &Homes,
    mut draw: impl FnMut(u64) -> u64,
) -> Vec<Option<DiskId>> {
    let mut placed: Vec<Placed> = Vec::new();
    let chunks = || (0..code.shape().chunks()).map(ChunkIndex);
    let mut place = |placed: &mut Vec<Placed>, chunk: ChunkIndex, candidates: &[Candidate]| {
        let disk = place_chunks(code, candidates, placed, &[chunk], &mut draw)[0]?;
        let node = candidates.iter().find(|candidate| candidate.disk == disk)?.node.clone();
        placed.push(Placed { chunk, disk, node });
        Some(disk)
    };
    for (chunk, home) in chunks().filter_map(|chunk| Some((chunk, homes.get(&chunk)?))) {
        let has_data = |disk: DiskId| placed.iter().any(|placed| placed.disk == disk);
        let at_home = |candidate: &&Candidate| candidate.node == *home && !has_data(candidate.disk);
        let there: Vec<Candidate> = candidates.iter().filter(at_home).cloned().collect();
        place(&mut placed, chunk, &there);
    }
    let at_home: BTreeMap<ChunkIndex, DiskId> = placed.iter().map(|placed| (placed.chunk, placed.disk)).collect();
    chunks().map(|chunk| at_home.get(&chunk).copied().or_else(|| place(&mut placed, chunk, candidates))).collect()
}

/// Where lost chunks of a stripe go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rehousing {
    /// The disk of each for which there is one.
    pub disks: BTreeMap<ChunkIndex, DiskId>,
    /// Of these, the chunks to which copies give way.
    pub displacing: Vec<ChunkIndex>,
    /// These copies.
    pub give_way: Vec<ChunkIndex>,
}

/// Chooses disks for the chunks `homeless`, where the chunks of the stripe lie as `lies` says and it is without those `missing`, the
/// homeless among them. `place` gives chunks disks, as [`place_chunks`] does.
///
/// Data and parity come before further copies, which give way to them in a hybrid where no disk is free: there they cannot lie beside copies, and
/// these may have all disks that are left. Its own copy gives way to a data chunk first, else those of a disk that has the fewest; only to chunks and on
/// disks that `may_give_way`, only while the data is there that they are copies of, and only where the stripe survives as many losses after as before.
///
/// # Panics
/// If a chunk is not one of the code, or is there twice.
pub fn rehouse(
    code: CodeSpec,
    mut lies: BTreeMap<ChunkIndex, DiskId>,
    mut missing: Vec<ChunkIndex>,
    homeless: &[ChunkIndex],
    may_give_way: impl Fn(ChunkIndex, DiskId) -> bool,
    mut place: impl FnMut(&BTreeMap<ChunkIndex, DiskId>, &[ChunkIndex]) -> Vec<Option<DiskId>>,
) -> Rehousing {
    let mut found = Rehousing::default();
    let is_copy = |chunk: &&ChunkIndex| code.copied(**chunk).is_some();
    let (copies, coded): (Vec<ChunkIndex>, Vec<ChunkIndex>) = homeless.iter().partition(is_copy);
    for chunks in [coded, copies] {
        let disks = place(&lies, &chunks);
        for (chunk, disk) in chunks.iter().zip(disks).filter_map(|(chunk, disk)| Some((*chunk, disk?))) {
            missing.retain(|lost| *lost != chunk);
            lies.insert(chunk, disk);
            found.disks.insert(chunk, disk);
        }
        for chunk in &chunks {
            let may_give_way = |disk| may_give_way(*chunk, disk);
            if !found.disks.contains_key(chunk)
                && let Some((disk, copies)) = giving_way(code, &lies, &missing, *chunk, may_give_way)
            {
                lies.retain(|copy, _| !copies.contains(copy));
                missing.retain(|lost| lost != chunk);
                missing.extend(&copies);
                lies.insert(*chunk, disk);
                found.disks.insert(*chunk, disk);
                found.displacing.push(*chunk);
                found.give_way.extend(copies);
            }
        }
    }
    found
}

/// The disk that copies leave to a missing chunk, and these copies.
fn giving_way(
    code: CodeSpec,
    lies: &BTreeMap<ChunkIndex, DiskId>,
    missing: &[ChunkIndex],
    chunk: ChunkIndex,
    may_give_way: impl Fn(DiskId) -> bool,
) -> Option<(DiskId, Vec<ChunkIndex>)> {
    // Where copies may lie beside any other data, disks are free or too few for all.
    if !matches!(code, CodeSpec::Hybrid { .. }) || code.copied(chunk).is_some() {
        return None;
    }
    let mut on: BTreeMap<DiskId, Vec<ChunkIndex>> = BTreeMap::new();
    for (there, disk) in lies.iter().filter(|(there, _)| !missing.contains(there)) {
        on.entry(*disk).or_default().push(*there);
    }
    let left = code.tolerance_left(missing);
    let rank = |(disk, there): (&DiskId, &Vec<ChunkIndex>)| {
        // Of data that is lost a copy is read in place of it.
        let is_spare = |data: ChunkIndex| data == chunk || !missing.contains(&data);
        let are_spare = there.iter().all(|other| code.copied(*other).is_some_and(is_spare));
        let after: Vec<ChunkIndex> = missing.iter().filter(|lost| **lost != chunk).chain(there).copied().collect();
        let fits = are_spare && may_give_way(*disk) && code.tolerance_left(&after) >= left;
        let is_other = there.iter().all(|other| code.copied(*other) != Some(chunk));
        fits.then_some((is_other, there.len(), *disk))
    };
    let (_, _, disk) = on.iter().filter_map(rank).min()?;
    on.remove_entry(&disk)
}

/// Chooses `count` distinct disks for copies of something that `taken` have already: spread over the nodes as evenly as the
/// disks allow, and drawn as for [`place_chunks`]. Returns fewer than `count` disks if there are no more.
pub fn place(
    candidates: &[Candidate],
    taken: &[(DiskId, NodeId)],
    count: usize,
    mut draw: impl FnMut(u64) -> u64,
) -> Vec<DiskId> {
    let mut placed = taken.to_vec();
    let mut choose = || {
        let rank = |candidate: &Candidate| {
            let is_free = placed.iter().all(|(disk, _)| *disk != candidate.disk);
            is_free.then(|| placed.iter().filter(|(_, node)| *node == candidate.node).count())
        };
        let winner = best(candidates, rank, &mut draw)?;
        placed.push((winner.disk, winner.node.clone()));
        Some(winner.disk)
    };
    (0..count).map_while(|_| choose()).collect()
}

/// One of the candidates with the least rank, if any has one.
fn best<'a, R: Ord>(
    candidates: &'a [Candidate],
    rank: impl Fn(&Candidate) -> Option<R>,
    draw: &mut impl FnMut(u64) -> u64,
) -> Option<&'a Candidate> {
    let ranked: Vec<(R, &Candidate)> =
        candidates.iter().filter_map(|candidate| rank(candidate).map(|rank| (rank, candidate))).collect();
    let least = ranked.iter().map(|(rank, _)| rank).min()?;
    let eligible: Vec<&Candidate> =
        ranked.iter().filter(|(rank, _)| rank == least).map(|(_, candidate)| *candidate).collect();
    let weight = |candidate: &Candidate| candidate.free_bytes / WEIGHT_BYTES + 1;
    let mut ticket = draw(eligible.iter().map(|candidate| weight(candidate)).sum());
    let winner = eligible.into_iter().find(|candidate| {
        let wins = ticket < weight(candidate);
        ticket = ticket.saturating_sub(weight(candidate));
        wins
    });
    Some(winner.expect("the ticket is below the sum of weights"))
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

    fn chunks(indices: impl IntoIterator<Item = u16>) -> Vec<ChunkIndex> {
        indices.into_iter().map(ChunkIndex).collect()
    }

    fn placed(candidates: &[Candidate], at: &[(u16, u128)]) -> Vec<Placed> {
        let placed = |(chunk, disk): &(u16, u128)| Placed {
            chunk: ChunkIndex(*chunk),
            disk: DiskId(*disk),
            node: candidates[*disk as usize].node.clone(),
        };
        at.iter().map(placed).collect()
    }

    fn all_of(code: &str, candidates: &[Candidate], draw: impl FnMut(u64) -> u64) -> Vec<Option<DiskId>> {
        let code: CodeSpec = code.parse().expect("a valid code");
        place_chunks(code, candidates, &[], &chunks(0..code.shape().chunks()), draw)
    }

    #[test]
    fn six_chunks_on_three_nodes_are_two_on_each() {
        let candidates = candidates(&["a", "a", "a", "a", "b", "b", "b", "c", "c"]);
        for disks in [
            place(&candidates, &[], 6, |bound| bound / 2),
            all_of("rs:4+2", &candidates, |bound| bound / 2).into_iter().flatten().collect(),
        ] {
            let mut nodes: Vec<&str> = disks.iter().map(|disk| candidates[disk.0 as usize].node.0.as_str()).collect();
            nodes.sort_unstable();
            assert_eq!(nodes, ["a", "a", "b", "b", "c", "c"]);
        }
    }

    #[test]
    fn a_mirror_has_its_data_on_different_disks_and_each_copy_on_another_node() {
        // Three nodes of two disks: twelve chunks, two on each disk.
        let candidates = candidates(&["a", "a", "b", "b", "c", "c"]);
        let disks: Vec<u128> = all_of("mirror:4x3", &candidates, |bound| bound / 2)
            .into_iter()
            .map(|disk| disk.expect("room").0)
            .collect();
        let distinct = |of: &[u128]| of.iter().collect::<std::collections::BTreeSet<_>>().len();
        assert_eq!(distinct(&disks[..4]), 4, "data: {disks:?}");
        for data in 0..4 {
            let nodes = [0, 4, 8].map(|copy| disks[data + copy] / 2);
            assert_eq!(distinct(&nodes), 3, "chunk {data}: {disks:?}");
        }
        assert!((0..6).all(|disk| disks.iter().filter(|at| **at == disk).count() == 2), "{disks:?}");
    }

    #[test]
    fn chunks_with_a_home_lie_there_and_parity_elsewhere() {
        let candidates = candidates(&["a", "a", "b", "b", "c", "c"]);
        let at_home = |code: &str, candidates: &[Candidate], homes: &[(u16, &str)]| {
            let code: CodeSpec = code.parse().expect("a valid code");
            let homes = homes.iter().map(|(chunk, node)| (ChunkIndex(*chunk), NodeId((*node).to_owned()))).collect();
            let disks = place_at_home(code, candidates, &homes, |bound| bound / 2);
            let node = |disk: Option<DiskId>| {
                candidates.iter().find(|found| Some(found.disk) == disk).map(|found| &found.node.0[..])
            };
            let distinct: std::collections::BTreeSet<DiskId> = disks.iter().flatten().copied().collect();
            assert_eq!(distinct.len(), disks.iter().flatten().count(), "disks of {code}");
            disks.into_iter().map(|disk| node(disk).unwrap_or("-").to_owned()).collect::<Vec<_>>().join("")
        };
        assert_eq!(at_home("rs:2+1", &candidates, &[(0, "b"), (1, "a")]), "bac");
        assert_eq!(at_home("rs:4+2", &candidates, &[(0, "c"), (1, "c"), (2, "a"), (3, "a")]), "ccaabb");
        assert_eq!(at_home("replica:2", &candidates, &[(0, "c")]).chars().next(), Some('c'));
        // No home, one that is away, one with too few disks.
        assert_eq!(at_home("rs:2+1", &candidates, &[]).len(), 3);
        assert_eq!(at_home("rs:2+1", &candidates, &[(0, "z"), (1, "a")]).chars().nth(1), Some('a'));
        assert_eq!(at_home("rs:3+1", &candidates[1..], &[(0, "a"), (1, "a"), (2, "b")]).matches('a').count(), 1);
    }

    #[test]
    fn a_mirror_needs_as_many_disks_as_copies() {
        let two = all_of("mirror:4x3", &candidates(&["a", "b"]), |_| 0);
        assert_eq!(two.iter().map(Option::is_some).collect::<Vec<_>>(), [[true; 4], [true; 4], [false; 4]].concat());
        assert!(all_of("mirror:4x3", &candidates(&["a", "b", "c"]), |_| 0).iter().all(Option::is_some));
    }

    #[test]
    fn a_lost_data_chunk_goes_to_a_disk_without_data() {
        // Data on the disks 0 to 3, the copies of chunk 3 on 4 and 5: both are no choice for it, and 6 is.
        let candidates = candidates(&["a", "b", "c", "d", "e", "f", "g"]);
        let taken = placed(&candidates, &[(0, 0), (1, 1), (2, 2), (7, 4), (11, 5), (4, 6), (5, 6), (6, 6)]);
        let code = "mirror:4x3".parse().expect("a valid code");
        for draw in 0..7 {
            let chosen = place_chunks(code, &candidates, &taken, &chunks([3]), |bound| draw % bound);
            assert!([Some(DiskId(3)), Some(DiskId(6))].contains(&chosen[0]), "{chosen:?}");
        }
        let candidates: Vec<Candidate> = candidates.into_iter().filter(|disk| disk.disk != DiskId(3)).collect();
        assert_eq!(place_chunks(code, &candidates, &taken, &chunks([3]), |_| 0), [Some(DiskId(6))]);
    }

    #[test]
    fn a_replacement_goes_to_the_node_with_the_fewest_chunks() {
        let candidates = candidates(&["a", "a", "b", "b"]);
        let taken = [(DiskId(0), NodeId("a".into())), (DiskId(2), NodeId("b".into())), (DiskId(9), NodeId("b".into()))];
        assert_eq!(place(&candidates, &taken, 1, |_| 0), [DiskId(1)]);
    }

    /// Where chunks that lie on the disks 0, 1, .. as told go, of which `homeless` are lost, and which of these disks take none
    /// but in place of copies.
    fn rehoused(code: &str, at: &[&[u16]], homeless: &[u16], free: &[u128]) -> (Vec<(u16, u128)>, Vec<u16>) {
        let code: CodeSpec = code.parse().expect("a valid code");
        let lies: BTreeMap<ChunkIndex, DiskId> = (0..)
            .map(DiskId)
            .zip(at)
            .flat_map(|(disk, there)| there.iter().map(move |chunk| (ChunkIndex(*chunk), disk)))
            .collect();
        let missing = (0..code.shape().chunks()).map(ChunkIndex).filter(|chunk| !lies.contains_key(chunk)).collect();
        let place = |lies: &BTreeMap<ChunkIndex, DiskId>, chunks: &[ChunkIndex]| {
            let mut lies = lies.clone();
            let mut choose = |chunk: &ChunkIndex| {
                let shares =
                    |(other, at): (&ChunkIndex, &DiskId), disk| *at != disk || code.may_share_disk(*chunk, *other);
                let disk =
                    free.iter().map(|disk| DiskId(*disk)).find(|disk| lies.iter().all(|other| shares(other, *disk)))?;
                lies.insert(*chunk, disk);
                Some(disk)
            };
            chunks.iter().map(&mut choose).collect()
        };
        let found = rehouse(code, lies, missing, &chunks(homeless.iter().copied()), |_, disk| disk != DiskId(9), place);
        let disks = found.disks.into_iter().map(|(chunk, disk)| (chunk.0, disk.0)).collect();
        (disks, found.give_way.into_iter().map(|copy| copy.0).collect())
    }

    #[test]
    fn copies_give_way_to_data_and_parity_where_nothing_is_less_safe_for_it() {
        // Three data chunks, two parities, then the copies.
        let gives = |at: &[&[u16]], homeless: &[u16]| rehoused("hybrid:rsm:3+2x2", at, homeless, &[]);
        // Its own, else one of a disk that has the fewest.
        assert_eq!(gives(&[&[0], &[2], &[3], &[4], &[5], &[6], &[7]], &[1]), (vec![(1, 5)], vec![6]));
        assert_eq!(gives(&[&[0], &[1], &[2], &[4], &[5, 6], &[7]], &[3]), (vec![(3, 5)], vec![7]));
        assert_eq!(gives(&[&[0], &[1], &[2], &[4], &[5, 6, 7]], &[3]), (vec![(3, 4)], vec![5, 6, 7]));
        assert_eq!(gives(&[&[2], &[3], &[4], &[5], &[6], &[7]], &[0, 1]), (vec![(0, 3), (1, 4)], vec![5, 6]));
        // A copy that is the last of its data stays, with all beside it.
        assert_eq!(gives(&[&[], &[], &[2], &[3], &[4], &[5, 6, 7]], &[0, 1]), (vec![], vec![]));
        assert_eq!(gives(&[&[], &[2], &[4], &[5], &[6]], &[3]), (vec![], vec![]));
        // No copy gives way to a copy, nor where the disk takes nothing.
        assert_eq!(gives(&[&[0], &[1], &[2], &[3], &[4], &[6], &[7]], &[5]), (vec![], vec![]));
        assert_eq!(gives(&[&[1], &[2], &[3], &[4], &[], &[], &[], &[], &[], &[5, 6, 7]], &[0]), (vec![], vec![]));
        assert_eq!(rehoused("rsm:3+2", &[&[0], &[1], &[2], &[3]], &[4], &[]), (vec![], vec![]));
    }

    #[test]
    fn data_and_parity_have_free_disks_before_copies_do() {
        let rehoused =
            |at: &[&[u16]], homeless: &[u16], free: &[u128]| rehoused("hybrid:rsm:3+2x2", at, homeless, free);
        assert_eq!(
            rehoused(&[&[1], &[2], &[3], &[4], &[6], &[7], &[]], &[0, 5], &[4, 6]),
            (vec![(0, 6), (5, 4)], vec![])
        );
        // Copies that would have a disk beside others lose it to data, and these others too.
        assert_eq!(rehoused(&[&[1], &[2], &[4], &[7]], &[0, 3, 5, 6], &[3]), (vec![(0, 3)], vec![7]));
    }

    #[test]
    fn a_full_disk_is_drawn_rarely() {
        let mut candidates = candidates(&["a", "b"]);
        candidates[0].free_bytes = 0;
        let first = (0..1025).filter(|&ticket| place(&candidates, &[], 1, |_| ticket) == [DiskId(0)]).count();
        assert_eq!(first, 1);
    }

    /// Random numbers below bounds, which follow from `seed`.
    fn draws(seed: u64) -> impl FnMut(u64) -> u64 {
        let mut state = seed;
        move |bound| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            (state >> 33) % bound
        }
    }

    proptest! {
        #[test]
        fn disks_are_distinct_and_as_many_as_there_can_be(
            nodes in prop::collection::vec(0u8..4, 0..12), count in 0usize..14, seed in any::<u64>(),
        ) {
            let names: Vec<String> = nodes.iter().map(u8::to_string).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let candidates = candidates(&names);
            let disks = place(&candidates, &[], count, draws(seed));
            let distinct: std::collections::BTreeSet<_> = disks.iter().collect();
            prop_assert_eq!(distinct.len(), disks.len());
            prop_assert_eq!(disks.len(), count.min(candidates.len()));
        }

        /// Whatever is lost on as few disks as there are: no chunk lies beside one that it may not lie beside, what gives way are copies of
        /// data that is there, and nothing is less safe.
        #[test]
        fn copies_give_way_without_loss(
            code in prop::sample::select(vec!["hybrid:rsm:3+2x2", "hybrid:rsm:2+1x3", "hybrid:lrc:4+2+1x2", "mirror:3x3", "rs:3+2"]),
            disks in 3usize..12,
            lost in prop::collection::vec(any::<bool>(), 12),
            seed in any::<u64>(),
        ) {
            let code: CodeSpec = code.parse().expect("a valid code");
            let names = vec!["a"; disks];
            let candidates = candidates(&names);
            let mut draw = draws(seed);
            let all = chunks(0..code.shape().chunks());
            let first = place_chunks(code, &candidates, &[], &all, &mut draw);
            // Some disks are gone, and all that lies there.
            let left: Vec<Candidate> = candidates.iter().filter(|disk| !lost[disk.disk.0 as usize]).cloned().collect();
            let is_left = |disk: &DiskId| left.iter().any(|candidate| candidate.disk == *disk);
            let lies: BTreeMap<ChunkIndex, DiskId> =
                all.iter().copied().zip(first).filter_map(|(chunk, disk)| Some((chunk, disk.filter(is_left)?))).collect();
            let missing: Vec<ChunkIndex> = all.iter().copied().filter(|chunk| !lies.contains_key(chunk)).collect();
            let place = |lies: &BTreeMap<ChunkIndex, DiskId>, chunks: &[ChunkIndex]| {
                let at: Vec<(u16, u128)> = lies.iter().map(|(chunk, disk)| (chunk.0, disk.0)).collect();
                place_chunks(code, &left, &placed(&candidates, &at), chunks, &mut draw)
            };
            let found = rehouse(code, lies.clone(), missing.clone(), &missing, |_, _| true, place);
            let mut after = lies.clone();
            for copy in &found.give_way {
                prop_assert!(lies.contains_key(copy) && !missing.contains(copy), "{copy}");
                let data = code.copied(*copy).expect("only copies give way");
                after.remove(copy);
                prop_assert!(after.contains_key(&data) || found.disks.contains_key(&data), "{copy} was the last of {data}");
            }
            for (chunk, disk) in &found.disks {
                prop_assert!(missing.contains(chunk) && is_left(disk));
                after.insert(*chunk, *disk);
            }
            for (one, disk) in &after {
                for (other, _) in after.iter().filter(|(other, at)| *other != one && *at == disk) {
                    prop_assert!(code.may_share_disk(*one, *other), "{one} and {other} on {disk}");
                }
            }
            let lacks: Vec<ChunkIndex> = all.iter().copied().filter(|chunk| !after.contains_key(chunk)).collect();
            prop_assert!(code.tolerance_left(&lacks) >= code.tolerance_left(&missing));
            // Of what is not a copy nothing waits that a copy could make room for.
            let waits = lacks.iter().filter(|chunk| code.copied(**chunk).is_none());
            let whole = missing.is_empty() || left.len() >= usize::from(code.disks_min());
            prop_assert!(!whole || waits.count() == 0, "{lacks:?} after {missing:?}");
        }

        /// Some chunks are lost and placed again: whatever was drawn, each loss of disks costs what it may.
        #[test]
        fn no_disk_has_more_of_a_stripe_than_it_may(
            code in prop::sample::select(vec!["rs:3+2", "mirror:3x3", "mirror:4x2", "replica:3", "lrc:4+2+2", "hybrid:rsm:3+2x2", "mixed:4+2x3:1", "mixed:3+1x2:0+2"]),
            nodes in prop::collection::vec(0u8..4, 1..10),
            again in prop::collection::vec(any::<bool>(), 12),
            seed in any::<u64>(),
        ) {
            let names: Vec<String> = nodes.iter().map(u8::to_string).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let candidates = candidates(&names);
            let code: CodeSpec = code.parse().expect("a valid code");
            let mut draw = draws(seed);
            let all = chunks(0..code.shape().chunks());
            let first = place_chunks(code, &candidates, &[], &all, &mut draw);
            let (again, kept): (Vec<_>, Vec<_>) = all.iter().zip(first).partition(|(chunk, _)| again[chunk.at()]);
            let again: Vec<ChunkIndex> = again.into_iter().map(|(chunk, _)| *chunk).collect();
            let kept: Vec<(u16, u128)> = kept.into_iter().filter_map(|(chunk, disk)| Some((chunk.0, disk?.0))).collect();
            let mut placed = placed(&candidates, &kept);
            let second = place_chunks(code, &candidates, &placed, &again, &mut draw);
            for (chunk, disk) in again.iter().zip(second) {
                if let Some(disk) = disk {
                    placed.push(Placed { chunk: *chunk, disk, node: candidates[disk.0 as usize].node.clone() });
                }
            }
            prop_assert!(placed.len() == all.len() || candidates.len() < usize::from(code.disks_min()));
            for one in &placed {
                for other in placed.iter().filter(|other| other.chunk != one.chunk && other.disk == one.disk) {
                    prop_assert!(code.may_share_disk(one.chunk, other.chunk), "{:?} and {:?}", one, other);
                }
            }
        }
    }
}
