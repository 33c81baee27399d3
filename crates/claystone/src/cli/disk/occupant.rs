//! What is on a device already, so that formatting takes nobody's files.
//!
//! Invariants:
//! 1. Nothing is written.
//! 2. A sector that cannot be read says nothing: a drive with bad sectors can be formatted.
//!
//! 3. Who writes all over a device asks [`refuse_occupied`] first, unless `--force` is given.
//!
//! Left out: what has no signature at a fixed place, but for whether there is anything ([`is_blank`]).

use std::path::Path;

use anyhow::{Context, bail};
use claystone_env::{Device, DeviceError, Effort, SECTOR_BYTES, Sector};

/// A signature: whose it is, where it lies, what it is.
type Signature = (&'static str, usize, &'static [u8]);

/// Passes a device at a path that holds nothing which would be lost.
///
/// # Errors
/// It holds something known; or is a file that is not blank, since a name that was mistyped is more likely that of a file than of a drive; or it does
/// not answer.
pub fn refuse_occupied(path: &Path, device: &dyn Device) -> anyhow::Result<()> {
    let name = path.display();
    let known = occupant(device).with_context(|| name.to_string())?;
    let unknown = known.is_none() && path.is_file() && !is_blank(device).with_context(|| name.to_string())?;
    match known.or(unknown.then_some("something else than zeros")) {
        None => Ok(()),
        Some(occupant) => {
            bail!("{name} holds {occupant}, which would be lost: name another device, or give it up with --force")
        }
    }
}

/// What a device holds, as a person would call it; `None` if nothing is known of it.
///
/// # Errors
/// The device does not answer.
fn occupant(device: &dyn Device) -> Result<Option<&'static str>, DeviceError> {
    let sectors = device.geometry().sectors;
    let near = NEAR_SECTORS.min(sectors);
    let front = read(device, Sector(0), near)?;
    let found = SIGNATURES.iter().find(|(_, at, bytes)| front.get(*at..).is_some_and(|rest| rest.starts_with(bytes)));
    if let Some((name, ..)) = found {
        return Ok(Some(name));
    }
    // Copies at the end: of a partition table, of a Claystone disk, of a RAID member.
    let back = read(device, Sector(sectors - near), near)?;
    let mut sectors = back.chunks_exact(SECTOR_BYTES).rev();
    let ends =
        |sector: &[u8]| ENDS.iter().find(|(_, bytes)| sector.chunks_exact(512).any(|part| part.starts_with(bytes)));
    Ok(sectors.find_map(ends).map(|(name, _)| *name))
}

/// Whether the first and the last MiB of a device are zeros, as those of a file that was only made: then it most likely is an image to be.
///
/// # Errors
/// The device does not answer.
fn is_blank(device: &dyn Device) -> Result<bool, DeviceError> {
    let sectors = device.geometry().sectors;
    let near = NEAR_SECTORS.min(sectors);
    for first in [0, sectors - near] {
        if read(device, Sector(first), near)?.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn read(device: &dyn Device, first: Sector, sectors: u64) -> Result<Vec<u8>, DeviceError> {
    let mut bytes = vec![0; sectors as usize * SECTOR_BYTES];
    device.read(first, &mut bytes, Effort::Retry)?;
    Ok(bytes)
}

/// What is looked through at each end: 1 MiB.
const NEAR_SECTORS: u64 = 256;

/// More telling ones first.
const SIGNATURES: [Signature; 36] = [
    ("a Claystone disk", 0, b"CLAYDISK"),
    ("a side of a Claystone disk", 0, b"CLAYTIER"),
    ("a LUKS volume", 0, b"LUKS\xba\xbe"),
    ("a LUKS volume", 0, b"SKUL\xba\xbe"),
    ("an LVM volume", 512, b"LABELONE"),
    ("an LVM volume", 0, b"LABELONE"),
    ("a member of a Linux RAID", 0, b"\xfc\x4e\x2b\xa9"),
    ("a member of a Linux RAID", 4096, b"\xfc\x4e\x2b\xa9"),
    ("a Ceph OSD", 0, b"bluestore block device"),
    ("an ext file system", 0x438, b"\x53\xef"),
    ("an XFS file system", 0, b"XFSB"),
    ("a Btrfs file system", 0x1_0040, b"_BHRfS_M"),
    ("a bcachefs file system or a bcache", 4096 + 24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca"),
    ("a bcachefs file system", 4096 + 24, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9"),
    ("a ZFS pool", 0x2_0000, b"\x0c\xb1\xba\x00"),
    ("a ZFS pool", 0x2_0000, b"\x00\x00\x00\x00\x00\xba\xb1\x0c"),
    ("a ZFS pool", 0x3fd8, b"\x11\x7a\x0c\xb1\x7a\xda\x10\x02"),
    ("an F2FS file system", 1024, b"\x10\x20\xf5\xf2"),
    ("a JFS file system", 0x8000, b"JFS1"),
    ("a ReiserFS file system", 0x1_0034, b"ReIsEr"),
    ("a NILFS file system", 1030, b"\x34\x34"),
    ("a swap space", 4086, b"SWAPSPACE2"),
    ("a swap space", 4086, b"SWAP-SPACE"),
    ("a suspended system", 4086, b"S1SUSPEND"),
    ("an NTFS file system", 3, b"NTFS    "),
    ("an exFAT file system", 3, b"EXFAT   "),
    ("a FAT file system", 82, b"FAT32   "),
    ("a FAT file system", 54, b"FAT16   "),
    ("a FAT file system", 54, b"FAT12   "),
    ("an APFS container", 32, b"NXSB"),
    ("an HFS+ file system", 1024, b"H+\x00\x04"),
    ("an ISO 9660 file system", 0x8001, b"CD001"),
    ("a SquashFS file system", 0, b"hsqs"),
    ("a GPT partition table", 512, b"EFI PART"),
    ("a GPT partition table", 4096, b"EFI PART"),
    ("a partition table", 510, b"\x55\xaa"),
];

/// What begins a 512-byte part near the end.
const ENDS: [(&str, &[u8]); 5] = [
    ("a Claystone disk", b"CLAYDISK"),
    ("a side of a Claystone disk", b"CLAYTIER"),
    ("the end of a GPT partition table", b"EFI PART"),
    ("a member of a Linux RAID", b"\xfc\x4e\x2b\xa9"),
    ("a DDF RAID", b"\xde\x11\xde\x11"),
];

#[cfg(test)]
mod tests {
    use claystone_env::testing::MemoryDevice;

    use super::*;

    fn of(sectors: u64, at: usize, bytes: &[u8]) -> Option<&'static str> {
        let device = MemoryDevice::new(sectors);
        let mut all = vec![0; sectors as usize * SECTOR_BYTES];
        all[at..][..bytes.len()].copy_from_slice(bytes);
        device.write(Sector(0), &all).expect("it takes writes");
        occupant(&device).expect("it answers")
    }

    #[test]
    fn a_byte_near_either_end_is_found() {
        for (at, is_found) in [(0, true), (NEAR - 1, true), (NEAR, false), (BYTES - NEAR - 1, false), (BYTES - 1, true)]
        {
            let device = MemoryDevice::new(1000);
            assert!(is_blank(&device).expect("it answers"));
            let mut sector = [0; SECTOR_BYTES];
            sector[at % SECTOR_BYTES] = 7;
            device.write(Sector((at / SECTOR_BYTES) as u64), &sector).expect("it takes writes");
            assert_eq!(is_blank(&device).expect("it answers"), !is_found, "byte {at}");
        }
        assert!(is_blank(&MemoryDevice::new(1)).expect("it answers"));
    }

    const BYTES: usize = 1000 * SECTOR_BYTES;
    const NEAR: usize = NEAR_SECTORS as usize * SECTOR_BYTES;

    #[test]
    fn every_signature_is_found_where_it_lies() {
        assert_eq!(of(64, 0, b""), None);
        for (name, at, bytes) in SIGNATURES {
            assert_eq!(of(1000, at, bytes), Some(name));
            assert_eq!(of(1000, at + 1, bytes), None, "{name} elsewhere");
        }
        for (name, bytes) in ENDS {
            assert_eq!(of(1000, 999 * SECTOR_BYTES, bytes), Some(name));
            assert_eq!(of(1000, 999 * SECTOR_BYTES + 3584, bytes), Some(name));
        }
        assert_eq!(of(1, 0, b"CLAYDISK"), Some("a Claystone disk"), "of a device of one sector");
    }
}
