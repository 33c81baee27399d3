//! Brings chunks home: those that lie on another node than they should are copied to a disk there, and parity or copies make way.
//!
//! ```text
//!  rs:2+1, homes a and b            a | b | c
//!  written while a was away         -   1 P   0      b has two: its loss is not survived
//!  planned as one change            0   1     P
//! ```
//!
//! Invariants:
//! 1. A stripe survives as many losses of nodes after a change as before it, or as a new stripe does, whatever came home.
//! 2. A stripe of which a chunk is damaged, has no place or is on a disk that does not answer stays as it is: it is repaired first.
//! 3. No data chunk comes beside another one on a disk.

use std::collections::BTreeMap;

use claystone_chunk::{DiskId, NodeId};
use claystone_code::{ChunkIndex, CodeSpec};
use claystone_meta::{ChunkPlace, StripeRecord};

use crate::fresh::roomy;
use crate::rebuild::{Targets, new_name, rebuild_on};
use crate::{
    Candidate, Homes, Layout, Nodes, Pace, Placed, Rebuilt, StripeError, Stripes, place_at_home, place_chunks,
};

/// Where chunks of stripes should lie, and the disks as they are now.
#[derive(Debug)]
pub struct Homing<'a> {
    homes: &'a Homes,
    candidates: Vec<Candidate>,
    nodes: Nodes,
    /// The node of each disk, and whether it answers.
    disks: BTreeMap<DiskId, (NodeId, bool)>,
}

impl<'a> Homing<'a> {
    /// For stripes with chunks of so many bytes.
    pub(crate) fn new(stripes: &Stripes, homes: &'a Homes, chunk_bytes: u64) -> Homing<'a> {
        let members = stripes.stores.members().into_iter();
        let disks = members.map(|member| (member.record.id, (member.record.node.clone(), member.readable()))).collect();
        Homing { homes, candidates: roomy(stripes, chunk_bytes), nodes: stripes.stores.nodes(), disks }
    }

    /// Whether chunks of a stripe can be brought home, or parity moved so that it survives the loss of more nodes.
    pub fn is_wanted(&self, record: &StripeRecord) -> bool {
        !self.plan(record, |_| 0).is_empty()
    }

    /// The chunks that move, and where to.
    fn plan(&self, record: &StripeRecord, draw: impl FnMut(u64) -> u64) -> BTreeMap<ChunkIndex, DiskId> {
        let place = |(chunk, place): (ChunkIndex, &Option<ChunkPlace>)| {
            let place = place.filter(|place| !place.damaged)?;
            let (node, answers) = self.disks.get(&place.disk)?;
            answers.then(|| Placed { chunk, disk: place.disk, node: node.clone() })
        };
        let lies = (0..).map(ChunkIndex).zip(&record.places).map(place);
        let Some(lies) = lies.collect::<Option<Vec<Placed>>>() else { return BTreeMap::new() };
        let losses =
            |lies: &[Placed]| self.nodes.losses(record.code, lies.iter().map(|placed| (placed.chunk, placed.disk)));
        plan_homing(record.code, &lies, self.homes, &self.candidates, losses, draw)
    }
}

/// The chunks of a stripe that move, where they lie as `lies` says, and where to. `losses` says how many losses of nodes chunks that lie so
/// survive.
fn plan_homing(
    code: CodeSpec,
    lies: &[Placed],
    homes: &Homes,
    candidates: &[Candidate],
    losses: impl Fn(&[Placed]) -> usize,
    mut draw: impl FnMut(u64) -> u64,
) -> BTreeMap<ChunkIndex, DiskId> {
    let is_data = |chunk: ChunkIndex| chunk.0 < code.shape().data;
    let mut place = |lies: &[Placed], chunk: ChunkIndex, may_take: &dyn Fn(&Candidate) -> bool| {
        let mut beside: Vec<Placed> = lies.iter().filter(|placed| placed.chunk != chunk).cloned().collect();
        let has_data = |disk: DiskId| beside.iter().any(|placed| placed.disk == disk && is_data(placed.chunk));
        let takes = |disk: &&Candidate| may_take(disk) && !(is_data(chunk) && has_data(disk.disk));
        let takers: Vec<Candidate> = candidates.iter().filter(takes).cloned().collect();
        let disk = place_chunks(code, &takers, &beside, &[chunk], &mut draw)[0]?;
        let node = takers.into_iter().find(|candidate| candidate.disk == disk)?.node;
        beside.push(Placed { chunk, disk, node });
        Some(beside)
    };
    let mut now = lies.to_vec();
    let away = |placed: &&Placed| homes.get(&placed.chunk).is_some_and(|home| *home != placed.node);
    for chunk in lies.iter().filter(away).map(|placed| placed.chunk) {
        let home = &homes[&chunk];
        let at_home = |disk: &Candidate| disk.node == *home;
        if let Some(after) = place(&now, chunk, &at_home) {
            now = after;
            continue;
        }
        let in_the_way = |placed: &&Placed| placed.node == *home && !homes.contains_key(&placed.chunk);
        for other in now.iter().filter(in_the_way).map(|placed| placed.chunk).collect::<Vec<_>>() {
            // It may have the disk that the chunk leaves.
            let left: Vec<Placed> = now.iter().filter(|placed| placed.chunk != chunk).cloned().collect();
            let made_way = place(&left, other, &|disk| disk.node != *home);
            if let Some(after) = made_way.and_then(|lies| place(&lies, chunk, &at_home)) {
                now = after;
                break;
            }
        }
    }
    for chunk in lies.iter().map(|placed| placed.chunk).filter(|chunk| !homes.contains_key(chunk)) {
        if let Some(after) = place(&now, chunk, &|_| true).filter(|after| losses(after) > losses(&now)) {
            now = after;
        }
    }
    if losses(&now) < losses(lies).min(losses(&new_stripe(code, homes, candidates))) {
        return BTreeMap::new();
    }
    let was = |placed: &Placed| lies.iter().any(|before| before.chunk == placed.chunk && before.disk == placed.disk);
    now.iter().filter(|placed| !was(placed)).map(|placed| (placed.chunk, placed.disk)).collect()
}

/// Where the chunks of a new stripe would lie.
fn new_stripe(code: CodeSpec, homes: &Homes, candidates: &[Candidate]) -> Vec<Placed> {
    let disks = place_at_home(code, candidates, homes, |bound| bound / 2);
    let node =
        |disk: DiskId| candidates.iter().find(|candidate| candidate.disk == disk).map(|found| found.node.clone());
    let placed = |(chunk, disk): (ChunkIndex, Option<DiskId>)| Some(Placed { chunk, disk: disk?, node: node(disk?)? });
    (0..).map(ChunkIndex).zip(disks).filter_map(placed).collect()
}

pub(crate) async fn bring_home(
    stripes: &Stripes,
    record: &StripeRecord,
    homes: &Homes,
    pace: &dyn Pace,
) -> Result<Option<Rebuilt>, StripeError> {
    let layout = Layout::of(record)?;
    let claim = stripes.claim_record(record);
    let hold = stripes.share(record.id).await?;
    let homing = Homing::new(stripes, homes, layout.chunk_bytes());
    let moves = homing.plan(record, |bound| stripes.env.random.below(bound));
    if moves.is_empty() {
        return Ok(None);
    }
    let chunks = moves.into_iter().map(|(chunk, disk)| (new_name(stripes, record, chunk), disk)).collect();
    let targets = Targets { chunks, give_way: Vec::new() };
    rebuild_on(stripes, record, targets, &layout, (claim, hold), pace).await.map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of chunks that lie so: disks by letter and number, two on each of the nodes a to d. Those of `full` take nothing.
    fn planned(code: &str, homes: &[&str], lies: &[&str], full: &[&str]) -> Vec<String> {
        let code: CodeSpec = code.parse().expect("a valid code");
        let names: Vec<String> =
            ["a", "b", "c", "d"].iter().flat_map(|node| [1, 2].map(|disk| format!("{node}{disk}"))).collect();
        let disk = |name: &str| DiskId(names.iter().position(|known| known == name).expect("a disk") as u128);
        let node = |name: &str| NodeId(name[..1].to_owned());
        let takes = |name: &&String| !full.contains(&name.as_str());
        let candidate = |name: &String| Candidate { disk: disk(name), node: node(name), free_bytes: 1 << 30 };
        let candidates: Vec<Candidate> = names.iter().filter(takes).map(candidate).collect();
        let homes = (0..).map(ChunkIndex).zip(homes.iter().map(|home| node(home))).collect();
        let placed =
            |(chunk, name): (u16, &&str)| Placed { chunk: ChunkIndex(chunk), disk: disk(name), node: node(name) };
        let lies: Vec<Placed> = (0..).zip(lies).map(placed).collect();
        let losses = |lies: &[Placed]| {
            let lost = |node: &str| -> Vec<ChunkIndex> {
                lies.iter().filter(|placed| placed.node.0 == node).map(|placed| placed.chunk).collect()
            };
            usize::from(["a", "b", "c", "d"].into_iter().all(|node| code.tolerance_left(&lost(node)) >= 0))
        };
        let moves = plan_homing(code, &lies, &homes, &candidates, losses, |_| 0);
        moves.into_iter().map(|(chunk, disk)| format!("{} {}", chunk.0, names[disk.0 as usize])).collect()
    }

    #[test]
    fn chunks_go_home_and_parity_makes_way() {
        let homes = &["a", "b"];
        let plan = |lies: &[&str], full: &[&str]| planned("rs:2+1", homes, lies, full);
        assert_eq!(plan(&["a1", "b2", "c1"], &[]), [""; 0], "all are at home");
        assert_eq!(plan(&["c1", "b1", "d1"], &[]), ["0 a1"]);
        assert_eq!(plan(&["c1", "b1", "b2"], &[]), ["0 a1", "2 c1"], "parity leaves a node that has two");
        assert_eq!(plan(&["a1", "b1", "b2"], &[]), ["2 c1"], "also if all are at home");
        assert_eq!(plan(&["c1", "b1", "a1"], &["a2"]), ["0 a1", "2 c1"], "it leaves a disk that is needed");
        let only = ["b1", "b2", "c2", "d1", "d2", "a2"];
        assert_eq!(plan(&["c1", "b1", "a1"], &only), ["0 a1", "2 c1"], "the two change places");
        let all_but_a1 = ["a2", "b1", "b2", "c1", "c2", "d1", "d2"];
        assert_eq!(plan(&["c1", "b1", "a2"], &all_but_a1), [""; 0], "beside parity that cannot leave it is less safe");
        assert_eq!(plan(&["c1", "b1", "d1"], &["a1", "a2"]), [""; 0], "no disk takes it");
        assert_eq!(plan(&["c1", "b1", "b2"], &["c1", "c2", "d1", "d2"]), ["0 a1"], "no worse than before");
    }

    #[test]
    fn data_stays_apart_and_copies_elsewhere() {
        let plan = |lies: &[&str], full: &[&str]| planned("mirror:4x2", &["a", "a", "b", "b"], lies, full);
        let copies = ["c1", "c2", "d1", "d2"];
        assert_eq!(plan(&[&["c2", "a1", "b1", "b2"][..], &copies].concat(), &[]), ["0 a2"]);
        let moves = plan(&[&["c2", "a1", "b1", "b2"][..], &copies].concat(), &["a2"]);
        assert_eq!(moves, ["4 a1"], "no data beside data; its copy leaves the node that has both");
        // The copy of the chunk that comes lies there already.
        let moves = plan(&["c2", "a1", "b1", "b2", "a2", "c2", "d1", "d2"], &[]);
        assert_eq!(moves.iter().map(|moved| &moved[..3]).collect::<Vec<_>>(), ["0 a", "4 c"]);
    }
}
