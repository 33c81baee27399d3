//! Replies on their way out, sent from where they lie.
//!
//! Invariants:
//! 1. Replies leave in the order in which they were queued, none with bytes of another in between.
//! 2. What a reply holds is given back when its last byte has been handed to the stream, not before.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use crate::handshake::Stream;
use crate::wire::Head;

/// What waits to be sent.
#[derive(Default)]
pub(crate) struct Output {
    queue: VecDeque<Part>,
    /// Bytes of the first part that are sent.
    sent_of_first: usize,
    /// All bytes ever queued and sent.
    queued_total: u64,
    sent_total: u64,
    /// Where in `queued_total` each reply ends, and what it holds until then.
    ends: VecDeque<(u64, u32)>,
    /// The stream may still keep some of what was handed to it.
    unflushed: bool,
}

enum Part {
    Head(Head),
    Content(Bytes),
}

impl Part {
    fn as_bytes(&self) -> &[u8] {
        match self {
            Part::Head(head) => head.as_bytes(),
            Part::Content(content) => content,
        }
    }
}

impl Output {
    pub(crate) fn head(&mut self, head: Head) {
        self.queued_total += head.as_bytes().len() as u64;
        self.queue.push_back(Part::Head(head));
    }

    pub(crate) fn content(&mut self, content: Bytes) {
        if !content.is_empty() {
            self.queued_total += content.len() as u64;
            self.queue.push_back(Part::Content(content));
        }
    }

    pub(crate) fn zeros(&mut self, mut bytes: u64) {
        while bytes > 0 {
            let count = bytes.min(ZEROS.len() as u64);
            self.content(Bytes::from_static(&ZEROS[..count as usize]));
            bytes -= count;
        }
    }

    /// Ends a reply, which has at least one part.
    pub(crate) fn end_reply(&mut self, held_bytes: u32) {
        self.ends.push_back((self.queued_total, held_bytes));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && !self.unflushed
    }

    /// What the next reply held that has been sent.
    pub(crate) fn sent_reply(&mut self) -> Option<u32> {
        let (_, held_bytes) = self.ends.pop_front_if(|(end, _)| *end <= self.sent_total)?;
        Some(held_bytes)
    }

    /// Sends some of what waits; ready if anything was sent. Nothing waits: pending, and nobody is woken.
    pub(crate) fn poll_send(&mut self, stream: &mut dyn Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut stream = Pin::new(stream);
        if self.queue.is_empty() {
            if self.unflushed {
                ready!(stream.as_mut().poll_flush(cx))?;
                self.unflushed = false;
                return Poll::Ready(Ok(()));
            }
            return Poll::Pending;
        }
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut count = 0;
        for part in self.queue.iter().take(SLICES_MAX) {
            let skipped = if count == 0 { self.sent_of_first } else { 0 };
            slices[count] = IoSlice::new(&part.as_bytes()[skipped..]);
            count += 1;
        }
        let mut sent = ready!(stream.as_mut().poll_write_vectored(cx, &slices[..count]))?;
        if sent == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.unflushed = true;
        self.sent_total += sent as u64;
        sent += self.sent_of_first;
        while let Some(part) = self.queue.pop_front_if(|part| part.as_bytes().len() <= sent) {
            sent -= part.as_bytes().len();
        }
        self.sent_of_first = sent;
        Poll::Ready(Ok(()))
    }
}

/// Bytes that are read where there are none.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
/// How much one call hands to the stream: 64 pages with a head each are one sequential read of 256 KiB.
const SLICES_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{data_chunk, simple_reply};
    use futures::task::noop_waker_ref;
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    /// Takes up to so many bytes a call.
    struct Slow {
        step: usize,
        taken: Vec<u8>,
    }

    impl AsyncRead for Slow {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Slow {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let count = bytes.len().min(self.step);
            self.taken.extend_from_slice(&bytes[..count]);
            Poll::Ready(Ok(count))
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let mut left = self.step;
            for slice in slices {
                let count = slice.len().min(left);
                self.taken.extend_from_slice(&slice[..count]);
                left -= count;
            }
            Poll::Ready(Ok(self.step - left))
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn all_bytes_leave_in_order_however_few_are_taken() {
        for step in [1, 2, 3, 7, 16, 17, 28, 100, 65536, 1 << 20] {
            let mut output = Output::default();
            let mut expected = Vec::new();
            let mut held = 0;
            for number in 0..200u32 {
                let (first, second) = (simple_reply(number.into(), None), data_chunk(number.into(), true, 0, 10));
                let content = Bytes::from(vec![number as u8; number as usize % 40]);
                for part in [first.as_bytes(), &content, second.as_bytes(), &vec![0; number as usize]] {
                    expected.extend_from_slice(part);
                }
                output.head(first);
                output.content(content);
                output.head(second);
                output.zeros(number.into());
                output.end_reply(number);
                held += number;
            }
            let mut stream = Slow { step, taken: Vec::new() };
            let mut cx = Context::from_waker(noop_waker_ref());
            let mut replies = 0;
            while !output.is_empty() {
                assert!(output.poll_send(&mut stream, &mut cx).is_ready());
                while let Some(bytes) = output.sent_reply() {
                    assert_eq!(bytes, replies, "replies are given back in order");
                    replies += 1;
                    held -= bytes;
                }
                assert!(stream.taken == expected[..stream.taken.len()], "step {step}");
            }
            assert_eq!((stream.taken.len(), held, replies), (expected.len(), 0, 200));
            assert!(output.poll_send(&mut stream, &mut cx).is_pending());
        }
    }

    #[test]
    fn a_stream_that_takes_nothing_is_broken() {
        let mut output = Output::default();
        output.head(simple_reply(1, None));
        let mut stream = Slow { step: 0, taken: Vec::new() };
        let sent = output.poll_send(&mut stream, &mut Context::from_waker(noop_waker_ref()));
        assert!(matches!(sent, Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::WriteZero));
    }
}
