//! Where the bytes of a file lie in the chunks (docs/formats/parcel.md, "From the file to the chunks").
//!
//! Invariants:
//! 1. Every full row of a chunk begins at a sector's start.
//! 2. All arithmetic fits in 64 bits for every layout that [`Layout::is_valid`] accepts.

use claystone_code::Shape;

use crate::manifest::{FILE_BYTES_MAX, HEAD_BYTES};
use crate::sector::{ENTRY_BYTES, SECTOR_BYTES};

/// Bytes of all chunks of one row, at most: a reader holds a row in memory.
pub const ROW_BYTES_MAX: u64 = 1 << 30;

const SUB_BYTES_MAX: u32 = 65536;
/// What the writer aims at for all chunks of a row.
const ROW_BYTES_AIM: u64 = 64 << 20;
const SECTOR: u64 = SECTOR_BYTES as u64;

/// How one file is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The code's.
    pub shape: Shape,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Sub-chunk bytes of a full row.
    pub sub_bytes: u32,
    /// Bytes of the head of a chunk file.
    pub head_bytes: u32,
}

/// One codeword: a tile of each chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Where its first byte is in the file.
    pub file_at: u64,
    /// Where its tile begins in each chunk's content.
    pub chunk_at: u64,
    /// Bytes of a sub-chunk.
    pub sub_bytes: u32,
    /// Bytes of a tile.
    pub tile_bytes: usize,
}

impl Row {
    /// The sector of each chunk with which its tile begins.
    pub fn first_sector(&self) -> u64 {
        self.chunk_at / SECTOR
    }
}

/// What can be lost and recovered apart from the rest of its row: the same bytes of every sub-chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// From where in each sub-chunk.
    pub from: u32,
    /// To where.
    pub to: u32,
}

impl Layout {
    /// The layout that a writer chooses. It is not valid for codes whose rows are beyond [`ROW_BYTES_MAX`].
    pub fn choose(shape: Shape, file_bytes: u64) -> Layout {
        let row_bytes = |sub: u32| u64::from(shape.chunks()) * u64::from(shape.alpha) * u64::from(sub);
        let sector = SECTOR_BYTES as u32;
        let mut sub_bytes = (SUB_BYTES_MAX / shape.alpha / sector * sector).max(sector);
        while sub_bytes > sector && row_bytes(sub_bytes) > ROW_BYTES_AIM {
            sub_bytes = (sub_bytes / 2).next_multiple_of(sector);
        }
        Layout { shape, file_bytes, sub_bytes, head_bytes: HEAD_BYTES as u32 }
    }

    /// Whether a reader can work with it.
    pub fn is_valid(&self) -> bool {
        let tile = u64::from(self.shape.alpha) * u64::from(self.sub_bytes);
        (1..=SUB_BYTES_MAX).contains(&self.sub_bytes)
            && tile.is_multiple_of(SECTOR)
            && tile * u64::from(self.shape.chunks()) <= ROW_BYTES_MAX
            && self.file_bytes <= FILE_BYTES_MAX
    }

    fn tile_bytes(&self) -> u64 {
        u64::from(self.shape.alpha) * u64::from(self.sub_bytes)
    }

    fn full_row_bytes(&self) -> u64 {
        self.tile_bytes() * u64::from(self.shape.data)
    }

    /// Rows, the short one at the end included.
    pub fn rows(&self) -> u64 {
        self.file_bytes.div_ceil(self.full_row_bytes())
    }

    /// Rows of which the first `bytes` of a chunk's content hold anything.
    pub fn rows_within(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.tile_bytes()).min(self.rows())
    }

    /// A row.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, at: u64) -> Row {
        assert!(at < self.rows(), "row {at} of {}", self.rows());
        let (row_bytes, tile) = (self.full_row_bytes(), self.tile_bytes());
        let left = self.file_bytes - at * row_bytes;
        let columns = u64::from(self.shape.data) * u64::from(self.shape.alpha);
        let sub_bytes = u64::from(self.sub_bytes).min(left.div_ceil(columns)) as u32;
        let tile_bytes = self.shape.alpha as usize * sub_bytes as usize;
        Row { file_at: at * row_bytes, chunk_at: at * tile, sub_bytes, tile_bytes }
    }

    /// Bytes of the file that a row holds.
    pub fn file_bytes_of(&self, row: &Row) -> u64 {
        (row.tile_bytes as u64 * u64::from(self.shape.data)).min(self.file_bytes - row.file_at)
    }

    /// Bytes of each chunk's content.
    pub fn chunk_bytes(&self) -> u64 {
        self.rows().checked_sub(1).map_or(0, |last| {
            let last = self.row(last);
            last.chunk_at + last.tile_bytes as u64
        })
    }

    /// Sectors of each chunk.
    pub fn sectors(&self) -> u64 {
        self.chunk_bytes().div_ceil(SECTOR)
    }

    /// Where a sector's table entry is in a chunk file.
    pub fn entry_at(&self, sector: u64) -> u64 {
        u64::from(self.head_bytes) + sector * ENTRY_BYTES as u64
    }

    /// Where the content begins in a chunk file.
    pub fn content_at(&self) -> u64 {
        self.entry_at(self.sectors()).next_multiple_of(SECTOR)
    }

    /// Bytes of a chunk file.
    pub fn chunk_file_bytes(&self) -> u64 {
        self.content_at() + self.chunk_bytes()
    }

    /// The slices of a row: sectors where sub-chunks are whole sectors or are alone, else the row as one.
    pub fn slices(&self, row: &Row) -> impl Iterator<Item = Slice> + use<> {
        let sector = SECTOR_BYTES as u32;
        let cut = self.shape.alpha == 1 || row.sub_bytes.is_multiple_of(sector);
        let (step, end) = (if cut { sector } else { row.sub_bytes }, row.sub_bytes);
        (0..end).step_by(step as usize).map(move |from| Slice { from, to: (from + step).min(end) })
    }
}

impl Slice {
    /// Bytes of each sub-chunk.
    pub fn bytes(&self) -> u32 {
        self.to - self.from
    }
}
