//! Images that are as slow as a drive: to try what drives do to programs, for who has none.
//!
//! A file beside the image, with `.emulated` behind its name, says which drive it is. Content is in the image; an emulated drive beside
//! it, which holds nothing, says when each request is done.
//!
//! Invariants:
//! 1. What a sync has promised is in the image: that is synced too. So nothing is quicker than what the image lies on.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use claystone_env::{Device, DeviceError, Effort, FailedSector, Geometry, Random, Sector, SectorRange};
use claystone_host::{HostRandom, RealTimeDevice};
use claystone_sim::{BufferModel, DriveModel, HddModel, SimDevice, SsdModel};
use serde::{Deserialize, Serialize};

/// Hard disks by their names.
pub fn hard_disks() -> [(&'static str, BufferModel); 3] {
    [
        ("wd-10tb-like", BufferModel::wd_10tb_like()),
        ("synthetic-small", BufferModel::synthetic_small()),
        ("synthetic-large", BufferModel::synthetic_large()),
    ]
}

/// The solid-state drive that there is.
pub const SOLID_STATE: &str = "nvme-desktop";

/// A drive by its name.
///
/// # Errors
/// There is none: names those that there are.
pub fn model(name: &str, sectors: u64) -> anyhow::Result<DriveModel> {
    let hdd = hard_disks().into_iter().find(|(known, _)| *known == name);
    match hdd {
        Some((_, buffer)) => Ok(HddModel::buffered(sectors, buffer).into()),
        None if name == SOLID_STATE => Ok(DriveModel::Ssd { sectors, model: SsdModel::nvme_desktop() }),
        None => {
            let names = hard_disks().map(|(name, _)| name).join(", ");
            bail!("there is no emulated drive {name:?}: {names}, {SOLID_STATE}")
        }
    }
}

/// What the file beside an image says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// Which drive it is as slow as.
    drive: String,
}

/// From now on the image at a path is as slow as this drive.
///
/// # Errors
/// There is no such drive; the file beside it cannot be written.
pub fn keep(path: &Path, drive: &str) -> anyhow::Result<()> {
    model(drive, 1)?;
    let kept = Kept { drive: drive.to_owned() };
    let beside = beside(path);
    fs::write(&beside, toml::to_string(&kept).context("a name is plain data")?)
        .with_context(|| beside.display().to_string())
}

/// The image at a path is as quick as it is: what was said of one of that name before counts no more.
///
/// # Errors
/// The file beside it cannot be removed.
pub fn forget(path: &Path) -> anyhow::Result<()> {
    let beside = beside(path);
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| beside.display().to_string())
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// As slow as the file beside the path says, if there is one.
///
/// # Errors
/// That file cannot be read, or says nothing that is known.
pub fn slowed(path: &Path, device: Arc<dyn Device>) -> anyhow::Result<Arc<dyn Device>> {
    let beside = beside(path);
    let text = match fs::read_to_string(&beside) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(device);
        }
        Err(error) => return Err(error).with_context(|| beside.display().to_string()),
    };
    let told = || format!("{}: names no emulated drive", beside.display());
    let kept: Kept = toml::from_str(&text).with_context(told)?;
    let model = model(&kept.drive, device.geometry().sectors).with_context(told)?;
    let random = HostRandom::from_system().context("the system gives no random numbers")?;
    let drive = SimDevice::alone(&kept.drive, model, random.next_u64());
    let slowed = Slowed { image: device, drive: drive.attach() };
    Ok(Arc::new(RealTimeDevice::new(Arc::new(slowed), Arc::new(drive))))
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".emulated");
    PathBuf::from(name)
}

/// See the module.
struct Slowed {
    image: Arc<dyn Device>,
    /// It holds zeros, which take no memory.
    drive: Arc<dyn Device>,
}

impl Device for Slowed {
    fn label(&self) -> String {
        self.image.label()
    }

    fn manner(&self) -> Vec<String> {
        [self.image.manner(), self.drive.manner()].concat()
    }

    fn geometry(&self) -> Geometry {
        Geometry { rotational: self.drive.geometry().rotational, ..self.image.geometry() }
    }

    fn read(&self, first: Sector, into: &mut [u8], effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        self.drive.read(first, &mut vec![0; into.len()], effort)?;
        self.image.read(first, into, effort)
    }

    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        self.drive.write(first, &vec![0; bytes.len()])?;
        self.image.write(first, bytes)
    }

    fn read_each(
        &self,
        reads: &mut [(Sector, &mut [u8])],
        effort: Effort,
    ) -> Vec<Result<Vec<FailedSector>, DeviceError>> {
        for (first, into) in reads.iter() {
            // Its time is what is wanted: it fails nothing.
            drop(self.drive.read(*first, &mut vec![0; into.len()], effort));
        }
        self.image.read_each(reads, effort)
    }

    fn write_each(&self, writes: &[(Sector, &[u8])]) -> Result<(), DeviceError> {
        for (first, bytes) in writes {
            self.drive.write(*first, &vec![0; bytes.len()])?;
        }
        self.image.write_each(writes)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.drive.sync()?;
        self.image.sync()
    }

    fn discard(&self, range: SectorRange) -> Result<(), DeviceError> {
        self.drive.discard(range)?;
        self.image.discard(range)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use claystone_env::SECTOR_BYTES;
    use claystone_env::testing::{MemoryDevice, device_conformance};

    use super::*;

    #[test]
    fn a_slowed_image_is_a_device() {
        device_conformance(|sectors| {
            let drive = SimDevice::alone("drive", model("wd-10tb-like", sectors).expect("known"), 1);
            Arc::new(Slowed { image: Arc::new(MemoryDevice::new(sectors)), drive: drive.attach() })
        });
    }

    #[test]
    fn an_image_is_as_slow_as_the_file_beside_it_says() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("image");
        let open = || slowed(&path, Arc::new(MemoryDevice::new(5000)));
        let plain = open().expect("there is no file beside it");
        assert_eq!(plain.elapsed(), None);
        keep(&path, "wd-10tb-like").expect("kept");
        let slow = open().expect("opened");
        // 16 MiB are taken at once, and the next is not.
        let content = vec![7; 1 << 20];
        for first in 0..17 {
            slow.write(Sector(first * 256), &content).expect("written");
        }
        let begun = Instant::now();
        slow.write(Sector(17 * 256), &content[..SECTOR_BYTES]).expect("written");
        let mut read = vec![0; SECTOR_BYTES];
        slow.read(Sector(300), &mut read, Effort::Retry).expect("read");
        assert!(begun.elapsed() > Duration::from_micros(500), "{:?}", begun.elapsed());
        assert_eq!(read, content[..SECTOR_BYTES]);
        assert!(slow.manner().iter().any(|sentence| sentence.contains("emulated")), "{:?}", slow.manner());
        assert!(keep(&path, "wd").is_err());
        fs::write(beside(&path), "drive = \"x\"").expect("written");
        assert!(open().is_err());
    }
}
