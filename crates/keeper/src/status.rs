//! How the store is, in the words and numbers that people and programs get to see.
//!
//! Invariants:
//! 1. `healthy` is said only when every chunk of every stripe is in place on a disk that answers, and was read back
//!    whole since it last changed.
//! 2. Of several truths the worst one is said.
//! 3. Every type here keeps its JSON form: fields are added, never renamed.

use std::fmt;

use claystone_env::{PairHealth, SectorHealth};
use claystone_meta::StripeTally;
use serde::{Deserialize, Serialize};

use crate::progress::JobReport;

/// The store in one word, from good to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Overall {
    /// Every chunk is in place and was verified after its last change.
    Healthy,
    /// Nothing is known to be wrong, but some stripes were not read back since they were written or repaired.
    Unverified {
        /// How many.
        stripes: u64,
    },
    /// Chunks are lost or on absent disks; every stripe survives at least one more loss.
    Degraded {
        /// Stripes that lack a chunk.
        stripes: u64,
    },
    /// Some stripes do not survive one more loss, or cannot be read until a disk returns or a repair succeeds.
    AtRisk {
        /// How many.
        stripes: u64,
    },
    /// Some stripes cannot be recovered: every chunk that is left was tried.
    DataLost {
        /// How many.
        stripes: u64,
    },
}

impl Overall {
    /// The word alone, as in JSON and metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Overall::Healthy => "healthy",
            Overall::Unverified { .. } => "unverified",
            Overall::Degraded { .. } => "degraded",
            Overall::AtRisk { .. } => "at_risk",
            Overall::DataLost { .. } => "data_lost",
        }
    }

    /// All words, from good to bad.
    pub const WORDS: [&'static str; 5] = ["healthy", "unverified", "degraded", "at_risk", "data_lost"];
}

impl fmt::Display for Overall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Overall::Healthy => f.write_str("healthy: every chunk is in place and verified"),
            Overall::Unverified { stripes } => {
                write!(f, "{} not verified yet", counted(*stripes, "stripe is", "stripes are"))
            }
            Overall::Degraded { stripes } => {
                write!(f, "degraded: {} a chunk, none is at risk", counted(*stripes, "stripe lacks", "stripes lack"))
            }
            Overall::AtRisk { stripes } => {
                write!(f, "at risk: {} not survive one more loss", counted(*stripes, "stripe does", "stripes do"))
            }
            Overall::DataLost { stripes } => {
                write!(f, "data lost: {} cannot be recovered", counted(*stripes, "stripe", "stripes"))
            }
        }
    }
}

/// How many, in words: `1 page`, `2 pages`.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Stripes by what is known of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StripeCounts {
    /// Live stripes.
    pub stripes: u64,
    /// Bytes of objects and volumes in them.
    pub data_bytes: u64,
    /// Of these stripes, whole and verified.
    pub verified: u64,
    /// `[i]`: stripes with lost chunks that survive exactly `i` more losses.
    pub degraded_by_tolerance_left: Vec<u64>,
    /// Stripes that lost more chunks than their code tolerates; damaged chunks may still be partly readable.
    pub beyond_tolerance: u64,
    /// Of these, stripes that an attempt with all that is left could not recover.
    pub unrecoverable: u64,
    /// Chunks lost in all.
    pub chunks_lost: u64,
    /// Dead stripes whose chunks wait for reclaim.
    pub dead: u64,
    /// Stripes that chunks of lie on disks which do not answer now; absent while every disk answers.
    pub unreachable: Option<Unreachable>,
}

/// What absent disks mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Unreachable {
    /// Stripes with a chunk on an absent disk, as of the last look.
    pub stripes: u64,
    /// Of these, stripes that do not survive one more loss.
    pub at_risk: u64,
    /// Of these, stripes that cannot be read until a disk returns.
    pub unreadable: u64,
}

impl StripeCounts {
    pub(crate) fn new(tally: StripeTally, unrecoverable: u64, unreachable: Option<Unreachable>) -> StripeCounts {
        StripeCounts {
            stripes: tally.stripes,
            data_bytes: tally.data_bytes,
            verified: tally.verified,
            degraded_by_tolerance_left: tally.degraded_by_tolerance_left,
            beyond_tolerance: tally.unrecoverable,
            unrecoverable,
            chunks_lost: tally.chunks_lost,
            dead: tally.dead,
            unreachable,
        }
    }

    /// The store in one word.
    pub fn overall(&self) -> Overall {
        let unreachable = self.unreachable.unwrap_or_default();
        let without_tolerance = self.degraded_by_tolerance_left.first().copied().unwrap_or(0);
        let at_risk = (self.beyond_tolerance + without_tolerance).max(unreachable.at_risk);
        let degraded = self.degraded_by_tolerance_left.iter().sum::<u64>().max(unreachable.stripes);
        if self.unrecoverable > 0 {
            Overall::DataLost { stripes: self.unrecoverable }
        } else if at_risk > 0 {
            Overall::AtRisk { stripes: at_risk }
        } else if degraded > 0 || self.unreachable.is_some() {
            Overall::Degraded { stripes: degraded }
        } else if self.verified < self.stripes {
            Overall::Unverified { stripes: self.stripes - self.verified }
        } else {
            Overall::Healthy
        }
    }
}

/// A stripe that lacks chunks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AtRisk {
    /// Its id.
    pub stripe: String,
    /// Its code.
    pub code: String,
    /// How many more losses it survives; negative: it cannot be read now.
    pub tolerance_left: i32,
    /// Chunks lost.
    pub chunks_lost: Vec<u16>,
    /// Sound chunks on disks that do not answer.
    pub chunks_unreachable: u16,
}

/// A disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskStatus {
    /// Its id.
    pub id: String,
    /// Its failure domain.
    pub node: String,
    /// Where it was last seen.
    pub path: String,
    /// What is to be done with it: `active`, `draining`, `lost`.
    pub state: String,
    /// Whether it answers now.
    pub present: bool,
    /// Whether it takes new chunks now.
    pub writable: bool,
    /// Why not, where it does not.
    pub reason: Option<String>,
    /// Seconds until its chunks are rebuilt elsewhere, if it is absent and that has not begun.
    pub rebuild_in_seconds: Option<u64>,
    /// Bytes of its medium.
    pub total_bytes: u64,
    /// Bytes it can still take.
    pub free_bytes: u64,
    /// Chunks on it.
    pub chunks: u64,
    /// Of these, damaged.
    pub damaged: u64,
    /// Volumes whose logs may have segments on it.
    #[serde(default)]
    pub logs: u64,
    /// Failed reads that a second look did not confirm, since the start.
    pub soft_errors: u64,
    /// How its sectors are, if it is a disk on a device, which mends them.
    #[serde(default)]
    pub sectors: Option<SectorStatus>,
}

/// The sectors of a disk that mends them itself: counts since it was formatted, and what follows from them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SectorStatus {
    /// Sectors read.
    pub read: u64,
    /// Sectors that did not read at once.
    pub soft_failures: u64,
    /// Sectors that failed in any way, and were mended.
    pub mended: u64,
    /// Of these, those that had read, and wrongly.
    pub mismatches_mended: u64,
    /// Sectors that the device had to retry.
    pub retries: u64,
    /// Soft failures that were mended without a retry.
    pub retries_avoided: u64,
    /// Times that a sector was wanted and could not be had.
    pub lost: u64,
    /// Copies of what is not in groups that were mended.
    pub copies_mended: u64,
    /// Parity sectors of a group.
    pub parity: u32,
    /// Parity sectors that a group needs for the chance of a soft failure as measured; none while nothing can be said.
    pub parity_wanted: Option<u32>,
    /// Whether parity keeps losses as rare as was asked for: `enough`, `too_little`, `open` while too little was read to
    /// say, `unseen` where the device retries by itself.
    pub parity_verdict: String,
    /// The chance of a soft failure for which parity was chosen.
    pub soft_stated: f64,
    /// As measured lately.
    pub soft_measured: Option<f64>,
    /// It is hardly less than this,
    pub soft_at_least: Option<f64>,
    /// nor more than this.
    pub soft_at_most: Option<f64>,
    /// Reads that it was measured by.
    pub soft_reads: u64,
    /// Groups that the scrub under way has read.
    pub scrub_groups: u64,
    /// Groups that there were when it began; 0 if none is under way.
    pub scrub_groups_total: u64,
    /// When the last whole scrub ended, milliseconds since 1970.
    pub scrub_ended_unix_ms: Option<u64>,
    /// Sectors that the last whole scrub and the one under way found lost.
    pub scrub_lost: u64,
    /// Groups and pages of the catalog that these could not read.
    #[serde(default)]
    pub scrub_unread: u64,
    /// How its two devices are, if a hard disk and a solid-state drive are its device.
    #[serde(default)]
    pub pair: Option<PairStatus>,
}

/// A hard disk and the solid-state drive in front of it. Counts are since it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PairStatus {
    /// Whether the solid-state drive can be used: `present`, `failed`, `lost`.
    pub ssd: String,
    /// What the hard disk's write buffer is believed to do with the next write: `fast`, `middle`, `due`, `slow`; or why that is not known: `lost`
    /// since a read, `suspended` while there is one, `given up`, `on trial`, `unknown` without a profile.
    pub buffer: String,
    /// Bytes that writers brought.
    pub written_bytes: u64,
    /// Bytes that went to the solid-state drive, with what describes them.
    pub ssd_bytes: u64,
    /// Writes that went to the hard disk's log instead.
    pub redirected_writes: u64,
    /// Their bytes.
    pub redirected_bytes: u64,
    /// Of them, bytes that a sync has copied to the solid-state drive.
    #[serde(default)]
    pub copied_bytes: u64,
    /// Bytes that the solid-state drive was spared: redirected and not copied.
    #[serde(default)]
    pub spared_bytes: u64,
    /// Bytes of padding.
    pub padding_bytes: u64,
    /// Syncs of the hard disk that nobody asked for.
    #[serde(default)]
    pub upkeep_syncs: u64,
    /// Slow stages of the hard disk's write buffer.
    #[serde(default)]
    pub slow_stages: u64,
    /// Redirected writes that met a slow stage which was not foreseen.
    pub surprises: u64,
    /// Bytes brought from the logs to their place.
    pub drained_bytes: u64,
    /// Sectors that only the lost solid-state drive had, and that were not written since.
    pub lost_sectors: u64,
    /// Bytes in use of the solid-state drive's log,
    pub ssd_log_used_bytes: u64,
    /// of these.
    pub ssd_log_bytes: u64,
    /// Bytes in use of the hard disk's log,
    pub hdd_log_used_bytes: u64,
    /// of these.
    pub hdd_log_bytes: u64,
    /// Bytes of both logs that an opening after a crash reads.
    #[serde(default)]
    pub unindexed_bytes: u64,
}

impl From<PairHealth> for PairStatus {
    fn from(health: PairHealth) -> PairStatus {
        PairStatus {
            ssd: health.ssd.word().to_owned(),
            buffer: health.buffer.word().to_owned(),
            written_bytes: health.written_bytes,
            ssd_bytes: health.ssd_bytes,
            redirected_writes: health.redirected_writes,
            redirected_bytes: health.redirected_bytes,
            copied_bytes: health.copied_bytes,
            spared_bytes: health.redirected_bytes.saturating_sub(health.copied_bytes),
            padding_bytes: health.padding_bytes,
            upkeep_syncs: health.upkeep_syncs,
            slow_stages: health.slow_stages,
            surprises: health.surprises,
            drained_bytes: health.drained_bytes,
            lost_sectors: health.lost_sectors,
            ssd_log_used_bytes: health.ssd_log.used_bytes,
            ssd_log_bytes: health.ssd_log.bytes,
            hdd_log_used_bytes: health.hdd_log.used_bytes,
            hdd_log_bytes: health.hdd_log.bytes,
            unindexed_bytes: health.unindexed_bytes,
        }
    }
}

impl From<SectorHealth> for SectorStatus {
    fn from(health: SectorHealth) -> SectorStatus {
        SectorStatus {
            read: health.sectors_read,
            soft_failures: health.soft_failures,
            mended: health.mended,
            mismatches_mended: health.mismatches_mended,
            retries: health.retries,
            retries_avoided: health.retries_avoided,
            lost: health.sectors_lost,
            copies_mended: health.copies_mended,
            parity: health.parity,
            parity_wanted: health.parity_wanted,
            parity_verdict: health.verdict.word().to_owned(),
            soft_stated: health.soft.stated,
            soft_measured: health.soft.seen,
            soft_at_least: health.soft.at_least,
            soft_at_most: health.soft.at_most,
            soft_reads: health.soft.reads,
            scrub_groups: health.scrub.groups,
            scrub_groups_total: health.scrub.groups_total,
            scrub_ended_unix_ms: health.scrub.ended.map(|ended| ended.unix_ms),
            scrub_lost: health.scrub.lost + health.scrub.ended_lost,
            scrub_unread: health.scrub.unread + health.scrub.ended_unread,
            pair: health.pair.map(PairStatus::from),
        }
    }
}

/// What rebuilding cost, by code; stripes below 256 KiB apart, since whole sectors weigh more there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RepairTotals {
    /// The code.
    pub code: String,
    /// Whether these are stripes of at least 256 KiB of object data.
    pub large: bool,
    /// Stripes rebuilt.
    pub stripes: u64,
    /// Chunks rebuilt.
    pub chunks: u64,
    /// Bytes of these chunks.
    pub bytes_rebuilt: u64,
    /// Bytes read from other chunks for them.
    pub bytes_read: u64,
    /// Bytes read back of the new chunks.
    pub bytes_verified: u64,
}

impl RepairTotals {
    /// Bytes read for each byte that was lost; none before anything was rebuilt.
    pub fn read_per_lost_byte(&self) -> Option<f64> {
        (self.bytes_rebuilt > 0).then(|| self.bytes_read as f64 / self.bytes_rebuilt as f64)
    }
}

/// A bucket whose redundancy follows heat, as it was when it was last looked at.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PolicyStatus {
    /// Its name.
    pub bucket: String,
    /// Its policy.
    pub policy: String,
    /// The policy's name, if it has one.
    pub preset: Option<String>,
    /// Bytes of its objects.
    pub data_bytes: u64,
    /// Bytes of chunks of fresh stripes: replicas of what is new.
    #[serde(default)]
    pub fresh_bytes: u64,
    /// Of fast ones.
    pub fast_bytes: u64,
    /// Of compact ones.
    pub compact_bytes: u64,
    /// Of all others: small objects, and what was written before the policy.
    pub other_bytes: u64,
    /// Of fresh, fast and compact ones that are new: for the bound they are merged last.
    #[serde(default)]
    pub young_bytes: u64,
    /// Of those that wait for repair, another attempt or the policy of another bucket.
    #[serde(default)]
    pub waiting_bytes: u64,
    /// Bytes of chunks for a hundred bytes of objects.
    pub percent: f64,
    /// The bound on that.
    pub percent_max: u32,
    /// Conversions that are planned.
    pub conversions_left: u64,
    /// These numbers are of the whole bucket, of a large one each part as it was looked at last; otherwise of those parts that were
    /// looked at yet.
    pub whole: bool,
}

/// What conversions did since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ConversionTotals {
    /// Replicated stripes made fast.
    #[serde(default)]
    pub encoded: u64,
    /// Compact stripes made.
    pub merged: u64,
    /// Compact stripes made fast.
    pub split: u64,
    /// Bytes of chunks given back, less those taken.
    pub saved_bytes: i64,
    /// Bytes read and written for it.
    pub moved_bytes: u64,
    /// Of these, those of replicas made fast.
    #[serde(default)]
    pub encoding: ConversionBytes,
    /// Those of stripes made compact.
    #[serde(default)]
    pub merging: ConversionBytes,
    /// Those of stripes made fast again.
    #[serde(default)]
    pub splitting: ConversionBytes,
}

/// What conversions of one kind moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ConversionBytes {
    /// Bytes of objects in what was converted.
    pub data_bytes: u64,
    /// Bytes read of it.
    pub read_bytes: u64,
    /// Bytes of new chunks.
    pub written_bytes: u64,
    /// Bytes read back to verify them.
    pub verified_bytes: u64,
}

impl ConversionBytes {
    /// Adds others to these.
    pub fn add(&mut self, other: ConversionBytes) {
        self.data_bytes += other.data_bytes;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.verified_bytes += other.verified_bytes;
    }

    /// Bytes read and written, what was read back included.
    pub fn moved_bytes(&self) -> u64 {
        self.read_bytes + self.written_bytes + self.verified_bytes
    }
}

/// A scrub of everything that somebody asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ScrubReport {
    /// It is done.
    pub finished: bool,
    /// When it began, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// When it ended.
    pub finished_unix_ms: Option<u64>,
    /// Stripes to read when it began.
    pub stripes_total: u64,
    /// Stripes read.
    pub stripes: u64,
    /// Of these, whole and right.
    pub verified: u64,
    /// Chunks found lost or damaged and handed to repair.
    pub chunks_damaged: u64,
    /// Stripes of which a chunk could not be read now, so nothing is said of it.
    pub unknown: u64,
    /// Bytes read.
    pub bytes_read: u64,
}

/// The whole store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// In one word.
    pub overall: Overall,
    /// In one sentence.
    pub summary: String,
    /// When this was looked at, milliseconds since 1970.
    pub unix_ms: u64,
    /// Stripes.
    pub stripes: StripeCounts,
    /// The most endangered stripes, worst first; at most 20.
    pub at_risk: Vec<AtRisk>,
    /// Disks in the order they were added.
    pub disks: Vec<DiskStatus>,
    /// Jobs under way.
    pub jobs: Vec<JobReport>,
    /// The last job of each kind that has ended.
    pub finished: Vec<JobReport>,
    /// What stands still, and what to do about it.
    pub waiting: Vec<String>,
    /// What rebuilding cost since the start.
    pub repair: Vec<RepairTotals>,
    /// The last scrub that was asked for.
    pub scrub: Option<ScrubReport>,
    /// Buckets with a policy, by name, as of the last look.
    #[serde(default)]
    pub policies: Vec<PolicyStatus>,
    /// What conversions did since the start.
    #[serde(default)]
    pub conversions: ConversionTotals,
    /// Requests of clients under way.
    pub requests: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts() -> StripeCounts {
        StripeCounts { stripes: 10, verified: 10, ..StripeCounts::default() }
    }

    #[test]
    fn healthy_needs_every_stripe_verified_and_every_disk_answering() {
        assert_eq!(counts().overall(), Overall::Healthy);
        assert_eq!(StripeCounts::default().overall(), Overall::Healthy);
        let unverified = StripeCounts { verified: 9, ..counts() };
        assert_eq!(unverified.overall(), Overall::Unverified { stripes: 1 });
        let absent = StripeCounts { unreachable: Some(Unreachable::default()), ..counts() };
        assert_eq!(absent.overall(), Overall::Degraded { stripes: 0 });
    }

    #[test]
    fn the_worst_truth_is_said() {
        let degraded = StripeCounts { degraded_by_tolerance_left: vec![0, 3], verified: 5, ..counts() };
        assert_eq!(degraded.overall(), Overall::Degraded { stripes: 3 });
        let at_risk = StripeCounts { degraded_by_tolerance_left: vec![2, 3], ..degraded };
        assert_eq!(at_risk.overall(), Overall::AtRisk { stripes: 2 });
        let beyond = StripeCounts { beyond_tolerance: 1, ..at_risk.clone() };
        assert_eq!(beyond.overall(), Overall::AtRisk { stripes: 3 });
        let lost = StripeCounts { unrecoverable: 1, ..beyond };
        assert_eq!(lost.overall(), Overall::DataLost { stripes: 1 });
        let silent = Unreachable { stripes: 9, at_risk: 4, unreadable: 1 };
        let silent = StripeCounts { unreachable: Some(silent), ..counts() };
        assert_eq!(silent.overall(), Overall::AtRisk { stripes: 4 });
    }

    #[test]
    fn words_follow_the_order_of_badness() {
        let all = [
            Overall::Healthy,
            Overall::Unverified { stripes: 1 },
            Overall::Degraded { stripes: 1 },
            Overall::AtRisk { stripes: 1 },
            Overall::DataLost { stripes: 1 },
        ];
        assert_eq!(all.map(|overall| overall.word()), Overall::WORDS);
        assert!(all.is_sorted());
    }
}
