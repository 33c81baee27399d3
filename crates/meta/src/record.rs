//! What is remembered of each thing.

use std::collections::{BTreeMap, BTreeSet};

use claystone_chunk::{ByteRange, ChunkId, DiskId, Generation, NodeId, OwnerId, StripeId, Term};
use claystone_code::{ChunkIndex, CodeSpec};
use claystone_env::WallTime;

use crate::{HeatPolicy, Redundancy};

/// A bucket's row. Names can be used again after a delete, ids cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BucketId(pub i64);

/// A bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketRecord {
    /// Row.
    pub id: BucketId,
    /// Name, unique in the store.
    pub name: String,
    /// Account that made it.
    pub owner: String,
    /// When it was made.
    pub created: WallTime,
    /// The code for new objects; `None`: the store's default.
    pub code: Option<CodeSpec>,
    /// How redundancy follows heat; then new objects get its fast code, whatever `code` says. `None`: it does not.
    pub policy: Option<HeatPolicy>,
    /// Documents of the protocol crates by name (`cors`, `tagging`, ...): opaque here.
    pub documents: BTreeMap<String, Vec<u8>>,
}

/// The bytes of an object or a part: a row of stripes, shared by all objects that were copied from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentId(pub i64);

/// Where a chunk lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkPlace {
    /// On which disk.
    pub disk: DiskId,
    /// In which generation.
    pub generation: Generation,
    /// A scrub or a read found it lost or corrupt; it waits for repair.
    pub damaged: bool,
}

/// Data chunks of a stripe that follow each other and hold bytes of their own, tile row by tile row: those of one stripe
/// that was merged with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Band {
    /// How many data chunks.
    pub chunks: u16,
    /// Bytes that it holds, at least 1; the rest of its last tile row is zeros.
    pub data_bytes: u64,
}

/// The stripe and index under which a chunk was written, where these are not its own now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// The stripe, which need not exist any more.
    pub stripe: StripeId,
    /// Which of its chunks it was.
    pub index: ChunkIndex,
}

/// A stripe: data and parity chunks under one code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StripeRecord {
    /// Its name.
    pub id: StripeId,
    /// The code of its chunks.
    pub code: CodeSpec,
    /// Bytes of objects or a volume that it holds, with zeros behind them that nobody names, at least 1; the rest of the last tile
    /// row is zeros.
    pub data_bytes: u64,
    /// Its bands in the order of its data chunks, if there are several; none: all data chunks are one band.
    pub bands: Vec<Band>,
    /// Sub-chunk bytes of a full tile. With `code`, `data_bytes` and `bands` it decides every length (crate `stripe`).
    pub sub_bytes: u32,
    /// Chunk `i` lies at `places[i]`; `None`: it was never written or was given up, and waits for repair.
    pub places: Vec<Option<ChunkPlace>>,
    /// Chunks that a conversion, or another code, left where they were, under the names that they had.
    pub origins: BTreeMap<ChunkIndex, Origin>,
    /// Advances with each change of `code` and `places`; a [`Swap`](crate::Swap) names the revision it was planned on.
    pub revision: u64,
    /// When every chunk was last read back and found right, at this revision; `None`: not since the last change.
    pub verified: Option<WallTime>,
}

impl StripeRecord {
    /// The id of chunk `index`, if it has a place.
    pub fn chunk_id(&self, index: ChunkIndex) -> Option<ChunkId> {
        let place = self.places.get(usize::from(index.0))?.as_ref()?;
        let origin = self.origins.get(&index).copied().unwrap_or(Origin { stripe: self.id, index });
        Some(ChunkId { stripe: origin.stripe, index: origin.index, generation: place.generation })
    }

    /// Which of its chunks has this id on this disk.
    pub fn index_of(&self, chunk: ChunkId, disk: DiskId) -> Option<ChunkIndex> {
        let places = (0..).map(ChunkIndex).zip(&self.places);
        let mut here = places.filter(|(_, place)| place.is_some_and(|place| place.disk == disk));
        here.find(|(index, _)| self.chunk_id(*index) == Some(chunk)).map(|(index, _)| index)
    }

    /// The stripes in the names of its chunks, and itself: what a [`ChunkId`] of it may begin with.
    pub fn names(&self) -> BTreeSet<StripeId> {
        self.origins.values().map(|origin| origin.stripe).chain([self.id]).collect()
    }

    /// All its bands, also if it is one.
    pub fn bands(&self) -> Vec<Band> {
        if self.bands.is_empty() {
            return vec![Band { chunks: self.code.shape().data, data_bytes: self.data_bytes }];
        }
        self.bands.clone()
    }
}

/// Which bytes of its band a content holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// All.
    All,
    /// So many from the first on, at least 1 and not all: behind them are zeros, which nobody holds.
    First(u64),
    /// These: it shares the stripe, a pack, with other contents.
    Part(ByteRange),
}

/// A stripe, a band of it, or a part of one, as the next bytes of a content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The stripe.
    pub stripe: StripeRecord,
    /// Which of its bands.
    pub band: u16,
    /// Which bytes of the band.
    pub held: Held,
}

impl Span {
    /// All bytes of a stripe of one band.
    pub fn whole(stripe: StripeRecord) -> Span {
        Span { stripe, band: 0, held: Held::All }
    }

    /// The bytes of its band that it stands for; none if there is no such band.
    pub fn range(&self) -> ByteRange {
        match self.held {
            Held::All => ByteRange { offset: 0, bytes: self.band_bytes() },
            Held::First(bytes) => ByteRange { offset: 0, bytes },
            Held::Part(part) => part,
        }
    }

    /// Bytes of its band; 0 if there is no such band.
    pub(crate) fn band_bytes(&self) -> u64 {
        self.stripe.bands().get(usize::from(self.band)).map_or(0, |band| band.data_bytes)
    }

    /// Bytes of the content that it holds; 0 if there is no such band.
    pub fn data_bytes(&self) -> u64 {
        self.range().bytes
    }
}

/// What names a stripe, of whatever bucket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StripeNames {
    /// How many times objects and parts name each of its bands; bands that none names are left out.
    pub bands: BTreeMap<u16, u64>,
    /// Of each band that is a pack, the bytes of its parts that are named; what several contents hold counts once.
    pub packed_bytes: BTreeMap<u16, u64>,
    /// The code that the contents of packs in it are to have; `None`: it has no pack.
    pub packed_for: Option<CodeSpec>,
    /// A volume or a snapshot holds it: no conversion of it is committed.
    pub of_volume: bool,
}

/// How much a stripe is read, as it was at one moment: it decays from there on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeatRecord {
    /// The stripe.
    pub stripe: StripeId,
    /// Reads of all of its bytes, decayed; a read of a tenth of them counts a tenth. Not negative.
    pub count: f64,
    /// When it was that.
    pub as_of: WallTime,
}

/// A version's name as users see it: `null` without versioning.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VersionName(pub String);

impl VersionName {
    /// The name of the version that is written while a bucket keeps no versions.
    pub fn null() -> VersionName {
        VersionName("null".to_owned())
    }
}

/// One version of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRecord {
    /// Its bucket.
    pub bucket: BucketId,
    /// Its key.
    pub key: String,
    /// Its version's name.
    pub version: VersionName,
    /// Whether this is the version that a plain GET means.
    pub current: bool,
    /// A delete marker has no content.
    pub delete_marker: bool,
    /// Its bytes; `None` for delete markers and for objects of no bytes.
    pub content: Option<ContentId>,
    /// Length.
    pub bytes: u64,
    /// Entity tag without quotes.
    pub etag: String,
    /// When it was written.
    pub created: WallTime,
    /// Headers, user metadata, checksums, tags, part lengths: opaque here.
    pub attributes: Vec<u8>,
}

/// Name of a multipart upload.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UploadId(pub String);

/// A multipart upload under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadRecord {
    /// Its name.
    pub id: UploadId,
    /// Where the object will be.
    pub bucket: BucketId,
    /// Under which key.
    pub key: String,
    /// When it began.
    pub created: WallTime,
    /// As for the object to come; opaque here.
    pub attributes: Vec<u8>,
}

/// A part of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartRecord {
    /// Its number, 1 to 10,000.
    pub number: u32,
    /// Its bytes; `None` for a part of no bytes.
    pub content: Option<ContentId>,
    /// Length.
    pub bytes: u64,
    /// Entity tag without quotes.
    pub etag: String,
    /// When it was written.
    pub created: WallTime,
    /// Checksums; opaque here.
    pub attributes: Vec<u8>,
}

/// What is to be done with a disk.
///
/// ```text
/// active --drain--> draining --empty--> removed
///    |                  |
///    +---- lost/replace-+--> lost --nothing names it--> removed
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DiskState {
    /// Takes new chunks. It may be absent or failing right now; its chunks still count as on it.
    Active,
    /// Readable; takes no new chunks and its chunks move elsewhere.
    Draining,
    /// Given up by a person or replaced: its chunks are lost and are being rebuilt.
    Lost,
    /// No stripe names it, and no volume's log.
    Removed,
}

/// A disk the store knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskRecord {
    /// Written on the disk.
    pub id: DiskId,
    /// Failure domain.
    pub node: NodeId,
    /// Path where it was last seen.
    pub path: String,
    /// What is to be done with it.
    pub state: DiskState,
    /// When it was added.
    pub added: WallTime,
}

/// A block volume.
///
/// Stripe `p` holds its bytes from `p * stripe_bytes()`; where there is none, they read as zeros.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeRecord {
    /// Its name for ever, and the owner of its log's segments. Never used again.
    pub id: OwnerId,
    /// Name, unique in the store.
    pub name: String,
    /// Length, less than 2^63.
    pub bytes: u64,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Bytes of each chunk of its stripes.
    pub chunk_bytes: u64,
    /// What its stripes get.
    pub redundancy: Redundancy,
    /// Its homes: the nodes where its data chunks lie, of each as many, and one behind the other. Empty: on any node.
    pub homes: Vec<NodeId>,
    /// Of its last lease; `Term(0)`: nobody ever opened it.
    pub term: Term,
    /// Where its log is.
    pub log: LogRecord,
    /// Segments of its log that were made under lesser terms are over, since it was reverted.
    pub log_from: Term,
    /// When it was made.
    pub created: WallTime,
}

impl VolumeRecord {
    /// The volume's bytes that one stripe holds.
    pub fn stripe_bytes(&self) -> u64 {
        u64::from(self.redundancy.code.shape().data).saturating_mul(self.chunk_bytes)
    }
}

/// Where the segments of a volume's log are that are not over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogRecord {
    /// Disks that may hold some, each with the label of its node when this was recorded, where it was known.
    pub disks: BTreeMap<DiskId, Option<NodeId>>,
    /// The fewest of these disks that any segment is on; 0: there is no log.
    pub copies: u16,
    /// The fewest known nodes, as `disks` names them, that any segment is on. 0: that was not recorded.
    pub nodes: u16,
}

impl LogRecord {
    /// How many nodes its disks are on, as far as it is known.
    pub fn known_nodes(&self) -> usize {
        self.disks.values().flatten().collect::<BTreeSet<_>>().len()
    }

    /// Whether all copies of a segment may be on these disks: they are as many as it has copies, and of as many nodes.
    ///
    /// Say segments are on two of six disks, and these are on three nodes: `a a b b c c`. Two disks that are absent may be all
    /// that a segment has, but not both disks of `a`, if each segment is on two nodes.
    ///
    /// A segment that is on none but these disks is on none but their nodes, so with fewer known nodes than any segment is on there
    /// is none. A disk whose node is not known adds none to either side: where it was counted among a segment's nodes and not among
    /// those of these disks, or the other way round, that would not follow. Both sides take the labels of this record, and
    /// nothing else of them is used than which disks have the same: nodes that are named anew later change neither.
    pub fn may_be_all_on(&self, disks: &BTreeSet<DiskId>) -> bool {
        let of_log: Vec<&Option<NodeId>> = disks.iter().filter_map(|disk| self.disks.get(disk)).collect();
        let nodes = of_log.iter().copied().flatten().collect::<BTreeSet<_>>().len();
        // Without a copy of anything there is nothing to miss.
        self.copies > 0 && of_log.len() >= usize::from(self.copies) && nodes >= usize::from(self.nodes)
    }
}

/// A snapshot's row. Never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotId(pub i64);

/// A volume as it was at one moment: read only, with stripes as a [`VolumeRecord`] has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotRecord {
    /// Row.
    pub id: SnapshotId,
    /// Of which volume.
    pub volume: OwnerId,
    /// That volume's name.
    pub volume_name: String,
    /// Name, unique in the volume.
    pub name: String,
    /// Length.
    pub bytes: u64,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Bytes of each chunk of its stripes.
    pub chunk_bytes: u64,
    /// What the volume's stripes got when it was taken.
    pub redundancy: Redundancy,
    /// When it was taken.
    pub created: WallTime,
}

impl SnapshotRecord {
    /// `VOLUME@SNAPSHOT`.
    pub fn full_name(&self) -> String {
        format!("{}@{}", self.volume_name, self.name)
    }
}

/// What a snapshot holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SnapshotTally {
    /// Its stripes.
    pub stripes: u64,
    /// Of these, held by nothing else: what its delete gives back.
    pub alone: u64,
}

/// A credential.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessKey {
    /// Public part.
    pub access_key: String,
    /// Secret part; SigV4 needs it in plain.
    pub secret_key: String,
    /// Whose it is: the owner of what is made with it.
    pub account: String,
    /// When it was made.
    pub created: WallTime,
}

impl std::fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessKey").field("access_key", &self.access_key).field("account", &self.account).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Segments on two disks each, of two nodes at least: of `a a b b c c`, of `a a b ? ? b`.
    #[test]
    fn a_log_misses_nothing_on_fewer_nodes_than_a_segment_is_on() {
        let log = |labels: [Option<&str>; 6], nodes| {
            let disks = (0..).map(DiskId).zip(labels.map(|label| label.map(|label| NodeId(label.to_owned()))));
            LogRecord { disks: disks.collect(), copies: 2, nodes }
        };
        let known = log([Some("a"), Some("a"), Some("b"), Some("b"), Some("c"), Some("c")], 2);
        let partly = log([Some("a"), Some("a"), Some("b"), None, None, Some("b")], 1);
        for (log, absent, may) in [
            (&known, &[0][..], false),
            (&known, &[0, 1], false),
            (&known, &[0, 2], true),
            (&known, &[0, 1, 4], true),
            (&known, &[0, 77], false),
            (&LogRecord { nodes: 0, ..known.clone() }, &[0, 1], true),
            (&LogRecord { copies: 0, ..known.clone() }, &[0, 1, 2, 3, 4, 5], false),
            (&LogRecord { copies: 3, nodes: 3, ..known.clone() }, &[0, 1, 2, 3], false),
            // A segment may be on disks 2 and 3, one of which nobody knows.
            (&partly, &[3], false),
            (&partly, &[2, 3], true),
            (&partly, &[3, 4], false),
        ] {
            let absent = absent.iter().copied().map(DiskId).collect();
            assert_eq!(log.may_be_all_on(&absent), may, "{absent:?} of {log:?}");
        }
    }
}
