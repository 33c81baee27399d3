//! How an entry lies in the ring: a few sectors each several times, many once with parity behind them.
//!
//! ```text
//! position    0     1     2     3     4     5          m' = 2: a position has two cells, sectors of the device
//! cell        0  1  2  3  4  5  6  7  8  9 10 11
//! mirrored    0  0' 1  1'                              an entry of 2 sectors: 2 positions
//! coded                   0  1  2  3  4  p  p  p       an entry of 5 sectors, m = 3: 4 positions
//! ```
//!
//! Invariants:
//! 1. Which of the two follows from the number of sectors alone: coded, if that takes fewer positions and they are more
//!    than m, so that one of them is left to find the entry by.
//! 2. A sector counts only for its disk, cell, entry, number and attempt, so what an attempt at an entry left behind that
//!    a power cut tore joins no other attempt at it.
//! 3. Every m' - 1 failed cells next to each other, or any m of a codeword, are made good; a parity cell may be of another
//!    entry, unnoticed, and is then one of them.
//! 4. A sector's checksum is not linear: else parity of another entry, which is a sum of sectors too, would decode to
//!    sectors with right checksums and wrong bytes.

use std::collections::BTreeSet;

use bytes::BytesMut;
use claystone_env::{SECTOR_BYTES, aligned_buffer};
use claystone_group::{DiskId, GroupCode, GroupShape};

use super::JournalPosition;
use crate::fields::{crc32c, u32_at, u64_at};

/// The ring that entries lie in.
#[derive(Debug, Clone)]
pub struct RingShape {
    /// Its positions.
    pub positions: u64,
    /// Slots of a position: m'.
    pub copies: u64,
    /// The code of long entries: that of the disk's groups.
    pub code: GroupCode,
    /// Whose it is.
    pub id: DiskId,
}

/// How an entry lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Its sectors, each counted once.
    pub sectors: u64,
    /// Positions that it takes.
    pub positions: u64,
    is_coded: bool,
}

/// What a cell says of the sector in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The entry.
    pub sequence: u64,
    /// Which of its sectors.
    pub number: u32,
    /// How many it has, each counted once.
    pub sectors: u32,
    /// Which attempt at the entry.
    pub attempt: u32,
}

/// Where an entry begins, and which attempt at it is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The entry.
    pub at: JournalPosition,
    /// The attempt.
    pub attempt: u32,
}

impl RingShape {
    /// Slots of the ring.
    pub fn cells(&self) -> u64 {
        self.positions * self.copies
    }

    /// How an entry of so many sectors lies.
    pub fn layout(&self, sectors: u64) -> Layout {
        let GroupShape { data, parity } = self.code.shape();
        let cells = sectors.saturating_add(sectors.div_ceil(data.into()).saturating_mul(parity.into()));
        let coded = cells.div_ceil(self.copies);
        match parity > 0 && sectors > parity.into() && coded < sectors {
            true => Layout { sectors, positions: coded, is_coded: true },
            false => Layout { sectors, positions: sectors, is_coded: false },
        }
    }

    /// The most sectors of an entry that takes no more than so many positions.
    pub fn sectors_in(&self, positions: u64) -> u64 {
        let GroupShape { data, parity } = self.code.shape();
        let cells = positions * self.copies;
        let codewords = cells.div_ceil(u64::from(data + parity));
        let coded = cells.saturating_sub(codewords * u64::from(parity));
        if self.layout(coded).positions <= positions { coded.max(positions) } else { positions }
    }

    /// The cell of sector `number`, the first of several.
    fn cell(&self, layout: Layout, at: JournalPosition, number: u64) -> u64 {
        let behind = if layout.is_coded { number } else { number * self.copies };
        (at.position * self.copies + behind) % self.cells()
    }

    /// Of any entry so many cells from its first on hold sectors of it, and not parity.
    pub fn sure_cells(&self) -> u64 {
        // A coded one has more sectors than parity.
        match u64::from(self.code.shape().parity) {
            0 => self.copies,
            parity => self.copies.min(parity + 1),
        }
    }

    /// The cells with sectors of an entry, each with the sector's number.
    pub fn sector_cells(&self, layout: Layout, at: JournalPosition) -> impl Iterator<Item = (u32, u64)> {
        let copies = if layout.is_coded { 1 } else { self.copies };
        let (first, cells) = (at.position * self.copies, self.cells());
        let copies_of = move |number: u64| (0..copies).map(move |copy| number * copies + copy);
        (0..layout.sectors)
            .flat_map(move |number| copies_of(number).map(move |behind| (number as u32, (first + behind) % cells)))
    }

    /// The cell in which an entry begins that has this in `cell`; `None` if it fits into no ring.
    pub fn begin(&self, cell: u64, head: Head) -> Option<u64> {
        let layout = self.layout(head.sectors.into());
        if layout.positions > self.positions || head.number >= head.sectors {
            return None;
        }
        let behind = match layout.is_coded {
            true => head.number.into(),
            false => u64::from(head.number) * self.copies + cell % self.copies,
        };
        Some((cell + self.cells() - behind) % self.cells())
    }

    /// What `cell` holds, if it is a sector of an entry of this disk that has its place there.
    pub fn parse(&self, cell: u64, bytes: &[u8]) -> Option<Head> {
        let head = Head {
            sequence: u64_at(bytes, SEQUENCE_AT),
            number: u32_at(bytes, NUMBER_AT),
            sectors: u32_at(bytes, SECTORS_AT),
            attempt: u32_at(bytes, ATTEMPT_AT),
        };
        let lead = if self.layout(head.sectors.into()).is_coded { cell } else { cell - cell % self.copies };
        (u32_at(bytes, CRC_AT) == self.crc(lead, bytes)).then_some(head)
    }

    /// Puts the checksum of a cell's bytes into them.
    #[cfg(any(test, feature = "fuzzing"))]
    pub fn seal(&self, cell: u64, bytes: &mut [u8]) {
        let is_coded = self.layout(u32_at(bytes, SECTORS_AT).into()).is_coded;
        let crc = self.crc(if is_coded { cell } else { cell - cell % self.copies }, bytes);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    }

    fn crc(&self, lead: u64, bytes: &[u8]) -> u32 {
        mixed(crc32c(&[&bytes[..CRC_AT], &self.id.0, &lead.to_le_bytes()]))
    }

    /// The cells of an entry with this payload, which fills its sectors, from its first on.
    ///
    /// # Panics
    /// If the payload is not whole sectors' worth.
    pub fn encode(&self, place: Place, payload: &[u8]) -> BytesMut {
        assert!(payload.len().is_multiple_of(PAYLOAD_BYTES), "a payload fills its sectors");
        let layout = self.layout((payload.len() / PAYLOAD_BYTES) as u64);
        let mut encoded = aligned_buffer((layout.positions * self.copies) as usize * SECTOR_BYTES);
        for (number, payload) in (0..).zip(payload.chunks_exact(PAYLOAD_BYTES)) {
            let begin = encoded.len();
            encoded.extend_from_slice(payload);
            encoded.extend_from_slice(&place.at.sequence.to_le_bytes());
            encoded.extend_from_slice(&(number as u32).to_le_bytes());
            encoded.extend_from_slice(&(layout.sectors as u32).to_le_bytes());
            encoded.extend_from_slice(&place.attempt.to_le_bytes());
            let crc = self.crc(self.cell(layout, place.at, number), &encoded[begin..]);
            encoded.extend_from_slice(&crc.to_le_bytes());
            for _ in 1..if layout.is_coded { 1 } else { self.copies } {
                encoded.extend_from_within(begin..begin + SECTOR_BYTES);
            }
        }
        if layout.is_coded {
            let GroupShape { data, parity } = self.code.shape();
            let data_bytes = encoded.len();
            encoded.resize((layout.positions * self.copies) as usize * SECTOR_BYTES, 0);
            let (sectors, behind) = encoded.split_at_mut(data_bytes);
            let sectors: Vec<&[u8]> = sectors.chunks_exact(SECTOR_BYTES).collect();
            let parities = behind.chunks_exact_mut(parity as usize * SECTOR_BYTES);
            for (sectors, parity) in sectors.chunks(data as usize).zip(parities) {
                self.code.encode(sectors, parity);
            }
        }
        encoded
    }

    /// The payload of an entry whose cells were read; those in `unread`, counted from its first, were not. `None` if more
    /// is missing than can be made good.
    pub fn decode(&self, place: Place, layout: Layout, cells: &[u8], unread: &BTreeSet<u64>) -> Option<Vec<u8>> {
        let first = self.cell(layout, place.at, 0);
        let read = |behind: u64| {
            let bytes = &cells[behind as usize * SECTOR_BYTES..][..SECTOR_BYTES];
            (!unread.contains(&behind)).then_some(bytes)
        };
        let is_sector = |behind: u64, number: u64, bytes: &[u8]| {
            let expected = Head {
                sequence: place.at.sequence,
                number: number as u32,
                sectors: layout.sectors as u32,
                attempt: place.attempt,
            };
            self.parse((first + behind) % self.cells(), bytes) == Some(expected)
        };
        let mut payload = Vec::with_capacity(layout.sectors as usize * PAYLOAD_BYTES);
        if !layout.is_coded {
            for number in 0..layout.sectors {
                let copies = number * self.copies..(number + 1) * self.copies;
                let good = |behind: u64| read(behind).filter(|bytes| is_sector(behind, number, bytes));
                payload.extend_from_slice(&copies.into_iter().find_map(good)?[..PAYLOAD_BYTES]);
            }
            return Some(payload);
        }
        let GroupShape { data, parity } = self.code.shape();
        let (data, parity) = (u64::from(data), u64::from(parity));
        for codeword in 0..layout.sectors.div_ceil(data) {
            let numbers = codeword * data..layout.sectors.min((codeword + 1) * data);
            let good = |number: u64| read(number).filter(|bytes| is_sector(number, number, bytes));
            let sectors: Vec<Option<&[u8]>> = numbers.clone().map(good).collect();
            let behind = layout.sectors + codeword * parity;
            let behind: Vec<Option<&[u8]>> = (behind..behind + parity).map(read).collect();
            let right =
                |at: usize, bytes: &[u8]| is_sector(numbers.start + at as u64, numbers.start + at as u64, bytes);
            let mended = self.mend(&sectors, &behind, &right)?;
            let mut mended = mended.chunks_exact(SECTOR_BYTES);
            for sector in sectors {
                payload.extend_from_slice(&sector.or_else(|| mended.next())?[..PAYLOAD_BYTES]);
            }
        }
        Some(payload)
    }

    /// The sectors of a codeword that are missing, which are `right`: from any parity sectors that give such.
    fn mend(
        &self,
        sectors: &[Option<&[u8]>],
        parity: &[Option<&[u8]>],
        right: &dyn Fn(usize, &[u8]) -> bool,
    ) -> Option<Vec<u8>> {
        let missing: Vec<usize> = (0..sectors.len()).filter(|at| sectors[*at].is_none()).collect();
        if missing.is_empty() {
            return Some(Vec::new());
        }
        let short = vec![Some(&ZEROS[..]); self.code.shape().data as usize - sectors.len()];
        let there: Vec<usize> = (0..parity.len()).filter(|at| parity[*at].is_some()).collect();
        let mut decoded = choices(there.len(), missing.len()).take(CHOICES_MAX).filter_map(|chosen| {
            let kept = (0..parity.len()).map(|at| parity[at].filter(|_| chosen.iter().any(|one| there[*one] == at)));
            let members: Vec<Option<&[u8]>> =
                sectors.iter().copied().chain(short.iter().copied()).chain(kept).collect();
            self.code.decode(&members, &missing)
        });
        decoded.find(|bytes| missing.iter().zip(bytes.chunks_exact(SECTOR_BYTES)).all(|(at, bytes)| right(*at, bytes)))
    }
}

/// All choices of `some` numbers below `all`, each ascending.
pub fn choices(all: usize, some: usize) -> impl Iterator<Item = Vec<usize>> {
    let first = (some <= all).then(|| (0..some).collect::<Vec<usize>>());
    std::iter::successors(first, move |last| {
        let at = (0..some).rev().find(|at| last[*at] < all - some + at)?;
        let mut next = last.clone();
        for (behind, number) in next[at..].iter_mut().enumerate() {
            *number = last[at] + 1 + behind;
        }
        Some(next)
    })
}

/// Another number for each number: the finalizer of MurmurHash3.
fn mixed(mut number: u32) -> u32 {
    number = (number ^ number >> 16).wrapping_mul(0x85eb_ca6b);
    number = (number ^ number >> 13).wrapping_mul(0xc2b2_ae35);
    number ^ number >> 16
}

/// Choices of parity that are tried: all, for any m up to 10.
const CHOICES_MAX: usize = 252;
/// Bytes of an entry in one sector.
pub const PAYLOAD_BYTES: usize = 4072;
const SEQUENCE_AT: usize = PAYLOAD_BYTES;
const NUMBER_AT: usize = 4080;
const SECTORS_AT: usize = 4084;
const ATTEMPT_AT: usize = 4088;
const CRC_AT: usize = 4092;
const ZEROS: [u8; SECTOR_BYTES] = [0; SECTOR_BYTES];
