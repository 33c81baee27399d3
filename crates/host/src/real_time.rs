//! An emulated device in real time: each call returns when the device would be done.
//!
//! ```text
//! callers --lock--> the device's clock is moved to now, the call counts its time --unlock--> each waits until its call is done
//! ```
//!
//! Invariants:
//! 1. Calls follow each other on the device's clock in the order in which they came, however many wait at once: who comes
//!    while it is busy waits for those before too, and time without calls is time that the device was idle.
//! 2. No call returns before its time. The system wakes a thread some 60 us after the moment that it asked for, and later
//!    under load; what the last caller was told late is taken off the arrival of the next call, so that it does not add up.
//!    A call never begins before the one before it is done.
//!
//! What a write brings is there for others as soon as it was called, not when it is done. So is what a power cut would take:
//! those are for simulated time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use claystone_env::{
    Clock, Device, DeviceError, Effort, EmulatedTime, FailedSector, Geometry, Moment, Sector, SectorRange,
};

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
    /// How long after its end the last call returned, until the next one takes it off.
    late: Mutex<Duration>,
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
        RealTimeDevice { device, time, clock, late: Mutex::default() }
    }

    /// Calls the device, and waits until it is done with that.
    fn take_time<T>(&self, call: impl FnOnce(&dyn Device) -> T) -> T {
        let came = self.clock.now();
        let (result, done_at) = {
            let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
            self.time.reach(Moment(came.0.saturating_sub(std::mem::take(&mut *late))));
            (call(&*self.device), self.time.done_at())
        };
        self.clock.wait_until(done_at);
        let returns = self.clock.now();
        *self.late.lock().unwrap_or_else(PoisonError::into_inner) = returns.since(done_at);
        result
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

    fn read(&self, first: Sector, into: &mut [u8], effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        self.take_time(|device| device.read(first, into, effort))
    }

    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        self.take_time(|device| device.write(first, bytes))
    }

    fn read_each(
        &self,
        reads: &mut [(Sector, &mut [u8])],
        effort: Effort,
    ) -> Vec<Result<Vec<FailedSector>, DeviceError>> {
        self.take_time(|device| device.read_each(reads, effort))
    }

    fn write_each(&self, writes: &[(Sector, &[u8])]) -> Result<(), DeviceError> {
        self.take_time(|device| device.write_each(writes))
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.take_time(|device| device.sync())
    }

    fn discard(&self, range: SectorRange) -> Result<(), DeviceError> {
        self.take_time(|device| device.discard(range))
    }
}

#[cfg(test)]
mod tests;
