//! What exactly is damaged, and whether it can be mended.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::Progress;
use crate::find::Oddity;
use crate::hashes::Hashes;
use crate::parcel::Parcel;
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
    /// Whether the manifest's own file is there.
    pub has_manifest_file: bool,
    /// What is in the way.
    pub oddities: Vec<Oddity>,
    /// Bytes of content that were read.
    pub read_bytes: u64,
    /// Rows with damaged sectors.
    pub(crate) damaged_rows: Vec<u64>,
}

impl Report {
    /// In one word. A manifest file that is missing makes a parcel repairable.
    pub fn verdict(&self) -> Verdict {
        match (self.lost_bytes, self.is_hash_right, self.damage.is_empty() && self.has_manifest_file) {
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
        let mut sectors: BTreeMap<u16, (u64, Vec<Range<u64>>)> = BTreeMap::new();
        let (mut lost_bytes, mut first_lost_byte, mut damaged_rows) = (0, None, Vec::new());
        for at in 0..layout.rows() {
            let row = layout.row(at);
            let mut buffer = RowBuffer::new(self, row);
            buffer.load(self, 0..layout.shape.chunks());
            for (chunk, sector) in &buffer.damaged {
                let (count, ranges) = sectors.entry(*chunk).or_default();
                *count += 1;
                let told = ranges.len();
                match ranges.last_mut() {
                    Some(last) if last.end == *sector => last.end += 1,
                    _ if told < RANGES_MAX => ranges.push(*sector..sector + 1),
                    _ => (),
                }
            }
            if !buffer.damaged.is_empty() {
                damaged_rows.push(at);
            }
            let holes = buffer.recover(&mut planner, |_| true);
            if !holes.is_empty() {
                lost_bytes += holes.iter().map(|hole| hole.bytes).sum::<u64>();
                first_lost_byte.get_or_insert(row.file_at);
                hashes = None;
            }
            if let Some(hashes) = &mut hashes {
                hashes.add(at, &buffer, &mut |_| Ok(())).expect("the sink takes everything");
            }
            progress(layout.file_bytes_of(&row));
        }
        let damage = (0..layout.shape.chunks()).filter_map(|chunk| {
            let (count, ranges) = sectors.remove(&chunk).unwrap_or_default();
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
            has_manifest_file: self.has_manifest_file(),
            oddities: self.oddities.clone(),
            read_bytes: self.read_bytes() - before,
            damaged_rows,
        }
    }
}
