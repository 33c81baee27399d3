//! What parity costs in space: every file ends with a group of its own, so small files cost more.
//!
//! Invariants:
//! 1. A file without bytes costs nothing; any other at least the parity of one group, but for those that a disk keeps in its
//!    catalog.

use crate::{GroupShape, SECTOR_BYTES};

/// Files by size: shares of all bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeMix {
    /// A name to print.
    pub name: &'static str,
    /// The shares sum to 1.
    pub ranges: Vec<SizeRange>,
}

/// Some of the bytes, in files whose sizes spread evenly over the logarithm between two sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeRange {
    /// Share of all bytes.
    pub share: f64,
    /// Bytes of the smallest file.
    pub least_bytes: f64,
    /// Bytes of the largest file.
    pub most_bytes: f64,
}

/// What a disk keeps of these files, given by their sizes in bytes, beyond their data, for each byte of it: parity, checksums
/// of all sectors, and the copies of what lies in the catalog. Data is whole sectors, but of files that lie in the catalog bytes: their
/// records count as [`tiny_record_bytes`]. Names, and attributes of other files, are left out.
// Source: [lec §3.1]
pub fn tree_overhead(file_bytes: &[u64], group: GroupShape, copies: u32) -> f64 {
    let sector = f64::from(SECTOR_BYTES);
    let (mut data, mut kept) = (0.0, 0.0);
    for &bytes in file_bytes {
        if bytes <= TINY_BYTES_MAX {
            data += bytes as f64;
            kept += if bytes > 0 { tiny_record_bytes(bytes) * f64::from(copies) } else { 0.0 };
        } else {
            let (sectors, summed_in_catalog) = (bytes.div_ceil(SECTOR_BYTES.into()), cut(bytes, group).single_sectors);
            data += sectors as f64 * sector;
            kept += file_sectors(bytes, group) as f64 * sector;
            kept += (summed_in_catalog * SUM_BYTES * u64::from(copies)) as f64;
        }
    }
    if data == 0.0 { 0.0 } else { kept / data - 1.0 }
}

/// Bytes of the catalog's pages, each copy for itself, that the record of a file of so many bytes takes, with what it leaves of a page: of
/// records as long as this one, made one after the other. Those of a disk where files come and go leave up to half of each page.
///
/// # Panics
/// If such a file does not lie in the catalog.
pub fn tiny_record_bytes(bytes: u64) -> f64 {
    assert!(bytes <= TINY_BYTES_MAX, "a file of {bytes} bytes lies in groups");
    f64::from(SECTOR_BYTES) / (PAGE_ROW_BYTES / (RECORD_BYTES + bytes)) as f64
}

/// Sectors of the device that a file of so many bytes takes that was written at once: data, parity and sums sectors; none where
/// it lies in the catalog.
pub fn file_sectors(bytes: u64, group: GroupShape) -> u64 {
    let sectors = bytes.div_ceil(SECTOR_BYTES.into());
    match bytes <= TINY_BYTES_MAX {
        true => 0,
        false => sectors + parity_sectors(sectors, group) + cut(bytes, group).sums_sectors,
    }
}

/// How a file is cut into runs.
struct Cut {
    /// Of bulk runs.
    sums_sectors: u64,
    /// Data sectors whose checksums are in the catalog.
    single_sectors: u64,
}

fn cut(bytes: u64, group: GroupShape) -> Cut {
    let (sectors, data) = (bytes.div_ceil(SECTOR_BYTES.into()), u64::from(group.data));
    let run_max = (BULK_SECTORS_MAX / data).max(BULK_GROUPS_MIN) * data;
    let (runs, rest) = (sectors / run_max, sectors % run_max / data * data);
    let rest = if rest < BULK_GROUPS_MIN * data { 0 } else { rest };
    Cut {
        sums_sectors: runs * run_max.div_ceil(SUMS_PER_SECTOR) + rest.div_ceil(SUMS_PER_SECTOR),
        single_sectors: sectors - runs * run_max - rest,
    }
}

/// Parity bytes for each data byte of a mix of files.
// Source: [lec §3.1]
pub fn mix_overhead(mix: &SizeMix, group: GroupShape) -> f64 {
    let of_range = |range: &SizeRange| {
        let (low, high) = (range.least_bytes.ln(), range.most_bytes.ln());
        let at = |step: u32| (low + (high - low) * (f64::from(step) + 0.5) / f64::from(STEPS)).exp();
        let of_file = |bytes: f64| {
            let sectors = (bytes / f64::from(SECTOR_BYTES)).ceil();
            parity_sectors(sectors as u64, group) as f64 / sectors
        };
        range.share * (0..STEPS).map(|step| of_file(at(step))).sum::<f64>() / f64::from(STEPS)
    };
    mix.ranges.iter().map(of_range).sum()
}

pub(crate) fn parity_sectors(sectors: u64, group: GroupShape) -> u64 {
    sectors.div_ceil(group.data.into()) * u64::from(group.parity)
}

/// Sizes looked at in a range.
const STEPS: u32 = 2000;
/// A file of so many bytes lies in the catalog. This and the next four are those of docs/formats/disk.md and of crate `files`.
const TINY_BYTES_MAX: u64 = 2048;
/// Bytes of a page of the catalog that rows have, and those of a record without content: fields, key, and what the database keeps of a row.
const PAGE_ROW_BYTES: u64 = 4092;
const RECORD_BYTES: u64 = 96 + 8 + 8;
/// Checksums of a sums sector.
const SUMS_PER_SECTOR: u64 = 1020;
/// Bytes of a checksum.
const SUM_BYTES: u64 = 4;
/// Groups of a bulk run at least.
const BULK_GROUPS_MIN: u64 = 4;
/// Data sectors of a bulk run at most, if that is enough groups.
const BULK_SECTORS_MAX: u64 = 13_250;

#[cfg(test)]
mod tests {
    use super::{SizeMix, SizeRange, file_sectors, mix_overhead, tiny_record_bytes, tree_overhead};
    use crate::GroupShape;

    const GROUP: GroupShape = GroupShape { data: 1014, parity: 9 };

    // Test of: [lec §3.1]
    #[test]
    fn small_files_pay_for_a_whole_group_and_tiny_ones_for_copies() {
        const SECTOR: u64 = 4096;
        assert_eq!(tree_overhead(&[], GROUP, 2), 0.0);
        assert_eq!(tree_overhead(&[0, 0], GROUP, 2), 0.0);
        // 36 records of 113 bytes fit into a page, and one of 2160.
        let tiny = 2.0 * (4096.0 / 36.0 + 4096.0) / 2049.0 - 1.0;
        assert!((tree_overhead(&[1, 2048, 0], GROUP, 2) - tiny).abs() < 1e-12);
        assert_eq!((tiny_record_bytes(1934), tiny_record_bytes(1935), file_sectors(2048, GROUP)), (2048.0, 4096.0, 0));
        assert_eq!(file_sectors(2049, GROUP), 1 + 9);
        assert_eq!(tree_overhead(&[2049], GROUP, 3), 9.0 + 12.0 / 4096.0);
        // 1014 sums of four bytes, twice; a file of one sector more has a group more.
        let whole = (9.0 * 4096.0 + 8.0 * 1014.0) / (1014.0 * 4096.0);
        assert!((tree_overhead(&[SECTOR * 1014], GROUP, 2) - whole).abs() < 1e-12);
        assert_eq!(file_sectors(SECTOR * 1014 + 1, GROUP), 1015 + 18);
    }

    #[test]
    fn large_files_have_sums_sectors() {
        const SECTOR: u64 = 4096;
        let shape = GroupShape { data: 250, parity: 5 };
        assert_eq!(
            file_sectors(999 * SECTOR, shape),
            999 + 4 * 5,
            "three groups and a part, with their sums in the catalog"
        );
        assert_eq!(file_sectors(1000 * SECTOR, shape), 1000 + 4 * 5 + 1);
        assert_eq!(file_sectors(1025 * SECTOR, shape), 1025 + 5 * 5 + 1, "the rest is a group of its own");
        // The most of a run are 53 groups: 13 sums sectors.
        assert_eq!(file_sectors((13_250 + 250) * SECTOR, shape), 13_500 + 54 * 5 + 13);
        assert_eq!(file_sectors((13_250 + 1250) * SECTOR, shape), 14_500 + 58 * 5 + 13 + 2);
        let long = tree_overhead(&[10 << 30], shape, 2);
        assert!((0.0209..0.0210).contains(&long), "{long}");
    }

    #[test]
    fn a_mix_is_between_its_smallest_and_its_largest_files() {
        let range = |share, least_bytes, most_bytes| SizeRange { share, least_bytes, most_bytes };
        let large = SizeMix { name: "large", ranges: vec![range(1.0, 1e8, 1e9)] };
        let overhead = mix_overhead(&large, GROUP);
        assert!((9.0 / 1014.0..0.0095).contains(&overhead), "{overhead}");
        let mixed = SizeMix { name: "mixed", ranges: vec![range(0.5, 1e8, 1e9), range(0.5, 1e5, 1e6)] };
        let small = SizeMix { name: "small", ranges: vec![range(1.0, 1e5, 1e6)] };
        let middle = (overhead + mix_overhead(&small, GROUP)) / 2.0;
        assert!((mix_overhead(&mixed, GROUP) - middle).abs() < 1e-12);
    }
}
