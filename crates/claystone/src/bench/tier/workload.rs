//! Writes as a storage node of the paper sees them, made from the table that was published: how many, how long, for how long.
//!
//! The traces themselves never were, so all else is assumed, alike for the four workloads:
//!
//! | what | is | from |
//! |---|---|---|
//! | lengths | powers of two from 512 bytes to 1 MiB, log-normal with a deviation of 1.2 (a factor of 3.3), of the mean of the table | assumed; the slides name 1 MiB as large |
//! | bursts | a second of 3.65 times the mean rate, then nine of less | workload D: 11,000 a second at its peak, 3,013 on the average; seconds assumed |
//! | batches | four writes at a time on the average, 20 us apart | assumed |
//! | addresses | a working set of a fifth of all bytes, in regions of 64 KiB of which the r-th most popular has a weight of 1/r (Zipf); popular ones lie anywhere | assumed; only a cache asks for them |
//!
//! Source: [bcw §Write-intensive Workload].

use std::time::Duration;

use claystone_env::{Random, SECTOR_BYTES, Sector};

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
    /// Of its time, what is measured where nobody says how much,
    pub part: f64,
    /// and with how many seeds.
    pub seeds: u64,
}

/// A write that comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// When.
    pub at: Duration,
    /// How long it is.
    pub bytes: u64,
    /// Where it begins.
    pub first: Sector,
}

impl Request {
    /// Its length in whole sectors, as devices have it.
    pub fn padded(&self) -> u64 {
        self.bytes.next_multiple_of(SECTOR_BYTES as u64)
    }
}

/// All four. A has so few writes that the solid-state drive alone stalls two to four times in a tenth of its time, and the slowest write in a
/// hundred is one of 512 KiB on an idle drive, which no steering makes shorter. All of it has some 40 stalls, and no more writes than a tenth of
/// B.
pub const WORKLOADS: [Workload; 4] = [
    Workload { name: "A", bytes: 14.7e9, writes: 0.43e6, seconds: 2700.0, part: 1.0, seeds: 3 },
    Workload { name: "B", bytes: 61.2e9, writes: 4.4e6, seconds: 1800.0, part: 0.1, seeds: 7 },
    Workload { name: "C", bytes: 7.2e9, writes: 4.8e6, seconds: 1800.0, part: 0.1, seeds: 7 },
    Workload { name: "D", bytes: 7.5e9, writes: 4.7e6, seconds: 1560.0, part: 0.1, seeds: 7 },
];

impl Workload {
    /// Its writes within `part` of its time, in their order.
    pub fn requests(&self, part: f64, random: &dyn Random) -> Vec<Request> {
        let lengths = Lengths::of_mean(self.bytes / self.writes);
        // Of a stream of their own, so that times and lengths are the same without them.
        let places = random.fork("addresses");
        let addresses = Addresses::within((self.bytes * part * WORKING_SET) as u64, &*places);
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
                let bytes = lengths.draw(random);
                let first = addresses.draw(bytes, &*places);
                requests.push(Request { at: Duration::from_secs_f64(at), bytes, first });
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
    let first = |number| Sector(number * bytes.div_ceil(SECTOR_BYTES as u64));
    (0..count).map(|number| Request { at: apart * number as u32, bytes, first: first(number) }).collect()
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

/// How often which part of a disk is written: sums of weights.
struct Addresses {
    /// By popularity,
    below: Vec<f64>,
    /// and where each of these is, as a number of regions.
    places: Vec<u64>,
}

impl Addresses {
    /// Over so many bytes.
    fn within(bytes: u64, random: &dyn Random) -> Addresses {
        // The longest write fits.
        let regions = (bytes / REGION_BYTES).max(LENGTH_MOST / REGION_BYTES);
        let mut places: Vec<u64> = (0..regions).collect();
        for at in (1..places.len()).rev() {
            places.swap(at, random.below(at as u64 + 1) as usize);
        }
        let mut sum = 0.0;
        let below = (1..=regions).map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        });
        Addresses { below: below.collect(), places }
    }

    /// Where a write of this length begins.
    fn draw(&self, bytes: u64, random: &dyn Random) -> Sector {
        let all = self.below.last().expect("there is a region");
        let wanted = share(random) * all;
        let rank = self.below.partition_point(|sum| *sum <= wanted).min(self.places.len() - 1);
        let sector = SECTOR_BYTES as u64;
        let within = random.below(REGION_BYTES / sector);
        let last = self.places.len() as u64 * (REGION_BYTES / sector) - bytes.div_ceil(sector);
        Sector((self.places[rank] * (REGION_BYTES / sector) + within).min(last))
    }
}

/// In `0..1`.
fn share(random: &dyn Random) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

const LENGTH_LEAST: u64 = 512;
const LENGTH_MOST: u64 = 1 << 20;
const DEVIATION: f64 = 1.2;
/// Bytes that are written at all, of those that are written in all.
const WORKING_SET: f64 = 0.2;
const REGION_BYTES: u64 = 64 << 10;
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
