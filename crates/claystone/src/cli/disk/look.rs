//! A device that is only looked at: what is written to it stays in memory.
//!
//! Opening a disk replays its journal and mends copies, which a read-only device does not take, and which somebody who only
//! asks has not asked for.
//!
//! Invariants:
//! 1. The device under it is not written.
//! 2. What was written is read back, as of any device. It is no more than the journal of the disk leads to.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use claystone_env::{
    Device, DeviceError, Effort, FailedSector, Geometry, PairHealth, SECTOR_BYTES, Sector, SectorRange,
};

/// See the module.
pub struct Looked {
    device: Arc<dyn Device>,
    written: Mutex<BTreeMap<u64, Vec<u8>>>,
}

impl Looked {
    /// Looks at a device.
    pub fn at(device: Arc<dyn Device>) -> Looked {
        Looked { device, written: Mutex::default() }
    }

    fn written(&self) -> MutexGuard<'_, BTreeMap<u64, Vec<u8>>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device for Looked {
    fn label(&self) -> String {
        self.device.label()
    }

    fn manner(&self) -> Vec<String> {
        self.device.manner()
    }

    fn pair(&self) -> Option<PairHealth> {
        self.device.pair()
    }

    fn has_lost(&self, range: SectorRange) -> bool {
        self.device.has_lost(range)
    }

    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn read(&self, first: Sector, into: &mut [u8], effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        let mut failed = self.device.read(first, into, effort)?;
        let range = self.geometry().range(first, into.len());
        for (&sector, bytes) in self.written().range(range.first.0..range.end().0) {
            into[(sector - first.0) as usize * SECTOR_BYTES..][..SECTOR_BYTES].copy_from_slice(bytes);
            failed.retain(|failed| failed.sector.0 != sector);
        }
        Ok(failed)
    }

    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        self.geometry().range(first, bytes.len());
        self.written().extend((first.0..).zip(bytes.chunks_exact(SECTOR_BYTES).map(<[u8]>::to_vec)));
        Ok(())
    }

    fn sync(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discard(&self, range: SectorRange) -> Result<(), DeviceError> {
        self.geometry().assert_holds(range);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use claystone_env::testing::MemoryDevice;

    use super::*;

    #[test]
    fn what_is_written_is_read_and_is_not_on_the_device() {
        let device = Arc::new(MemoryDevice::new(8));
        device.write(Sector(0), &[1; 8 * SECTOR_BYTES]).expect("written");
        let looked = Looked::at(device.clone());
        looked.write(Sector(2), &[2; 2 * SECTOR_BYTES]).expect("taken");
        looked.sync().expect("nothing to do");
        let sectors = |device: &dyn Device| {
            let mut bytes = vec![0; 8 * SECTOR_BYTES];
            assert_eq!(device.read(Sector(0), &mut bytes, Effort::FailFast).expect("read"), []);
            bytes.chunks(SECTOR_BYTES).map(|sector| sector[7]).collect::<Vec<u8>>()
        };
        assert_eq!(sectors(&looked), [1, 1, 2, 2, 1, 1, 1, 1]);
        assert_eq!(sectors(&*device), [1; 8]);
    }
}
