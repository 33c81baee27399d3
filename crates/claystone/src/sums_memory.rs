//! How much memory disks take for checksums.
//!
//! A hard disk has the checksums of its swaths in memory, so that no read seeks for them: 100 MB for each TB of data (crate `group`). So where nobody
//! says how much they may take, that is all they need, as far as all of them together leave most of the machine's memory to others.

use std::str::FromStr;

use claystone_env::{Geometry, SECTOR_BYTES};

/// See the module. It is taken as there is data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SumsMemory {
    /// By what a disk is and what memory there is.
    #[default]
    Auto,
    /// So many MiB for each disk.
    Mib(u32),
}

/// What is there for a disk that is opened.
#[derive(Debug, Clone, Copy)]
pub struct MemoryLeft {
    /// Bytes of memory of the machine.
    pub machine: u64,
    /// Bytes that were given to disks which are open.
    pub given: usize,
    /// Disks that are to be opened, this one among them.
    pub disks: usize,
}

impl MemoryLeft {
    /// Of a disk that is the only one.
    pub fn of_one(machine: u64) -> MemoryLeft {
        MemoryLeft { machine, given: 0, disks: 1 }
    }
}

impl SumsMemory {
    /// Bytes for a disk.
    pub fn bytes(self, geometry: Geometry, left: MemoryLeft) -> usize {
        match self {
            SumsMemory::Mib(mib) => (mib as usize) << 20,
            SumsMemory::Auto if geometry.rotational => {
                let share = ((left.machine / SHARE) as usize).saturating_sub(left.given) / left.disks.max(1);
                let needed = geometry.sectors as usize * SECTOR_BYTES / DATA_BYTES;
                needed.min(share).max(LEAST)
            }
            SumsMemory::Auto => LEAST,
        }
    }
}

impl FromStr for SumsMemory {
    type Err = String;

    fn from_str(text: &str) -> Result<SumsMemory, String> {
        match text.parse() {
            _ if text == "auto" => Ok(SumsMemory::Auto),
            Ok(mib) if (1..=MIB_MAX).contains(&mib) => Ok(SumsMemory::Mib(mib)),
            _ => Err(format!("neither `auto` nor a number from 1 to {MIB_MAX}")),
        }
    }
}

/// Disks that turn take at most one part in so many of the machine's memory.
const SHARE: u64 = 8;
/// Bytes of a hard disk for which one of memory is enough.
const DATA_BYTES: usize = 9600;
/// Of any disk: for 600 GiB of the data of a hard disk, and for 64 of a solid-state drive.
const LEAST: usize = 64 << 20;
/// More than for any disk.
const MIB_MAX: u32 = 65_536;

#[cfg(test)]
mod tests {
    use claystone_files::Tuning;

    use super::*;

    /// Of 20 TB.
    const HDD: Geometry = Geometry { sectors: 20_000_000_000_000 / 4096, fails_fast: true, rotational: true };
    const SSD: Geometry = Geometry { rotational: false, ..HDD };
    const GIB: usize = 1 << 30;

    fn left(gib: u64, given: usize, disks: usize) -> MemoryLeft {
        MemoryLeft { machine: gib << 30, given, disks }
    }

    #[test]
    fn a_disk_that_turns_has_what_it_needs_or_its_share() {
        let needed = SumsMemory::Auto.bytes(HDD, left(64, 0, 1));
        assert_eq!(needed, 2_083_333_333, "three quarters of it are sums of 4.9 million times 4 MiB");
        assert_eq!(SumsMemory::Auto.bytes(HDD, left(12, 0, 1)), 3 * GIB / 2);
        assert_eq!(SumsMemory::Auto.bytes(HDD, left(16, 0, 8)), GIB / 4);
        assert_eq!(SumsMemory::Auto.bytes(HDD, left(16, GIB / 4, 7)), GIB / 4, "each of them");
        assert_eq!(SumsMemory::Auto.bytes(HDD, left(16, 2 * GIB, 1)), LEAST, "one more than there were to be");
        assert_eq!(SumsMemory::Auto.bytes(HDD, left(16, 3 * GIB, 0)), LEAST);
        assert_eq!(SumsMemory::Auto.bytes(Geometry { sectors: 1 << 20, ..HDD }, left(16, 0, 1)), LEAST);
        assert_eq!(SumsMemory::Auto.bytes(SSD, left(64, 0, 1)), LEAST);
        assert_eq!(SumsMemory::Mib(7).bytes(HDD, left(16, 0, 8)), 7 << 20);
    }

    #[test]
    fn a_solid_state_drive_has_the_memory_of_any_disk() {
        assert_eq!(LEAST, Tuning::default().sums_bytes);
    }

    #[test]
    fn what_is_said_is_understood_or_refused() {
        assert_eq!("auto".parse(), Ok(SumsMemory::Auto));
        assert_eq!("65536".parse(), Ok(SumsMemory::Mib(65_536)));
        for text in ["0", "65537", "-1", "Auto", "", "1.5"] {
            assert!(text.parse::<SumsMemory>().is_err(), "{text}");
        }
    }
}
