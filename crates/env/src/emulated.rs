//! The time of an emulated device, which counts what its operations take instead of taking it.
//!
//! The device says when it is done, and somebody else lets that time pass: a simulated world by its own clock, or a
//! wrapper by the machine's.

use crate::Moment;

/// See the module. Its clock is its own: it stands while nobody moves it.
pub trait EmulatedTime: Send + Sync + 'static {
    /// It is at least `now`: if the device is done with all that it was asked, it was idle since. What is asked next begins
    /// then, and does not before what was asked earlier is done.
    fn reach(&self, now: Moment);

    /// When it is done with all that it was asked so far.
    fn done_at(&self) -> Moment;
}
