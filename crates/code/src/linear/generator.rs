//! What a systematic linear code over GF(2^8) is: how each chunk sums up from the data, and which few chunks sum up to
//! nothing.
//!
//! Invariants:
//! 1. The first k chunks are the data.
//! 2. Every check holds: its chunks XOR to zero. Checks only show short ways; what can be recovered follows from the
//!    rows alone.

use crate::ChunkIndex;

/// The rows and checks of a code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Generator {
    data: u16,
    parity: Vec<Vec<u8>>,
    checks: Vec<Vec<ChunkIndex>>,
}

impl Generator {
    /// A code of `data` data chunks with a row of coefficients for each parity, and sets of chunks that XOR to zero.
    ///
    /// # Panics
    /// If a row is not `data` long, or a check does not hold.
    pub(crate) fn new(data: u16, parity: Vec<Vec<u8>>, checks: Vec<Vec<ChunkIndex>>) -> Self {
        let code = Self { data, parity, checks };
        for row in &code.parity {
            assert_eq!(row.len(), usize::from(data), "one coefficient for each data chunk");
        }
        for check in &code.checks {
            let mut sum = vec![0; usize::from(data)];
            for chunk in check {
                sum.iter_mut().zip(code.vector(*chunk)).for_each(|(sum, value)| *sum ^= value);
            }
            assert!(sum.iter().all(|value| *value == 0), "the check {check:?} does not hold");
        }
        code
    }

    /// Data chunks, k.
    pub(crate) fn data(&self) -> u16 {
        self.data
    }

    /// All chunks, n.
    pub(crate) fn chunks(&self) -> u16 {
        self.data + u16::try_from(self.parity.len()).expect("at most 256 chunks")
    }

    /// One row of k coefficients for each parity.
    pub(crate) fn parity(&self) -> &[Vec<u8>] {
        &self.parity
    }

    /// Sets of chunks that XOR to zero.
    pub(crate) fn checks(&self) -> &[Vec<ChunkIndex>] {
        &self.checks
    }

    /// How a chunk sums up from the data.
    pub(crate) fn vector(&self, chunk: ChunkIndex) -> Vec<u8> {
        match chunk.0.checked_sub(self.data) {
            Some(parity) => self.parity[usize::from(parity)].clone(),
            None => (0..self.data).map(|data| u8::from(data == chunk.0)).collect(),
        }
    }
}
