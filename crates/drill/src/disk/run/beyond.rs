//! More is lost than can be mended: what is read must be right, or an error that names what is lost.
//!
//! Where things lie is taken from docs/formats/disk.md; groups are found by what they hold.

use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::{Error, Result, bail, ensure};
use claystone_env::{SECTOR_BYTES, Sector};
use claystone_files::{FileError, Inode};

use super::Run;
use crate::disk::atlas::Code;
use crate::disk::scenario::Step;
use crate::disk::subject::number;

/// What is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Thing {
    /// All copies of the superblock, at both ends.
    Superblock,
    /// All copies of the page file's header, in both slots.
    Header,
    /// All copies of a sums sector of the page file, in both slots.
    Sums { place: u64 },
    /// All copies of a page.
    Page { page: u64, place: u64 },
    /// More cells of the journal than an entry can lose, side by side; it has successors or has none.
    Journal { places: Range<u64>, sequence: u64, is_last: bool },
    /// More sectors of a file's group than it has parity.
    Group { inode: Inode, places: Vec<u64> },
}

impl Run {
    /// Steps, a crash, and the loss of one thing, of which `after` others come before.
    pub(super) fn run_beyond(&mut self, after: u64) -> Result<()> {
        ensure!(self.case.scale.code() == CODE, "what is lost beyond repair is found on small disks");
        for _ in 0..STEPS_BEFORE {
            self.step()?;
        }
        // From here on a crash leaves one state only; the journal has what was written last.
        self.must("syncing", |run| run.take(&Step::SyncAll))?;
        let files: Vec<Inode> = self.model.shape().files().collect();
        for (seed, inode) in (0..REWRITES).zip(files.into_iter().cycle()) {
            let step = Step::Write { inode, offset: seed * 5000 % 20_000, bytes: 3000, seed, sync: true };
            self.must("writing", |run| run.take(&step))?;
        }
        self.report.faults.cuts += 1;
        self.subject.crash();
        let Some(thing) = self.things().into_iter().nth(after as usize) else { return Ok(()) };
        self.report.reached = true;
        self.tell(format!("{thing:?} is lost"));
        for sector in self.places(&thing) {
            self.report.faults.hurt += 1;
            self.subject.device.make_lost(sector..sector + 1);
        }
        self.judge(&thing)
    }

    /// All that can be lost, as the disk lies there.
    fn things(&self) -> Vec<Thing> {
        let superblock = self.subject.superblock().expect("the disk is whole");
        let content = |place: u64| self.subject.device.content(Sector(place)).expect("nothing is lost yet");
        let mut things = vec![Thing::Superblock, Thing::Header];
        let (journal, sectors) = (number(&superblock, 80), number(&superblock, 88));
        let entries: Vec<(Range<u64>, u64)> = (0..sectors)
            .filter_map(|position| {
                let (cell, place) = (position * CODE.copies, journal + position * CODE.copies);
                let Head { sequence, number, is_coded } = Head::parse(&superblock, cell, &content(place))?;
                let end = place + if is_coded { CODE.parity + 1 } else { CODE.copies };
                // Of a coded one the first codeword, where it does not go on at the ring's begin.
                let counts = !is_coded || (number == 0 && end <= journal + sectors * CODE.copies);
                counts.then_some((place..end, sequence))
            })
            .collect();
        let last = entries.iter().map(|(_, sequence)| *sequence).max();
        things.extend(entries.into_iter().map(|(places, sequence)| {
            let is_last = Some(sequence) == last;
            Thing::Journal { places, sequence, is_last }
        }));
        let mut first_page = 0;
        let journal_end = journal + sectors * CODE.copies;
        let mut slabs = Vec::new();
        for slab in 0..usize::from(superblock[52]) {
            let (first, pages) = (number(&superblock, 512 + 16 * slab), number(&superblock, 520 + 16 * slab));
            let sums = pages.div_ceil(SUMS);
            things.extend((0..sums).map(|number| Thing::Sums { place: first + 2 * number * CODE.copies }));
            let written = (0..pages).map(|page| (page, first + (2 * sums + page) * CODE.copies));
            let written = written.filter(|(_, place)| content(*place) != [0; SECTOR_BYTES]);
            things.extend(written.map(|(page, place)| Thing::Page { page: first_page + page, place }));
            first_page += pages;
            slabs.push(first..first + (2 * sums + pages) * CODE.copies);
        }
        things.extend(self.groups(journal_end, &slabs));
        things
    }

    /// Sectors of files, side by side in the file, as many as one group cannot lose. Some of them are of two groups.
    fn groups(&self, from: u64, slabs: &[Range<u64>]) -> Vec<Thing> {
        // Former places have the content too, so that they may all be lost.
        let mut places: BTreeMap<Vec<u8>, Vec<u64>> = BTreeMap::new();
        for place in (from..self.subject.sectors()).filter(|place| !slabs.iter().any(|slab| slab.contains(place))) {
            let content = self.subject.device.content(Sector(place)).filter(|content| *content != [0; SECTOR_BYTES]);
            if let Some(content) = content {
                places.entry(content).or_default().push(place);
            }
        }
        let mut things = Vec::new();
        for inode in self.model.shape().files() {
            let sectors: Vec<&[u8]> = self.model.content(inode).sectors().collect();
            for sectors in sectors.chunks_exact(CODE.parity as usize + 1) {
                let places: Vec<u64> =
                    sectors.iter().filter_map(|content| places.get(*content)).flatten().copied().collect();
                if places.len() >= sectors.len() {
                    things.push(Thing::Group { inode, places });
                }
            }
        }
        things
    }

    fn places(&self, thing: &Thing) -> Vec<u64> {
        let copies = CODE.copies;
        match thing {
            Thing::Superblock => (0..copies).chain(self.subject.sectors() - copies..self.subject.sectors()).collect(),
            Thing::Header => (copies..3 * copies).collect(),
            Thing::Sums { place } => (*place..place + 2 * copies).collect(),
            Thing::Page { place, .. } => (*place..place + copies).collect(),
            Thing::Journal { places, .. } => places.clone().collect(),
            Thing::Group { places, .. } => places.clone(),
        }
    }

    /// Opens what is left and reads all of it.
    fn judge(&mut self, thing: &Thing) -> Result<()> {
        let mut named = 0;
        let opened = self.subject.open().map_err(Error::from);
        if let Err(error) = opened {
            let told = format!("{error:#}");
            ensure!(thing.is_named_in(&told), "{thing:?} is lost, and opening says: {told}");
            self.report.named += 1;
            return Ok(());
        }
        match thing {
            Thing::Superblock | Thing::Header | Thing::Sums { .. } => bail!("{thing:?} is lost, and the disk opens"),
            // Nobody can know that it was promised; but what is there must be whole.
            Thing::Journal { is_last: true, .. } => return self.subject.check(),
            Thing::Journal { .. } | Thing::Page { .. } | Thing::Group { .. } => {}
        }
        let disk = self.subject.disk();
        self.model.judge(disk, &mut |error| {
            let names = match (thing, error) {
                (Thing::Group { inode, .. }, FileError::Lost { inode: of, .. }) => inode == of,
                (_, FileError::Failed { why }) => thing.is_named_in(why) || (named > 0 && is_stopped(why)),
                _ => false,
            };
            named += u64::from(names);
            names
        })?;
        let (checked, scrubbed) = (disk.check(), disk.scrub(&mut |_| true).map_err(Error::from));
        if let Ok(report) = &checked {
            ensure!(report.problems.is_empty(), "{thing:?} is lost, and the check finds {:?}", report.problems);
        }
        match (thing, &scrubbed) {
            (Thing::Group { inode, .. }, Ok(found)) => {
                ensure!(found.lost.iter().all(|(of, _)| of == inode), "the scrub finds {:?} lost", found.lost);
                ensure!(named == 0 || !found.lost.is_empty(), "the scrub does not find what {inode} has lost");
                checked?;
            }
            (Thing::Page { page, .. }, Ok(found)) => {
                ensure!(found.lost.is_empty(), "the scrub finds {:?} lost", found.lost);
                let told = checked.is_err() || found.pages_lost.contains(page);
                ensure!(named == 0 || told, "neither check nor scrub tell of {thing:?}");
            }
            (Thing::Page { .. }, Err(error)) => {
                let told = format!("{error:#}");
                ensure!(thing.is_named_in(&told) || is_stopped(&told), "{thing:?} is lost, and the scrub says: {told}");
            }
            _ => drop((checked?, scrubbed?)),
        }
        self.report.named += named;
        Ok(())
    }
}

impl Thing {
    /// Whether an error's text says what is lost.
    fn is_named_in(&self, text: &str) -> bool {
        let name = match self {
            Thing::Superblock => "no copy of the superblock can be read".to_owned(),
            Thing::Header => "no copy of the page file's header can be read".to_owned(),
            Thing::Sums { place } => format!("no copy of the checksums at sector {place} can be read"),
            Thing::Page { page, place } => format!("no copy of page {page} at sector {place} can be read"),
            Thing::Journal { sequence, .. } => format!("entry {sequence} of the journal"),
            Thing::Group { inode, .. } => format!("sectors of inode {inode} are lost"),
        };
        text.contains(&name)
    }
}

/// What is behind the payload of a sector of the journal.
struct Head {
    sequence: u64,
    number: u64,
    is_coded: bool,
}

impl Head {
    /// `None` if a cell of the journal holds no sector of an entry.
    fn parse(superblock: &[u8], cell: u64, bytes: &[u8]) -> Option<Head> {
        let (low, high) = (|bytes: u64| bytes & 0xffff_ffff, |bytes: u64| bytes >> 32);
        let (behind, crc) = (number(bytes, 4080), high(number(bytes, 4088)));
        let mut sum = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
        [&bytes[..4092], &superblock[16..32], &cell.to_le_bytes()].iter().for_each(|part| sum.update(part));
        let (number_in, sectors) = (low(behind), high(behind));
        let coded = (sectors + sectors.div_ceil(CODE.data) * CODE.parity).div_ceil(CODE.copies);
        let head = Head {
            sequence: number(bytes, 4072),
            number: number_in,
            is_coded: sectors > CODE.parity && coded < sectors,
        };
        let mut sum = sum.finalize() & 0xffff_ffff;
        for (shift, factor) in [(16, 0x85eb_ca6b), (13, 0xc2b2_ae35), (16, 1)] {
            sum = ((sum ^ sum >> shift) * factor) & 0xffff_ffff;
        }
        (sum == crc).then_some(head)
    }
}

/// Whether an error tells that the catalog's database gave up after an earlier one.
fn is_stopped(text: &str) -> bool {
    ["the disk stopped after an earlier error", "Previous I/O error"].iter().any(|told| text.contains(told))
}

const STEPS_BEFORE: u64 = 30;
/// Small writes with an fsync behind each, at the end: they wait in the journal.
const REWRITES: u64 = 6;
/// Pages whose checksums a sums sector of the page file holds.
const SUMS: u64 = 1018;
/// Of the small scale, which these cases are of.
const CODE: Code = Code { data: 6, parity: 2, copies: 3 };
