//! Sectors kept several times in a row: a lead and its shadows.
//!
//! ```text
//! logical   0           1
//! device    L S S       L S S      L: lead, S: shadow; three copies of each
//! ```
//!
//! Invariants:
//! 1. No write of the device has two sectors that are kept several times: one that goes astray takes one copy with it where it
//!    was meant for, and one where it ends. A call writes the leads first, then the first shadows, and so on: what lies side by
//!    side is not handed in together, for the system would make one write of it.
//! 2. A copy counts only if it reads and `valid` says so: the lead first, else a shadow that reads at once, else what
//!    retrying one by one gives. Where copies may be of several times the newest counts, for which all that fail softly are retried:
//!    one that reads at once may be older.
//! 3. A copy found bad or older beside a good one is written again, unless the disk is only looked at.
//!
//! Left out: who else writes these sectors at the same time. A caller that mends must hold off its own writers.
//
// Source: [lec §3.3]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use claystone_env::{Device, DeviceError, Effort, FailedSector, SECTOR_BYTES, Sector, SectorFailure};

/// Whether a disk is opened to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Nothing is written, not even what could be mended.
    Look,
    /// All is.
    Write,
}

/// Which copies a read looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Of each sector as many as it takes to have it.
    Needed,
    /// All, so that a bad one is mended before it is needed.
    Every,
    /// All, those too that do not read at once: they may be of several times.
    Newest,
}

/// Tells whether these bytes are the sector of this number, counted from the first of the read.
pub type Valid<'a> = &'a dyn Fn(usize, &[u8]) -> bool;

/// When what is in these bytes was written, greater for what is newer; `None` if they are not the sector of this number.
pub type Age<'a> = &'a dyn Fn(usize, &[u8]) -> Option<u64>;

/// A device, and how often things are kept on it.
pub struct Copies {
    device: Arc<dyn Device>,
    copies: usize,
    access: Access,
    mended: AtomicU64,
    lost: AtomicU64,
    reads: Reads,
}

/// What became of reads.
#[derive(Debug, Default)]
struct Reads {
    sectors: AtomicU64,
    fail_fast: AtomicU64,
    soft_failures: AtomicU64,
    retries: AtomicU64,
    retries_avoided: AtomicU64,
}

/// What became of reads, at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadsNow {
    /// Sectors asked of the device.
    pub sectors: u64,
    /// Those of them that were to be read at once or not at all.
    pub fail_fast: u64,
    /// Sectors that did not read at once.
    pub soft_failures: u64,
    /// Sectors that the device was asked to retry after it had failed.
    pub retries: u64,
    /// Soft failures of what another copy gave without a retry.
    pub retries_avoided: u64,
}

impl Copies {
    /// Things kept `copies` times on `device`.
    ///
    /// # Panics
    /// If `copies` is 0.
    pub fn new(device: Arc<dyn Device>, copies: u16, access: Access) -> Copies {
        assert!(copies > 0, "what is kept is kept at least once");
        let (mended, lost) = (AtomicU64::new(0), AtomicU64::new(0));
        Copies { device, copies: copies.into(), access, mended, lost, reads: Reads::default() }
    }

    /// The device itself.
    pub fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// Whether anything may be written.
    pub fn access(&self) -> Access {
        self.access
    }

    /// How often a sector is kept.
    pub fn count(&self) -> u64 {
        self.copies as u64
    }

    /// Copies that were bad and were written again.
    pub fn mended(&self) -> u64 {
        self.mended.load(Ordering::Relaxed)
    }

    /// Sectors that [`Copies::count_lost`] was told of.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// What became of reads so far.
    pub fn reads(&self) -> ReadsNow {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ReadsNow {
            sectors: of(&self.reads.sectors),
            fail_fast: of(&self.reads.fail_fast),
            soft_failures: of(&self.reads.soft_failures),
            retries: of(&self.reads.retries),
            retries_avoided: of(&self.reads.retries_avoided),
        }
    }

    /// Counts sectors that failed softly and were had without a retry.
    pub fn count_avoided(&self, sectors: usize) {
        self.reads.retries_avoided.fetch_add(sectors as u64, Ordering::Relaxed);
    }

    /// Reads sectors, leads or shadows, as the device has them, and counts what becomes of it.
    ///
    /// # Errors
    /// As [`Device::read`].
    pub fn fetch(&self, first: Sector, into: &mut [u8], effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        let failed = self.device.read(first, into, effort)?;
        let sectors = (into.len() / SECTOR_BYTES) as u64;
        let add = |count: &AtomicU64, more: u64| _ = count.fetch_add(more, Ordering::Relaxed);
        add(&self.reads.sectors, sectors);
        match effort {
            Effort::FailFast if self.device.geometry().fails_fast => {
                add(&self.reads.fail_fast, sectors);
                add(&self.reads.soft_failures, soft(&failed) as u64);
            }
            Effort::FailFast => {}
            Effort::Retry => add(&self.reads.retries, sectors),
        }
        Ok(failed)
    }

    /// Counts sectors of which no copy was good and which somebody needs. A read cannot know: the end of a journal
    /// looks the same.
    pub fn count_lost(&self, sectors: u64) {
        self.lost.fetch_add(sectors, Ordering::Relaxed);
    }

    /// Writes whole sectors, all copies of each, from `first`.
    ///
    /// # Errors
    /// As [`Device::write`].
    ///
    /// # Panics
    /// If `bytes` are not whole sectors on the device, or the disk is only looked at.
    pub fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        assert!(self.access == Access::Write, "a disk that is only looked at is not written");
        if self.copies == 1 {
            return self.device.write(first, bytes);
        }
        for copy in 0..self.count() {
            let leads = (first.0..).step_by(self.copies);
            let writes: Vec<(Sector, &[u8])> =
                leads.map(|lead| Sector(lead + copy)).zip(bytes.chunks(SECTOR_BYTES)).collect();
            self.device.write_each(&writes)?;
        }
        Ok(())
    }

    /// Fills `into`, whole sectors, from the copies from `first` on. Returns the numbers of those of which no copy is
    /// good, in ascending order; their bytes are zeros.
    ///
    /// # Errors
    /// [`DeviceError::Read`]. A copy that cannot be mended is left as it is.
    ///
    /// # Panics
    /// If `into` is not whole sectors whose copies are on the device.
    pub fn read(
        &self,
        first: Sector,
        into: &mut [u8],
        scope: Scope,
        valid: Valid<'_>,
    ) -> Result<Vec<usize>, DeviceError> {
        self.read_aged(first, into, scope, &|number, bytes| valid(number, bytes).then_some(0))
    }

    /// As [`Copies::read`] of every copy, of which the newest counts: who wrote some of them may have been cut short, or a write
    /// may have gone astray.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub fn read_newest(&self, first: Sector, into: &mut [u8], age: Age<'_>) -> Result<Vec<usize>, DeviceError> {
        self.read_aged(first, into, Scope::Newest, age)
    }

    fn read_aged(&self, first: Sector, into: &mut [u8], scope: Scope, age: Age<'_>) -> Result<Vec<usize>, DeviceError> {
        let mut lost = Vec::new();
        for (number, part) in (0..).zip(into.chunks_mut(PART_SECTORS * SECTOR_BYTES)) {
            let at = number * PART_SECTORS;
            let first = Sector(first.0 + at as u64 * self.count());
            let found = self.read_part(first, part, scope, &|number, bytes| age(at + number, bytes))?;
            lost.extend(found.into_iter().map(|number| at + number));
        }
        Ok(lost)
    }

    fn read_part(&self, first: Sector, into: &mut [u8], scope: Scope, age: Age<'_>) -> Result<Vec<usize>, DeviceError> {
        // A single lead alone; of several sectors, the head passes over their shadows anyway.
        let single = into.len() == SECTOR_BYTES && scope == Scope::Needed;
        let seen = if single { 1 } else { self.copies };
        let mut bytes = vec![0; into.len() * seen];
        let mut failures = vec![None; into.len() / SECTOR_BYTES * seen];
        for failed in self.fetch(first, &mut bytes, Effort::FailFast)? {
            failures[(failed.sector.0 - first.0) as usize] = Some(failed.failure);
        }
        let mut lost = Vec::new();
        for (number, into) in into.chunks_exact_mut(SECTOR_BYTES).enumerate() {
            let lead = Sector(first.0 + number as u64 * self.count());
            let copies = bytes[number * seen * SECTOR_BYTES..].chunks_exact(SECTOR_BYTES).take(seen);
            let failures = &failures[number * seen..][..seen];
            let mut search = Search::new(lead, number, into, age);
            for (copy, (bytes, failure)) in copies.zip(failures).enumerate() {
                if search.is_good() && scope == Scope::Needed {
                    break;
                }
                search.offer(copy, bytes, *failure);
            }
            self.finish(&mut search, seen, scope)?;
            if !search.is_good() {
                search.into.fill(0);
                lost.push(number);
            }
        }
        Ok(lost)
    }

    /// Looks on where no copy of what was `seen` is good, or one that did not read may be newer, and mends.
    fn finish(&self, search: &mut Search<'_>, seen: usize, scope: Scope) -> Result<(), DeviceError> {
        if !search.is_good() && seen < self.copies {
            let mut shadows = vec![0; (self.copies - seen) * SECTOR_BYTES];
            let first = Sector(search.lead.0 + seen as u64);
            let failed = self.fetch(first, &mut shadows, Effort::FailFast)?;
            for (number, bytes) in shadows.chunks_exact(SECTOR_BYTES).enumerate() {
                let of_copy = failed.iter().find(|failed| failed.sector.0 == first.0 + number as u64);
                search.offer(seen + number, bytes, of_copy.map(|failed| failed.failure));
            }
        }
        let mut unread = std::mem::take(&mut search.unread).into_iter();
        while (!search.is_good() || scope == Scope::Newest)
            && let Some((copy, failure)) = unread.next()
        {
            if search.is_good() && failure == SectorFailure::Lost {
                continue;
            }
            let mut bytes = [0; SECTOR_BYTES];
            let place = Sector(search.lead.0 + copy as u64);
            let failed = self.fetch(place, &mut bytes, Effort::Retry)?;
            search.bad.retain(|bad| *bad != copy);
            search.offer(copy, &bytes, failed.first().map(|failed| failed.failure));
            if search.good.len() > 1 {
                // It is as another that reads at once, or was retried before it: nothing is risked by writing it again.
                search.bad.extend(search.good.pop_if(|good| *good == copy));
            }
        }
        if search.is_good() {
            self.count_avoided(unread.filter(|(_, failure)| *failure == SectorFailure::Soft).count());
            if self.access == Access::Write {
                self.mend(search);
            }
        }
        Ok(())
    }

    /// Writes what a sector should hold that was found bad.
    pub fn write_again(&self, place: Sector, bytes: &[u8]) {
        match self.device.write(place, bytes) {
            Ok(()) => drop(self.mended.fetch_add(1, Ordering::Relaxed)),
            // It was bad before; what was asked for is there.
            Err(error) => tracing::warn!(sector = place.0, %error, "a bad copy was not mended"),
        }
    }

    fn mend(&self, search: &Search<'_>) {
        for copy in &search.bad {
            self.write_again(Sector(search.lead.0 + *copy as u64), search.into);
        }
    }
}

/// The search for a good copy of one sector.
struct Search<'a> {
    lead: Sector,
    number: usize,
    into: &'a mut [u8],
    age: Age<'a>,
    /// Of what is in `into`.
    newest: Option<u64>,
    /// Copies that are as `into`, those found bad or older so far, and of these those that did not read.
    good: Vec<usize>,
    bad: Vec<usize>,
    unread: Vec<(usize, SectorFailure)>,
}

impl<'a> Search<'a> {
    fn new(lead: Sector, number: usize, into: &'a mut [u8], age: Age<'a>) -> Search<'a> {
        Search { lead, number, into, age, newest: None, good: Vec::new(), bad: Vec::new(), unread: Vec::new() }
    }

    fn is_good(&self) -> bool {
        self.newest.is_some()
    }

    fn offer(&mut self, copy: usize, bytes: &[u8], failure: Option<SectorFailure>) {
        let age = if failure.is_none() { (self.age)(self.number, bytes) } else { None };
        if age > self.newest {
            self.into.copy_from_slice(bytes);
            self.newest = age;
            self.bad.append(&mut self.good);
        }
        match age.is_some() && age == self.newest {
            true => self.good.push(copy),
            false => self.bad.push(copy),
        }
        self.unread.extend(failure.map(|failure| (copy, failure)));
    }
}

/// How many of these may read if they are retried.
pub fn soft(failed: &[FailedSector]) -> usize {
    failed.iter().filter(|failed| failed.failure == SectorFailure::Soft).count()
}

/// Sectors of one read of the device, each counted once: 512 KiB of them and their copies.
const PART_SECTORS: usize = 128;

#[cfg(test)]
mod tests;
