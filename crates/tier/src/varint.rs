//! Numbers that take as many bytes as they need: seven bits in each byte, the lowest first; the eighth says that more follow.
//!
//! Invariants:
//! 1. A number has one form only: what is parsed is put as the same bytes again.

/// Puts a number behind others.
pub fn put_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Takes the first number off some bytes; `None`: they begin with none.
pub fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        number |= bits << shift;
        if number >> shift != bits {
            return None;
        }
        if *byte < 0x80 {
            return (*byte != 0 || shift == 0).then_some(number);
        }
    }
    None
}

/// Puts a number by how far it is from another, either way.
pub fn put_from(bytes: &mut Vec<u8>, from: u64, number: u64) {
    let ahead = number.wrapping_sub(from) as i64;
    put_varint(bytes, ((ahead << 1) ^ (ahead >> 63)) as u64);
}

/// Takes one that was put so.
pub fn take_from(bytes: &mut &[u8], from: u64) -> Option<u64> {
    let folded = take_varint(bytes)?;
    Some(from.wrapping_add((folded >> 1) ^ (folded & 1).wrapping_neg()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_as_long_as_it_needs_and_comes_out_again() {
        for (number, long) in [(0, 1), (127, 1), (128, 2), (16_383, 2), (16_384, 3), (u64::MAX >> 1, 9), (u64::MAX, 10)]
        {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            assert_eq!(bytes.len(), long, "{number}");
            for end in 0..long {
                assert_eq!(take_varint(&mut &bytes[..end]), None, "{number}, {end} bytes");
            }
            bytes.push(9);
            let mut rest = &bytes[..];
            assert_eq!((take_varint(&mut rest), rest), (Some(number), &[9][..]));
        }
        let far = [(0, u64::MAX, 1), (5, 4, 1), (5, 69, 2), (5, 68, 1), (u64::MAX, 0, 1), (0, 1 << 63, 10)];
        for (from, number, long) in far {
            let mut bytes = Vec::new();
            put_from(&mut bytes, from, number);
            assert_eq!((bytes.len(), take_from(&mut &bytes[..], from)), (long, Some(number)), "{number} from {from}");
        }
    }

    #[test]
    fn what_is_longer_than_it_needs_is_none() {
        let none = |bytes: &[u8]| assert_eq!(take_varint(&mut &*bytes), None, "{bytes:?}");
        none(&[0x80, 0]);
        none(&[0xff, 0x80, 0]);
        // A 65th bit.
        none(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]);
        none(&[0xff; 11]);
    }
}
