//! Writing a parcel.
//!
//! ```text
//! writing --write--> writing --finish--> heads written, synced -> renamed -> manifest -> directory synced
//!    \--drop: removed; a kill: `.part` files, which nobody reads and the next writer replaces
//! ```
//!
//! Invariants:
//! 1. A head is written last into each file, and the manifest's file last of all.
//! 2. Nothing that has its own name is touched.

use std::sync::Arc;

use claystone_code::{CodeSpec, ErasureCode};
use claystone_env::{Directory, DirectoryLock};

use crate::Error;
use crate::chunk_file::path;
use crate::identity::Agreement;
use crate::layout::{Layout, ROW_BYTES_MAX};
use crate::manifest::{FILE_BYTES_MAX, Manifest, NAME_BYTES_MAX, ParcelId, check_spec, is_name};
use crate::name::{chunk_file, manifest_file};
use crate::parts::{Parts, lock, write_manifest};

/// A parcel that is being written: the file's bytes are put in from its start to its end.
pub struct Encoder {
    manifest: Manifest,
    code: Arc<dyn ErasureCode>,
    layout: Layout,
    directory: Arc<dyn Directory>,
    parts: Parts,
    hasher: blake3::Hasher,
    tiles: Vec<Vec<u8>>,
    /// Bytes put in.
    taken: u64,
    /// Rows encoded.
    rows: u64,
    _lock: DirectoryLock,
}

impl Encoder {
    /// Begins a parcel of a file with `file_bytes` bytes. `id` must be random: no two parcels may share it.
    ///
    /// # Errors
    /// The name, the code's or the length cannot be kept, a file of that name is there, another process writes there, or the
    /// directory's own.
    pub fn begin(
        directory: Arc<dyn Directory>,
        id: ParcelId,
        spec: CodeSpec,
        name: &str,
        file_bytes: u64,
    ) -> Result<Encoder, Error> {
        if !is_name(name) {
            return Err(Error::BadName { name: name.to_owned(), limit: NAME_BYTES_MAX });
        }
        if file_bytes > FILE_BYTES_MAX {
            return Err(Error::TooLong { bytes: file_bytes, limit: FILE_BYTES_MAX });
        }
        check_spec(spec)?;
        let code = spec.build().map_err(|source| Error::BadCode { spec: spec.to_string(), source })?;
        let layout = Layout::choose(code.shape(), file_bytes);
        if !layout.is_valid() {
            let row = u64::from(layout.shape.alpha) * u64::from(layout.sub_bytes) * u64::from(layout.shape.chunks());
            return Err(Error::RowTooLarge { bytes: row, limit: ROW_BYTES_MAX });
        }
        let lock = lock(&*directory)?;
        let chunks = layout.shape.chunks();
        let there = directory.list("").map_err(Error::io(directory.label(), "listing the directory"))?;
        let names: Vec<String> = (0..chunks).map(|chunk| chunk_file(name, chunk, chunks)).collect();
        for name in names.iter().chain([&manifest_file(name)]) {
            if there.binary_search(name).is_ok() {
                return Err(Error::Exists { path: path(&*directory, name) });
            }
        }
        let manifest =
            Manifest { id, spec, name: name.to_owned(), file_bytes, sub_bytes: layout.sub_bytes, hash: [0; 32] };
        let mut encoder = Encoder {
            manifest,
            code,
            layout,
            directory,
            parts: Parts::default(),
            hasher: blake3::Hasher::new(),
            tiles: vec![Vec::new(); usize::from(chunks)],
            taken: 0,
            rows: 0,
            _lock: lock,
        };
        for chunk in 0..chunks {
            encoder.parts.add(&encoder.directory, &encoder.manifest.identity(chunk), chunk)?;
        }
        Ok(encoder)
    }

    /// Takes the next bytes of the file.
    ///
    /// # Errors
    /// They are more than were announced, or a file cannot be written.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        let got = self.taken + bytes.len() as u64;
        if got > self.manifest.file_bytes {
            return Err(Error::LengthChanged { expected: self.manifest.file_bytes, got });
        }
        self.hasher.update(bytes);
        while !bytes.is_empty() {
            let row = self.layout.row(self.rows);
            let in_row = (self.taken - row.file_at) as usize;
            let (data, used) = (in_row / row.tile_bytes, in_row % row.tile_bytes);
            let (now, rest) = bytes.split_at(bytes.len().min(row.tile_bytes - used));
            self.tiles[data].extend_from_slice(now);
            self.taken += now.len() as u64;
            bytes = rest;
            if self.taken == row.file_at + self.layout.file_bytes_of(&row) {
                self.encode_row()?;
            }
        }
        Ok(())
    }

    /// Pads and encodes the row that is in `tiles`, and writes it.
    fn encode_row(&mut self) -> Result<(), Error> {
        let row = self.layout.row(self.rows);
        for tile in &mut self.tiles {
            tile.resize(row.tile_bytes, 0);
        }
        let (data, parity) = self.tiles.split_at_mut(usize::from(self.layout.shape.data));
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        self.code.encode(&data, &mut parity);
        for (file, tile) in self.parts.files().zip(&mut self.tiles) {
            let written = file.write(row.first_sector(), tile);
            written.map_err(Error::io(file.path(), "writing"))?;
            tile.clear();
        }
        self.rows += 1;
        Ok(())
    }

    /// Makes the parcel whole and names its files.
    ///
    /// # Errors
    /// The file was shorter than announced, or a file cannot be written. Nothing is left then, unless names were given
    /// already: each of those files is whole.
    pub fn finish(mut self) -> Result<Manifest, Error> {
        if self.taken != self.manifest.file_bytes {
            return Err(Error::LengthChanged { expected: self.manifest.file_bytes, got: self.taken });
        }
        self.manifest.hash = *self.hasher.finalize().as_bytes();
        self.parts.sync(|chunk| self.manifest.identity(chunk).head)?;
        self.parts.give_names()?;
        write_manifest(&*self.directory, &Agreement::Parcel(self.manifest.clone()))?;
        Ok(self.manifest)
    }
}
