//! GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d), for planning; bulk work is in `kernel`.
//!
//! Invariants:
//! 1. Every table is made at compile time from `double`, the one place that names the polynomial.

/// a * b.
pub(crate) const fn mul(a: u8, b: u8) -> u8 {
    MUL[a as usize][b as usize]
}

/// 1 / a.
///
/// # Panics
/// If a is 0.
pub(crate) const fn inv(a: u8) -> u8 {
    assert!(a != 0, "0 has no inverse");
    EXP[255 - LOG[a as usize] as usize]
}

/// 2^exponent; 2 generates all but 0.
pub(crate) const fn power(exponent: u32) -> u8 {
    EXP[(exponent % 255) as usize]
}

/// All products: `MUL[a][b]` = a * b.
pub(crate) static MUL: [[u8; 256]; 256] = {
    let mut table = [[0; 256]; 256];
    let mut a = 1;
    while a < 256 {
        let mut b = 1;
        while b < 256 {
            table[a][b] = EXP[(LOG[a] as usize + LOG[b] as usize) % 255];
            b += 1;
        }
        a += 1;
    }
    table
};

/// x * a: a shift, and the polynomial's low byte for the bit that falls off.
const fn double(a: u8) -> u8 {
    (a << 1) ^ (if a & 0x80 != 0 { 0x1d } else { 0 })
}

const EXP: [u8; 256] = {
    let mut table = [0; 256];
    let (mut i, mut power) = (0, 1);
    while i < 256 {
        table[i] = power;
        power = double(power);
        i += 1;
    }
    table
};

const LOG: [u8; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 255 {
        table[EXP[i] as usize] = i as u8;
        i += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::{inv, mul};

    /// The definition: shift and add, one bit at a time.
    fn slow_mul(mut a: u8, mut b: u8) -> u8 {
        let mut sum = 0;
        while b != 0 {
            if b & 1 == 1 {
                sum ^= a;
            }
            a = (a << 1) ^ (if a & 0x80 != 0 { 0x1d } else { 0 });
            b >>= 1;
        }
        sum
    }

    #[test]
    fn tables_hold_the_products_of_the_definition() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(mul(a, b), slow_mul(a, b), "{a} * {b}");
            }
        }
    }

    #[test]
    fn the_field_axioms_hold() {
        for a in 0..=255 {
            assert_eq!(mul(a, 1), a);
            assert_eq!(mul(a, 0), 0);
            if a != 0 {
                assert_eq!(mul(a, inv(a)), 1);
            }
            for b in 0..=255 {
                assert_eq!(mul(a, b), mul(b, a));
                // A stride keeps the triple loop short; 29 is prime to 256, so every c meets some (a, b).
                for c in (b..=255).step_by(29) {
                    assert_eq!(mul(mul(a, b), c), mul(a, mul(b, c)));
                    assert_eq!(mul(a, b ^ c), mul(a, b) ^ mul(a, c));
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "0 has no inverse")]
    fn zero_has_no_inverse() {
        inv(0);
    }
}
