//! NBD's messages as pure functions over bytes.
//!
//! Invariants:
//! 1. Whatever bytes come in, they are taken apart or refused; nothing panics, and nothing is allocated that the given
//!    bytes do not fill.
//! 2. What NBD says with a number is a type outside this module.
//!
//! The names of the constants are those of the protocol without `NBD_`, at
//! <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>; its blocks are pages here, its extents spans.
//!
//! Left out: extended headers, resizing.

mod option;
mod reply;
mod request;

pub(crate) use option::{
    Asked, CLIENT_FLAGS_BYTES, ClientFlags, ExportFacts, InfoKind, MetaQuery, OPTION_HEAD_BYTES, OptionHead,
    OptionKind, OptionRefusal, OptionReplies, export_name, greeting,
};
pub(crate) use reply::{Head, data_chunk, done_chunk, error_chunk, hole_chunk, simple_reply, status_chunk};
pub(crate) use request::{Agreement, Command, REQUEST_BYTES, Rejection, Request};

/// The longest read or write. What the protocol wants every server to take.
pub(crate) const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
/// How many spans one reply holds.
pub(crate) const SPANS_MAX: usize = 4096;
/// The number by which the one metadata context, `base:allocation`, is known in a session.
pub(crate) const ALLOCATION_ID: u32 = 1;

/// The next bytes of a message as a number.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// A length and as many bytes.
    fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.bytes(length as usize)
    }
}
