//! Randomness: ChaCha20 seeded by the operating system.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use claystone_env::Random;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha20Rng;
use sha2::{Digest, Sha256};

/// A stream of cryptographic strength.
pub struct HostRandom {
    seed: [u8; 32],
    stream: Mutex<ChaCha20Rng>,
}

impl HostRandom {
    /// A stream that nobody can guess.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn from_system() -> io::Result<HostRandom> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(io::Error::other)?;
        Ok(HostRandom::from_seed(seed))
    }

    fn from_seed(seed: [u8; 32]) -> HostRandom {
        // The stream's key differs from every fork's input, so that no output tells a fork's seed.
        HostRandom { seed, stream: Mutex::new(ChaCha20Rng::from_seed(derive(&seed, b"stream", ""))) }
    }
}

impl Random for HostRandom {
    fn fill(&self, bytes: &mut [u8]) {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner).fill_bytes(bytes);
    }

    fn fork(&self, name: &str) -> Arc<dyn Random> {
        Arc::new(HostRandom::from_seed(derive(&self.seed, b"fork", name)))
    }
}

fn derive(seed: &[u8; 32], purpose: &[u8], name: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(seed);
    hash.update(purpose);
    hash.update([0]);
    hash.update(name.as_bytes());
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fork_depends_on_seed_and_name_only() {
        let one = HostRandom::from_seed([7; 32]);
        let two = HostRandom::from_seed([7; 32]);
        one.next_u64();
        assert_eq!(one.fork("a").next_u64(), two.fork("a").next_u64());
        assert_ne!(one.fork("a").next_u64(), one.fork("b").next_u64());
        assert_ne!(HostRandom::from_seed([8; 32]).fork("a").next_u64(), one.fork("a").next_u64());
    }

    #[test]
    fn below_stays_below_and_reaches_all() {
        let random = HostRandom::from_seed([1; 32]);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[random.below(5) as usize] = true;
        }
        assert_eq!(seen, [true; 5]);
    }
}
