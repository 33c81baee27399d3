//! A parcel whose files were found.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use claystone_code::{ChunkIndex, ErasureCode};
use claystone_env::Directory;

use crate::chunk_file::ChunkFile;
use crate::find::Oddity;
use crate::layout::Layout;
use crate::manifest::Manifest;

/// A parcel: what it is, and which of its files are there.
pub struct Parcel {
    pub(crate) manifest: Manifest,
    pub(crate) code: Arc<dyn ErasureCode>,
    /// Where was looked.
    pub(crate) directories: Vec<Arc<dyn Directory>>,
    pub(crate) files: BTreeMap<u16, ChunkFile>,
    pub(crate) has_manifest_file: bool,
    pub(crate) oddities: Vec<Oddity>,
    pub(crate) read_bytes: Arc<AtomicU64>,
}

impl Parcel {
    /// What it is.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// How the file lies in the chunks.
    pub fn layout(&self) -> Layout {
        self.manifest.layout()
    }

    /// The chunk files that are there, in the order of their chunks.
    pub fn files(&self) -> impl Iterator<Item = &ChunkFile> {
        self.files.values()
    }

    /// Chunks without a file.
    pub fn absent(&self) -> Vec<u16> {
        (0..self.layout().shape.chunks()).filter(|chunk| !self.files.contains_key(chunk)).collect()
    }

    /// Whether the manifest's own file is there. Nothing needs it.
    pub fn has_manifest_file(&self) -> bool {
        self.has_manifest_file
    }

    /// What is in the way.
    pub fn oddities(&self) -> &[Oddity] {
        &self.oddities
    }

    /// Bytes of content that were read since the parcel was found.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn absent_chunks(&self) -> impl Iterator<Item = ChunkIndex> {
        self.absent().into_iter().map(ChunkIndex)
    }
}
