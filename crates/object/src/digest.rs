//! Checksums of a body, computed while it streams by, off the request's thread.

use std::collections::BTreeMap;

use bytes::Bytes;
use claystone_env::{Env, call};
use md5::Digest as _;

use crate::ObjectError;

/// A checksum algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// MD5, the entity tag of S3.
    Md5,
    /// CRC-32 (ISO-HDLC).
    Crc32,
    /// CRC-32C (Castagnoli).
    Crc32c,
    /// CRC-64/NVME.
    Crc64Nvme,
    /// SHA-1.
    Sha1,
    /// SHA-256.
    Sha256,
}

/// Results by algorithm, big-endian bytes, and the length of what was hashed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Digests {
    /// Bytes seen.
    pub bytes: u64,
    /// Checksum by algorithm.
    pub values: BTreeMap<Algorithm, Vec<u8>>,
}

enum Hasher {
    Md5(md5::Md5),
    Sha1(sha1::Sha1),
    Sha256(sha2::Sha256),
    Crc(Algorithm, crc_fast::Digest),
}

impl Hasher {
    fn new(algorithm: Algorithm) -> Hasher {
        let crc = |kind| Hasher::Crc(algorithm, crc_fast::Digest::new(kind));
        match algorithm {
            Algorithm::Md5 => Hasher::Md5(md5::Md5::new()),
            Algorithm::Sha1 => Hasher::Sha1(sha1::Sha1::new()),
            Algorithm::Sha256 => Hasher::Sha256(sha2::Sha256::new()),
            Algorithm::Crc32 => crc(crc_fast::CrcAlgorithm::Crc32IsoHdlc),
            Algorithm::Crc32c => crc(crc_fast::CrcAlgorithm::Crc32Iscsi),
            Algorithm::Crc64Nvme => crc(crc_fast::CrcAlgorithm::Crc64Nvme),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Md5(hasher) => hasher.update(bytes),
            Hasher::Sha1(hasher) => hasher.update(bytes),
            Hasher::Sha256(hasher) => hasher.update(bytes),
            Hasher::Crc(_, digest) => digest.update(bytes),
        }
    }

    fn finish(self) -> (Algorithm, Vec<u8>) {
        match self {
            Hasher::Md5(hasher) => (Algorithm::Md5, hasher.finalize().to_vec()),
            Hasher::Sha1(hasher) => (Algorithm::Sha1, hasher.finalize().to_vec()),
            Hasher::Sha256(hasher) => (Algorithm::Sha256, hasher.finalize().to_vec()),
            Hasher::Crc(algorithm @ Algorithm::Crc64Nvme, digest) => {
                (algorithm, digest.finalize().to_be_bytes().to_vec())
            }
            Hasher::Crc(algorithm, digest) => (algorithm, (digest.finalize() as u32).to_be_bytes().to_vec()),
        }
    }
}

/// The hashers of one body. One batch of bytes is hashed on the CPU worker while the next is received.
pub(crate) struct Digesting {
    env: Env,
    hashers: Option<Vec<Hasher>>,
    running: Option<tokio::sync::oneshot::Receiver<Vec<Hasher>>>,
    waiting: Vec<Bytes>,
    waiting_bytes: usize,
    bytes: u64,
}

impl Digesting {
    pub(crate) fn new(env: Env, algorithms: &[Algorithm]) -> Digesting {
        let hashers = algorithms.iter().map(|&algorithm| Hasher::new(algorithm)).collect();
        Digesting { env, hashers: Some(hashers), running: None, waiting: Vec::new(), waiting_bytes: 0, bytes: 0 }
    }

    /// Takes the next bytes of the body; waits only while a whole batch is still being hashed.
    pub(crate) async fn update(&mut self, bytes: Bytes) -> Result<(), ObjectError> {
        self.bytes += bytes.len() as u64;
        self.waiting_bytes += bytes.len();
        self.waiting.push(bytes);
        if self.waiting_bytes >= BATCH_BYTES {
            self.settle().await?;
            self.start();
        }
        Ok(())
    }

    pub(crate) async fn finish(mut self) -> Result<Digests, ObjectError> {
        self.settle().await?;
        let mut hashers = self.hashers.take().expect("settle leaves the hashers here");
        let waiting = std::mem::take(&mut self.waiting);
        let finish = move || {
            for bytes in &waiting {
                hashers.iter_mut().for_each(|hasher| hasher.update(bytes));
            }
            hashers.into_iter().map(Hasher::finish).collect()
        };
        // A short rest costs less than the way to another thread.
        let values = if self.waiting_bytes <= INLINE_BYTES {
            finish()
        } else {
            call(&*self.env.cpu, finish).await.map_err(|_| ObjectError::ShuttingDown)?
        };
        Ok(Digests { bytes: self.bytes, values })
    }

    fn start(&mut self) {
        let mut hashers = self.hashers.take().expect("settle leaves the hashers here");
        let batch = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let cpu = self.env.cpu.clone();
        let job = Box::new(move || {
            for bytes in &batch {
                hashers.iter_mut().for_each(|hasher| hasher.update(bytes));
            }
            let _ = sender.send(hashers);
        });
        // A worker that stopped drops the job, which `settle` sees as a closed channel.
        self.env.tasks.spawn(
            "digest",
            Box::pin(async move {
                let _ = cpu.run(job).await;
            }),
        );
        self.running = Some(receiver);
    }

    /// Waits for the batch that is being hashed, if any.
    async fn settle(&mut self) -> Result<(), ObjectError> {
        if let Some(running) = self.running.take() {
            self.hashers = Some(running.await.map_err(|_| ObjectError::ShuttingDown)?);
        }
        Ok(())
    }
}

const BATCH_BYTES: usize = 1 << 20;
const INLINE_BYTES: usize = 64 << 10;
