//! What exactly is damaged, and whether it can be mended.
//!
//! Invariants:
//! 1. It takes as long as the chunk files are, whatever length their heads promise: rows behind the end of all of them
//!    are counted, not looked for.

use std::collections::BTreeMap;
use std::ops::Range;

use claystone_code::Unrecoverable;

use crate::Progress;
use crate::chunk_file::ChunkFile;
use crate::find::Oddity;
use crate::hashes::Hashes;
use crate::parcel::{ManifestFile, Parcel};
use crate::recovery::{Planner, RowBuffer};

/// Ranges of damaged sectors that are told for each chunk file; all are counted.
const RANGES_MAX: usize = 16;

/// What is wrong with one chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkDamage {
    /// The chunk.
    pub chunk: u16,
    /// Its file; `None` if there is none.
    pub path: Option<String>,
    /// What is wrong with the head.
    pub head: Option<&'static str>,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes it should have.
    pub expected_bytes: u64,
    /// Sectors that are damaged or behind the file's end.
    pub sectors: u64,
    /// The first of them, as ranges.
    pub first_sectors: Vec<Range<u64>>,
}

/// In one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything is as it was written.
    Whole,
    /// Something is damaged, and all of it can be mended.
    Repairable,
    /// In some rows too much is lost.
    TooMuchLost,
    /// Checksums pass, and the file is another than was encoded.
    WrongHash,
}

/// What verifying found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Chunks that are not whole.
    pub damage: Vec<ChunkDamage>,
    /// Bytes of the file in slices of rows in which too much is lost, padding included.
    pub lost_bytes: u64,
    /// Where in the file the first such row begins; in a joint counted over the rows of all files.
    pub first_lost_byte: Option<u64>,
    /// Whether the hashes of all files that are held are what they were; `None` if they could not be computed.
    pub is_hash_right: Option<bool>,
    /// How it is with the manifest's own file.
    pub manifest_file: ManifestFile,
    /// What is in the way.
    pub oddities: Vec<Oddity>,
    /// Bytes of content that were read.
    pub read_bytes: u64,
    /// Rows with damaged sectors, up to the end of the longest file.
    pub(crate) damaged_rows: Vec<u64>,
    /// What is lost in the first row in which too much is.
    pub(crate) first_hole: Option<Unrecoverable>,
}

/// Damaged sectors of one chunk.
#[derive(Default)]
struct Sectors {
    count: u64,
    /// The first of them.
    ranges: Vec<Range<u64>>,
}

impl Sectors {
    /// Takes some more, behind those before.
    fn add(&mut self, sectors: Range<u64>) {
        self.count += sectors.end - sectors.start;
        let told = self.ranges.len();
        match self.ranges.last_mut() {
            Some(last) if last.end == sectors.start => last.end = sectors.end,
            _ if told < RANGES_MAX => self.ranges.push(sectors),
            _ => (),
        }
    }
}

impl Report {
    /// In one word. A manifest file that is missing or damaged makes a parcel repairable.
    pub fn verdict(&self) -> Verdict {
        let is_whole = self.damage.is_empty() && self.manifest_file == ManifestFile::Whole;
        match (self.lost_bytes, self.is_hash_right, is_whole) {
            (1.., _, _) => Verdict::TooMuchLost,
            (0, Some(false), _) => Verdict::WrongHash,
            (0, _, true) => Verdict::Whole,
            (0, _, false) => Verdict::Repairable,
        }
    }
}

impl Parcel {
    /// Reads every sector of every chunk file, and hashes the file as it would be decoded.
    pub fn verify(&self, progress: Progress<'_>) -> Report {
        let layout = self.layout();
        let before = self.read_bytes();
        let mut planner = Planner::new(self);
        let mut hashes = Some(Hashes::new(self, 0..self.members().len()));
        let mut sectors: BTreeMap<u16, Sectors> = BTreeMap::new();
        let (mut lost_bytes, mut first_lost_byte, mut damaged_rows) = (0, None, Vec::new());
        let mut first_hole = None;
        let held = self.files().map(ChunkFile::held_bytes).max().unwrap_or(0);
        let held_rows = layout.rows_within(held);
        for at in 0..held_rows {
            let row = layout.row(at);
            let mut buffer = RowBuffer::new(self, row);
            buffer.load(self, 0..layout.shape.chunks());
            for (chunk, sector) in &buffer.damaged {
                sectors.entry(*chunk).or_default().add(*sector..sector + 1);
            }
            if !buffer.damaged.is_empty() {
                damaged_rows.push(at);
            }
            let holes = buffer.recover(&mut planner, |_| true);
            if !holes.is_empty() {
                lost_bytes += holes.iter().map(|hole| hole.bytes).sum::<u64>();
                first_lost_byte.get_or_insert(row.file_at);
                first_hole = first_hole.or(holes.first().map(|hole| hole.why));
                hashes = None;
            }
            if let Some(hashes) = &mut hashes {
                hashes.add(at, &buffer, &mut |_| Ok(())).expect("the sink takes everything");
            }
            progress(layout.file_bytes_of(&row));
        }
        if held_rows < layout.rows() {
            let row = layout.row(held_rows);
            lost_bytes += (layout.chunk_bytes() - row.chunk_at) * u64::from(layout.shape.data);
            first_lost_byte.get_or_insert(row.file_at);
            first_hole.get_or_insert_with(|| self.nothing_there());
            hashes = None;
            for file in self.files() {
                let own = self.agreement.identity(file.chunk).layout.sectors();
                let behind = row.first_sector()..own;
                if !behind.is_empty() {
                    sectors.entry(file.chunk).or_default().add(behind);
                }
            }
            progress(layout.file_bytes - row.file_at);
        }
        let damage = (0..layout.shape.chunks()).filter_map(|chunk| {
            let Sectors { count, ranges } = sectors.remove(&chunk).unwrap_or_default();
            let file = self.files.get(&chunk);
            let own = self.agreement.identity(chunk).layout;
            let found = ChunkDamage {
                chunk,
                path: file.map(|file| file.path()),
                head: file.and_then(|file| file.head_damage),
                file_bytes: file.map_or(0, |file| file.bytes),
                expected_bytes: own.chunk_file_bytes(),
                sectors: if file.is_some() { count } else { own.sectors() },
                first_sectors: ranges,
            };
            let is_whole = file.is_some() && found.head.is_none() && found.sectors == 0;
            (!is_whole).then_some(found)
        });
        Report {
            damage: damage.collect(),
            lost_bytes,
            first_lost_byte,
            is_hash_right: hashes.map(|hashes| hashes.are_right()),
            manifest_file: self.manifest_file(),
            oddities: self.oddities.clone(),
            read_bytes: self.read_bytes() - before,
            damaged_rows,
            first_hole,
        }
    }

    /// What is lost where no chunk file holds anything.
    fn nothing_there(&self) -> Unrecoverable {
        let (spec, shape) = (self.spec(), self.layout().shape);
        let chunks = shape.chunks();
        Unrecoverable { spec, wanted_lost: chunks, available: 0, needed: shape.data, chunks }
    }
}
