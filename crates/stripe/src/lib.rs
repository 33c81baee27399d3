//! Write, read, verify, rebuild and recode stripes across chunk stores, and make others of them.
//!
//! Invariants:
//! 1. This crate takes and returns [`StripeRecord`](claystone_meta::StripeRecord)s and never calls the database.
//! 2. A chunk that is written here is named by nobody until the caller commits the record; a [`Claim`] keeps
//!    reclaim away from it until then.
//! 3. A read asks for what its plan says and nothing else; when a store fails or is slow, the next plan leaves it
//!    out. Bytes reach the caller only as a store verified them, or as the code recovered them from such bytes.
//! 4. Data lies in rows of tiles ([`Layout`]), so memory is bounded by a few rows whatever the stripe's length.
//! 5. No one node that loses power takes a stripe with it, also where not all of its chunks are synced yet.
//!
//! Left out: which code a stripe gets (crate `object`), when it is repaired (crate `keeper`).

mod claim;
mod columns;
mod convert;
mod degraded;
mod error;
mod fresh;
mod gather;
mod heat;
mod hold;
mod homing;
mod lanes;
mod layout;
mod lookup;
mod nodes;
mod place;
mod reader;
mod rebuild;
mod recode;
mod room;
mod stores;
mod stripes;
mod verify;
mod volatile;
mod writer;

pub use claim::Claim;
pub use convert::Converted;
pub use degraded::DegradedReads;
pub use error::StripeError;
pub use heat::Heats;
pub use hold::Hold;
pub use homing::Homing;
pub use lanes::Family;
pub use layout::{Layout, Row, sub_bytes_for};
pub use lookup::{Lookup, LookupsBegun};
pub use nodes::{Node, Nodes};
pub use place::{Candidate, Homes, Placed, Rehousing, place, place_at_home, place_chunks, rehouse};
pub use reader::StripeReader;
pub use rebuild::{Housing, Pace, Rebuilt, Unpaced};
pub use recode::Recoded;
pub use room::{Rooms, Taken, TakenBefore};
pub use stores::{Absence, Member, Stores};
pub use stripes::{Damage, DamageReports, Settings, Stripes};
pub use verify::{ChunkVerdict, Verification};
pub use writer::StripeWriter;
