//! How long an opening after a crash takes, by indexes and without: on emulated drives in simulated time, or on files.
//!
//! ```console
//! $ cargo run --release -p claystone-tier --example opening
//! $ cargo run --release -p claystone-tier --example opening -- DIR
//! ```
//!
//! One log is filled with 256 MiB in writes of one length, a sync behind every so many, without bringing anything home; then the pair is opened
//! again. Shown is the time of both drives, which are asked one after the other; and what indexes take, of what users wrote.

#![allow(clippy::disallowed_methods, reason = "measures real time, on files of a real directory")]

use std::error::Error;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use claystone_env::testing::sector_pattern;
use claystone_env::{Device, Moment, SECTOR_BYTES, Sector};
use claystone_host::HostDevice;
use claystone_sim::{BufferModel, DriveModel, HddModel, SimDevice, SimRandom, SsdModel};
use claystone_tier::{Steering, TierFormat, TierTuning, TieredDevice};

/// What is written.
struct Load {
    name: &'static str,
    /// Sectors of a write,
    sectors: u64,
    /// writes to a sync,
    to_sync: u64,
    /// and every so many to the hard disk's log.
    redirected: u64,
}

const LOADS: [Load; 5] = [
    Load { name: "4 KiB on the solid-state drive", sectors: 1, to_sync: 1000, redirected: u64::MAX },
    Load { name: "the same, each synced", sectors: 1, to_sync: 1, redirected: u64::MAX },
    Load { name: "64 KiB on the solid-state drive", sectors: 16, to_sync: 500, redirected: u64::MAX },
    Load { name: "4 KiB on the hard disk", sectors: 1, to_sync: 1000, redirected: 1 },
    Load { name: "64 KiB on the hard disk", sectors: 16, to_sync: 500, redirected: 1 },
];

/// Of users' writes.
const BYTES: u64 = 256 << 20;
/// Each log: nothing is brought home.
const LOG: u64 = 4 * HOME;
const HOME: u64 = BYTES / SECTOR_BYTES as u64;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args_os().nth(1).map(PathBuf::from);
    for load in LOADS {
        let whole = opening(&load, u64::MAX, dir.as_deref())?;
        let by_index = opening(&load, TierTuning::default().index_every_sectors, dir.as_deref())?;
        println!(
            "{:32} whole {:6.2} s of {:4} MiB   by indexes {:5.2} s of {:3} MiB and {:4} KiB of indexes; written as these {:.2} %",
            load.name,
            whole.took.as_secs_f64(),
            whole.log_sectors >> 8,
            by_index.took.as_secs_f64(),
            by_index.log_sectors >> 8,
            by_index.index_sectors * 4,
            100.0 * by_index.written_sectors as f64 / HOME as f64
        );
    }
    Ok(())
}

/// What was measured.
struct Measured {
    took: Duration,
    log_sectors: u64,
    index_sectors: u64,
    /// Of indexes, before the opening.
    written_sectors: u64,
}

fn opening(load: &Load, index_every_sectors: u64, dir: Option<&Path>) -> Result<Measured, Box<dyn Error>> {
    let [hdd, ssd] = drives(dir)?;
    let format = TierFormat { hdd_log_sectors: Some(LOG), ..TierFormat::default() };
    TieredDevice::format(&*hdd, &*ssd, &format, &SimRandom::new(1))?;
    let steering = Steering::EveryNth(NonZeroU64::new(load.redirected).ok_or("not 0")?);
    let tuning = TierTuning { steering, index_every_sectors, ..TierTuning::default() };
    let open = || TieredDevice::open(hdd.clone(), Some(ssd.clone()), Arc::new(Moment::default), tuning);
    let device = open()?;
    let bytes = sector_pattern(7, load.sectors as usize);
    for (at, number) in (0..HOME).step_by(load.sectors as usize).zip(1u64..) {
        device.write(Sector(at), &bytes)?;
        if number.is_multiple_of(load.to_sync) {
            device.sync()?;
            device.index();
        }
    }
    let written_sectors = device.info().counts.index_sectors;
    drop(device);
    let spent = || Some(hdd.elapsed()? + ssd.elapsed()?);
    let (before, begun) = (spent(), Instant::now());
    let opening = open()?.info().opening;
    let of_real = begun.elapsed();
    let took = spent().zip(before).map_or(of_real, |(after, before)| after - before);
    Ok(Measured { took, log_sectors: opening.log_sectors, index_sectors: opening.index_sectors, written_sectors })
}

/// A hard disk and a solid-state drive: emulated, or files in a directory.
fn drives(dir: Option<&Path>) -> Result<[Arc<dyn Device>; 2], Box<dyn Error>> {
    let sectors = [HOME + LOG + 2, LOG + 2];
    let Some(dir) = dir else {
        let hdd = SimDevice::alone("hdd", HddModel::buffered(sectors[0], BufferModel::wd_10tb_like()), 1);
        let model = SsdModel { stall_every_sectors: 0, ..SsdModel::nvme_desktop() };
        let ssd = SimDevice::alone("ssd", DriveModel::Ssd { sectors: sectors[1], model }, 1);
        return Ok([hdd.attach(), ssd.attach()]);
    };
    let file = |name, sectors| -> Result<Arc<dyn Device>, Box<dyn Error>> {
        let path = dir.join(name);
        // One of a measurement before.
        drop(std::fs::remove_file(&path));
        Ok(Arc::new(HostDevice::create(path, sectors)?))
    };
    Ok([file("opening-hdd.img", sectors[0])?, file("opening-ssd.img", sectors[1])?])
}
