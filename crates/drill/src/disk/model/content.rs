//! What a file holds, and each of its sectors may hold after a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use claystone_env::SECTOR_BYTES;
use claystone_files::{FileError, FileTree, Inode};

type Bytes = Arc<[u8; SECTOR_BYTES]>;

/// A sector: what it holds, and what else it held since the last promise. `None` is zeros.
#[derive(Debug, Clone, Default)]
struct Versions {
    now: Option<Bytes>,
    older: Vec<Option<Bytes>>,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Content {
    sectors: BTreeMap<u64, Versions>,
    bytes: u64,
    older_bytes: BTreeSet<u64>,
    /// Writes made it grow from the first to the second: a crash may leave some sectors of each.
    grown: Vec<(u64, u64)>,
}

impl Content {
    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes were written.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (sector, within, part) in parts(offset, bytes.len() as u64) {
            let bytes = &bytes[part.start as usize..part.end as usize];
            self.edit(sector, |content| content[within..within + bytes.len()].copy_from_slice(bytes));
        }
        let end = offset + bytes.len() as u64;
        if end > self.bytes {
            self.grown.push((self.bytes, end));
            self.resize(end);
        }
    }

    /// A write found no space: takes from the tree which of its sectors were written all the same, each whole.
    ///
    /// # Errors
    /// What is neither as before nor as it was to be.
    pub fn write_in_part(&mut self, tree: &dyn FileTree, inode: Inode, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut whole = self.clone();
        whole.write(offset, bytes);
        let held = tree.attributes(inode)?.bytes;
        ensure!(
            (self.bytes..=whole.bytes).contains(&held),
            "it has {held} bytes after a write that found no space, and had {}",
            self.bytes
        );
        for (sector, _, part) in parts(offset, bytes.len() as u64) {
            let first = sector * SECTOR_BYTES as u64;
            let mut found = vec![0xa5; held.saturating_sub(first).min(SECTOR_BYTES as u64) as usize];
            tree.read(inode, first, &mut found)?;
            let now = |content: &Content| content.sectors.get(&sector).and_then(|versions| versions.now.clone());
            if first_difference(&found, now(self).as_ref(), 0).is_some() {
                let written = first_difference(&found, now(&whole).as_ref(), 0).is_none();
                ensure!(written, "sector {sector} is neither as before a write that found no space nor as it wrote");
                self.write(offset + part.start, &bytes[part.start as usize..part.end as usize]);
            }
        }
        self.resize(held);
        Ok(())
    }

    /// A hole was made, as far as the file goes.
    pub fn punch(&mut self, offset: u64, bytes: u64) {
        let end = offset.saturating_add(bytes).min(self.bytes);
        self.clear(offset, end);
    }

    /// The file was cut, or has grown by a hole.
    pub fn cut(&mut self, bytes: u64) {
        self.clear(bytes, self.bytes);
        self.resize(bytes);
    }

    /// Space was allocated, and the file has grown over it.
    pub fn grow(&mut self, bytes: u64) {
        self.resize(self.bytes.max(bytes));
    }

    /// What it holds now survives a crash.
    pub fn promise(&mut self) {
        self.sectors.values_mut().for_each(|versions| versions.older.clear());
        self.sectors.retain(|_, versions| versions.now.is_some());
        self.older_bytes.clear();
        self.grown.clear();
    }

    /// Reads a part and compares it.
    ///
    /// # Errors
    /// The first byte that differs.
    pub fn verify_part(&self, tree: &dyn FileTree, inode: Inode, offset: u64, bytes: u64) -> Result<()> {
        // Not zeros, so that what is not filled shows.
        let mut found = vec![0xa5; bytes as usize];
        let count = tree.read(inode, offset, &mut found)?;
        self.compare(&found, count, offset, bytes)
    }

    /// As [`Content::verify_part`], of what is read into a buffer of the tree's own.
    ///
    /// # Errors
    /// As there.
    pub fn verify_stream(&self, tree: &dyn FileTree, inode: Inode, offset: u64, bytes: u64) -> Result<()> {
        let found = tree.read_bytes(inode, offset, bytes as usize)?;
        self.compare(&found, found.len(), offset, bytes)
    }

    fn compare(&self, found: &[u8], count: usize, offset: u64, bytes: u64) -> Result<()> {
        let expected = self.bytes.saturating_sub(offset).min(bytes);
        ensure!(count as u64 == expected, "read {count} bytes of {expected} at {offset}");
        for (sector, within, part) in parts(offset, expected) {
            let found = &found[part.start as usize..part.end as usize];
            let now = self.sectors.get(&sector).and_then(|versions| versions.now.as_ref());
            if let Some(at) = first_difference(found, now, within) {
                bail!("byte {at} of sector {sector} is {:#04x}, not {:#04x}", found[at - within], byte_of(now, at));
            }
        }
        Ok(())
    }

    /// Reads all and compares it.
    ///
    /// # Errors
    /// What differs.
    pub fn verify(&self, tree: &dyn FileTree, inode: Inode, streams: bool) -> Result<()> {
        let bytes = tree.attributes(inode)?.bytes;
        ensure!(bytes == self.bytes, "it has {bytes} bytes, not {}", self.bytes);
        for (offset, bytes) in windows(self.bytes) {
            match streams {
                true => self.verify_stream(tree, inode, offset, bytes)?,
                false => self.verify_part(tree, inode, offset, bytes)?,
            }
        }
        Ok(())
    }

    /// As [`Content::verify`], sector by sector, where each may be an error for which `names` says yes.
    ///
    /// # Errors
    /// What differs, or an error for which it says no.
    pub fn judge(&self, tree: &dyn FileTree, inode: Inode, names: &mut dyn FnMut(&FileError) -> bool) -> Result<()> {
        match tree.attributes(inode) {
            Ok(found) => ensure!(found.bytes == self.bytes, "it has {} bytes, not {}", found.bytes, self.bytes),
            Err(error) => ensure!(names(&error), "its attributes do not read: {error}"),
        }
        for (sector, _, part) in parts(0, self.bytes) {
            if let Err(error) = self.verify_part(tree, inode, part.start, part.end - part.start) {
                let is_named = error.downcast_ref().is_some_and(&mut *names);
                ensure!(is_named, "sector {sector}: {error:#}");
            }
        }
        Ok(())
    }

    /// What its sectors hold, without holes.
    pub fn sectors(&self) -> impl Iterator<Item = &[u8]> {
        self.sectors.values().filter_map(|versions| versions.now.as_deref().map(|bytes| &bytes[..]))
    }

    /// Takes what there is after a crash, if it may be there.
    ///
    /// # Errors
    /// What may not be there.
    pub fn recover(&mut self, tree: &dyn FileTree, inode: Inode) -> Result<()> {
        let bytes = tree.attributes(inode)?.bytes;
        let whole = bytes.is_multiple_of(SECTOR_BYTES as u64);
        ensure!(
            bytes == self.bytes
                || self.older_bytes.contains(&bytes)
                || (whole && self.grown.iter().any(|&(from, to)| (from..to).contains(&bytes))),
            "it has {bytes} bytes, and since the last promise had {} and {:?}",
            self.bytes,
            self.older_bytes
        );
        let mut sectors = BTreeMap::new();
        for (offset, bytes) in windows(bytes) {
            let mut found = vec![0xa5; bytes as usize];
            let count = tree.read(inode, offset, &mut found).with_context(|| format!("{bytes} bytes at {offset}"))?;
            ensure!(count as u64 == bytes, "read {count} bytes of {bytes} at {offset}");
            for (at, part) in found.chunks(SECTOR_BYTES).enumerate() {
                let sector = offset / SECTOR_BYTES as u64 + at as u64;
                self.recover_sector(sector, part)?;
                if *part != ZEROS[..part.len()] {
                    let mut content = [0; SECTOR_BYTES];
                    content[..part.len()].copy_from_slice(part);
                    sectors.insert(sector, Versions { now: Some(Arc::new(content)), older: Vec::new() });
                }
            }
        }
        *self = Content { sectors, bytes, ..Content::default() };
        Ok(())
    }

    fn recover_sector(&self, sector: u64, found: &[u8]) -> Result<()> {
        let zeros = Versions::default();
        let versions = self.sectors.get(&sector).unwrap_or(&zeros);
        let candidates = versions.older.iter().chain([&versions.now]);
        let differences: Vec<usize> =
            candidates.map_while(|candidate| first_difference(found, candidate.as_ref(), 0)).collect();
        ensure!(
            differences.len() <= versions.older.len(),
            "sector {sector} is none of its {} versions: they differ at bytes {differences:?}; it begins {:02x?}",
            versions.older.len() + 1,
            &found[..found.len().min(16)]
        );
        Ok(())
    }

    fn edit(&mut self, sector: u64, change: impl FnOnce(&mut [u8; SECTOR_BYTES])) {
        let versions = self.sectors.entry(sector).or_default();
        let mut content = versions.now.as_deref().copied().unwrap_or([0; SECTOR_BYTES]);
        change(&mut content);
        let content = (content != ZEROS).then(|| Arc::new(content));
        versions.older.push(std::mem::replace(&mut versions.now, content));
    }

    fn clear(&mut self, from: u64, end: u64) {
        if from >= end {
            return;
        }
        let held: Vec<u64> = self
            .sectors
            .range(from / SECTOR_BYTES as u64..end.div_ceil(SECTOR_BYTES as u64))
            .map(|(&sector, _)| sector)
            .collect();
        for sector in held {
            let first = sector * SECTOR_BYTES as u64;
            let (from, end) = (from.max(first) - first, end.min(first + SECTOR_BYTES as u64) - first);
            self.edit(sector, |content| content[from as usize..end as usize].fill(0));
        }
    }

    fn resize(&mut self, bytes: u64) {
        if bytes != self.bytes {
            self.older_bytes.insert(self.bytes);
            self.bytes = bytes;
        }
    }
}

/// The place of the first byte in a sector that is not as expected, where `found` begins at `within`.
fn first_difference(found: &[u8], expected: Option<&Bytes>, within: usize) -> Option<usize> {
    let expected = &expected.map_or(&ZEROS, |expected| expected)[within..][..found.len()];
    // Slices compare as fast in a build for tests as in any; single bytes were most of a drill's time.
    if found == expected {
        return None;
    }
    let differs = found.iter().zip(expected).position(|(found, expected)| found != expected);
    differs.map(|at| within + at)
}

fn byte_of(content: Option<&Bytes>, at: usize) -> u8 {
    content.map_or(0, |content| content[at])
}

/// A range cut at sectors: which sector, where in it, and which part of the range.
fn parts(offset: u64, bytes: u64) -> impl Iterator<Item = (u64, usize, std::ops::Range<u64>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done;
        let within = at % SECTOR_BYTES as u64;
        let part = (SECTOR_BYTES as u64 - within).min(bytes - done);
        let piece = (at / SECTOR_BYTES as u64, within as usize, done..done + part);
        done += part;
        (part > 0).then_some(piece)
    })
}

/// A file in reads of [`READ_BYTES`].
fn windows(bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..bytes.div_ceil(READ_BYTES)).map(move |at| (at * READ_BYTES, READ_BYTES.min(bytes - at * READ_BYTES)))
}

/// What a hole reads as.
const ZEROS: [u8; SECTOR_BYTES] = [0; SECTOR_BYTES];
/// Several groups of the drill's disks, so that reads go over their borders.
const READ_BYTES: u64 = 16 * SECTOR_BYTES as u64;
