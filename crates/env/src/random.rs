//! Randomness, from the operating system or from a seed.

use std::sync::Arc;

/// A stream of random bytes. Calls may come from several tasks at once.
pub trait Random: Send + Sync + 'static {
    /// Fills `bytes` with random bytes.
    fn fill(&self, bytes: &mut [u8]);

    /// A stream of its own, decided by this stream's seed and `name` only.
    fn fork(&self, name: &str) -> Arc<dyn Random>;

    /// A uniformly random number.
    fn next_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// A random number in `0..bound`.
    ///
    /// # Panics
    /// If `bound` is 0.
    fn below(&self, bound: u64) -> u64 {
        assert!(bound > 0, "an empty range has no random member");
        // The high half of a 64 x 64 bit product; the bias is below bound / 2^64.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}
