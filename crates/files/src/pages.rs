//! The page file: what the catalog's database takes for its file.
//!
//! ```text
//! open --write--> dirty (in memory) --sync, or too many--> written --sync--> synced
//!   any --error of the device, or damage--> stopped
//!   any --no room--> stopped, full --PageFile::recover--> synced, as of the last sync
//!   synced --PageFile::sync_both--> synced, both header slots --PageFile::give_back--> synced, with fewer slabs
//! ```
//!
//! Invariants:
//! 1. A page is given out only if its sum is right. Pages that a power cut left torn are those that the database had
//!    free, and those it never reads.
//! 2. A sync writes pages and changed sums, syncs the device, and then writes the header into its older slot and syncs again.
//!    Until then the older header and all it reaches are whole: the database writes no page that its last header
//!    reaches. Each copy of anything is a write of its own, so that none of them that goes astray takes all copies.
//! 3. Sums are of a sync no later than the one after the header's. Where they are, a newer header is lost, and the
//!    pages of the one found may have been written over with good sums: that is an error.
//! 4. A page that was never written is an error to read, not zeros: the database reads no such page, so its sums are
//!    lost, and zeros would be a wrong answer.
//! 5. After any error nothing more is read or written: the database stops too, and what is on the device is found when
//!    the disk is opened anew. Where all that went wrong is that there was no room, the device is as sound as after a power cut at that
//!    moment, so the database may be opened anew at once.
//!
//! A slab is taken when a page is written that no slab holds, not when the file gets longer: the database doubles its
//! file to have room, and the sectors are better used for files. Of the last slabs those go that no page is written of, once the database has
//! cut its file: a page has no sum from then on. Before that both header slots are written, so that also where the newest header is lost
//! the other one reaches no page of theirs.
//!
//! On a pair of drives, pages that were written lately stay in memory too: those that the pair loses with its solid-state drive are read from
//! there and written again ([`PageFile::keep_lost`]).
//!
//! Where the disk is only looked at, what the database writes stays in memory.
//!
//! Left out: pages that the solid-state drive alone had, were written longer ago, and are in the database's cache only. It gives them out as rows, not as
//! pages, so they are not written again. Nothing that was synced is wrong for it: such a page has no copy that reads and fits its sum, so
//! the disk stops when it is read, or refuses to open. That drive had it alone, as it has sectors of files.

pub mod header;
mod load;
pub mod sums;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use claystone_env::{SECTOR_BYTES, Sector};
use claystone_group::DiskId;
use redb::StorageBackend;

use self::header::{FILE_BYTES_MAX, FIRST_PAGE_BYTES, Header};
use self::sums::{UNWRITTEN, encode_sums, page_sum, parse_sums, sums_in};
use crate::copies::{Access, Copies, Scope};
use crate::error::{Damage, DiskError};
use crate::shrink::spare_of;
use crate::slab::{SUMS, Slab};
use crate::superblock::{SLABS_MAX, SharedSuperblock, Superblock};

/// Where sectors for another slab come from.
pub trait SlabSource: Send + Sync {
    /// Takes so many consecutive free sectors, for ever; `None` if there are not so many in a row. Called while the
    /// database commits, with the page file locked: it must not use either. The superblock names the slab when the
    /// write that needed it returns. Until then the sectors are free after a crash, so whoever opens the disk takes
    /// from its free sectors what the superblock names.
    fn take(&self, sectors: u64) -> Option<Sector>;
}

/// The page file of an open disk. Clones are the same file.
#[derive(Clone)]
pub struct PageFile {
    shared: Arc<Shared>,
}

struct Shared {
    copies: Arc<Copies>,
    id: DiskId,
    header_slots: [Sector; 2],
    superblock: SharedSuperblock,
    source: Arc<dyn SlabSource>,
    /// Held through a sync.
    syncing: Mutex<()>,
    state: RwLock<State>,
    stopped: AtomicBool,
    /// Whether it stopped for want of room, and nothing else.
    full: AtomicBool,
    /// Pages written since somebody asked.
    written: AtomicU64,
}

struct State {
    slabs: Vec<Held>,
    /// Whole pages that are newer than on the device.
    dirty: BTreeMap<u64, Vec<u8>>,
    /// Length and first page as they are now; the sequence of the last sync, and the slot it wrote.
    header: Header,
    slot: usize,
    header_changed: bool,
    /// Whether the device was given pages since it was synced.
    unsynced: bool,
    /// Pages as they were written lately, the oldest first: of a pair of drives one may be lost with them.
    written_lately: VecDeque<(u64, Vec<u8>)>,
}

/// A slab and what is known of its pages.
struct Held {
    slab: Slab,
    first_page: u64,
    sums: Vec<u32>,
    sectors: Vec<SumsSector>,
}

/// The state of a sums sector.
#[derive(Debug, Clone, Copy, Default)]
struct SumsSector {
    /// The slot with its newest version.
    slot: u64,
    changed: bool,
}

/// What a scrub of pages has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageScrub {
    /// Pages that were read.
    pub pages: u64,
    /// Those of which no copy is right. After a power cut these may be free, which only walking the tables tells.
    pub unreadable: Vec<u64>,
}

impl PageFile {
    /// Makes the empty page file of a disk that is being formatted, in the slabs of its superblock, and syncs the device.
    /// The superblock is stored only when the database is made in it: a power cut before leaves no database.
    ///
    /// # Errors
    /// [`DiskError::Device`].
    ///
    /// # Panics
    /// If the disk is only looked at.
    pub fn create(copies: &Copies, superblock: &Superblock) -> Result<(), DiskError> {
        for slab in &superblock.slabs {
            write_empty_sums(copies, superblock.id, *slab)?;
        }
        let header = Header { sequence: 1, bytes: 0, first_page: vec![0; FIRST_PAGE_BYTES] };
        copies.write(superblock.header_slot(0), &header.encode(superblock.id))?;
        copies.write(superblock.header_slot(1), &[0; SECTOR_BYTES])?;
        Ok(copies.device().sync()?)
    }

    /// Opens the page file of a disk.
    ///
    /// # Errors
    /// [`DiskError::Damaged`], [`DiskError::Device`].
    pub fn open(
        copies: Arc<Copies>,
        superblock: SharedSuperblock,
        source: Arc<dyn SlabSource>,
    ) -> Result<PageFile, DiskError> {
        let current = superblock.current();
        let state = State::load(&copies, &current)?;
        let header_slots = [0, 1].map(|slot| current.header_slot(slot));
        let shared = Shared {
            copies,
            id: current.id,
            header_slots,
            superblock,
            source,
            syncing: Mutex::new(()),
            state: RwLock::new(state),
            stopped: AtomicBool::new(false),
            full: AtomicBool::new(false),
            written: AtomicU64::new(0),
        };
        let file = PageFile { shared: Arc::new(shared) };
        if file.state().header_changed && file.shared.copies.access() == Access::Write {
            // A cut sync left sums: its sequence is spent.
            file.sync()?;
        }
        Ok(file)
    }

    /// Pages that the slabs have room for.
    pub fn capacity(&self) -> u64 {
        self.state().capacity()
    }

    /// How many of the last slabs have no page that is written, where the others have room for [`spare_of`] pages more. The first slab stays.
    pub fn idle_slabs(&self) -> usize {
        let state = self.state();
        let end = state.written_end();
        let needed = end + spare_of(end);
        state.slabs.iter().skip(1).rev().take_while(|held| held.first_page >= needed).count()
    }

    /// How many of the last slabs would be idle if the file had so many pages.
    pub fn slabs_behind(&self, pages: u64) -> usize {
        self.state().slabs.iter().skip(1).rev().take_while(|held| held.first_page >= pages).count()
    }

    /// The last `count` slabs.
    ///
    /// # Panics
    /// If there are not as many.
    pub fn last_slabs(&self, count: usize) -> Vec<Slab> {
        let state = self.state();
        state.slabs[state.slabs.len() - count..].iter().map(|held| held.slab).collect()
    }

    /// Syncs until both header slots are of the file as it is: then no header that may be found reaches a page that it does not have.
    ///
    /// # Errors
    /// [`DiskError::Device`], [`DiskError::Stopped`].
    pub fn sync_both(&self) -> Result<(), DiskError> {
        self.stopping(|| {
            for _ in 0..2 {
                self.state_mut().header_changed = true;
                self.sync()?;
            }
            Ok(())
        })
    }

    /// Gives the last `count` slabs back: the superblock names them no more. Who calls has called [`PageFile::sync_both`], and the database has done
    /// nothing since.
    ///
    /// # Errors
    /// [`DiskError::Device`], [`DiskError::Stopped`]; then the superblock may name them or not.
    ///
    /// # Panics
    /// If a page of them is written, or the first slab is one of them.
    pub fn give_back(&self, count: usize) -> Result<(), DiskError> {
        self.stopping(|| {
            let _syncing = self.shared.syncing.lock().unwrap_or_else(PoisonError::into_inner);
            let mut state = self.state_mut();
            let left = state.slabs.len().checked_sub(count).filter(|left| *left > 0).expect("the first slab stays");
            let capacity = state.slabs[left].first_page;
            assert!(state.written_end() <= capacity, "a page of a slab that is given back is written");
            self.shared.superblock.store(|superblock| superblock.slabs.truncate(left))?;
            state.slabs.truncate(left);
            state.written_lately.retain(|(page, _)| *page < capacity);
            Ok(())
        })
    }

    /// Pages that were written since this was asked last: the database has taken no more than these.
    pub fn take_written(&self) -> u64 {
        self.shared.written.swap(0, Ordering::Relaxed)
    }

    /// Reads every copy of these pages as far as they are written, and mends. Sums and header are checked too.
    ///
    /// # Errors
    /// [`DiskError::Device`], [`DiskError::Stopped`].
    pub fn scrub(&self, pages: Range<u64>) -> Result<PageScrub, DiskError> {
        self.check_running()?;
        let state = self.state();
        let mut scrub = PageScrub::default();
        let mut page = pages.start.max(1);
        while let Some(run) = state.run_from(page..pages.end.min(state.capacity())) {
            if state.written(&run) {
                let mut bytes = vec![0; (run.end - run.start) as usize * SECTOR_BYTES];
                let lost = self.read_run(&state, run.start, &mut bytes, Scope::Every)?;
                scrub.pages += run.end - run.start;
                scrub.unreadable.extend(lost.into_iter().map(|number| run.start + number as u64));
            }
            page = run.end;
        }
        Ok(scrub)
    }

    /// Reads every copy of the sums and of the header, and mends. What is lost on the device, but not in memory, is
    /// written again with the next sync. Returns how much that is.
    ///
    /// # Errors
    /// [`DiskError::Device`], [`DiskError::Stopped`].
    pub fn scrub_sums(&self) -> Result<u64, DiskError> {
        self.check_running()?;
        let _syncing = self.shared.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let (copies, id) = (&self.shared.copies, self.shared.id);
        let mut state = self.state_mut();
        let state = &mut *state;
        let mut lost = 0;
        for held in &mut state.slabs {
            for (number, (sector, sums)) in (0..).zip(held.sectors.iter_mut().zip(held.sums.chunks(SUMS as usize))) {
                let place = held.slab.sums_place(number, sector.slot, copies.count());
                let age = |_, bytes: &[u8]| parse_sums(id, place, bytes);
                // Memory has what was written there last, or what is to be written next.
                let valid = |_, bytes: &[u8]| age(0, bytes).is_some() && sums_in(bytes).zip(sums).all(|(a, b)| a == *b);
                let bad = match sector.changed {
                    true => copies.read_newest(place, &mut [0; SECTOR_BYTES], &age)?,
                    false => copies.read(place, &mut [0; SECTOR_BYTES], Scope::Every, &valid)?,
                };
                sector.changed |= !bad.is_empty();
                lost += bad.len() as u64;
            }
        }
        let valid =
            |_, bytes: &[u8]| Header::parse(id, bytes).is_some_and(|header| header.sequence == state.header.sequence);
        let place = self.shared.header_slots[state.slot];
        let bad = copies.read(place, &mut [0; SECTOR_BYTES], Scope::Every, &valid)?;
        state.header_changed |= !bad.is_empty();
        Ok(lost + bad.len() as u64)
    }

    /// Sees to it that what memory has of the file, and the device has lost, is written again with the next sync: pages that were
    /// written lately, sums and header. For a device that has lost some of what it held. Returns how much that is.
    ///
    /// # Errors
    /// [`DiskError::Device`], [`DiskError::Stopped`].
    pub fn keep_lost(&self) -> Result<u64, DiskError> {
        self.check_running()?;
        let mut kept = 0;
        {
            let mut state = self.state_mut();
            for (page, bytes) in std::mem::take(&mut state.written_lately) {
                // Not those that the database has written since, or given up.
                let is_newest = page_sum(&bytes) == state.sum(page) && !state.dirty.contains_key(&page);
                if is_newest && !self.read_run(&state, page, &mut vec![0; SECTOR_BYTES], Scope::Needed)?.is_empty() {
                    state.dirty.insert(page, bytes);
                    kept += 1;
                }
            }
        }
        Ok(kept + self.scrub_sums()?)
    }

    /// Whether it stopped because there was no room for a page.
    pub fn is_full(&self) -> bool {
        self.shared.full.load(Ordering::Acquire)
    }

    /// Forgets what was written since the last sync, of a file that is full: it is what the device has, as if it were opened anew. Who
    /// calls opens the database anew too; the one that there was takes nothing any more.
    ///
    /// # Errors
    /// As [`PageFile::open`]; then it stays stopped.
    ///
    /// # Panics
    /// If it is not full.
    pub fn recover(&self) -> Result<(), DiskError> {
        assert!(self.is_full(), "it stopped for another reason, or not at all");
        let header_changed = {
            let _syncing = self.shared.syncing.lock().unwrap_or_else(PoisonError::into_inner);
            let loaded = State::load(&self.shared.copies, &self.shared.superblock.current())?;
            let mut state = self.state_mut();
            // Each is given out only if it is what its sum says.
            let written_lately = std::mem::take(&mut state.written_lately);
            *state = State { written_lately, ..loaded };
            state.header_changed
        };
        if header_changed {
            self.sync()?;
        }
        self.shared.full.store(false, Ordering::Release);
        self.shared.stopped.store(false, Ordering::Release);
        Ok(())
    }

    fn check_running(&self) -> Result<(), DiskError> {
        match self.shared.stopped.load(Ordering::Acquire) {
            true => Err(DiskError::Stopped),
            false => Ok(()),
        }
    }

    /// Does an operation of the database, and stops for good if it fails.
    fn run<T>(&self, operation: impl FnOnce() -> Result<T, DiskError>) -> io::Result<T> {
        self.stopping(operation).map_err(DiskError::into_io)
    }

    /// Does an operation, and stops for good if it fails.
    fn stopping<T>(&self, operation: impl FnOnce() -> Result<T, DiskError>) -> Result<T, DiskError> {
        let result = self.check_running().and_then(|()| operation());
        if let Err(DiskError::CatalogFull { .. }) = result {
            self.shared.full.store(true, Ordering::Release);
        }
        if result.is_err() {
            self.shared.stopped.store(true, Ordering::Release);
        }
        result
    }

    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.shared.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.shared.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills `into` from byte `offset`.
    fn fill(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let state = self.state();
        let page_bytes = SECTOR_BYTES as u64;
        let end = offset.saturating_add(into.len() as u64);
        if end > state.header.bytes {
            return Err(Damage::PageUnwritten { page: end / page_bytes }.into());
        }
        let (first, skip) = (offset / page_bytes, (offset % page_bytes) as usize);
        if skip == 0 && into.len().is_multiple_of(SECTOR_BYTES) {
            return self.fill_pages(&state, first, into);
        }
        let mut pages = vec![0; (skip + into.len()).next_multiple_of(SECTOR_BYTES)];
        self.fill_pages(&state, first, &mut pages)?;
        into.copy_from_slice(&pages[skip..][..into.len()]);
        Ok(())
    }

    /// Fills `into`, whole pages, from page `first`.
    fn fill_pages(&self, state: &State, first: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let end = first + (into.len() / SECTOR_BYTES) as u64;
        let mut page = first;
        while page < end {
            let at = (page - first) as usize * SECTOR_BYTES;
            if let Some(bytes) = state.in_memory(page) {
                let bytes = bytes.as_slice();
                into[at..][..bytes.len()].copy_from_slice(bytes);
                into[at + bytes.len()..][..SECTOR_BYTES - bytes.len()].fill(0);
                page += 1;
                continue;
            }
            let run = state.run_from(page..end).filter(|run| state.written(run));
            let run = run.ok_or(Damage::PageUnwritten { page })?;
            let into = &mut into[at..][..(run.end - run.start) as usize * SECTOR_BYTES];
            for lost in self.read_run(state, page, into, Scope::Needed)? {
                let page = page + lost as u64;
                let Some(bytes) = state.lately(page) else {
                    self.shared.copies.count_lost(1);
                    return Err(Damage::PageLost { page, place: state.place(page, self.shared.copies.count()) }.into());
                };
                into[lost * SECTOR_BYTES..][..SECTOR_BYTES].copy_from_slice(bytes);
            }
            page = run.end;
        }
        Ok(())
    }

    /// Reads pages that follow each other on the device; returns those of which no copy is right.
    fn read_run(&self, state: &State, page: u64, into: &mut [u8], scope: Scope) -> Result<Vec<usize>, DiskError> {
        let valid = |number: usize, bytes: &[u8]| page_sum(bytes) == state.sum(page + number as u64);
        Ok(self.shared.copies.read(state.place(page, self.shared.copies.count()), into, scope, &valid)?)
    }

    /// Puts `data` at byte `offset`, in memory, and where that is too much, on the device.
    fn put(&self, offset: u64, data: &[u8]) -> Result<(), DiskError> {
        let mut state = self.state_mut();
        let mut done = 0;
        let end = offset.saturating_add(data.len() as u64);
        assert!(end <= FILE_BYTES_MAX, "a page file of {end} bytes");
        if end > state.header.bytes {
            state.header.bytes = end.next_multiple_of(SECTOR_BYTES as u64);
            state.header_changed = true;
        }
        while done < data.len() {
            let at = offset + done as u64;
            let (page, skip) = (at / SECTOR_BYTES as u64, (at % SECTOR_BYTES as u64) as usize);
            let part = &data[done..][..(SECTOR_BYTES - skip).min(data.len() - done)];
            done += part.len();
            if page == 0 {
                let kept = part.len().min(FIRST_PAGE_BYTES.saturating_sub(skip));
                assert!(part[kept..].iter().all(|byte| *byte == 0), "the first page's end is not kept");
                state.header.first_page[skip.min(FIRST_PAGE_BYTES)..][..kept].copy_from_slice(&part[..kept]);
                state.header_changed = true;
                continue;
            }
            if self.shared.copies.access() == Access::Write && page >= state.capacity() {
                self.grow(&mut state, page + 1)?;
            }
            let mut bytes = match part.len() == SECTOR_BYTES || state.is_unwritten(page) {
                true => vec![0; SECTOR_BYTES],
                false => {
                    let mut bytes = vec![0; SECTOR_BYTES];
                    self.fill_pages(&state, page, &mut bytes)?;
                    bytes
                }
            };
            bytes[skip..][..part.len()].copy_from_slice(part);
            state.dirty.insert(page, bytes);
        }
        if state.dirty.len() > DIRTY_PAGES_MAX && self.shared.copies.access() == Access::Write {
            self.write_pages(&mut state)?;
        }
        Ok(())
    }

    /// Takes slabs until there is room for so many pages.
    fn grow(&self, state: &mut State, pages: u64) -> Result<(), DiskError> {
        let copies = &self.shared.copies;
        while state.capacity() < pages {
            let lacking = pages - state.capacity();
            // An eighth more each time: 200 slabs make any device's catalog.
            let mut wanted = lacking.max(state.capacity() / 8).max(SLAB_PAGES_MIN);
            let slab = loop {
                let of = |first| Slab { first, pages: wanted };
                let first = match state.slabs.len() < SLABS_MAX && wanted > 0 {
                    true => self.shared.source.take(of(Sector(0)).sectors(copies.count())),
                    false => return Err(DiskError::CatalogFull { pages: lacking }),
                };
                match first {
                    Some(first) => break of(first),
                    // In small steps: where little is left, it is to make few slabs.
                    None => wanted -= wanted.div_ceil(8),
                }
            };
            write_empty_sums(copies, self.shared.id, slab)?;
            copies.device().sync()?;
            self.shared.superblock.store(|superblock| superblock.slabs.push(slab))?;
            let first_page = state.capacity();
            state.slabs.push(Held::new(slab, first_page));
        }
        Ok(())
    }

    /// Writes the dirty pages, those that follow each other in one call.
    fn write_pages(&self, state: &mut State) -> Result<(), DiskError> {
        let copies = &self.shared.copies;
        let dirty = std::mem::take(&mut state.dirty);
        self.shared.written.fetch_add(dirty.len() as u64, Ordering::Relaxed);
        if copies.device().pair().is_some() {
            let excess = (state.written_lately.len() + dirty.len()).saturating_sub(WRITTEN_LATELY_MAX);
            state.written_lately.drain(..excess.min(state.written_lately.len()));
            let newest = dirty.iter().skip(dirty.len().saturating_sub(WRITTEN_LATELY_MAX));
            state.written_lately.extend(newest.map(|(page, bytes)| (*page, bytes.clone())));
        }
        let mut pages = dirty.into_iter().peekable();
        while let Some((first, mut bytes)) = pages.next() {
            let last = state.held(first).end().min(first + WRITE_PAGES_MAX);
            let mut end = first + 1;
            state.set_sum(first, page_sum(&bytes));
            while let Some((page, more)) = pages.next_if(|(page, _)| *page == end && end < last) {
                state.set_sum(page, page_sum(&more));
                bytes.extend_from_slice(&more);
                end += 1;
            }
            state.unsynced = true;
            copies.write(state.place(first, copies.count()), &bytes)?;
        }
        Ok(())
    }

    /// Writes the sums that changed, each into the slot with its older version.
    fn write_sums(&self, state: &mut State) -> Result<(), DiskError> {
        let copies = &self.shared.copies;
        let sequence = state.header.sequence + 1;
        for held in &mut state.slabs {
            for (number, sector) in held.sectors.iter_mut().enumerate().filter(|(_, sector)| sector.changed) {
                let place = held.slab.sums_place(number as u64, 1 - sector.slot, copies.count());
                let sums = held.sums.chunks(SUMS as usize).nth(number).expect("a sums sector has pages");
                copies.write(place, &encode_sums(self.shared.id, place, sequence, sums))?;
                *sector = SumsSector { slot: 1 - sector.slot, changed: false };
                state.unsynced = true;
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), DiskError> {
        let copies = &self.shared.copies;
        if copies.access() == Access::Look {
            return Ok(());
        }
        let _syncing = self.shared.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        // Readers go on while the device syncs.
        let (header, slot, unsynced) = {
            let mut state = self.state_mut();
            self.write_pages(&mut state)?;
            self.write_sums(&mut state)?;
            if !state.unsynced && !state.header_changed {
                return Ok(());
            }
            state.header_changed = false;
            state.header.sequence += 1;
            state.slot = 1 - state.slot;
            (state.header.encode(self.shared.id), state.slot, std::mem::take(&mut state.unsynced))
        };
        if unsynced {
            copies.device().sync()?;
        }
        copies.write(self.shared.header_slots[slot], &header)?;
        Ok(copies.device().sync()?)
    }
}

impl StorageBackend for PageFile {
    fn len(&self) -> Result<u64, io::Error> {
        self.run(|| Ok(self.state().header.bytes))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.run(|| self.fill(offset, out))
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.run(|| {
            assert!(len.is_multiple_of(SECTOR_BYTES as u64) && len <= FILE_BYTES_MAX, "a page file of {len} bytes");
            self.state_mut().resize(len);
            Ok(())
        })
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.run(|| self.sync())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.run(|| self.put(offset, data))
    }
}

/// A page file that is only looked at: what the database writes to it stays in memory.
#[derive(Debug)]
pub struct Looked(pub PageFile);

impl StorageBackend for Looked {
    fn len(&self) -> Result<u64, io::Error> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.0.write(offset, data)
    }
}

/// The page file while the database is made in it: its regions get [`REGION_PAGES`] pages each.
///
/// In a region the database doubles what it uses, and takes pages at odd ends of that first, so that with one of 4 GiB, as it makes them, the
/// slabs would soon be twice as long as what is in them, and where there is no room for as much, pages that there are would be of no use. Regions
/// are filled one after the other. How long they are is a field of its header that no checksum covers; it reads that back when it has written the first
/// header, and goes by it ever after.
#[derive(Debug)]
pub struct InRegions(pub PageFile);

impl StorageBackend for InRegions {
    fn len(&self) -> Result<u64, io::Error> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        let mut data = data.to_vec();
        if offset == 0 && data.len() >= REGION_PAGES_AT + 4 {
            data[REGION_PAGES_AT..][..4].copy_from_slice(&REGION_PAGES.to_le_bytes());
        }
        self.0.write(offset, &data)
    }
}

impl fmt::Debug for PageFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageFile").field("id", &self.shared.id).finish_non_exhaustive()
    }
}

impl State {
    fn capacity(&self) -> u64 {
        self.slabs.last().map_or(0, Held::end)
    }

    /// Behind the last page that is written, on the device or in memory.
    fn written_end(&self) -> u64 {
        let dirty = self.dirty.last_key_value().map_or(0, |(page, _)| page + 1);
        let written = |held: &Held| {
            let last = held.sums.iter().rposition(|sum| *sum != UNWRITTEN)?;
            Some(held.first_page + last as u64 + 1)
        };
        dirty.max(self.slabs.iter().rev().find_map(written).unwrap_or(1))
    }

    /// The slab of a page below the capacity.
    fn held(&self, page: u64) -> &Held {
        let number = self.slabs.partition_point(|held| held.end() <= page);
        &self.slabs[number]
    }

    fn place(&self, page: u64, copies: u64) -> Sector {
        let held = self.held(page);
        held.slab.page_place(page - held.first_page, copies)
    }

    fn sum(&self, page: u64) -> u32 {
        let held = self.held(page);
        held.sums[(page - held.first_page) as usize]
    }

    fn set_sum(&mut self, page: u64, sum: u32) {
        let number = self.slabs.partition_point(|held| held.end() <= page);
        let held = &mut self.slabs[number];
        let page = page - held.first_page;
        held.sectors[(page / SUMS) as usize].changed |= held.sums[page as usize] != sum;
        held.sums[page as usize] = sum;
    }

    /// What memory has of a page; the rest of it is zeros.
    fn in_memory(&self, page: u64) -> Option<&Vec<u8>> {
        if page == 0 { Some(&self.header.first_page) } else { self.dirty.get(&page) }
    }

    /// A page as it was written last, if that was lately, on a pair of drives.
    fn lately(&self, page: u64) -> Option<&[u8]> {
        let mut of_page = self.written_lately.iter().rev().filter(|(written, _)| *written == page);
        of_page.find(|(_, bytes)| page_sum(bytes) == self.sum(page)).map(|(_, bytes)| &bytes[..])
    }

    fn is_unwritten(&self, page: u64) -> bool {
        self.in_memory(page).is_none() && (page >= self.capacity() || self.sum(page) == UNWRITTEN)
    }

    /// The longest run of pages from the first of `pages` on that lie in one slab, not in memory, and are all written
    /// or all not.
    fn run_from(&self, pages: Range<u64>) -> Option<Range<u64>> {
        let end = pages.end.min(self.capacity());
        if pages.start >= end {
            return None;
        }
        let end = end.min(self.held(pages.start).end()).min(pages.start + READ_PAGES_MAX);
        let alike = |page: &u64| {
            (self.sum(*page) == UNWRITTEN) == (self.sum(pages.start) == UNWRITTEN) && self.in_memory(*page).is_none()
        };
        let run = (pages.start..end).take_while(alike).count() as u64;
        // A page in memory is passed over alone.
        Some(pages.start..pages.start + run.max(1))
    }

    /// Whether a run is of pages that the device has.
    fn written(&self, run: &Range<u64>) -> bool {
        self.sum(run.start) != UNWRITTEN && self.in_memory(run.start).is_none()
    }

    fn resize(&mut self, bytes: u64) {
        let pages = bytes / SECTOR_BYTES as u64;
        if bytes < self.header.bytes {
            self.dirty.split_off(&pages);
            let written: Vec<u64> =
                (pages.max(1)..self.capacity()).filter(|page| self.sum(*page) != UNWRITTEN).collect();
            for page in written {
                self.set_sum(page, UNWRITTEN);
            }
        }
        self.header_changed |= bytes != self.header.bytes;
        self.header.bytes = bytes;
    }
}

impl Held {
    /// A slab whose pages were never written.
    fn new(slab: Slab, first_page: u64) -> Held {
        let sums = vec![UNWRITTEN; slab.pages as usize];
        let sectors = vec![SumsSector::default(); slab.sums_sectors() as usize];
        Held { slab, first_page, sums, sectors }
    }

    fn end(&self) -> u64 {
        self.first_page + self.slab.pages
    }
}

/// Writes both slots of all sums sectors of a slab whose pages were never written: what was there before may be anything.
fn write_empty_sums(copies: &Copies, id: DiskId, slab: Slab) -> Result<(), DiskError> {
    let places: Vec<Sector> = (0..slab.sums_sectors())
        .flat_map(|number| [0, 1].map(|slot| slab.sums_place(number, slot, copies.count())))
        .collect();
    for places in places.chunks(READ_PAGES_MAX as usize) {
        let bytes: Vec<u8> = places.iter().flat_map(|place| encode_sums(id, *place, 0, &[])).collect();
        copies.write(places[0], &bytes)?;
    }
    Ok(())
}

/// Pages of the database in one of its regions, 2 MiB: more than it begins with, 257, and few beside those of any slab.
const REGION_PAGES: u32 = 512;
/// Where its header has them, in 4 bytes: behind magic, flags, the size of pages, and pages of a region's header.
const REGION_PAGES_AT: usize = 20;
/// Pages in memory before a sync, 8 MiB.
const DIRTY_PAGES_MAX: usize = 2048;
/// Pages kept in memory after they were written, 4 MiB: what checkpoints of several minutes write, mostly.
const WRITTEN_LATELY_MAX: usize = 1024;
/// Pages of one read or write of the device.
const READ_PAGES_MAX: u64 = 128;
const WRITE_PAGES_MAX: u64 = 256;
/// The least pages of a slab, where there is room.
const SLAB_PAGES_MIN: u64 = SUMS;

#[cfg(test)]
mod tests;
