//! Images that are read, cut and refused; what is one sector's failure, and what the device's.

use std::cell::Cell;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use claystone_env::testing::{device_conformance, sector_pattern};

use super::*;

fn scratch() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("image");
    (dir, path)
}

fn conforms(change: impl Fn(&mut HostDevice)) {
    let (dir, _) = scratch();
    let made = AtomicU32::new(0);
    device_conformance(|sectors| {
        let name = made.fetch_add(1, Ordering::Relaxed).to_string();
        let mut device = HostDevice::create(dir.path().join(name), sectors).expect("an image");
        change(&mut device);
        Arc::new(device)
    });
}

#[test]
fn an_image_is_a_device() {
    conforms(|_| ());
}

#[test]
fn an_image_is_a_device_with_plain_calls_alone() {
    conforms(|device| device.rings = Err("a test wants none"));
}

#[test]
fn an_image_is_a_device_through_the_page_cache_too() {
    conforms(|device| {
        device.direct = None;
        device.rings = Err("a test wants none");
    });
}

/// As where a file system opens files for direct access, and then serves some requests through its cache.
#[test]
fn an_image_is_a_device_where_the_ring_reads_through_the_page_cache() {
    conforms(|device| device.direct = Some(device.file.try_clone().expect("a second handle")));
}

#[test]
fn the_engine_is_the_one_in_use() {
    let (_keep, path) = scratch();
    let mut device = HostDevice::create(&path, 10).expect("an image");
    let made = Rings::new();
    match device.engine() {
        Engine::IoUring => assert!(made.is_ok() && device.is_direct()),
        Engine::Plain { why } => assert!(!device.is_direct() || made.is_err_and(|found| found == why)),
    }
    device.rings = Err("a test wants none");
    assert_eq!(device.engine(), Engine::Plain { why: "a test wants none" });
    assert!(device.rings(64).is_none());
}

#[test]
fn what_was_written_is_there_when_it_is_opened_again() {
    let (_keep, path) = scratch();
    let device = HostDevice::create(&path, 100).expect("an image");
    assert_eq!(HostDevice::create(&path, 100).expect_err("taken").kind(), io::ErrorKind::AlreadyExists);
    let bytes = sector_pattern(1, 30);
    device.write(Sector(70), &bytes).expect("write");
    device.sync().expect("sync");
    device.sync().expect("sync");
    assert_eq!(HostDevice::open(&path).expect_err("held").kind(), io::ErrorKind::WouldBlock);
    drop(device);
    let device = HostDevice::open(&path).expect("free again");
    assert_eq!(device.geometry(), Geometry { sectors: 100, fails_fast: false, ..device.geometry() });
    let mut read = vec![1; 30 * SECTOR_BYTES];
    assert_eq!(device.read(Sector(70), &mut read, Effort::Retry).expect("read"), []);
    assert!(read == bytes);
}

/// What a ring of a process that died has under way keeps the file open that it goes through.
#[test]
fn a_device_is_held_until_what_was_under_way_is_done() {
    let (_keep, path) = scratch();
    let device = HostDevice::create(&path, 100).expect("an image");
    let Some(direct) = &device.direct else { return };
    let under_way = direct.try_clone().expect("handles are left");
    drop(device);
    assert_eq!(HostDevice::open(&path).expect_err("held").kind(), io::ErrorKind::WouldBlock);
    let lets_go = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        drop(under_way);
    });
    HostDevice::open(&path).expect("it waits for a moment");
    lets_go.join().expect("it does not panic");
}

#[test]
fn what_is_no_device_is_refused() {
    let (dir, path) = scratch();
    let kind = |path: &Path| HostDevice::open(path).expect_err("no device").kind();
    assert_eq!(kind(&path), io::ErrorKind::NotFound);
    assert_eq!(kind(dir.path()), io::ErrorKind::InvalidInput);
    assert_eq!(kind(Path::new("/dev/null")), io::ErrorKind::InvalidInput);
    fs::write(&path, vec![7; SECTOR_BYTES - 1]).expect("write");
    assert_eq!(kind(&path), io::ErrorKind::InvalidInput);
    // What is behind the last whole sector is nobody's.
    fs::write(&path, vec![7; 3 * SECTOR_BYTES + 100]).expect("write");
    let device = HostDevice::open(&path).expect("long enough");
    assert_eq!(device.geometry().sectors, 3);
    device.write(Sector(0), &sector_pattern(1, 3)).expect("write");
    device.sync().expect("sync");
    assert_eq!(fs::read(&path).expect("read")[3 * SECTOR_BYTES..], [7; 100]);
}

#[test]
fn a_device_for_reading_takes_no_writes() {
    let (_keep, path) = scratch();
    let mut device = HostDevice::create(&path, 10).expect("an image");
    device.writable = false;
    let range = SectorRange { first: Sector(3), sectors: 2 };
    let refused = |result| matches!(result, Err(DeviceError::ReadOnly { range: found }) if found == range);
    assert!(refused(device.write(Sector(3), &sector_pattern(1, 2))));
    assert!(refused(device.discard(range)));
    let bytes = sector_pattern(1, 2);
    assert!(refused(device.write_each(&[(Sector(3), &bytes), (Sector(5), &bytes)])));
    let mut read = vec![1; 10 * SECTOR_BYTES];
    assert_eq!(device.read(Sector(0), &mut read, Effort::FailFast).expect("read"), []);
    assert!(read.iter().all(|byte| *byte == 0));
}

#[test]
fn an_image_that_was_cut_does_not_answer() {
    let (_keep, path) = scratch();
    let device = HostDevice::create(&path, 10).expect("an image");
    fs::OpenOptions::new().write(true).open(&path).expect("open").set_len(5 * 4096).expect("cut");
    let mut read = vec![1; 2 * SECTOR_BYTES];
    assert_eq!(device.read(Sector(3), &mut read, Effort::Retry).expect("read"), []);
    let error = device.read(Sector(4), &mut read, Effort::Retry).expect_err("cut");
    let DeviceError::Read { range, source } = error else { panic!("{error}") };
    assert_eq!((range.first, range.sectors, source.kind()), (Sector(4), 2, io::ErrorKind::UnexpectedEof));
}

#[test]
fn requests_at_once_fail_each_by_itself() {
    let (_keep, path) = scratch();
    let device = HostDevice::create(&path, 200).expect("an image");
    let bytes = sector_pattern(1, 200);
    device.write(Sector(0), &bytes).expect("write");
    fs::OpenOptions::new().write(true).open(&path).expect("open").set_len(100 * 4096).expect("cut");
    let mut memory = vec![[1; SECTOR_BYTES]; 200];
    let mut reads: Vec<(Sector, &mut [u8])> =
        (0..).map(Sector).zip(memory.iter_mut().map(|into| &mut into[..])).collect();
    for (sector, result) in (0u64..).zip(device.read_each(&mut reads, Effort::Retry)) {
        match result {
            Ok(failed) => assert!(sector < 100 && failed.is_empty()),
            Err(DeviceError::Read { range, source }) => {
                assert_eq!(
                    (range.first, range.sectors, source.kind()),
                    (Sector(sector), 1, io::ErrorKind::UnexpectedEof)
                );
                assert!(sector >= 100);
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(memory[..100].concat() == bytes[..100 * SECTOR_BYTES]);
}

#[path = "no_ring.rs"]
mod no_ring;

/// What stands for a ring where there is none has its calls, or no system without one builds.
#[test]
fn what_stands_for_a_ring_has_its_calls() {
    type Reads<R> = fn(&mut R, &fs::File, &mut [(u64, &mut [u8])], u16) -> Vec<io::Result<usize>>;
    type Writes<R> = fn(&mut R, &fs::File, &[(u64, &[u8])]) -> Vec<io::Result<usize>>;
    type IsSpent<R> = fn(&mut R) -> bool;
    let _: (Reads<ring::Ring>, Reads<no_ring::Ring>) = (ring::Ring::read, no_ring::Ring::read);
    let _: (Writes<ring::Ring>, Writes<no_ring::Ring>) = (ring::Ring::write, no_ring::Ring::write);
    let _: (IsSpent<ring::Ring>, IsSpent<no_ring::Ring>) = (ring::Ring::is_spent, no_ring::Ring::is_spent);
    assert!(no_ring::Ring::new().is_err());
}

/// Whatever a first try came to, the request is done as if it was not tried, unless the device failed.
#[test]
fn what_a_try_lacks_is_done_by_plain_calls() {
    let (_keep, path) = scratch();
    let device = HostDevice::create(&path, 600).expect("an image");
    // More than what goes through our own buffer at a time.
    let (sectors, skips) = (300, [0, 8]);
    let expected = sector_pattern(1, sectors);
    let range = SectorRange { first: Sector(100), sectors: sectors as u64 };
    let done = [0, 1, 511, 512, 4095, 4096, 5000, 40 * 4096, 256 * 4096, 257 * 4096, expected.len()];
    let of_the_try = [Errno::INTR, Errno::AGAIN, Errno::INVAL];
    for skipped in skips {
        let mut memory = aligned_buffer(expected.len() + skipped);
        memory.resize(expected.len() + skipped, 0);
        let memory = &mut memory[skipped..];
        assert_eq!(is_aligned(memory), skipped == 0);

        let tries = done.map(Ok).into_iter().chain(of_the_try.map(|errno| Err(io::Error::from(errno))));
        for (step, begun) in tries.enumerate() {
            let old = sector_pattern(2 + step as u64, sectors);
            device.write(Sector(100), &old).expect("write");
            let written = *begun.as_ref().unwrap_or(&0);
            memory.copy_from_slice(&expected);
            let told = format!("{begun:?}, {skipped} bytes behind a boundary");
            device.finish_write(range, memory, begun).expect("write");
            let mut found = vec![0; expected.len()];
            device.read(Sector(100), &mut found, Effort::Retry).expect("read");
            // What was said to be written, in whole sectors, was not touched.
            let untouched = written / SECTOR_BYTES * SECTOR_BYTES;
            assert!(found[..untouched] == old[..untouched] && found[untouched..] == expected[untouched..], "{told}");
        }

        device.write(Sector(100), &expected).expect("write");
        // Of errors of the medium too: our image reads at the second try. What ends at once, or in a sector, is one.
        let of_the_medium = [Errno::IO, Errno::NODATA, Errno::REMOTEIO].map(|errno| Err(io::Error::from(errno)));
        let tries =
            done.map(Ok).into_iter().skip(1).chain(of_the_try.map(|errno| Err(errno.into()))).chain(of_the_medium);
        for begun in tries {
            let read = *begun.as_ref().unwrap_or(&0);
            memory.fill(0x5a);
            memory[..read].copy_from_slice(&expected[..read]);
            let told = format!("{begun:?}, {skipped} bytes behind a boundary");
            assert_eq!(device.finish_read(range, memory, Effort::Retry, begun).expect("read"), [], "{told}");
            assert!(memory == expected, "{told}");
        }
        let gone = |errno: Errno| Err(io::Error::from(errno));
        let error = device.finish_read(range, memory, Effort::Retry, gone(Errno::NODEV)).expect_err("gone");
        assert!(matches!(error, DeviceError::Read { range: found, .. } if found == range));
        assert!(
            matches!(device.finish_read(range, memory, Effort::Retry, Ok(0)), Err(DeviceError::Read { .. })),
            "the end"
        );
        let error = device.finish_write(range, memory, gone(Errno::IO)).expect_err("not tried again");
        assert!(matches!(error, DeviceError::Write { range: found, .. } if found == range));
        assert!(matches!(device.finish_write(range, memory, gone(Errno::NOSPC)), Err(DeviceError::NoSpace { .. })));
    }
    let one = SectorRange { first: Sector(100), sectors: 1 };
    for begun in [Ok(512), Err(Errno::IO.into())] {
        let mut into = [0x5a; SECTOR_BYTES];
        let failed = device.finish_read(one, &mut into, Effort::FailFast, begun).expect("one sector failed");
        assert_eq!(failed, [FailedSector { sector: Sector(100), failure: SectorFailure::Lost }]);
        assert_eq!(into, [0; SECTOR_BYTES]);
    }
}

#[test]
fn what_a_limited_drive_gives_up_on_is_soft_and_is_read_again_to_retry() {
    let (_keep, path) = scratch();
    let mut device = HostDevice::create(&path, 10).expect("an image");
    assert_eq!(device.drive(), None);
    assert_eq!(device.error_recovery().to_string(), "no limit can be told: an image has no drive of its own");
    let expected = sector_pattern(1, 1);
    device.write(Sector(3), &expected).expect("write");
    let limited = |read_ms| ErrorRecovery::Limited { read_ms, write_ms: Some(7000) };
    let recoveries = [(ErrorRecovery::Unlimited, false), (limited(None), false), (limited(Some(7000)), true)];
    for (recovery, fails_fast) in recoveries {
        device.error_recovery = recovery;
        assert_eq!(device.geometry(), Geometry { sectors: 10, fails_fast, ..device.geometry() });
        for effort in [Effort::FailFast, Effort::Retry] {
            let range = SectorRange { first: Sector(3), sectors: 1 };
            let mut into = [0x5a; SECTOR_BYTES];
            let failed = device.finish_read(range, &mut into, effort, Err(Errno::TIME.into())).expect("it answers");
            let failure = match (fails_fast, effort) {
                (false, _) => Some(SectorFailure::Lost),
                (true, Effort::FailFast) => Some(SectorFailure::Soft),
                (true, Effort::Retry) => None,
            };
            let wanted = failure.map(|failure| FailedSector { sector: Sector(3), failure });
            assert_eq!(failed, Vec::from_iter(wanted));
            assert!(into[..] == if failure.is_some() { vec![0; SECTOR_BYTES] } else { expected.clone() });
        }
    }
}

#[test]
fn more_threads_than_rings_each_read_what_they_wrote() {
    const THREADS: u64 = 20;
    let (_keep, path) = scratch();
    let device = HostDevice::create(&path, THREADS * 200).expect("an image");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let device = &device;
            scope.spawn(move || {
                for step in 0..5 {
                    let bytes = sector_pattern(100 * thread + step, 100);
                    let places = (thread * 200..).step_by(2).map(Sector);
                    let writes: Vec<(Sector, &[u8])> = places.clone().zip(bytes.chunks(SECTOR_BYTES)).collect();
                    device.write_each(&writes).expect("write");
                    let mut found = vec![1; bytes.len()];
                    let mut reads: Vec<(Sector, &mut [u8])> = places.zip(found.chunks_mut(SECTOR_BYTES)).collect();
                    for result in device.read_each(&mut reads, Effort::FailFast) {
                        assert_eq!(result.expect("read"), []);
                    }
                    assert!(found == bytes, "thread {thread}, step {step}");
                }
            });
        }
    });
}

#[test]
fn discarding_gives_space_back() {
    let (_keep, path) = scratch();
    let device = HostDevice::create(&path, 1000).expect("an image");
    device.write(Sector(0), &sector_pattern(1, 1000)).expect("write");
    device.sync().expect("sync");
    let used = || fs::metadata(&path).expect("metadata").blocks() * 512;
    let before = used();
    device.discard(SectorRange { first: Sector(100), sectors: 800 }).expect("discard");
    device.sync().expect("sync");
    // File systems that cannot do nothing; ours can.
    assert!(used() == before || used() + 700 * 4096 <= before, "{} of {before} bytes", used());
    assert_eq!(device.geometry().sectors, 1000);
}

#[test]
fn no_sync_makes_up_for_a_failed_one() {
    let mut syncs = Syncs::None;
    let mut seen = Vec::new();
    for fails in [false, false, true, false] {
        let done = syncs.run(|whole| {
            seen.push(whole);
            if fails { Err(Errno::IO.into()) } else { Ok(()) }
        });
        assert_eq!(done.is_ok(), !fails && seen.len() < 3);
    }
    assert_eq!(seen, [true, false, false], "the whole file first; nothing after a failure");
}

#[test]
fn errors_of_writes_say_what_to_do() {
    let range = SectorRange { first: Sector(1), sectors: 2 };
    let error = |errno: Errno| write_error(range, errno.into());
    assert!(matches!(error(Errno::NOSPC), DeviceError::NoSpace { .. }));
    assert!(matches!(error(Errno::DQUOT), DeviceError::NoSpace { .. }));
    assert!(matches!(error(Errno::ROFS), DeviceError::ReadOnly { .. }));
    assert!(matches!(error(Errno::IO), DeviceError::Write { .. }));
    assert_eq!(error(Errno::IO).to_string(), "the device did not write sectors 1..3");
}

/// Reads sectors that hold their number, of which some do not read, as a system might: up to the first bad one, or not
/// at all; in parts; interrupted.
fn read_around(bad: &[u64], sectors: usize, manner: u64) -> (Vec<u8>, Vec<Sector>, u64) {
    let (first, reads) = (1000, Cell::new(0));
    let mut read = |at: Sector, into: &mut [u8]| {
        reads.set(reads.get() + 1);
        if manner == 3 && reads.get() % 2 == 0 {
            return Err(Errno::INTR.into());
        }
        let end = at.0 + (into.len() / SECTOR_BYTES) as u64;
        let good = match bad.iter().copied().filter(|bad| (at.0..end).contains(bad)).min() {
            None if manner == 3 => (end - at.0).min(3),
            None => end - at.0,
            Some(_) if manner == 0 => return Err(Errno::IO.into()),
            Some(bad) if bad > at.0 => bad - at.0,
            Some(_) if manner == 2 => return Ok(512),
            Some(_) => return Err(Errno::NODATA.into()),
        };
        for (sector, part) in (at.0..at.0 + good).zip(into.chunks_mut(SECTOR_BYTES)) {
            part.copy_from_slice(&sector.to_le_bytes().repeat(512));
        }
        Ok(good as usize * SECTOR_BYTES)
    };
    let (mut into, mut failed) = (vec![0xa5; sectors * SECTOR_BYTES], Vec::new());
    read_by_parts(Sector(first), &mut into, &mut failed, &mut read).expect("only single sectors fail");
    (into, failed, reads.get())
}

#[test]
fn dividing_finds_just_the_bad_sectors() {
    let sectors = 64u64;
    let all: Vec<u64> = (1000..1000 + sectors).collect();
    let some: [&[u64]; 7] =
        [&[], &[1000], &[1063], &[1031, 1032], &[1000, 1063], &[1005, 1017, 1018, 1019, 1050], &all];
    for bad in some {
        for manner in 0..4 {
            let (bytes, failed, reads) = read_around(bad, sectors as usize, manner);
            let found: Vec<u64> = failed.iter().map(|failed| failed.0).collect();
            assert_eq!(found, bad, "manner {manner}");
            for (sector, part) in (1000u64..).zip(bytes.chunks(SECTOR_BYTES)) {
                let expected = if bad.contains(&sector) { 0 } else { sector };
                assert!(part == expected.to_le_bytes().repeat(512), "sector {sector}, manner {manner}");
            }
            // The first; for each bad one 16 of four sectors, and four of one.
            assert!(manner == 3 || reads <= 1 + 20 * bad.len() as u64, "{reads} reads for {bad:?}, manner {manner}");
        }
    }
}

#[test]
fn other_errors_are_of_the_device() {
    for errno in [Errno::NODEV, Errno::NXIO, Errno::NOMEM] {
        let mut failed = Vec::new();
        let mut into = vec![0; 4 * SECTOR_BYTES];
        let error = read_by_parts(Sector(0), &mut into, &mut failed, &mut |_, _| Err(errno.into()));
        assert_eq!(error.expect_err("the device is gone").raw_os_error(), Some(errno.raw_os_error()));
        assert_eq!(failed, []);
    }
}

#[test]
fn reads_that_may_fail_fast_ask_for_the_drive_s_first_duration_limit() {
    let (_keep, path) = scratch();
    drop(HostDevice::create(&path, 10).expect("an image"));
    let drive = |duration_limits| Drive {
        name: "sda".to_owned(),
        attachment: Attachment::Scsi,
        rotational: Some(true),
        vendor: None,
        model: None,
        timeout_s: Some(30),
        duration_limits,
    };
    let mut device = HostDevice::open(&path).expect("opens");
    device.drive = Some(drive(DurationLimits::Off));
    assert!(!device.geometry().fails_fast);
    assert!(device.manner().concat().contains("the system does not use them"), "{:?}", device.manner());
    device.drive = Some(drive(DurationLimits::On));
    if device.engine() != Engine::IoUring {
        eprintln!("skipped: there is no io_uring to ask through");
        return;
    }
    assert!(device.geometry().fails_fast);
    // Class best effort, hint 1, level 4.
    assert_eq!([Effort::FailFast, Effort::Retry].map(|effort| device.priority(effort)), [0x400c, 0]);
    // Turned on here, they are asked for; whether there is one is not known.
    device.drive = Some(drive(DurationLimits::TurnedOn));
    assert!(!device.geometry().fails_fast);
    assert_eq!([Effort::FailFast, Effort::Retry].map(|effort| device.priority(effort)), [0x400c, 0]);
    let (rings, direct) = device.limited_rings().expect("it has rings");
    let mut into = aligned_buffer(SECTOR_BYTES);
    into.resize(SECTOR_BYTES, 1);
    let read = rings.read(direct, &mut [(Sector(3), &mut into[..])], device.priority(Effort::FailFast)).pop();
    match read.expect("one answer") {
        Ok(bytes) => assert_eq!((bytes, &into[..]), (SECTOR_BYTES, &[0; SECTOR_BYTES][..])),
        // A system before Linux 6.5, where no drive has its limits on.
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::InvalidInput),
    }
    drop(device);
    conforms(|device| device.drive = Some(drive(DurationLimits::On)));
}
