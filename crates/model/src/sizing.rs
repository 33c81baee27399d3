//! How much redundancy reaches a bound: parity sectors of a group, copies of a metadata sector.
//!
//! Invariants:
//! 1. Each answer is the least that meets the bound.

use statrs::distribution::{Binomial, DiscreteCDF};

/// The chance that a group loses a sector: that more than `parity` of its `sectors` fail softly, each with chance `soft`.
///
/// # Panics
/// If `soft` is no chance.
// Source: [lec §3.1]
pub fn loss_chance(sectors: u32, parity: u32, soft: f64) -> f64 {
    let failed = Binomial::new(soft, sectors.into()).expect("a chance is from 0 to 1");
    failed.sf(parity.into())
}

/// The least parity of a group of `sectors` in all whose loss chance is at most `bound`: k is what remains. `None` if
/// not even one data sector remains.
///
/// # Panics
/// If `soft` is no chance.
// Source: [lec §3.1]
pub fn parity_of_group(sectors: u32, soft: f64, bound: f64) -> Option<u32> {
    (0..sectors).find(|parity| loss_chance(sectors, *parity, soft) <= bound)
}

/// The least parity to add to `data` sectors so that the loss chance of the group is at most `bound`.
///
/// # Panics
/// If `soft` is no chance below one half, or `bound` is not above 0: no parity would do.
// Source: [lec §3.1]
pub fn parity_of_data(data: u32, soft: f64, bound: f64) -> u32 {
    assert!((0.0..0.5).contains(&soft) && bound > 0.0, "{soft} and {bound}: no parity reaches this");
    (0..).find(|parity| loss_chance(data + parity, *parity, soft) <= bound).expect("the chance falls with each sector")
}

/// The least number of copies of a metadata sector that all fail softly with a chance of at most `bound`.
///
/// # Panics
/// If `soft` is no chance below 1, or `bound` is not above 0: no number would do.
// Source: [lec §3.1]
pub fn copies(soft: f64, bound: f64) -> u32 {
    assert!((0.0..1.0).contains(&soft) && bound > 0.0, "{soft} and {bound}: no number of copies reaches this");
    // A power that is the bound but for rounding meets it.
    (1..).find(|copies| soft.powi(*copies) <= bound * (1.0 + 1e-12)).expect("the chance falls with each copy") as u32
}

#[cfg(test)]
mod tests {
    use super::{copies, loss_chance, parity_of_data, parity_of_group};

    // Test of: [lec §3.1]
    #[test]
    fn the_published_codes_are_the_least() {
        let published = [
            (255, [(1e-4, 252, 3), (5e-4, 251, 4), (1e-3, 250, 5), (5e-3, 246, 9)]),
            (1023, [(1e-4, 1019, 4), (5e-4, 1016, 7), (1e-3, 1014, 9), (5e-3, 1004, 19)]),
        ];
        for (sectors, codes) in published {
            for (soft, data, parity) in codes {
                assert_eq!(parity_of_group(sectors, soft, 1e-6), Some(parity), "{sectors} at {soft}");
                assert_eq!(data + parity, sectors);
            }
        }
        // Chances of an independent implementation.
        for (sectors, parity, soft, chance) in [
            (255, 5, 1e-3, 2.91e-7),
            (255, 4, 1e-3, 7.02e-6),
            (255, 9, 5e-3, 8.62e-7),
            (1023, 4, 1e-4, 8.50e-8),
            (1023, 19, 5e-3, 4.40e-7),
        ] {
            let ratio = loss_chance(sectors, parity, soft) / chance;
            assert!((0.99..1.01).contains(&ratio), "{sectors}, {parity}, {soft}: {ratio}");
        }
    }

    // Test of: [lec §3.1]
    #[test]
    fn longer_groups_need_less_parity_for_each_data_sector() {
        let parity = |soft| [16, 32, 64, 128, 256, 512, 1024, 2048].map(|data| parity_of_data(data, soft, 1e-8));
        assert_eq!(parity(1e-4), [2, 2, 3, 3, 4, 4, 5, 6]);
        assert_eq!(parity(5e-4), [3, 3, 4, 4, 5, 7, 8, 11]);
        assert_eq!(parity(1e-3), [3, 4, 4, 5, 7, 8, 11, 14]);
        assert_eq!(parity(5e-3), [5, 6, 7, 9, 12, 16, 22, 33]);
    }

    // Test of: [lec §3.1]
    #[test]
    fn copies_of_metadata() {
        let copies_for = |bound| [1e-4, 5e-4, 1e-3, 5e-3, 1e-2].map(|soft| copies(soft, bound));
        assert_eq!(copies_for(1e-6), [2, 2, 2, 3, 3]);
        assert_eq!(copies_for(1e-8), [2, 3, 3, 4, 4]);
    }

    #[test]
    fn a_bound_out_of_reach_is_none() {
        assert_eq!(parity_of_group(3, 0.9, 1e-6), None);
    }
}
