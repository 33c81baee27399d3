//! Replies of the transmission phase.

use bytes::{BufMut, Bytes, BytesMut};
use claystone_volume::{Span, SpanKind};

use super::{ALLOCATION_ID, Rejection};

/// The fixed bytes of a reply, before its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    bytes: [u8; HEAD_BYTES_MAX],
    length: u8,
}

impl Head {
    fn new() -> Head {
        Head { bytes: [0; HEAD_BYTES_MAX], length: 0 }
    }

    fn with<const N: usize>(mut self, field: [u8; N]) -> Head {
        let at = usize::from(self.length);
        self.bytes[at..at + N].copy_from_slice(&field);
        self.length += N as u8;
        self
    }

    fn chunk(kind: u16, last: bool, cookie: u64, payload_bytes: u32) -> Head {
        Head::new()
            .with(STRUCTURED_REPLY_MAGIC.to_be_bytes())
            .with(u16::from(last).to_be_bytes())
            .with(kind.to_be_bytes())
            .with(cookie.to_be_bytes())
            .with(payload_bytes.to_be_bytes())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// A simple reply; what was read follows if nothing is refused.
pub(crate) fn simple_reply(cookie: u64, refused: Option<Rejection>) -> Head {
    Head::new()
        .with(SIMPLE_REPLY_MAGIC.to_be_bytes())
        .with(refused.map_or(0, Rejection::number).to_be_bytes())
        .with(cookie.to_be_bytes())
}

/// A part of what was read, which follows.
pub(crate) fn data_chunk(cookie: u64, last: bool, offset: u64, bytes: u32) -> Head {
    Head::chunk(TYPE_OFFSET_DATA, last, cookie, 8 + bytes).with(offset.to_be_bytes())
}

/// A part of what was read, which is zeros.
pub(crate) fn hole_chunk(cookie: u64, last: bool, offset: u64, bytes: u32) -> Head {
    Head::chunk(TYPE_OFFSET_HOLE, last, cookie, 12).with(offset.to_be_bytes()).with(bytes.to_be_bytes())
}

/// Success without content.
pub(crate) fn done_chunk(cookie: u64) -> Head {
    Head::chunk(TYPE_NONE, true, cookie, 0)
}

/// A refusal in words, which are the second part.
pub(crate) fn error_chunk(cookie: u64, refused: Rejection, message: &str) -> (Head, Bytes) {
    let message = &message[..message.floor_char_boundary(MESSAGE_BYTES_MAX)];
    let head = Head::chunk(TYPE_ERROR, true, cookie, 6 + message.len() as u32)
        .with(refused.number().to_be_bytes())
        .with((message.len() as u16).to_be_bytes());
    (head, Bytes::copy_from_slice(message.as_bytes()))
}

/// How a range is kept: the head, and its spans.
pub(crate) fn status_chunk(cookie: u64, spans: &[Span]) -> (Head, Bytes) {
    let mut content = BytesMut::with_capacity(spans.len() * 8);
    for span in spans {
        content.put_u32(u32::try_from(span.bytes).expect("a span is within what was asked for, by 32 bits"));
        content.put_u32(match span.kind {
            SpanKind::Data => 0,
            SpanKind::Hole => STATE_HOLE | STATE_ZERO,
        });
    }
    let head = Head::chunk(TYPE_BLOCK_STATUS, true, cookie, 4 + content.len() as u32).with(ALLOCATION_ID.to_be_bytes());
    (head, content.freeze())
}

/// A chunk's head of 20 bytes, an offset and a length.
const HEAD_BYTES_MAX: usize = 32;
const MESSAGE_BYTES_MAX: usize = 4096;

const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

const TYPE_NONE: u16 = 0;
const TYPE_OFFSET_DATA: u16 = 1;
const TYPE_OFFSET_HOLE: u16 = 2;
const TYPE_BLOCK_STATUS: u16 = 5;
const TYPE_ERROR: u16 = (1 << 15) + 1;

const STATE_HOLE: u32 = 1;
const STATE_ZERO: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    const COOKIE: u64 = u64::from_be_bytes(*b"ABCDEFGH");

    #[test]
    fn simple_replies_are_as_the_protocol_writes_them() {
        assert_eq!(simple_reply(COOKIE, None).as_bytes(), b"\x67\x44\x66\x98\0\0\0\0ABCDEFGH");
        let refused = simple_reply(COOKIE, Some(Rejection::NoSpace));
        assert_eq!(refused.as_bytes(), b"\x67\x44\x66\x98\0\0\0\x1cABCDEFGH");
    }

    #[test]
    fn chunks_are_as_the_protocol_writes_them() {
        let data = data_chunk(COOKIE, false, 0x1_0000_0000, 512);
        assert_eq!(data.as_bytes(), b"\x66\x8e\x33\xef\0\0\0\x01ABCDEFGH\0\0\x02\x08\0\0\0\x01\0\0\0\0");
        let hole = hole_chunk(COOKIE, true, 0x200, 0x1000);
        assert_eq!(hole.as_bytes(), b"\x66\x8e\x33\xef\0\x01\0\x02ABCDEFGH\0\0\0\x0c\0\0\0\0\0\0\x02\0\0\0\x10\0");
        assert_eq!(done_chunk(COOKIE).as_bytes(), b"\x66\x8e\x33\xef\0\x01\0\0ABCDEFGH\0\0\0\0");
        let (head, message) = error_chunk(COOKIE, Rejection::Io, "gone");
        assert_eq!(head.as_bytes(), b"\x66\x8e\x33\xef\0\x01\x80\x01ABCDEFGH\0\0\0\x0a\0\0\0\x05\0\x04");
        assert_eq!(message, &b"gone"[..]);
    }

    #[test]
    fn a_status_is_as_the_protocol_writes_it() {
        let spans = [Span { bytes: 0x1000, kind: SpanKind::Data }, Span { bytes: 5, kind: SpanKind::Hole }];
        let (head, content) = status_chunk(COOKIE, &spans);
        assert_eq!(head.as_bytes(), b"\x66\x8e\x33\xef\0\x01\0\x05ABCDEFGH\0\0\0\x14\0\0\0\x01");
        assert_eq!(content, &b"\0\0\x10\0\0\0\0\0\0\0\0\x05\0\0\0\x03"[..]);
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let (head, message) = error_chunk(1, Rejection::Io, &"€".repeat(3000));
        assert_eq!(message.len(), 4095);
        assert_eq!(head.as_bytes()[16..20], (6 + 4095u32).to_be_bytes());
    }
}
