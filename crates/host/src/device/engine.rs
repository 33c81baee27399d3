//! How a device does several requests at once: through a few rings, or not at all.
//!
//! Invariants:
//! 1. A ring is used by one call at a time. There are at most [`RINGS_MAX`], made when they are first needed; a call that
//!    finds none free waits for one.
//! 2. Requests in memory that is not aligned go through a buffer of [`BETWEEN_BYTES`] beside each ring; there are never
//!    more of them in flight than it holds.

use std::fmt;
use std::fs;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use bytes::BytesMut;
use claystone_env::{SECTOR_BYTES, Sector, aligned_buffer};
use rustix::io::Errno;

use super::ring::Ring;
use crate::direct::is_aligned;

/// How a device does several requests at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// The system has them all, through io_uring.
    IoUring,
    /// One after another, with a plain system call for each.
    Plain {
        /// Why not through io_uring: half a sentence.
        why: &'static str,
    },
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Engine::IoUring => f.write_str("io_uring"),
            Engine::Plain { why } => write!(f, "plain calls, because {why}"),
        }
    }
}

/// The rings of a device.
pub struct Rings {
    slots: [Mutex<Slot>; RINGS_MAX],
    turn: AtomicUsize,
}

#[derive(Default)]
struct Slot {
    ring: Option<Ring>,
    /// Empty, or an aligned buffer of [`BETWEEN_BYTES`].
    between: BytesMut,
}

impl Rings {
    /// Rings, of which the first is there.
    ///
    /// # Errors
    /// Why there are none.
    pub fn new() -> Result<Rings, &'static str> {
        let ring = Ring::new().map_err(|error| why_not(&error))?;
        let rings = Rings { slots: Default::default(), turn: AtomicUsize::new(0) };
        rings.free_slot().ring = Some(ring);
        Ok(rings)
    }

    /// Tries each read once, with an I/O priority as Linux encodes it. Returns for each how many bytes it has read, maybe fewer than asked for; an error of the kind
    /// [`io::ErrorKind::Interrupted`] says that it was not tried.
    pub fn read(&self, file: &fs::File, reads: &mut [(Sector, &mut [u8])], priority: u16) -> Vec<io::Result<usize>> {
        let through: Vec<usize> = reads.iter().map(|(_, into)| between_bytes(into)).collect();
        let mut slot = self.free_slot();
        let mut done = Vec::with_capacity(reads.len());
        for wave in plan_waves(&through) {
            let bytes = through[wave.clone()].iter().sum();
            let (reads, through) = (&mut reads[wave.clone()], &through[wave]);
            let Some((ring, between)) = slot.ready(bytes) else {
                done.extend(reads.iter().map(|_| Err(io::ErrorKind::Interrupted.into())));
                continue;
            };
            let mut rest = &mut between[..];
            let mut requests = Vec::with_capacity(reads.len());
            for ((first, into), bytes) in reads.iter_mut().zip(through) {
                let memory = if *bytes == 0 { &mut **into } else { rest.split_off_mut(..*bytes).expect("they fit") };
                requests.push((offset(*first), memory));
            }
            done.extend(ring.read(file, &mut requests, priority));
            let mut rest = &between[..];
            for ((_, into), bytes) in reads.iter_mut().zip(through) {
                into[..*bytes].copy_from_slice(rest.split_off(..*bytes).expect("they fit"));
            }
            slot.drop_spent();
        }
        done
    }

    /// As [`Rings::read`], for writes.
    pub fn write(&self, file: &fs::File, writes: &[(Sector, &[u8])]) -> Vec<io::Result<usize>> {
        let through: Vec<usize> = writes.iter().map(|(_, bytes)| between_bytes(bytes)).collect();
        let mut slot = self.free_slot();
        let mut done = Vec::with_capacity(writes.len());
        for wave in plan_waves(&through) {
            let bytes = through[wave.clone()].iter().sum();
            let (writes, through) = (&writes[wave.clone()], &through[wave]);
            let Some((ring, between)) = slot.ready(bytes) else {
                done.extend(writes.iter().map(|_| Err(io::ErrorKind::Interrupted.into())));
                continue;
            };
            let mut rest = &mut between[..];
            let mut requests: Vec<(u64, &[u8])> = Vec::with_capacity(writes.len());
            for ((first, memory), bytes) in writes.iter().zip(through) {
                let memory = if *bytes == 0 {
                    memory
                } else {
                    let copy = rest.split_off_mut(..*bytes).expect("they fit");
                    copy.copy_from_slice(&memory[..*bytes]);
                    &*copy
                };
                requests.push((offset(*first), memory));
            }
            done.extend(ring.write(file, &requests));
            slot.drop_spent();
        }
        done
    }

    /// A slot that nobody uses, as soon as there is one.
    fn free_slot(&self) -> MutexGuard<'_, Slot> {
        for slot in &self.slots {
            match slot.try_lock() {
                Ok(slot) => return slot,
                Err(TryLockError::Poisoned(slot)) => return slot.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.slots[turn % RINGS_MAX].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Rings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rings").finish_non_exhaustive()
    }
}

impl Slot {
    /// The ring, and `bytes` bytes of the buffer between; `None` if the system gives no ring now.
    fn ready(&mut self, bytes: usize) -> Option<(&mut Ring, &mut [u8])> {
        // One that a panic left behind may hold requests.
        self.drop_spent();
        if self.ring.is_none() {
            self.ring = Ring::new().ok();
        }
        if bytes > self.between.capacity() {
            self.between = aligned_buffer(BETWEEN_BYTES);
        }
        if bytes > self.between.len() {
            self.between.resize(bytes, 0);
        }
        Some((self.ring.as_mut()?, &mut self.between[..bytes]))
    }

    fn drop_spent(&mut self) {
        if self.ring.as_mut().is_some_and(Ring::is_spent) {
            self.ring = None;
        }
    }
}

/// How many bytes of a request in this memory go through the buffer between: none if it is aligned, else all that fit; what
/// is behind them is left to do.
fn between_bytes(memory: &[u8]) -> usize {
    if is_aligned(memory) { 0 } else { memory.len().min(BETWEEN_BYTES) }
}

/// Divides requests into those that go at once: as many, in their order, as take [`BETWEEN_BYTES`] between.
fn plan_waves(through: &[usize]) -> Vec<Range<usize>> {
    let (mut waves, mut from, mut bytes) = (Vec::new(), 0, 0);
    for (at, more) in through.iter().enumerate() {
        if bytes + more > BETWEEN_BYTES {
            waves.push(from..at);
            (from, bytes) = (at, 0);
        }
        bytes += more;
    }
    waves.push(from..through.len());
    waves
}

fn offset(sector: Sector) -> u64 {
    sector.0 * SECTOR_BYTES as u64
}

fn why_not(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::PERM | Errno::ACCESS) => "the system forbids io_uring",
        Some(Errno::NOSYS) => "the system has no io_uring",
        Some(Errno::NOMEM) => "the system has no memory for io_uring",
        Some(Errno::MFILE | Errno::NFILE) => "too many files are open",
        Some(Errno::INVAL) => "the system's io_uring is too old",
        None if error.kind() == io::ErrorKind::Unsupported => "the system's io_uring is too old",
        Some(_) | None => "the system's io_uring does not work",
    }
}

/// Rings of a device: as many as threads that usually call at once, and some more.
const RINGS_MAX: usize = 8;

/// What goes at a time through a buffer of our own, where the caller's is not aligned.
pub const BETWEEN_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waves_take_all_requests_in_order_and_fit_between() {
        const M: usize = BETWEEN_BYTES;
        // The ends of the waves.
        let cases: [(&[usize], &[usize]); 6] = [
            (&[], &[0]),
            (&[0, 0, 0], &[3]),
            (&[M], &[1]),
            (&[M, 4096], &[1, 2]),
            (&[0, M / 2, 0, M / 2, 0, 4096], &[5, 6]),
            (&[4096, M, M, 0], &[1, 2, 4]),
        ];
        for (through, ends) in cases {
            let starts = [0].iter().chain(ends);
            let expected: Vec<Range<usize>> = starts.zip(ends).map(|(start, end)| *start..*end).collect();
            assert_eq!(plan_waves(through), expected, "{through:?}");
        }
    }

    #[test]
    fn the_reason_for_plain_calls_is_told() {
        let why = |errno: Errno| Engine::Plain { why: why_not(&errno.into()) }.to_string();
        assert_eq!(why(Errno::NOSYS), "plain calls, because the system has no io_uring");
        assert_eq!(why(Errno::PERM), "plain calls, because the system forbids io_uring");
        assert_eq!(why_not(&io::ErrorKind::Unsupported.into()), "the system's io_uring is too old");
        assert_eq!(why_not(&io::ErrorKind::Interrupted.into()), "the system's io_uring does not work");
        assert_eq!(Engine::IoUring.to_string(), "io_uring");
    }
}
