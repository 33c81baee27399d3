//! What can go wrong with a parcel, each with its numbers.

use std::io;

use claystone_code::{CodeSpec, NoConversion, SpecError, Unrecoverable};
use thiserror::Error;

use crate::manifest::ParcelId;

/// Why something was not done.
#[derive(Debug, Error)]
pub enum Error {
    /// A file could not be read or written.
    #[error("{path}: {doing}")]
    Io {
        /// Which file.
        path: String,
        /// What was being done.
        doing: &'static str,
        /// The system's word.
        source: io::Error,
    },
    /// The name cannot be a file's name in a parcel.
    #[error("the name {name:?} cannot be kept: 1 to {limit} bytes of UTF-8, without `/` and control characters")]
    BadName {
        /// The name.
        name: String,
        /// The most bytes.
        limit: usize,
    },
    /// The code is none.
    #[error("{spec:?} is no code")]
    BadCode {
        /// What the head says.
        spec: String,
        /// Why.
        source: SpecError,
    },
    /// A head has no room for the code's name.
    #[error("{spec} is {bytes} bytes long, and a parcel has room for the names of codes up to {limit}")]
    CodeTooLong {
        /// The code.
        spec: CodeSpec,
        /// Bytes of its name.
        bytes: usize,
        /// The most.
        limit: usize,
    },
    /// The file is longer than the format can say.
    #[error("{bytes} bytes are too many: a parcel holds at most {limit}")]
    TooLong {
        /// Bytes of the file.
        bytes: u64,
        /// The most.
        limit: u64,
    },
    /// Rows of this code do not fit in memory.
    #[error("a row of this code has {bytes} bytes, the most is {limit}")]
    RowTooLarge {
        /// Bytes of all chunks of one row.
        bytes: u64,
        /// The most.
        limit: u64,
    },
    /// The file ended before or after the length that was announced.
    #[error("the file changed while it was read: {expected} bytes were announced, {got} came")]
    LengthChanged {
        /// Announced.
        expected: u64,
        /// Given.
        got: u64,
    },
    /// Something has the name that was to be written.
    #[error("{path} is already there, and is not written over: move it away")]
    Exists {
        /// The file.
        path: String,
    },
    /// Two files of one conversion would have the same name.
    #[error(
        "two chunk files or manifests of this conversion would be called {name}: encode one of the files anew, under another name"
    )]
    NameTwice {
        /// Their name.
        name: String,
    },
    /// Somebody put the parcel under another code since it was found.
    #[error("{name}: its parcel was converted meanwhile, nothing was done")]
    Converted {
        /// The file.
        name: String,
    },
    /// Another process writes in this directory.
    #[error("{directory}: another process writes parcels there")]
    Busy {
        /// The directory.
        directory: String,
    },
    /// A file that was named is no part of a parcel.
    #[error("{path} is no chunk file and no manifest: {reason}")]
    NotAPart {
        /// The file.
        path: String,
        /// What is wrong with its head.
        reason: &'static str,
    },
    /// The file was written by a later version.
    #[error("{path} has format version {version}, this program knows {known}: use a newer claystone")]
    NewerFormat {
        /// The file.
        path: String,
        /// Its version.
        version: u16,
        /// Ours.
        known: u16,
    },
    /// No chunk file or manifest was found.
    #[error("no chunk file and no manifest in {places}")]
    Nothing {
        /// Where was looked.
        places: String,
    },
    /// Several parcels lie there.
    #[error("{} parcels lie there, name a file of the one that is meant: {}", found.len(), found.join(", "))]
    Several {
        /// One file of each.
        found: Vec<String>,
    },
    /// Files of different parcels were named.
    #[error("{path} belongs to parcel {id}, {other_path} to {other}")]
    Foreign {
        /// The second file.
        path: String,
        /// Its parcel.
        id: ParcelId,
        /// The first file.
        other_path: String,
        /// Its parcel.
        other: ParcelId,
    },
    /// Two heads of one parcel say different things.
    #[error("{path} and {other} are of one parcel and contradict each other")]
    Contradiction {
        /// A file.
        path: String,
        /// The other file.
        other: String,
    },
    /// Two files hold the same chunk.
    #[error("chunk {index} is there twice, as {path} and {other}: move one away")]
    Duplicate {
        /// The chunk.
        index: u16,
        /// A file.
        path: String,
        /// The other file.
        other: String,
    },
    /// Too much is lost.
    #[error(
        "too much is lost at byte {file_byte} of the file: {spec} needs {needed} of {chunks} chunks, {available} are good \
         there"
    )]
    TooMuchLost {
        /// The code.
        spec: CodeSpec,
        /// Where in the file the row begins in which too much is lost.
        file_byte: u64,
        /// Good chunks there.
        available: u16,
        /// Chunks that are needed.
        needed: u16,
        /// Chunks of the code.
        chunks: u16,
    },
    /// Every checksum passed, but the file's hash did not.
    #[error("every checksum passes, and the file's hash is not the {expected} of when it was encoded")]
    WrongHash {
        /// When it was encoded, in hexadecimal digits.
        expected: String,
    },
    /// No conversion between these codes.
    #[error(transparent)]
    NoConversion(#[from] NoConversion),
    /// Parcels cannot be put under one code.
    #[error("these parcels of {from} make no joint of {to}: {reason}")]
    NotJoinable {
        /// Their code.
        from: CodeSpec,
        /// The code that was asked for.
        to: CodeSpec,
        /// Why.
        reason: &'static str,
    },
    /// A parcel is not whole enough for a conversion.
    #[error(
        "{name} is not whole (missing chunk files: {absent}, damaged heads: {damaged}): repair it before it is converted"
    )]
    NotWhole {
        /// The file.
        name: String,
        /// Chunks without a file.
        absent: usize,
        /// Files whose head is damaged.
        damaged: usize,
    },
    /// A sector that a conversion reads is damaged.
    #[error("{path}: sector {sector} is damaged: repair it before it is converted")]
    DamagedSource {
        /// The file.
        path: String,
        /// The sector.
        sector: u64,
    },
    /// A head is not what was written.
    #[error("{path}: the head read back wrong: do not trust this disk")]
    ReadBackHead {
        /// The file.
        path: String,
    },
    /// What was written read back as something else.
    #[error("{path}: sector {sector} read back wrong after it was written: do not trust this disk")]
    ReadBack {
        /// The file.
        path: String,
        /// The sector.
        sector: u64,
    },
}

impl Error {
    pub(crate) fn io(path: String, doing: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io { path, doing, source }
    }

    pub(crate) fn lost(lost: &Unrecoverable, file_byte: u64) -> Error {
        let Unrecoverable { spec, available, needed, chunks, .. } = *lost;
        Error::TooMuchLost { spec, file_byte, available, needed, chunks }
    }
}
