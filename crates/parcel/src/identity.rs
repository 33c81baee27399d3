//! What tells a chunk file from all others, and what all files of a parcel agree on.
//!
//! Invariants:
//! 1. A file is known by its head alone: names are for people, and for files whose head is damaged.

use claystone_code::CodeSpec;

use crate::joint::{Joint, JointHead};
use crate::layout::Layout;
use crate::manifest::{Head, Manifest, NoHead, ParcelId};
use crate::name::{chunk_file, manifest_file};
use crate::sector::SectorSums;

/// What one chunk file is.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// The name that a writer gives it.
    pub name: String,
    /// Its head.
    pub head: Vec<u8>,
    /// Its sectors' checksums.
    pub sums: SectorSums,
    /// How it is cut; the shape is of the code that it was written under.
    pub layout: Layout,
}

impl Manifest {
    /// What the file of a chunk is.
    pub(crate) fn identity(&self, chunk: u16) -> Identity {
        Identity {
            name: chunk_file(&self.name, chunk, self.spec.shape().chunks()),
            head: Head { manifest: self.clone(), chunk: Some(chunk) }.encode().to_vec(),
            sums: SectorSums::new(self.id, chunk),
            layout: self.layout(),
        }
    }
}

/// What all files of a parcel or a joint agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Agreement {
    /// A parcel.
    Parcel(Manifest),
    /// A joint and its members.
    Joint(Joint),
}

impl Agreement {
    pub fn id(&self) -> ParcelId {
        match self {
            Agreement::Parcel(manifest) => manifest.id,
            Agreement::Joint(joint) => joint.id,
        }
    }

    pub fn spec(&self) -> CodeSpec {
        match self {
            Agreement::Parcel(manifest) => manifest.spec,
            Agreement::Joint(joint) => joint.spec,
        }
    }

    /// How the chunks are cut.
    pub fn layout(&self) -> Layout {
        match self {
            Agreement::Parcel(manifest) => manifest.layout(),
            Agreement::Joint(joint) => joint.layout(),
        }
    }

    /// The files that are held, in the order of their data chunks.
    pub fn members(&self) -> &[Manifest] {
        match self {
            Agreement::Parcel(manifest) => std::slice::from_ref(manifest),
            Agreement::Joint(joint) => &joint.members,
        }
    }

    /// What its files are named after: the members' names and the joint's own.
    pub fn names(&self) -> Vec<String> {
        let joint = match self {
            Agreement::Parcel(_) => None,
            Agreement::Joint(joint) => Some(joint.name()),
        };
        self.members().iter().map(|member| member.name.clone()).chain(joint).collect()
    }

    /// What the file of a chunk is.
    pub fn identity(&self, chunk: u16) -> Identity {
        match self {
            Agreement::Parcel(manifest) => manifest.identity(chunk),
            Agreement::Joint(joint) => joint.identity(chunk),
        }
    }

    /// The head that the file of a chunk has, as whose and which.
    pub fn key(&self, chunk: u16) -> (ParcelId, u16) {
        match self {
            Agreement::Parcel(manifest) => (manifest.id, chunk),
            Agreement::Joint(joint) => match joint.source(chunk) {
                Some(source) => (joint.members[usize::from(source.member)].id, source.chunk),
                None => (joint.id, chunk),
            },
        }
    }

    /// Name and bytes of the manifest's own file.
    pub fn manifest_file(&self) -> (String, Vec<u8>) {
        match self {
            Agreement::Parcel(manifest) => {
                (manifest_file(&manifest.name), Head { manifest: manifest.clone(), chunk: None }.encode().to_vec())
            }
            Agreement::Joint(joint) => {
                (manifest_file(&joint.name()), JointHead { joint: joint.clone(), chunk: None }.encode())
            }
        }
    }
}

/// A head of either kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AnyHead {
    /// What the file's whole agrees on: a member's own manifest, not its joint.
    pub agreement: Agreement,
    /// The chunk, or `None` for a manifest's own file.
    pub chunk: Option<u16>,
}

impl AnyHead {
    /// Reads a head of either kind.
    pub fn decode(bytes: &[u8]) -> Result<AnyHead, NoHead> {
        if JointHead::bytes_of(bytes).is_some() {
            let JointHead { joint, chunk } = JointHead::decode(bytes)?;
            return Ok(AnyHead { agreement: Agreement::Joint(joint), chunk });
        }
        let Head { manifest, chunk } = Head::decode(bytes)?;
        Ok(AnyHead { agreement: Agreement::Parcel(manifest), chunk })
    }
}
