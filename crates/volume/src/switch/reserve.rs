//! What the log costs in space, and what pays for it: a pure function.

use claystone_code::CodeSpec;
use claystone_meta::Redundancy;

/// Bytes on disks for each byte of a volume's data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FormSpace {
    /// Mirrored: in the form for what is written much, or, of a volume of one code, in as many copies as survive what it does.
    pub mirrored: f64,
    /// Coded.
    pub coded: f64,
}

impl FormSpace {
    /// Of a volume with this redundancy.
    pub fn of(redundancy: &Redundancy) -> FormSpace {
        let overhead = |code: CodeSpec| f64::from(code.shape().chunks()) / f64::from(code.shape().data);
        let copies = f64::from(redundancy.code.tolerance()) + 1.0;
        let mirrored = redundancy.mirroring.map_or(copies, |_| overhead(redundancy.hot()));
        FormSpace { mirrored, coded: overhead(redundancy.code) }
    }
}

/// The share of a volume's data that is coded instead of mirrored when its log takes no space beyond what all mirrored
/// would: R r_m / (D (r_m - r_c)), where a reserve of R bytes is kept r_m times as mirrored bytes are, of D bytes of data,
/// and r_c is what a coded byte takes. `None` if coding saves nothing, or there is no data; more than 1 if even all of it
/// coded does not pay.
///
/// With `replica:3/rs:4+2`, or `rs:4+2`, it is 2 R / D: a log of 1 GiB is paid for by 2 % of 100 GiB.
///
/// Source: [drc-dpu §differential data merge]: the reserved capacity for differential data is made up for by converting more chunks.
pub fn reserve_share(redundancy: &Redundancy, reserve_bytes: u64, data_bytes: u64) -> Option<f64> {
    let FormSpace { mirrored, coded } = FormSpace::of(redundancy);
    let pays = mirrored > coded && data_bytes > 0;
    pays.then(|| reserve_bytes as f64 * mirrored / (data_bytes as f64 * (mirrored - coded)))
}

/// The reserve that so many percent of a volume's data pay for, coded instead of mirrored: [`reserve_share`] the other way round. 0 if
/// coding saves nothing.
pub fn reserve_paid_by(redundancy: &Redundancy, percent: u64, data_bytes: u64) -> u64 {
    let for_all = reserve_share(redundancy, data_bytes, data_bytes);
    for_all.map_or(0, |for_all| (data_bytes as f64 * percent as f64 / 100.0 / for_all) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(redundancy: &str, reserve: u64, data: u64) -> Option<f64> {
        reserve_share(&redundancy.parse().expect("a redundancy"), reserve, data)
    }

    /// Test of: [drc-dpu §differential data merge]: two copies against two data chunks with a parity: 4 R / D; three copies: 2 R / D.
    #[test]
    fn one_percent_of_log_is_paid_for_by_four_percent_or_two() {
        assert_eq!(share("replica:2/rs:2+1", 1, 100), Some(0.04));
        assert_eq!(share("replica:3/rs:2+1", 1, 100), Some(0.02));
        assert_eq!(share("replica:3/rs:4+2", 1 << 30, 100 << 30), Some(0.02));
        assert_eq!((share("rs:2+1", 1, 100), share("rs:4+2", 1, 100)), (Some(0.04), Some(0.02)));
        assert_eq!(share("pc:1x3", 1, 100), Some(0.03));
        assert_eq!(
            (share("mirror:4x3", 1, 100), share("rs:1+2", 1, 100), share("replica:2", 1, 100)),
            (None, None, None)
        );
        assert_eq!(share("replica:3/rs:4+2", 1, 0), None);
    }

    #[test]
    fn four_percent_pay_for_a_log_of_one_percent_or_two() {
        let paid = |redundancy: &str, data| reserve_paid_by(&redundancy.parse().expect("a redundancy"), 4, data);
        assert_eq!(paid("replica:2/rs:2+1", 100 << 30), 1 << 30);
        assert_eq!(paid("replica:3/rs:4+2", 100 << 30), 2 << 30);
        assert_eq!(paid("rs:4+2", 100 << 30), 2 << 30);
        assert_eq!((paid("replica:3", 100 << 30), paid("replica:3/rs:4+2", 0)), (0, 0));
    }
}
