//! An emulated device in real time: each call returns when the device would be done.
//!
//! ```text
//! callers --queue--> one has the device: its clock is moved to now, the call counts its time, and is waited for --> the next
//! ```
//!
//! Invariants:
//! 1. Calls follow each other on the device's clock, however many wait at once, and time without calls is time that the device
//!    was idle. Of those that wait, the one with the shortest way ahead is next, as in the command queue of a drive.
//! 2. No call returns before its time. The system wakes a thread some 60 us after the moment that it asked for, and later
//!    under load. Who waited in the queue begins when the one before him was done, not when that one woke; for who comes
//!    after, what the last caller was told late is taken off his arrival. So it does not add up, and a call never begins before
//!    the one before it is done.
//!
//! What a write brings is there for others as soon as it was called, not when it is done. So is what a power cut would take:
//! those are for simulated time.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use claystone_env::{
    Clock, Device, DeviceError, Effort, EmulatedTime, FailedSector, Geometry, Moment, SECTOR_BYTES, Sector, SectorRange,
};

use self::queue::{Queue, Ticket};
use crate::HostClock;

/// A clock that a thread can wait for.
pub trait WaitingClock: Send + Sync + 'static {
    /// The time.
    fn now(&self) -> Moment;
    /// Returns at this moment or later; at once if it is past.
    fn wait_until(&self, moment: Moment);
}

impl WaitingClock for HostClock {
    fn now(&self) -> Moment {
        Clock::now(self)
    }

    fn wait_until(&self, moment: Moment) {
        std::thread::sleep(moment.since(Clock::now(self)));
    }
}

/// See the module.
pub struct RealTimeDevice<C = HostClock> {
    device: Arc<dyn Device>,
    time: Arc<dyn EmulatedTime>,
    clock: C,
    turns: Mutex<Turns>,
    passed_on: Condvar,
}

/// Whose turn it is.
#[derive(Default)]
struct Turns {
    queue: Queue,
    /// Who has the device, from when he was chosen until his call is done.
    has: Option<Ticket>,
    /// How long after its end the last call returned, until the next one takes it off.
    late: Duration,
}

/// Having the device; the next has it when this is dropped.
struct Turn<'a, C>(&'a RealTimeDevice<C>);

impl<C> Drop for Turn<'_, C> {
    fn drop(&mut self) {
        let mut turns = self.0.turns();
        turns.has = turns.queue.next();
        self.0.passed_on.notify_all();
    }
}

impl RealTimeDevice {
    /// `device`, whose time is `time`. Its clock is moved by this alone, from its present moment on.
    pub fn new(device: Arc<dyn Device>, time: Arc<dyn EmulatedTime>) -> RealTimeDevice {
        RealTimeDevice::with_clock(device, time, HostClock::start())
    }
}

impl<C: WaitingClock> RealTimeDevice<C> {
    /// The same by a clock that begins at zero.
    pub fn with_clock(device: Arc<dyn Device>, time: Arc<dyn EmulatedTime>, clock: C) -> RealTimeDevice<C> {
        RealTimeDevice { device, time, clock, turns: Mutex::default(), passed_on: Condvar::new() }
    }

    /// Calls the device, which then has its head at `at`, behind those who are ahead; and waits until it is done with that.
    fn take_time<T>(&self, at: Option<SectorRange>, call: impl FnOnce(&dyn Device) -> T) -> T {
        let came = self.clock.now();
        let turn = self.turn(at);
        self.time.reach(Moment(came.0.saturating_sub(std::mem::take(&mut self.turns().late))));
        let result = call(&*self.device);
        let done_at = self.time.done_at();
        self.clock.wait_until(done_at);
        self.turns().late = self.clock.now().since(done_at);
        drop(turn);
        result
    }
}

impl<C> RealTimeDevice<C> {
    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the device.
    fn turn(&self, at: Option<SectorRange>) -> Turn<'_, C> {
        let mut turns = self.turns();
        let ticket = turns.queue.enter(at);
        if turns.has.is_none() {
            turns.has = turns.queue.next();
        }
        while turns.has != Some(ticket) {
            turns = self.passed_on.wait(turns).unwrap_or_else(PoisonError::into_inner);
        }
        Turn(self)
    }
}

impl<C: WaitingClock> Device for RealTimeDevice<C> {
    fn label(&self) -> String {
        self.device.label()
    }

    fn manner(&self) -> Vec<String> {
        self.device.manner()
    }

    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn elapsed(&self) -> Option<Duration> {
        Some(self.clock.now().0)
    }

    fn read(&self, first: Sector, into: &mut [u8], effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        self.take_time(Some(range(first, into)), |device| device.read(first, into, effort))
    }

    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        self.take_time(Some(range(first, bytes)), |device| device.write(first, bytes))
    }

    fn read_each(
        &self,
        reads: &mut [(Sector, &mut [u8])],
        effort: Effort,
    ) -> Vec<Result<Vec<FailedSector>, DeviceError>> {
        let at = span(reads.iter().map(|(first, into)| range(*first, into)));
        self.take_time(at, |device| device.read_each(reads, effort))
    }

    fn write_each(&self, writes: &[(Sector, &[u8])]) -> Result<(), DeviceError> {
        let at = span(writes.iter().map(|(first, bytes)| range(*first, bytes)));
        self.take_time(at, |device| device.write_each(writes))
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.take_time(None, |device| device.sync())
    }

    fn discard(&self, range: SectorRange) -> Result<(), DeviceError> {
        self.take_time(None, |device| device.discard(range))
    }
}

fn range(first: Sector, bytes: &[u8]) -> SectorRange {
    SectorRange { first, sectors: (bytes.len() / SECTOR_BYTES) as u64 }
}

/// From where the first begins to where the last ends.
fn span(ranges: impl Iterator<Item = SectorRange>) -> Option<SectorRange> {
    let mut ranges = ranges.peekable();
    let first = ranges.peek()?.first;
    let end = ranges.last()?.end();
    Some(SectorRange { first, sectors: end.0.saturating_sub(first.0) })
}

mod queue;
#[cfg(test)]
mod tests;
