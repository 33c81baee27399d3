//! What memory knows of a node beyond the catalog: who has it open, its newest size and times, and the sectors that
//! wait for a place.
//!
//! A sector of a file that was written is in one of these states:
//!
//! ```text
//! waiting --fsync--> waiting, journaled --applied or placed--> in a group
//!    ^                      |
//!    +------write-----------+        waiting --placed--> in a group
//!    +--its group is lost---+        only what was journaled to be applied, and by no fsync
//! ```
//!
//! The size of a file that was cut within a sector which has a place, or waits for one, is in one of these:
//!
//! ```text
//! held --an entry has the sector's zeros--> in the catalog      held --the sector is dropped--> in the catalog
//!  ^ |
//!  +-+ anything that sets the size, or cuts it again
//! ```
//!
//! Held: nothing but memory has zeros behind the cut, so all that the catalog says is that the file ends with that sector at the latest, or
//! where it did. What was written behind the cut waits too: no group of it is named, and no entry has it without the zeros.
//!
//! Invariants:
//! 1. Every sector that waits is whole: 4096 bytes, zeros behind the end of the file.
//! 2. What waits overlays what lies in groups.
//! 3. A journaled sector's entry stays in the journal until the sector is in its group and the device is synced; if the
//!    sector is written again, until those bytes are journaled or in a group.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use claystone_env::SECTOR_BYTES;

use crate::journal::JournalPosition;
use crate::{Inode, Timestamp};

/// A written sector.
#[derive(Debug, Clone)]
pub(crate) struct Waiting {
    /// Its bytes.
    pub bytes: Arc<Vec<u8>>,
    /// Grows with each write of it: what was placed is dropped only if it was not written since.
    pub version: u64,
    /// The start of the journal entry that holds these bytes.
    pub journaled: Option<JournalPosition>,
    /// The entry that holds older bytes, where these are in none: what was synced must stay.
    pub older_journaled: Option<OlderJournaled>,
    /// An fsync has told, or is going to tell, that these bytes are durable, or older ones.
    pub promised: bool,
}

/// Where the journal holds bytes that were written over since.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OlderJournaled {
    /// The start of the entry.
    pub at: JournalPosition,
    /// The version of the bytes.
    pub version: u64,
}

impl Waiting {
    /// The start of the entry that must stay for this sector.
    pub fn needs(&self) -> Option<JournalPosition> {
        self.older_journaled.map(|older| older.at).or(self.journaled)
    }

    /// What must stay of it when it is written over now, or goes into another entry.
    pub fn older(&self) -> Option<OlderJournaled> {
        self.older_journaled.or(self.journaled.map(|at| OlderJournaled { at, version: self.version }))
    }

    /// These bytes are in an entry.
    pub fn enter(&mut self, at: JournalPosition) {
        (self.journaled, self.older_journaled) = (Some(at), None);
    }
}

/// The size and times of a file that are newer than its inode record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Live {
    /// Bytes of the file.
    pub bytes: u64,
    /// When its content was last changed.
    pub modified: Timestamp,
    /// When its attributes were last changed.
    pub changed: Timestamp,
}

/// The size of a file that was cut within a sector whose zeros behind the cut are only in memory, and on their way into the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    /// The sector in which it was cut; if it was cut more than once, the first of them.
    pub sector: u64,
    /// The version of the sector with the zeros: later ones have them too.
    pub version: u64,
    /// What the catalog is to say once they are durable. What the file has beyond that is newer, and is in [`Node::live`].
    pub bytes: u64,
}

impl Held {
    /// The most that the catalog may say meanwhile.
    pub fn bytes_max(&self) -> u64 {
        (self.sector + 1) * SECTOR_BYTES as u64
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Node {
    /// Held shared by who reads sectors of the file from the device, exclusively by who moves, overwrites or frees some.
    pub gate: Arc<RwLock<()>>,
    /// How often it is open.
    pub opens: u32,
    /// What the catalog does not know yet.
    pub live: Option<Live>,
    /// A size that waits with a sector.
    pub held: Option<Held>,
    /// Behind the sector that was placed last: who places a share goes on here.
    pub cursor: u64,
    /// Sectors that wait, by their number in the file.
    pub waiting: BTreeMap<u64, Waiting>,
    /// Some of these come from a journal that was replayed: the parity of their groups may be half written.
    pub distrusts_parity: bool,
    /// Of these, how many begin a row of consecutive ones: each may need a group of its own.
    pub clusters: u64,
}

impl Node {
    /// Whether nothing of it needs to be remembered.
    pub fn is_idle(&self) -> bool {
        let unused = Arc::strong_count(&self.gate) == 1;
        unused && self.opens == 0 && self.live.is_none() && self.waiting.is_empty()
    }

    fn oldest_journaled(&self) -> Option<JournalPosition> {
        self.waiting.values().filter_map(Waiting::needs).min_by_key(|at| at.sequence)
    }

    /// Lets a sector wait. Who was promised its older bytes may be promised these: an entry that is being made takes what is newest.
    pub fn put(&mut self, sector: u64, bytes: Vec<u8>, version: u64) {
        assert_eq!(bytes.len(), SECTOR_BYTES, "a sector is written whole");
        let before = self.waiting.get(&sector);
        let (older_journaled, promised) = (before.and_then(Waiting::older), before.is_some_and(|one| one.promised));
        let waiting = Waiting { bytes: Arc::new(bytes), version, journaled: None, older_journaled, promised };
        if self.waiting.insert(sector, waiting).is_none() {
            self.clusters += 1;
            self.clusters -= u64::from(self.has_before(sector)) + u64::from(self.waiting.contains_key(&(sector + 1)));
        }
    }

    /// Forgets a sector that waits.
    pub fn take(&mut self, sector: u64) -> Option<Waiting> {
        let gone = self.waiting.remove(&sector)?;
        self.clusters += u64::from(self.has_before(sector)) + u64::from(self.waiting.contains_key(&(sector + 1)));
        self.clusters -= 1;
        Some(gone)
    }

    fn has_before(&self, sector: u64) -> bool {
        sector.checked_sub(1).is_some_and(|before| self.waiting.contains_key(&before))
    }
}

/// All nodes that memory knows something of.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    nodes: BTreeMap<Inode, Node>,
    versions: u64,
    /// Sectors that wait, of all nodes.
    pub waiting: u64,
    /// Rows of consecutive ones among them.
    pub clusters: u64,
}

impl Nodes {
    /// The node, if something is known of it.
    pub fn find(&self, inode: Inode) -> Option<&Node> {
        self.nodes.get(&inode)
    }

    /// The node; made if need be.
    pub fn node(&mut self, inode: Inode) -> &mut Node {
        self.nodes.entry(inode).or_default()
    }

    /// All of them, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (Inode, &Node)> {
        self.nodes.iter().map(|(&inode, node)| (inode, node))
    }

    /// A sector that waits.
    pub fn find_waiting(&mut self, inode: Inode, sector: u64) -> Option<&mut Waiting> {
        self.nodes.get_mut(&inode)?.waiting.get_mut(&sector)
    }

    /// What the catalog does not know of a node.
    pub fn find_live(&mut self, inode: Inode) -> Option<&mut Option<Live>> {
        Some(&mut self.nodes.get_mut(&inode)?.live)
    }

    /// A size of a node that waits with a sector.
    pub fn find_held(&mut self, inode: Inode) -> Option<&mut Option<Held>> {
        Some(&mut self.nodes.get_mut(&inode)?.held)
    }

    /// Lets a sector wait. Who was promised its older bytes may be promised these: an entry that is being made takes what is newest.
    pub fn put(&mut self, inode: Inode, sector: u64, bytes: Vec<u8>) {
        self.versions += 1;
        let versions = self.versions;
        self.counted(inode, |node| node.put(sector, bytes, versions));
    }

    /// Lets a sector wait that the journal holds.
    pub fn put_journaled(&mut self, inode: Inode, sector: u64, bytes: Vec<u8>, at: JournalPosition) {
        self.put(inode, sector, bytes);
        if let Some(waiting) = self.find_waiting(inode, sector) {
            waiting.enter(at);
        }
    }

    /// Forgets a sector that waits.
    pub fn take(&mut self, inode: Inode, sector: u64) -> Option<Waiting> {
        self.counted(inode, |node| node.take(sector))
    }

    /// A version of a sector is in its group: it waits no more, unless it was written since, and then the journal needs
    /// not keep what is no newer than that version.
    pub fn placed(&mut self, inode: Inode, sector: u64, version: u64) {
        match self.find_waiting(inode, sector) {
            Some(now) if now.version == version => drop(self.take(inode, sector)),
            Some(now) if now.older_journaled.is_some_and(|older| older.version <= version) => {
                now.older_journaled = None
            }
            _ => {}
        }
    }

    /// An fsync relies on what the journal has of a file, and on its being given `sectors`, ascending: it keeps all that until it finds its place.
    pub fn promise(&mut self, inode: Inode, sectors: &[u64]) {
        let waiting = self.nodes.get_mut(&inode).into_iter().flat_map(|node| &mut node.waiting);
        for (sector, waiting) in waiting {
            waiting.promised |= waiting.journaled.is_some() || sectors.binary_search(sector).is_ok();
        }
    }

    /// A version of a sector went into the journal to be applied, and does not find its place: unless an fsync came in between, or it was
    /// written since, the journal needs not keep it.
    pub fn need_no_entry(&mut self, inode: Inode, sector: u64, version: u64) {
        if let Some(now) = self.find_waiting(inode, sector).filter(|now| now.version == version && !now.promised) {
            now.journaled = None;
        }
    }

    /// Forgets what waits of these sectors.
    pub fn take_range(&mut self, inode: Inode, first: u64, end: u64) {
        let gone: Vec<u64> = self.node(inode).waiting.range(first..end).map(|(&sector, _)| sector).collect();
        for sector in gone {
            self.take(inode, sector);
        }
    }

    /// Forgets nodes of which nothing needs to be remembered.
    pub fn sweep(&mut self, inode: Inode) {
        if self.nodes.get(&inode).is_some_and(Node::is_idle) {
            self.nodes.remove(&inode);
        }
    }

    /// The oldest entry of the journal that a sector needs.
    pub fn oldest_journaled(&self) -> Option<JournalPosition> {
        self.nodes.values().filter_map(Node::oldest_journaled).min_by_key(|at| at.sequence)
    }

    /// All nodes with sectors that need entries of the journal, those that need the oldest first.
    pub fn journaled_by_age(&self) -> Vec<Inode> {
        let oldest = |(&inode, node): (&Inode, &Node)| Some((node.oldest_journaled()?.sequence, inode));
        let mut all: Vec<(u64, Inode)> = self.nodes.iter().filter_map(oldest).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, inode)| inode).collect()
    }

    /// At most `most` sectors for which entries of the journal must stay that come before the sequence `before`; those of
    /// the oldest entries.
    pub fn journaled(&self, before: u64, most: usize) -> Vec<(Inode, u64)> {
        let mut all: Vec<(u64, Inode, u64)> = Vec::new();
        for (&inode, node) in &self.nodes {
            let needs =
                node.waiting.iter().filter_map(|(&sector, waiting)| Some((waiting.needs()?.sequence, inode, sector)));
            all.extend(needs.filter(|(sequence, ..)| *sequence < before));
        }
        all.sort_unstable();
        all.truncate(most);
        all.into_iter().map(|(_, inode, sector)| (inode, sector)).collect()
    }

    /// The sectors that wait, and of which the journal does not have the newest bytes.
    pub fn unjournaled(&self) -> Vec<(Inode, u64)> {
        let unjournaled = self.nodes.iter().flat_map(|(&inode, node)| {
            let sectors = node.waiting.iter().filter(|(_, waiting)| waiting.journaled.is_none());
            sectors.map(move |(&sector, _)| (inode, sector))
        });
        unjournaled.collect()
    }

    fn counted<R>(&mut self, inode: Inode, work: impl FnOnce(&mut Node) -> R) -> R {
        let node = self.nodes.entry(inode).or_default();
        let before = (node.waiting.len() as u64, node.clusters);
        let result = work(node);
        self.waiting = self.waiting + node.waiting.len() as u64 - before.0;
        self.clusters = self.clusters + node.clusters - before.1;
        result
    }
}

#[cfg(test)]
mod tests {
    use super::Nodes;
    use crate::Inode;
    use crate::journal::JournalPosition;

    const FILE: Inode = Inode(7);

    fn at(sequence: u64) -> JournalPosition {
        JournalPosition { sequence, position: sequence % 5 }
    }

    /// A sector whose first version is in entry 1, and which was written again since; with the version of each.
    fn written_again() -> (Nodes, u64, u64) {
        let mut nodes = Nodes::default();
        nodes.put_journaled(FILE, 3, vec![1; 4096], at(1));
        let first = nodes.find_waiting(FILE, 3).expect("it waits").version;
        nodes.put(FILE, 3, vec![2; 4096]);
        let second = nodes.find_waiting(FILE, 3).expect("it waits").version;
        (nodes, first, second)
    }

    #[test]
    fn what_was_written_since_waits_on_when_an_older_version_is_placed() {
        let (mut nodes, first, second) = written_again();
        assert_eq!(nodes.find_waiting(FILE, 3).expect("it waits").needs(), Some(at(1)), "what was synced must stay");
        nodes.placed(FILE, 3, first);
        let waiting = nodes.find_waiting(FILE, 3).expect("it waits");
        assert_eq!((waiting.bytes[0], waiting.needs()), (2, None), "what was synced is in its group");
        nodes.placed(FILE, 3, second);
        assert!(nodes.find_waiting(FILE, 3).is_none());
        assert_eq!((nodes.waiting, nodes.clusters), (0, 0));
    }

    #[test]
    fn an_entry_stays_for_a_version_that_is_newer_than_what_was_placed() {
        let (mut nodes, first, second) = written_again();
        // The second version goes into an entry while the first is on its way to its group, and is written over too.
        nodes.find_waiting(FILE, 3).expect("it waits").enter(at(2));
        nodes.put(FILE, 3, vec![3; 4096]);
        nodes.placed(FILE, 3, first);
        assert_eq!(nodes.find_waiting(FILE, 3).expect("it waits").needs(), Some(at(2)));
        nodes.placed(FILE, 3, second);
        assert_eq!(nodes.find_waiting(FILE, 3).expect("it waits").needs(), None);
    }

    #[test]
    fn what_nobody_synced_needs_no_entry_and_what_was_synced_since_does() {
        let mut nodes = Nodes::default();
        nodes.put_journaled(FILE, 3, vec![1; 4096], at(1));
        let first = nodes.find_waiting(FILE, 3).expect("it waits").version;
        nodes.need_no_entry(FILE, 3, first);
        assert_eq!(nodes.find_waiting(FILE, 3).expect("it waits on").needs(), None);
        let (mut nodes, first, second) = written_again();
        for version in [first, second] {
            nodes.need_no_entry(FILE, 3, version);
            assert_eq!(
                nodes.find_waiting(FILE, 3).expect("it waits").needs(),
                Some(at(1)),
                "what was synced must stay"
            );
        }
        // An fsync finds it in the journal, and promises it, while it is on its way to a group that is lost.
        nodes.find_waiting(FILE, 3).expect("it waits").enter(at(2));
        nodes.promise(FILE, &[]);
        nodes.need_no_entry(FILE, 3, second);
        assert_eq!(nodes.find_waiting(FILE, 3).expect("it waits").needs(), Some(at(2)));
    }

    #[test]
    fn a_version_that_nobody_placed_is_kept() {
        let (mut nodes, _, second) = written_again();
        nodes.placed(FILE, 3, second + 1);
        assert_eq!(nodes.find_waiting(FILE, 3).expect("it waits").bytes[0], 2);
    }
}
