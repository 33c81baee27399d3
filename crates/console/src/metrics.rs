//! Numbers for Prometheus, one registry per node.
//!
//! Invariants:
//! 1. Labels come from bounded sets: operations, status codes, disks, volumes, codes, states. No bucket, key or user.
//! 2. Everything but requests is taken from one [`Status`] and one look at volumes at the moment of the scrape.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use claystone_keeper::{ConversionTotals, Overall, PairStatus, PolicyStatus, SectorStatus, Status};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::api::{Volume, VolumeUse};

/// The node's metrics. Cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    requests: Family<RequestLabels, Counter>,
    seconds: Family<OperationLabels, Histogram, fn() -> Histogram>,
    bytes: Family<BytesLabels, Counter>,
    state: Gauges,
}

#[derive(Clone, Default)]
struct Gauges {
    overall: Family<StateLabels, Gauge>,
    stripes: Family<StateLabels, Gauge>,
    tolerance_left: Family<LeftLabels, Gauge>,
    data_bytes: Gauge,
    chunks_lost: Gauge,
    disk_total_bytes: Family<DiskLabels, Gauge>,
    disk_free_bytes: Family<DiskLabels, Gauge>,
    disk_present: Family<DiskLabels, Gauge>,
    disk_writable: Family<DiskLabels, Gauge>,
    disk_chunks: Family<DiskLabels, Gauge>,
    disk_damaged: Family<DiskLabels, Gauge>,
    disk_soft_errors: Family<DiskLabels, Counter>,
    sectors: Sectors,
    volumes: VolumeGauges,
    job_done: Family<JobLabels, Gauge>,
    job_left: Family<JobLabels, Gauge>,
    job_bytes: Family<JobLabels, Gauge>,
    job_eta_seconds: Family<JobLabels, Gauge>,
    repair_chunks: Family<RepairLabels, Counter>,
    repair_rebuilt: Family<RepairLabels, Counter>,
    repair_read: Family<RepairLabels, Counter>,
    policies: Policies,
    requests_now: Gauge,
    memory_bytes: Gauge,
}

/// Of buckets whose redundancy follows heat, all together.
#[derive(Clone, Default)]
struct Policies {
    buckets: Gauge,
    partial: Gauge,
    data_bytes: Gauge,
    bytes: Family<StateLabels, Gauge>,
    bytes_max: Gauge,
    left: Gauge,
    conversions: Family<StateLabels, Counter>,
    saved_bytes: Gauge,
    moved_bytes: Counter,
}

/// Of disks that mend their own sectors.
#[derive(Clone, Default)]
struct Sectors {
    counts: [Family<DiskLabels, Counter>; SECTOR_COUNTS.len()],
    numbers: [Family<DiskLabels, Gauge>; SECTOR_NUMBERS.len()],
    chances: [Family<DiskLabels, Gauge<f64, AtomicU64>>; SECTOR_CHANCES.len()],
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    operation: &'static str,
    status: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OperationLabels {
    operation: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct BytesLabels {
    operation: &'static str,
    direction: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct LeftLabels {
    left: u64,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DiskLabels {
    disk: String,
    path: String,
    state: String,
}

#[derive(Clone, Default)]
struct VolumeGauges {
    bytes: Family<VolumeLabels, Gauge>,
    refused: Family<VolumeLabels, Gauge>,
    snapshots: Family<VolumeLabels, Gauge>,
    numbers: [Family<VolumeLabels, Gauge>; VOLUME_NUMBERS.len()],
    counts: [Family<VolumeLabels, Counter>; VOLUME_COUNTS.len()],
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct VolumeLabels {
    volume: String,
    code: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct JobLabels {
    job: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RepairLabels {
    code: String,
    size: &'static str,
}

impl Metrics {
    /// Metrics of a program of this version, all at zero.
    pub fn new(version: &str) -> Metrics {
        let mut registry = Registry::with_prefix("claystone");
        let metrics = Metrics {
            registry: Arc::default(),
            requests: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(LATENCY_SECONDS)),
            bytes: Family::default(),
            state: Gauges::default(),
        };
        registry.register("build", "The program", Info::new([("version", version.to_owned())]));
        registry.register("requests", "S3 requests by operation and status", metrics.requests.clone());
        registry.register("request_seconds", "Time to the last byte of the response", metrics.seconds.clone());
        registry.register("request_bytes", "Body bytes of requests (in) and responses (out)", metrics.bytes.clone());
        metrics.state.register(&mut registry);
        Metrics { registry: Arc::new(Mutex::new(registry)), ..metrics }
    }

    /// Counts a request that has ended. The arguments are those of the S3 crate's observer.
    pub fn request(&self, operation: &'static str, status: u16, elapsed: Duration, bytes_in: u64, bytes_out: u64) {
        self.requests.get_or_create(&RequestLabels { operation, status }).inc();
        self.seconds.get_or_create(&OperationLabels { operation }).observe(elapsed.as_secs_f64());
        for (direction, bytes) in [("in", bytes_in), ("out", bytes_out)] {
            self.bytes.get_or_create(&BytesLabels { operation, direction }).inc_by(bytes);
        }
    }

    /// The text of a scrape. `memory_bytes` is the program's resident memory, where that is known.
    pub(crate) fn scrape(&self, status: &Status, volumes: &[Volume], memory_bytes: Option<u64>) -> String {
        // One scrape at a time: the gauges are cleared and set anew.
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        self.state.set(status, memory_bytes);
        self.state.volumes.set(volumes);
        let mut text = String::new();
        encode(&mut text, &registry).expect("writing to a string cannot fail");
        text
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

impl Gauges {
    fn register(&self, registry: &mut Registry) {
        registry.register("overall", "1 for the state the store is in", self.overall.clone());
        registry.register("stripes", "Stripes by what is known of them", self.stripes.clone());
        let left = "Degraded stripes by the number of further losses they survive";
        registry.register("stripes_degraded", left, self.tolerance_left.clone());
        registry.register("data_bytes", "Object bytes stored", self.data_bytes.clone());
        registry.register("chunks_lost", "Chunks that wait for repair", self.chunks_lost.clone());
        registry.register("disk_total_bytes", "Bytes of the disk", self.disk_total_bytes.clone());
        registry.register("disk_free_bytes", "Bytes it can still take", self.disk_free_bytes.clone());
        registry.register("disk_present", "1 if the disk answers", self.disk_present.clone());
        registry.register("disk_writable", "1 if the disk takes new chunks", self.disk_writable.clone());
        registry.register("disk_chunks", "Chunks on the disk", self.disk_chunks.clone());
        registry.register("disk_damaged_chunks", "Damaged chunks on the disk", self.disk_damaged.clone());
        let soft = "Failed reads that a second look did not confirm";
        registry.register("disk_soft_errors", soft, self.disk_soft_errors.clone());
        self.sectors.register(registry);
        self.volumes.register(registry);
        registry.register("job_done", "Chunks or stripes that the job has done", self.job_done.clone());
        registry.register("job_left", "Chunks or stripes that are left", self.job_left.clone());
        registry.register("job_bytes", "Bytes that the job has read and written", self.job_bytes.clone());
        registry.register("job_eta_seconds", "Time to finish at the present rate", self.job_eta_seconds.clone());
        registry.register("repair_chunks", "Chunks rebuilt", self.repair_chunks.clone());
        registry.register("repair_rebuilt_bytes", "Bytes of chunks rebuilt", self.repair_rebuilt.clone());
        registry.register("repair_read_bytes", "Bytes read to rebuild them", self.repair_read.clone());
        self.policies.register(registry);
        registry.register("requests_now", "Requests under way", self.requests_now.clone());
        registry.register("memory_bytes", "Resident memory of the program", self.memory_bytes.clone());
    }

    fn set(&self, status: &Status, memory_bytes: Option<u64>) {
        for state in Overall::WORDS {
            self.overall.get_or_create(&StateLabels { state }).set(i64::from(state == status.overall.word()));
        }
        let stripes = &status.stripes;
        let degraded: u64 = stripes.degraded_by_tolerance_left.iter().sum();
        for (state, count) in [
            ("all", stripes.stripes),
            ("verified", stripes.verified),
            ("degraded", degraded),
            ("beyond_tolerance", stripes.beyond_tolerance),
            ("unrecoverable", stripes.unrecoverable),
            ("unreachable", stripes.unreachable.map_or(0, |unreachable| unreachable.stripes)),
            ("dead", stripes.dead),
        ] {
            self.stripes.get_or_create(&StateLabels { state }).set(whole(count));
        }
        self.tolerance_left.clear();
        for (left, count) in (0..).zip(&stripes.degraded_by_tolerance_left) {
            self.tolerance_left.get_or_create(&LeftLabels { left }).set(whole(*count));
        }
        self.data_bytes.set(whole(stripes.data_bytes));
        self.chunks_lost.set(whole(stripes.chunks_lost));
        self.set_disks(status);
        self.set_jobs(status);
        self.policies.set(&status.policies, &status.conversions);
        self.requests_now.set(whole(status.requests));
        self.memory_bytes.set(whole(memory_bytes.unwrap_or(0)));
    }

    fn set_disks(&self, status: &Status) {
        let gauges = [
            &self.disk_total_bytes,
            &self.disk_free_bytes,
            &self.disk_present,
            &self.disk_writable,
            &self.disk_chunks,
            &self.disk_damaged,
        ];
        gauges.iter().for_each(|gauge| gauge.clear());
        self.disk_soft_errors.clear();
        self.sectors.clear();
        for disk in &status.disks {
            let labels = DiskLabels { disk: disk.id.clone(), path: disk.path.clone(), state: disk.state.clone() };
            let values = [
                disk.total_bytes,
                disk.free_bytes,
                u64::from(disk.present),
                u64::from(disk.writable),
                disk.chunks,
                disk.damaged,
            ];
            for (gauge, value) in gauges.iter().zip(values) {
                gauge.get_or_create(&labels).set(whole(value));
            }
            store(&self.disk_soft_errors.get_or_create(&labels), disk.soft_errors);
            if let Some(sectors) = &disk.sectors {
                self.sectors.set(&labels, sectors);
            }
        }
    }

    fn set_jobs(&self, status: &Status) {
        let gauges = [&self.job_done, &self.job_left, &self.job_bytes, &self.job_eta_seconds];
        gauges.iter().for_each(|gauge| gauge.clear());
        for job in &status.jobs {
            let labels = JobLabels { job: job.kind.name() };
            self.job_done.get_or_create(&labels).set(whole(job.done));
            self.job_left.get_or_create(&labels).set(whole(job.left));
            self.job_bytes.get_or_create(&labels).set(whole(job.bytes));
            // Without a rate there is no sample rather than a wrong one.
            if let Some(eta) = job.eta_seconds {
                self.job_eta_seconds.get_or_create(&labels).set(whole(eta));
            }
        }
        for totals in &status.repair {
            let size = if totals.large { "large" } else { "small" };
            let labels = RepairLabels { code: totals.code.clone(), size };
            store(&self.repair_chunks.get_or_create(&labels), totals.chunks);
            store(&self.repair_rebuilt.get_or_create(&labels), totals.bytes_rebuilt);
            store(&self.repair_read.get_or_create(&labels), totals.bytes_read);
        }
    }
}

impl Policies {
    fn register(&self, registry: &mut Registry) {
        registry.register("policy_buckets", "Buckets whose redundancy follows heat", self.buckets.clone());
        let partial = "Of these, those of which not all parts were looked at since the start: they count with what was";
        registry.register("policy_buckets_partial", partial, self.partial.clone());
        registry.register("policy_data_bytes", "Bytes of their objects", self.data_bytes.clone());
        registry.register("policy_chunk_bytes", "Bytes of their chunks by state", self.bytes.clone());
        registry.register(
            "policy_chunk_bytes_max",
            "What their bounds allow for these objects",
            self.bytes_max.clone(),
        );
        registry.register("conversions_left", "Conversions that are planned", self.left.clone());
        registry.register("conversions", "Replicas encoded, compact stripes made, and split", self.conversions.clone());
        let saved = "Bytes of chunks that conversions gave back, less those that they took, since the start";
        registry.register("conversion_saved_bytes", saved, self.saved_bytes.clone());
        registry.register("conversion_moved_bytes", "Bytes read and written to convert", self.moved_bytes.clone());
    }

    fn set(&self, policies: &[PolicyStatus], totals: &ConversionTotals) {
        let sum = |of: fn(&PolicyStatus) -> u64| whole(policies.iter().map(of).sum());
        self.buckets.set(whole(policies.len() as u64));
        self.partial.set(sum(|bucket| u64::from(!bucket.whole)));
        self.data_bytes.set(sum(|bucket| bucket.data_bytes));
        self.bytes_max.set(sum(|bucket| bucket.data_bytes.saturating_mul(bucket.percent_max.into()) / 100));
        self.left.set(sum(|bucket| bucket.conversions_left));
        for (state, bytes) in [
            ("fresh", sum(|bucket| bucket.fresh_bytes)),
            ("fast", sum(|bucket| bucket.fast_bytes)),
            ("compact", sum(|bucket| bucket.compact_bytes)),
            ("other", sum(|bucket| bucket.other_bytes)),
        ] {
            self.bytes.get_or_create(&StateLabels { state }).set(bytes);
        }
        for (state, count) in [("encoded", totals.encoded), ("merged", totals.merged), ("split", totals.split)] {
            store(&self.conversions.get_or_create(&StateLabels { state }), count);
        }
        self.saved_bytes.set(totals.saved_bytes);
        store(&self.moved_bytes, totals.moved_bytes);
    }
}

impl Sectors {
    fn register(&self, registry: &mut Registry) {
        for ((name, help, _), counter) in SECTOR_COUNTS.iter().zip(&self.counts) {
            registry.register(*name, *help, counter.clone());
        }
        for ((name, help, _), gauge) in SECTOR_NUMBERS.iter().zip(&self.numbers) {
            registry.register(*name, *help, gauge.clone());
        }
        for ((name, help, _), gauge) in SECTOR_CHANCES.iter().zip(&self.chances) {
            registry.register(*name, *help, gauge.clone());
        }
    }

    fn clear(&self) {
        self.counts.iter().for_each(|counter| counter.clear());
        self.numbers.iter().for_each(|gauge| gauge.clear());
        self.chances.iter().for_each(|gauge| gauge.clear());
    }

    /// What is not known has no sample.
    fn set(&self, labels: &DiskLabels, sectors: &SectorStatus) {
        for ((_, _, of), counter) in SECTOR_COUNTS.iter().zip(&self.counts) {
            if let Some(value) = of(sectors) {
                store(&counter.get_or_create(labels), value);
            }
        }
        for ((_, _, of), gauge) in SECTOR_NUMBERS.iter().zip(&self.numbers) {
            if let Some(value) = of(sectors) {
                gauge.get_or_create(labels).set(whole(value));
            }
        }
        for ((_, _, of), gauge) in SECTOR_CHANCES.iter().zip(&self.chances) {
            if let Some(value) = of(sectors) {
                gauge.get_or_create(labels).set(value);
            }
        }
    }
}

impl VolumeGauges {
    fn register(&self, registry: &mut Registry) {
        registry.register("volume_bytes", "Length of the volume", self.bytes.clone());
        let refused = "1 if the volume did not open, or takes nothing until it is opened anew";
        registry.register("volume_refused", refused, self.refused.clone());
        registry.register("volume_snapshots", "Snapshots of the volume", self.snapshots.clone());
        for ((name, help, _), gauge) in VOLUME_NUMBERS.iter().zip(&self.numbers) {
            registry.register(*name, *help, gauge.clone());
        }
        for ((name, help, _), counter) in VOLUME_COUNTS.iter().zip(&self.counts) {
            registry.register(*name, *help, counter.clone());
        }
    }

    /// What is known of open volumes only has no sample for others.
    fn set(&self, volumes: &[Volume]) {
        [&self.bytes, &self.refused, &self.snapshots].into_iter().chain(&self.numbers).for_each(|gauge| gauge.clear());
        self.counts.iter().for_each(|counter| counter.clear());
        for volume in volumes {
            let labels = VolumeLabels { volume: volume.name.clone(), code: volume.code.clone() };
            self.bytes.get_or_create(&labels).set(whole(volume.bytes));
            self.refused.get_or_create(&labels).set(i64::from(volume.reason.is_some()));
            self.snapshots.get_or_create(&labels).set(whole(volume.snapshots.len() as u64));
            let Some(open) = &volume.open else { continue };
            for ((_, _, of), gauge) in VOLUME_NUMBERS.iter().zip(&self.numbers) {
                gauge.get_or_create(&labels).set(whole(of(open)));
            }
            for ((_, _, of), counter) in VOLUME_COUNTS.iter().zip(&self.counts) {
                store(&counter.get_or_create(&labels), of(open));
            }
        }
    }
}

/// Sets a counter that somebody else counts.
fn store(counter: &Counter<u64, AtomicU64>, value: u64) {
    counter.inner().store(value, Ordering::Relaxed);
}

/// A gauge's number; what does not fit is the largest there is.
fn whole(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Name, help, and the value.
type Of<T> = (&'static str, &'static str, fn(&SectorStatus) -> T);

/// Name, help, and the value.
type OfVolume = (&'static str, &'static str, fn(&VolumeUse) -> u64);

const VOLUME_NUMBERS: [OfVolume; 10] = [
    ("volume_log_bytes", "Bytes of the volume's log, on each of its disks", |of| of.log_bytes),
    ("volume_log_used_percent", "Share of the log's reserve that is used", |of| of.log_used_percent),
    ("volume_log_copies", "Fewest copies that a segment of the log has now", |of| of.log_copies),
    ("volume_log_copies_wanted", "Copies that each segment of the log is to have", |of| of.log_copies_wanted),
    ("volume_diff_pages", "Pages that wait to be merged", |of| of.diff_pages),
    ("volume_clients", "Connections of clients", |of| of.clients),
    ("volume_mirrored_chunks", "Data chunks that are mirrored, where they may be coded", |of| of.mirrored_chunks),
    ("volume_mirrored_bytes", "Bytes of mirrored data chunks with their copies", |of| of.mirrored_bytes),
    ("volume_coded_bytes", "Bytes of coded data chunks with their parity", |of| of.coded_bytes),
    ("volume_other_bytes", "Bytes of the chunks of stripes that have a former code", |of| of.other_bytes),
];

const VOLUME_COUNTS: [OfVolume; 5] = [
    ("volume_merged_pages", "Pages merged since the volume was opened", |of| of.merged_pages),
    ("volume_parity_updates", "Rows of sectors whose parity was made anew", |of| of.parity_updates),
    ("volume_copied_stripes", "Stripes written anew because a snapshot or a clone has them", |of| of.copied_stripes),
    ("volume_coded_chunks", "Data chunks that were mirrored and became coded", |of| of.coded_switches),
    ("volume_remirrored_chunks", "Data chunks that were coded and became mirrored", |of| of.mirrored_switches),
];

fn pair(of: &SectorStatus, what: fn(&PairStatus) -> u64) -> Option<u64> {
    of.pair.as_ref().map(what)
}

const SECTOR_COUNTS: [Of<Option<u64>>; 17] = [
    ("disk_sectors_read", "Sectors asked of the device", |of| Some(of.read)),
    ("disk_sectors_soft_failures", "Sectors that did not read at once", |of| Some(of.soft_failures)),
    ("disk_sectors_mended", "Sectors that failed in any way and were mended", |of| Some(of.mended)),
    ("disk_sectors_mismatches_mended", "Sectors that read wrong and were mended", |of| Some(of.mismatches_mended)),
    ("disk_sectors_retries", "Sectors that the device had to retry", |of| Some(of.retries)),
    ("disk_sectors_retries_avoided", "Soft failures that were mended without a retry", |of| Some(of.retries_avoided)),
    ("disk_sectors_lost", "Times that a sector was wanted and could not be had", |of| Some(of.lost)),
    ("disk_sectors_copies_mended", "Copies of what is not in groups that were mended", |of| Some(of.copies_mended)),
    ("disk_pair_written_bytes", "Bytes that writers brought to a hard disk and its solid-state drive", |of| {
        pair(of, |pair| pair.written_bytes)
    }),
    ("disk_pair_ssd_bytes", "Bytes of these that went to the solid-state drive", |of| pair(of, |pair| pair.ssd_bytes)),
    ("disk_pair_redirected_bytes", "Bytes of these that the hard disk's write buffer took instead", |of| {
        pair(of, |pair| pair.redirected_bytes)
    }),
    ("disk_pair_padding_bytes", "Bytes written to a hard disk to know its write buffer", |of| {
        pair(of, |pair| pair.padding_bytes)
    }),
    (
        "disk_pair_spared_bytes",
        "Bytes that the solid-state drive was spared: redirected, and copied by no sync",
        |of| pair(of, |pair| pair.spared_bytes),
    ),
    ("disk_pair_predicted", "Redirected writes, which were predicted not to wait", |of| {
        pair(of, |pair| pair.redirected_writes)
    }),
    ("disk_pair_upkeep_syncs", "Syncs of a hard disk that make its write buffer quick", |of| {
        pair(of, |pair| pair.upkeep_syncs)
    }),
    ("disk_pair_slow_stages", "Slow stages of a hard disk's write buffer", |of| pair(of, |pair| pair.slow_stages)),
    ("disk_pair_surprises", "Redirected writes that met a slow stage which was not foreseen", |of| {
        pair(of, |pair| pair.surprises)
    }),
];

const SECTOR_NUMBERS: [Of<Option<u64>>; 15] = [
    ("disk_parity", "Parity sectors of a group", |of| Some(of.parity.into())),
    ("disk_parity_wanted", "Parity sectors that the soft failures as measured need", |of| {
        of.parity_wanted.map(u64::from)
    }),
    ("disk_parity_too_little", "1 if parity does not keep losses as rare as was asked for", |of| {
        Some(u64::from(of.parity_verdict == "too_little"))
    }),
    ("disk_scrub_done_groups", "Groups that the scrub under way has read", |of| Some(of.scrub_groups)),
    ("disk_scrub_all_groups", "Groups that there were when it began", |of| Some(of.scrub_groups_total)),
    ("disk_scrub_lost_sectors", "Sectors that this scrub and the last one found lost", |of| Some(of.scrub_lost)),
    ("disk_scrub_unread", "Groups and pages of the catalog that these scrubs could not read", |of| {
        Some(of.scrub_unread)
    }),
    ("disk_scrub_ended_seconds", "When the last whole scrub ended, Unix time", |of| {
        of.scrub_ended_unix_ms.map(|ended| ended / 1000)
    }),
    ("disk_pair_ssd_lost", "1 if a hard disk goes on without its solid-state drive", |of| {
        pair(of, |pair| u64::from(pair.ssd != "present"))
    }),
    ("disk_pair_lost_sectors", "Sectors that only the lost solid-state drive had", |of| {
        pair(of, |pair| pair.lost_sectors)
    }),
    ("disk_pair_ssd_log_used_bytes", "Bytes in the solid-state drive's log", |of| {
        pair(of, |pair| pair.ssd_log_used_bytes)
    }),
    ("disk_pair_hdd_log_used_bytes", "Bytes in the hard disk's log", |of| pair(of, |pair| pair.hdd_log_used_bytes)),
    ("disk_pair_unindexed_bytes", "Bytes of both logs that an opening after a crash reads", |of| {
        pair(of, |pair| pair.unindexed_bytes)
    }),
    ("disk_pair_buffer_known", "1 if it is predicted what the hard disk's write buffer will do", |of| {
        pair(of, |pair| u64::from(["fast", "middle", "due", "slow"].contains(&&*pair.buffer)))
    }),
    ("disk_pair_buffer_slow", "1 if the hard disk's write buffer would make the next write wait", |of| {
        pair(of, |pair| u64::from(["due", "slow"].contains(&&*pair.buffer)))
    }),
];

const SECTOR_CHANCES: [Of<Option<f64>>; 4] = [
    ("disk_soft_chance_stated", "The chance of a soft failure that parity was chosen for", |of| Some(of.soft_stated)),
    ("disk_soft_chance", "The chance of a soft failure as measured lately", |of| of.soft_measured),
    ("disk_soft_chance_at_least", "It is hardly less than this", |of| of.soft_at_least),
    ("disk_soft_chance_at_most", "It is hardly more than this", |of| of.soft_at_most),
];

const LATENCY_SECONDS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_with_policies_are_told_of_together() {
        let policies = Policies::default();
        let mut registry = Registry::with_prefix("claystone");
        policies.register(&mut registry);
        let one = PolicyStatus {
            data_bytes: 100,
            fresh_bytes: 10,
            fast_bytes: 20,
            compact_bytes: 30,
            other_bytes: 40,
            percent_max: 150,
            conversions_left: 2,
            whole: true,
            ..PolicyStatus::default()
        };
        let other =
            PolicyStatus { data_bytes: 1000, percent_max: 130, conversions_left: 5, whole: false, ..one.clone() };
        let totals = ConversionTotals {
            encoded: 1,
            merged: 2,
            split: 3,
            saved_bytes: -7,
            moved_bytes: 8,
            ..ConversionTotals::default()
        };
        policies.set(&[one, other], &totals);
        let mut text = String::new();
        encode(&mut text, &registry).expect("writing to a string cannot fail");
        for (sample, value) in [
            ("policy_buckets", 2),
            ("policy_buckets_partial", 1),
            ("policy_data_bytes", 1100),
            ("policy_chunk_bytes{state=\"fresh\"}", 20),
            ("policy_chunk_bytes{state=\"fast\"}", 40),
            ("policy_chunk_bytes{state=\"compact\"}", 60),
            ("policy_chunk_bytes{state=\"other\"}", 80),
            // 150 % of the one and 130 % of the other.
            ("policy_chunk_bytes_max", 1450),
            ("conversions_left", 7),
            ("conversions_total{state=\"encoded\"}", 1),
            ("conversions_total{state=\"merged\"}", 2),
            ("conversions_total{state=\"split\"}", 3),
            ("conversion_saved_bytes", -7),
            ("conversion_moved_bytes_total", 8),
        ] {
            let line = format!("claystone_{sample} {value}");
            assert!(text.lines().any(|of| of == line), "{line}: {text}");
        }
    }

    #[test]
    fn what_is_not_known_of_sectors_has_no_sample() {
        let sectors = Sectors::default();
        let mut registry = Registry::with_prefix("claystone");
        sectors.register(&mut registry);
        let labels = DiskLabels { disk: "d".to_owned(), path: "/dev/x".to_owned(), state: "active".to_owned() };
        let mut status = SectorStatus {
            soft_failures: 7,
            parity: 5,
            parity_verdict: "open".to_owned(),
            soft_stated: 0.001,
            scrub_groups: 3,
            scrub_groups_total: 9,
            ..SectorStatus::default()
        };
        let text = |status: &SectorStatus| {
            sectors.clear();
            sectors.set(&labels, status);
            let mut text = String::new();
            encode(&mut text, &registry).expect("writing to a string cannot fail");
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<String>>()
        };
        let has = |lines: &[String], name: &str, value: &str| {
            let line = format!("claystone_{name}{{disk=\"d\",path=\"/dev/x\",state=\"active\"}} {value}");
            assert!(lines.contains(&line), "{line}: {lines:#?}");
        };
        let lines = text(&status);
        has(&lines, "disk_sectors_soft_failures_total", "7");
        has(&lines, "disk_scrub_done_groups", "3");
        has(&lines, "disk_parity_too_little", "0");
        has(&lines, "disk_soft_chance_stated", "0.001");
        assert!(!lines.iter().any(|line| line.contains("disk_soft_chance{") || line.contains("parity_wanted")));
        status.soft_measured = Some(0.02);
        status.parity_wanted = Some(11);
        status.parity_verdict = "too_little".to_owned();
        let lines = text(&status);
        has(&lines, "disk_soft_chance", "0.02");
        has(&lines, "disk_parity_wanted", "11");
        has(&lines, "disk_parity_too_little", "1");
    }
}
