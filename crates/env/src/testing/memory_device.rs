//! A device in memory that never fails and forgets nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Device, DeviceError, Effort, FailedSector, Geometry, SECTOR_BYTES, Sector, SectorRange};

/// See the module.
pub struct MemoryDevice {
    geometry: Geometry,
    bytes: Mutex<Vec<u8>>,
}

impl MemoryDevice {
    /// A device of `sectors` zeroed sectors.
    pub fn new(sectors: u64) -> MemoryDevice {
        let bytes = Mutex::new(vec![0; sectors as usize * SECTOR_BYTES]);
        MemoryDevice { geometry: Geometry { sectors, fails_fast: true, rotational: false }, bytes }
    }

    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device for MemoryDevice {
    fn label(&self) -> String {
        "memory".to_owned()
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, first: Sector, into: &mut [u8], _effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        self.geometry.range(first, into.len());
        into.copy_from_slice(&self.bytes()[first.0 as usize * SECTOR_BYTES..][..into.len()]);
        Ok(Vec::new())
    }

    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        self.geometry.range(first, bytes.len());
        self.bytes()[first.0 as usize * SECTOR_BYTES..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discard(&self, range: SectorRange) -> Result<(), DeviceError> {
        self.geometry.assert_holds(range);
        let (first, sectors) = (range.first.0 as usize, range.sectors as usize);
        self.bytes()[first * SECTOR_BYTES..][..sectors * SECTOR_BYTES].fill(0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::MemoryDevice;
    use crate::testing::device_conformance;

    #[test]
    fn memory_is_a_device() {
        device_conformance(|sectors| Arc::new(MemoryDevice::new(sectors)));
    }
}
