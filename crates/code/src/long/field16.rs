//! GF(2^16) as the quadratic extension of the field that all other codes use, and the points of its long codes.
//!
//! A symbol is low + high * y with low and high in GF(2^8) of `field`, y^2 = y + u and u = `BASIS[7]`; as a number it is
//! `high << 8 | low`. So a product is four products in GF(2^8) ([`parts`]), and two where the factor lies in GF(2^8):
//! what the kernels know of GF(2^8) is all they need.
//!
//! The points are numbered through a Cantor basis: `BASIS[0]` = 1 and `BASIS[i + 1]^2 + BASIS[i + 1] = BASIS[i]`, of the
//! two solutions (1 apart) the even one; point(i) is the sum of the `BASIS[b]` over the bits b of i.
//!
//! Invariants:
//! 1. Everything here follows from `field::mul` at compile time: `BASIS`, and so every long code's bytes, is pinned.
//! 2. The points below 2^t are a vector space, zero on the polynomial s_t(x) = x^(2^t) + ... of derivative 1, and
//!    s_t(point(i)) = point(i >> t).
//! 3. The points below 256 are GF(2^8): point(i) has no high byte just when i < 256. So point(256) = y.

use crate::field::{inv as inv8, mul as mul8};

/// a * b.
pub(crate) const fn mul(a: u16, b: u16) -> u16 {
    let ([a0, a1], [b0, b1]) = (a.to_le_bytes(), b.to_le_bytes());
    let high = mul8(a1, b1);
    u16::from_le_bytes([mul8(a0, b0) ^ mul8(U, high), mul8(a0, b1) ^ mul8(a1, b0) ^ high])
}

/// 1 / a: the conjugate over the norm, which lies in GF(2^8).
///
/// # Panics
/// If a is 0.
pub(crate) const fn inv(a: u16) -> u16 {
    let [a0, a1] = a.to_le_bytes();
    let norm = inv8(mul8(a0, a0 ^ a1) ^ mul8(U, mul8(a1, a1)));
    u16::from_le_bytes([mul8(a0 ^ a1, norm), mul8(a1, norm)])
}

/// The factors in GF(2^8) of a product by `factor`: of low in low, of high in low, of low in high, of high in high.
pub(crate) const fn parts(factor: u16) -> [u8; 4] {
    let [low, high] = factor.to_le_bytes();
    [low, mul8(U, high), high, low ^ high]
}

/// The point of that number.
pub(crate) const fn point(index: u16) -> u16 {
    let [low, high] = index.to_le_bytes();
    SPANS[0][low as usize] ^ SPANS[1][high as usize]
}

/// The Cantor basis.
pub(crate) const BASIS: [u16; 16] = {
    let mut basis = [1; 16];
    let mut i = 0;
    while i < 15 {
        basis[i + 1] = if i < 7 { halve8(basis[i] as u8) as u16 } else { halve(basis[i]) };
        i += 1;
    }
    basis
};

/// y^2 + y.
const U: u8 = {
    let (mut u, mut i) = (1, 0);
    while i < 7 {
        u = halve8(u);
        i += 1;
    }
    u
};

/// The even x in GF(2^8) with x^2 + x = a, for an a that has one.
const fn halve8(a: u8) -> u8 {
    let mut x = 0;
    while mul8(x, x) ^ x != a {
        x += 2;
    }
    x
}

/// The even x with x^2 + x = a, for an a that has none in GF(2^8): (x1 y + x0)^2 + x1 y + x0 = (x1^2 + x1) y + (x0^2 +
/// x0 + u x1^2). Of the two x1, 1 apart, just one leaves an x0.
const fn halve(a: u16) -> u16 {
    let [a0, a1] = a.to_le_bytes();
    let mut x1: u8 = 0;
    loop {
        if mul8(x1, x1) ^ x1 == a1 {
            let mut x0: u8 = 0;
            while x0 < 254 && mul8(x0, x0) ^ x0 ^ mul8(U, mul8(x1, x1)) != a0 {
                x0 += 2;
            }
            if mul8(x0, x0) ^ x0 ^ mul8(U, mul8(x1, x1)) == a0 {
                return u16::from_le_bytes([x0, x1]);
            }
        }
        x1 += 1;
    }
}

/// The sums of the lower and of the upper half of the basis.
static SPANS: [[u16; 256]; 2] = {
    let mut spans = [[0; 256]; 2];
    let mut i: usize = 1;
    while i < 256 {
        let top = i.ilog2() as usize;
        spans[0][i] = spans[0][i ^ (1 << top)] ^ BASIS[top];
        spans[1][i] = spans[1][i ^ (1 << top)] ^ BASIS[8 + top];
        i += 1;
    }
    spans
};

#[cfg(test)]
mod tests {
    use super::{BASIS, U, inv, mul, parts, point};
    use crate::field::mul as mul8;

    #[test]
    fn the_basis_is_pinned() {
        let expected = [
            0x1, 0xd6, 0x98, 0x92, 0x56, 0xc8, 0x58, 0xe6, 0x100, 0xd6f8, 0x98b0, 0x92e8, 0x56ec, 0xc830, 0x587c,
            0xe6e6,
        ];
        assert_eq!(BASIS, expected);
        assert_eq!(u16::from(U), BASIS[7]);
        for i in 0..15 {
            assert_eq!(mul(BASIS[i + 1], BASIS[i + 1]) ^ BASIS[i + 1], BASIS[i]);
        }
    }

    #[test]
    fn the_field_axioms_hold() {
        // A stride that is prime to the order meets all residues of small numbers.
        let some = || (0..=u16::MAX).step_by(257 * 3 + 2);
        for a in some() {
            assert_eq!(mul(a, 1), a);
            assert_eq!(mul(a, 0), 0);
            for b in some() {
                assert_eq!(mul(a, b), mul(b, a));
                for c in some().step_by(7) {
                    assert_eq!(mul(mul(a, b), c), mul(a, mul(b, c)));
                    assert_eq!(mul(a, b ^ c), mul(a, b) ^ mul(a, c));
                }
            }
        }
        assert!((1..=u16::MAX).all(|a| mul(a, inv(a)) == 1));
    }

    #[test]
    fn a_product_is_its_parts() {
        for factor in (0..=u16::MAX).step_by(97) {
            let [ll, hl, lh, hh] = parts(factor);
            for value in (0..=u16::MAX).step_by(101) {
                let [low, high] = value.to_le_bytes();
                let product = [mul8(ll, low) ^ mul8(hl, high), mul8(lh, low) ^ mul8(hh, high)];
                assert_eq!(mul(factor, value), u16::from_le_bytes(product));
            }
        }
    }

    #[test]
    fn points_are_a_numbering_and_their_polynomials_shift() {
        let mut seen = vec![false; 1 << 16];
        for i in 0..=u16::MAX {
            assert!(!std::mem::replace(&mut seen[usize::from(point(i))], true));
            assert_eq!(point(i) < 256, i < 256);
            // s_1(x) = x^2 + x, and s_t is s_1 t times.
            assert_eq!(mul(point(i), point(i)) ^ point(i), point(i >> 1));
        }
    }
}
