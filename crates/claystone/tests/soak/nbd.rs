//! A small client of block devices over NBD that keeps several requests under way on one connection.
//!
//! Invariants:
//! 1. A reply that does not come within [`PATIENCE`] is an error: nothing here takes long.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A connection to one export.
pub struct Connection {
    stream: UnixStream,
    replies: BufReader<UnixStream>,
    /// Bytes that come with each reply that is awaited.
    awaited: BTreeMap<u64, usize>,
    next: u64,
    /// Length of the export.
    pub bytes: u64,
}

/// What is asked for.
#[derive(Debug, Clone)]
pub enum Request {
    /// Bytes from an offset.
    Read { offset: u64, bytes: u32 },
    /// Bytes to an offset.
    Write { offset: u64, content: Vec<u8>, now: bool },
    /// All that was acknowledged becomes durable.
    Flush,
    /// Zeros, and the space may be given back.
    Trim { offset: u64, bytes: u32, now: bool },
    /// Zeros; `keep`: the space stays.
    Zero { offset: u64, bytes: u32, now: bool, keep: bool },
}

/// The answer to a request.
#[derive(Debug)]
pub struct Reply {
    /// Which request.
    pub cookie: u64,
    /// 0, or why not.
    pub error: u32,
    /// What was read.
    pub content: Vec<u8>,
}

impl Connection {
    /// Attaches to an export.
    ///
    /// # Errors
    /// The connection broke; `InvalidInput`: the server does not give this export.
    pub fn open(socket: &Path, export: &str) -> io::Result<Connection> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let replies = BufReader::with_capacity(256 << 10, stream.try_clone()?);
        let mut connection = Connection { stream, replies, awaited: BTreeMap::new(), next: 0, bytes: 0 };
        connection.handshake(export)?;
        Ok(connection)
    }

    fn handshake(&mut self, export: &str) -> io::Result<()> {
        let mut greeting = [0; 18];
        self.replies.read_exact(&mut greeting)?;
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        let mut hello = 3u32.to_be_bytes().to_vec();
        hello.extend(b"IHAVEOPT");
        hello.extend(OPTION_GO.to_be_bytes());
        hello.extend((export.len() as u32 + 6).to_be_bytes());
        hello.extend((export.len() as u32).to_be_bytes());
        hello.extend(export.as_bytes());
        hello.extend(0u16.to_be_bytes());
        self.stream.write_all(&hello)?;
        loop {
            let mut head = [0; 20];
            self.replies.read_exact(&mut head)?;
            let (kind, length) = (number(&head[12..16]), number(&head[16..20]));
            let mut data = vec![0; length as usize];
            self.replies.read_exact(&mut data)?;
            match kind {
                REPLY_ACK => return Ok(()),
                REPLY_INFO if data[..2] == [0, 0] => {
                    self.bytes = u64::from_be_bytes(data[2..10].try_into().expect("eight bytes"));
                    let flags = number(&data[8..12]) as u16;
                    assert!(flags & CAN_MULTI_CONN != 0, "a flush is of all connections");
                }
                REPLY_INFO => {}
                error => {
                    let words = String::from_utf8_lossy(&data).into_owned();
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{export}: {error:#x} {words}")));
                }
            }
        }
    }

    /// Sends a request. Its reply will show the number that is returned.
    ///
    /// # Errors
    /// The connection broke.
    pub fn send(&mut self, request: &Request) -> io::Result<u64> {
        let flag = |set: bool, flag: u16| if set { flag } else { 0 };
        let (kind, flags, offset, bytes, content): (u16, u16, u64, u32, &[u8]) = match request {
            Request::Read { offset, bytes } => (0, 0, *offset, *bytes, &[]),
            Request::Write { offset, content, now } => (1, flag(*now, FUA), *offset, content.len() as u32, content),
            Request::Flush => (3, 0, 0, 0, &[]),
            Request::Trim { offset, bytes, now } => (4, flag(*now, FUA), *offset, *bytes, &[]),
            Request::Zero { offset, bytes, now, keep } => {
                (6, flag(*now, FUA) | flag(*keep, NO_HOLE), *offset, *bytes, &[])
            }
        };
        let cookie = self.next;
        self.next += 1;
        let mut message = Vec::with_capacity(28 + content.len());
        message.extend(REQUEST_MAGIC.to_be_bytes());
        message.extend(flags.to_be_bytes());
        message.extend(kind.to_be_bytes());
        message.extend(cookie.to_be_bytes());
        message.extend(offset.to_be_bytes());
        message.extend(bytes.to_be_bytes());
        message.extend(content);
        let read = if let Request::Read { bytes, .. } = request { *bytes as usize } else { 0 };
        self.awaited.insert(cookie, read);
        self.stream.write_all(&message)?;
        Ok(cookie)
    }

    /// The next reply, to whichever request.
    ///
    /// # Errors
    /// The connection broke.
    pub fn receive(&mut self) -> io::Result<Reply> {
        let mut head = [0; 16];
        self.replies.read_exact(&mut head)?;
        assert_eq!(number(&head[..4]), REPLY_MAGIC);
        let error = number(&head[4..8]);
        let cookie = u64::from_be_bytes(head[8..].try_into().expect("eight bytes"));
        let bytes = self.awaited.remove(&cookie).expect("a reply is to a request");
        let mut content = vec![0; if error == 0 { bytes } else { 0 }];
        self.replies.read_exact(&mut content)?;
        Ok(Reply { cookie, error, content })
    }

    /// Says that nothing more will come.
    pub fn close(mut self) {
        let mut message = [0; 28];
        message[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        message[7] = 2;
        // The server may be gone.
        let _ = self.stream.write_all(&message);
    }
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().expect("four bytes"))
}

const PATIENCE: Duration = Duration::from_secs(60);
const OPTION_GO: u32 = 7;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const FUA: u16 = 1;
const NO_HOLE: u16 = 1 << 1;
const CAN_MULTI_CONN: u16 = 1 << 8;
