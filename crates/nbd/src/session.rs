//! The transmission phase of one connection: requests in, any number at once, replies in the order they are ready.
//!
//! A request's way, all of it within one task, so that a device that answers at once costs no change of threads:
//!
//! ```text
//! input --head--> (room?) --payload--> running --ready--> output --sent--> (room is given back)
//! ```
//!
//! Invariants:
//! 1. A request is held, and counted, from its head until the last byte of its reply is sent. Without room for the next
//!    one nothing is read, but for who has hung up: all that he sent is, which the kernel has, until it is known how he went.
//! 2. A running request is dropped only with the session, or when the client is gone without a disconnect: he cannot know what of
//!    it was done, may connect anew and write the same bytes, and a long request that waits must not come over them then.
//! 3. After a disconnect, an end of the stream, [`Session::stop`] or a request with which the device failed nothing is
//!    read; the session is over when all replies are sent, or when it is broken and nothing runs.
//! 4. A device that failed is not asked anything more: whoever connects anew gets it opened anew. Requests that were under
//!    way are answered, with `ESHUTDOWN` if they failed; what had not begun is not, and its client may send it again.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use claystone_chunk::ByteRange;
use claystone_volume::{Blocks, BlocksError, Span, Stretch};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::io::AsyncReadExt;

use crate::NbdError;
use crate::handshake::{Agreed, Stream};
use crate::output::Output;
use crate::wire::{
    Agreement, Command, REQUEST_BYTES, Rejection, Request, SPANS_MAX, data_chunk, done_chunk, error_chunk, hole_chunk,
    simple_reply, status_chunk,
};

/// What a session may hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) requests_max: usize,
    pub(crate) bytes_max: u64,
}

/// One connection after its handshake.
pub(crate) struct Session {
    stream: Box<dyn Stream>,
    blocks: Arc<dyn Blocks>,
    agreement: Agreement,
    room: Room,
    input: BytesMut,
    receiving: Receiving,
    running: FuturesUnordered<BoxFuture<'static, Done>>,
    output: Output,
    held_requests: usize,
    held_bytes: u64,
    broken: Option<NbdError>,
    /// He went without a disconnect.
    is_client_gone: bool,
    /// He sends nothing any more; what he sent before may not have been read yet.
    has_hung_up: bool,
}

/// What comes next from the client.
enum Receiving {
    Head,
    Payload {
        request: Request,
        /// A payload of what is refused is not kept.
        command: Result<Command, Rejection>,
        content: BytesMut,
        left: usize,
    },
    Nothing,
}

/// A request that a device has answered.
struct Done {
    request: Request,
    command: Command,
    answer: Result<Answer, BlocksError>,
}

enum Answer {
    Read(Vec<Stretch>),
    Spans(Vec<Span>),
    Changed,
}

impl Session {
    pub(crate) fn new(agreed: Agreed, room: Room) -> Session {
        Session {
            stream: agreed.stream,
            blocks: agreed.blocks,
            agreement: agreed.agreement,
            room,
            input: BytesMut::with_capacity(INPUT_BYTES + REQUEST_BYTES),
            receiving: Receiving::Head,
            running: FuturesUnordered::new(),
            output: Output::default(),
            held_requests: 0,
            held_bytes: 0,
            broken: None,
            is_client_gone: false,
            has_hung_up: false,
        }
    }

    /// Takes no more requests; those that are running end.
    pub(crate) fn stop(&mut self) {
        self.receiving = Receiving::Nothing;
    }

    /// Nothing can be read or sent any more. Of whom it was read that he goes, all is done that he asked for before.
    fn break_off(&mut self, error: NbdError) {
        self.broken = Some(error);
        self.is_client_gone |= !matches!(self.receiving, Receiving::Nothing);
    }

    /// The client sends nothing any more. Where there is no room for what he sent before nobody would read that far.
    pub(crate) fn hang_up(&mut self) {
        self.has_hung_up = true;
    }

    /// Its stream, to be closed.
    pub(crate) fn into_stream(self) -> Box<dyn Stream> {
        self.stream
    }

    /// Goes on; ready when the session is over.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), NbdError>> {
        loop {
            let finished = self.poll_running(cx);
            let mut moved = finished;
            if self.broken.is_none() {
                moved |= self.poll_receive(cx);
                moved |= self.poll_send(cx);
            }
            if self.is_client_gone {
                self.running.clear();
            }
            let sent = self.broken.is_some() || self.output.is_empty();
            let received = self.broken.is_some() || matches!(self.receiving, Receiving::Nothing);
            if sent && received && self.running.is_empty() {
                return Poll::Ready(self.broken.take().map_or(Ok(()), Err));
            }
            if !moved {
                return Poll::Pending;
            }
        }
    }

    fn poll_running(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        while let Poll::Ready(Some(done)) = self.running.poll_next_unpin(cx) {
            self.reply(done);
            any = true;
        }
        any
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> bool {
        match self.output.poll_send(&mut *self.stream, cx) {
            Poll::Pending => return false,
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => self.break_off(error.into()),
        }
        while let Some(held_bytes) = self.output.sent_reply() {
            self.held_requests -= 1;
            self.held_bytes -= u64::from(held_bytes);
        }
        true
    }

    /// Takes the requests that are here, then reads once, then takes what that brought.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> bool {
        let before = self.input.len();
        if !self.take_input(cx) {
            return self.input.len() != before;
        }
        let read = match &mut self.receiving {
            // Straight to where it belongs, if it is long.
            Receiving::Payload { command: Ok(_), content, left, .. } if *left >= INPUT_BYTES / 4 => {
                let mut rest = content.limit(*left);
                let read = pin!(self.stream.read_buf(&mut rest)).poll(cx);
                if let Poll::Ready(Ok(count)) = &read {
                    *left -= count;
                }
                read
            }
            Receiving::Head | Receiving::Payload { .. } => {
                self.input.reserve(INPUT_BYTES);
                pin!(self.stream.read_buf(&mut self.input)).poll(cx)
            }
            Receiving::Nothing => return self.input.len() != before,
        };
        match read {
            Poll::Pending => return self.input.len() != before,
            Poll::Ready(Err(error)) => self.break_off(error.into()),
            Poll::Ready(Ok(0)) if matches!(self.receiving, Receiving::Head) && self.input.is_empty() => {
                self.is_client_gone = true;
                self.stop();
            }
            Poll::Ready(Ok(0)) => self.break_off(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Poll::Ready(Ok(_)) => {
                self.take_input(cx);
            }
        }
        true
    }

    /// Takes the requests that are whole in the input; true if more bytes would be taken.
    fn take_input(&mut self, cx: &mut Context<'_>) -> bool {
        loop {
            match &mut self.receiving {
                Receiving::Nothing => return false,
                Receiving::Head => {
                    let Some(bytes) = self.input.first_chunk::<REQUEST_BYTES>() else { return true };
                    let Some(request) = Request::parse(bytes) else {
                        self.break_off(NbdError::NotAMessage);
                        return false;
                    };
                    let held_bytes = self.held_bytes + u64::from(request.held_bytes());
                    if self.held_requests >= self.room.requests_max || held_bytes > self.room.bytes_max {
                        self.see_how_he_went(cx);
                        return false;
                    }
                    self.input.advance(REQUEST_BYTES);
                    let command = request.command(self.agreement);
                    if command == Ok(Command::Disconnect) {
                        self.stop();
                        return false;
                    }
                    self.held_requests += 1;
                    self.held_bytes = held_bytes;
                    let left = request.payload_bytes() as usize;
                    let content = BytesMut::with_capacity(if command.is_ok() { left } else { 0 });
                    self.receiving = Receiving::Payload { request, command, content, left };
                }
                Receiving::Payload { request, command, content, left } => {
                    let count = self.input.len().min(*left);
                    if command.is_ok() {
                        content.extend_from_slice(&self.input[..count]);
                    }
                    self.input.advance(count);
                    *left -= count;
                    if *left > 0 {
                        return true;
                    }
                    let (request, command, content) = (*request, *command, std::mem::take(content).freeze());
                    self.receiving = Receiving::Head;
                    match command {
                        Ok(command) => self.start(request, command, content, cx),
                        Err(rejection) => self.refuse(&request, rejection, "the request is malformed or too long"),
                    }
                }
            }
        }
    }

    /// Of a client that sends nothing any more, whether a disconnect is behind what there is no room for. That is all done then. Reads
    /// once, if what was read does not tell; who polls comes again where that brought something.
    fn see_how_he_went(&mut self, cx: &mut Context<'_>) {
        if !self.has_hung_up {
            return;
        }
        let disconnects = disconnects(&self.input).or_else(|| {
            self.input.reserve(INPUT_BYTES);
            let is_at_end = match pin!(self.stream.read_buf(&mut self.input)).poll(cx) {
                Poll::Pending => false,
                Poll::Ready(read) => !read.is_ok_and(|count| count > 0),
            };
            is_at_end.then_some(false)
        });
        match disconnects {
            Some(true) => self.has_hung_up = false,
            Some(false) => {
                self.is_client_gone = true;
                self.stop();
            }
            None => {}
        }
    }

    /// Starts a request. Most devices answer some at once, from memory.
    fn start(&mut self, request: Request, command: Command, content: Bytes, cx: &mut Context<'_>) {
        let blocks = self.blocks.clone();
        let mut running: BoxFuture<'static, Done> = Box::pin(async move {
            let answer = carry_out(&*blocks, &command, content).await;
            Done { request, command, answer }
        });
        match running.as_mut().poll(cx) {
            Poll::Ready(done) => self.reply(done),
            Poll::Pending => self.running.push(running),
        }
    }

    fn reply(&mut self, done: Done) {
        let Done { request, command, answer } = done;
        match (answer, command) {
            (Ok(Answer::Read(stretches)), Command::Read { range, whole }) => {
                self.reply_read(&request, range, whole, stretches);
            }
            (Ok(Answer::Spans(spans)), Command::Spans { .. }) => {
                assert!(!spans.is_empty(), "a device knows a span of any range");
                let (head, content) = status_chunk(request.cookie, &spans);
                self.output.head(head);
                self.output.content(content);
                self.output.end_reply(request.held_bytes());
            }
            (Ok(_), _) => {
                self.output.head(simple_reply(request.cookie, None));
                self.output.end_reply(request.held_bytes());
            }
            (Err(error), command) => {
                self.refuse(&request, Rejection::of(&command, &error), &error.to_string());
                if matches!(error, BlocksError::Failed { .. }) && !matches!(self.receiving, Receiving::Nothing) {
                    tracing::info!(%error, "a connection ends with its device");
                    self.stop();
                }
            }
        }
    }

    fn reply_read(&mut self, request: &Request, range: ByteRange, whole: bool, stretches: Vec<Stretch>) {
        let (cookie, output) = (request.cookie, &mut self.output);
        let found_bytes: u64 = stretches.iter().map(Stretch::bytes).sum();
        assert_eq!(found_bytes, range.bytes, "a device reads what it is asked for");
        let plain = |output: &mut Output, stretch| match stretch {
            Stretch::Data(content) => output.content(content),
            Stretch::Hole(bytes) => output.zeros(bytes),
        };
        if !self.agreement.structured {
            output.head(simple_reply(cookie, None));
            stretches.into_iter().for_each(|stretch| plain(output, stretch));
        } else if stretches.is_empty() {
            output.head(done_chunk(cookie));
        } else if whole && stretches.len() > 1 {
            output.head(data_chunk(cookie, true, range.offset, range.bytes as u32));
            stretches.into_iter().for_each(|stretch| plain(output, stretch));
        } else {
            let mut at = range.offset;
            let mut stretches = stretches.into_iter().peekable();
            while let Some(stretch) = stretches.next() {
                match stretch {
                    Stretch::Hole(bytes) => {
                        output.head(hole_chunk(cookie, stretches.peek().is_none(), at, bytes as u32));
                        at += bytes;
                    }
                    Stretch::Data(content) => {
                        let mut contents = vec![content];
                        while let Some(Stretch::Data(content)) =
                            stretches.next_if(|next| matches!(next, Stretch::Data(_)))
                        {
                            contents.push(content);
                        }
                        let bytes: usize = contents.iter().map(Bytes::len).sum();
                        output.head(data_chunk(cookie, stretches.peek().is_none(), at, bytes as u32));
                        contents.into_iter().for_each(|content| output.content(content));
                        at += bytes as u64;
                    }
                }
            }
        }
        output.end_reply(request.held_bytes());
    }

    fn refuse(&mut self, request: &Request, rejection: Rejection, message: &str) {
        tracing::debug!(?request, message, "a request was refused");
        if self.agreement.structured {
            let (head, content) = error_chunk(request.cookie, rejection, message);
            self.output.head(head);
            self.output.content(content);
        } else {
            self.output.head(simple_reply(request.cookie, Some(rejection)));
        }
        self.output.end_reply(request.held_bytes());
    }
}

/// Whether one of these requests is a disconnect, or they end with something that is none; `None`: that lies further on.
fn disconnects(mut requests: &[u8]) -> Option<bool> {
    loop {
        let Some(request) = Request::parse(requests.first_chunk()?) else { return Some(false) };
        if request.command(Agreement::default()) == Ok(Command::Disconnect) {
            return Some(true);
        }
        requests = requests.get(REQUEST_BYTES + request.payload_bytes() as usize..)?;
    }
}

async fn carry_out(blocks: &dyn Blocks, command: &Command, content: Bytes) -> Result<Answer, BlocksError> {
    match *command {
        Command::Read { range, .. } => return blocks.read(range).await.map(Answer::Read),
        Command::Spans { range, one } => {
            let spans_max = if one { 1 } else { SPANS_MAX };
            return blocks.spans(range, spans_max).await.map(Answer::Spans);
        }
        Command::Write { offset, durable } => blocks.write(offset, content, durable).await?,
        Command::Flush => blocks.flush().await?,
        Command::Discard { range, durable } => blocks.discard(range, durable).await?,
        Command::WriteZeroes { range, how } => blocks.write_zeroes(range, how).await?,
        Command::Disconnect => {}
    }
    Ok(Answer::Changed)
}

/// What is read from a connection at once: many small requests.
const INPUT_BYTES: usize = 64 << 10;
