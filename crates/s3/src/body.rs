//! Bodies on their way in and out.
//!
//! Invariants:
//! 1. An incoming body ends well only when exactly the declared number of bytes came and the stream below it, which
//!    checks signatures and reads trailers, has ended well too; the last bytes are held back until then.
//! 2. A client that sends nothing for [`IDLE`] while more of a body is wanted is given up, whoever reads the body.
//! 3. Nothing is copied and nothing is held beyond one piece.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use claystone_env::Clock;
use claystone_object::{Body, BodyError};
use futures::future::BoxFuture;
use futures::{Stream, StreamExt};
use http_body::{Body as _, Frame, SizeHint};
use s3s::dto::StreamingBlob;
use s3s::stream::{ByteStream, RemainingLength};
use s3s::{S3Error, StdError, s3_error};

use crate::error::from_body;
use crate::observer::Trace;

/// A request's body that breaks off, and has the request refused, when nothing of it comes for long.
pub(crate) fn awaited(body: s3s::Body, clock: Arc<dyn Clock>, trace: Arc<Trace>) -> s3s::Body {
    if body.is_end_stream() {
        return body;
    }
    s3s::Body::http_body_unsync(Awaited { body, sleep: clock.sleep(IDLE), progress: false, clock, trace })
}

struct Awaited {
    body: s3s::Body,
    sleep: BoxFuture<'static, ()>,
    /// Something came since `sleep` began.
    progress: bool,
    clock: Arc<dyn Clock>,
    trace: Arc<Trace>,
}

impl http_body::Body for Awaited {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let this = &mut *self;
        loop {
            if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
                this.progress = true;
                return Poll::Ready(frame);
            }
            ready!(this.sleep.as_mut().poll(cx));
            this.sleep = this.clock.sleep(IDLE);
            if !std::mem::take(&mut this.progress) {
                this.body = s3s::Body::empty();
                let seconds = IDLE.as_secs();
                this.trace.refuse(s3_error!(RequestTimeout, "No bytes of the body came for {seconds} seconds"));
                return Poll::Ready(Some(Err("the client stopped sending".into())));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        http_body::Body::size_hint(&self.body)
    }
}

/// A body from the client of `declared` bytes.
pub(crate) fn incoming(blob: Option<StreamingBlob>, declared: u64) -> Body {
    let inner: Source = match blob {
        Some(blob) => Box::pin(blob),
        None => Box::pin(futures::stream::empty()),
    };
    Incoming { inner: Some(inner), held: None, got: 0, declared }.boxed()
}

type Source = Pin<Box<dyn Stream<Item = Result<Bytes, StdError>> + Send + Sync>>;

struct Incoming {
    /// `None` once the body has ended, well or not.
    inner: Option<Source>,
    /// The bytes that complete the declared length.
    held: Option<Bytes>,
    got: u64,
    declared: u64,
}

impl Stream for Incoming {
    type Item = Result<Bytes, BodyError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            let Some(inner) = &mut this.inner else { return Poll::Ready(None) };
            match ready!(inner.as_mut().poll_next(cx)) {
                Some(Ok(bytes)) if bytes.is_empty() => {}
                Some(Ok(bytes)) => {
                    this.got += bytes.len() as u64;
                    if this.got > this.declared {
                        this.inner = None;
                        return Poll::Ready(Some(Err(this.wrong_length())));
                    }
                    if this.got == this.declared {
                        this.held = Some(bytes);
                    } else {
                        return Poll::Ready(Some(Ok(bytes)));
                    }
                }
                Some(Err(error)) => {
                    this.inner = None;
                    return Poll::Ready(Some(Err(BodyError::Refused(error))));
                }
                None => {
                    this.inner = None;
                    if this.got != this.declared {
                        return Poll::Ready(Some(Err(this.wrong_length())));
                    }
                    return Poll::Ready(this.held.take().map(Ok));
                }
            }
        }
    }
}

impl Incoming {
    fn wrong_length(&self) -> BodyError {
        BodyError::WrongLength { declared: self.declared, got: self.got }
    }
}

/// A body for the client. Its first piece is awaited, so that a store that cannot read answers with an error
/// instead of a broken transfer.
pub(crate) async fn outgoing(mut body: Body, bytes: u64) -> Result<StreamingBlob, S3Error> {
    let first = body.next().await.transpose().map_err(from_body)?;
    let left = usize::try_from(bytes).map_err(|_| s3_error!(InternalError, "the object does not fit this machine"))?;
    Ok(StreamingBlob::new(Outgoing { first, rest: Mutex::new(body), left }))
}

/// The mutex is never locked: it makes a stream that is only `Send` shareable, which s3s asks for.
struct Outgoing {
    first: Option<Bytes>,
    rest: Mutex<Body>,
    left: usize,
}

impl Stream for Outgoing {
    type Item = Result<Bytes, StdError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let item = match this.first.take() {
            Some(first) => Some(Ok(first)),
            None => {
                let rest = this.rest.get_mut().expect("nobody locks it");
                ready!(rest.poll_next_unpin(cx))
            }
        };
        Poll::Ready(item.map(|item| match item {
            Ok(bytes) => {
                this.left = this.left.saturating_sub(bytes.len());
                Ok(bytes)
            }
            Err(error) => {
                // The status line is out: all that is left is to break the transfer, and to say why here.
                tracing::error!(error = %chain(&error), "a body broke off while it was sent");
                Err(Box::new(error) as StdError)
            }
        }))
    }
}

impl ByteStream for Outgoing {
    fn remaining_length(&self) -> RemainingLength {
        RemainingLength::new_exact(self.left)
    }
}

/// An error with its sources, for the log.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

const IDLE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use claystone_env::{Moment, WallTime};
    use futures::executor::block_on;
    use http_body_util::BodyExt;

    /// Every sleep is over at once.
    struct Hasty;
    impl Clock for Hasty {
        fn now(&self) -> Moment {
            Moment::default()
        }
        fn wall(&self) -> WallTime {
            WallTime::default()
        }
        fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
            Box::pin(futures::future::ready(()))
        }
    }

    fn source(items: Vec<Result<&'static str, &'static str>>) -> Option<StreamingBlob> {
        let items = items.into_iter().map(|item| item.map(Bytes::from).map_err(std::io::Error::other));
        Some(StreamingBlob::wrap(futures::stream::iter(items)))
    }

    fn collect(blob: Option<StreamingBlob>, declared: u64) -> Vec<Result<Bytes, BodyError>> {
        block_on(incoming(blob, declared).collect())
    }

    #[test]
    fn a_body_of_the_declared_length_passes() {
        let bytes: Vec<Bytes> =
            collect(source(vec![Ok("abc"), Ok("de")]), 5).into_iter().map(|b| b.expect("good")).collect();
        assert_eq!(bytes.concat(), b"abcde");
        assert!(collect(None, 0).is_empty());
    }

    #[test]
    fn short_and_long_bodies_are_refused() {
        for (items, declared) in [(vec![Ok("abc")], 5), (vec![Ok("abcdef")], 5), (vec![Ok("abcde"), Ok("f")], 5)] {
            let last = collect(source(items), declared).pop().expect("an item");
            assert!(matches!(last, Err(BodyError::WrongLength { declared: 5, .. })));
        }
    }

    #[test]
    fn the_last_bytes_wait_for_the_end_of_the_stream_below() {
        let items = collect(source(vec![Ok("ab"), Ok("cde"), Err("Sha256Mismatch")]), 5);
        assert_eq!(items.len(), 2);
        assert!(items[0].is_ok() && matches!(items[1], Err(BodyError::Refused(_))));
    }

    #[test]
    fn a_silent_client_is_given_up() {
        let items = ["ab", "cd"].map(|text| Ok::<_, StdError>(Frame::data(Bytes::from(text))));
        let silent = futures::stream::iter(items).chain(futures::stream::pending());
        let body = s3s::Body::http_body_unsync(http_body_util::StreamBody::new(silent));
        let trace = Arc::new(Trace::new("ID".to_owned(), None));
        let mut body = awaited(body, Arc::new(Hasty), trace.clone());
        for _ in 0..2 {
            assert!(block_on(body.frame()).is_some_and(|frame| frame.is_ok()));
            assert!(trace.refusal().is_none());
        }
        assert!(block_on(body.frame()).is_some_and(|frame| frame.is_err()));
        assert_eq!(trace.refusal().expect("a refusal").code(), &s3s::S3ErrorCode::RequestTimeout);
        assert!(block_on(body.frame()).is_none());
    }
}
