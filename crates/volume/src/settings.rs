//! What the operator decided about volumes, checked; and what merging reports.

use std::time::Duration;

/// Settings of an open volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of log that a volume may take on each disk that keeps it: how much can wait to be merged.
    pub reserve_bytes: u64,
    /// Bytes of each segment of the log.
    pub segment_bytes: u64,
    /// Merging begins when this share of the reserve is used, in percent.
    pub merge_from_percent: u64,
    /// Without a write for this long, all that waits is merged.
    pub merge_when_idle: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            reserve_bytes: 1 << 30,
            segment_bytes: 64 << 20,
            merge_from_percent: 50,
            merge_when_idle: Duration::from_secs(30),
        }
    }
}

impl Settings {
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
    /// Stripes given back because all of them is zeros.
    pub stripes_dropped: u64,
    /// Stripes that could not be merged because too much of them is lost.
    pub stripes_lost: u64,
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
        self.stripes_dropped += other.stripes_dropped;
        self.stripes_lost += other.stripes_lost;
        self.parity_updates += other.parity_updates;
        self.sectors_read += other.sectors_read;
        self.sectors_written += other.sectors_written;
    }
}
