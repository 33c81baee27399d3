//! Writing one chunk.
//!
//! Invariants:
//! 1. A chunk of at most [`STREAM_BYTES`] reaches the disk in one job, at its commit.
//! 2. A longer one is written in steps of about [`STREAM_BYTES`], at most [`IN_FLIGHT_MAX`] at once, so a writer
//!    holds at most (`IN_FLIGHT_MAX` + 1) x `STREAM_BYTES` and one append.
//! 3. Zeros at the start are counted, and written with what follows them; a chunk of nothing else becomes hollow.
//! 4. Until it is committed, the writer owns the id in `Files`, and gives it free when the file is gone.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use claystone_chunk::{ByteRange, ChunkError, ChunkId, ChunkWriter, Durability};
use claystone_env::{File, aligned_buffer};
use futures::FutureExt;
use tokio::sync::oneshot;

use crate::layout::{SECTOR, data_offset, file_bytes};
use crate::store::Shared;
use crate::zeros::{ZEROS, is_zeros};

/// Content that is gathered before it is written.
pub const STREAM_BYTES: u64 = 1 << 20;
/// A longer chunk is not hollow: taking its space would hold up the disk.
pub const HOLLOW_BYTES_MAX: u64 = 16 << 20;
/// Steps of one writer that are queued or running.
pub const IN_FLIGHT_MAX: usize = 2;

type Step = oneshot::Receiver<Result<Vec<u8>, ChunkError>>;

/// See the module.
pub struct DirectoryWriter {
    shared: Arc<Shared>,
    id: ChunkId,
    bytes_total: u64,
    bytes_received: u64,
    // Bytes of zeros that were received before all others, and are not gathered.
    zeros: u64,
    // Not yet handed to the disk.
    gathered: VecDeque<Bytes>,
    gathered_bytes: u64,
    // Whole sectors handed to the disk.
    sectors_sent: u64,
    file: Option<Arc<dyn File>>,
    in_flight: VecDeque<Step>,
    table: Vec<u8>,
    failed: Option<ChunkError>,
    // A job that makes the file was queued.
    started: bool,
    // The id is no longer this writer's to give free.
    ended: bool,
}

impl DirectoryWriter {
    /// A writer of an id that is taken in `Files`.
    pub fn new(shared: Arc<Shared>, id: ChunkId, bytes_total: u64) -> DirectoryWriter {
        DirectoryWriter {
            shared,
            id,
            bytes_total,
            bytes_received: 0,
            zeros: 0,
            gathered: VecDeque::new(),
            gathered_bytes: 0,
            sectors_sent: 0,
            file: None,
            in_flight: VecDeque::new(),
            table: Vec::new(),
            failed: None,
            started: false,
            ended: false,
        }
    }

    fn take(&mut self, bytes: u64) -> Vec<Bytes> {
        let mut left = bytes;
        let mut taken = Vec::new();
        while left > 0 {
            let mut front = self.gathered.pop_front().expect("as many bytes as are counted");
            if front.len() as u64 > left {
                self.gathered.push_front(front.split_off(left as usize));
            }
            left -= front.len() as u64;
            taken.push(front);
        }
        self.gathered_bytes -= bytes;
        taken
    }

    /// Hands `bytes` of the gathered content to the disk; whole sectors, or the chunk's rest.
    async fn send(&mut self, bytes: u64) -> Result<(), ChunkError> {
        let (id, total) = (self.id, self.bytes_total);
        let file = match &self.file {
            Some(file) => file.clone(),
            None => {
                self.started = true;
                let file = self.shared.run(move |files| files.create_file(id, file_bytes(total))).await??;
                self.file = Some(file.clone());
                file
            }
        };
        while self.in_flight.len() >= IN_FLIGHT_MAX {
            self.receive().await?;
        }
        let content = self.take(bytes);
        let first_sector = self.sectors_sent;
        self.sectors_sent += bytes.div_ceil(SECTOR);
        let (sender, receiver) = oneshot::channel();
        let shared = self.shared.clone();
        let step = async move {
            let written = shared.run(move |files| {
                let mut joined;
                let content: &[u8] = match &content[..] {
                    [one] => one,
                    several => {
                        joined = aligned_buffer(bytes as usize);
                        several.iter().for_each(|part| joined.extend_from_slice(part));
                        &joined
                    }
                };
                files.write_content(id, total, &*file, first_sector, content)
            });
            // A writer that was dropped does not wait.
            let _ = sender.send(written.await.unwrap_or_else(|refused| Err(refused.into())));
        };
        self.shared.env.tasks.spawn("chunk write", step.boxed());
        self.in_flight.push_back(receiver);
        Ok(())
    }

    /// Waits for the oldest step.
    async fn receive(&mut self) -> Result<(), ChunkError> {
        let Some(step) = self.in_flight.front_mut() else { return Ok(()) };
        let result = step.await.unwrap_or_else(|_| Err(self.shared.stopped().into()));
        self.in_flight.pop_front();
        self.table.extend(result?);
        Ok(())
    }

    /// Removes what was written; afterwards the id is free.
    async fn give_up(&mut self) {
        self.ended = true;
        abandon(self.shared.clone(), self.id, self.started, std::mem::take(&mut self.in_flight)).await;
    }

    async fn accept(&mut self, bytes: Bytes) -> Result<(), ChunkError> {
        let range = ByteRange { offset: self.bytes_received, bytes: bytes.len() as u64 };
        if range.end() > self.bytes_total {
            return Err(ChunkError::OutOfRange { id: self.id, range, chunk_bytes: self.bytes_total });
        }
        self.bytes_received = range.end();
        if self.bytes_total <= HOLLOW_BYTES_MAX && self.zeros == range.offset && is_zeros(&bytes) {
            self.zeros += range.bytes;
            return Ok(());
        }
        self.gather_zeros().await?;
        self.gather(bytes).await
    }

    /// Gathers the zeros that were only counted.
    async fn gather_zeros(&mut self) -> Result<(), ChunkError> {
        while self.zeros > 0 {
            let bytes = self.zeros.min(ZEROS.0.len() as u64);
            self.zeros -= bytes;
            self.gather(Bytes::from_static(&ZEROS.0[..bytes as usize])).await?;
        }
        Ok(())
    }

    async fn gather(&mut self, bytes: Bytes) -> Result<(), ChunkError> {
        self.gathered_bytes += bytes.len() as u64;
        if !bytes.is_empty() {
            self.gathered.push_back(bytes);
        }
        while self.bytes_total > STREAM_BYTES && self.gathered_bytes >= STREAM_BYTES {
            self.send(STREAM_BYTES).await?;
        }
        Ok(())
    }

    async fn finish(&mut self, durability: Durability) -> Result<(), ChunkError> {
        let (id, bytes) = (self.id, self.bytes_total);
        if self.bytes_received < bytes {
            let range = ByteRange { offset: self.bytes_received, bytes: bytes - self.bytes_received };
            return Err(ChunkError::OutOfRange { id, range, chunk_bytes: self.bytes_received });
        }
        if bytes <= HOLLOW_BYTES_MAX && self.zeros == bytes && data_offset(bytes) >= SECTOR {
            self.started = true;
            return self.shared.run(move |files| files.write_hollow(id, bytes, durability)).await?;
        }
        self.gather_zeros().await?;
        if self.bytes_total <= STREAM_BYTES {
            let content = self.take(bytes);
            self.started = true;
            return self.shared.run(move |files| files.write_whole(id, &content, durability)).await?;
        }
        if self.gathered_bytes > 0 {
            self.send(self.gathered_bytes).await?;
        }
        while !self.in_flight.is_empty() {
            self.receive().await?;
        }
        let table = std::mem::take(&mut self.table);
        let file = self.file.clone().expect("a chunk longer than one step has been sent to a file");
        self.shared.run(move |files| files.commit(id, bytes, &file, &table, durability)).await?
    }
}

#[async_trait]
impl ChunkWriter for DirectoryWriter {
    async fn append(&mut self, bytes: Bytes) -> Result<(), ChunkError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = self.accept(bytes).await;
        if let Err(error) = &result {
            self.failed = Some(error.clone());
            self.give_up().await;
        }
        result
    }

    async fn commit(mut self: Box<Self>, durability: Durability) -> Result<(), ChunkError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if let Err(error) = self.finish(durability).await {
            self.give_up().await;
            return Err(error);
        }
        self.ended = true;
        if durability == Durability::Buffered {
            self.shared.sync_later();
        }
        Ok(())
    }
}

impl Drop for DirectoryWriter {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let steps = std::mem::take(&mut self.in_flight);
        if self.started {
            let removal = abandon(self.shared.clone(), self.id, true, steps);
            self.shared.env.tasks.spawn("chunk removal", removal.boxed());
        } else {
            self.shared.files.end(self.id);
        }
    }
}

/// Ends a chunk that is not to be.
async fn abandon(shared: Arc<Shared>, id: ChunkId, started: bool, steps: VecDeque<Step>) {
    for step in steps {
        // Its write would come after the removal.
        let _ = step.await;
    }
    if !started || shared.run(move |files| files.abandon(id)).await.is_err() {
        shared.files.end(id);
    }
}
