//! What a parcel is, as the 512 bytes at the head of each of its files (docs/formats/parcel.md).
//!
//! Invariants:
//! 1. `Head::decode` accepts what `Head::encode` writes and nothing else: padding is 0, texts are checked, the code
//!    builds and its rows fit in memory.
//! 2. Nothing here panics on bytes from outside.

use std::fmt;

use claystone_code::CodeSpec;

use crate::error::Error;
use crate::layout::Layout;
use crate::sector::crc32c;

/// Bytes of a head.
pub const HEAD_BYTES: usize = 512;
/// The version that is written.
pub const FORMAT_VERSION: u16 = 1;
/// Longest name: with index and `.part` behind it, it still fits the 255 bytes of a file system.
pub const NAME_BYTES_MAX: usize = 239;
/// Longest file.
pub const FILE_BYTES_MAX: u64 = 1 << 56;

const MAGIC: [u8; 8] = *b"CLAYPRCL";
const CRC_AT: usize = 12;
const SPEC_AT: usize = 80;
pub(crate) const SPEC_BYTES_MAX: usize = 64;
const NAME_AT: usize = SPEC_AT + SPEC_BYTES_MAX;
/// The index of the manifest.
pub(crate) const NO_CHUNK: u16 = u16::MAX;

/// What tells a parcel from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParcelId(pub [u8; 16]);

impl fmt::Display for ParcelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What all files of a parcel agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Which parcel.
    pub id: ParcelId,
    /// The code.
    pub spec: CodeSpec,
    /// The file's name.
    pub name: String,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Sub-chunk bytes of a full row.
    pub sub_bytes: u32,
    /// BLAKE3 of the file.
    pub hash: [u8; 32],
}

/// A manifest, and whose head it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The parcel.
    pub manifest: Manifest,
    /// The chunk, or `None` for the manifest's own file.
    pub chunk: Option<u16>,
}

/// Why bytes are no head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoHead {
    /// It was damaged, or never was one; why.
    Damaged(&'static str),
    /// A later version wrote it.
    Newer(u16),
}

impl Manifest {
    /// How the file lies in the chunks.
    ///
    /// # Panics
    /// If the spec is not valid.
    pub fn layout(&self) -> Layout {
        let Manifest { file_bytes, sub_bytes, .. } = *self;
        Layout { shape: self.spec.shape(), file_bytes, sub_bytes, head_bytes: HEAD_BYTES as u32 }
    }
}

impl Head {
    /// The head's bytes.
    ///
    /// # Panics
    /// If the name or the spec is longer than the format allows.
    pub fn encode(&self) -> [u8; HEAD_BYTES] {
        let Manifest { id, spec, name, file_bytes, sub_bytes, hash } = &self.manifest;
        let spec = spec.to_string();
        assert!(spec.len() <= SPEC_BYTES_MAX, "the spec {spec} is too long");
        assert!(is_name(name), "{name:?} is no name");
        let length = |text: &str| u16::try_from(text.len()).expect("both are shorter than 256").to_le_bytes();
        let mut bytes = [0; HEAD_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &MAGIC);
        put(8, &FORMAT_VERSION.to_le_bytes());
        put(10, &self.chunk.unwrap_or(NO_CHUNK).to_le_bytes());
        put(16, &id.0);
        put(32, &file_bytes.to_le_bytes());
        put(40, &sub_bytes.to_le_bytes());
        put(44, &length(&spec));
        put(46, &length(name));
        put(48, hash);
        put(SPEC_AT, spec.as_bytes());
        put(NAME_AT, name.as_bytes());
        let crc = crc(&bytes);
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a head; `bytes` are the first 512 of a file, or all it has.
    ///
    /// # Errors
    /// [`NoHead`].
    pub fn decode(bytes: &[u8]) -> Result<Head, NoHead> {
        let damaged = |why| Err(NoHead::Damaged(why));
        let Some(bytes) = bytes.first_chunk::<HEAD_BYTES>() else { return damaged("it is shorter than a head") };
        if bytes[..8] != MAGIC {
            return damaged("it does not begin with CLAYPRCL");
        }
        if u32::from_le_bytes(array_at(bytes, CRC_AT)) != crc(bytes) {
            return damaged("the head's checksum does not match");
        }
        match u16::from_le_bytes(array_at(bytes, 8)) {
            FORMAT_VERSION => (),
            later if later > FORMAT_VERSION => return Err(NoHead::Newer(later)),
            _ => return damaged("its format version is unknown"),
        }
        let length = |at| usize::from(u16::from_le_bytes(array_at(bytes, at)));
        let (spec_bytes, name_bytes) = (length(44), length(46));
        if spec_bytes > SPEC_BYTES_MAX || name_bytes > NAME_BYTES_MAX {
            return damaged("a text is longer than its field");
        }
        let text = |at, len| std::str::from_utf8(&bytes[at..at + len]);
        let padding = [&bytes[SPEC_AT + spec_bytes..NAME_AT], &bytes[NAME_AT + name_bytes..]].concat();
        let (Ok(spec), Ok(name)) = (text(SPEC_AT, spec_bytes), text(NAME_AT, name_bytes)) else {
            return damaged("a text is not UTF-8");
        };
        if padding.iter().any(|byte| *byte != 0) {
            return damaged("padding is not 0");
        }
        if !is_name(name) {
            return damaged("the name is none for a file");
        }
        let Ok(spec) = spec.parse::<CodeSpec>() else { return damaged("the code is unknown") };
        let index = u16::from_le_bytes(array_at(bytes, 10));
        let chunk = (index != NO_CHUNK).then_some(index);
        if chunk.is_some_and(|chunk| chunk >= spec.shape().chunks()) {
            return damaged("the code has no such chunk");
        }
        let manifest = Manifest {
            id: ParcelId(array_at(bytes, 16)),
            spec,
            name: name.to_owned(),
            file_bytes: u64::from_le_bytes(array_at(bytes, 32)),
            sub_bytes: u32::from_le_bytes(array_at(bytes, 40)),
            hash: array_at(bytes, 48),
        };
        if manifest.file_bytes > FILE_BYTES_MAX {
            return damaged("the file's length is out of range");
        }
        if !manifest.layout().is_valid() {
            return damaged("the sub-chunk's length is out of range");
        }
        Ok(Head { manifest, chunk })
    }
}

/// Whether a head has room for the name of a code.
///
/// # Errors
/// [`Error::CodeTooLong`].
pub(crate) fn check_spec(spec: CodeSpec) -> Result<(), Error> {
    match spec.to_string().len() {
        ..=SPEC_BYTES_MAX => Ok(()),
        bytes => Err(Error::CodeTooLong { spec, bytes, limit: SPEC_BYTES_MAX }),
    }
}

/// Whether a text can be the name of a file in a parcel.
pub fn is_name(name: &str) -> bool {
    let plain = !name.contains(|character: char| character == '/' || character.is_control());
    plain && !matches!(name, "" | "." | "..") && name.len() <= NAME_BYTES_MAX
}

fn crc(bytes: &[u8; HEAD_BYTES]) -> u32 {
    crc32c(&[&bytes[..CRC_AT], &[0; 4], &bytes[CRC_AT + 4..]])
}

fn array_at<const N: usize>(bytes: &[u8; HEAD_BYTES], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the slice has N bytes")
}
