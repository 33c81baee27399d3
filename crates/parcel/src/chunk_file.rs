//! One chunk file, read sector by sector.
//!
//! Invariants:
//! 1. Bytes leave here only if their sector's checksum held.
//! 2. A sector that cannot be read is as good as one whose checksum fails: lost, and nothing else is.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use claystone_env::{Directory, File};

use crate::Error;
use crate::identity::Identity;
use crate::joint::JointHead;
use crate::layout::Layout;
use crate::manifest::HEAD_BYTES;
use crate::sector::{ENTRY_BYTES, SECTOR_BYTES, SectorSums};

const SECTOR: u64 = SECTOR_BYTES as u64;
/// Sectors that are read at once where a whole file is.
const AT_ONCE: u64 = 256;

/// A chunk file that is there.
pub struct ChunkFile {
    /// The directory it lies in.
    pub directory: Arc<dyn Directory>,
    /// Its name there.
    pub name: String,
    /// The chunk, as the code counts it that it is under now.
    pub chunk: u16,
    /// What is wrong with the head, if anything is.
    pub head_damage: Option<&'static str>,
    /// Bytes of the file.
    pub bytes: u64,
    file: Arc<dyn File>,
    layout: Layout,
    sums: SectorSums,
    read_bytes: Arc<AtomicU64>,
}

impl ChunkFile {
    /// `read_bytes` counts the bytes of content that are read.
    pub(crate) fn new(
        place: (Arc<dyn Directory>, String, Arc<dyn File>),
        identity: &Identity,
        chunk: u16,
        read_bytes: Arc<AtomicU64>,
    ) -> io::Result<ChunkFile> {
        let (directory, name, file) = place;
        let Identity { layout, sums, .. } = *identity;
        let bytes = file.bytes()?;
        Ok(ChunkFile { directory, name, chunk, head_damage: None, bytes, file, layout, sums, read_bytes })
    }

    /// What a person would call this file.
    pub fn path(&self) -> String {
        path(&*self.directory, &self.name)
    }

    /// Bytes of content that the file is long enough for.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.layout.content_at())
    }

    /// Reads the sectors `sectors` into `into`; returns those that are lost. Their bytes in `into` mean nothing. What
    /// lies behind the content's end is zeros.
    ///
    /// # Panics
    /// If the content has more of the sectors than `into` has room for.
    pub fn read(&self, sectors: Range<u64>, into: &mut [u8]) -> Vec<u64> {
        let sectors = sectors.start..sectors.end.min(self.layout.sectors());
        if sectors.is_empty() {
            into.fill(0);
            return Vec::new();
        }
        let at = sectors.start * SECTOR;
        let held = (sectors.end * SECTOR).min(self.layout.chunk_bytes()) - at;
        let (into, behind) = into.split_at_mut(held as usize);
        behind.fill(0);
        self.read_bytes.fetch_add(held, Ordering::Relaxed);
        let mut table = vec![0; (sectors.end - sectors.start) as usize * ENTRY_BYTES];
        let read = self.file.read_at(self.layout.entry_at(sectors.start), &mut table);
        let read = read.and_then(|()| self.file.read_at(self.layout.content_at() + at, into));
        if read.is_ok() {
            return self.sums.wrong(sectors.start, into, &table).map(|i| sectors.start + i).collect();
        }
        // Each on its own: a medium that lost one sector gives the others.
        let alone = |(sector, content): (u64, &mut [u8])| {
            let mut entry = [0; ENTRY_BYTES];
            let read = self.file.read_at(self.layout.entry_at(sector), &mut entry);
            let read = read.and_then(|()| self.file.read_at(self.layout.content_at() + sector * SECTOR, content));
            let good = read.is_ok() && self.sums.of(sector, content).to_le_bytes() == entry;
            (!good).then_some(sector)
        };
        sectors.zip(into.chunks_mut(SECTOR_BYTES)).filter_map(alone).collect()
    }

    /// Reads the sectors `sectors` of a file that must be whole; returns how many bytes of content they are.
    ///
    /// # Errors
    /// One of them is damaged.
    pub(crate) fn read_whole(&self, sectors: Range<u64>, into: &mut [u8]) -> Result<u64, Error> {
        if let Some(sector) = self.read(sectors.clone(), into).first() {
            return Err(Error::DamagedSource { path: self.path(), sector: *sector });
        }
        let end = (sectors.end * SECTOR).min(self.layout.chunk_bytes());
        Ok(end.saturating_sub(sectors.start * SECTOR))
    }

    /// Writes what the file has room for of content that begins with sector `first`, and its table entries; returns how
    /// many bytes that is.
    ///
    /// # Errors
    /// As the file's.
    pub(crate) fn write(&self, first: u64, content: &[u8]) -> io::Result<u64> {
        let room = self.layout.chunk_bytes().saturating_sub(first * SECTOR);
        let content = &content[..content.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        if !content.is_empty() {
            self.file.write_at(self.layout.content_at() + first * SECTOR, content)?;
            self.file.write_at(self.layout.entry_at(first), &self.sums.table(first, content))?;
        }
        Ok(content.len() as u64)
    }

    /// Writes the head.
    ///
    /// # Errors
    /// As the file's.
    pub(crate) fn write_head(&self, head: &[u8]) -> io::Result<()> {
        self.file.write_at(0, head)
    }

    /// Checks that the head on the medium is right.
    ///
    /// # Errors
    /// It is not, or cannot be read.
    pub(crate) fn check_head(&self, head: &[u8]) -> Result<(), Error> {
        let bytes = read_head(&*self.file).map_err(Error::io(self.path(), "reading"))?;
        if bytes != head {
            return Err(Error::ReadBackHead { path: self.path() });
        }
        Ok(())
    }

    /// Reads every sector.
    ///
    /// # Errors
    /// One of them is not what was written.
    pub(crate) fn check_content(&self) -> Result<(), Error> {
        self.first_damaged().map_or(Ok(()), |sector| Err(Error::ReadBack { path: self.path(), sector }))
    }

    /// Reads sectors up to the first damaged one.
    pub(crate) fn first_damaged(&self) -> Option<u64> {
        let mut buffer = self.some_sectors();
        let mut parts = (0..self.layout.sectors()).step_by(AT_ONCE as usize);
        parts.find_map(|first| self.read(first..first + AT_ONCE, &mut buffer).first().copied())
    }

    /// Room for as many sectors as are read at once.
    fn some_sectors(&self) -> Vec<u8> {
        vec![0; (AT_ONCE * SECTOR).min(self.layout.chunk_bytes()) as usize]
    }

    /// Counts sectors that are right, up to `most`.
    pub(crate) fn good_sectors(&self, most: u64) -> u64 {
        let mut buffer = self.some_sectors();
        let mut good = 0;
        // What is not there is not good, however long the head says the chunk is.
        let held = self.layout.sectors().min(self.held_bytes().div_ceil(SECTOR));
        for first in (0..held).step_by(AT_ONCE as usize) {
            let sectors = first..held.min(first + AT_ONCE);
            good += sectors.end - sectors.start - self.read(sectors, &mut buffer).len() as u64;
            if good >= most {
                break;
            }
        }
        good
    }

    /// Whether the file ends within a head, and is that far what `head` is: a chunk file that was cut off.
    pub(crate) fn is_beginning_of(&self, head: &[u8]) -> bool {
        let mut bytes = vec![0; self.bytes.min(head.len() as u64) as usize];
        bytes.len() < head.len() && self.file.read_at(0, &mut bytes).is_ok() && head.starts_with(&bytes)
    }

    /// Makes what was written durable, and lets the next read come from the medium.
    ///
    /// # Errors
    /// As the file's.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync()?;
        self.file.forget_cache();
        Ok(())
    }
}

/// The first bytes of a file, as many as its head has or the file has.
pub(crate) fn read_head(file: &dyn File) -> io::Result<Vec<u8>> {
    let have = file.bytes()?;
    let mut bytes = vec![0; have.min(HEAD_BYTES as u64) as usize];
    file.read_at(0, &mut bytes)?;
    if let Some(whole) = JointHead::bytes_of(&bytes) {
        bytes.resize(have.min(whole as u64) as usize, 0);
        file.read_at(HEAD_BYTES as u64, &mut bytes[HEAD_BYTES..])?;
    }
    Ok(bytes)
}

/// A path for people.
pub(crate) fn path(directory: &dyn Directory, name: &str) -> String {
    match directory.label() {
        label if label.is_empty() || label == "." => name.to_owned(),
        label if label.ends_with('/') => format!("{label}{name}"),
        label => format!("{label}/{name}"),
    }
}
