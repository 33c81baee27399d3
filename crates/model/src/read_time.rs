//! How long a long read takes: every sector's transfer, and a retry of each sector that fails softly, or with local
//! coding only of those that parity cannot replace.
//!
//! A streaming reader reads the parity inline, decodes a group while the next one is read, and retries just the failed
//! sectors beyond the parity: so a read costs its transfers, the retries, and the decoding of the last group.
//!
//! Where we differ from the paper: its cases overlap (their chances sum to up to 2) and charge a whole group's parity even
//! if the last group is empty; here each outcome counts once. A last group that is whole is decoded like any other last one,
//! which the paper leaves out: a tenth of a point of the gain at 10,000 sectors.
//!
//! Invariants:
//! 1. Without soft failures a coded read takes its transfers only, parity included.

use crate::{
    Distribution, SECTOR_BYTES,
    distribution::{counts, repeat},
};

/// A group: `data` sectors and `parity` sectors; a file's last group may have less data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupShape {
    /// Data sectors, k.
    pub data: u32,
    /// Parity sectors, m.
    pub parity: u32,
}

/// What a drive and a decoder take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadTimes {
    /// Transfer of a sector.
    pub sector_s: f64,
    /// Retry of a sector, until it is read.
    pub retry_s: f64,
    /// Bytes of a group's data that a decoder gets through in a second when one sector is lost; with e lost, 1/e of it.
    pub decode_bytes_per_s: f64,
}

impl ReadTimes {
    /// Decoding `failed` sectors of a group of so many data sectors.
    pub(crate) fn decode_s(&self, failed: u32, data: u32) -> f64 {
        f64::from(data) * f64::from(SECTOR_BYTES) * f64::from(failed) / self.decode_bytes_per_s
    }
}

/// The time of reading `sectors` in a row where each soft failure is retried.
///
/// # Panics
/// If `soft` is no chance.
// Source: [lec §3.2]
pub fn plain_read(sectors: u64, soft: f64, times: ReadTimes) -> Distribution {
    let transfer_s = sectors as f64 * times.sector_s;
    let retries = counts(sectors, soft).into_iter().enumerate();
    Distribution::new(retries.map(|(retries, chance)| (transfer_s + retries as f64 * times.retry_s, chance)).collect())
}

/// The time of reading a file of `sectors` data sectors in groups, decoding instead of retrying where parity suffices.
///
/// # Panics
/// If `soft` is no chance, or the group has no data.
// Source: [lec §3.2]
pub fn coded_read(sectors: u64, group: GroupShape, soft: f64, times: ReadTimes) -> Distribution {
    let GroupShape { data, parity } = group;
    assert!(data > 0, "a group without data");
    let (whole, rest) = (sectors / u64::from(data), (sectors % u64::from(data)) as u32);
    let groups = whole + u64::from(rest > 0);
    let transfer_s = (sectors + groups * u64::from(parity)) as f64 * times.sector_s;
    let beyond_parity = |failed: &[f64]| {
        let (few, many) = failed.split_at(failed.len().min(parity as usize + 1));
        let mut excess = vec![few.iter().sum::<f64>()];
        excess.extend_from_slice(many);
        excess
    };
    let of_whole = beyond_parity(&counts((data + parity).into(), soft));
    let before_last = repeat(&of_whole, if rest > 0 { whole } else { whole.saturating_sub(1) });
    let last = if rest > 0 { rest } else { data };
    let of_last = if sectors == 0 { vec![1.0] } else { counts((last + parity).into(), soft) };
    let mut points = Vec::new();
    for (failed, chance) in (0..).zip(&of_last) {
        let decode_s = times.decode_s(failed.min(parity), last);
        let retries = failed.saturating_sub(parity);
        points.extend(before_last.iter().enumerate().map(|(before, chance_before)| {
            let retries = before as f64 + f64::from(retries);
            (transfer_s + decode_s + retries * times.retry_s, chance * chance_before)
        }));
    }
    Distribution::new(points)
}

#[cfg(test)]
mod tests {
    use super::{GroupShape, ReadTimes, coded_read, plain_read};

    fn times(retry_s: f64, decode_bytes_per_s: f64) -> ReadTimes {
        ReadTimes { sector_s: 33e-6, retry_s, decode_bytes_per_s }
    }

    /// Per cent by which local coding lowers the 99th percentile.
    fn gain(sectors: u64, soft: f64, retry_s: f64, data: u32, parity: u32) -> f64 {
        let times = times(retry_s, if data > 255 { 2e9 } else { 4e9 });
        let plain = plain_read(sectors, soft, times).quantile(0.99);
        100.0 * (1.0 - coded_read(sectors, GroupShape { data, parity }, soft, times).quantile(0.99) / plain)
    }

    // Test of: [lec §3.2]
    #[test]
    fn tails_are_cut_as_published() {
        // The figures of an independent implementation; the paper's own are 50.1, 67.2, 78.6, 88.1, 76.2, 86.6.
        for (sectors, soft, retry_s, short, long) in [
            (10_000, 1e-3, 0.02, 51.2, 50.7),
            (10_000, 1e-3, 0.04, 67.9, 67.6),
            (10_000, 5e-3, 0.02, 79.5, 78.6),
            (10_000, 5e-3, 0.04, 88.6, 88.1),
            (100_000, 5e-3, 0.02, 76.2, 76.5),
            (100_000, 5e-3, 0.04, 86.5, 86.7),
        ] {
            let [(k, m), (wide_k, wide_m)] = if soft < 2e-3 { [(250, 5), (1014, 9)] } else { [(246, 9), (1004, 19)] };
            let (a, b) = (gain(sectors, soft, retry_s, k, m), gain(sectors, soft, retry_s, wide_k, wide_m));
            assert!((a - short).abs() < 0.1 && (b - long).abs() < 0.1, "{sectors} {soft} {retry_s}: {a} {b}");
        }
        let plain = plain_read(10_000, 1e-3, times(0.02, 4e9));
        assert!((plain.quantile(0.99) - 0.690).abs() < 1e-9);
    }

    #[test]
    fn every_outcome_counts_once() {
        let times = times(0.02, 4e9);
        for sectors in [0, 1, 249, 250, 251, 500, 10_000] {
            let group = GroupShape { data: 250, parity: 5 };
            let clean = coded_read(sectors, group, 0.0, times);
            let parity = sectors.div_ceil(250) * 5;
            let transfer_s = (sectors + parity) as f64 * 33e-6;
            assert!((clean.quantile(0.99) - transfer_s).abs() < 1e-12 && (clean.mean() - transfer_s).abs() < 1e-12);
            // All chances sum to 1: the mean of a constant is that constant.
            let flat = super::ReadTimes { retry_s: 0.0, decode_bytes_per_s: f64::INFINITY, ..times };
            assert!((coded_read(sectors, group, 1e-2, flat).mean() - transfer_s).abs() < 1e-11 * (1.0 + transfer_s));
        }
    }
}
