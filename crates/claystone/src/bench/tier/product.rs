//! The device that ships, in simulated time: a [`TieredDevice`] over the same drives, with its records, marks, syncs and padding.
//!
//! ```text
//! requests at their time --> TieredDevice::write, each on a thread --> its two devices ask the world --> done
//! one task: TieredDevice::tend, as the program has it tended
//! one task: TieredDevice::sync_early and index, likewise
//! one task: TieredDevice::sync, as a file system does
//! ```
//!
//! Invariants:
//! 1. Nothing here decides where a write goes: the device does, with the settings it ships with.
//!
//! Left out: users' reads; and what is brought home because a log is full, as of the other ways: the logs have room for all. What waits for long
//! is brought home.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use claystone_env::{
    Clock, Device, DeviceError, Effort, FailedSector, Geometry, SECTOR_BYTES, Sector, SectorRange, Worker, call,
};
use claystone_sim::{HddModel, Process, SimSsd, World, WriteOrder};
use claystone_tier::{Mode, Side, TierFormat, TierTuning, TieredDevice};

use super::bed::ZEROS;
use super::blocking::{Blocking, Wish, ask};
use super::devices::{Devices, Known};
use super::tally::{Advance, Outcome, Tally};
use super::workload::Request;
use crate::drives::{SYNC_EARLY_EVERY, pause_after};

/// Everything of one run.
pub struct Product {
    clock: Arc<dyn Clock>,
    device: Arc<TieredDevice>,
    blocking: Blocking,
    ssd: SimSsd,
    // It lives as long as the hard disk is written to.
    _process: Process,
    worker: Arc<dyn Worker>,
    hdd: Arc<dyn Device>,
    tally: Tally,
    /// Writes in the solid-state drive.
    in_ssd: Cell<u32>,
}

/// Whose a wish is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sender {
    User,
    Upkeep,
}

impl Product {
    /// A pair that was just formatted.
    ///
    /// # Errors
    /// It cannot be.
    pub fn new(
        world: &World,
        devices: &Devices,
        mode: Mode,
        known: &Known,
        advance: Advance,
    ) -> anyhow::Result<Rc<Product>> {
        let hand = world.device("hdd 0", HddModel::buffered(HDD_SECTORS, devices.buffer));
        let process = world.process("hdd 0");
        let side = |side, sectors| Arc::new(TimeAlone { side, sectors, ends: Mutex::default() }) as Arc<dyn Device>;
        let (hdd, ssd) = (side(Side::Hdd, HDD_SECTORS), side(Side::Ssd, LOG_SECTORS + 2));
        let format = TierFormat {
            hdd_log_sectors: Some(LOG_SECTORS),
            profile: Some(known.profile.clone()),
            queue_max: Some(known.queue_max as u16),
            ..TierFormat::default()
        };
        let blocking = Blocking::new(world.clock());
        TieredDevice::format(&*hdd, &*ssd, &format, world.random()).context("format")?;
        let tuning = TierTuning::steered(mode, known.queue_max);
        let device =
            TieredDevice::open(hdd, Some(ssd), blocking.now(), tuning).context("open")?.with_bell(blocking.bell());
        Ok(Rc::new(Product {
            clock: world.clock(),
            device: Arc::new(device),
            blocking,
            ssd: world.ssd("ssd", devices.ssd),
            worker: process.device_worker(&hand),
            _process: process,
            hdd: hand.attach(),
            tally: Tally::new(world.clock(), advance),
            in_ssd: Cell::new(0),
        }))
    }

    /// Carries out all requests.
    ///
    /// # Errors
    /// A device failed, which none should.
    pub async fn carry_out(self: Rc<Self>, requests: &[Request]) -> anyhow::Result<Outcome> {
        let (tended, early, synced) = (self.clone(), self.clone(), self.clone());
        let background = vec![
            tokio::task::spawn_local(async move { tended.tend().await }),
            tokio::task::spawn_local(async move { early.sync(SYNC_EARLY_EVERY, sync_early).await }),
            tokio::task::spawn_local(async move { synced.sync(SYNC_EVERY, |device| device.sync()).await }),
        ];
        let begin = |request: Request, _| {
            self.tally.outcome().queues.push(self.in_ssd.get());
            let product = self.clone();
            tokio::task::spawn_local(async move { product.write(request).await });
        };
        let mut outcome = self.tally.carry_out(requests, background, begin).await?;
        outcome.stalls = self.ssd.stats().stalls;
        if let Some((_, counts)) = self.device.info().predicted {
            outcome.add(counts);
        }
        Ok(outcome)
    }

    async fn write(self: Rc<Self>, request: Request) {
        let sectors = request.padded() / SECTOR_BYTES as u64;
        let device = self.device.clone();
        let write = move || device.write(request.first, &ZEROS[..sectors as usize * SECTOR_BYTES]);
        let written = self.blocking.call(write, async |wish| self.fulfil(wish, Sender::User).await).await;
        written.expect("no fault is injected");
        self.tally.end(request);
    }

    /// The task that tends. It is one call: there are thousands of times to do so in a second, and a call takes two turns.
    async fn tend(self: Rc<Self>) -> anyhow::Result<()> {
        let device = self.device.clone();
        let tends = move || -> anyhow::Result<()> {
            loop {
                let tended = device.tend()?;
                ask(Wish::Sleep(pause_after(&tended)))?;
            }
        };
        self.blocking.call(tends, async |wish| self.fulfil(wish, Sender::Upkeep).await).await
    }

    /// A task that syncs every so long.
    async fn sync(
        self: Rc<Self>,
        every: Duration,
        sync: fn(&TieredDevice) -> Result<(), DeviceError>,
    ) -> anyhow::Result<()> {
        loop {
            self.clock.sleep(every).await;
            let device = self.device.clone();
            self.blocking.call(move || sync(&device), async |wish| self.fulfil(wish, Sender::Upkeep).await).await?;
        }
    }

    /// What a device of the pair does.
    async fn fulfil(&self, wish: Wish, sender: Sender) {
        let begun = self.clock.now();
        let (hdd, worker) = (self.hdd.clone(), &*self.worker);
        match wish {
            Wish::Write(Side::Ssd, range) => {
                let bytes = range.sectors * SECTOR_BYTES as u64;
                self.tally.outcome().ssd_bytes += bytes;
                self.in_ssd.set(self.in_ssd.get() + 1);
                self.ssd.write(bytes, WriteOrder::Following).await;
                self.in_ssd.set(self.in_ssd.get() - 1);
                return;
            }
            Wish::Read(Side::Ssd, range) => {
                // It counts for those who write behind it.
                self.in_ssd.set(self.in_ssd.get() + 1);
                self.ssd.read(range.sectors * SECTOR_BYTES as u64).await;
                self.in_ssd.set(self.in_ssd.get() - 1);
                return;
            }
            Wish::Sync(Side::Ssd) => return self.ssd.flush().await,
            Wish::Sleep(wait) => return self.clock.sleep(wait).await,
            Wish::Read(Side::Hdd, range) => {
                let read = move || {
                    let mut bytes = vec![0; range.sectors as usize * SECTOR_BYTES];
                    hdd.read(range.first, &mut bytes, Effort::Retry).map(|_| ())
                };
                call(worker, read).await.map(|read| read.expect("no fault is injected"))
            }
            Wish::Write(Side::Hdd, range) => {
                let write = move || hdd.write(range.first, &vec![0; range.sectors as usize * SECTOR_BYTES]);
                call(worker, write).await.map(|written| written.expect("no fault is injected"))
            }
            Wish::Sync(Side::Hdd) => {
                call(worker, move || hdd.sync()).await.map(|synced| synced.expect("no fault is injected"))
            }
        }
        .expect("the worker is there");
        let mut outcome = self.tally.outcome();
        let took = match sender {
            Sender::User => &mut outcome.hdd_user,
            Sender::Upkeep => &mut outcome.hdd_other,
        };
        *took += self.clock.now().since(begun);
    }
}

fn sync_early(device: &TieredDevice) -> Result<(), DeviceError> {
    device.sync_early()?;
    device.index();
    Ok(())
}

/// A side of the pair, which asks the world for everything and keeps the first and the last sector: there are the superblocks. All else that is
/// read is what users wrote: zeros.
struct TimeAlone {
    side: Side,
    sectors: u64,
    ends: Mutex<BTreeMap<u64, Vec<u8>>>,
}

impl TimeAlone {
    fn is_end(&self, sector: u64) -> bool {
        sector == 0 || sector + 1 == self.sectors
    }
}

impl Device for TimeAlone {
    fn label(&self) -> String {
        self.side.name().to_owned()
    }

    fn geometry(&self) -> Geometry {
        Geometry { sectors: self.sectors, fails_fast: false, rotational: true }
    }

    fn read(&self, first: Sector, into: &mut [u8], _: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        let range = self.geometry().range(first, into.len());
        ask(Wish::Read(self.side, range)).map_err(|source| DeviceError::Read { range, source })?;
        into.fill(0);
        if let Some(content) = self.ends.lock().expect("nobody panics here").get(&first.0) {
            into[..SECTOR_BYTES].copy_from_slice(content);
        }
        Ok(Vec::new())
    }

    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        let range = self.geometry().range(first, bytes.len());
        if self.is_end(first.0) {
            self.ends.lock().expect("nobody panics here").insert(first.0, bytes.to_vec());
        }
        ask(Wish::Write(self.side, range)).map_err(|source| DeviceError::Write { range, source })
    }

    fn sync(&self) -> Result<(), DeviceError> {
        ask(Wish::Sync(self.side)).map_err(|source| DeviceError::Sync { source })
    }

    fn discard(&self, _: SectorRange) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// 256 GiB: less than half of it is written, so nothing is brought home for that.
const LOG_SECTORS: u64 = 1 << 26;
/// With a home of 256 GiB.
const HDD_SECTORS: u64 = 2 * LOG_SECTORS;
/// As a file system or a store syncs at least.
const SYNC_EVERY: Duration = Duration::from_secs(1);
