//! Tells a quiet round from one that other work on the machine disturbed.
//!
//! A benchmark loads the machine itself, so pressure during a round says nothing. What counts:
//! 1. pressure in a short window before the round, while both servers and the client idle;
//! 2. during the round, processor time that neither the client nor the server under test used.
//!
//! Where /proc has no such figures every round counts as quiet.

use std::fs;
use std::time::Duration;

/// What was seen around one round.
#[derive(Debug, Clone, Copy)]
pub struct Noise {
    /// Share of the idle window in which some task waited for a processor.
    pub pressure: f64,
    /// Share of all processor time in the round that others used or that the hypervisor took.
    pub foreign: f64,
}

impl Noise {
    /// Whether the round's figures may be kept.
    pub fn is_quiet(self) -> bool {
        self.pressure <= PRESSURE_MAX && self.foreign <= FOREIGN_MAX
    }
}

/// Counters at one instant.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counters {
    busy_ticks: u64,
    all_ticks: u64,
    own_ticks: u64,
}

impl Counters {
    /// Now, with the processes `own` counted as ours beside this one.
    pub fn now(own: &[u32]) -> Counters {
        let (busy_ticks, all_ticks) =
            fs::read_to_string("/proc/stat").ok().and_then(|text| machine(&text)).unwrap_or((0, 0));
        let processes = own.iter().copied().chain([std::process::id()]);
        let own_ticks = processes
            .filter_map(|process| fs::read_to_string(format!("/proc/{process}/stat")).ok())
            .filter_map(|text| process_ticks(&text))
            .sum();
        Counters { busy_ticks, all_ticks, own_ticks }
    }

    /// The share of processor time since `before` that was not ours.
    pub fn foreign_since(self, before: Counters) -> f64 {
        let all = self.all_ticks.saturating_sub(before.all_ticks);
        let busy = self.busy_ticks.saturating_sub(before.busy_ticks);
        let own = self.own_ticks.saturating_sub(before.own_ticks);
        if all == 0 { 0.0 } else { busy.saturating_sub(own) as f64 / all as f64 }
    }
}

/// The share of the next `window` in which some task waits for a processor.
pub async fn pressure(window: Duration) -> f64 {
    let before = stalled_us();
    tokio::time::sleep(window).await;
    match (before, stalled_us()) {
        (Some(before), Some(after)) => after.saturating_sub(before) as f64 / window.as_micros() as f64,
        _ => 0.0,
    }
}

fn stalled_us() -> Option<u64> {
    let text = fs::read_to_string("/proc/pressure/cpu").ok()?;
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.split("total=").nth(1)?.trim().parse().ok()
}

/// Busy and all ticks of /proc/stat; time stolen by the hypervisor is busy time of somebody else.
fn machine(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().filter_map(|field| field.parse().ok()).take(8).collect();
    let idle = ticks.get(3)? + ticks.get(4)?;
    let all: u64 = ticks.iter().sum();
    Some((all - idle, all))
}

/// User and system ticks of /proc/PID/stat.
fn process_ticks(text: &str) -> Option<u64> {
    // The name, field 2, may hold spaces and parentheses; user and system time are fields 14 and 15.
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

const PRESSURE_MAX: f64 = 0.12;
const FOREIGN_MAX: f64 = 0.15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernel_s_tables() {
        assert_eq!(machine("cpu  10 1 5 100 4 0 2 3 0 0\ncpu0 ...\n"), Some((21, 125)));
        assert_eq!(process_ticks("7 (a b) c) S 1 7 7 0 -1 0 1 2 3 4 50 6 0 0 20 0"), Some(56));
        assert_eq!(machine("nothing"), None);
    }

    #[test]
    fn foreign_time_is_what_is_busy_and_not_ours() {
        let before = Counters { busy_ticks: 100, all_ticks: 1000, own_ticks: 50 };
        let after = Counters { busy_ticks: 200, all_ticks: 1200, own_ticks: 130 };
        assert!((after.foreign_since(before) - 0.1).abs() < 1e-9);
        assert_eq!(before.foreign_since(before), 0.0);
    }
}
