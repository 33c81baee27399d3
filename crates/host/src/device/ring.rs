//! Several reads or writes of a file at once through io_uring, in memory that is lent for the call.
//!
//! Invariants:
//! 1. A call returns, and unwinds, only after the system has answered all that it took: nothing in flight refers to the
//!    caller's memory or file any more. Where the system refuses to wait, the call looks until all is answered.
//! 2. What the system did not take lies in a ring that is never used again ([`Ring::is_spent`]).
//! 3. At most [`DEPTH`] requests of a ring are in flight, and twice as many answers fit, so none is held back.
//!
//! This is the one module of `host` with unsafe code, because io_uring takes addresses. A safe interface would have to
//! own the memory: a future that borrows it can be forgotten while the system still writes there. A call that blocks
//! until all is answered cannot be.
#![allow(unsafe_code, reason = "addresses for io_uring; allowed here by docs/architecture.md, invariant 2")]

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::{EnterFlags, IoUring, Probe, opcode, squeue, types};

/// A queue of requests to the system and one of its answers. For one call at a time.
pub struct Ring {
    uring: IoUring,
}

impl Ring {
    /// A ring that has answered a request.
    ///
    /// # Errors
    /// The system has no io_uring, or none that reads and writes (before Linux 5.6), forbids it, or has no memory for it.
    pub fn new() -> io::Result<Ring> {
        let uring = IoUring::new(DEPTH as u32)?;
        let mut probe = Probe::new();
        uring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::Read::CODE) || !probe.is_supported(opcode::Write::CODE) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut ring = Ring { uring };
        // SAFETY: the request names no memory.
        let mut answers = unsafe { ring.run(&[opcode::Nop::new().build()]) };
        answers.pop().expect("one answer for one request")?;
        Ok(ring)
    }

    /// Tries each read once, with an I/O priority as Linux encodes it. Returns for each how many bytes it has read from its
    /// offset, maybe fewer than asked for; [`io::ErrorKind::Interrupted`] for one that was not tried.
    pub fn read(&mut self, file: &fs::File, reads: &mut [(u64, &mut [u8])], priority: u16) -> Vec<io::Result<usize>> {
        let fd = types::Fd(file.as_raw_fd());
        let entry = |(offset, into): &mut (u64, &mut [u8])| {
            let read = opcode::Read::new(fd, into.as_mut_ptr(), request_bytes(into)).offset(*offset);
            read.ioprio(priority).build()
        };
        let entries: Vec<squeue::Entry> = reads.iter_mut().map(entry).collect();
        // SAFETY: the memory is borrowed mutably, and the file is borrowed, until `run` has returned or unwound; nobody
        // here looks at the memory before.
        unsafe { self.run(&entries) }
    }

    /// As [`Ring::read`], for writes.
    pub fn write(&mut self, file: &fs::File, writes: &[(u64, &[u8])]) -> Vec<io::Result<usize>> {
        let fd = types::Fd(file.as_raw_fd());
        let entry = |(offset, bytes): &(u64, &[u8])| {
            opcode::Write::new(fd, bytes.as_ptr(), request_bytes(bytes)).offset(*offset).build()
        };
        let entries: Vec<squeue::Entry> = writes.iter().map(entry).collect();
        // SAFETY: memory and file are borrowed until `run` has returned or unwound, and the system only reads the memory.
        unsafe { self.run(&entries) }
    }

    /// Whether it holds requests that the system did not take: then it must be dropped, for it would hand them in later.
    pub fn is_spent(&mut self) -> bool {
        !self.uring.submission().is_empty()
    }

    /// Hands in the entries, at most [`DEPTH`] at a time, and returns their answers.
    ///
    /// # Safety
    /// Until this returns or unwinds, the files that the entries name must stay open and their memory must be valid, not
    /// accessed by others where the system writes to it, and not changed by others where the system reads it.
    unsafe fn run(&mut self, entries: &[squeue::Entry]) -> Vec<io::Result<usize>> {
        let mut answers: Vec<_> = entries.iter().map(|_| Err(io::ErrorKind::Interrupted.into())).collect();
        let mut flight = Flight { uring: &mut self.uring, begun: 0, refused: false };
        let mut waiting = entries.iter().enumerate();
        loop {
            while flight.begun < DEPTH && !flight.refused {
                let Some((number, entry)) = waiting.next() else { break };
                // SAFETY: as this function demands; `flight` ends, also when it is dropped, only after all is answered.
                unsafe { flight.begin(entry.clone().user_data(number as u64)) };
            }
            if flight.unanswered() == 0 {
                return answers;
            }
            // A full queue is filled again when half of it is done.
            let want = if waiting.len() == 0 { flight.begun } else { DEPTH / 2 };
            flight.wait(want);
            flight.take_answers(|number, answer| answers[number as usize] = answer);
        }
    }
}

/// Requests between being handed in and being answered. Dropping it waits until none is in flight.
struct Flight<'a> {
    uring: &'a mut IoUring,
    /// Requests in the queue or in flight.
    begun: usize,
    /// Whether the system refused to take requests: what is still in the queue stays there.
    refused: bool,
}

impl Flight<'_> {
    /// Queues a request.
    ///
    /// # Safety
    /// As for [`Ring::run`], until this flight is dropped.
    unsafe fn begin(&mut self, entry: squeue::Entry) {
        // SAFETY: the caller's promise.
        unsafe { self.uring.submission().push(&entry) }.expect("the queue has room for DEPTH requests");
        self.begun += 1;
    }

    /// How many requests are in flight or will still be handed in.
    fn unanswered(&mut self) -> usize {
        if self.refused { self.begun - self.uring.submission().len() } else { self.begun }
    }

    /// Hands in what is queued and waits for `want` answers, or fewer if something comes between.
    fn wait(&mut self, want: usize) {
        if self.refused {
            let want = want.min(self.unanswered()) as u32;
            // SAFETY: no request is handed in, and there is no argument.
            let waited = unsafe { self.uring.submitter().enter::<()>(0, want, EnterFlags::GETEVENTS.bits(), None) };
            if waited.is_err_and(|error| error.kind() != io::ErrorKind::Interrupted) {
                std::thread::sleep(LOOK_AGAIN);
            }
        } else if self.uring.submit_and_wait(want).is_err_and(|error| error.kind() != io::ErrorKind::Interrupted) {
            self.refused = true;
        }
    }

    /// Calls `answered` with the number of each request that was answered, and its answer.
    fn take_answers(&mut self, mut answered: impl FnMut(u64, io::Result<usize>)) {
        while let Some(entry) = self.uring.completion().next() {
            self.begun -= 1;
            let answer = entry.result();
            let error = || io::Error::from_raw_os_error(answer.wrapping_neg());
            answered(entry.user_data(), usize::try_from(answer).map_err(|_| error()));
        }
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        // Only if something panicked is there any left to wait for.
        self.refused = true;
        while self.unanswered() > 0 {
            self.wait(usize::MAX);
            self.take_answers(|_, _| ());
        }
    }
}

/// How many bytes one request asks for; the system does less than 2 GiB at a time in any case.
fn request_bytes(memory: &[u8]) -> u32 {
    memory.len().min(REQUEST_BYTES_MAX) as u32
}

/// Requests in flight at once. Drives queue 32 (SATA) or more.
pub const DEPTH: usize = 64;

/// What one request moves at most, a whole number of sectors.
const REQUEST_BYTES_MAX: usize = 1 << 30;

/// How long to sleep between looks where the system does not wait for us.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn ring_and_file(sectors: usize) -> Option<(Ring, fs::File)> {
        let Ok(ring) = Ring::new() else {
            eprintln!("no io_uring here: nothing was checked");
            return None;
        };
        let file = tempfile::tempfile().expect("a file");
        file.set_len(sectors as u64 * 4096).expect("a length");
        Some((ring, file))
    }

    #[test]
    fn more_requests_than_the_queue_holds_are_all_answered_in_their_places() {
        let Some((mut ring, file)) = ring_and_file(500) else { return };
        for count in [0, 1, DEPTH - 1, DEPTH, DEPTH + 1, 2 * DEPTH, 500] {
            let bytes: Vec<Vec<u8>> = (0..count).map(|number| vec![(number % 251) as u8; 1000 + number]).collect();
            let writes: Vec<(u64, &[u8])> =
                bytes.iter().enumerate().map(|(number, bytes)| (number as u64 * 4096, &bytes[..])).collect();
            let written: Vec<usize> = ring.write(&file, &writes).into_iter().map(|done| done.expect("write")).collect();
            assert!(written.iter().zip(&bytes).all(|(written, bytes)| *written == bytes.len()));
            let mut memory: Vec<Vec<u8>> = bytes.iter().map(|bytes| vec![0xff; bytes.len()]).collect();
            let mut reads: Vec<(u64, &mut [u8])> =
                memory.iter_mut().enumerate().map(|(number, into)| (number as u64 * 4096, &mut into[..])).collect();
            assert!(ring.read(&file, &mut reads, 0).into_iter().all(|done| done.is_ok()));
            assert!(memory == bytes && !ring.is_spent(), "{count} requests");
        }
    }

    #[test]
    fn each_request_has_its_own_answer() {
        let Some((mut ring, file)) = ring_and_file(2) else { return };
        let (mut whole, mut behind, mut across) = ([1; 4096], [1; 4096], [1; 4096]);
        let mut reads: [(u64, &mut [u8]); 4] =
            [(0, &mut whole), (8192, &mut behind), (8192 - 100, &mut across), (u64::MAX / 2 + 1, &mut [0; 1])];
        let done = ring.read(&file, &mut reads, 0);
        assert!(matches!(done[..], [Ok(4096), Ok(0), Ok(100), Err(_)]), "{done:?}");
        assert_eq!((whole, behind), ([0; 4096], [1; 4096]));
        let reading = fs::File::open("/dev/zero").expect("open");
        let done = ring.write(&reading, &[(0, &[1; 10]), (4096, &[1; 10])]);
        assert!(done.iter().all(|done| done.as_ref().is_err_and(|error| error.raw_os_error().is_some())), "{done:?}");
    }

    /// Reads of a pipe wait until something is written to it, so what is in flight stays there.
    #[test]
    fn what_was_handed_in_is_waited_for_and_what_was_not_is_never_done() {
        let Some((mut ring, _)) = ring_and_file(1) else { return };
        let (from, into) = io::pipe().expect("a pipe");
        let from = fs::File::from(std::os::fd::OwnedFd::from(from));
        let fd = types::Fd(from.as_raw_fd());
        let mut memory = [[0; 2]; 3];
        let mut entries = memory
            .iter_mut()
            .zip(0..)
            .map(|(into, number)| opcode::Read::new(fd, into.as_mut_ptr(), 2).build().user_data(number));
        let mut answers = Vec::new();
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let mut flight = Flight { uring: &mut ring.uring, begun: 0, refused: false };
            for _ in 0..2 {
                // SAFETY: `memory` and `from` outlive the flight, and nobody looks at them before it ends.
                unsafe { flight.begin(entries.next().expect("an entry")) };
            }
            flight.uring.submit().expect("two are taken");
            // SAFETY: as above.
            unsafe { flight.begin(entries.next().expect("an entry")) };
            flight.refused = true;
            assert_eq!((flight.begun, flight.unanswered()), (3, 2));
            let mut writer = &into;
            io::Write::write_all(&mut writer, &[7; 2]).expect("a pipe takes bytes");
            flight.wait(1);
            flight.take_answers(|number, answer| answers.push((number, answer.expect("read"))));
            io::Write::write_all(&mut writer, &[8; 2]).expect("a pipe takes bytes");
            panic!("with requests in flight");
        }));
        assert!(unwound.is_err());
        assert_eq!(memory[2], [0; 2]);
        let filled = [memory[0], memory[1]];
        assert!(filled == [[7; 2], [8; 2]] || filled == [[8; 2], [7; 2]], "{filled:?}");
        assert!(answers.len() <= 2 && answers.iter().all(|(number, bytes)| *number < 2 && *bytes == 2), "{answers:?}");
        assert!(ring.is_spent(), "the third is still in the queue");
    }
}
