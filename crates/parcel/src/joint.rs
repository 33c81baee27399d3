//! What a joint is: parity of one code over the data chunks of one or several parcels, which stay as they are
//! (docs/formats/joint.md).
//!
//! Invariants:
//! 1. `JointHead::decode` accepts what `JointHead::encode` writes and nothing else.
//! 2. Every chunk of the joint's code is one file: a member's data, a member's parity that was kept, or the joint's own.
//! 3. Nothing here panics on bytes from outside.

use claystone_code::{CodeSpec, Shape};

use crate::identity::Identity;
use crate::layout::Layout;
use crate::manifest::{
    FILE_BYTES_MAX, HEAD_BYTES, Head, Manifest, NO_CHUNK, NoHead, ParcelId, SPEC_BYTES_MAX, is_name,
};
use crate::name::{chunk_file, manifest_file};
use crate::sector::{SectorSums, crc32c};

/// The version that is written.
pub const JOINT_VERSION: u16 = 1;
/// The most members.
pub const MEMBERS_MAX: usize = 255;
/// Begins every head of a joint.
pub(crate) const JOINT_MAGIC: [u8; 8] = *b"CLAYJOIN";

const CRC_AT: usize = 12;
const SPEC_AT: usize = 48;
const SPEC_END: usize = SPEC_AT + SPEC_BYTES_MAX;
const KEPT_BYTES: usize = 4;
const NOT_KEPT: [u8; KEPT_BYTES] = [0xff; KEPT_BYTES];

/// A chunk of one of several parcels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberChunk {
    /// Which parcel, counted from 0.
    pub member: u16,
    /// Which of its chunks.
    pub chunk: u16,
}

/// What all files of a joint agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joint {
    /// Which joint.
    pub id: ParcelId,
    /// The code over the data chunks of all members.
    pub spec: CodeSpec,
    /// The parcels, in the order of their data chunks; all of one code and one sub-chunk length.
    pub members: Vec<Manifest>,
    /// For each parity chunk the member's that it is; `None` for those that have files of their own.
    pub kept: Vec<Option<MemberChunk>>,
}

/// A joint, and whose head it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JointHead {
    /// The joint.
    pub joint: Joint,
    /// The chunk of its code, or `None` for the manifest's own file.
    pub chunk: Option<u16>,
}

impl Joint {
    /// Why these parts make no joint; `None` if they do.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        let Some(first) = self.members.first() else { return Some("it has no members") };
        let (shape, old) = (self.spec.shape(), first.spec.shape());
        let alike = |member: &Manifest| member.spec == first.spec && member.sub_bytes == first.sub_bytes;
        let ids: Vec<ParcelId> = self.members.iter().map(|member| member.id).collect();
        let kept: Vec<MemberChunk> = self.kept.iter().copied().flatten().collect();
        let is_parity = |kept: &MemberChunk| {
            usize::from(kept.member) < self.members.len() && (old.data..old.chunks()).contains(&kept.chunk)
        };
        let chunk_bytes = self.chunk_bytes();
        if shape.alpha != 1 || old.alpha != 1 {
            Some("its codes have sub-chunks")
        } else if !self.members.iter().all(alike) {
            Some("its members are cut differently")
        } else if self.members.len() > MEMBERS_MAX || self.members.len() * usize::from(old.data) != shape.data.into() {
            Some("its members have not the data chunks of its code")
        } else if has_twins(ids) || has_twins(kept.clone()) {
            Some("it names something twice")
        } else if self.kept.len() != usize::from(shape.parity) || !kept.iter().all(is_parity) {
            Some("it keeps parity that its members have not")
        } else if chunk_bytes > FILE_BYTES_MAX / u64::from(shape.data) || !self.layout().is_valid() {
            Some("its lengths are out of range")
        } else if !is_name(&self.name()) {
            Some("its name is too long")
        } else {
            None
        }
    }

    /// Its name: the first member's and the code.
    pub fn name(&self) -> String {
        let first = self.members.first().map_or("", |member| &member.name);
        format!("{first}.{}", self.spec.to_string().replace(':', "-"))
    }

    /// A name that two of its files and its members' would have, those too that a conversion back makes.
    pub(crate) fn name_twice(&self) -> Option<String> {
        let own = |shape: Shape, name: &str| {
            let chunks = (0..shape.chunks()).map(|chunk| chunk_file(name, chunk, shape.chunks()));
            chunks.chain([manifest_file(name)]).collect::<Vec<_>>()
        };
        let members = self.members.iter().flat_map(|member| own(member.spec.shape(), &member.name));
        let mut names: Vec<String> = members.chain(own(self.spec.shape(), &self.name())).collect();
        names.sort_unstable();
        names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0].clone())
    }

    /// Bytes of the longest chunk: shorter ones count as if zeros followed.
    fn chunk_bytes(&self) -> u64 {
        self.members.iter().map(|member| member.layout().chunk_bytes()).max().unwrap_or(0)
    }

    /// How its chunks are cut.
    pub fn layout(&self) -> Layout {
        let shape = self.spec.shape();
        let sub_bytes = self.members.first().map_or(0, |member| member.sub_bytes);
        let file_bytes = self.chunk_bytes() * u64::from(shape.data);
        Layout { shape, file_bytes, sub_bytes, head_bytes: self.head_bytes() as u32 }
    }

    /// Which member's chunk a chunk of its code is; `None` for the joint's own.
    pub fn source(&self, chunk: u16) -> Option<MemberChunk> {
        let old = self.members[0].spec.shape().data;
        match chunk.checked_sub(self.spec.shape().data) {
            None => Some(MemberChunk { member: chunk / old, chunk: chunk % old }),
            Some(parity) => self.kept[usize::from(parity)],
        }
    }

    /// What a chunk's file is.
    pub(crate) fn identity(&self, chunk: u16) -> Identity {
        match self.source(chunk) {
            Some(source) => self.members[usize::from(source.member)].identity(source.chunk),
            None => Identity {
                name: chunk_file(&self.name(), chunk, self.spec.shape().chunks()),
                head: JointHead { joint: self.clone(), chunk: Some(chunk) }.encode(),
                sums: SectorSums::new(self.id, chunk),
                layout: self.layout(),
            },
        }
    }

    fn head_bytes(&self) -> usize {
        HEAD_BYTES * (1 + self.members.len()) + (KEPT_BYTES * self.kept.len()).next_multiple_of(HEAD_BYTES)
    }
}

impl JointHead {
    /// The head's bytes.
    ///
    /// # Panics
    /// If the parts make no joint.
    pub fn encode(&self) -> Vec<u8> {
        let joint = &self.joint;
        assert_eq!(joint.fault(), None, "no joint");
        let spec = joint.spec.to_string();
        assert!(spec.len() <= SPEC_BYTES_MAX, "the spec {spec} is too long");
        let mut bytes = vec![0; HEAD_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        let count = |count: usize| u16::try_from(count).expect("at most 255 members, 64 bytes, 65,535 chunks");
        put(0, &JOINT_MAGIC);
        put(8, &JOINT_VERSION.to_le_bytes());
        put(10, &self.chunk.unwrap_or(NO_CHUNK).to_le_bytes());
        put(16, &joint.id.0);
        put(32, &(joint.head_bytes() as u32).to_le_bytes());
        put(36, &count(joint.members.len()).to_le_bytes());
        put(38, &count(joint.kept.len()).to_le_bytes());
        put(40, &count(spec.len()).to_le_bytes());
        put(SPEC_AT, spec.as_bytes());
        for member in &joint.members {
            bytes.extend(Head { manifest: member.clone(), chunk: None }.encode());
        }
        for kept in &joint.kept {
            let pair = kept.map(|kept| [kept.member.to_le_bytes(), kept.chunk.to_le_bytes()].concat());
            bytes.extend(pair.as_deref().unwrap_or(&NOT_KEPT));
        }
        bytes.resize(joint.head_bytes(), 0);
        let crc = crc(&bytes);
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Bytes of the whole head whose first ones these are; `None` if they begin no joint's head or say something that
    /// none has.
    pub(crate) fn bytes_of(first: &[u8]) -> Option<usize> {
        let first = first.first_chunk::<HEAD_BYTES>()?;
        let bytes = u32::from_le_bytes(first[32..36].try_into().expect("4 bytes")) as usize;
        let limit = HEAD_BYTES * (1 + MEMBERS_MAX) + (KEPT_BYTES << 16);
        (first[..8] == JOINT_MAGIC && (2 * HEAD_BYTES..=limit).contains(&bytes)).then_some(bytes)
    }

    /// Reads a head; `bytes` are as many as [`JointHead::bytes_of`] says, or all the file has.
    ///
    /// # Errors
    /// [`NoHead`].
    pub fn decode(bytes: &[u8]) -> Result<JointHead, NoHead> {
        let damaged = |why| Err(NoHead::Damaged(why));
        if Self::bytes_of(bytes) != Some(bytes.len()) {
            return damaged("it is shorter than a joint's head");
        }
        if bytes[CRC_AT..CRC_AT + 4] != crc(bytes).to_le_bytes() {
            return damaged("the head's checksum does not match");
        }
        let number = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        match number(8) {
            JOINT_VERSION => (),
            later if later > JOINT_VERSION => return Err(NoHead::Newer(later)),
            _ => return damaged("its format version is unknown"),
        }
        let (members, kept, spec_bytes) = (usize::from(number(36)), usize::from(number(38)), usize::from(number(40)));
        let kept_at = HEAD_BYTES * (1 + members);
        let kept_end = kept_at + KEPT_BYTES * kept;
        if spec_bytes > SPEC_BYTES_MAX || bytes.len() != kept_end.next_multiple_of(HEAD_BYTES) {
            return damaged("its lengths contradict each other");
        }
        let padding = [&bytes[42..SPEC_AT], &bytes[SPEC_AT + spec_bytes..HEAD_BYTES], &bytes[kept_end..]].concat();
        if padding.iter().any(|byte| *byte != 0) {
            return damaged("padding is not 0");
        }
        let spec = std::str::from_utf8(&bytes[SPEC_AT..SPEC_AT + spec_bytes]).ok();
        let Some(spec) = spec.and_then(|spec| spec.parse::<CodeSpec>().ok()) else {
            return damaged("the code is unknown");
        };
        let mut joint = Joint { id: ParcelId([0; 16]), spec, members: Vec::new(), kept: Vec::new() };
        joint.id.0.copy_from_slice(&bytes[16..32]);
        for head in bytes[HEAD_BYTES..kept_at].chunks(HEAD_BYTES) {
            match Head::decode(head)? {
                Head { manifest, chunk: None } => joint.members.push(manifest),
                _ => return damaged("a member is no parcel's manifest"),
            }
        }
        joint.kept.extend(bytes[kept_at..kept_end].chunks(KEPT_BYTES).map(|pair| {
            let number = |at: usize| u16::from_le_bytes([pair[at], pair[at + 1]]);
            (pair != NOT_KEPT).then(|| MemberChunk { member: number(0), chunk: number(2) })
        }));
        if let Some(fault) = joint.fault() {
            return damaged(fault);
        }
        let chunk = (number(10) != NO_CHUNK).then(|| number(10));
        if chunk.is_some_and(|chunk| chunk >= spec.shape().chunks() || joint.source(chunk).is_some()) {
            return damaged("the joint has no such chunk of its own");
        }
        Ok(JointHead { joint, chunk })
    }
}

fn crc(bytes: &[u8]) -> u32 {
    crc32c(&[&bytes[..CRC_AT], &[0; 4], &bytes[CRC_AT + 4..]])
}

fn has_twins<T: Ord>(mut all: Vec<T>) -> bool {
    all.sort_unstable();
    all.windows(2).any(|pair| pair[0] == pair[1])
}

const _: () = assert!(SPEC_END <= HEAD_BYTES, "the spec fits in the first part");
