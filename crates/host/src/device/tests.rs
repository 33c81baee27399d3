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
fn an_image_is_a_device_through_the_page_cache_too() {
    conforms(|device| device.direct = None);
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
    assert_eq!(device.geometry(), Geometry { sectors: 100, fails_fast: false });
    let mut read = vec![1; 30 * SECTOR_BYTES];
    assert_eq!(device.read(Sector(70), &mut read, Effort::Retry).expect("read"), []);
    assert!(read == bytes);
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
fn read_around(bad: &[u64], sectors: usize, manner: u64) -> (Vec<u8>, Vec<FailedSector>, u64) {
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
            let found: Vec<u64> = failed.iter().map(|failed| failed.sector.0).collect();
            assert_eq!(found, bad, "manner {manner}");
            assert!(failed.iter().all(|failed| failed.failure == SectorFailure::Lost));
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
