//! Writes as a storage node of the paper sees them, made from the table that was published: how many, how long, for how long.
//!
//! The traces themselves never were, so all else is assumed, alike for the four workloads:
//!
//! | what | is | from |
//! |---|---|---|
//! | lengths | powers of two from 512 bytes to 1 MiB, log-normal with a deviation of 1.2 (a factor of 3.3), of the mean of the table | assumed; the slides name 1 MiB as large |
//! | bursts | a second of 3.65 times the mean rate, then nine of less | workload D: 11,000 a second at its peak, 3,013 on the average; seconds assumed |
//! | batches | four writes at a time on the average, 20 us apart | assumed |
//!
//! Source: [bcw §Write-intensive Workload].

use std::time::Duration;

use claystone_env::Random;

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Workload {
    /// Its letter.
    pub name: &'static str,
    /// Bytes written to solid-state drives.
    pub bytes: f64,
    /// In so many writes.
    pub writes: f64,
    /// Within.
    pub seconds: f64,
}

/// A write that comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// When.
    pub at: Duration,
    /// How long it is.
    pub bytes: u64,
}

/// All four.
pub const WORKLOADS: [Workload; 4] = [
    Workload { name: "A", bytes: 14.7e9, writes: 0.43e6, seconds: 2700.0 },
    Workload { name: "B", bytes: 61.2e9, writes: 4.4e6, seconds: 1800.0 },
    Workload { name: "C", bytes: 7.2e9, writes: 4.8e6, seconds: 1800.0 },
    Workload { name: "D", bytes: 7.5e9, writes: 4.7e6, seconds: 1560.0 },
];

impl Workload {
    /// Its writes within `part` of its time, in their order.
    pub fn requests(&self, part: f64, random: &dyn Random) -> Vec<Request> {
        let lengths = Lengths::of_mean(self.bytes / self.writes);
        let rate = self.writes / self.seconds;
        let calm = (1.0 - BURST_SHARE * PEAK) / (1.0 - BURST_SHARE);
        let end = self.seconds * part;
        let mut requests = Vec::with_capacity((rate * end * 1.1) as usize);
        let (mut now, mut is_burst, mut until) = (0.0, false, 0.0);
        while now < end {
            if now >= until {
                is_burst = until > 0.0 && !is_burst;
                let mean = if is_burst { BURST_S } else { BURST_S / BURST_SHARE - BURST_S };
                until = now + mean * (0.5 + share(random));
            }
            let batches = rate * if is_burst { PEAK } else { calm } / BATCH;
            now += -(1.0 - share(random)).ln() / batches;
            let mut at = now;
            loop {
                requests.push(Request { at: Duration::from_secs_f64(at), bytes: lengths.draw(random) });
                if share(random) < 1.0 / BATCH {
                    break;
                }
                at += SPACING_S;
            }
        }
        requests.sort_by_key(|request| request.at);
        requests
    }
}

/// Writes of one length that come one after another, so far apart.
pub fn evenly(count: u64, bytes: u64, apart: Duration) -> Vec<Request> {
    (0..count).map(|number| Request { at: apart * number as u32, bytes }).collect()
}

/// How often which length is drawn: sums of shares.
struct Lengths {
    below: Vec<(f64, u64)>,
}

impl Lengths {
    /// The log-normal one whose mean, over the lengths there are, is that.
    fn of_mean(mean: f64) -> Lengths {
        let (mut low, mut high) = (0.0, 20.0);
        for _ in 0..100 {
            let middle = (low + high) / 2.0;
            if Lengths::around(middle).mean() < mean { low = middle } else { high = middle }
        }
        Lengths::around(low)
    }

    fn around(center: f64) -> Lengths {
        let lengths = (LENGTH_LEAST.trailing_zeros()..=LENGTH_MOST.trailing_zeros()).map(|power| 1u64 << power);
        let weight = |bytes: u64| (-((bytes as f64).ln() - center).powi(2) / (2.0 * DEVIATION * DEVIATION)).exp();
        let all: f64 = lengths.clone().map(weight).sum();
        let mut sum = 0.0;
        let below = lengths.map(|bytes| {
            sum += weight(bytes) / all;
            (sum, bytes)
        });
        Lengths { below: below.collect() }
    }

    fn mean(&self) -> f64 {
        let mut before = 0.0;
        let part = |(sum, bytes): &(f64, u64)| {
            let share = sum - before;
            before = *sum;
            share * *bytes as f64
        };
        self.below.iter().map(part).sum()
    }

    fn draw(&self, random: &dyn Random) -> u64 {
        let share = share(random);
        self.below.iter().find(|(sum, _)| share < *sum).map_or(LENGTH_MOST, |(_, bytes)| *bytes)
    }
}

/// In `0..1`.
fn share(random: &dyn Random) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

const LENGTH_LEAST: u64 = 512;
const LENGTH_MOST: u64 = 1 << 20;
const DEVIATION: f64 = 1.2;
const PEAK: f64 = 11_000.0 / (4.7e6 / 1560.0);
const BURST_S: f64 = 1.0;
const BURST_SHARE: f64 = 0.1;
const BATCH: f64 = 4.0;
const SPACING_S: f64 = 20e-6;

#[cfg(test)]
mod tests {
    use claystone_sim::SimRandom;

    use super::*;

    // Test of: [bcw §Write-intensive Workload]
    #[test]
    fn workloads_are_those_of_the_table() {
        for workload in WORKLOADS {
            let requests = workload.requests(0.2, &SimRandom::new(3));
            let (rate, mean) = (workload.writes / workload.seconds, workload.bytes / workload.writes);
            let found = requests.len() as f64 / (workload.seconds * 0.2);
            assert!((found / rate - 1.0).abs() < 0.1, "{}: {found} a second, not {rate}", workload.name);
            let bytes: f64 = requests.iter().map(|request| request.bytes as f64).sum();
            let found = bytes / requests.len() as f64;
            assert!((found / mean - 1.0).abs() < 0.05, "{}: {found} bytes each, not {mean}", workload.name);
            assert!(requests.windows(2).all(|pair| pair[0].at <= pair[1].at));
            // The most of any second is the peak of D, of those that follow each other.
            let second = Duration::from_secs(1);
            let most = (0..requests.len())
                .step_by(500)
                .map(|from| {
                    requests[from..].iter().take_while(|request| request.at < requests[from].at + second).count()
                })
                .max()
                .expect("some") as f64;
            assert!((3.0..4.8).contains(&(most / rate)), "{}: {most} in a second", workload.name);
        }
    }
}
