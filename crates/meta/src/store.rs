//! The traits of a metadata store. Each method is one transaction.

use std::collections::BTreeMap;

use async_trait::async_trait;
use claystone_chunk::{ByteRange, DiskId, Lease, OwnerId, StripeId, Term};
use claystone_code::{ChunkIndex, CodeSpec};
use claystone_env::WallTime;

use crate::{
    AccessKey, BucketId, BucketRecord, ChunkPlace, ContentId, DiskRecord, DiskState, HeatPolicy, HeatRecord, LogRecord,
    ObjectRecord, Origin, PartRecord, Redundancy, SnapshotId, SnapshotRecord, SnapshotTally, Span, StripeNames,
    StripeRecord, UploadId, UploadRecord, VersionName, VolumeRecord,
};

/// Why a transaction did not happen.
#[derive(Debug, thiserror::Error)]
pub enum MetaError {
    /// No bucket has this name.
    #[error("there is no bucket {name:?}")]
    NoSuchBucket {
        /// The name.
        name: String,
    },
    /// The name is taken.
    #[error("bucket {name:?} exists and belongs to {owner:?}")]
    BucketExists {
        /// The name.
        name: String,
        /// Whose it is.
        owner: String,
    },
    /// Objects, versions or delete markers are in the bucket.
    #[error("bucket {name:?} is not empty")]
    BucketNotEmpty {
        /// The name.
        name: String,
    },
    /// The key has no such object, or the version is a delete marker where an object is needed.
    #[error("there is no object {key:?}")]
    NoSuchObject {
        /// The key.
        key: String,
    },
    /// No such upload of this key.
    #[error("there is no upload {id:?}")]
    NoSuchUpload {
        /// The upload.
        id: String,
    },
    /// A part that the completion names is not there or has another entity tag.
    #[error("part {number} is not as the completion names it")]
    InvalidPart {
        /// The part.
        number: u32,
    },
    /// The object is not as the writer's condition wants it.
    #[error("the precondition on {key:?} does not hold")]
    PreconditionFailed {
        /// The key.
        key: String,
    },
    /// The version is not as it was seen any more.
    #[error("object {key:?} changed since it was looked up")]
    ObjectChanged {
        /// The key.
        key: String,
    },
    /// The stripe changed since the swap was planned.
    #[error("stripe {stripe} is not at revision {expected} any more")]
    StripeChanged {
        /// The stripe.
        stripe: StripeId,
        /// The revision the caller planned on.
        expected: u64,
    },
    /// Disks that a new stripe was written to have left since, more of them than its code tolerates.
    #[error("stripe {stripe} was written to disks that have left since: it has to be written again")]
    StripeLost {
        /// The stripe.
        stripe: StripeId,
    },
    /// A volume or a snapshot holds the stripe, which has a stripe at each position.
    #[error("stripe {stripe} belongs to a volume or a snapshot: it is not merged or split")]
    HeldByVolume {
        /// The stripe.
        stripe: StripeId,
    },
    /// Two packs whose contents are to have different codes would become one, whose contents have one.
    #[error("packs of {one} and of {other} are not merged")]
    PacksDiffer {
        /// The code that the contents of one of them are to have.
        one: String,
        /// That of the other.
        other: String,
    },
    /// No volume has this name.
    #[error("there is no volume {name:?}")]
    NoSuchVolume {
        /// The name; of one that is known by its id only, `#` and the id.
        name: String,
    },
    /// The name is taken.
    #[error("volume {name:?} exists")]
    VolumeExists {
        /// The name.
        name: String,
    },
    /// A volume goes after its snapshots.
    #[error("volume {name:?} has {count} snapshots: delete them first")]
    HasSnapshots {
        /// The name; of one that is known by its id only, `#` and the id.
        name: String,
        /// How many.
        count: u64,
    },
    /// The volume has no snapshot of this name, or no volume has this name.
    #[error("there is no snapshot {name:?}")]
    NoSuchSnapshot {
        /// `VOLUME@SNAPSHOT`; of one that is known by its id only, `#` and the id.
        name: String,
    },
    /// The name is taken.
    #[error("snapshot {name:?} exists")]
    SnapshotExists {
        /// `VOLUME@SNAPSHOT`.
        name: String,
    },
    /// A volume never loses bytes at its end.
    #[error("volume {name:?} has {bytes} bytes and cannot shrink to {wanted}")]
    VolumeShrinks {
        /// The name.
        name: String,
        /// Its length.
        bytes: u64,
        /// What was asked for.
        wanted: u64,
    },
    /// Somebody opened the volume after whoever asks: nothing was changed.
    #[error("volume {} has another owner: its last lease has term {}, this one {}", .lease.owner, .last.0, .lease.term.0)]
    LeaseEnded {
        /// What the caller holds.
        lease: Lease,
        /// The term of the volume's last lease.
        last: Term,
    },
    /// No such disk.
    #[error("disk {disk} is not known")]
    NoSuchDisk {
        /// The disk.
        disk: DiskId,
    },
    /// The database holds something this program cannot read.
    #[error("the metadata holds {what} that cannot be read")]
    Corrupt {
        /// What it is.
        what: String,
    },
    /// The database was written by a newer program.
    #[error("the metadata has schema {found}, this program knows up to {known}: run a newer claystone")]
    NewerSchema {
        /// Schema in the database.
        found: u32,
        /// Newest schema this program knows.
        known: u32,
    },
    /// The file system under the database has no room; nothing was changed.
    #[error("no space left for metadata")]
    Full,
    /// The database failed; whether the transaction happened is unknown until it is opened anew.
    #[error("the metadata store failed: {reason}")]
    Unavailable {
        /// What it said.
        reason: String,
    },
}

/// How a bucket keeps versions at the moment of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Versioning {
    /// The write replaces the version named `null`.
    Off,
    /// The write adds a version of this name.
    On(VersionName),
}

/// Which version of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionRef {
    /// The newest.
    Current,
    /// The one of this name.
    Named(VersionName),
}

/// What must hold of the current version for a write to happen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Precondition {
    /// Nothing.
    #[default]
    None,
    /// There is no current object (a delete marker counts as none).
    Absent,
    /// There is one; otherwise `NoSuchObject`.
    Exists,
    /// There is one with this entity tag; without one `NoSuchObject`.
    Etag(String),
    /// There is none with this entity tag.
    NotEtag(String),
}

/// Where a new object's bytes come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewContent {
    /// No bytes.
    Empty,
    /// Stripes just written, in order; they become a new content.
    Stripes(Vec<NewStripe>),
    /// A part of a pack just written, which other contents share; it becomes a new content. Whoever names a pack holds a
    /// claim on it from before it was written, so that it is not reclaimed when its first parts come and go.
    Part(NewPart),
    /// The bytes of an existing object or part, shared. `NoSuchObject` if it went away meanwhile.
    Shared(ContentId),
}

/// A stripe of one content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewStripe {
    /// The stripe.
    pub stripe: StripeRecord,
    /// Bytes of the content in it, one band after another, at least 1 in each; behind them it has zeros.
    pub bytes: u64,
}

impl NewStripe {
    /// Of each of its bands, how many bytes of the content it holds and how many it has.
    pub(crate) fn held(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut left = self.bytes;
        self.stripe.bands().into_iter().map(move |band| {
            let held = left.min(band.data_bytes);
            left -= held;
            (held, band.data_bytes)
        })
    }
}

impl From<StripeRecord> for NewStripe {
    /// All of its bytes are the content's.
    fn from(stripe: StripeRecord) -> NewStripe {
        NewStripe { bytes: stripe.data_bytes, stripe }
    }
}

/// A part of a pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPart {
    /// The stripe, of one band. Its rows are made when the first of its parts is named.
    pub pack: StripeRecord,
    /// The code that its contents are to have: with more bytes, the pack would have this one.
    pub wanted: CodeSpec,
    /// Which of its bytes.
    pub part: ByteRange,
}

/// A band of a stripe that holds parts of several contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pack {
    /// The stripe.
    pub stripe: StripeRecord,
    /// Which of its bands: the only one, until it is merged.
    pub band: u16,
    /// Its bytes that contents name.
    pub live_bytes: u64,
    /// Spans that name parts of it.
    pub parts: u64,
    /// The code that its contents are to have.
    pub wanted: CodeSpec,
}

impl Pack {
    /// Bytes of the band, whether they are named or not.
    pub fn data_bytes(&self) -> u64 {
        self.stripe.bands().get(usize::from(self.band)).map_or(0, |band| band.data_bytes)
    }
}

/// A part of a pack that a content names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedPart {
    /// The content.
    pub content: ContentId,
    /// Which of its spans this is.
    pub position: u64,
    /// The stripe where it lies.
    pub stripe: StripeId,
    /// In which band.
    pub band: u16,
    /// Which bytes of the band.
    pub part: ByteRange,
}

/// Parts of packs move into a new pack, which holds a copy of their bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repack {
    /// The new pack, of one band.
    pub pack: StripeRecord,
    /// The code that its contents are to have.
    pub wanted: CodeSpec,
    /// Parts as they are, and where each begins in the new pack.
    pub moves: Vec<(PackedPart, u64)>,
}

/// A bucket to be made; its fields are those of [`BucketRecord`].
#[derive(Debug, Clone)]
pub struct NewBucket {
    /// Name.
    pub name: String,
    /// Account that makes it.
    pub owner: String,
    /// The code for new objects.
    pub code: Option<CodeSpec>,
    /// How redundancy follows heat.
    pub policy: Option<HeatPolicy>,
    /// Documents by name.
    pub documents: BTreeMap<String, Vec<u8>>,
    /// When.
    pub created: WallTime,
}

/// An object to be written.
#[derive(Debug, Clone)]
pub struct NewObject {
    /// Bucket.
    pub bucket: BucketId,
    /// Key.
    pub key: String,
    /// How the bucket keeps versions.
    pub versioning: Versioning,
    /// What must hold.
    pub precondition: Precondition,
    /// Bytes.
    pub content: NewContent,
    /// Length.
    pub bytes: u64,
    /// Entity tag without quotes.
    pub etag: String,
    /// Now.
    pub created: WallTime,
    /// Opaque.
    pub attributes: Vec<u8>,
}

/// What a write did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutOutcome {
    /// The version that was written.
    pub version: VersionName,
    /// Stripes that died: their chunks may be reclaimed.
    pub dead: Vec<StripeRecord>,
}

/// A delete.
#[derive(Debug, Clone)]
pub struct DeleteObject {
    /// Bucket.
    pub bucket: BucketId,
    /// Key.
    pub key: String,
    /// `Named`: that version goes for good. `Current`: with versioning off the `null` version goes (S3 rule: while
    /// versioning is suspended pass `marker` to leave a `null` delete marker); with `marker` one is added.
    pub version: VersionRef,
    /// Add a delete marker of this name instead of (for `null`: after) removing.
    pub marker: Option<VersionName>,
    /// What must hold of the version that is deleted (of the current one for `Current`).
    pub precondition: Precondition,
    /// Now.
    pub now: WallTime,
}

/// What a delete did. Deleting what is not there is no error: both fields are `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Deleted {
    /// The version that went.
    pub removed: Option<(VersionName, bool)>,
    /// The delete marker that was added.
    pub marker: Option<VersionName>,
    /// Stripes that died.
    pub dead: Vec<StripeRecord>,
}

/// One look-up: bucket, object and stripes by one query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The bucket.
    pub bucket: BucketRecord,
    /// The object version, which may be a delete marker.
    pub object: Option<ObjectRecord>,
    /// What holds its bytes, in order.
    pub spans: Vec<Span>,
}

impl Found {
    /// The stripes of its spans, in order.
    pub fn stripes(&self) -> Vec<StripeRecord> {
        self.spans.iter().map(|span| span.stripe.clone()).collect()
    }
}

/// What to list. Keys come in the order of their bytes.
#[derive(Debug, Clone, Default)]
pub struct ListQuery {
    /// Only keys that begin so.
    pub prefix: String,
    /// Keys with this text behind the prefix are folded into one common prefix. Never empty.
    pub delimiter: Option<String>,
    /// Only keys (and common prefixes) greater than this.
    pub after: Option<String>,
    /// With `versions`: of the key `after` itself, continue behind this version.
    pub after_version: Option<VersionName>,
    /// Entries and common prefixes together, at most.
    pub limit: usize,
    /// All versions and delete markers, newest first within a key, instead of current objects.
    pub versions: bool,
}

/// A page of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPage<T> {
    /// Entries in order.
    pub entries: Vec<T>,
    /// Folded keys in order.
    pub common_prefixes: Vec<String>,
    /// More follow. Continue after the last key or prefix of this page.
    pub truncated: bool,
}

/// A completed upload.
#[derive(Debug, Clone)]
pub struct Completed {
    /// The object to be; its `content` and `bytes` are ignored and made of the parts.
    pub object: NewObject,
    /// The upload.
    pub upload: UploadId,
    /// Numbers and entity tags in ascending order, as the client names them.
    pub parts: Vec<(u32, String)>,
}

/// New places for chunks of one stripe. A chunk that gets a place has the stripe's own name there.
#[derive(Debug, Clone)]
pub struct Swap {
    /// The stripe.
    pub stripe: StripeId,
    /// The revision the change was planned on.
    pub expected_revision: u64,
    /// Chunk by chunk: its new place.
    pub places: Vec<(ChunkIndex, Option<ChunkPlace>)>,
    /// Of the volume whose owner makes the change: it must be the last one. Upkeep has none.
    pub lease: Option<Lease>,
}

/// Another code for one stripe: its data chunks stay where they are, its parity chunks are others, but for those that both codes have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recode {
    /// The stripe.
    pub stripe: StripeId,
    /// The revision the change was planned on.
    pub expected_revision: u64,
    /// The new code, with as many data chunks as the old one.
    pub code: CodeSpec,
    /// Sub-chunk bytes of a full tile under it.
    pub sub_bytes: u32,
    /// Where each of its parity chunks is, in order; `None`: it is lost.
    pub parity: Vec<Option<ChunkPlace>>,
    /// The names of those that were parity of the old code too, and stay.
    pub origins: BTreeMap<ChunkIndex, Origin>,
    /// As in [`Swap`].
    pub lease: Option<Lease>,
}

/// Stripes become others over the same data chunks: merged, split, or each under another code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversion {
    /// The stripes there are, in the order of their data chunks, with the revisions that the change was planned on.
    pub sources: Vec<(StripeId, u64)>,
    /// Those that take their place, with ids that no stripe had before. Their bands are the bands of the sources, in order.
    pub targets: Vec<StripeRecord>,
}

/// Where a walk through what a bucket holds has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanPlace {
    /// The key, or the name of an upload.
    pub key: String,
    /// Which of its versions, opaque, or the number of a part.
    pub sequence: i64,
    /// Which span of its content.
    pub position: u64,
}

/// What names a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskTally {
    /// Chunks of live stripes on it.
    pub chunks: u64,
    /// Of these, marked damaged.
    pub damaged: u64,
    /// Volumes whose log may have segments on it.
    pub logs: u64,
}

/// Stripes by what is known of them. A chunk counts as lost if it has no place, is damaged, or its disk is in
/// state `Lost` or `Removed`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StripeTally {
    /// Live stripes.
    pub stripes: u64,
    /// Bytes of objects and volumes in them (shared ones once).
    pub data_bytes: u64,
    /// Stripes with every chunk in place and verified at their revision.
    pub verified: u64,
    /// `lost[i]`: stripes that can lose exactly `i` more chunks without losing data, among those with a chunk lost.
    /// Its length is the highest such number plus one.
    pub degraded_by_tolerance_left: Vec<u64>,
    /// Stripes with more chunks lost than their code tolerates.
    pub unrecoverable: u64,
    /// Chunks lost in all.
    pub chunks_lost: u64,
    /// Dead stripes that wait for reclaim.
    pub dead: u64,
}

/// Buckets.
#[async_trait]
pub trait BucketRecords: Send + Sync {
    /// Makes a bucket without a policy or documents.
    async fn create_bucket(
        &self,
        name: &str,
        owner: &str,
        code: Option<CodeSpec>,
        now: WallTime,
    ) -> Result<BucketRecord, MetaError> {
        let (name, owner) = (name.to_owned(), owner.to_owned());
        let bucket = NewBucket { name, owner, code, policy: None, documents: BTreeMap::new(), created: now };
        self.create_bucket_with(bucket).await
    }
    /// Makes a bucket with all that is said of it.
    async fn create_bucket_with(&self, bucket: NewBucket) -> Result<BucketRecord, MetaError>;
    /// One bucket, or `NoSuchBucket`.
    async fn bucket(&self, name: &str) -> Result<BucketRecord, MetaError>;
    /// All buckets in the order of their names.
    async fn buckets(&self) -> Result<Vec<BucketRecord>, MetaError>;
    /// Removes a bucket without objects, versions and delete markers. Its uploads are aborted with it; their stripes
    /// are found by [`StripeRecords::dead_stripes`].
    async fn delete_bucket(&self, name: &str) -> Result<(), MetaError>;
    /// Sets or removes one document.
    async fn set_document(&self, name: &str, document: &str, content: Option<Vec<u8>>) -> Result<(), MetaError>;
    /// Sets the code for new objects. One that is named takes the place of a policy, which would choose another.
    async fn set_code(&self, name: &str, code: Option<CodeSpec>) -> Result<(), MetaError>;
    /// Sets how redundancy follows heat. Stripes there are stay as they are until upkeep looks at them.
    async fn set_policy(&self, name: &str, policy: Option<HeatPolicy>) -> Result<(), MetaError>;
}

/// Objects and their versions.
#[async_trait]
pub trait ObjectRecords: Send + Sync {
    /// Bucket, object and stripes by one query.
    async fn object(&self, bucket: &str, key: &str, version: &VersionRef) -> Result<Found, MetaError>;
    /// Writes an object: the commit point of a put.
    async fn put_object(&self, object: NewObject) -> Result<PutOutcome, MetaError>;
    /// Deletes.
    async fn delete_object(&self, delete: DeleteObject) -> Result<Deleted, MetaError>;
    /// Replaces the attributes of a version that is as it was seen: `NoSuchObject` if it is gone, `ObjectChanged` if it has other
    /// attributes since, or is another object, as a null version may be.
    async fn set_attributes(&self, seen: &ObjectRecord, attributes: Vec<u8>) -> Result<(), MetaError>;
    /// Lists.
    async fn list_objects(&self, bucket: BucketId, query: &ListQuery) -> Result<ListPage<ObjectRecord>, MetaError>;
}

/// Multipart uploads.
#[async_trait]
pub trait UploadRecords: Send + Sync {
    /// Begins one.
    async fn create_upload(&self, upload: UploadRecord) -> Result<(), MetaError>;
    /// One upload, or `NoSuchUpload`; the key must match.
    async fn upload(&self, bucket: BucketId, key: &str, id: &UploadId) -> Result<UploadRecord, MetaError>;
    /// Writes or replaces a part; returns the stripes of the replaced one, now dead.
    async fn put_part(
        &self,
        id: &UploadId,
        part: PartRecord,
        content: NewContent,
    ) -> Result<Vec<StripeRecord>, MetaError>;
    /// Parts with numbers greater than `after`, ascending, and whether more follow.
    async fn parts(&self, id: &UploadId, after: u32, limit: usize) -> Result<(Vec<PartRecord>, bool), MetaError>;
    /// Turns parts into an object and forgets the upload. Parts that are not named die. The object's length is that of
    /// the parts, whatever `object.bytes` says.
    async fn complete_upload(&self, completed: Completed) -> Result<PutOutcome, MetaError>;
    /// Forgets an upload; returns the stripes that died.
    async fn abort_upload(&self, bucket: BucketId, key: &str, id: &UploadId) -> Result<Vec<StripeRecord>, MetaError>;
    /// Lists uploads by key, then id. `after` names a key and optionally an upload of it; entries are those behind.
    async fn list_uploads(
        &self,
        bucket: BucketId,
        query: &ListQuery,
        after_upload: Option<&UploadId>,
    ) -> Result<ListPage<UploadRecord>, MetaError>;
}

/// Stripes, for upkeep.
#[async_trait]
pub trait StripeRecords: Send + Sync {
    /// One live stripe.
    async fn stripe(&self, id: StripeId) -> Result<Option<StripeRecord>, MetaError>;
    /// Live stripes with ids greater than `after`, ascending.
    async fn stripes(&self, after: Option<StripeId>, limit: usize) -> Result<Vec<StripeRecord>, MetaError>;
    /// Live stripes with a chunk on `disk`, ids greater than `after`, ascending.
    async fn stripes_on(
        &self,
        disk: DiskId,
        after: Option<StripeId>,
        limit: usize,
    ) -> Result<Vec<StripeRecord>, MetaError>;
    /// Live stripes with lost chunks (see [`StripeTally`]), those that tolerate the fewest further losses first. Those
    /// beyond their code's tolerance come last of all: nothing can be done for them, and they must not hide the rest.
    async fn degraded(&self, limit: usize) -> Result<Vec<StripeRecord>, MetaError>;
    /// Their ids, in the same order.
    async fn degraded_ids(&self, limit: usize) -> Result<Vec<StripeId>, MetaError>;
    /// Stripes, live or dead, with chunks that these ids may be part of the names of: those with an id of these, and those
    /// with chunks that were written under one. Each once.
    async fn named(&self, ids: &[StripeId]) -> Result<Vec<StripeRecord>, MetaError>;
    /// Changes places, if the stripe is live and still at the expected revision; the revision advances and `verified`
    /// is cleared.
    async fn swap(&self, swap: Swap) -> Result<StripeRecord, MetaError>;
    /// Replaces the code and its parity chunks, if the stripe is live, still at the expected revision, and the code has its
    /// data chunks (`StripeChanged` otherwise); the revision advances and `verified` is cleared. The places of the data
    /// chunks stay.
    ///
    /// # Panics
    /// If there is not one place, or none, for each parity chunk of the code.
    async fn recode(&self, recode: Recode) -> Result<StripeRecord, MetaError>;
    /// Puts the targets in the place of the sources: contents name their bands from then on. The sources die, and are left
    /// with the chunks that no target names. `StripeChanged` if a source is not live and at its revision or a new chunk lies on a disk
    /// that was given up, `HeldByVolume`,
    /// `PacksDiffer` if packs whose contents are to have different codes would share a target. Returns the targets.
    ///
    /// # Panics
    /// If the targets have other bands than the sources, or not one place for each chunk of their codes.
    async fn convert(&self, conversion: Conversion) -> Result<Vec<StripeRecord>, MetaError>;
    /// Marks chunks of live stripes as damaged (a place in that generation), so that repair takes them up. The stripe's
    /// revision advances and `verified` is cleared; chunks that are marked already, moved or unknown change nothing.
    async fn mark_damaged(&self, chunks: &[claystone_chunk::ChunkId]) -> Result<(), MetaError>;
    /// Of these stripes, those that more than one row names, ascending: nobody may change them in place.
    async fn shared(&self, ids: &[StripeId]) -> Result<Vec<StripeId>, MetaError>;
    /// Chunks of these stripes are about to change in place: their revisions advance and `verified` is cleared. Returns
    /// them as they are then, in the order asked for; those that are not live, or shared, are left out and left alone.
    async fn touch(&self, ids: &[StripeId]) -> Result<Vec<StripeRecord>, MetaError>;
    /// Remembers that a stripe was read back whole at this revision; nothing happens if it has changed.
    async fn mark_verified(&self, id: StripeId, revision: u64, now: WallTime) -> Result<(), MetaError>;
    /// Dead stripes, oldest first.
    async fn dead_stripes(&self, limit: usize) -> Result<Vec<StripeRecord>, MetaError>;
    /// Forgets dead stripes whose chunks are gone.
    async fn forget(&self, ids: &[StripeId]) -> Result<(), MetaError>;
    /// Counts.
    async fn tally(&self) -> Result<StripeTally, MetaError>;
}

/// Packs: bands of stripes that hold parts of several contents.
#[async_trait]
pub trait PackRecords: Send + Sync {
    /// Packs with fewer than `live_below` bytes that contents name, by the code that they are to have and then by these bytes,
    /// fewest first, at most `limit` of each code. Of merged stripes only bands of which no more than half is named: a short one
    /// gains nothing from being written anew. A record that cannot be read is left out.
    async fn thin_packs(&self, live_below: u64, limit: usize) -> Result<Vec<Pack>, MetaError>;
    /// The parts of a band that contents name, in the order in which they lie.
    async fn packed_parts(&self, pack: StripeId, band: u16) -> Result<Vec<PackedPart>, MetaError>;
    /// Contents name the new pack instead of where their parts were. Parts that no content names any more like this are left
    /// out; if none is left, nothing happens. Returns how many moved, and the stripes that died.
    async fn repack(&self, repack: Repack) -> Result<(u64, Vec<StripeRecord>), MetaError>;
}

/// What buckets hold and how much it is read, for upkeep. Nothing but the choice of codes depends on heat.
#[async_trait]
pub trait HeatRecords: Send + Sync {
    /// What objects of a bucket hold, behind `after`, in the order of keys, versions and bytes. A stripe comes as
    /// often as it is held; one whose record cannot be read is left out. Returns where the page ends, `None` at the end.
    async fn bucket_spans(
        &self,
        bucket: BucketId,
        after: Option<&SpanPlace>,
        limit: usize,
    ) -> Result<(Vec<Span>, Option<SpanPlace>), MetaError>;
    /// What parts of uploads into a bucket hold that are not complete, as [`HeatRecords::bucket_spans`], in the order of uploads and numbers.
    async fn uploaded_spans(
        &self,
        bucket: BucketId,
        after: Option<&SpanPlace>,
        limit: usize,
    ) -> Result<(Vec<Span>, Option<SpanPlace>), MetaError>;
    /// What names these stripes, in the order of the ids.
    async fn names_of(&self, ids: &[StripeId]) -> Result<Vec<StripeNames>, MetaError>;
    /// Of stripes with ids greater than `after`, ascending.
    async fn heats(&self, after: Option<StripeId>, limit: usize) -> Result<Vec<HeatRecord>, MetaError>;
    /// Remembers the heat of stripes, or with a count of 0 forgets it. Returns those that are not live, of which nothing is
    /// remembered.
    ///
    /// # Panics
    /// If a count is negative or none.
    async fn put_heats(&self, heats: Vec<HeatRecord>) -> Result<Vec<StripeId>, MetaError>;
}

/// Disks.
#[async_trait]
pub trait DiskRecords: Send + Sync {
    /// All that are not removed, in the order they were added.
    async fn disks(&self) -> Result<Vec<DiskRecord>, MetaError>;
    /// Adds one, or updates node and path of a known one. The state of a known disk stays, unless it is `Removed`: then
    /// it comes back in the state given.
    async fn put_disk(&self, disk: DiskRecord) -> Result<(), MetaError>;
    /// Changes the state.
    async fn set_disk_state(&self, disk: DiskId, state: DiskState) -> Result<(), MetaError>;
    /// Counts what names it.
    async fn disk_tally(&self, disk: DiskId) -> Result<DiskTally, MetaError>;
}

/// Block volumes.
#[async_trait]
pub trait VolumeRecords: Send + Sync {
    /// Adds one without stripes, or `VolumeExists`.
    ///
    /// # Panics
    /// If it has a term or disks of a log, or a page or chunk of no bytes.
    async fn create_volume(&self, volume: VolumeRecord) -> Result<(), MetaError>;
    /// One volume, or `NoSuchVolume`.
    async fn volume(&self, name: &str) -> Result<VolumeRecord, MetaError>;
    /// All volumes in the order of their names, but those whose records cannot be read.
    async fn volumes(&self) -> Result<Vec<VolumeRecord>, MetaError>;
    /// The volumes whose records cannot be read, and what of each. Their stripes can be listed.
    async fn corrupt_volumes(&self) -> Result<Vec<(OwnerId, String)>, MetaError>;
    /// Sets the length, never to less than it has: `VolumeShrinks`. Needs no lease.
    async fn grow_volume(&self, id: OwnerId, bytes: u64) -> Result<VolumeRecord, MetaError>;
    /// Sets what its stripes get, under the lease, if any, that it has: `NoSuchVolume`. Those there are stay as they are.
    ///
    /// # Panics
    /// If stripes would have other data chunks.
    async fn set_redundancy(&self, id: OwnerId, redundancy: Redundancy) -> Result<VolumeRecord, MetaError>;
    /// Forgets a volume, whoever has it open, and with it the disks of its log; returns the stripes that died. Changes
    /// under any of its leases are `NoSuchVolume` from then on. `HasSnapshots`.
    async fn delete_volume(&self, id: OwnerId) -> Result<Vec<StripeRecord>, MetaError>;
    /// Ends every lease of a volume and begins one with the next term, which is that of the record returned.
    async fn take_lease(&self, id: OwnerId) -> Result<VolumeRecord, MetaError>;
    /// Sets which disks may hold segments of the log, and on how many of them and of their nodes each segment is at least: with
    /// as many of both absent as that, something may be missing. Said before anything is acknowledged on fewer. `LeaseEnded` if
    /// `lease` is not the last, `NoSuchDisk`.
    ///
    /// # Panics
    /// If segments would be on more nodes than the disks are.
    async fn set_log(&self, lease: Lease, log: LogRecord) -> Result<(), MetaError>;
    /// Stripes at positions greater than `after`, ascending by position. One that cannot be read is an error, because
    /// positions without a stripe read as zeros.
    async fn volume_stripes(
        &self,
        id: OwnerId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<(u64, StripeRecord)>, MetaError>;
    /// Puts new stripes at positions, or with `None` takes away what is there, one after the other; all or nothing.
    /// Returns the stripes that died. `LeaseEnded` if `lease` is not the last, `NoSuchDisk`.
    async fn put_volume_stripes(
        &self,
        lease: Lease,
        stripes: Vec<(u64, Option<StripeRecord>)>,
    ) -> Result<Vec<StripeRecord>, MetaError>;
}

/// Snapshots of volumes.
#[async_trait]
pub trait SnapshotRecords: Send + Sync {
    /// Takes one: the stripes that the volume has now. `LeaseEnded` if `lease` is not the last, `SnapshotExists`.
    async fn create_snapshot(&self, lease: Lease, name: &str, now: WallTime) -> Result<SnapshotRecord, MetaError>;
    /// One snapshot, or `NoSuchSnapshot`.
    async fn snapshot(&self, volume: &str, name: &str) -> Result<SnapshotRecord, MetaError>;
    /// All snapshots in the order of their volumes' names, those of one volume in the order they were taken.
    async fn snapshots(&self) -> Result<Vec<SnapshotRecord>, MetaError>;
    /// As [`VolumeRecords::volume_stripes`].
    async fn snapshot_stripes(
        &self,
        id: SnapshotId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<(u64, StripeRecord)>, MetaError>;
    /// Counts what it holds.
    async fn snapshot_tally(&self, id: SnapshotId) -> Result<SnapshotTally, MetaError>;
    /// Forgets a snapshot; returns the stripes that died.
    async fn delete_snapshot(&self, id: SnapshotId) -> Result<Vec<StripeRecord>, MetaError>;
    /// Adds a volume with the stripes of a snapshot. `VolumeExists`, `NoSuchSnapshot`.
    ///
    /// # Panics
    /// As [`VolumeRecords::create_volume`].
    async fn clone_snapshot(&self, id: SnapshotId, volume: VolumeRecord) -> Result<(), MetaError>;
    /// Gives a volume the stripes that its snapshot has, and ends its leases and its log: segments that were made before
    /// are over. Its length stays. Returns the stripes that died. `NoSuchSnapshot` if it is none of this volume's.
    async fn revert_volume(&self, id: OwnerId, to: SnapshotId) -> Result<Vec<StripeRecord>, MetaError>;
}

/// Credentials.
#[async_trait]
pub trait KeyRecords: Send + Sync {
    /// Adds or replaces a key.
    async fn put_key(&self, key: AccessKey) -> Result<(), MetaError>;
    /// All keys.
    async fn keys(&self) -> Result<Vec<AccessKey>, MetaError>;
    /// Removes a key.
    async fn delete_key(&self, access_key: &str) -> Result<(), MetaError>;
}

/// A whole metadata store.
pub trait Meta:
    BucketRecords
    + ObjectRecords
    + UploadRecords
    + VolumeRecords
    + SnapshotRecords
    + StripeRecords
    + PackRecords
    + HeatRecords
    + DiskRecords
    + KeyRecords
{
}

impl<T> Meta for T where
    T: BucketRecords
        + ObjectRecords
        + UploadRecords
        + VolumeRecords
        + SnapshotRecords
        + StripeRecords
        + PackRecords
        + HeatRecords
        + DiskRecords
        + KeyRecords
{
}
