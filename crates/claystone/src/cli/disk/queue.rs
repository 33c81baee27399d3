//! How long a device's writes take that find others before them.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use claystone_env::{Device, SECTOR_BYTES, Sector, aligned_buffer};

/// Writes of so many bytes that begin at once: medians of how long those take that find 0, 1, 2 ... others before them. What the
/// device held is lost.
///
/// # Errors
/// The device is too small, or fails.
pub fn queued_writes(device: &Arc<dyn Device>, bytes: usize) -> anyhow::Result<Vec<Duration>> {
    let sectors = (bytes / SECTOR_BYTES) as u64;
    ensure!(device.geometry().sectors >= sectors * QUEUE as u64, "{} is too small to be measured", device.label());
    let begin = Barrier::new(QUEUE);
    let writer = |number: usize| -> anyhow::Result<Vec<Duration>> {
        let mut content = aligned_buffer(bytes);
        content.resize(bytes, number as u8);
        let first = Sector(number as u64 * sectors);
        let mut took = Vec::with_capacity(ROUNDS);
        let mut written = Ok(());
        for _ in 0..ROUNDS {
            begin.wait();
            let begun = Instant::now();
            // Who fails goes on: the others wait for him.
            written = written.and(device.write(first, &content));
            took.push(begun.elapsed());
        }
        written.with_context(|| format!("{} was not measured", device.label()))?;
        Ok(took)
    };
    let by_writer: Vec<Vec<Duration>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..QUEUE).map(|number| scope.spawn(move || writer(number))).collect();
        let joined = threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a writer panicked"))?);
        joined.collect::<anyhow::Result<_>>()
    })?;
    let mut by_queue = vec![Vec::new(); QUEUE];
    for round in 0..ROUNDS {
        let mut took: Vec<Duration> = by_writer.iter().map(|took| took[round]).collect();
        took.sort_unstable();
        by_queue.iter_mut().zip(took).for_each(|(took, of_round)| took.push(of_round));
    }
    Ok(by_queue
        .into_iter()
        .map(|mut took| {
            took.sort_unstable();
            took[ROUNDS / 2]
        })
        .collect())
}

/// As many as a drive's queue has places for.
const QUEUE: usize = 32;
const ROUNDS: usize = 15;

#[cfg(test)]
mod tests {
    use claystone_env::testing::MemoryDevice;

    use super::*;

    #[test]
    fn later_ones_take_longer() {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(200));
        let took = queued_writes(&device, 4 * SECTOR_BYTES).expect("measured");
        assert!(took.len() == QUEUE && took.is_sorted(), "{took:?}");
        let small: Arc<dyn Device> = Arc::new(MemoryDevice::new(127));
        assert!(queued_writes(&small, 4 * SECTOR_BYTES).is_err());
    }
}
