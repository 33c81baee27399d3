//! What a reserve for diffs costs, and what pays for it.
//!
//! Invariants:
//! 1. Shares are of the data: 1 is all of it.

/// Bytes on disks for each byte of data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Space {
    /// While it is replicated: 3 for three copies.
    pub replicated: f64,
    /// When it is coded: 1.5 under `rs:4+2`.
    pub coded: f64,
}

impl Space {
    /// Of a code with `data` data and `parity` parity chunks that tolerates `parity` losses, and of as many copies as
    /// tolerate the same.
    pub fn of(data: u32, parity: u32) -> Space {
        let coded = f64::from(data + parity) / f64::from(data);
        Space { replicated: f64::from(parity + 1), coded }
    }
}

/// The share of `data_bytes` that must be coded instead of replicated, beyond what is coded anyway, so that a reserve for
/// `reserve_bytes` of diffs takes no more space in all: diffs are replicated as data are, R bytes of them take R r_rep, and
/// each byte of data that is coded gives r_rep - r_ec back. Above 1, coding all data does not pay for it.
///
/// For a reserve of 1 % of the data it is 4 % under 2+1 beside two copies (`Space { replicated: 2.0, coded: 1.5 }`), and 2 %
/// under 4+2 beside three.
///
/// # Panics
/// If there are no data, or coding saves nothing.
// Source: [drc-dpu §differential data merge]
pub fn coded_for_reserve(reserve_bytes: u64, data_bytes: u64, space: Space) -> f64 {
    assert!(data_bytes > 0, "a reserve is a share of data");
    assert!(space.coded < space.replicated, "coding must save space: {space:?}");
    let share = reserve_bytes as f64 / data_bytes as f64;
    share * space.replicated / (space.replicated - space.coded)
}

/// Which chunks to code, so that `count` of them are: those that were written least, in the order of `writes`, which has
/// the writes of each. Of chunks that were written alike, the first.
// Source: [drc-dpu §real-world workloads]
pub fn coldest_chunks(writes: &[u64], count: usize) -> Vec<bool> {
    let mut order: Vec<usize> = (0..writes.len()).collect();
    let count = count.min(writes.len());
    if count > 0 && count < order.len() {
        order.select_nth_unstable_by_key(count - 1, |chunk| (writes[*chunk], *chunk));
    }
    let mut coded = vec![false; writes.len()];
    order[..count].iter().for_each(|chunk| coded[*chunk] = true);
    coded
}

#[cfg(test)]
mod tests {
    use super::*;

    // Test of: [drc-dpu §differential data merge]
    #[test]
    fn a_reserve_is_paid_for_by_coding_more() {
        let share = |space| coded_for_reserve(1 << 30, 100 << 30, space);
        assert!((share(Space::of(2, 1)) - 0.04).abs() < 1e-12);
        assert!((share(Space { replicated: 3.0, coded: 1.5 }) - 0.02).abs() < 1e-12);
        assert_eq!(Space::of(4, 2), Space { replicated: 3.0, coded: 1.5 });
        // What is given back is what the reserve takes.
        let (data, reserve) = (1e9, 3e7);
        let space = Space::of(6, 3);
        let more = coded_for_reserve(reserve as u64, data as u64, space);
        assert!((more * data * (space.replicated - space.coded) - reserve * space.replicated).abs() < 1.0);
        assert_eq!(coded_for_reserve(0, 1, space), 0.0);
    }

    // Test of: [drc-dpu §real-world workloads]
    #[test]
    fn chunks_that_were_written_least_are_coded() {
        let writes = [5, 0, 3, 0, 9, 3];
        let coded = |count| {
            let coded = coldest_chunks(&writes, count);
            (0..writes.len()).filter(|chunk| coded[*chunk]).collect::<Vec<_>>()
        };
        assert_eq!(coded(0), [0usize; 0]);
        assert_eq!(coded(1), [1]);
        assert_eq!(coded(3), [1, 2, 3]);
        assert_eq!(coded(5), [0, 1, 2, 3, 5]);
        assert_eq!(coded(99), [0, 1, 2, 3, 4, 5]);
        assert_eq!(coldest_chunks(&[], 3), [false; 0]);
    }
}
