//! The device that a disk lies on: a drive by itself, or a hard disk and the solid-state drive that takes writes for it.
//!
//! Invariants:
//! 1. A pair is named by the path of its hard disk. Its solid-state drive is looked for where a person said, and where it was when
//!    the pair was opened last; what is written on it says whether it is the one. Of several that are, as where one was copied, the
//!    newest counts, and of the same age the first.
//! 2. A pair that is in use for long is given to [`tend`].

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use claystone_env::{Clock, Device, DeviceError, call};
use claystone_host::{HostDevice, RecoveryLimits, ThreadWorker};
use claystone_tier::{Member, Mode, Now, Side, SsdQueue, Tended, TierTuning, TieredDevice};

use crate::emulation::slowed;

/// How a device is opened. By default as it is.
#[derive(Debug, Clone, Default)]
pub struct Opening {
    /// What a drive is told that tries to read a bad sector for as long as it likes.
    pub limits: Option<RecoveryLimits>,
    /// Where solid-state drives of pairs may be, beside where they were.
    pub ssds: Vec<PathBuf>,
    /// Whether a pair goes on with its hard disk alone, for good, where its solid-state drive is not found and had nothing: where nobody is
    /// there to say where it is.
    pub alone_if_at_rest: bool,
    /// What pairs whose hard disk was measured do with writes.
    pub steer: Steer,
    /// What waits in solid-state drives that several pairs are on.
    pub queues: SsdQueues,
}

/// What waits in each solid-state drive, by the system's name of the whole drive: pairs on its partitions count together. Clones are the
/// same.
#[derive(Clone, Default)]
pub struct SsdQueues(Arc<Mutex<BTreeMap<String, OnDrive>>>);

/// What is on one solid-state drive.
#[derive(Default)]
struct OnDrive {
    queue: Weak<Mutex<SsdQueue>>,
    pairs: Vec<Weak<TieredDevice>>,
}

impl SsdQueues {
    /// That of a drive.
    fn of(&self, drive: &str) -> Arc<Mutex<SsdQueue>> {
        let mut drives = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let on_drive = drives.entry(drive.to_owned()).or_default();
        on_drive.queue.upgrade().unwrap_or_else(|| {
            let queue = Arc::default();
            on_drive.queue = Arc::downgrade(&queue);
            queue
        })
    }

    /// Notes that a pair is on a drive.
    fn put(&self, drive: &str, pair: &Arc<TieredDevice>) {
        let mut drives = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        drives.entry(drive.to_owned()).or_default().pairs.push(Arc::downgrade(pair));
    }

    /// Drives that are the solid-state drive of several pairs that are open and have not lost it, and of how many.
    pub fn shared(&self) -> Vec<(String, usize)> {
        let mut drives = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let on_each = drives.iter_mut().map(|(drive, on_drive)| {
            on_drive.pairs.retain(|pair| pair.upgrade().is_some_and(|pair| pair.info().ssd_works));
            (drive.clone(), on_drive.pairs.len())
        });
        on_each.filter(|(_, pairs)| *pairs > 1).collect()
    }
}

impl fmt::Debug for SsdQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SsdQueues")
    }
}

/// Which of its two drives a write to a pair goes to, where it is known what the hard disk's write buffer does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Steer {
    /// Always to the solid-state drive, while it works
    Off,
    /// To the hard disk where it completes sooner: least latency
    #[default]
    Latency,
    /// To the hard disk wherever its buffer takes it: least wear of the solid-state drive
    Wear,
}

impl Steer {
    /// For a pair.
    fn tuning(self, member: &Member) -> TierTuning {
        let queue_max = usize::from(member.queue_max.unwrap_or(QUEUE_MAX));
        match self {
            Steer::Latency if member.profile.is_some() => TierTuning::steered(Mode::Disabled, queue_max),
            Steer::Wear if member.profile.is_some() => TierTuning::steered(Mode::Enabled, queue_max),
            Steer::Off | Steer::Latency | Steer::Wear => TierTuning::default(),
        }
    }
}

/// See the module.
#[derive(Clone)]
pub struct Drive {
    /// What a disk lies on.
    pub device: Arc<dyn Device>,
    /// The same, if it is two.
    pub pair: Option<Arc<TieredDevice>>,
}

impl Drive {
    /// Opens the drive at a path, or the pair of which it is the hard disk. Each device is seen through `seen`.
    ///
    /// # Errors
    /// As [`HostDevice::open`], as an [`io::Error`] in the chain; the solid-state drive is not found; the pair is damaged.
    pub fn open(
        path: &Path,
        opening: &Opening,
        clock: Arc<dyn Clock>,
        seen: fn(Arc<dyn Device>) -> Arc<dyn Device>,
    ) -> anyhow::Result<Drive> {
        let Found { device, .. } = opening.device(path)?;
        let Some(member) = Member::of(&*device).with_context(|| format!("{} cannot be read", path.display()))? else {
            return Ok(Drive { device: seen(device), pair: None });
        };
        if member.side == Side::Ssd {
            bail!("{} is the solid-state drive of a disk: name its hard disk", path.display());
        }
        let ssd = match member.ssd_lost {
            true => None,
            false => match opening.ssd_of(&member)? {
                None if member.at_rest && opening.alone_if_at_rest => {
                    tracing::warn!(
                        disk = %path.display(),
                        "its solid-state drive is not found, and had nothing when the disk was closed last: it goes on with the hard disk \
                         alone until `claystone disk replace-ssd` gives it one"
                    );
                    None
                }
                found => Some(found.ok_or_else(|| opening.not_found(path, &member))?),
            },
        };
        let now: Now = Arc::new(move || clock.now());
        let (ssd, drive) = ssd.map_or((None, None), |found| (Some(seen(found.device)), found.drive));
        let pair = Arc::new(TieredDevice::open(seen(device), ssd, now, opening.steer.tuning(&member))?);
        if let Some(drive) = drive {
            pair.share_ssd(opening.queues.of(&drive));
            opening.queues.put(&drive, &pair);
        }
        Ok(Drive { device: pair.clone(), pair: Some(pair) })
    }
}

/// A device that was opened.
struct Found {
    device: Arc<dyn Device>,
    /// The system's name of the whole drive, if it is one or a part of one.
    drive: Option<String>,
}

impl Opening {
    /// Opens the device at a path, as slow as it shall be.
    ///
    /// # Errors
    /// As [`HostDevice::open`], as an [`io::Error`] in the chain.
    fn device(&self, path: &Path) -> anyhow::Result<Found> {
        let device = match self.limits {
            Some(limits) => HostDevice::open_with_limits(path, limits)?,
            None => HostDevice::open(path)?,
        };
        let drive = device.drive().map(|drive| drive.name.clone());
        Ok(Found { device: slowed(path, Arc::new(device))?, drive })
    }

    /// The solid-state drive of a hard disk, where it can be found.
    ///
    /// # Errors
    /// It is not found, and may be one that is in use.
    fn ssd_of(&self, member: &Member) -> anyhow::Result<Option<Found>> {
        let (mut busy, mut newest) = (None, None::<(u64, Found)>);
        for path in self.places(member) {
            let candidate = match self.device(&path) {
                Ok(candidate) => candidate,
                // It may as well be that of another pair.
                Err(error) if is_busy(&error) => {
                    busy = Some((path, error));
                    continue;
                }
                Err(_) => continue,
            };
            let found = Member::of(&*candidate.device).ok().flatten();
            let found = found.filter(|found| found.side == Side::Ssd && found.pair == member.pair);
            let Some(Member { generation, .. }) = found else { continue };
            if newest.as_ref().is_none_or(|(known, _)| generation > *known) {
                newest = Some((generation, candidate));
            }
        }
        if let Some((_, found)) = newest {
            return Ok(Some(found));
        }
        match busy {
            None => Ok(None),
            Some((path, error)) => Err(error.context(format!(
                "its solid-state drive is not found, unless it is {}, which is in use: name another place with --ssd",
                path.display()
            ))),
        }
    }

    /// Where it may be, what a person said first: each place once.
    fn places(&self, member: &Member) -> Vec<PathBuf> {
        let was = Some(PathBuf::from(&member.ssd_label));
        let was = was.filter(|path| !path.as_os_str().is_empty() && !self.ssds.contains(path));
        self.ssds.iter().cloned().chain(was).collect()
    }

    fn not_found(&self, hdd: &Path, member: &Member) -> anyhow::Error {
        let places: Vec<String> = self.places(member).iter().map(|path| path.display().to_string()).collect();
        let looked = match places.is_empty() {
            true => "nobody knows where it was".to_owned(),
            false => format!("looked at {}", places.join(", ")),
        };
        let hdd = hdd.display();
        match member.at_rest {
            true => anyhow!(
                "the solid-state drive of {hdd} is not found ({looked}), and had nothing when the disk was closed last: name it with --ssd. \
                 If it is gone, `claystone disk replace-ssd {hdd} --with SSD` gives the disk another, and nothing is lost"
            ),
            false => anyhow!(
                "the solid-state drive of {hdd} is not found ({looked}), and holds writes that are nowhere else: name it with --ssd. If it \
                 is gone, the disk is lost: `claystone disk replace {hdd} PATH` has it rebuilt from the others at an empty PATH"
            ),
        }
    }
}

fn is_busy(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    matches!(kind, Some(io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy))
}

/// Tends a pair until nobody uses it any more, syncs it before writes would have to wait for that, and has it write indexes. On two threads:
/// while a sync or an index waits for the solid-state drive, the hard disk is kept quick.
pub async fn tend(pair: Weak<TieredDevice>, clock: Arc<dyn Clock>, worker: ThreadWorker) {
    let kept = again_and_again(&pair, &clock, &worker, "what waits in the logs is not brought to its place", |pair| {
        pair.tend().map(|tended| pause_after(&tended))
    });
    let synced = again_and_again(&pair, &clock, &worker, "writes will wait for a sync", |pair| {
        pair.sync_early()?;
        pair.index();
        Ok(SYNC_EARLY_EVERY)
    });
    futures::future::join(kept, synced).await;
}

/// Does something to a pair, until nobody uses it any more. It says after how long to do it again.
async fn again_and_again(
    pair: &Weak<TieredDevice>,
    clock: &Arc<dyn Clock>,
    worker: &ThreadWorker,
    otherwise: &str,
    act: fn(&TieredDevice) -> Result<Duration, DeviceError>,
) {
    let (mut is_said, mut pause) = (false, TEND_EVERY);
    loop {
        // First: who looks at a disk and closes it again shall find it closed.
        clock.sleep(pause).await;
        let Some(used) = pair.upgrade() else { return };
        let Ok((done, label)) = call(worker, move || (act(&used), used.label())).await else { return };
        pause = match done {
            Ok(pause) => {
                is_said = false;
                pause
            }
            Err(error) => {
                if !std::mem::replace(&mut is_said, true) {
                    tracing::error!(disk = label, %error, "{otherwise}");
                }
                AFTER_AN_ERROR
            }
        };
    }
}

/// How long a pair is left alone after it was tended.
pub fn pause_after(tended: &Tended) -> Duration {
    if tended.more { Duration::ZERO } else { tended.after.unwrap_or(TEND_EVERY).min(TEND_EVERY) }
}

/// A queue that is not long yet, where it was not measured: that of the emulated drive of the bench.
const QUEUE_MAX: u16 = 6;
const TEND_EVERY: Duration = Duration::from_millis(50);
/// A pair takes some hundred milliseconds of the heaviest workload of the bench before writes wait for a sync.
pub const SYNC_EARLY_EVERY: Duration = Duration::from_millis(50);
/// Threads of a worker for [`tend`].
pub const TENDERS: usize = 2;
const AFTER_AN_ERROR: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_on_one_drive_have_one_queue_while_any_is_open() {
        let queues = SsdQueues::default();
        let (one, again, other) = (queues.of("nvme0n1"), queues.clone().of("nvme0n1"), queues.of("nvme1n1"));
        assert!(Arc::ptr_eq(&one, &again) && !Arc::ptr_eq(&one, &other));
        drop(one);
        assert!(Arc::ptr_eq(&again, &queues.of("nvme0n1")));
    }
}
