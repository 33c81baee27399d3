//! What happened, as one number.

use std::sync::{Mutex, PoisonError};

/// A run so far. Two runs that are equal here took the same course.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TraceSum {
    /// Mixture of all events in their order.
    pub hash: u64,
    /// How many there were.
    pub events: u64,
}

#[derive(Default)]
pub struct Trace {
    sum: Mutex<TraceSum>,
}

impl Trace {
    /// Adds an event.
    pub fn note(&self, what: &str, numbers: &[u64], bytes: &[u8]) {
        let mut sum = self.sum.lock().unwrap_or_else(PoisonError::into_inner);
        let mut hash = sum.hash;
        for text in [what.as_bytes(), bytes] {
            hash = mixed(hash, text.len() as u64);
            let (words, rest) = text.as_chunks();
            let (rows, words) = words.as_chunks::<LANES>();
            if !rows.is_empty() {
                hash = of_rows(hash, rows);
            }
            hash = words.iter().fold(hash, |hash, word| mixed(hash, u64::from_le_bytes(*word)));
            if !rest.is_empty() {
                let mut word = [0; 8];
                word[..rest.len()].copy_from_slice(rest);
                hash = mixed(hash, u64::from_le_bytes(word));
            }
        }
        sum.hash = numbers.iter().fold(hash, |hash, number| mixed(hash, *number));
        sum.events += 1;
    }

    /// The events so far.
    pub fn sum(&self) -> TraceSum {
        *self.sum.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Mixes what is long in lanes beside each other: one word after the other would wait for the multiplication of the one before, and a
/// sector take a microsecond.
fn of_rows(hash: u64, rows: &[[[u8; 8]; LANES]]) -> u64 {
    let mut lanes: [u64; LANES] = std::array::from_fn(|lane| hash.wrapping_add(lane as u64));
    for row in rows {
        for (lane, word) in lanes.iter_mut().zip(row) {
            *lane = mixed(*lane, u64::from_le_bytes(*word));
        }
    }
    lanes.into_iter().fold(hash, mixed)
}

const LANES: usize = 8;

fn mixed(hash: u64, word: u64) -> u64 {
    let product = (hash ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    product ^ (product >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_of_each_length_counts() {
        let hash = |bytes: &[u8]| {
            let trace = Trace::default();
            trace.note("bytes", &[], bytes);
            trace.sum().hash
        };
        for length in [1, 7, 8, 63, 64, 65, 200, 4096] {
            let bytes: Vec<u8> = (0..length).map(|at| ((at as u32).wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            let whole = hash(&bytes);
            assert_eq!(whole, hash(&bytes));
            assert_ne!(whole, hash(&bytes[..length - 1]));
            for at in 0..length {
                let mut other = bytes.clone();
                other[at] ^= 1;
                assert_ne!(whole, hash(&other), "byte {at} of {length}");
            }
            // Nor are words that changed places the same.
            for word in (0..length / 8).skip(1) {
                let mut other = bytes.clone();
                (0..8).for_each(|at| other.swap(at, 8 * word + at));
                assert_ne!(whole, hash(&other), "word {word} of {length}");
            }
        }
    }
}
