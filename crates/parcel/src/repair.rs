//! Making a parcel whole again.
//!
//! ```text
//! locked -> found again -> verify --too much lost, wrong hash--> error, nothing touched
//!   \--> rows: recover what is lost -> new files under `.part`, damaged sectors in place
//!          -> synced -> read back -> new files renamed
//! ```
//!
//! Invariants:
//! 1. Only sectors and heads that are damaged are written over.
//! 2. For chunks without a file, what is read are the plan's ranges; only rows with damage are read whole.
//! 3. A new file gets its name after it was read back.

use std::collections::BTreeSet;
use std::sync::Arc;

use claystone_env::Directory;

use crate::Progress;
use crate::chunk_file::{ChunkFile, path};
use crate::error::Error;
use crate::parcel::{ManifestFile, Parcel};
use crate::parts::{Parts, lock_all, write_manifest};
use crate::recovery::{Planner, RowBuffer};
use crate::sector::SECTOR_BYTES;
use crate::verify::{Report, Verdict};

/// How much is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Everything is read, and all damage mended.
    All,
    /// Chunks without a file are rebuilt, damaged heads written anew; no more is read than that takes.
    Missing,
}

/// What a repair did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// What was found before; `None` if nobody looked.
    pub report: Option<Report>,
    /// Chunks whose file was written anew.
    pub rebuilt: Vec<u16>,
    /// Damaged sectors that were mended in place.
    pub mended_sectors: u64,
    /// Damaged heads that were written anew.
    pub mended_heads: u64,
    /// Whether the manifest's own file was damaged or missing, and was written.
    pub manifest_written: bool,
    /// Bytes of content that were lost and are there again.
    pub lost_bytes: u64,
    /// Bytes of content that were read to recover them.
    pub read_bytes: u64,
    /// Damage that was met in chunks that were read and not mended: only with [`Extent::Missing`].
    pub met_sectors: u64,
}

impl Parcel {
    /// Rebuilds and mends; chunk files that are missing are written into `into`. Calls `progress` for each of one pass
    /// over the file with [`Extent::Missing`], and of two with [`Extent::All`].
    ///
    /// # Errors
    /// Too much is lost or the hash is wrong (then nothing was changed), another process writes there, something else
    /// has the name of a missing file, the parcel was converted since it was found, or a file's own.
    pub fn repair(&self, into: &Arc<dyn Directory>, extent: Extent, progress: Progress<'_>) -> Result<Repaired, Error> {
        let _locks = lock_all(self.directories().chain([into]))?;
        self.found_again()?.repair_locked(into, extent, progress)
    }

    /// Repairs what was found while nobody else could write.
    fn repair_locked(
        &self,
        into: &Arc<dyn Directory>,
        extent: Extent,
        progress: Progress<'_>,
    ) -> Result<Repaired, Error> {
        let report = match extent {
            Extent::All => Some(self.verify(progress)),
            Extent::Missing => None,
        };
        match report.as_ref().map(Report::verdict) {
            Some(Verdict::Whole) => return Ok(Repaired { report, ..Repaired::default() }),
            Some(Verdict::WrongHash) => return Err(self.wrong_hash()),
            _ => (),
        }
        if let Some(Report { first_hole: Some(why), first_lost_byte: Some(at), .. }) = &report {
            return Err(Error::lost(why, *at));
        }
        let layout = self.layout();
        let mut parts = self.parts_of_absent(into)?;
        let damaged: BTreeSet<u64> = report.iter().flat_map(|report| report.damaged_rows.iter().copied()).collect();

        let mut done = Repaired { report, rebuilt: self.absent(), ..Repaired::default() };
        let read_before = self.read_bytes();
        let mut planner = Planner::new(self);
        // Rows without damage matter to new files only.
        let rows: Box<dyn Iterator<Item = u64>> =
            if done.rebuilt.is_empty() { Box::new(damaged.iter().copied()) } else { Box::new(0..layout.rows()) };
        let mut passed = 0;
        for at in rows {
            let row = layout.row(at);
            let mut buffer = RowBuffer::new(self, row);
            if damaged.contains(&at) {
                buffer.load(self, 0..layout.shape.chunks());
            }
            let known = buffer.damaged.len();
            if let Some(hole) = buffer.recover(&mut planner, |_| true).first() {
                return Err(Error::lost(&hole.why, row.file_at));
            }
            // One sector may be met in several tries.
            done.met_sectors += buffer.damaged[known..].iter().collect::<BTreeSet<_>>().len() as u64;
            for file in parts.files() {
                let tile = buffer.tile(file.chunk);
                done.lost_bytes += file.write(row.first_sector(), tile).map_err(Error::io(file.path(), "writing"))?;
            }
            for (chunk, sector) in &buffer.damaged[..known] {
                let from = (sector * SECTOR_BYTES as u64 - row.chunk_at) as usize;
                let tile = buffer.tile(*chunk);
                let content = &tile[from..tile.len().min(from + SECTOR_BYTES)];
                let file = &self.files[chunk];
                done.lost_bytes += file.write(*sector, content).map_err(Error::io(file.path(), "writing"))?;
                done.mended_sectors += 1;
            }
            passed += layout.file_bytes_of(&row);
            progress(layout.file_bytes_of(&row));
        }
        progress(layout.file_bytes - passed);
        done.read_bytes = self.read_bytes() - read_before;

        done.mended_heads = self.mend_heads()?;
        self.read_back(&damaged)?;
        parts.sync(|chunk| self.agreement.identity(chunk).head)?;
        parts.files().try_for_each(ChunkFile::check_content)?;
        parts.give_names()?;
        into.sync_dir("").map_err(Error::io(into.label(), "syncing the directory"))?;
        if self.manifest_file() != ManifestFile::Whole {
            // A damaged one is replaced where it lies.
            let directory = self.damaged_manifests.first().unwrap_or(into);
            write_manifest(&**directory, &self.agreement)?;
            done.manifest_written = true;
        }
        Ok(done)
    }

    /// What a repair into `into` would have to write over, and refuses to: other files with the names of missing ones.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn in_the_way(&self, into: &Arc<dyn Directory>) -> Result<Vec<String>, Error> {
        let there = into.list("").map_err(Error::io(into.label(), "listing the directory"))?;
        let manifest = (self.manifest_file() == ManifestFile::Missing).then(|| self.agreement.manifest_file().0);
        let absent = self.absent().into_iter().map(|chunk| self.agreement.identity(chunk).name);
        let in_the_way = absent.chain(manifest).filter(|name| there.binary_search(name).is_ok());
        Ok(in_the_way.map(|name| path(&**into, &name)).collect())
    }

    /// New files for the chunks that have none.
    fn parts_of_absent(&self, into: &Arc<dyn Directory>) -> Result<Parts, Error> {
        if let Some(path) = self.in_the_way(into)?.into_iter().next() {
            return Err(Error::Exists { path });
        }
        let mut parts = Parts::default();
        for chunk in self.absent() {
            parts.add(into, &self.agreement.identity(chunk), chunk)?;
        }
        Ok(parts)
    }

    fn mend_heads(&self) -> Result<u64, Error> {
        let mut mended = 0;
        for file in self.files.values().filter(|file| file.head_damage.is_some()) {
            let head = self.agreement.identity(file.chunk).head;
            file.write_head(&head).map_err(Error::io(file.path(), "writing"))?;
            mended += 1;
        }
        Ok(mended)
    }

    /// Syncs what was mended in place and reads it back.
    fn read_back(&self, damaged: &BTreeSet<u64>) -> Result<(), Error> {
        let layout = self.layout();
        for file in self.files.values() {
            file.sync().map_err(Error::io(file.path(), "syncing"))?;
            file.check_head(&self.agreement.identity(file.chunk).head)?;
        }
        for at in damaged {
            let mut buffer = RowBuffer::new(self, layout.row(*at));
            buffer.load(self, 0..layout.shape.chunks());
            if let Some((chunk, sector)) = buffer.damaged.first() {
                return Err(Error::ReadBack { path: self.files[chunk].path(), sector: *sector });
            }
        }
        Ok(())
    }
}
