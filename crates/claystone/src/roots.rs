//! From a path to the directory in which a disk of the store keeps its files: a directory of the machine, or the root of
//! a disk with local coding on a device or an image.
//!
//! Invariants:
//! 1. A device is opened once, however often its path is asked for, and closed when nobody uses its files any more.
//! 2. An open device is tended until then, every second at least, and scrubbed while it is.
//! 3. No device is formatted here: `claystone disk format` does that, for a person who wants it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use anyhow::Context;
use claystone_env::{Clock, Device, Directory, Env, Geometry, call};
use claystone_files::{Disk, DiskDirectory, Tuning};
use claystone_host::{HostDirectory, ThreadWorker, memory_bytes};
use claystone_tier::TieredDevice;
use futures::future::join_all;

use crate::drives::{self, Drive};
use crate::sums_memory::MemoryLeft;
use crate::tending::{Care, Tending};

/// See the module. Clones share the devices.
#[derive(Clone)]
pub struct Roots {
    env: Env,
    care: Care,
    devices: Arc<Mutex<BTreeMap<PathBuf, Opened>>>,
}

/// A device that was opened, as long as somebody uses it.
#[derive(Clone, Default)]
struct Opened {
    disk: Weak<Disk>,
    /// If it is two: tending it may outlive the disk for a while.
    pair: Option<Weak<TieredDevice>>,
    /// Memory that it was given for checksums.
    sums_bytes: usize,
}

/// A device of two drives whose disk is about to be closed.
pub struct Resting(Arc<TieredDevice>);

impl Resting {
    /// Brings all home from the solid-state drive, once the disk is closed, which writes its catalog once more. Without it nothing is lost,
    /// but the next start needs that drive.
    pub async fn rest(self, clock: Arc<dyn Clock>) {
        let Resting(pair) = self;
        for _ in 0..CLOSED_AFTER_MAX {
            if Arc::strong_count(&pair) == 1 {
                break;
            }
            clock.sleep(CLOSED_EVERY).await;
        }
        let Ok(worker) = ThreadWorker::start("rest", 1) else { return };
        let rested = call(&worker, move || (pair.rest(), pair.label())).await;
        if let Ok((Err(error), label)) = rested {
            tracing::warn!(disk = label, %error, "not all was brought home from the solid-state drive");
        }
    }
}

impl Roots {
    /// No device is open yet.
    pub fn new(env: Env, care: Care) -> Roots {
        Roots { env, care, devices: Arc::default() }
    }

    /// The directory at a path; it is made where nothing is.
    ///
    /// # Errors
    /// It cannot be made, or the device cannot be opened.
    pub fn make(&self, path: &Path) -> anyhow::Result<Arc<dyn Directory>> {
        match self.device(path)? {
            Some(directory) => Ok(directory),
            None => Ok(Arc::new(HostDirectory::make(path)?)),
        }
    }

    /// The directory at a path, which is not touched if it is one of the machine.
    ///
    /// # Errors
    /// A device cannot be opened.
    pub fn open(&self, path: &Path) -> anyhow::Result<Arc<dyn Directory>> {
        match self.device(path)? {
            Some(directory) => Ok(directory),
            None => Ok(Arc::new(HostDirectory::new(path))),
        }
    }

    /// The root of the disk at a path, if that is no directory.
    fn device(&self, path: &Path) -> anyhow::Result<Option<Arc<dyn Directory>>> {
        let kind = match std::fs::metadata(path) {
            Ok(metadata) => metadata.file_type(),
            // What is missing is the business of who wants a directory there.
            Err(_) => return Ok(None),
        };
        if kind.is_dir() {
            return Ok(None);
        }
        let path = std::fs::canonicalize(path)?;
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = devices.get(&path).cloned().unwrap_or_default();
        if let Some(disk) = opened.disk.upgrade() {
            return Ok(Some(Arc::new(DiskDirectory::new(disk))));
        }
        let drive = match opened.pair.and_then(|pair| pair.upgrade()) {
            Some(pair) => Drive { device: pair.clone(), pair: Some(pair) },
            None => {
                let drive = Drive::open(&path, &self.care.opening, self.env.clock.clone(), |device| device);
                let drive = drive.map_err(in_use).with_context(|| path.display().to_string())?;
                if let Some(pair) = &drive.pair {
                    let worker = ThreadWorker::start("tier", drives::TENDERS)?;
                    let tending = drives::tend(Arc::downgrade(pair), self.env.clock.clone(), worker);
                    self.env.tasks.spawn("tier", Box::pin(tending));
                }
                drive
            }
        };
        let sums_bytes = self.sums_bytes(&devices, drive.device.geometry());
        let disk = Arc::new(Disk::open(drive.device, self.env.clock.clone(), tuning(sums_bytes))?);
        let pair = drive.pair.as_ref().map(Arc::downgrade);
        devices.insert(path, Opened { disk: Arc::downgrade(&disk), pair, sums_bytes });
        self.tend(Arc::downgrade(&disk))?;
        Ok(Some(Arc::new(DiskDirectory::new(disk))))
    }

    /// Memory for checksums of a device that is opened beside these.
    fn sums_bytes(&self, devices: &BTreeMap<PathBuf, Opened>, geometry: Geometry) -> usize {
        let open = || devices.values().filter(|opened| opened.disk.strong_count() > 0);
        let disks = self.care.disks.saturating_sub(open().count());
        let given = open().map(|opened| opened.sums_bytes).sum();
        self.care.sums_memory.bytes(geometry, MemoryLeft { machine: memory_bytes(), given, disks })
    }

    /// Brings all that is on open devices to its place, and what was counted of them: for the end of the program. Returns those that are
    /// two, which are to rest when nobody uses their files any more.
    pub async fn rest(&self) -> Vec<Resting> {
        let (open, resting): (Vec<Arc<Disk>>, Vec<Option<Resting>>) = {
            let devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
            let resting = |opened: &Opened| opened.pair.as_ref().and_then(Weak::upgrade).map(Resting);
            devices.values().filter_map(|opened| Some((opened.disk.upgrade()?, resting(opened)))).unzip()
        };
        let Ok(worker) = ThreadWorker::start("rest", open.len().max(1)) else { return Vec::new() };
        // Hard disks wait each for itself.
        let rested = open.into_iter().map(|disk| call(&worker, move || (disk.rest(), disk.label())));
        for rested in join_all(rested).await {
            if let Ok((Err(error), label)) = rested {
                tracing::warn!(disk = label, %error, "not everything was brought to its place; the next start does that");
            }
        }
        resting.into_iter().flatten().collect()
    }

    /// Tends a disk until nobody uses it any more.
    fn tend(&self, disk: Weak<Disk>) -> anyhow::Result<()> {
        let worker = ThreadWorker::start("tend", 1)?;
        let clock = self.env.clock.clone();
        let mut tending = Tending::new(self.care.scrub_cycle);
        self.env.tasks.spawn(
            "tend",
            Box::pin(async move {
                loop {
                    clock.sleep(tending.pause()).await;
                    let Some(disk) = disk.upgrade() else { return };
                    let turned = call(&worker, move || {
                        tending.turn(&disk);
                        tending
                    });
                    let Ok(turned) = turned.await else { return };
                    tending = turned;
                }
            }),
        );
        Ok(())
    }
}

fn in_use(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy) => {
            error.context("somebody has it open: is it mounted, or used by another store?")
        }
        _ => error,
    }
}

/// How often it is looked whether a disk is closed, and how many times at most.
const CLOSED_EVERY: Duration = Duration::from_millis(5);
const CLOSED_AFTER_MAX: u32 = 400;

/// A store syncs what it writes, so little waits; and it has many disks.
fn tuning(sums_bytes: usize) -> Tuning {
    Tuning {
        waiting_sectors_max: 8192,
        bulk_sectors_max: 4000,
        sums_bytes,
        catalog_cached: 8 << 20,
        ..Tuning::default()
    }
}
