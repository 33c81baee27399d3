//! Reading header and sums of a page file when a disk is opened.
//!
//! Invariants:
//! 1. Both slots of everything are looked at: the newest that is right counts.

use claystone_env::{Effort, SECTOR_BYTES, Sector};
use claystone_group::DiskId;

use super::header::Header;
use super::sums::{parse_sums, sums_in};
use super::{Held, State, SumsSector};
use crate::copies::{Copies, Scope};
use crate::error::{Damage, DiskError};
use crate::slab::{SUMS, Slab};
use crate::superblock::Superblock;

impl State {
    /// What the device has. The header counts as changed if it must be written before anything else.
    pub(super) fn load(copies: &Copies, superblock: &Superblock) -> Result<State, DiskError> {
        let (header, slot) = load_header(copies, superblock)?;
        let mut slabs = Vec::new();
        let mut newest = 0;
        let mut first_page = 0;
        for slab in &superblock.slabs {
            let (held, sequence) = load_sums(copies, superblock.id, *slab, first_page)?;
            newest = newest.max(sequence);
            first_page = held.end();
            slabs.push(held);
        }
        if newest > header.sequence.saturating_add(1) {
            return Err(Damage::HeaderStale { header: header.sequence, sums: newest }.into());
        }
        let header_changed = newest > header.sequence;
        Ok(State {
            slabs,
            dirty: Default::default(),
            header,
            slot,
            header_changed,
            unsynced: false,
            written_lately: Default::default(),
        })
    }
}

/// The newest header and its slot.
fn load_header(copies: &Copies, superblock: &Superblock) -> Result<(Header, usize), DiskError> {
    let (id, count) = (superblock.id, copies.count() as usize);
    let first = superblock.header_slot(0);
    let mut bytes = vec![0; 2 * count * SECTOR_BYTES];
    let failed = copies.fetch(first, &mut bytes, Effort::FailFast)?;
    // The copies of a slot may be of two syncs, after a power cut.
    let mut found: [Option<Header>; 2] = [None, None];
    let mut offer = |number: usize, bytes: &[u8]| {
        let best = &mut found[number / count];
        if let Some(header) = Header::parse(id, bytes)
            && best.as_ref().is_none_or(|best| header.sequence > best.sequence)
        {
            *best = Some(header);
        }
    };
    let unread: Vec<usize> = failed.iter().map(|failed| (failed.sector.0 - first.0) as usize).collect();
    for (number, bytes) in bytes.chunks_exact(SECTOR_BYTES).enumerate() {
        if !unread.contains(&number) {
            offer(number, bytes);
        }
    }
    for number in unread {
        let mut bytes = [0; SECTOR_BYTES];
        if copies.fetch(Sector(first.0 + number as u64), &mut bytes, Effort::Retry)?.is_empty() {
            offer(number, &bytes);
        }
    }
    let sequence = |slot: usize| found[slot].as_ref().map(|header| header.sequence);
    let slot = usize::from(sequence(1) > sequence(0));
    let [a, b] = found;
    let header = if slot == 0 { a } else { b }.ok_or(Damage::HeaderLost)?;
    let valid = |_, bytes: &[u8]| Header::parse(id, bytes).as_ref() == Some(&header);
    copies.read(superblock.header_slot(slot as u64), &mut [0; SECTOR_BYTES], Scope::Every, &valid)?;
    Ok((header, slot))
}

/// The sums of a slab, and the newest sync that wrote any.
fn load_sums(copies: &Copies, id: DiskId, slab: Slab, first_page: u64) -> Result<(Held, u64), DiskError> {
    let mut held = Held::new(slab, first_page);
    held.sums.clear();
    let mut newest = 0;
    for first in (0..slab.sums_sectors()).step_by(READ_SUMS_MAX) {
        let end = slab.sums_sectors().min(first + READ_SUMS_MAX as u64);
        let place = |number: usize| slab.sums_place(first + number as u64 / 2, number as u64 % 2, copies.count());
        // The copies of a slot may be of two syncs, too.
        let age = |number: usize, bytes: &[u8]| parse_sums(id, place(number), bytes);
        let mut bytes = vec![0; 2 * (end - first) as usize * SECTOR_BYTES];
        copies.read_newest(place(0), &mut bytes, &age)?;
        for (number, slots) in bytes.chunks_exact(2 * SECTOR_BYTES).enumerate() {
            let (a, b) = slots.split_at(SECTOR_BYTES);
            let sequence = |slot: usize, bytes| parse_sums(id, place(2 * number + slot), bytes);
            let slot = u64::from(sequence(1, b) > sequence(0, a));
            let bytes = if slot == 0 { a } else { b };
            let sequence = sequence(slot as usize, bytes).ok_or(Damage::SumsLost { place: place(2 * number) })?;
            newest = newest.max(sequence);
            held.sectors[first as usize + number] = SumsSector { slot, changed: false };
            let pages = (slab.pages - held.sums.len() as u64).min(SUMS) as usize;
            held.sums.extend(sums_in(bytes).take(pages));
        }
    }
    Ok((held, newest))
}

/// Sums sectors of one read of the device.
const READ_SUMS_MAX: usize = 64;
