//! Whole connections, with a client of a few lines on the other side.

use std::future::pending;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use claystone_chunk::ByteRange;
use claystone_volume::testing::MemoryBlocks;
use claystone_volume::{Access, Blocks, BlocksError, Durable, Span, Stretch, Zeroing};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, DuplexStream, duplex};
use tokio::sync::{Semaphore as Gate, oneshot};
use tokio::task::JoinHandle;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::server::ResolvesServerCertUsingSni;

use super::*;
use crate::{Export, Listed, NoExport, ServerConfig};

const EXPORT_NAME: u32 = 1;
const ABORT: u32 = 2;
const LIST: u32 = 3;
const STARTTLS: u32 = 5;
const INFO: u32 = 6;
const GO: u32 = 7;
const STRUCTURED_REPLY: u32 = 8;
const LIST_META_CONTEXT: u32 = 9;
const SET_META_CONTEXT: u32 = 10;

const ACK: u32 = 1;
const ERR: u32 = 1 << 31;

/// Why `absent` cannot be used.
const ABSENT: &str = "its disks are absent";

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISC: u16 = 2;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;
const BLOCK_STATUS: u16 = 7;

const FUA: u16 = 1;
const NO_HOLE: u16 = 2;
const DF: u16 = 4;
const REQ_ONE: u16 = 8;
const FAST_ZERO: u16 = 16;

/// Exports `a`, also by no name, and `b`; and has `absent`, which cannot be used.
struct Two(Arc<dyn Blocks>, Arc<dyn Blocks>);

#[async_trait]
impl Exports for Two {
    async fn list(&self) -> Vec<Listed> {
        ["a", "b"].map(|name| Listed { name: name.to_owned(), description: format!("the {name}") }).into()
    }

    async fn open(&self, name: &str) -> Result<Export, NoExport> {
        let (name, blocks) = match name {
            "" | "a" => ("a", &self.0),
            "b" => ("b", &self.1),
            "absent" => return Err(NoExport::Refused { reason: ABSENT.to_owned() }),
            _ => return Err(NoExport::Missing),
        };
        let listed = Listed { name: name.to_owned(), description: format!("the {name}") };
        Ok(Export { listed, blocks: blocks.clone() })
    }
}

/// A device whose calls wait until they are let through, and which counts them.
#[derive(Debug)]
struct Gated {
    blocks: MemoryBlocks,
    gate: Gate,
    running: AtomicUsize,
    most: AtomicUsize,
    /// What has been written.
    written: Mutex<Vec<u64>>,
}

impl Gated {
    fn new() -> Arc<Gated> {
        let blocks = MemoryBlocks::new(256 << 20, 4096);
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Gated { blocks, gate: Gate::new(0), running, most, written: Mutex::default() })
    }

    async fn pass(&self) {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        self.gate.acquire().await.expect("nobody closes it").forget();
        self.running.fetch_sub(1, Ordering::SeqCst);
    }

    async fn until_running(&self, count: usize) {
        while self.running.load(Ordering::SeqCst) < count {
            tokio::task::yield_now().await;
        }
    }
}

#[async_trait]
impl Blocks for Gated {
    fn bytes(&self) -> u64 {
        self.blocks.bytes()
    }

    fn page_bytes(&self) -> u32 {
        self.blocks.page_bytes()
    }

    fn access(&self) -> Access {
        self.blocks.access()
    }

    async fn read(&self, range: ByteRange) -> Result<Vec<Stretch>, BlocksError> {
        // Reads of the first page are let through.
        if range.offset >= 4096 {
            self.pass().await;
        }
        self.blocks.read(range).await
    }

    async fn write(&self, offset: u64, content: Bytes, durable: Durable) -> Result<(), BlocksError> {
        self.pass().await;
        self.blocks.write(offset, content, durable).await?;
        self.written.lock().expect("no test panics within").push(offset);
        Ok(())
    }

    async fn write_zeroes(&self, range: ByteRange, how: Zeroing) -> Result<(), BlocksError> {
        self.blocks.write_zeroes(range, how).await
    }

    async fn flush(&self) -> Result<(), BlocksError> {
        self.blocks.flush().await
    }

    async fn spans(&self, range: ByteRange, spans_max: usize) -> Result<Vec<Span>, BlocksError> {
        self.blocks.spans(range, spans_max).await
    }
}

/// A connection to a server of its own.
struct Client {
    stream: DuplexStream,
    stage: watch::Sender<Stage>,
    ended: JoinHandle<Result<(), NbdError>>,
    structured: bool,
    cookie: u64,
}

/// What a request came back with.
#[derive(Debug, PartialEq, Eq)]
enum Reply {
    /// What was read, and in how many chunks.
    Content(Vec<u8>, usize),
    Done,
    /// Length and flags of each span.
    Status(Vec<(u32, u32)>),
    Error(u32),
}

fn settings() -> Settings {
    Settings { requests_max: 8, bytes_max: 32 << 20, ..Settings::default() }
}

fn client_of(blocks: Arc<dyn Blocks>, tls: Tls) -> Client {
    client_with(blocks, tls, settings())
}

fn client_with(blocks: Arc<dyn Blocks>, tls: Tls, settings: Settings) -> Client {
    client_until(blocks, tls, settings, pending())
}

fn client_until(
    blocks: Arc<dyn Blocks>,
    tls: Tls,
    settings: Settings,
    hung_up: impl Future<Output = ()> + Send + 'static,
) -> Client {
    let exports = Arc::new(Two(blocks, Arc::new(MemoryBlocks::new(5000, 512))));
    let server = Nbd::new(claystone_host::env().expect("an environment"), exports, tls, settings);
    let (stream, other) = duplex(1 << 16);
    let (stage, watching) = watch::channel(Stage::Serving);
    #[expect(clippy::disallowed_methods, reason = "a test of tasks")]
    let ended = tokio::spawn(async move { server.serve_connection(Box::new(other), hung_up, watching).await });
    Client { stream, stage, ended, structured: false, cookie: 0 }
}

fn memory() -> MemoryBlocks {
    MemoryBlocks::new(1 << 20, 4096)
}

fn text(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat()
}

fn go_data(name: &str, infos: &[u16]) -> Vec<u8> {
    let mut data = text(name.as_bytes());
    data.extend((infos.len() as u16).to_be_bytes());
    infos.iter().for_each(|info| data.extend(info.to_be_bytes()));
    data
}

fn meta_data(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = text(name.as_bytes());
    data.extend((queries.len() as u32).to_be_bytes());
    queries.iter().for_each(|query| data.extend(text(query.as_bytes())));
    data
}

impl Client {
    async fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).await.expect("the server says more");
        bytes
    }

    async fn greet(&mut self, flags: u32) {
        assert_eq!(self.bytes(18).await, b"NBDMAGICIHAVEOPT\0\x03");
        self.stream.write_all(&flags.to_be_bytes()).await.expect("write");
    }

    async fn send_option(&mut self, option: u32, data: &[u8]) {
        let head = [b"IHAVEOPT", &option.to_be_bytes()[..], &(data.len() as u32).to_be_bytes()].concat();
        self.stream.write_all(&[&head, data].concat()).await.expect("write");
    }

    /// All replies to an option, with what they carry.
    async fn option(&mut self, option: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.send_option(option, data).await;
        let mut replies = Vec::new();
        loop {
            let head = self.bytes(20).await;
            assert_eq!(head[..8], 0x0003_e889_0455_65a9u64.to_be_bytes());
            assert_eq!(head[8..12], option.to_be_bytes());
            let kind = u32::from_be_bytes(head[12..16].try_into().expect("four bytes"));
            let length = u32::from_be_bytes(head[16..20].try_into().expect("four bytes"));
            replies.push((kind, self.bytes(length as usize).await));
            if kind == ACK || kind >= ERR {
                return replies;
            }
        }
    }

    /// The number of the last reply to an option.
    async fn verdict(&mut self, option: u32, data: &[u8]) -> u32 {
        self.option(option, data).await.last().expect("a reply").0
    }

    async fn go(&mut self, name: &str, structured: bool) {
        self.greet(3).await;
        if structured {
            self.structured = true;
            assert_eq!(self.verdict(STRUCTURED_REPLY, b"").await, ACK);
            assert_eq!(self.verdict(SET_META_CONTEXT, &meta_data(name, &["base:allocation"])).await, ACK);
        }
        assert_eq!(self.verdict(GO, &go_data(name, &[])).await, ACK);
    }

    async fn send(&mut self, flags: u16, command: u16, offset: u64, bytes: u32, payload: &[u8]) -> u64 {
        self.cookie += 1;
        let head = [
            &0x2560_9513u32.to_be_bytes()[..],
            &flags.to_be_bytes(),
            &command.to_be_bytes(),
            &self.cookie.to_be_bytes(),
            &offset.to_be_bytes(),
            &bytes.to_be_bytes(),
        ];
        self.stream.write_all(&head.concat()).await.expect("write");
        self.stream.write_all(payload).await.expect("write");
        self.cookie
    }

    /// The next reply and whose it is; `read` bytes follow a simple one that succeeds.
    async fn reply(&mut self, read: (u64, usize)) -> (u64, Reply) {
        let magic = self.bytes(4).await;
        if magic == 0x6744_6698u32.to_be_bytes() {
            let error = u32::from_be_bytes(self.bytes(4).await.try_into().expect("four bytes"));
            let cookie = u64::from_be_bytes(self.bytes(8).await.try_into().expect("eight bytes"));
            let reply = match error {
                0 if read.1 > 0 => Reply::Content(self.bytes(read.1).await, 1),
                0 => Reply::Done,
                error => Reply::Error(error),
            };
            return (cookie, reply);
        }
        assert!(self.structured);
        let (mut content, mut chunks, mut seen) = (vec![0xee; read.1], 0, 0);
        let mut magic = magic;
        loop {
            assert_eq!(magic, 0x668e_33efu32.to_be_bytes());
            let head = self.bytes(16).await;
            let (last, kind) = (head[1] == 1, u16::from_be_bytes([head[2], head[3]]));
            let cookie = u64::from_be_bytes(head[4..12].try_into().expect("eight bytes"));
            let length = u32::from_be_bytes(head[12..].try_into().expect("four bytes"));
            let payload = self.bytes(length as usize).await;
            let word = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().expect("four bytes"));
            let place = || (u64::from_be_bytes(payload[..8].try_into().expect("eight bytes")) - read.0) as usize;
            match kind {
                0 => assert!(last && payload.is_empty()),
                1 => content[place()..place() + payload.len() - 8].copy_from_slice(&payload[8..]),
                2 => content[place()..place() + word(8) as usize].fill(0),
                5 => {
                    let status = payload[4..].chunks(8).map(|span| {
                        let word = |at: usize| u32::from_be_bytes(span[at..at + 4].try_into().expect("four bytes"));
                        (word(0), word(4))
                    });
                    return (cookie, Reply::Status(status.collect()));
                }
                0x8001 => return (cookie, Reply::Error(word(0))),
                other => panic!("a chunk of type {other}"),
            }
            if kind == 1 || kind == 2 {
                chunks += 1;
                seen += if kind == 1 { payload.len() - 8 } else { word(8) as usize };
            }
            if last {
                assert_eq!(seen, read.1, "the chunks cover what was asked for");
                let reply = if read.1 > 0 { Reply::Content(content, chunks) } else { Reply::Done };
                return (cookie, reply);
            }
            magic = self.bytes(4).await;
        }
    }

    async fn ask(&mut self, flags: u16, command: u16, offset: u64, bytes: u32, payload: &[u8]) -> Reply {
        let cookie = self.send(flags, command, offset, bytes, payload).await;
        let read = if command == READ { bytes as usize } else { 0 };
        let (found, reply) = self.reply((offset, read)).await;
        assert_eq!(found, cookie);
        reply
    }

    async fn read(&mut self, offset: u64, bytes: u32) -> Vec<u8> {
        match self.ask(0, READ, offset, bytes, b"").await {
            Reply::Content(content, _) => content,
            other => panic!("no content: {other:?}"),
        }
    }

    async fn write(&mut self, offset: u64, payload: &[u8]) {
        assert_eq!(self.ask(0, WRITE, offset, payload.len() as u32, payload).await, Reply::Done);
    }

    /// The server says nothing more and hangs up; how it ended.
    async fn end(mut self) -> Result<(), NbdError> {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).await.expect("read");
        assert_eq!(rest, b"", "nothing is left to be said");
        self.ended.await.expect("no panic")
    }
}

#[tokio::test]
async fn what_is_written_is_read_with_simple_replies_and_structured() {
    for structured in [false, true] {
        let mut client = client_of(Arc::new(memory()), Tls::Off);
        client.go("a", structured).await;
        client.write(5000, b"some bytes").await;
        assert_eq!(client.read(4998, 14).await, b"\0\0some bytes\0\0");
        assert_eq!(client.ask(0, FLUSH, 0, 0, b"").await, Reply::Done);
        assert_eq!(client.ask(0, TRIM, 4096, 4096, b"").await, Reply::Done);
        assert_eq!(client.read(4998, 14).await, [0; 14]);
        let long = vec![7; 300_000];
        client.write(1, &long).await;
        assert!(client.read(1, 300_000).await == long);
        assert_eq!(client.ask(0, READ, 0, 0, b"").await, Reply::Done);
        assert_eq!(client.ask(0, WRITE, 0, 0, b"").await, Reply::Done);
        client.send(0, DISC, 0, 0, b"").await;
        client.end().await.expect("in order");
    }
}

#[tokio::test]
async fn holes_are_told_as_holes() {
    let mut client = client_of(Arc::new(memory()), Tls::Off);
    client.go("a", true).await;
    client.write(8192, &[1; 8192]).await;
    let mut expected = vec![0; 32768];
    expected[8192..16384].fill(1);
    assert_eq!(client.ask(0, READ, 0, 32768, b"").await, Reply::Content(expected.clone(), 3));
    assert_eq!(client.ask(DF, READ, 0, 32768, b"").await, Reply::Content(expected, 1));
    assert_eq!(client.ask(DF, READ, 16384, 4096, b"").await, Reply::Content(vec![0; 4096], 1));
    let status = vec![(7192, 3), (8192, 0), ((1 << 20) - 16384, 3)];
    assert_eq!(client.ask(0, BLOCK_STATUS, 1000, (1 << 20) - 1000, b"").await, Reply::Status(status));
    assert_eq!(client.ask(REQ_ONE, BLOCK_STATUS, 9000, 20_000, b"").await, Reply::Status(vec![(7384, 0)]));
}

#[tokio::test]
async fn refusals_are_errors_and_the_connection_goes_on() {
    for structured in [false, true] {
        let blocks = memory();
        let mut client = client_of(Arc::new(blocks.clone()), Tls::Off);
        client.go("a", structured).await;
        let end = 1 << 20;
        assert_eq!(client.ask(0, READ, end - 1, 2, b"").await, Reply::Error(22));
        assert_eq!(client.ask(0, WRITE, end - 1, 2, b"xy").await, Reply::Error(28));
        assert_eq!(client.ask(0, WRITE_ZEROES, end, 1, b"").await, Reply::Error(28));
        assert_eq!(client.ask(0, TRIM, u64::MAX, u32::MAX, b"").await, Reply::Error(22));
        assert_eq!(client.ask(NO_HOLE | FAST_ZERO, WRITE_ZEROES, 0, 1, b"").await, Reply::Error(95));
        assert_eq!(client.ask(FAST_ZERO, WRITE_ZEROES, 0, 4096, b"").await, Reply::Done);
        assert_eq!(client.ask(REQ_ONE, WRITE, 0, 3, b"abc").await, Reply::Error(22));
        assert_eq!(client.ask(0, 5, 0, 4096, b"").await, Reply::Error(22));
        assert_eq!(client.ask(0, BLOCK_STATUS, 0, 0, b"").await, Reply::Error(22));
        let longest = 32 << 20;
        let too_long = client.ask(0, READ, 0, longest + 1, b"").await;
        assert_eq!(too_long, Reply::Error(if structured { 75 } else { 22 }));
        assert_eq!(client.ask(0, WRITE, 0, longest + 1, &vec![1; longest as usize + 1]).await, Reply::Error(22));
        blocks.lose_page(4096);
        assert_eq!(client.ask(0, READ, 0, 8192, b"").await, Reply::Error(5));
        blocks.set_access(Access::ReadOnly);
        assert_eq!(client.ask(0, WRITE, 0, 1, b"x").await, Reply::Error(1));
        assert_eq!(client.read(0, 3).await, [0; 3]);
    }
}

#[tokio::test]
async fn a_device_that_failed_ends_its_connections_and_who_comes_anew_goes_on() {
    for structured in [false, true] {
        let gated = Gated::new();
        let mut client = client_of(gated.clone(), Tls::Off);
        client.go("a", structured).await;
        let mut running = std::collections::BTreeSet::new();
        for page in 2..5 {
            running.insert(client.send(0, WRITE, page * 4096, 4, b"late").await);
        }
        gated.until_running(3).await;
        gated.blocks.set_failure(Some("gone"));
        let failed = client.send(0, FLUSH, 0, 0, b"").await;
        assert_eq!(client.reply((0, 0)).await, (failed, Reply::Error(108)));
        // What comes now does not begin, nor does what is not whole.
        client.send(0, READ, 0, 4, b"").await;
        client.send(0, WRITE, 4096, 100, b"not all of its bytes").await;
        // What is under way ends, and is answered as it ended.
        gated.gate.add_permits(1);
        let (cookie, reply) = client.reply((0, 0)).await;
        assert!(running.remove(&cookie) && reply == Reply::Error(108), "{reply:?}");
        gated.blocks.set_failure(None);
        gated.gate.add_permits(3);
        for _ in 0..2 {
            let (cookie, reply) = client.reply((0, 0)).await;
            assert!(running.remove(&cookie) && reply == Reply::Done, "{reply:?}");
        }
        assert_eq!(gated.gate.available_permits(), 1);
        client.end().await.expect("in order");

        let mut client = client_of(gated, Tls::Off);
        client.go("a", structured).await;
        assert_eq!(client.read(0, 3).await, [0; 3]);
    }
}

#[tokio::test]
async fn zeros_leave_holes_unless_they_may_not_and_are_slow_only_for_who_wants_them_fast() {
    let blocks = memory();
    let mut client = client_of(Arc::new(blocks.clone()), Tls::Off);
    client.go("a", true).await;
    let (data, hole) = (0, 3);
    client.write(0, &[7; 12288]).await;
    assert_eq!(client.ask(NO_HOLE | FAST_ZERO, WRITE_ZEROES, 0, 4096, b"").await, Reply::Error(95));
    assert_eq!(client.read(0, 4096).await, [7; 4096], "what is refused changes nothing");
    assert_eq!(client.ask(NO_HOLE, WRITE_ZEROES, 0, 4096, b"").await, Reply::Done);
    assert_eq!(client.ask(0, WRITE_ZEROES, 4096, 4096, b"").await, Reply::Done);
    let status = vec![(4096, data), (4096, hole), (4096, data)];
    assert_eq!(client.ask(0, BLOCK_STATUS, 0, 12288, b"").await, Reply::Status(status));
    assert_eq!(client.read(0, 8192).await, [0; 8192]);
    // What was nowhere takes space.
    assert_eq!(client.ask(NO_HOLE, WRITE_ZEROES, 65536, 8192, b"").await, Reply::Done);
    assert_eq!(client.ask(0, BLOCK_STATUS, 65536, 8192, b"").await, Reply::Status(vec![(8192, data)]));
}

#[tokio::test]
async fn flushed_and_forced_writes_survive_a_power_cut() {
    let blocks = memory();
    let mut client = client_of(Arc::new(blocks.clone()), Tls::Off);
    client.go("a", false).await;
    assert_eq!(client.ask(FUA, WRITE, 0, 1, b"a").await, Reply::Done);
    client.write(4096, b"b").await;
    blocks.power_cut(|_| false);
    assert_eq!((client.read(0, 1).await, client.read(4096, 1).await), (b"a".to_vec(), b"\0".to_vec()));
    client.write(4096, b"c").await;
    assert_eq!(client.ask(FUA, FLUSH, 0, 0, b"").await, Reply::Done);
    assert_eq!(client.ask(FUA, WRITE_ZEROES, 0, 4096, b"").await, Reply::Done);
    blocks.power_cut(|_| false);
    assert_eq!((client.read(0, 1).await, client.read(4096, 1).await), (b"\0".to_vec(), b"c".to_vec()));
    assert_eq!(client.ask(FUA, TRIM, 4096, 4096, b"").await, Reply::Done);
    blocks.power_cut(|_| false);
    assert_eq!(client.read(4096, 1).await, b"\0");
}

#[tokio::test]
async fn options_are_answered() {
    let mut client = client_of(Arc::new(memory()), Tls::Off);
    client.greet(3).await;
    let named = |name: &str| [text(name.as_bytes()), format!("the {name}").into_bytes()].concat();
    let listed = vec![(2, named("a")), (2, named("b")), (ACK, vec![])];
    assert_eq!(client.option(LIST, b"").await, listed);
    assert_eq!(client.verdict(LIST, b"x").await, ERR + 3);
    assert_eq!(client.verdict(4, b"anything").await, ERR + 1);
    assert_eq!(client.verdict(u32::MAX, &[0; 65536]).await, ERR + 1);
    assert_eq!(client.verdict(STARTTLS, b"").await, ERR + 2);
    assert_eq!(client.verdict(INFO, &go_data("c", &[])).await, ERR + 6);
    assert_eq!(client.verdict(GO, b"\0").await, ERR + 3);
    let info = client.option(INFO, &go_data("", &[1, 2, 3, 77])).await;
    let kinds: Vec<_> = info.iter().map(|(kind, data)| (*kind, data.get(1).copied())).collect();
    assert_eq!(kinds, [(3, Some(0)), (3, Some(1)), (3, Some(2)), (3, Some(3)), (ACK, None)]);
    assert_eq!(info[0].1[2..10], (1u64 << 20).to_be_bytes());
    assert_eq!((&info[1].1[2..], &info[2].1[2..]), (&b"a"[..], &b"the a"[..]));
    assert_eq!(info[3].1[2..], *b"\0\0\0\x01\0\0\x10\0\x02\0\0\0");
    // Contexts want structured replies.
    assert_eq!(client.verdict(LIST_META_CONTEXT, &meta_data("a", &[])).await, ERR + 3);
    assert_eq!(client.verdict(SET_META_CONTEXT, &meta_data("a", &["base:allocation"])).await, ERR + 3);
    assert_eq!(client.verdict(STRUCTURED_REPLY, b"x").await, ERR + 3);
    assert_eq!(client.verdict(STRUCTURED_REPLY, b"").await, ACK);
    let found = |id: u32| vec![(4, [&id.to_be_bytes()[..], b"base:allocation"].concat()), (ACK, vec![])];
    for queries in [&[][..], &["base:"], &["x:y", "base:allocation"]] {
        assert_eq!(client.option(LIST_META_CONTEXT, &meta_data("a", queries)).await, found(0));
    }
    assert_eq!(client.option(LIST_META_CONTEXT, &meta_data("a", &["x:y", "base:z"])).await, [(ACK, vec![])]);
    assert_eq!(client.option(SET_META_CONTEXT, &meta_data("a", &["base:"])).await, [(ACK, vec![])]);
    assert_eq!(client.option(SET_META_CONTEXT, &meta_data("a", &["base:allocation"])).await, found(1));
    assert_eq!(client.verdict(SET_META_CONTEXT, &meta_data("c", &["base:allocation"])).await, ERR + 6);
    assert_eq!(client.option(ABORT, b"bye").await, [(ACK, vec![])]);
    client.end().await.expect("in order");
}

#[tokio::test]
async fn a_context_is_that_of_its_export() {
    let mut client = client_of(Arc::new(memory()), Tls::Off);
    client.greet(3).await;
    client.structured = true;
    assert_eq!(client.verdict(STRUCTURED_REPLY, b"").await, ACK);
    assert_eq!(client.verdict(SET_META_CONTEXT, &meta_data("a", &["base:allocation"])).await, ACK);
    assert_eq!(client.verdict(GO, &go_data("b", &[])).await, ACK);
    assert_eq!(client.ask(0, BLOCK_STATUS, 0, 1, b"").await, Reply::Error(22));
    assert_eq!(client.read(4999, 1).await, [0]);
}

/// As who looks for a name that is wrong should not be told that it is right, nor the other way round.
#[tokio::test]
async fn who_asks_for_an_export_that_cannot_be_used_is_told_why() {
    let mut client = client_of(Arc::new(memory()), Tls::Off);
    client.greet(3).await;
    assert_eq!(client.verdict(STRUCTURED_REPLY, b"").await, ACK);
    for (option, data) in [
        (INFO, go_data("absent", &[])),
        (GO, go_data("absent", &[3])),
        (LIST_META_CONTEXT, meta_data("absent", &[])),
        (SET_META_CONTEXT, meta_data("absent", &["base:allocation"])),
    ] {
        let replies = client.option(option, &data).await;
        assert_eq!(replies, [(ERR + 2, ABSENT.as_bytes().to_vec())], "option {option}");
    }
    assert_eq!(client.verdict(GO, &go_data("missing", &[])).await, ERR + 6);
    // Nothing else is refused for it.
    assert_eq!(client.verdict(GO, &go_data("b", &[])).await, ACK);

    let mut client = client_of(Arc::new(memory()), Tls::Off);
    client.greet(3).await;
    client.send_option(EXPORT_NAME, b"absent").await;
    assert!(matches!(client.end().await, Err(NbdError::Refused { reason }) if reason == ABSENT));
}

#[tokio::test]
async fn old_clients_choose_by_name_alone() {
    for (flags, padding) in [(0, 124), (1, 124), (3, 0)] {
        let mut client = client_of(Arc::new(memory()), Tls::Off);
        client.greet(flags).await;
        client.send_option(EXPORT_NAME, b"b").await;
        let reply = client.bytes(10 + padding).await;
        assert_eq!(reply[..8], 5000u64.to_be_bytes());
        client.write(4990, b"0123456789").await;
        assert_eq!(client.read(4995, 5).await, b"56789");
    }
    let mut client = client_of(Arc::new(memory()), Tls::Off);
    client.greet(3).await;
    client.send_option(EXPORT_NAME, b"c").await;
    assert!(matches!(client.end().await, Err(NbdError::NoSuchExport)));
    let mut client = client_of(Arc::new(memory()), Tls::Off);
    client.greet(0).await;
    client.send_option(LIST, b"").await;
    assert!(matches!(client.end().await, Err(NbdError::NotFixedNewstyle)));
}

#[tokio::test]
async fn without_tls_nothing_is_told_where_it_is_required() {
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
    let config = Arc::new(builder.with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new())));
    let tls = Tls::Required(config.clone());
    let mut client = client_of(Arc::new(memory()), tls.clone());
    client.greet(3).await;
    for (option, data) in [
        (LIST, vec![]),
        (INFO, go_data("a", &[])),
        (GO, go_data("a", &[])),
        (GO, go_data("c", &[])),
        (STRUCTURED_REPLY, vec![]),
        (SET_META_CONTEXT, meta_data("a", &[])),
        (99, vec![]),
    ] {
        assert_eq!(client.verdict(option, &data).await, ERR + 5, "option {option}");
    }
    assert_eq!(client.verdict(STARTTLS, b"x").await, ERR + 3);
    assert_eq!(client.verdict(STARTTLS, b"").await, ACK);
    // What comes now must be TLS; an option in the clear is not.
    client.send_option(LIST, b"").await;
    let mut rest = Vec::new();
    client.stream.read_to_end(&mut rest).await.expect("read");
    assert!(!rest.starts_with(&0x0003_e889_0455_65a9u64.to_be_bytes()), "an answer in the clear");
    assert!(matches!(client.ended.await.expect("no panic"), Err(NbdError::Io(_))));

    let mut client = client_of(Arc::new(memory()), tls);
    client.greet(3).await;
    client.send_option(EXPORT_NAME, b"a").await;
    assert!(matches!(client.end().await, Err(NbdError::NoSuchExport)));
    let mut client = client_of(Arc::new(memory()), Tls::Allowed(config));
    client.go("a", true).await;
    assert_eq!(client.read(0, 1).await, [0]);
}

#[tokio::test]
async fn what_is_no_message_ends_the_connection() {
    let mut client = client_of(Arc::new(memory()), Tls::Off);
    client.greet(8).await;
    assert!(matches!(client.end().await, Err(NbdError::UnknownClientFlags { flags: [0, 0, 0, 8] })));

    let mut client = client_of(Arc::new(memory()), Tls::Off);
    client.greet(3).await;
    client.stream.write_all(b"IHAVEOPX\0\0\0\x03\0\0\0\0").await.expect("write");
    assert!(matches!(client.end().await, Err(NbdError::NotAMessage)));

    let mut client = client_of(Arc::new(memory()), Tls::Off);
    client.greet(3).await;
    client.stream.write_all(b"IHAVEOPT\0\0\0\x03\xff\xff\xff\xff").await.expect("write");
    assert!(matches!(client.end().await, Err(NbdError::OptionTooLong { data_bytes: u32::MAX })));

    let mut client = client_of(Arc::new(memory()), Tls::Off);
    client.greet(3).await;
    for _ in 0..1024 {
        client.verdict(LIST, b"").await;
    }
    assert!(matches!(client.end().await, Err(NbdError::TooManyOptions { options_max: 1024 })));

    let mut client = client_of(Arc::new(memory()), Tls::Off);
    client.go("a", false).await;
    client.stream.write_all(&[0x25; 28]).await.expect("write");
    assert!(matches!(client.end().await, Err(NbdError::NotAMessage)));
}

#[tokio::test]
async fn a_handshake_without_an_end_is_given_up() {
    let settings = Settings { handshake_time_max: Duration::from_millis(1), ..settings() };
    let mut client = client_with(Arc::new(memory()), Tls::Off, settings);
    let mut greeting = Vec::new();
    client.stream.read_to_end(&mut greeting).await.expect("read");
    assert!(matches!(client.ended.await.expect("no panic"), Err(NbdError::HandshakeTooSlow)));
}

#[tokio::test]
async fn a_connection_holds_so_many_requests_and_reads_no_further() {
    let gated = Gated::new();
    let mut client = client_of(gated.clone(), Tls::Off);
    client.go("a", false).await;
    for _ in 0..100 {
        client.send(0, READ, 4096, 512, b"").await;
    }
    gated.until_running(8).await;
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    gated.gate.add_permits(100);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..100 {
        let (cookie, reply) = client.reply((4096, 512)).await;
        assert_eq!(reply, Reply::Content(vec![0; 512], 1));
        assert!(seen.insert(cookie), "answered twice");
    }
    assert_eq!(gated.most.load(Ordering::SeqCst), 8);
}

#[tokio::test]
async fn a_connection_holds_so_many_bytes_until_they_are_sent() {
    let gated = Gated::new();
    let mut client = client_of(gated.clone(), Tls::Off);
    client.go("a", false).await;
    // Three fit into 32 MiB.
    for _ in 0..6 {
        client.send(0, READ, 4096, 10 << 20, b"").await;
    }
    gated.until_running(3).await;
    gated.gate.add_permits(6);
    // Their replies wait for the client, which does not read: they are still held.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(gated.gate.available_permits(), 3, "the fourth has begun");
    for _ in 0..6 {
        assert!(matches!(client.reply((4096, 10 << 20)).await.1, Reply::Content(..)));
    }
    assert_eq!(gated.most.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_late_request_does_not_hold_up_others() {
    let gated = Gated::new();
    let mut client = client_of(gated.clone(), Tls::Off);
    client.go("a", true).await;
    let late = client.send(0, READ, 4096, 4, b"").await;
    let early = client.send(0, READ, 0, 4, b"").await;
    assert_eq!(client.reply((0, 4)).await, (early, Reply::Content(vec![0; 4], 1)));
    gated.gate.add_permits(1);
    assert_eq!(client.reply((4096, 4)).await, (late, Reply::Content(vec![0; 4], 1)));
}

#[tokio::test]
async fn what_runs_ends_before_a_disconnect_and_a_shutdown() {
    for disconnect in [true, false] {
        let gated = Gated::new();
        let mut client = client_of(gated.clone(), Tls::Off);
        client.go("a", false).await;
        let written = client.send(0, WRITE, 8192, 4, b"late").await;
        gated.until_running(1).await;
        if disconnect {
            client.send(0, DISC, 0, 0, b"").await;
        } else {
            client.stage.send_replace(Stage::Ending);
        }
        // Nothing that comes now begins.
        let _ = client.send(0, READ, 0, 4, b"").await;
        gated.gate.add_permits(1);
        assert_eq!(client.reply((0, 0)).await, (written, Reply::Done));
        client.end().await.expect("in order");
        assert_eq!(*gated.written.lock().expect("no panic"), [8192]);
    }
}

#[tokio::test]
async fn what_runs_ends_with_a_client_that_is_gone_without_a_disconnect() {
    for (disconnect, torn) in [(false, false), (false, true), (true, false)] {
        let gated = Gated::new();
        let mut client = client_of(gated.clone(), Tls::Off);
        client.go("a", false).await;
        client.send(0, WRITE, 8192, 4, b"late").await;
        if torn {
            client.send(0, WRITE, 16384, 100, b"not all of its bytes").await;
        }
        if disconnect {
            client.send(0, DISC, 0, 0, b"").await;
        }
        gated.until_running(1).await;
        let Client { stream, mut ended, stage, .. } = client;
        drop(stream);
        if disconnect {
            // What was asked for before is done, though nobody hears of it.
            gated.gate.add_permits(10);
        }
        let ended = (&mut ended).await.expect("no panic");
        assert_eq!(matches!(ended, Err(NbdError::Io(_))), torn || disconnect, "{ended:?}");
        drop(stage);
        gated.gate.add_permits(10);
        let written = gated.written.lock().expect("no panic").clone();
        assert_eq!(written, if disconnect { vec![8192] } else { Vec::new() });
    }
}

/// With no room for more nothing is read, not even that he is gone.
#[tokio::test]
async fn a_client_that_is_gone_is_missed_though_there_is_no_room_for_what_he_sent() {
    let gated = Gated::new();
    let (hang_up, hung_up) = oneshot::channel();
    let hung_up = async { hung_up.await.expect("it is told") };
    let mut client = client_until(gated.clone(), Tls::Off, Settings { requests_max: 2, ..settings() }, hung_up);
    client.go("a", false).await;
    for number in 1..=4 {
        client.send(0, WRITE, number * 8192, 4, b"late").await;
    }
    gated.until_running(2).await;
    let Client { stream, ended, stage, .. } = client;
    drop(stream);
    hang_up.send(()).expect("the server waits for it");
    ended.await.expect("no panic").expect("an end is in order");
    gated.gate.add_permits(10);
    drop(stage);
    assert!(gated.written.lock().expect("no panic").is_empty());
}

/// What he asked for before a disconnect is done.
#[tokio::test]
async fn a_client_that_sends_a_disconnect_and_nothing_more_is_served_though_there_is_no_room() {
    let gated = Gated::new();
    let (hang_up, hung_up) = oneshot::channel();
    let hung_up = async { hung_up.await.expect("it is told") };
    let mut client = client_until(gated.clone(), Tls::Off, Settings { requests_max: 2, ..settings() }, hung_up);
    client.go("a", false).await;
    let mut cookies = Vec::new();
    for number in 1..=4 {
        cookies.push(client.send(0, WRITE, number * 8192, 4, b"late").await);
    }
    gated.until_running(2).await;
    // Nobody has read this when he hangs up.
    cookies.push(client.send(0, WRITE, 0, 40_000, &[1; 40_000]).await);
    client.send(0, DISC, 0, 0, b"").await;
    client.stream.shutdown().await.expect("the other direction stays");
    hang_up.send(()).expect("the server waits for it");
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    gated.gate.add_permits(10);
    for cookie in cookies {
        assert_eq!(client.reply((0, 0)).await, (cookie, Reply::Done));
    }
    client.end().await.expect("in order");
    let mut written = gated.written.lock().expect("no panic").clone();
    written.sort_unstable();
    assert_eq!(written, [0, 8192, 16384, 24576, 32768]);
}

#[tokio::test]
async fn a_shutdown_ends_handshakes_at_once_and_all_in_the_end() {
    let mut greeted = client_of(Arc::new(memory()), Tls::Off);
    greeted.greet(3).await;
    greeted.stage.send_replace(Stage::Ending);
    greeted.end().await.expect("in order");

    let gated = Gated::new();
    let mut client = client_of(gated.clone(), Tls::Off);
    client.go("a", false).await;
    client.send(0, WRITE, 8192, 4, b"late").await;
    gated.until_running(1).await;
    client.stage.send_replace(Stage::Ending);
    client.stage.send_replace(Stage::Closed);
    client.end().await.expect("by order");
    assert!(gated.written.lock().expect("no panic").is_empty());
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the test is the program that binds and connects")]
async fn a_server_serves_until_it_is_told_to_end() {
    let exports = Arc::new(Two(Arc::new(memory()), Arc::new(memory())));
    let server = Nbd::new(claystone_host::env().expect("an environment"), exports, Tls::Off, settings());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(async move { server.serve(listener, async { drop(ended.await) }).await });
    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut stream = tokio::net::TcpStream::connect(address).await.expect("connect");
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).await.expect("a greeting");
        streams.push(stream);
    }
    drop(end);
    serving.await.expect("no panic");
    for mut stream in streams {
        assert_eq!(stream.read(&mut [0; 8]).await.expect("an end"), 0);
    }
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the test is the program that binds and connects")]
async fn the_kernel_asks_whether_a_silent_client_is_there() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let _client = tokio::net::TcpStream::connect(address).await.expect("connect");
    let stream = accept_tcp(&listener).await.expect("a connection");
    assert!(stream.nodelay().expect("read"));
    assert!(sockopt::socket_keepalive(&stream).expect("read"));
    let times = (sockopt::tcp_keepidle(&stream).expect("read"), sockopt::tcp_keepintvl(&stream).expect("read"));
    assert_eq!(times, (Duration::from_secs(60), Duration::from_secs(10)));
    assert_eq!(sockopt::tcp_keepcnt(&stream).expect("read"), 6);
    assert_eq!(sockopt::tcp_user_timeout(&stream).expect("read"), 120_000);
}

#[derive(Debug, Clone)]
struct Step {
    flags: u16,
    command: u16,
    offset: u64,
    bytes: u32,
    fill: u8,
}

fn step() -> impl Strategy<Value = Step> {
    let command = prop::sample::select(vec![READ, READ, WRITE, WRITE, WRITE, TRIM, WRITE_ZEROES, FLUSH, BLOCK_STATUS]);
    (command, any::<bool>(), any::<bool>(), 0u64..60_000, 0u32..20_000, any::<u8>()).prop_map(
        |(command, forced, other, offset, bytes, fill)| {
            let mut flags = if forced { FUA } else { 0 };
            flags |= match command {
                WRITE_ZEROES if other => NO_HOLE,
                BLOCK_STATUS if other => REQ_ONE,
                _ => 0,
            };
            match command {
                FLUSH => Step { flags, command, offset: 0, bytes: 0, fill },
                _ => Step { flags, command, offset, bytes: bytes.max(1), fill },
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is asked, in batches whose requests are all under way, comes back as plain bytes would have it. What
    /// overlaps is not under way at once: NBD has no order then.
    #[test]
    fn any_requests_do_as_plain_bytes_do(
        batches in prop::collection::vec(prop::collection::vec(step(), 1..8), 1..12),
        structured: bool,
    ) {
        const BYTES: usize = 65_536;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let mut client = client_of(Arc::new(MemoryBlocks::new(BYTES as u64, 512)), Tls::Off);
            client.go("a", structured).await;
            let mut model = vec![0; BYTES];
            for batch in batches {
                let mut waiting = Vec::new();
                let mut touched: Vec<std::ops::Range<usize>> = Vec::new();
                for step in batch {
                    let place = step.offset as usize..step.offset as usize + step.bytes as usize;
                    if touched.iter().any(|other| place.start < other.end && other.start < place.end) {
                        continue;
                    }
                    touched.push(place.clone());
                    let outside = place.end > BYTES;
                    let payload = vec![step.fill; if step.command == WRITE { step.bytes as usize } else { 0 }];
                    let cookie = client.send(step.flags, step.command, step.offset, step.bytes, &payload).await;
                    let refused = match step.command {
                        WRITE | WRITE_ZEROES if outside => Some(28),
                        BLOCK_STATUS if !structured => Some(22),
                        _ if outside => Some(22),
                        _ => None,
                    };
                    match step.command {
                        WRITE if !outside => model[place.clone()].fill(step.fill),
                        TRIM | WRITE_ZEROES if !outside => model[place.clone()].fill(0),
                        _ => {}
                    }
                    waiting.push((cookie, step, place, refused));
                }
                // The device answers at once, so replies come in order; that others may not is tested above.
                for (cookie, step, place, refused) in waiting {
                    let read = if step.command == READ { step.bytes as usize } else { 0 };
                    let (found, reply) = client.reply((step.offset, read)).await;
                    prop_assert_eq!(found, cookie);
                    match (refused, reply) {
                        (Some(error), reply) => prop_assert_eq!(reply, Reply::Error(error)),
                        (None, Reply::Content(content, _)) => prop_assert!(content == model[place]),
                        (None, Reply::Status(spans)) => {
                            let mut at = place.start;
                            for (length, flags) in spans {
                                let content = &model[at..at + length as usize];
                                prop_assert!(flags == 0 || (flags == 3 && content.iter().all(|byte| *byte == 0)));
                                at += length as usize;
                            }
                            prop_assert!(at == place.end || step.flags & REQ_ONE != 0);
                        }
                        (None, reply) => prop_assert_eq!(reply, Reply::Done),
                    }
                }
            }
            Ok(())
        })?;
    }

    /// Noise behind a right beginning loses its connection and nothing else.
    #[test]
    fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..400), transmission: bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let mut client = client_of(Arc::new(memory()), Tls::Off);
            if transmission {
                client.go("a", true).await;
            } else {
                client.greet(3).await;
            }
            let Client { mut stream, ended, stage, .. } = client;
            let _ = stream.write_all(&noise).await;
            let _ = stream.shutdown().await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
            let _ = ended.await.expect("no panic");
            drop(stage);
        });
    }
}
