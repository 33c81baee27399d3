//! What every device must do while nothing fails, checked through the trait alone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::{Device, Effort, SECTOR_BYTES, Sector, SectorRange, aligned_buffer};

/// Runs every check, each on a new device of zeros from `make`, which is given the number of sectors.
///
/// # Panics
/// If the device breaks the contract.
pub fn device_conformance(mut make: impl FnMut(u64) -> Arc<dyn Device>) {
    it_has_the_sectors_asked_for(&*make(1));
    what_was_written_is_read(&*make(1100));
    a_write_changes_only_its_sectors(&*make(64));
    any_address_of_memory_will_do(&*make(64));
    random_writes_are_read_as_in_memory(&*make(300));
    requests_at_once_are_as_one_by_one(&*make(2000));
    requests_at_once_take_any_address_of_memory(&*make(64));
    reads_at_once_may_overlap(&*make(20));
    discarded_sectors_read_and_take_writes(&*make(600));
    misuse_panics_and_changes_nothing(&*make(8));
    several_threads_may_call(make(256));
}

/// Sectors whose bytes differ by `seed`, by sector and by place.
pub fn sector_pattern(seed: u64, sectors: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(sectors * SECTOR_BYTES);
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while bytes.len() < sectors * SECTOR_BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes
}

const EFFORTS: [Effort; 2] = [Effort::FailFast, Effort::Retry];

fn read(device: &dyn Device, first: u64, sectors: usize, effort: Effort) -> Vec<u8> {
    // Not zeros, so that what is not filled shows.
    let mut into = vec![0xa5; sectors * SECTOR_BYTES];
    let failed = device.read(Sector(first), &mut into, effort).expect("the device answers");
    assert_eq!(failed, [], "no sector fails");
    into
}

fn it_has_the_sectors_asked_for(device: &dyn Device) {
    assert_eq!(device.geometry().sectors, 1);
    assert!(!device.label().is_empty());
    device.sync().expect("nothing to sync is no error");
    assert_eq!(read(device, 0, 1, Effort::FailFast), vec![0; SECTOR_BYTES], "a new device holds zeros");
}

fn what_was_written_is_read(device: &dyn Device) {
    let all = sector_pattern(1, 1100);
    let mut from = 0;
    for sectors in [1, 2, 3, 5, 250, 255, 256, 257, 71] {
        device.write(Sector(from as u64), &all[from * SECTOR_BYTES..][..sectors * SECTOR_BYTES]).expect("write");
        from += sectors;
    }
    assert_eq!(from, 1100);
    for effort in EFFORTS {
        assert!(read(device, 0, 1100, effort) == all, "before the sync");
    }
    device.sync().expect("sync");
    for effort in EFFORTS {
        for (first, sectors) in [(0, 1100), (0, 1), (1099, 1), (3, 700), (255, 2)] {
            let expected = &all[first * SECTOR_BYTES..][..sectors * SECTOR_BYTES];
            assert!(read(device, first as u64, sectors, effort) == expected, "{sectors} sectors from {first}");
        }
    }
}

fn a_write_changes_only_its_sectors(device: &dyn Device) {
    let mut expected = sector_pattern(2, 64);
    device.write(Sector(0), &expected).expect("write");
    for (seed, first, sectors) in [(3, 0, 1), (4, 63, 1), (5, 10, 7), (6, 12, 2)] {
        let bytes = sector_pattern(seed, sectors);
        device.write(Sector(first as u64), &bytes).expect("write");
        expected[first * SECTOR_BYTES..][..bytes.len()].copy_from_slice(&bytes);
        assert!(read(device, 0, 64, Effort::Retry) == expected, "after {sectors} sectors at {first}");
    }
}

fn any_address_of_memory_will_do(device: &dyn Device) {
    let content = sector_pattern(7, 9);
    for skipped in [0, 1, 512, 4095] {
        let mut memory = aligned_buffer(10 * SECTOR_BYTES);
        memory.resize(10 * SECTOR_BYTES, 0);
        let bytes = &mut memory[skipped..][..9 * SECTOR_BYTES];
        bytes.copy_from_slice(&content);
        device.write(Sector(20), bytes).expect("write");
        bytes.fill(0x5a);
        assert_eq!(device.read(Sector(20), bytes, Effort::FailFast).expect("read"), []);
        assert!(bytes == content, "{skipped} bytes behind a boundary");
        device.write(Sector(20), &vec![0; content.len()]).expect("write");
    }
}

fn random_writes_are_read_as_in_memory(device: &dyn Device) {
    let mut expected = vec![0; 300 * SECTOR_BYTES];
    let mut state = 88_172_645_463_325_252u64;
    let mut below = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % bound as u64) as usize
    };
    for step in 0..200 {
        let first = below(300);
        let sectors = 1 + below(20.min(300 - first));
        let bytes = sector_pattern(1000 + step, sectors);
        device.write(Sector(first as u64), &bytes).expect("write");
        expected[first * SECTOR_BYTES..][..bytes.len()].copy_from_slice(&bytes);
        if below(8) == 0 {
            device.sync().expect("sync");
        }
        let first = below(300);
        let sectors = 1 + below(300 - first);
        let found = read(device, first as u64, sectors, EFFORTS[below(2)]);
        assert!(found == expected[first * SECTOR_BYTES..][..found.len()], "step {step}");
    }
}

/// Reads each of `ranges`, given as (first, sectors), at once.
fn read_each(device: &dyn Device, ranges: &[(u64, usize)], effort: Effort) -> Vec<Vec<u8>> {
    let mut memory: Vec<Vec<u8>> = ranges.iter().map(|(_, sectors)| vec![0xa5; sectors * SECTOR_BYTES]).collect();
    let mut reads: Vec<(Sector, &mut [u8])> =
        ranges.iter().zip(&mut memory).map(|((first, _), into)| (Sector(*first), &mut into[..])).collect();
    let results = device.read_each(&mut reads, effort);
    assert_eq!(results.len(), ranges.len(), "one result for each");
    for result in results {
        assert_eq!(result.expect("the device answers"), [], "no sector fails");
    }
    memory
}

fn requests_at_once_are_as_one_by_one(device: &dyn Device) {
    let mut expected = vec![0; 2000 * SECTOR_BYTES];
    // (how many, sectors of each, sectors from one to the next), the last ones first: none, one, neighbours, and more
    // than any queue is deep.
    let batches = [
        (0, 1, 1),
        (1, 1, 1),
        (1, 300, 300),
        (2, 1, 1),
        (3, 2, 5),
        (64, 1, 31),
        (64, 4, 31),
        (7, 257, 280),
        (1000, 1, 2),
    ];
    for (seed, (requests, sectors, step)) in (100..).zip(batches) {
        let bytes = sector_pattern(seed, requests * sectors);
        let ranges: Vec<(u64, usize)> = (0..requests).rev().map(|request| ((request * step) as u64, sectors)).collect();
        let parts: Vec<&[u8]> = bytes.chunks_exact(sectors * SECTOR_BYTES).collect();
        let writes: Vec<(Sector, &[u8])> =
            ranges.iter().zip(&parts).map(|((first, _), part)| (Sector(*first), *part)).collect();
        device.write_each(&writes).expect("write");
        for (first, part) in &writes {
            expected[first.0 as usize * SECTOR_BYTES..][..part.len()].copy_from_slice(part);
        }
        assert!(read(device, 0, 2000, Effort::Retry) == expected, "{requests} of {sectors}");
        for effort in EFFORTS {
            let found = read_each(device, &ranges, effort);
            assert!(found.iter().zip(&parts).all(|(found, part)| found == part), "{requests} of {sectors}");
        }
    }
    device.sync().expect("sync");
    assert!(read_each(device, &[(0, 2000)], Effort::Retry)[0] == expected);
}

fn requests_at_once_take_any_address_of_memory(device: &dyn Device) {
    let content = sector_pattern(11, 12);
    let skips = [0, 1, 512, 4095, 0, 4];
    let mut memory: Vec<_> = skips.iter().map(|_| aligned_buffer(3 * SECTOR_BYTES)).collect();
    for ((memory, skipped), part) in memory.iter_mut().zip(skips).zip(content.chunks_exact(2 * SECTOR_BYTES)) {
        memory.resize(skipped, 0);
        memory.extend_from_slice(part);
    }
    let writes: Vec<(Sector, &[u8])> = (0..)
        .step_by(7)
        .map(Sector)
        .zip(memory.iter().zip(skips).map(|(memory, skipped)| &memory[skipped..]))
        .collect();
    device.write_each(&writes).expect("write");
    for (memory, skipped) in memory.iter_mut().zip(skips) {
        memory[skipped..].fill(0x5a);
    }
    let mut reads: Vec<(Sector, &mut [u8])> = (0..)
        .step_by(7)
        .map(Sector)
        .zip(memory.iter_mut().zip(skips).map(|(memory, skipped)| &mut memory[skipped..]))
        .collect();
    for result in device.read_each(&mut reads, Effort::FailFast) {
        assert_eq!(result.expect("read"), []);
    }
    for ((first, into), part) in reads.iter().zip(content.chunks_exact(2 * SECTOR_BYTES)) {
        assert!(*into == part, "at {first:?}");
    }
}

fn reads_at_once_may_overlap(device: &dyn Device) {
    let all = sector_pattern(12, 20);
    device.write(Sector(0), &all).expect("write");
    let ranges = [(3, 5), (3, 5), (0, 20), (7, 1), (19, 1), (6, 3)];
    for ((first, sectors), found) in ranges.into_iter().zip(read_each(device, &ranges, Effort::Retry)) {
        assert!(found == all[first as usize * SECTOR_BYTES..][..sectors * SECTOR_BYTES], "{sectors} from {first}");
    }
}

fn discarded_sectors_read_and_take_writes(device: &dyn Device) {
    let mut expected = sector_pattern(8, 600);
    device.write(Sector(0), &expected).expect("write");
    device.discard(SectorRange { first: Sector(1), sectors: 520 }).expect("discard");
    device.discard(SectorRange { first: Sector(599), sectors: 1 }).expect("discard");
    let around = [(0, 1), (521, 78)];
    for (first, sectors) in around {
        let found = read(device, first as u64, sectors, Effort::FailFast);
        assert!(found == expected[first * SECTOR_BYTES..][..found.len()], "the neighbours stay");
    }
    // What they hold is not said; that they read is.
    read(device, 0, 600, Effort::Retry);
    expected = sector_pattern(9, 600);
    device.write(Sector(0), &expected).expect("write");
    device.sync().expect("sync");
    assert!(read(device, 0, 600, Effort::Retry) == expected);
}

fn misuse_panics_and_changes_nothing(device: &dyn Device) {
    let expected = sector_pattern(10, 8);
    device.write(Sector(0), &expected).expect("write");
    let range = |first, sectors| SectorRange { first: Sector(first), sectors };
    let panics = |misuse: &dyn Fn()| catch_unwind(AssertUnwindSafe(misuse)).is_err();
    for (first, bytes) in [(0, 0), (0, 100), (0, 4097), (8, 4096), (7, 8192), (u64::MAX, 4096), (1 << 52, 4096)] {
        let write = || drop(device.write(Sector(first), &vec![1; bytes]));
        assert!(panics(&write), "writing {bytes} bytes at {first}");
        let read = || drop(device.read(Sector(first), &mut vec![1; bytes], Effort::Retry));
        assert!(panics(&read), "reading {bytes} bytes at {first}");
        let good = vec![1; SECTOR_BYTES];
        let write = || drop(device.write_each(&[(Sector(2), &good), (Sector(first), &vec![1; bytes])]));
        assert!(panics(&write), "writing {bytes} bytes at {first} among others");
        let (mut good, mut bad) = (good.clone(), vec![1; bytes]);
        let mut reads: [(Sector, &mut [u8]); 2] = [(Sector(2), &mut good), (Sector(first), &mut bad)];
        let result = catch_unwind(AssertUnwindSafe(|| drop(device.read_each(&mut reads, Effort::Retry))));
        assert!(result.is_err() && good == [1; SECTOR_BYTES], "reading {bytes} bytes at {first} among others");
    }
    for bad in [range(0, 0), range(8, 1), range(7, 2), range(u64::MAX, 1), range(1, u64::MAX)] {
        assert!(panics(&|| drop(device.discard(bad))), "discarding {bad:?}");
    }
    assert!(read(device, 0, 8, Effort::Retry) == expected);
}

/// Each thread has sectors of its own; this crate may start threads only where a test of several callers needs them.
#[expect(clippy::disallowed_methods)]
fn several_threads_may_call(device: Arc<dyn Device>) {
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let device = &*device;
            scope.spawn(move || {
                for step in 0..10 {
                    let bytes = sector_pattern(100 * (thread + 1) + step, 64);
                    let places = (thread * 64..).step_by(16).map(Sector);
                    let writes: Vec<(Sector, &[u8])> = places.zip(bytes.chunks_exact(16 * SECTOR_BYTES)).collect();
                    device.write_each(&writes).expect("write");
                    let ranges = [(thread * 64 + 32, 32), (thread * 64, 32)];
                    let found = read_each(device, &ranges, Effort::Retry);
                    assert!(found[1] == bytes[..32 * SECTOR_BYTES], "thread {thread}, step {step}");
                    assert!(found[0] == bytes[32 * SECTOR_BYTES..], "thread {thread}, step {step}");
                    let bytes = sector_pattern(100 * (thread + 5) + step, 64);
                    device.write(Sector(thread * 64), &bytes).expect("write");
                    if step % 4 == thread {
                        device.sync().expect("sync");
                    }
                    assert!(read(device, thread * 64, 64, Effort::FailFast) == bytes, "thread {thread}, step {step}");
                }
            });
        }
    });
}
