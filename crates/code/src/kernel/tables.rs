//! What the tiers look products up in, made at compile time from the field.
//!
//! Invariants:
//! 1. Both tables hold the products of `field::mul` and nothing else.

use crate::field::mul;

/// For each coefficient the 8 x 8 bit matrix of its product: byte 7 - i holds the row of result bit i.
#[cfg(target_arch = "x86_64")]
pub(super) static AFFINE: [u64; 256] = {
    let mut table = [0; 256];
    let mut coef = 0;
    while coef < 256 {
        let mut bit_in = 0;
        while bit_in < 8 {
            let column = mul(coef as u8, 1 << bit_in);
            let mut bit_out = 0;
            while bit_out < 8 {
                if column >> bit_out & 1 == 1 {
                    table[coef] |= 1 << ((7 - bit_out) * 8 + bit_in);
                }
                bit_out += 1;
            }
            bit_in += 1;
        }
        coef += 1;
    }
    table
};

/// For each coefficient its products with the 16 low and with the 16 high nibbles.
pub(super) static NIBBLES: [[[u8; 16]; 2]; 256] = {
    let mut table = [[[0; 16]; 2]; 256];
    let mut coef = 0;
    while coef < 256 {
        let mut nibble = 0;
        while nibble < 16 {
            table[coef][0][nibble] = mul(coef as u8, nibble as u8);
            table[coef][1][nibble] = mul(coef as u8, (nibble as u8) << 4);
            nibble += 1;
        }
        coef += 1;
    }
    table
};
