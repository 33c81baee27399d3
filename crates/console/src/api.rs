//! What goes over the wire of the admin API, shared by server and command line.
//!
//! | method and path | request | response |
//! |---|---|---|
//! | `GET /admin/v1/status` | | [`Status`] |
//! | `GET /admin/v1/disks` | | [`Disks`] |
//! | `POST /admin/v1/disks` | [`AddDisk`] | [`DiskAdded`] |
//! | `POST /admin/v1/disks/{id}/replace` | [`ReplaceDisk`] | [`DiskReplaced`] |
//! | `POST /admin/v1/disks/{id}/drain` | | [`Done`] |
//! | `POST /admin/v1/scrub` | | [`ScrubReport`] |
//! | `GET /admin/v1/scrub` | | [`Scrub`] |
//! | `GET /admin/v1/buckets` | | [`Buckets`] |
//! | `PUT /admin/v1/buckets/{name}/code` | [`SetCode`] | [`Done`] |
//! | `GET /admin/v1/policies` | | [`Policies`] |
//! | `PUT /admin/v1/buckets/{name}/policy` | [`SetPolicy`] | [`Done`] |
//! | `GET /admin/v1/buckets/{name}/policy[?key=KEY]` | | [`PolicyReport`] |
//! | `GET /admin/v1/keys` | | [`Keys`] |
//! | `POST /admin/v1/keys` | [`AddKey`] | [`KeyAdded`] |
//! | `DELETE /admin/v1/keys/{access_key}` | | [`Done`] |
//! | `POST /admin/v1/backup` | [`BackUp`] | [`BackedUp`] |
//! | `GET /admin/v1/volumes` | | [`Volumes`] |
//! | `POST /admin/v1/volumes` | [`AddVolume`] | [`Volume`] |
//! | `GET /admin/v1/volumes/{name}` | | [`Volume`] |
//! | `DELETE /admin/v1/volumes/{name}` | | [`Done`] |
//! | `PUT /admin/v1/volumes/{name}/size` | [`ResizeVolume`] | [`Volume`] |
//! | `POST /admin/v1/volumes/{name}/merge` | | [`VolumeMerged`] |
//! | `GET /admin/v1/volumes/{name}/spans?offset=N&bytes=N` | | [`VolumeSpans`] |
//! | `GET /admin/v1/volumes/{name}/content?offset=N&bytes=N` | | the bytes, up to 16 MiB |
//! | `PUT /admin/v1/volumes/{name}/content?offset=N` | the bytes, up to 16 MiB | [`Done`] |
//! | `POST /admin/v1/volumes/{name}/flush` | | [`Done`] |
//! | `POST /admin/v1/volumes/{name}/snapshots` | [`AddSnapshot`] | [`Snapshot`] |
//! | `GET /admin/v1/snapshots/{volume@snapshot}` | | [`Snapshot`] |
//! | `DELETE /admin/v1/snapshots/{volume@snapshot}` | | [`Done`] |
//! | `POST /admin/v1/snapshots/{volume@snapshot}/clone` | [`CloneSnapshot`] | [`Volume`] |
//! | `POST /admin/v1/snapshots/{volume@snapshot}/revert` | | [`Volume`] |
//! | `GET /admin/v1/snapshots/{volume@snapshot}/spans?offset=N&bytes=N` | | [`VolumeSpans`] |
//! | `GET /admin/v1/snapshots/{volume@snapshot}/content?offset=N&bytes=N` | | the bytes, up to 16 MiB |
//!
//! Every request carries `authorization: Bearer TOKEN`. Every error is an [`ErrorBody`].
//!
//! Invariants:
//! 1. Within `v1` fields are added, never renamed or removed; a reader ignores fields it does not know.

pub use claystone_keeper::{
    AtRisk, ConversionBytes, ConversionTotals, DiskStatus, JobKind, JobReport, Overall, PairStatus, PolicyStatus,
    RepairTotals, ScrubReport, SectorStatus, Status, StripeCounts, Unreachable,
};
use serde::{Deserialize, Serialize};

/// The path below which the admin API lies.
pub const PREFIX: &str = "/admin/v1";

/// All disks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Disks {
    /// In the order they were added.
    pub disks: Vec<DiskStatus>,
}

/// A disk to add.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddDisk {
    /// A directory on the server's machine; made if it does not exist.
    pub path: String,
    /// Its failure domain; by default the server's node.
    #[serde(default)]
    pub node: Option<String>,
}

/// A disk that was added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskAdded {
    /// Its id.
    pub id: String,
    /// Where it is.
    pub path: String,
    /// Its failure domain.
    pub node: String,
}

/// A disk to give up: its chunks count as lost at once and are rebuilt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplaceDisk {
    /// A new disk to add in its place; without one the chunks are rebuilt on the disks that are there.
    #[serde(default)]
    pub path: Option<String>,
}

/// A disk that was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskReplaced {
    /// The disk that is lost now.
    pub lost: String,
    /// The disk that was added.
    pub added: Option<DiskAdded>,
}

/// The scrub that was asked for last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scrub {
    /// What it found so far; none if nobody asked for one since the start.
    pub scrub: Option<ScrubReport>,
    /// Its progress while it is under way.
    pub job: Option<JobReport>,
}

/// All buckets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buckets {
    /// By name.
    pub buckets: Vec<Bucket>,
}

/// A bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Its name.
    pub name: String,
    /// The account that made it.
    pub owner: String,
    /// When, milliseconds since 1970.
    pub created_unix_ms: u64,
    /// The code for new objects; none: the store's default.
    pub code: Option<String>,
    /// How its redundancy follows heat; then new objects get its fast code.
    #[serde(default)]
    pub policy: Option<String>,
}

/// The code for new objects of a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetCode {
    /// Such as `rs:4+2`, `clay:4+2:5`, `replica:3`; none: the store's default.
    pub code: Option<String>,
}

/// The policies that have names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policies {
    /// In the order in which `auto` looks at them.
    pub policies: Vec<PolicyPreset>,
    /// Disks that take writes.
    pub disks: u64,
    /// Nodes that they are on.
    pub nodes: u64,
    /// What `auto` is on so many; none if there are too few for any.
    pub chosen: Option<String>,
}

/// A policy with a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyPreset {
    /// Its name.
    pub name: String,
    /// What it is: codes, bound and thresholds.
    pub policy: String,
    /// Disks that it needs.
    pub disks_min: u16,
    /// What it is good for.
    pub summary: String,
}

/// How the redundancy of a bucket is to follow heat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetPolicy {
    /// A name, or a policy such as `replica:3/pc:2x5/pc:6x5<=150%,0.25..1.00`; none: it does not.
    pub policy: Option<String>,
}

/// What a bucket with a policy has, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolicyReport {
    /// The bucket.
    pub bucket: String,
    /// Its policy; with none all that follows is empty.
    pub policy: Option<String>,
    /// The policy's name, if it has one.
    pub preset: Option<String>,
    /// A read counts half after so long.
    pub half_life_seconds: u64,
    /// Bytes of its objects.
    pub data_bytes: u64,
    /// Bytes of chunks of fresh stripes: replicas of what is new.
    #[serde(default)]
    pub fresh_bytes: u64,
    /// Of fast ones.
    pub fast_bytes: u64,
    /// Of compact ones.
    pub compact_bytes: u64,
    /// Of all others.
    pub other_bytes: u64,
    /// Of fresh, fast and compact ones that are new: for the bound they are merged last.
    #[serde(default)]
    pub young_bytes: u64,
    /// Of those that wait for repair, another attempt or the policy of another bucket.
    #[serde(default)]
    pub waiting_bytes: u64,
    /// Bytes of chunks for a hundred bytes of objects.
    pub percent: f64,
    /// These numbers are of the whole bucket; otherwise it is looked at in parts, not all of them were looked at yet, and they are of
    /// the part that the stripes lie in.
    pub whole: bool,
    /// Bytes of objects in the part that the stripes lie in, if the bucket is looked at in parts.
    pub part_data_bytes: Option<u64>,
    /// Bytes of chunks there for a hundred of these: each part keeps the bound by itself.
    pub part_percent: Option<f64>,
    /// Bytes that chunks of what is written next may take beyond what they would under the compact code; none: nothing, until all of the
    /// bucket was looked at.
    #[serde(default)]
    pub room_bytes: Option<u64>,
    /// Stripes by the reason for what they have.
    pub reasons: Vec<PolicyReason>,
    /// The stripes of the object that was asked for, in order.
    pub stripes: Vec<StripeReport>,
}

/// Stripes that have their codes for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyReason {
    /// In one word.
    pub reason: String,
    /// How many.
    pub stripes: u64,
    /// Bytes of the bucket's objects in them.
    pub data_bytes: u64,
    /// The reason of one of them, in a sentence.
    pub example: String,
}

/// A stripe of an object, and why it has its code.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StripeReport {
    /// Its id.
    pub stripe: String,
    /// Its code.
    pub code: String,
    /// How often it was read lately.
    pub heat: f64,
    /// Why, in one word.
    pub reason: String,
    /// Why, in a sentence.
    pub why: String,
}

/// All credentials, without their secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// In the order of their public parts.
    pub keys: Vec<Key>,
}

/// A credential without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// Public part.
    pub access_key: String,
    /// Whose it is.
    pub account: String,
    /// When it was made, milliseconds since 1970.
    pub created_unix_ms: u64,
}

/// A credential to make.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddKey {
    /// Whose it is to be.
    pub account: String,
}

/// A credential that was made; its secret is shown here and never again.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyAdded {
    /// Public part.
    pub access_key: String,
    /// Secret part.
    pub secret_key: String,
    /// Whose it is.
    pub account: String,
}

impl std::fmt::Debug for KeyAdded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyAdded").field("access_key", &self.access_key).field("account", &self.account).finish()
    }
}

/// Where to put a copy of the records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackUp {
    /// A file on the server's machine that does not exist yet; absolute.
    pub path: String,
}

/// A copy of the records that was made, checked and synced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackedUp {
    /// Where it is.
    pub path: String,
    /// Its length.
    pub bytes: u64,
}

/// All volumes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volumes {
    /// By name.
    pub volumes: Vec<Volume>,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// The code of its stripes.
    pub code: String,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Bytes of each chunk of its stripes.
    pub chunk_bytes: u64,
    /// The nodes where its data chunks lie, each with a strand `NAME:HOME`.
    #[serde(default)]
    pub homes: Vec<String>,
    /// When it was made, milliseconds since 1970.
    pub created_unix_ms: u64,
    /// `open`; `closed`: nobody has asked for it since the start; `refused`: it did not open; `failed`: it takes nothing
    /// until it is opened anew, as the next client does, or if it is a scratch volume, for good; `scratch`: it is one.
    pub state: String,
    /// Why it is `refused` or `failed`.
    pub reason: Option<String>,
    /// Its stripes; where it is not open, only `GET /admin/v1/volumes/{name}` counts them.
    pub stripes: Option<u64>,
    /// The disks that keep its log.
    pub log_disks: Vec<String>,
    /// How it is while it is open.
    pub open: Option<VolumeUse>,
    /// Its snapshots, in the order they were taken.
    #[serde(default)]
    pub snapshots: Vec<Snapshot>,
    /// Of a scratch volume, which is gone when the store stops: how it is written.
    #[serde(default)]
    pub scratch: Option<Scratch>,
}

/// How a scratch volume is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scratch {
    /// `replicas`, `naive`, `parity-log` or `speculative`.
    pub method: String,
    /// How often its logs were replayed.
    pub replays: u64,
    /// Connections of clients, and commands under way.
    pub clients: u64,
}

/// A snapshot of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// `VOLUME@SNAPSHOT`.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// The code of its stripes.
    pub code: String,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Bytes of each chunk of its stripes.
    pub chunk_bytes: u64,
    /// When it was taken, milliseconds since 1970.
    pub created_unix_ms: u64,
    /// Connections of clients, and commands under way.
    pub clients: u64,
    /// Its stripes; only `GET /admin/v1/snapshots/{volume@snapshot}` counts them.
    pub stripes: Option<u64>,
    /// Of these, held by nothing else: its delete gives them back. Counted with them.
    pub stripes_alone: Option<u64>,
}

/// A snapshot to take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddSnapshot {
    /// 1 to 128 letters, digits, `.`, `_` or `-`, a letter or digit first.
    pub name: String,
}

/// A volume to make of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CloneSnapshot {
    /// As that of a volume to make.
    pub name: String,
}

/// How an open volume is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeUse {
    /// Bytes of its log, on each of its disks.
    pub log_bytes: u64,
    /// On how many disks that take writes each segment of it is, at least.
    #[serde(default)]
    pub log_copies: u64,
    /// On how many each is to be.
    #[serde(default)]
    pub log_copies_wanted: u64,
    /// Bytes that the log may take there.
    pub reserve_bytes: u64,
    /// The share of the reserve that is used.
    pub log_used_percent: u64,
    /// Pages that wait to be merged.
    pub diff_pages: u64,
    /// Stripes that they are in.
    pub diff_stripes: u64,
    /// Connections of clients, and commands under way.
    pub clients: u64,
    /// Rounds of merging since it was opened.
    pub merges: u64,
    /// Pages that they brought into stripes.
    pub merged_pages: u64,
    /// Rows of sectors whose parity they made anew.
    pub parity_updates: u64,
    /// Stripes that they wrote anew because a snapshot or a clone has them as they were.
    #[serde(default)]
    pub copied_stripes: u64,
    /// Bytes of a stripe, without its parity.
    pub stripe_bytes: u64,
    /// Data chunks that are mirrored, where there are two forms.
    pub mirrored_chunks: u64,
    /// Bytes of them and their copies.
    pub mirrored_bytes: u64,
    /// Data chunks that are coded; where there is one code, those of stripes that have it.
    pub coded_chunks: u64,
    /// Bytes of them and their parity.
    pub coded_bytes: u64,
    /// Data chunks of stripes of another code, of before the redundancy was set.
    pub other_chunks: u64,
    /// Bytes of all chunks of these stripes.
    pub other_bytes: u64,
    /// Data chunks that came to be coded since it was opened.
    pub coded_switches: u64,
    /// Data chunks that came to be mirrored since then.
    pub mirrored_switches: u64,
    /// The share of its data that makes up for the log's space when it is coded instead of mirrored, in percent, where coding saves any.
    pub log_pays_percent: Option<u64>,
}

/// A volume to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddVolume {
    /// 1 to 128 letters, digits, `.`, `_` or `-`, a letter or digit first.
    pub name: String,
    /// A multiple of the page.
    pub bytes: u64,
    /// Such as `rs:4+2`, `replica:2`, or two forms: `replica:3/rs:4+2<=200%`.
    pub code: String,
    /// 1024, 2048, 4096 or 8192; by default 4096.
    #[serde(default)]
    pub page_bytes: Option<u32>,
    /// Bytes of a stripe on each disk, whole pages and whole sectors; by default 1 MiB.
    #[serde(default)]
    pub chunk_bytes: Option<u64>,
    /// Labels of the nodes where its data chunks shall lie, of each as many; by default on any.
    #[serde(default)]
    pub homes: Vec<String>,
    /// Make a scratch volume, written in place by `replicas`, `naive`, `parity-log` or `speculative`: to be measured, gone when the
    /// store stops.
    #[serde(default)]
    pub scratch: Option<String>,
}

/// What a volume's stripes shall get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetRedundancy {
    /// Such as `rs:4+2`, `replica:3/rs:4+2`, `replica:3/rs:4+2<=200%`.
    pub code: String,
}

/// A volume's length to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResizeVolume {
    /// Not less than it has.
    pub bytes: u64,
}

/// What a round of merging did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeMerged {
    /// Pages that are in their stripes now.
    pub pages: u64,
    /// Pages that wait, those that were written meanwhile too.
    pub left: u64,
    /// Stripes that could not be merged because too much of them is lost.
    pub stripes_lost: u64,
}

/// How a range of a volume is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeSpans {
    /// From the start of the range; up to its end, or 4096 of them.
    pub spans: Vec<VolumeSpan>,
}

/// A row of bytes that are kept alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeSpan {
    /// How many.
    pub bytes: u64,
    /// They take space; others are zeros that take none.
    pub data: bool,
}

/// It is done, and there is nothing to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Done {}

/// The answer to `GET /health`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// `ok`, or `failing` (then the status is 503).
    pub status: String,
    /// The store in one word, as in [`Overall::word`]; none if it could not be looked at.
    pub overall: Option<String>,
    /// Whether objects can be read.
    pub reads: bool,
    /// Whether objects can be written.
    pub writes: bool,
    /// What is wrong.
    pub reason: Option<String>,
    /// The program's version.
    pub version: String,
}

/// An error of the admin API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What happened.
    pub error: ErrorDetail,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// For programs: `unauthorized`, `not_found`, `invalid`, `conflict`, `unavailable`, `method_not_allowed`, `too_large`.
    pub code: String,
    /// For people: what is wrong and what to do.
    pub message: String,
}
