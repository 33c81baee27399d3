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

fn mixed(hash: u64, word: u64) -> u64 {
    let product = (hash ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    product ^ (product >> 31)
}
