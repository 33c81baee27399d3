//! What is kept to know where data are and which pages wait, as a share of the data.
//!
//! Three parts, in bytes on disks or in memory, over the bytes of data that the volume can hold:
//! 1. `writes` and `merges`: the bytes of the log that are neither pages nor sectors of stripes, on all disks that keep it:
//!    what names pages written, and what merges write.
//! 2. `map`: the map of diffs in memory.
//! 3. `stripes`: the records of stripes and of where their chunks lie.
//!
//! The first two are taken when they were most in a whole trace.
//!
//! Left out: checksums of sectors, which are kept whether parity is delayed or not, and are told apart from these.

use crate::KeptMetadata;

/// Shares of the data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MetadataShare {
    /// In the log, of writes.
    pub writes: f64,
    /// In the log, of merges.
    pub merges: f64,
    /// In memory.
    pub map: f64,
    /// In the database.
    pub stripes: f64,
}

/// Stripes and their records.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StripeRecords {
    /// Bytes of data in a stripe.
    pub stripe_bytes: u64,
    /// Bytes of the records of a stripe.
    pub record_bytes: f64,
}

impl MetadataShare {
    /// The shares of `data_bytes`.
    ///
    /// # Panics
    /// If there are no data.
    // Source: [drc-dpu §metadata capacity consumption]
    pub fn of(kept: &KeptMetadata, records: StripeRecords, data_bytes: u64) -> MetadataShare {
        assert!(data_bytes > 0, "metadata are a share of data");
        let share = |bytes: u64| bytes as f64 / data_bytes as f64;
        MetadataShare {
            writes: share(kept.log_writes),
            merges: share(kept.log_merges),
            map: share(kept.map),
            stripes: records.record_bytes / records.stripe_bytes as f64,
        }
    }

    /// All of it.
    pub fn all(&self) -> f64 {
        self.writes + self.merges + self.map + self.stripes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Test of: [drc-dpu §metadata capacity consumption]
    #[test]
    fn shares_are_of_the_data() {
        let kept = KeptMetadata { log_writes: 300, log_merges: 200, map: 500 };
        let records = StripeRecords { stripe_bytes: 4 << 20, record_bytes: 419.4304 };
        let share = MetadataShare::of(&kept, records, 1_000_000);
        let parts = [(share.writes, 3e-4), (share.merges, 2e-4), (share.map, 5e-4), (share.stripes, 1e-4)];
        for (share, expected) in parts.into_iter().chain([(share.all(), 1.1e-3)]) {
            assert!((share - expected).abs() < 1e-12, "{share} {expected}");
        }
    }
}
