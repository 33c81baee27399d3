//! What the operator decided about volumes, checked; and what merging and an open volume report.

use std::time::Duration;

use claystone_chunk::DiskId;
use claystone_meta::Redundancy;

use crate::reserve_paid_by;

/// The most that a reserve comes to by `reserve_percent`: what is in it is read again when a volume is opened, and has a place in memory.
pub const RESERVE_BYTES_MAX: u64 = 4 << 30;

/// Settings of an open volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of log that a volume may take on each disk that keeps it: what waits to be merged, and what merging it writes
    /// there first.
    pub reserve_bytes: u64,
    /// The reserve is what so many percent of the volume make up for, coded instead of mirrored ([`reserve_paid_by`]), where
    /// that is more than `reserve_bytes`, up to [`RESERVE_BYTES_MAX`]. 0: it is never more.
    pub reserve_percent: u64,
    /// A volume that is shorter than `reserve_bytes` has as much reserve as it is long, and two segments at least.
    pub is_reserve_capped: bool,
    /// Bytes of each segment of the log.
    pub segment_bytes: u64,
    /// Merging begins when this share of the reserve is used, in percent.
    pub merge_from_percent: u64,
    /// A disk that does not answer for so long has failed.
    pub timeout: Duration,
    /// A disk that takes so long longer than others with what all of them were asked for the log is left out of it for a while.
    pub late_after: Duration,
    /// Without a write for this long, all that waits is merged.
    pub merge_when_idle: Duration,
    /// A write counts half as much after this, where stripes get the form that fits how much they are written.
    pub heat_half_life: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            reserve_bytes: 1 << 30,
            reserve_percent: 0,
            is_reserve_capped: false,
            segment_bytes: 64 << 20,
            merge_from_percent: 50,
            timeout: Duration::from_secs(30),
            late_after: Duration::from_secs(1),
            merge_when_idle: Duration::from_secs(30),
            heat_half_life: Duration::from_secs(600),
        }
    }
}

impl Settings {
    /// The defaults with a reserve of so many bytes, of which a segment takes half at most.
    pub fn with_reserve(reserve_bytes: u64) -> Settings {
        let settings = Settings::default();
        Settings { reserve_bytes, segment_bytes: settings.segment_bytes.min(reserve_bytes / 2), ..settings }
    }

    /// Those of a volume that is as long as this.
    pub(crate) fn of_volume(&self, redundancy: &Redundancy, bytes: u64) -> Settings {
        let paid_bytes = reserve_paid_by(redundancy, self.reserve_percent, bytes).min(RESERVE_BYTES_MAX);
        // No more than all of its pages ever wait; what merging them writes first only makes it merge a little earlier.
        let cap_bytes = if self.is_reserve_capped { bytes.max(2 * self.segment_bytes) } else { u64::MAX };
        Settings { reserve_bytes: self.reserve_bytes.min(cap_bytes).max(paid_bytes), ..self.clone() }
    }

    /// Segments that the reserve holds, at least two: one is appended to while another ends.
    pub fn segments_max(&self) -> u64 {
        (self.reserve_bytes / self.segment_bytes).max(2)
    }
}

/// What a merge did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MergeReport {
    /// Pages that are in their stripes now.
    pub pages: u64,
    /// Stripes patched.
    pub stripes: u64,
    /// Stripes written for the first time.
    pub stripes_begun: u64,
    /// Stripes written anew because a snapshot or a clone has them as they were.
    pub stripes_copied: u64,
    /// Stripes given back because all of them is zeros.
    pub stripes_dropped: u64,
    /// Pages that could not be merged and were appended to the log again, so that its oldest segment ends.
    pub pages_carried: u64,
    /// Stripes that could not be merged, or not all of their diffs, because too much of them is lost.
    pub stripes_lost: u64,
    /// Stripes that somebody else had.
    pub stripes_held: u64,
    /// Rows whose parity was made anew: all parity chunks of a row are one update.
    pub parity_updates: u64,
    /// Sectors of chunks read for it.
    pub sectors_read: u64,
    /// Sectors of chunks written.
    pub sectors_written: u64,
}

impl MergeReport {
    /// Adds another's counts.
    pub fn add(&mut self, other: &MergeReport) {
        self.pages += other.pages;
        self.stripes += other.stripes;
        self.stripes_begun += other.stripes_begun;
        self.stripes_copied += other.stripes_copied;
        self.stripes_dropped += other.stripes_dropped;
        self.pages_carried += other.pages_carried;
        self.stripes_lost += other.stripes_lost;
        self.stripes_held += other.stripes_held;
        self.parity_updates += other.parity_updates;
        self.sectors_read += other.sectors_read;
        self.sectors_written += other.sectors_written;
    }
}

/// What a round of switching data chunks from one form to the other did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SwitchReport {
    /// Data chunks that are coded now, and were not, or had a code of before.
    pub coded: u64,
    /// Data chunks that are mirrored now, and were not, or had a code of before.
    pub mirrored: u64,
    /// Stripes that were not as they were planned on.
    pub changed: u64,
    /// Stripes that could not be switched and stay as they are for a while.
    pub refused: u64,
    /// Bytes of chunks read, and read back.
    pub bytes_read: u64,
    /// Bytes of chunks written.
    pub bytes_written: u64,
}

impl SwitchReport {
    /// Adds another's counts.
    pub fn add(&mut self, other: &SwitchReport) {
        self.coded += other.coded;
        self.mirrored += other.mirrored;
        self.changed += other.changed;
        self.refused += other.refused;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
    }
}

/// Data chunks of one form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FormTally {
    /// How many.
    pub chunks: u64,
    /// Bytes that they take with their copies or their parity.
    pub bytes: u64,
}

impl FormTally {
    /// So many more.
    pub fn add(&mut self, chunks: u64, bytes: u64) {
        self.chunks += chunks;
        self.bytes += bytes;
    }
}

/// How an open volume is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeStatus {
    /// Its length.
    pub bytes: u64,
    /// Stripes that it has: what was never merged, or is all zeros, has none.
    pub stripes: u64,
    /// What its stripes get.
    pub redundancy: Redundancy,
    /// Bytes of one stripe, without its parity.
    pub stripe_bytes: u64,
    /// Data chunks that are mirrored.
    pub mirrored: FormTally,
    /// Those that are coded; in a volume of one code all that have it.
    pub coded: FormTally,
    /// Those of stripes with a code of before the redundancy was set.
    pub others: FormTally,
    /// What was given another form since it was opened.
    pub switched: SwitchReport,
    /// Bytes of its log, on each disk that keeps all of it.
    pub log_bytes: u64,
    /// The disks that keep its log.
    pub log_disks: Vec<DiskId>,
    /// On how many disks that take writes each of its segments is, at least.
    pub log_copies: usize,
    /// On how many each is to be: fewer are there when disks are absent or failed, until others have copies.
    pub log_copies_wanted: usize,
    /// Bytes that the log may take on each of them.
    pub reserve_bytes: u64,
    /// The share of the reserve that is used, in percent.
    pub used_percent: u64,
    /// Pages with a diff: they wait to be merged.
    pub diff_pages: u64,
    /// Stripes that these pages are in, or will be.
    pub diff_stripes: u64,
    /// Who has the volume, beside whoever opened it for them.
    pub users: usize,
    /// Rounds of merging since it was opened.
    pub merges: u64,
    /// What they did.
    pub merged: MergeReport,
    /// Why it takes nothing more, if it does not.
    pub failure: Option<String>,
}

impl VolumeStatus {
    /// Bytes of all chunks of all stripes.
    pub fn chunks_bytes(&self) -> u64 {
        self.mirrored.bytes + self.coded.bytes + self.others.bytes
    }
}
