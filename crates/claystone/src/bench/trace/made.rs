//! Requests of a block device that nobody recorded: the same ones each time, where no trace is at hand.
//!
//! An hour of a device of 256 MiB: seven of ten requests write; nine of ten of these go to a tenth of the device, and some of
//! all go on behind the one before. Lengths are from 512 bytes to 64 KiB, most of 4 KiB and more; few begin or end
//! within a page. So do those of the servers whose traces are published, roughly; what is measured with them says nothing
//! about any real device.

use claystone_model::trace::Request;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// All of them, in the order of their times.
pub fn requests() -> impl Iterator<Item = Request> {
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let mut behind = 0;
    (0..REQUESTS).map(move |number| {
        let is_write = random.random_bool(0.7);
        let bytes: u32 = match random.random_range(0..20) {
            0 => 512 * random.random_range(1..8),
            1..11 => 4096,
            11..17 => 4096 * random.random_range(2..=4),
            _ => 4096 * random.random_range(5..=16),
        };
        let hot = is_write && random.random_bool(0.9);
        let (first, bytes_of_place) = if hot { (HOT_AT, DEVICE_BYTES / 10) } else { (0, DEVICE_BYTES) };
        let unit = if bytes < 4096 { 512 } else { 4096 };
        let anywhere = first + random.random_range(0..(bytes_of_place - LONGEST_BYTES) / unit) * unit;
        let goes_on = random.random_bool(0.2) && behind + LONGEST_BYTES <= DEVICE_BYTES;
        let offset = if goes_on { behind } else { anywhere };
        behind = offset + u64::from(bytes);
        Request { at_us: number * HOUR_US / REQUESTS, volume: 0, offset, bytes, is_write }
    })
}

const SEED: u64 = 1;
const REQUESTS: u64 = 20_000;
const HOUR_US: u64 = 3_600_000_000;
const DEVICE_BYTES: u64 = 256 << 20;
const LONGEST_BYTES: u64 = 64 << 10;
/// Where the tenth begins that is written most.
const HOT_AT: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_requests_are_made_each_time_within_the_device() {
        let all: Vec<Request> = requests().collect();
        assert_eq!(all.len() as u64, REQUESTS);
        assert!(requests().eq(all.iter().copied()));
        assert!(all.iter().all(|request| request.bytes > 0 && request.end() <= DEVICE_BYTES));
        assert!(all.is_sorted_by_key(|request| request.at_us));
        let is_hot = |request: &&Request| (HOT_AT..HOT_AT + DEVICE_BYTES / 10).contains(&request.offset);
        let writes = || all.iter().filter(|request| request.is_write);
        let written = writes().count() * 100 / all.len();
        assert!((68..=72).contains(&written), "{written} % write");
        let hot = writes().filter(is_hot).count() * 100 / writes().count();
        assert!((80..=90).contains(&hot), "{hot} % of them go to the tenth");
    }
}
