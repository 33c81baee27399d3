//! `claystone mount`: serves the files of a disk, or of a new one on an emulated drive, until a signal or `umount`.
//!
//! ```text
//! opened -> served --signal--> unmounted -> closed
//!             |  \--umount from outside--^     ^
//!             \--signal while in use--> waiting (a second signal: detached) --+
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use claystone_env::Geometry;
use claystone_files::{Disk, FileTree, Tuning};
use claystone_fuse::{Description, MountError, MountOptions};
use claystone_host::{HostClock, ThreadWorker, memory_bytes};
use claystone_sim::SimDevice;
use claystone_tier::TieredDevice;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use super::disk::{Coding, Recovery, Report, Size, disk_on, looked_at, not_at_rest, open_drive};
use super::emulated::{DriveReport, emulate};
use super::signals::Signals;
use crate::disk_path;
use crate::drives::{Opening, Steer, TENDERS, tend};
use crate::logs;
use crate::output::say;
use crate::settings::LogFormat;
use crate::sums_memory::{MemoryLeft, SumsMemory};
use crate::tending::Tending;

/// Mount a disk that `claystone disk format` made, until SIGINT, SIGTERM or `umount DIR`. Or, with --emulate, a new disk on
/// an emulated hard disk in memory, to try what a slow drive that fails does to programs.
#[derive(Debug, clap::Args)]
#[command(allow_missing_positional = true)]
pub struct Mount {
    /// The block device or image file; none with --emulate
    #[arg(required_unless_present = "emulate", conflicts_with_all = ["emulate", "Coding"], value_parser = disk_path::of_drive)]
    device: Option<PathBuf>,
    /// An existing directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Its solid-state drive, if that is no longer where it was
    #[arg(long, value_name = "DEVICE", conflicts_with = "emulate")]
    ssd: Option<PathBuf>,
    /// Which of the two a write goes to, if the hard disk's write buffer was measured
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    steer: Steer,
    /// Refuse changes, and write nothing to the device: what a crash left to be finished is finished in memory
    #[arg(long)]
    read_only: bool,
    /// Let the kernel collect writes: small ones become fast, and until fsync or close nobody learns that one failed
    #[arg(long)]
    writeback: bool,
    /// Ignore set-user-id bits
    #[arg(long)]
    nosuid: bool,
    /// Ignore device files
    #[arg(long)]
    nodev: bool,
    /// Run no programs from it
    #[arg(long)]
    noexec: bool,
    /// Requests served at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    /// Read everything back once in so many days; 0: never
    #[arg(long, value_name = "DAYS", default_value_t = 14, value_parser = clap::value_parser!(u16).range(0..=365))]
    scrub_days: u16,
    #[command(flatten)]
    recovery: Recovery,
    /// Memory for checksums, in MiB: of a hard disk, ten times as many GiB of data are read anywhere without another seek for them. `auto`: what
    /// a hard disk needs, an eighth of the machine's memory at most
    #[arg(long, value_name = "MIB", default_value = "auto")]
    sums_cache_mib: SumsMemory,
    /// Which logs: error, warn, info, debug, trace
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: String,
    /// Logs and the ready line as JSON
    #[arg(long)]
    json: bool,
    /// Emulate a hard disk of this size (bytes, or with K, M, G or T) in memory, as slow as a real one (7200 rpm, 124 MB/s,
    /// 20 ms to retry a sector), and format it. All that is written to it takes memory and is gone at the end
    #[arg(long, value_name = "SIZE", help_heading = EMULATED)]
    emulate: Option<Size>,
    #[command(flatten, next_help_heading = EMULATED)]
    coding: Coding,
}

/// What is mounted.
struct Opened {
    disk: Disk,
    /// Its device, if that is two.
    pair: Option<Arc<TieredDevice>>,
    /// Its device, if that is emulated.
    drive: Option<SimDevice>,
}

const EMULATED: &str = "An emulated hard disk (--emulate)";

impl Mount {
    /// Serves until it is told to stop.
    ///
    /// # Errors
    /// The disk cannot be opened, mounted, or brought to rest at the end.
    pub async fn run(self, start: Instant) -> anyhow::Result<()> {
        let format = if self.json { LogFormat::Json } else { LogFormat::Auto };
        logs::for_server(format, &self.log_level)?;
        let mut signals = Signals::new()?;
        let scrub_cycle = self.scrub_cycle();
        let (this, opened) = spawn_blocking(move || self.open().map(|opened| (self, opened))).await??;
        let Opened { disk, pair, drive } = opened;
        let disk = Arc::new(disk);
        if let Some(pair) = pair.as_ref().filter(|_| !this.read_only) {
            tokio::spawn(tend(
                Arc::downgrade(pair),
                Arc::new(HostClock::start()),
                ThreadWorker::start("tier", TENDERS)?,
            ));
        }
        let options = MountOptions {
            source: disk.label(),
            read_only: this.read_only,
            writeback: this.writeback,
            nosuid: this.nosuid,
            nodev: this.nodev,
            noexec: this.noexec,
            threads: this.threads.into(),
            description: Some(describe(&disk)),
        };
        let tending = if this.read_only { Tending::looking() } else { Tending::new(scrub_cycle) };
        let tending = TendingTask::start(disk.clone(), tending);
        let (tree, directory) = (disk.clone(), this.directory.clone());
        let started = spawn_blocking(move || claystone_fuse::Mount::start(tree, &directory, &options)).await?;
        let served = match started {
            Ok(mount) => {
                this.tell_ready(&disk.label(), mount.directory(), start);
                serve(mount, &mut signals).await
            }
            Err(error) => Err(error.into()),
        };
        tending.stop().await;
        match drive {
            Some(drive) => this.tell_gone(&drive),
            None if this.read_only => drop(disk),
            None => spawn_blocking(move || close_disk(disk)).await??,
        }
        served
    }

    /// Blocks.
    fn open(&self) -> anyhow::Result<Opened> {
        if let Some(size) = self.emulate {
            let (disk, drive) = emulate(size, &self.coding, |geometry| self.tuning(geometry))?;
            return Ok(Opened { disk, pair: None, drive: Some(drive) });
        }
        let device = std::path::absolute(self.device.as_ref().context("DEVICE or --emulate is needed")?)?;
        let opening = Opening {
            limits: self.recovery.limits(),
            ssds: self.ssd.iter().map(std::path::absolute).collect::<Result<_, _>>()?,
            steer: self.steer,
            ..Opening::default()
        };
        let clock = Arc::new(HostClock::start());
        let seen = if self.read_only { looked_at } else { |device| device };
        let drive = open_drive(&device, &opening, clock.clone(), seen)?;
        let tuning = self.tuning(drive.device.geometry());
        let disk = disk_on(&device, drive.device, clock, tuning)?;
        Ok(Opened { disk, pair: drive.pair, drive: None })
    }

    fn tuning(&self, geometry: Geometry) -> Tuning {
        let sums_bytes = self.sums_cache_mib.bytes(geometry, MemoryLeft::of_one(memory_bytes()));
        Tuning { keeps_access_times: !self.read_only, sums_bytes, ..Tuning::default() }
    }

    fn scrub_cycle(&self) -> Option<Duration> {
        let days = Some(self.scrub_days).filter(|days| *days > 0);
        days.map(|days| Duration::from_secs(24 * 3600 * u64::from(days)))
    }

    fn tell_ready(&self, device: &str, directory: &Path, start: Instant) {
        let ms = start.elapsed().as_secs_f64() * 1e3;
        let emulated = self.emulate.is_some();
        if self.json {
            let ready =
                json!({ "event": "ready", "ms": ms, "device": device, "directory": directory, "emulated": emulated });
            say(ready);
        } else {
            say(format_args!("ready in {ms:.0} ms: {device} is mounted at {}", directory.display()));
            if emulated {
                say(format_args!("it is a hard disk in memory: what is written to it is gone when it is unmounted"));
            }
        }
    }

    fn tell_gone(&self, drive: &SimDevice) {
        let report = DriveReport::of(drive);
        if self.json {
            say(json!({ "event": "gone", "drive": report }));
        } else {
            say(format_args!("the hard disk in memory is gone; it was {report}"));
        }
    }
}

/// What `claystone disk info` is told of a disk that is mounted.
fn describe(disk: &Arc<Disk>) -> Description {
    // Weak: the mount's end must leave the disk to whoever closes it.
    let disk = Arc::downgrade(disk);
    Description::new(move || {
        let report = disk.upgrade().map(|disk| Report::of(&disk));
        serde_json::to_vec(&report).expect("plain fields always serialise")
    })
}

/// Serves until `umount`, or a signal and then until nobody uses the mount or a second signal.
async fn serve(mut mount: claystone_fuse::Mount, signals: &mut Signals) -> anyhow::Result<()> {
    let mut ended = Box::pin(mount.ended().context("nobody has asked before")?);
    let mut wait = tokio::select! {
        biased;
        () = &mut ended => return Ok(mount.unmount()?),
        name = signals.next() => {
            tracing::info!(signal = name, "unmounting");
            Duration::ZERO
        }
    };
    loop {
        tokio::select! {
            biased;
            () = &mut ended => return Ok(mount.unmount()?),
            name = signals.next() => {
                tracing::warn!(signal = name, "taking the mount away from those who use it");
                // The kernel sends what it holds back, then the mount is detached.
                return Ok(spawn_blocking(move || drop(mount)).await?);
            }
            () = tokio::time::sleep(wait) => {}
        }
        // The kernel sends all that it holds back, which may take a while.
        let unmounted;
        (mount, unmounted) = spawn_blocking(move || {
            let unmounted = mount.unmount();
            (mount, unmounted)
        })
        .await?;
        match unmounted {
            Ok(()) => return Ok(()),
            Err(error @ MountError::InUse { .. }) => {
                if wait.is_zero() {
                    tracing::warn!(%error, "waiting for that; a second signal takes it away from them");
                }
                wait = LOOK_AGAIN;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Tends the disk until it is stopped.
struct TendingTask {
    stop: oneshot::Sender<()>,
    ended: tokio::task::JoinHandle<()>,
}

impl TendingTask {
    fn start(disk: Arc<Disk>, mut tending: Tending) -> TendingTask {
        let (stop, mut stopped) = oneshot::channel();
        let ended = tokio::spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    _ = &mut stopped => return,
                    () = tokio::time::sleep(tending.pause()) => {}
                }
                let disk = disk.clone();
                let turned = spawn_blocking(move || {
                    tending.turn(&disk);
                    tending
                });
                match turned.await {
                    Ok(turned) => tending = turned,
                    Err(error) => {
                        tracing::error!(%error, "the disk is not tended any more");
                        return;
                    }
                }
            }
        });
        TendingTask { stop, ended }
    }

    async fn stop(self) {
        drop(self.stop);
        if let Err(error) = self.ended.await {
            tracing::error!(%error, "the disk was not tended any more");
        }
    }
}

const LOOK_AGAIN: Duration = Duration::from_millis(200);

fn close_disk(disk: Arc<Disk>) -> anyhow::Result<()> {
    let closed = match Arc::try_unwrap(disk) {
        Ok(disk) => disk.close(),
        // Detached: somebody is still served, until this process ends.
        Err(disk) => disk.sync_all(),
    };
    closed.map_err(not_at_rest)
}
