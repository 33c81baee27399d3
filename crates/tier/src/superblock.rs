//! The superblock: what a pair is, in two slots on each of its devices.
//!
//! Invariants:
//! 1. A superblock that was parsed has logs and a home that lie on its devices without overlapping, and parses to the same bytes again.
//! 2. Storing one on a device writes the slot of the lower generation, syncs, writes the other, syncs: at any moment the newest that
//!    was read or stored is whole in one of them.
//! 3. Of the valid slots the highest generation counts.
//!
//! The format: docs/formats/tiered-device.md.

use std::{fmt, io};

use claystone_env::{Device, DeviceError, Effort, Random, SECTOR_BYTES, Sector, SectorRange, aligned_buffer};

use crate::fields::{array_at, crc32c_without, put, u16_at, u32_at, u64_at};
use crate::index::IndexAt;
use crate::latency::SizeLatency;
use crate::profile::{self, Profile};
use crate::stage::StageBytes;

/// The version of the format that this program writes. It reads those before too, 3 with indexes of another form, which are passed over, 2 without
/// indexes, and 1 without bare records: an opening stores this one.
pub const VERSION: u16 = 4;
const VERSION_MIN: u16 = 1;
/// Bounds of [`Superblock::record_sectors_max`].
pub const RECORD_SECTORS: std::ops::RangeInclusive<u16> = 8..=256;

/// A side of a pair, and so one of its two logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The solid-state drive.
    Ssd,
    /// The hard disk.
    Hdd,
}

/// Both.
pub const SIDES: [Side; 2] = [Side::Ssd, Side::Hdd];

impl Side {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Side::Ssd => "solid-state drive",
            Side::Hdd => "hard disk",
        }
    }
}

/// Which pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PairId(pub [u8; 16]);

impl PairId {
    /// A new one.
    pub fn new(random: &dyn Random) -> PairId {
        let mut id = [0; 16];
        random.fill(&mut id);
        PairId(id)
    }
}

impl fmt::Display for PairId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What a pair is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Whether the solid-state drive is lost, and what only it held is said to be.
    pub ssd_lost: bool,
    /// Whether all was brought home, and nothing written since: what the hard disk says of that counts.
    pub at_rest: bool,
    /// Which pair.
    pub id: PairId,
    /// How often it was stored.
    pub generation: u64,
    /// Records of a lower sequence are void.
    pub floor: u64,
    /// How often it was opened.
    pub epoch: u32,
    /// Sectors of a record's payload at most.
    pub record_sectors_max: u16,
    /// Sectors of each log that may be in no mark.
    pub unmarked_sectors_max: u32,
    /// Sectors of the solid-state drive and of the hard disk.
    pub sectors: [u64; 2],
    /// Their logs.
    pub logs: [SectorRange; 2],
    /// The home, on the hard disk.
    pub home: SectorRange,
    /// Places where the first record of each log is looked for.
    pub tails: [u64; 2],
    /// The newest index of what both logs hold, while it is of something above the floor.
    pub index: Option<IndexAt>,
    /// What is known of the hard disk's write buffer.
    pub profile: Option<Profile>,
    /// The queue of the solid-state drive that is not long yet, if it was measured.
    pub queue_max: Option<u16>,
    /// What the solid-state drive was called when the pair was opened last; empty if that is too long to be kept.
    pub ssd_label: String,
}

/// Why a sector is no superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuperblockFault {
    /// It does not begin as one, or is damaged.
    Foreign,
    /// It is of a version that is not known here.
    Other(u16),
}

impl Superblock {
    /// Its bytes on one side.
    ///
    /// # Panics
    /// If it does not parse again: a field is out of its bounds.
    pub fn encode(&self, side: Side) -> Vec<u8> {
        let mut bytes = vec![0; SECTOR_BYTES];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, VERSION.to_le_bytes());
        bytes[10] = side as u8;
        bytes[11] = self.ssd_lost.into();
        put(&mut bytes, 16, self.id.0);
        put(&mut bytes, 32, self.generation.to_le_bytes());
        put(&mut bytes, 40, self.floor.to_le_bytes());
        put(&mut bytes, 48, self.epoch.to_le_bytes());
        put(&mut bytes, 52, self.record_sectors_max.to_le_bytes());
        put(&mut bytes, 56, self.unmarked_sectors_max.to_le_bytes());
        bytes[61] = self.at_rest.into();
        put(&mut bytes, 62, self.queue_max.map_or(0, |queue| queue + 1).to_le_bytes());
        let [ssd, hdd] = self.sectors;
        let [ssd_log, hdd_log] = self.logs;
        let ranges = [ssd_log, hdd_log, self.home].map(|range| [range.first.0, range.sectors]);
        let IndexAt { seq, place } = self.index.unwrap_or(NO_INDEX);
        let numbers = [hdd, ssd].into_iter().chain(ranges.into_iter().flatten()).chain(self.tails).chain([seq, place]);
        for (number, at) in numbers.zip((64..).step_by(8)) {
            put(&mut bytes, at, number.to_le_bytes());
        }
        if let Some(profile) = &self.profile {
            encode_profile(&mut bytes, profile);
        }
        bytes[LABEL_AT..][..self.ssd_label.len()].copy_from_slice(self.ssd_label.as_bytes());
        let crc = crc32c_without(&bytes, CRC_AT);
        put(&mut bytes, CRC_AT, crc.to_le_bytes());
        assert_eq!(Superblock::parse(&bytes).as_ref(), Ok(&(side, self.clone())), "what is stored can be read");
        bytes
    }

    /// What a sector holds, and for which side.
    ///
    /// # Errors
    /// It is no superblock.
    pub fn parse(bytes: &[u8]) -> Result<(Side, Superblock), SuperblockFault> {
        if bytes.len() != SECTOR_BYTES || !bytes.starts_with(&MAGIC) {
            return Err(SuperblockFault::Foreign);
        }
        if crc32c_without(bytes, CRC_AT) != u32_at(bytes, CRC_AT) {
            return Err(SuperblockFault::Foreign);
        }
        let version = u16_at(bytes, 8);
        if !(VERSION_MIN..=VERSION).contains(&version) {
            return Err(SuperblockFault::Other(version));
        }
        let side = *SIDES.get(usize::from(bytes[10])).ok_or(SuperblockFault::Foreign)?;
        let range = |at: usize| SectorRange { first: Sector(u64_at(bytes, at)), sectors: u64_at(bytes, at + 8) };
        let index = IndexAt { seq: u64_at(bytes, 144), place: u64_at(bytes, 152) };
        let superblock = Superblock {
            ssd_lost: bytes[11] != 0,
            at_rest: bytes[61] != 0,
            id: PairId(array_at(bytes, 16)),
            generation: u64_at(bytes, 32),
            floor: u64_at(bytes, 40),
            epoch: u32_at(bytes, 48),
            record_sectors_max: u16_at(bytes, 52),
            unmarked_sectors_max: u32_at(bytes, 56),
            sectors: [u64_at(bytes, 72), u64_at(bytes, 64)],
            logs: [range(80), range(96)],
            home: range(112),
            tails: [u64_at(bytes, 128), u64_at(bytes, 136)],
            index: Some(index).filter(|at| *at != NO_INDEX && version == VERSION),
            profile: parse_profile(bytes)?,
            queue_max: u16_at(bytes, 62).checked_sub(1),
            ssd_label: text(&bytes[LABEL_AT..][..LABEL_BYTES]),
        };
        let is_right = bytes[11] <= 1 && bytes[60] == 0 && bytes[61] <= 1 && superblock.is_right();
        is_right.then_some((side, superblock)).ok_or(SuperblockFault::Foreign)
    }

    /// Whether its numbers describe a pair.
    fn is_right(&self) -> bool {
        let within = |range: SectorRange, sectors: u64| {
            let end = range.first.0.checked_add(range.sectors);
            range.first.0 >= 1 && range.sectors > 0 && end.is_some_and(|end| end < sectors)
        };
        let [ssd_log, hdd_log] = self.logs;
        let [ssd, hdd] = self.sectors;
        let apart = || hdd_log.end() <= self.home.first || self.home.end() <= hdd_log.first;
        let tails = self.tails.iter().zip(self.logs).all(|(tail, log)| *tail < log.sectors);
        let index = self.index.is_none_or(|at| at.place < ssd_log.sectors);
        within(ssd_log, ssd)
            && within(hdd_log, hdd)
            && within(self.home, hdd)
            && apart()
            && tails
            && index
            && RECORD_SECTORS.contains(&self.record_sectors_max)
            && self.epoch < EPOCHS
    }

    /// Stores it on one side.
    ///
    /// # Errors
    /// The device's: then either slot may be the old one or this one, and one of them is whole.
    pub fn store(&self, device: &dyn Device, side: Side) -> Result<(), DeviceError> {
        let mut bytes = aligned_buffer(SECTOR_BYTES);
        bytes.extend_from_slice(&self.encode(side));
        // A power cut may have left the newest one in one slot only: that is written last.
        let mut by_age = slots(device).map(|slot| (generation_in(device, slot), slot));
        by_age.sort_unstable();
        for (_, slot) in by_age {
            device.write(slot, &bytes)?;
            device.sync()?;
        }
        Ok(())
    }
}

/// The newest superblock of a device.
///
/// # Errors
/// The device does not answer, or neither slot reads; or, within, it has none.
pub fn newest(device: &dyn Device) -> Result<Result<(Side, Superblock), SuperblockFault>, DeviceError> {
    let mut newest: Result<(Side, Superblock), SuperblockFault> = Err(SuperblockFault::Foreign);
    let mut reads = false;
    for slot in slots(device) {
        let mut bytes = aligned_buffer(SECTOR_BYTES);
        bytes.resize(SECTOR_BYTES, 0);
        let failed = device.read(slot, &mut bytes, Effort::Retry)?;
        if !failed.is_empty() {
            continue;
        }
        reads = true;
        newest = match (newest, Superblock::parse(&bytes)) {
            (Ok(known), Ok(found)) if known.1.generation >= found.1.generation => Ok(known),
            (_, Ok(found)) => Ok(found),
            (Ok(known), Err(_)) => Ok(known),
            (Err(SuperblockFault::Other(version)), Err(_)) => Err(SuperblockFault::Other(version)),
            (Err(SuperblockFault::Foreign), Err(fault)) => Err(fault),
        };
    }
    if !reads {
        let (range, source) = (SectorRange { first: Sector(0), sectors: 1 }, io::Error::other("no superblock reads"));
        return Err(DeviceError::Read { range, source });
    }
    Ok(newest)
}

/// Makes a device have no superblock.
///
/// # Errors
/// The device's: then it may have one still.
pub fn erase(device: &dyn Device) -> Result<(), DeviceError> {
    let mut zeros = aligned_buffer(SECTOR_BYTES);
    zeros.resize(SECTOR_BYTES, 0);
    for slot in slots(device) {
        device.write(slot, &zeros)?;
    }
    device.sync()
}

/// Of the superblock in a slot; 0 if there is none.
fn generation_in(device: &dyn Device, slot: Sector) -> u64 {
    let mut bytes = aligned_buffer(SECTOR_BYTES);
    bytes.resize(SECTOR_BYTES, 0);
    // Whether it cannot be read or is none: it is to be written first.
    match device.read(slot, &mut bytes, Effort::Retry) {
        Ok(failed) if failed.is_empty() => Superblock::parse(&bytes).map_or(0, |(_, found)| found.generation),
        Ok(_) | Err(_) => 0,
    }
}

/// Where a device has its superblock.
pub fn slots(device: &dyn Device) -> [Sector; 2] {
    [Sector(0), Sector(device.geometry().sectors - 1)]
}

fn encode_profile(bytes: &mut [u8], profile: &Profile) {
    put(bytes, 54, (profile.sizes.len() as u16).to_le_bytes());
    for (stage, at) in [&profile.fast, &profile.mid, &profile.slow].into_iter().zip((PROFILE_AT..).step_by(32)) {
        for (number, at) in [stage.mean, stage.deviation, stage.least].into_iter().zip((at..).step_by(8)) {
            put(bytes, at, number.to_le_bytes());
        }
        put(bytes, at + 24, stage.seen.to_le_bytes());
    }
    for (size, at) in profile.sizes.iter().zip((SIZES_AT..).step_by(SIZE_BYTES)) {
        let numbers = [size.bytes, size.fast_ns, size.mid_ns, size.slow_ns, size.slow_from_ns];
        for (number, at) in numbers.into_iter().zip((at..).step_by(8)) {
            put(bytes, at, number.to_le_bytes());
        }
    }
    let name = shortened(&profile.device);
    bytes[NAME_AT..][..name.len()].copy_from_slice(name.as_bytes());
}

fn parse_profile(bytes: &[u8]) -> Result<Option<Profile>, SuperblockFault> {
    let sizes = usize::from(u16_at(bytes, 54));
    if sizes == 0 {
        return Ok(None);
    }
    if sizes > SIZES_MAX {
        return Err(SuperblockFault::Foreign);
    }
    let stage = |number: usize| {
        let at = PROFILE_AT + 32 * number;
        let [mean, deviation, least] = [0, 8, 16].map(|skipped| u64_at(bytes, at + skipped));
        StageBytes { mean, deviation, least, seen: u32_at(bytes, at + 24) }
    };
    let size = |at: usize| SizeLatency {
        bytes: u64_at(bytes, at),
        fast_ns: u64_at(bytes, at + 8),
        mid_ns: u64_at(bytes, at + 16),
        slow_ns: u64_at(bytes, at + 24),
        slow_from_ns: u64_at(bytes, at + 32),
    };
    let profile = Profile {
        version: profile::FORMAT_VERSION,
        device: text(&bytes[NAME_AT..][..NAME_BYTES]),
        fast: stage(0),
        mid: stage(1),
        slow: stage(2),
        sizes: (0..sizes).map(|number| size(SIZES_AT + SIZE_BYTES * number)).collect(),
    };
    match profile.check() {
        Ok(()) => Ok(Some(profile)),
        Err(_) => Err(SuperblockFault::Foreign),
    }
}

/// A text that ends with its field, or before a 0.
fn text(field: &[u8]) -> String {
    let text = field.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// A label, if it can be kept: a part of a path names something else.
pub fn kept_label(label: String) -> String {
    if label.len() <= LABEL_BYTES && !label.contains(['\0', char::REPLACEMENT_CHARACTER]) {
        label
    } else {
        String::new()
    }
}

/// As much of a name as is kept.
pub fn shortened(name: &str) -> &str {
    let name = name.split('\0').next().unwrap_or_default();
    let end = (0..=name.len().min(NAME_BYTES)).rev().find(|end| name.is_char_boundary(*end));
    &name[..end.unwrap_or(0)]
}

const MAGIC: [u8; 8] = *b"CLAYTIER";
/// How it says that there is none.
pub const NO_INDEX: IndexAt = IndexAt { seq: 0, place: 0 };
const CRC_AT: usize = 12;
const PROFILE_AT: usize = 256;
const SIZES_AT: usize = 352;
const SIZE_BYTES: usize = 40;
/// Lengths that a profile may have here.
pub const SIZES_MAX: usize = 32;
const NAME_AT: usize = 2048;
const NAME_BYTES: usize = 64;
const LABEL_AT: usize = 2112;
const LABEL_BYTES: usize = 512;
/// Epochs are the high 24 bits of a sequence.
pub const EPOCHS: u32 = 1 << 24;

#[cfg(test)]
mod tests {
    use claystone_env::testing::MemoryDevice;
    use claystone_sim::{HddModel, SimDevice};

    use super::*;
    use crate::fields::crc32c;
    use crate::profile::tests::profile;

    pub fn superblock() -> Superblock {
        let range = |first, sectors| SectorRange { first: Sector(first), sectors };
        Superblock {
            ssd_lost: false,
            at_rest: false,
            id: PairId([7; 16]),
            generation: 3,
            floor: 5 << 40,
            epoch: 5,
            record_sectors_max: 8,
            unmarked_sectors_max: 32,
            sectors: [100, 1000],
            logs: [range(1, 98), range(1, 100)],
            home: range(101, 898),
            tails: [97, 0],
            index: Some(IndexAt { seq: (5 << 40) + 9, place: 33 }),
            profile: Some(profile()),
            queue_max: None,
            ssd_label: "/dev/nvme0n1p3".to_owned(),
        }
    }

    #[test]
    fn the_bytes_are_as_the_format_says() {
        let bytes = superblock().encode(Side::Hdd);
        assert_eq!((&bytes[..8], u16_at(&bytes, 8), bytes[10]), (&b"CLAYTIER"[..], 4, 1));
        assert_eq!([u64_at(&bytes, 64), u64_at(&bytes, 72), u64_at(&bytes, 120)], [1000, 100, 898]);
        assert_eq!([u64_at(&bytes, 128), u64_at(&bytes, 136), u64_at(&bytes, 256)], [97, 0, 16 << 20]);
        assert_eq!([u64_at(&bytes, 144), u64_at(&bytes, 152)], [(5 << 40) + 9, 33]);
        assert_eq!((u64_at(&bytes, 352 + 40), &bytes[2048..2057]), (16384, &b"a drive\0\0"[..]));
        assert_eq!(&bytes[2112..2127], b"/dev/nvme0n1p3\0");
        assert_eq!(crc32c(&bytes), GOLDEN);
        let bare = Superblock { profile: None, ssd_lost: true, queue_max: Some(6), ..superblock() };
        assert_eq!(u16_at(&bare.encode(Side::Ssd), 62), 7);
        let at_rest = Superblock { at_rest: true, index: None, ..superblock() };
        assert_eq!(at_rest.encode(Side::Hdd)[61], 1);
        assert_eq!(Superblock::parse(&at_rest.encode(Side::Hdd)), Ok((Side::Hdd, at_rest)));
        assert_eq!(Superblock::parse(&bare.encode(Side::Ssd)), Ok((Side::Ssd, bare)));
    }

    /// Of all bytes of the example.
    const GOLDEN: u32 = 1_275_966_306;

    #[test]
    fn a_changed_byte_or_a_missing_one_is_found() {
        let bytes = superblock().encode(Side::Ssd);
        for at in 0..SECTOR_BYTES {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            assert!(Superblock::parse(&flipped).is_err(), "byte {at}");
            assert!(Superblock::parse(&bytes[..at]).is_err(), "{at} bytes");
        }
        let of_version = |version: u16| {
            let mut other = bytes.clone();
            put(&mut other, 8, version.to_le_bytes());
            let crc = crc32c_without(&other, CRC_AT);
            put(&mut other, CRC_AT, crc.to_le_bytes());
            Superblock::parse(&other)
        };
        assert_eq!([0, 5].map(of_version), [0, 5].map(|other| Err(SuperblockFault::Other(other))));
        let without = || Superblock { index: None, ..superblock() };
        assert_eq!(
            [1, 2, 3].map(of_version),
            [1, 2, 3].map(|_| Ok((Side::Ssd, without()))),
            "of before they name no index"
        );
    }

    #[test]
    fn what_describes_no_pair_is_none() {
        let wrong = |change: &dyn Fn(&mut Superblock)| {
            let mut wrong = superblock();
            change(&mut wrong);
            assert!(!wrong.is_right(), "{wrong:?}");
        };
        wrong(&|superblock| superblock.home.first = Sector(100));
        wrong(&|superblock| superblock.home.sectors = 899);
        wrong(&|superblock| superblock.logs[0].sectors = 99);
        wrong(&|superblock| superblock.logs[1].first = Sector(0));
        wrong(&|superblock| superblock.logs[1].sectors = u64::MAX);
        wrong(&|superblock| superblock.tails[0] = 98);
        wrong(&|superblock| superblock.index = Some(IndexAt { seq: 1, place: 98 }));
        wrong(&|superblock| superblock.record_sectors_max = 257);
        wrong(&|superblock| superblock.epoch = 1 << 24);
    }

    #[test]
    fn the_newer_slot_counts_and_one_is_enough() {
        let device = MemoryDevice::new(100);
        assert_eq!(newest(&device).expect("read"), Err(SuperblockFault::Foreign));
        superblock().store(&device, Side::Ssd).expect("write");
        let next = Superblock { generation: 4, ..superblock() };
        device.write(Sector(99), &next.encode(Side::Ssd)).expect("write");
        assert_eq!(newest(&device).expect("read"), Ok((Side::Ssd, next.clone())));
        device.write(Sector(0), &next.encode(Side::Ssd)).expect("write");
        device.write(Sector(99), &[9; SECTOR_BYTES]).expect("write");
        assert_eq!(newest(&device).expect("read"), Ok((Side::Ssd, next)));
    }

    #[test]
    fn a_power_cut_never_takes_the_newest_that_was_found() {
        for seed in 0..60 {
            let device = SimDevice::alone("ssd", HddModel::new(100), seed);
            superblock().store(&*device.attach(), Side::Ssd).expect("write");
            // A cut left the next one in one slot only, and it was found there.
            let next = Superblock { generation: 4, ..superblock() };
            let slot = slots(&*device.attach())[(seed % 2) as usize];
            device.attach().write(slot, &next.encode(Side::Ssd)).expect("write");
            device.attach().sync().expect("sync");
            // Two reads, and then writes and syncs.
            device.cut_power_after(2 + seed / 2 % 4);
            let stored = Superblock { generation: 5, ..superblock() }.store(&*device.attach(), Side::Ssd);
            assert!(stored.is_err());
            device.crash();
            let (_, found) = newest(&*device.attach()).expect("read").expect("a superblock");
            assert!(found.generation >= 4, "seed {seed}");
        }
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        assert_eq!(shortened(&"ä".repeat(40)), "ä".repeat(32));
        assert_eq!(shortened(&format!("x{}", "ä".repeat(40))), format!("x{}", "ä".repeat(31)));
        assert_eq!(shortened("a\0b"), "a");
        assert_eq!((kept_label("x".repeat(512)).len(), kept_label("x".repeat(513))), (512, String::new()));
    }
}
