//! A file cut under a code into chunk files that stand alone: no store, no database, no server.
//!
//! [`Encoder`] writes a parcel, [`find`] finds one, and a [`Parcel`] is decoded, verified and repaired. A
//! [`Conversion`] puts the data of one or several under another code, by new parity files alone: a *joint*.
//!
//! Invariants:
//! 1. No byte of a file is given out that was not checked: sector by sector, and the whole against its hash.
//! 2. What is under its own name is whole: everything is written under another name, synced, then renamed. Only what
//!    is damaged already is mended in place.
//! 3. Memory is a row of the code and no more, however long the file is.
//! 4. What is read for recovery is what the code's plan names, in whole sectors.
//!
//! Left out: random ids, threads, progress bars (the program has them); what of several parcels is wanted where.

mod chunk_file;
mod convert;
mod decode;
mod encode;
mod error;
mod find;
mod hashes;
mod identity;
mod joint;
mod layout;
mod manifest;
mod name;
mod parcel;
mod parts;
mod recovery;
mod repair;
mod sector;
mod verify;

pub use chunk_file::ChunkFile;
pub use convert::{Conversion, Converted, Obstacle};
pub use encode::Encoder;
pub use error::Error;
pub use find::{Oddity, Place, find, find_all};
pub use joint::{JOINT_VERSION, Joint, JointHead, MEMBERS_MAX, MemberChunk};
pub use layout::Layout;
pub use manifest::{FORMAT_VERSION, HEAD_BYTES, Head, Manifest, NoHead, ParcelId, is_name};
pub use name::{chunk_file as chunk_file_name, manifest_file as manifest_file_name};
pub use parcel::{ManifestFile, Parcel};
pub use repair::{Extent, Repaired};
pub use sector::SECTOR_BYTES;
pub use verify::{ChunkDamage, Report, Verdict};

/// Told how many bytes of the file were done since the last call.
pub type Progress<'a> = &'a mut dyn FnMut(u64);
