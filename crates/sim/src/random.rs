//! Randomness from the seed.

use std::sync::{Arc, Mutex, PoisonError};

use claystone_env::Random;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};

/// A stream decided by the world's seed and the names it was forked by.
pub struct SimRandom {
    seed: [u8; 32],
    stream: Mutex<ChaCha8Rng>,
}

impl SimRandom {
    /// The root stream of a world.
    pub fn new(seed: u64) -> SimRandom {
        SimRandom::from_seed(Sha256::digest(seed.to_le_bytes()).into())
    }

    fn from_seed(seed: [u8; 32]) -> SimRandom {
        SimRandom { seed, stream: Mutex::new(ChaCha8Rng::from_seed(seed)) }
    }
}

impl Random for SimRandom {
    fn fill(&self, bytes: &mut [u8]) {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner).fill_bytes(bytes);
    }

    fn fork(&self, name: &str) -> Arc<dyn Random> {
        let seed = Sha256::new().chain_update(self.seed).chain_update(name).finalize();
        Arc::new(SimRandom::from_seed(seed.into()))
    }
}
