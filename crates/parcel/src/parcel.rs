//! A parcel whose files were found.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use claystone_code::{ChunkIndex, CodeSpec, ErasureCode};
use claystone_env::Directory;

use crate::chunk_file::ChunkFile;
use crate::find::{Oddity, Place};
use crate::identity::Agreement;
use crate::layout::Layout;
use crate::manifest::{Manifest, ParcelId};

/// How it is with the manifest's own file, which nothing needs: every chunk file holds a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManifestFile {
    /// It is there.
    Whole,
    /// A file has its name and no head.
    Damaged,
    /// There is none.
    Missing,
}

/// A parcel: what it is, and which of its files are there. After a conversion its parity may be that of a joint, which
/// may hold other parcels besides.
pub struct Parcel {
    pub(crate) agreement: Agreement,
    /// The member that was named.
    pub(crate) named: Option<usize>,
    pub(crate) code: Arc<dyn ErasureCode>,
    /// Where was looked.
    pub(crate) places: Vec<Place>,
    pub(crate) files: BTreeMap<u16, ChunkFile>,
    /// Files of members, or of an unfinished conversion, that are not needed.
    pub(crate) superfluous: Vec<(Arc<dyn Directory>, String)>,
    /// The manifest's own files: nothing needs one.
    pub(crate) manifest_files: Vec<(Arc<dyn Directory>, String)>,
    /// Where a file has the manifest's name and no head.
    pub(crate) damaged_manifests: Vec<Arc<dyn Directory>>,
    pub(crate) oddities: Vec<Oddity>,
    pub(crate) read_bytes: Arc<AtomicU64>,
}

impl Parcel {
    /// The file that was named, or the only one; `None` if several are held and none was named.
    pub fn manifest(&self) -> Option<&Manifest> {
        match (self.named, self.members()) {
            (Some(named), members) => Some(&members[named]),
            (None, [one]) => Some(one),
            (None, _) => None,
        }
    }

    /// The files that are held, in the order of their data chunks; more than one only in a joint.
    pub fn members(&self) -> &[Manifest] {
        self.agreement.members()
    }

    /// The id of the parcel, or of the joint.
    pub fn id(&self) -> ParcelId {
        self.agreement.id()
    }

    /// The code that the data chunks are under now.
    pub fn spec(&self) -> CodeSpec {
        self.agreement.spec()
    }

    /// How the bytes lie in the chunks.
    pub fn layout(&self) -> Layout {
        self.agreement.layout()
    }

    /// Bytes of all files that are held.
    pub fn file_bytes(&self) -> u64 {
        self.members().iter().map(|member| member.file_bytes).sum()
    }

    /// The chunk files that are there, in the order of their chunks.
    pub fn files(&self) -> impl Iterator<Item = &ChunkFile> {
        self.files.values()
    }

    /// Chunks without a file.
    pub fn absent(&self) -> Vec<u16> {
        (0..self.layout().shape.chunks()).filter(|chunk| !self.files.contains_key(chunk)).collect()
    }

    /// How it is with the manifest's own file. A whole one is enough, wherever a damaged one lies besides.
    pub fn manifest_file(&self) -> ManifestFile {
        match (&self.manifest_files[..], &self.damaged_manifests[..]) {
            ([_, ..], _) => ManifestFile::Whole,
            ([], [_, ..]) => ManifestFile::Damaged,
            ([], []) => ManifestFile::Missing,
        }
    }

    /// What is in the way.
    pub fn oddities(&self) -> &[Oddity] {
        &self.oddities
    }

    /// Bytes of content that were read since the parcel was found.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Whether a conversion that was not finished left files that [`Parcel::remove_superfluous`] removes.
    pub fn has_superfluous(&self) -> bool {
        !self.superfluous.is_empty()
    }

    /// Where was looked.
    pub(crate) fn directories(&self) -> impl Iterator<Item = &Arc<dyn Directory>> {
        self.places.iter().map(|place| &place.directory)
    }

    pub(crate) fn absent_chunks(&self) -> impl Iterator<Item = ChunkIndex> {
        self.absent().into_iter().map(ChunkIndex)
    }

    /// The chunks that hold a member's data.
    pub(crate) fn data_of(&self, member: usize) -> Range<u16> {
        let each = self.members()[member].spec.shape().data;
        let first = each * u16::try_from(member).expect("fewer members than data chunks");
        first..first + each
    }
}
