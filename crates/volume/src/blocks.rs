//! The contract of every block device: a row of bytes of known length, read and written anywhere.
//!
//! Invariants:
//! 1. A read returns what was written last, zeros where nothing was or where it was discarded, or an error; never other
//!    bytes.
//! 2. A device grows and never shrinks: a range that was within it stays within it.
//! 3. A page is what is atomic, against a crash and against other calls; a call over several pages is not.
//!
//! What a call has done, and when it is certain:
//!
//! ```text
//! (old) --write returns--> in effect --flush returns, or Durable::Now--> durable
//!   ^                          |
//!   +---------- crash ---------+      page by page: each old, or as one of the writes since the last flush left it
//! ```
//!
//! *In effect*: every call that begins later sees it, from whichever task. *Durable*: no crash, and no loss that the
//! device tolerates, takes it away. A call that returned an error, or whose future was dropped before it was ready, has
//! left each of its pages as it was or as it should be, and may do so until the next flush returns.
//!
//! Left out: names of devices, who may use them, and how they are kept.

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use claystone_chunk::ByteRange;

/// Whether a device takes writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reads and writes.
    ReadWrite,
    /// Every change is refused with [`BlocksError::ReadOnly`].
    ReadOnly,
}

/// When a change is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durable {
    /// When a flush returns that began after the change returned.
    #[default]
    WithFlush,
    /// When the change returns. Earlier changes need not be.
    Now,
}

/// What becomes of the space below bytes that are zeroed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Space {
    /// It is given back where whole pages are zeroed: they become holes.
    #[default]
    Return,
    /// It is kept, or taken, so that a later write there does not fail for lack of space: there are no holes then.
    Keep,
}

/// How bytes are zeroed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Zeroing {
    /// What becomes of the space.
    pub space: Space,
    /// Refuse with [`BlocksError::Slow`], at once and changing nothing, where it would take as long as writing zeros, or may do
    /// so. Without it nothing is refused for that.
    pub only_fast: bool,
    /// When the zeros are durable.
    pub durable: Durable,
}

/// Bytes of a read, in order of their place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stretch {
    /// Bytes that are kept; may be zeros too.
    Data(Bytes),
    /// This many bytes that read as zeros and take no space.
    Hole(u64),
}

impl Stretch {
    /// How many bytes it stands for.
    pub fn bytes(&self) -> u64 {
        match self {
            Stretch::Data(content) => content.len() as u64,
            Stretch::Hole(bytes) => *bytes,
        }
    }
}

/// The stretches of a read as plain bytes: copied only where there are several or a hole.
pub fn joined(mut stretches: Vec<Stretch>) -> Bytes {
    if let [Stretch::Data(content)] = &mut stretches[..] {
        return std::mem::take(content);
    }
    let mut content = BytesMut::with_capacity(stretches.iter().map(|stretch| stretch.bytes() as usize).sum());
    for stretch in stretches {
        match stretch {
            Stretch::Data(bytes) => content.extend_from_slice(&bytes),
            Stretch::Hole(bytes) => content.resize(content.len() + bytes as usize, 0),
        }
    }
    content.freeze()
}

/// How a row of bytes is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// It takes space; may read as zeros too.
    Data,
    /// It takes none and reads as zeros.
    Hole,
}

/// A row of bytes that are kept alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// How many; at least one.
    pub bytes: u64,
    /// How they are kept.
    pub kind: SpanKind,
}

/// Spans as they are found: no two that follow each other are alike, none is empty.
pub(crate) struct Spans {
    spans: Vec<Span>,
    spans_max: usize,
}

impl Spans {
    /// None yet.
    pub(crate) fn new(spans_max: usize) -> Spans {
        Spans { spans: Vec::new(), spans_max }
    }

    /// Adds bytes behind those before. False: they would be one span too many.
    pub(crate) fn push(&mut self, bytes: u64, kind: SpanKind) -> bool {
        let full = self.spans.len() == self.spans_max;
        match self.spans.last_mut() {
            _ if bytes == 0 => {}
            Some(last) if last.kind == kind => last.bytes += bytes,
            _ if full => return false,
            _ => self.spans.push(Span { bytes, kind }),
        }
        true
    }

    /// All of them.
    pub(crate) fn finish(self) -> Vec<Span> {
        self.spans
    }
}

/// Why an operation on a block device did not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlocksError {
    /// The range is not within the device. Nothing was changed.
    #[error("{} bytes at {} are outside a device of {blocks_bytes} bytes", .range.bytes, .range.offset)]
    OutOfRange {
        /// What was asked.
        range: ByteRange,
        /// What there is.
        blocks_bytes: u64,
    },
    /// The device takes no changes.
    #[error("the device is read-only")]
    ReadOnly,
    /// No room for what would be written. Each page is as it was or as it should be.
    #[error("the device has no space: {needed_bytes} bytes needed, {free_bytes} free")]
    NoSpace {
        /// What the operation needs.
        needed_bytes: u64,
        /// What there is.
        free_bytes: u64,
    },
    /// Zeros were asked for only if fast, and are not. Nothing was changed.
    #[error("zeroing {} bytes at {} takes as long as writing them", .range.bytes, .range.offset)]
    Slow {
        /// What was asked.
        range: ByteRange,
    },
    /// Bytes are lost: what is left of them and their redundancy does not give them back. Others can be read, and a
    /// write over whole pages brings them back.
    #[error("{} bytes at {} are lost", .range.bytes, .range.offset)]
    Lost {
        /// Bytes that are lost and in the way: what was asked of the first lost page, or that page.
        range: ByteRange,
    },
    /// Bytes cannot be read now, and are not known to be lost: what tells where they are does not answer, or somebody changes
    /// them for too long. Nothing was changed; it may go later.
    #[error("{} bytes at {} cannot be read now: {reason}", .range.bytes, .range.offset)]
    Unavailable {
        /// Bytes that are in the way.
        range: ByteRange,
        /// What was seen.
        reason: String,
    },
    /// The operation had an unknown result, or the device is not ours any more: it takes nothing until it is opened anew.
    #[error("the device failed: {reason}")]
    Failed {
        /// What was seen.
        reason: String,
    },
}

/// A block device. Calls may come from many tasks at once.
///
/// Offsets and lengths are in bytes, of any alignment; no bytes at all are in order anywhere up to the device's end.
/// Whole pages are what is fast.
///
/// Where calls that run at once touch the same page, the page is as if they had touched it one after another, in an order
/// that may differ from page to page: of two overlapping writes one page can end with the first and the next with the
/// second, and a read can see one page before a write and the next after it. Who needs more waits for one call before
/// the next.
#[async_trait]
pub trait Blocks: Send + Sync + std::fmt::Debug {
    /// The device's length. It may grow while it is open.
    fn bytes(&self) -> u64;

    /// Bytes of a page: a power of two from 512 to 65536. The last page may be cut by the device's end.
    fn page_bytes(&self) -> u32;

    /// Whether it takes writes.
    fn access(&self) -> Access;

    /// Reads a range; what is returned covers it exactly, in order.
    ///
    /// # Errors
    /// `OutOfRange`, `Lost` if any byte of the range is, `Unavailable`, `Failed`.
    async fn read(&self, range: ByteRange) -> Result<Vec<Stretch>, BlocksError>;

    /// Writes `content` at `offset`.
    ///
    /// # Errors
    /// `OutOfRange`, `ReadOnly`, `NoSpace`, `Lost` and `Unavailable` (a part of a page whose other bytes are), `Failed`.
    async fn write(&self, offset: u64, content: Bytes, durable: Durable) -> Result<(), BlocksError>;

    /// Makes a range read as zeros.
    ///
    /// # Errors
    /// As for `write`, and `Slow`.
    async fn write_zeroes(&self, range: ByteRange, how: Zeroing) -> Result<(), BlocksError>;

    /// Forgets a range: it reads as zeros, and the space of its whole pages is given back.
    ///
    /// # Errors
    /// As for `write`.
    async fn discard(&self, range: ByteRange, durable: Durable) -> Result<(), BlocksError> {
        self.write_zeroes(range, Zeroing { space: Space::Return, only_fast: false, durable }).await
    }

    /// Makes durable every change that had returned when this was called, whoever made it.
    ///
    /// # Errors
    /// `Failed`: none of them is certain then, and no later flush makes them so.
    async fn flush(&self) -> Result<(), BlocksError>;

    /// How a range is kept, from its start: up to `spans_max` (at least 1) spans, each of another kind than the one before
    /// it. They reach the end of the range unless there are `spans_max` of them, and never further. Pages that were never
    /// written, or discarded whole, are holes, until the device moves what lies around them: it may keep them as zeros then.
    ///
    /// # Errors
    /// `OutOfRange`, `Unavailable`, `Failed`.
    async fn spans(&self, range: ByteRange, spans_max: usize) -> Result<Vec<Span>, BlocksError>;
}

/// Whether a range lies within a device of `blocks_bytes`; never overflows.
///
/// # Errors
/// `OutOfRange`.
pub fn within(range: ByteRange, blocks_bytes: u64) -> Result<(), BlocksError> {
    match range.offset.checked_add(range.bytes) {
        Some(end) if end <= blocks_bytes => Ok(()),
        _ => Err(BlocksError::OutOfRange { range, blocks_bytes }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_end_at_the_end() {
        for (offset, bytes, right) in
            [(0, 10, true), (10, 0, true), (11, 0, false), (9, 2, false), (u64::MAX, 1, false), (1, u64::MAX, false)]
        {
            assert_eq!(within(ByteRange { offset, bytes }, 10).is_ok(), right, "{bytes} at {offset}");
        }
    }

    #[test]
    fn one_stretch_of_data_is_not_copied() {
        let content = Bytes::from(vec![7; 100]);
        assert_eq!(joined(vec![Stretch::Data(content.clone())]).as_ptr(), content.as_ptr());
        assert_eq!(joined(vec![]), Bytes::new());
        let several = vec![Stretch::Hole(2), Stretch::Data(Bytes::from_static(b"ab")), Stretch::Hole(1)];
        assert_eq!(joined(several), &b"\0\0ab\0"[..]);
    }
}
