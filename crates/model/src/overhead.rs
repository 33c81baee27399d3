//! What parity costs in space: every file ends with a group of its own, so small files cost more.
//!
//! Invariants:
//! 1. A file without bytes costs nothing; any other at least the parity of one group.

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

/// Parity sectors for each data sector of these files, given by their sizes in bytes.
// Source: [lec §3.1]
pub fn tree_overhead(file_bytes: &[u64], group: GroupShape) -> f64 {
    let sectors = |bytes: &u64| bytes.div_ceil(SECTOR_BYTES.into());
    let data: u64 = file_bytes.iter().map(sectors).sum();
    let parity: u64 = file_bytes.iter().map(|bytes| parity_sectors(sectors(bytes), group)).sum();
    if data == 0 { 0.0 } else { parity as f64 / data as f64 }
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

fn parity_sectors(sectors: u64, group: GroupShape) -> u64 {
    sectors.div_ceil(group.data.into()) * u64::from(group.parity)
}

/// Sizes looked at in a range.
const STEPS: u32 = 2000;

#[cfg(test)]
mod tests {
    use super::{SizeMix, SizeRange, mix_overhead, tree_overhead};
    use crate::GroupShape;

    const GROUP: GroupShape = GroupShape { data: 1014, parity: 9 };

    // Test of: [lec §3.1]
    #[test]
    fn small_files_pay_for_a_whole_group() {
        assert_eq!(tree_overhead(&[], GROUP), 0.0);
        assert_eq!(tree_overhead(&[0, 0], GROUP), 0.0);
        assert_eq!(tree_overhead(&[1], GROUP), 9.0);
        assert_eq!(tree_overhead(&[4096 * 1014], GROUP), 9.0 / 1014.0);
        assert_eq!(tree_overhead(&[4096 * 1014 + 1, 4096], GROUP), 27.0 / 1016.0);
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
