//! Requests of the transmission phase.

use claystone_chunk::ByteRange;
use claystone_volume::{BlocksError, Durable, Space, Span, Zeroing};

use super::{PAYLOAD_BYTES_MAX, Reader, SPANS_MAX};

pub(crate) const REQUEST_BYTES: usize = 28;

/// The head of a request as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    flags: u16,
    kind: u16,
    /// What its reply repeats.
    pub(crate) cookie: u64,
    range: ByteRange,
}

/// What client and server agreed on in the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Agreement {
    /// Replies to reads are structured.
    pub(crate) structured: bool,
    /// The context `base:allocation` was selected.
    pub(crate) allocation: bool,
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    Read {
        range: ByteRange,
        /// As one part, with the zeros of its holes.
        whole: bool,
    },
    /// Of the payload.
    Write {
        offset: u64,
        durable: Durable,
    },
    Flush,
    Discard {
        range: ByteRange,
        durable: Durable,
    },
    WriteZeroes {
        range: ByteRange,
        how: Zeroing,
    },
    Spans {
        range: ByteRange,
        /// No more than one.
        one: bool,
    },
    Disconnect,
}

/// Why a request is refused, as NBD knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rejection {
    NotPermitted,
    Io,
    Invalid,
    NoSpace,
    Overflow,
    NotSupported,
    /// Whoever answers takes nothing more: the client shall end the connection.
    ShuttingDown,
}

impl Request {
    /// None: it does not begin as a request does.
    pub(crate) fn parse(bytes: &[u8; REQUEST_BYTES]) -> Option<Request> {
        let mut reader = Reader(bytes);
        let magic = reader.u32()?;
        let (flags, kind) = (reader.u16()?, reader.u16()?);
        let cookie = u64::from_be_bytes(reader.array()?);
        let range = ByteRange { offset: u64::from_be_bytes(reader.array()?), bytes: u64::from(reader.u32()?) };
        (magic == REQUEST_MAGIC).then_some(Request { flags, kind, cookie, range })
    }

    /// How many bytes follow its head.
    pub(crate) fn payload_bytes(&self) -> u32 {
        if self.kind == CMD_WRITE { self.range.bytes as u32 } else { 0 }
    }

    /// How many bytes it makes us hold: what it brings or what it asks for.
    pub(crate) fn held_bytes(&self) -> u32 {
        match self.kind {
            CMD_READ | CMD_WRITE if self.range.bytes <= u64::from(PAYLOAD_BYTES_MAX) => self.range.bytes as u32,
            CMD_BLOCK_STATUS => (SPANS_MAX * size_of::<Span>()) as u32,
            _ => 0,
        }
    }

    /// What it asks for.
    ///
    /// # Errors
    /// `Invalid`, or `Overflow` for a read that only a structured reply could have held.
    pub(crate) fn command(&self, agreed: Agreement) -> Result<Command, Rejection> {
        let (range, durable) = (self.range, if self.has(FLAG_FUA) { Durable::Now } else { Durable::WithFlush });
        let too_long = range.bytes > u64::from(PAYLOAD_BYTES_MAX);
        let (command, flags) = match self.kind {
            CMD_READ if too_long && agreed.structured => return Err(Rejection::Overflow),
            CMD_READ | CMD_WRITE if too_long => return Err(Rejection::Invalid),
            CMD_READ => {
                let allowed = if agreed.structured { FLAG_DF } else { 0 };
                (Command::Read { range, whole: self.has(FLAG_DF) }, allowed)
            }
            CMD_WRITE => (Command::Write { offset: range.offset, durable }, 0),
            CMD_DISC => return Ok(Command::Disconnect),
            CMD_FLUSH if range != (ByteRange { offset: 0, bytes: 0 }) => return Err(Rejection::Invalid),
            CMD_FLUSH => (Command::Flush, 0),
            CMD_TRIM => (Command::Discard { range, durable }, 0),
            CMD_WRITE_ZEROES => {
                let space = if self.has(FLAG_NO_HOLE) { Space::Keep } else { Space::Return };
                let how = Zeroing { space, only_fast: self.has(FLAG_FAST_ZERO), durable };
                (Command::WriteZeroes { range, how }, FLAG_NO_HOLE | FLAG_FAST_ZERO)
            }
            CMD_BLOCK_STATUS if !agreed.allocation || range.bytes == 0 => return Err(Rejection::Invalid),
            CMD_BLOCK_STATUS => (Command::Spans { range, one: self.has(FLAG_REQ_ONE) }, FLAG_REQ_ONE),
            _ => return Err(Rejection::Invalid),
        };
        // Clients may ask everything to be durable.
        if self.flags & !(flags | FLAG_FUA) == 0 { Ok(command) } else { Err(Rejection::Invalid) }
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

impl Rejection {
    /// What a device's refusal of this command is in NBD.
    pub(crate) fn of(command: &Command, error: &BlocksError) -> Rejection {
        let writes = matches!(command, Command::Write { .. } | Command::WriteZeroes { .. });
        match error {
            BlocksError::OutOfRange { .. } if writes => Rejection::NoSpace,
            BlocksError::OutOfRange { .. } => Rejection::Invalid,
            BlocksError::ReadOnly => Rejection::NotPermitted,
            BlocksError::NoSpace { .. } => Rejection::NoSpace,
            BlocksError::Slow { .. } => Rejection::NotSupported,
            BlocksError::Lost { .. } | BlocksError::Unavailable { .. } => Rejection::Io,
            BlocksError::Failed { .. } => Rejection::ShuttingDown,
        }
    }

    pub(crate) fn number(self) -> u32 {
        match self {
            Rejection::NotPermitted => 1,
            Rejection::Io => 5,
            Rejection::Invalid => 22,
            Rejection::NoSpace => 28,
            Rejection::Overflow => 75,
            Rejection::NotSupported => 95,
            Rejection::ShuttingDown => 108,
        }
    }
}

const REQUEST_MAGIC: u32 = 0x2560_9513;

const CMD_READ: u16 = 0;
const CMD_WRITE: u16 = 1;
const CMD_DISC: u16 = 2;
const CMD_FLUSH: u16 = 3;
const CMD_TRIM: u16 = 4;
const CMD_WRITE_ZEROES: u16 = 6;
const CMD_BLOCK_STATUS: u16 = 7;

const FLAG_FUA: u16 = 1;
const FLAG_NO_HOLE: u16 = 1 << 1;
const FLAG_DF: u16 = 1 << 2;
const FLAG_REQ_ONE: u16 = 1 << 3;
const FLAG_FAST_ZERO: u16 = 1 << 4;

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Agreement = Agreement { structured: true, allocation: true };
    const NEITHER: Agreement = Agreement { structured: false, allocation: false };

    fn request(flags: u16, kind: u16, offset: u64, bytes: u32) -> Request {
        Request { flags, kind, cookie: 1, range: ByteRange { offset, bytes: u64::from(bytes) } }
    }

    #[test]
    fn a_request_is_as_the_protocol_writes_it() {
        let bytes = b"\x25\x60\x95\x13\0\x01\0\x01ABCDEFGH\0\0\0\x01\0\0\x02\0\0\0\x10\x01";
        let parsed = Request::parse(bytes).expect("a request");
        let range = ByteRange { offset: 0x1_0000_0200, bytes: 0x1001 };
        assert_eq!(parsed, Request { flags: 1, kind: 1, cookie: u64::from_be_bytes(*b"ABCDEFGH"), range });
        assert_eq!((parsed.payload_bytes(), parsed.held_bytes()), (0x1001, 0x1001));
        let write = Command::Write { offset: 0x1_0000_0200, durable: Durable::Now };
        assert_eq!(parsed.command(NEITHER), Ok(write));
        for place in 0..4 {
            let mut wrong = *bytes;
            wrong[place] ^= 0x10;
            assert_eq!(Request::parse(&wrong), None, "magic changed at {place}");
        }
    }

    #[test]
    fn each_command_takes_its_own_flags() {
        // READ, WRITE, DISC, FLUSH, TRIM, CACHE, WRITE_ZEROES, BLOCK_STATUS, RESIZE, beyond.
        let allowed = [0b00101, 0b00001, 0xffff, 0b00001, 0b00001, -1, 0b10011, 0b01001, -1, -1];
        for (kind, allowed) in (0u16..).zip(allowed) {
            for flags in (0..64).chain([1 << 15]) {
                let right = allowed >= 0 && i32::from(flags) & !allowed == 0;
                let length = u32::from(kind != CMD_FLUSH);
                let asked = request(flags, kind, 0, length).command(BOTH);
                assert_eq!(asked.is_ok(), right, "command {kind} with flags {flags:#b}: {asked:?}");
            }
        }
    }

    #[test]
    fn what_was_not_agreed_on_is_refused() {
        assert_eq!(request(FLAG_DF, CMD_READ, 0, 1).command(NEITHER), Err(Rejection::Invalid));
        assert_eq!(request(0, CMD_BLOCK_STATUS, 0, 1).command(NEITHER), Err(Rejection::Invalid));
        assert_eq!(request(0, CMD_BLOCK_STATUS, 0, 0).command(BOTH), Err(Rejection::Invalid));
        assert_eq!(request(0, CMD_FLUSH, 0, 1).command(BOTH), Err(Rejection::Invalid));
        assert_eq!(request(0, CMD_FLUSH, 1, 0).command(BOTH), Err(Rejection::Invalid));
    }

    #[test]
    fn payloads_have_an_end() {
        let longest = PAYLOAD_BYTES_MAX;
        for kind in [CMD_READ, CMD_WRITE] {
            assert!(request(0, kind, 0, longest).command(BOTH).is_ok());
            assert_eq!(request(0, kind, 0, longest).held_bytes(), longest);
            assert_eq!(request(0, kind, 0, longest + 1).command(NEITHER), Err(Rejection::Invalid));
            assert_eq!(request(0, kind, 0, u32::MAX).held_bytes(), 0);
        }
        assert_eq!(request(0, CMD_READ, 0, longest + 1).command(BOTH), Err(Rejection::Overflow));
        assert_eq!(request(0, CMD_WRITE, 0, u32::MAX).payload_bytes(), u32::MAX);
        for (kind, held_bytes) in [(CMD_TRIM, 0), (CMD_WRITE_ZEROES, 0), (CMD_BLOCK_STATUS, 64 << 10)] {
            let asked = request(0, kind, 0, u32::MAX);
            assert_eq!((asked.command(BOTH).is_ok(), asked.payload_bytes(), asked.held_bytes()), (true, 0, held_bytes));
        }
    }

    #[test]
    fn zeros_say_how() {
        let zeroes = request(FLAG_NO_HOLE | FLAG_FAST_ZERO | FLAG_FUA, CMD_WRITE_ZEROES, 5, 6).command(NEITHER);
        let how = Zeroing { space: Space::Keep, only_fast: true, durable: Durable::Now };
        assert_eq!(zeroes, Ok(Command::WriteZeroes { range: ByteRange { offset: 5, bytes: 6 }, how }));
        let plain = request(0, CMD_WRITE_ZEROES, 5, 6).command(NEITHER);
        let range = ByteRange { offset: 5, bytes: 6 };
        assert_eq!(plain, Ok(Command::WriteZeroes { range, how: Zeroing::default() }));
    }

    #[test]
    fn refusals_have_the_numbers_that_clients_expect() {
        let range = ByteRange { offset: 0, bytes: 1 };
        let outside = BlocksError::OutOfRange { range, blocks_bytes: 0 };
        let write = Command::Write { offset: 0, durable: Durable::Now };
        let zeroes = Command::WriteZeroes { range, how: Zeroing::default() };
        let discard = Command::Discard { range, durable: Durable::Now };
        let read = Command::Read { range, whole: false };
        for (command, error, number) in [
            (write, outside.clone(), 28),
            (zeroes, outside.clone(), 28),
            (read, outside.clone(), 22),
            (discard, outside, 22),
            (write, BlocksError::ReadOnly, 1),
            (write, BlocksError::NoSpace { needed_bytes: 1, free_bytes: 0 }, 28),
            (zeroes, BlocksError::Slow { range }, 95),
            (read, BlocksError::Lost { range }, 5),
            (read, BlocksError::Unavailable { range, reason: String::new() }, 5),
            (Command::Flush, BlocksError::Failed { reason: String::new() }, 108),
        ] {
            assert_eq!(Rejection::of(&command, &error).number(), number, "{command:?} {error}");
        }
    }
}
