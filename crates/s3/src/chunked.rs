//! The framing of aws-chunked bodies, cut finer before s3s sees it.
//!
//! A body of `content-encoding: aws-chunked` is `SIZE[;EXTENSION]CRLF DATA CRLF ... 0[;EXTENSION]CRLF TRAILERS`.
//! s3s 0.14.1 holds each chunk whole before it passes it on, and some clients send a part as one chunk.
//!
//! Invariants:
//! 1. [`Mode::Split`]: what comes out is the same data and the same trailers; no chunk is longer than the bytes that
//!    came in at once. Legal for unsigned chunks only, whose borders nobody signed.
//! 2. [`Mode::Bound`]: what comes out is what came in; a chunk longer than [`CHUNK_BYTES_MAX`] is an error.
//! 3. Memory: one line of at most [`LINE_BYTES_MAX`]; data is passed on without a copy.
//! 4. No input panics; what is malformed is an error and stays one.
//!
//! Left out: signatures and trailers, which s3s checks.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::Stream;

/// Why a chunked body is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChunkedError {
    /// No line ends where one must, or a size is not hexadecimal.
    #[error("FormatError: the body is not framed as aws-chunked declares")]
    Malformed,
    /// A signed chunk is longer than what the server holds to check it.
    #[error("TooLarge: a signed chunk of {bytes} bytes is longer than the limit of {limit_bytes}")]
    ChunkTooLarge {
        /// Announced.
        bytes: u64,
        /// Limit.
        limit_bytes: u64,
    },
    /// The trailers are longer than any client needs.
    #[error("TooLarge: the trailers are longer than {limit_bytes} bytes")]
    TrailersTooLarge {
        /// Limit.
        limit_bytes: usize,
    },
    /// The body ended inside a chunk.
    #[error("Incomplete: the body ended inside a chunk")]
    Incomplete,
}

/// What to do with chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Cut them as they come in.
    Split,
    /// Pass them on, bounded.
    Bound,
}

enum State {
    /// In the line with a chunk's size.
    Line(Vec<u8>),
    /// In a chunk's data, with so many bytes to come.
    Data(u64),
    /// In the line end behind data, with so many bytes seen.
    DataEnd(u8),
    /// Behind the last chunk, with so many bytes seen.
    Trailers(usize),
    /// For good.
    Failed(ChunkedError),
}

/// Reads chunked framing piece by piece; a fuzz target by itself.
pub struct Rechunker {
    mode: Mode,
    state: State,
}

impl Rechunker {
    /// At the start of a body.
    pub fn new(mode: Mode) -> Rechunker {
        Rechunker { mode, state: State::Line(Vec::new()) }
    }

    /// Takes the next bytes of the body and adds what is to be passed on to `out`.
    ///
    /// # Errors
    /// See [`ChunkedError`]; every call behind one fails the same way.
    pub fn push(&mut self, input: Bytes, out: &mut VecDeque<Bytes>) -> Result<(), ChunkedError> {
        let whole = input.clone();
        if let Err(error) = self.walk(input, out) {
            self.state = State::Failed(error.clone());
            return Err(error);
        }
        if self.mode == Mode::Bound && !whole.is_empty() {
            out.push_back(whole);
        }
        Ok(())
    }

    /// The body has ended.
    ///
    /// # Errors
    /// [`ChunkedError::Incomplete`] if the last chunk has not come, or the error of an earlier call.
    pub fn finish(&self) -> Result<(), ChunkedError> {
        match &self.state {
            State::Trailers(_) => Ok(()),
            State::Failed(error) => Err(error.clone()),
            State::Line(_) | State::Data(_) | State::DataEnd(_) => Err(ChunkedError::Incomplete),
        }
    }

    fn walk(&mut self, mut input: Bytes, out: &mut VecDeque<Bytes>) -> Result<(), ChunkedError> {
        while !input.is_empty() {
            match &mut self.state {
                State::Line(line) => {
                    let end = input.iter().position(|&byte| byte == b'\n');
                    let part = input.split_to(end.map_or(input.len(), |end| end + 1));
                    if line.len() + part.len() > LINE_BYTES_MAX {
                        return Err(ChunkedError::Malformed);
                    }
                    line.extend_from_slice(&part);
                    if end.is_some() {
                        let size = chunk_size(line)?;
                        self.state = self.begin(size, out)?;
                    }
                }
                State::Data(left) => {
                    let now = (*left).min(input.len() as u64);
                    let data = input.split_to(now as usize);
                    *left -= now;
                    if *left == 0 {
                        self.state = State::DataEnd(0);
                    }
                    self.pass(data, out);
                }
                State::DataEnd(seen) => {
                    let byte = input.split_to(1)[0];
                    match (*seen, byte) {
                        (0, b'\r') => *seen = 1,
                        (1, b'\n') => self.state = State::Line(Vec::new()),
                        _ => return Err(ChunkedError::Malformed),
                    }
                }
                State::Trailers(seen) => {
                    *seen += input.len();
                    if *seen > TRAILER_BYTES_MAX {
                        return Err(ChunkedError::TrailersTooLarge { limit_bytes: TRAILER_BYTES_MAX });
                    }
                    if self.mode == Mode::Split {
                        out.push_back(input);
                    }
                    return Ok(());
                }
                State::Failed(error) => return Err(error.clone()),
            }
        }
        Ok(())
    }

    fn begin(&self, size: u64, out: &mut VecDeque<Bytes>) -> Result<State, ChunkedError> {
        if self.mode == Mode::Bound && size > CHUNK_BYTES_MAX {
            return Err(ChunkedError::ChunkTooLarge { bytes: size, limit_bytes: CHUNK_BYTES_MAX });
        }
        if size > 0 {
            return Ok(State::Data(size));
        }
        if self.mode == Mode::Split {
            out.push_back(Bytes::from_static(b"0\r\n"));
        }
        Ok(State::Trailers(0))
    }

    fn pass(&self, data: Bytes, out: &mut VecDeque<Bytes>) {
        if self.mode == Mode::Split && !data.is_empty() {
            out.push_back(Bytes::from(format!("{:x}\r\n", data.len())));
            out.push_back(data);
            out.push_back(Bytes::from_static(b"\r\n"));
        }
    }
}

/// The size in a line `SIZE[;EXTENSION]CRLF`.
fn chunk_size(line: &[u8]) -> Result<u64, ChunkedError> {
    let line = line.strip_suffix(b"\r\n").ok_or(ChunkedError::Malformed)?;
    let digits = line.split(|&byte| byte == b';').next().unwrap_or_default();
    if digits.is_empty() || digits.len() > 16 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(ChunkedError::Malformed);
    }
    let digits = std::str::from_utf8(digits).map_err(|_| ChunkedError::Malformed)?;
    u64::from_str_radix(digits, 16).map_err(|_| ChunkedError::Malformed)
}

/// A body's stream behind a [`Rechunker`].
pub(crate) struct Rechunked<S> {
    body: S,
    rechunker: Rechunker,
    ready: VecDeque<Bytes>,
    ended: bool,
}

impl<S> Rechunked<S> {
    pub(crate) fn new(body: S, mode: Mode) -> Rechunked<S> {
        Rechunked { body, rechunker: Rechunker::new(mode), ready: VecDeque::new(), ended: false }
    }
}

impl<S, E> Stream for Rechunked<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: Into<s3s::StdError>,
{
    type Item = Result<Bytes, s3s::StdError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(bytes) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(bytes)));
            }
            if this.ended {
                return Poll::Ready(None);
            }
            match ready!(Pin::new(&mut this.body).poll_next(cx)) {
                Some(Ok(bytes)) => {
                    if let Err(error) = this.rechunker.push(bytes, &mut this.ready) {
                        this.ended = true;
                        this.ready.clear();
                        return Poll::Ready(Some(Err(Box::new(error))));
                    }
                }
                Some(Err(error)) => {
                    this.ended = true;
                    return Poll::Ready(Some(Err(error.into())));
                }
                None => {
                    this.ended = true;
                    if let Err(error) = this.rechunker.finish() {
                        return Poll::Ready(Some(Err(Box::new(error))));
                    }
                }
            }
        }
    }
}

/// Longest signed chunk; s3s holds it whole. The SDKs send 64 KiB to 1 MiB.
pub const CHUNK_BYTES_MAX: u64 = 16 << 20;
/// Longest line with a chunk's size: 16 digits, `;chunk-signature=` and 64 digits, and room.
pub const LINE_BYTES_MAX: usize = 256;
const TRAILER_BYTES_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests;
