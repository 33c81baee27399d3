//! What small synced writes cost the device, counted: bytes, syncs, and the time of an emulated hard disk.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use claystone_env::{Clock, Device, Moment, Random, SECTOR_BYTES, WallTime};
use claystone_sim::{HddModel, SimDevice, SimRandom};

use super::{Disk, Format, Tuning};
use crate::testing::new_node;
use crate::{FileTree, Inode, Kind};

/// A clock that is told the time.
#[derive(Default)]
struct Told(AtomicU64);

impl Clock for Told {
    fn now(&self) -> Moment {
        Moment(Duration::from_micros(self.0.load(Ordering::Relaxed)))
    }

    fn wall(&self) -> WallTime {
        WallTime { unix_ms: 1_000_000_000_000 + self.0.load(Ordering::Relaxed) / 1000 }
    }

    fn sleep(&self, _delay: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::ready(()))
    }
}

/// How long a synced write takes whoever asks for it.
#[derive(Debug, Clone, Copy)]
enum Rate {
    /// So long, whatever the device does.
    Each(Duration),
    /// As long as an emulated hard disk takes.
    Drive,
}

/// What is written, and to which disk.
#[derive(Debug, Clone, Copy)]
struct Load {
    parity: u16,
    copies: u16,
    positions: u64,
    file_sectors: u64,
    writes: u64,
    rate: Rate,
}

/// What a write costs.
#[derive(Debug, Clone, Copy)]
struct Cost {
    written_kib: f64,
    read_kib: f64,
    syncs: f64,
    drive_ms: f64,
}

/// Sectors anywhere in a file are written, and each is made durable, while the disk is tended as a mount tends it.
fn cost(load: Load) -> Cost {
    let Load { parity, copies, positions, file_sectors, writes, rate } = load;
    let drive = SimDevice::alone("d", HddModel::new(file_sectors * 5 / 4 + (1 << 17)), 5);
    let device: Arc<dyn Device> = drive.attach();
    let (clock, random) = (Arc::new(Told::default()), SimRandom::new(9));
    let format = Format { data: 250, parity, copies, soft_failures: 1e-3, loss_target: 1e-6, label: String::new() };
    Disk::format_with_journal(&device, &format, positions, &*clock, &random).expect("formatted");
    let disk = Disk::open(device, clock.clone(), Tuning::default()).expect("opens");
    let file = disk.make(Inode::ROOT, b"f", &new_node(Kind::File, 0o600)).expect("made").inode;
    // Zeros take no memory of the emulated device.
    let zeros = vec![0; 1 << 20];
    let bytes = SECTOR_BYTES as u64;
    for first in (0..file_sectors).step_by(256) {
        let part = (file_sectors - first).min(256) * bytes;
        disk.write(file, first * bytes, &zeros[..part as usize]).expect("written");
    }
    disk.sync_all().expect("synced");
    disk.checkpoint(&disk.lock_flusher()).expect("made");
    let random = random.fork("places");
    let (before, begun) = (drive.stats(), drive.spent());
    let (mut tended_us, mut now_us) = (0, 0);
    let start_us = clock.0.load(Ordering::Relaxed);
    let mut content = vec![0; SECTOR_BYTES];
    for _ in 0..writes {
        random.fill(&mut content[..64]);
        disk.write(file, random.below(file_sectors) * bytes, &content).expect("written");
        disk.sync(file).expect("synced");
        now_us = match rate {
            Rate::Each(each) => now_us + each.as_micros() as u64,
            Rate::Drive => (drive.spent() - begun).as_micros() as u64,
        };
        clock.0.store(start_us + now_us, Ordering::Relaxed);
        if now_us >= tended_us + 50_000 {
            disk.tend().expect("tended");
            if matches!(rate, Rate::Drive) {
                now_us = (drive.spent() - begun).as_micros() as u64;
            }
            tended_us = now_us;
        }
    }
    let (after, each) = (drive.stats(), |count: u64| count as f64 / writes as f64);
    assert_eq!(disk.check().expect("it reads").problems, []);
    Cost {
        written_kib: each(after.sectors_written - before.sectors_written) * 4.0,
        read_kib: each(after.sectors_read - before.sectors_read) * 4.0,
        syncs: each(after.syncs - before.syncs),
        drive_ms: (drive.spent() - begun).as_secs_f64() * 1e3 / writes as f64,
    }
}

const FAST: Rate = Rate::Each(Duration::from_micros(300));

/// What parity costs beside none: with as much of the device for the journal, and as many changes to a group, as on a disk of 4 GiB with
/// a file of 1 GiB.
#[test]
fn a_synced_write_costs_little_more_with_parity() {
    let small =
        |parity, copies, positions| Load { parity, copies, positions, file_sectors: 1 << 15, writes: 4000, rate: FAST };
    let (coded, plain) = (cost(small(5, 2, 1024)), cost(small(0, 1, 2048)));
    assert!(coded.written_kib < 34.5 && coded.read_kib < 15.5, "{coded:?}");
    assert!(plain.written_kib < 15.0 && plain.read_kib < 0.5, "{plain:?}");
    assert!(coded.syncs < 1.06, "{coded:?}");
}

/// The figures of a decision: `cargo test -p claystone-files synced -- --ignored --nocapture`.
#[test]
#[ignore = "a table for people, of some minutes"]
fn costs_by_the_length_of_the_journal() {
    for rate in [FAST, Rate::Drive] {
        for (parity, copies) in [(5, 2), (0, 1)] {
            for mib in [16, 32, 64, 128, 200, 256] {
                // Of the device, with copies.
                let positions = (mib << 8) / u64::from(copies);
                let writes = if matches!(rate, Rate::Drive) { 5000 } else { 20_000 };
                let Cost { written_kib, read_kib, syncs, drive_ms } =
                    cost(Load { parity, copies, positions, file_sectors: 1 << 18, writes, rate });
                println!(
                    "{rate:?}, m {parity}, journal {mib} MiB: {written_kib:.2} KiB written and {read_kib:.2} read a write, \
                     {syncs:.3} syncs, {drive_ms:.2} ms of a hard disk"
                );
            }
        }
    }
}
