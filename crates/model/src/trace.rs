//! Requests of block devices as others recorded them: text in one of three formats, a request a line.
//!
//! | format | columns | unit of time | units of offset and size | volume |
//! |---|---|---|---|---|
//! | MSR Cambridge | timestamp, host, disk, `Read` or `Write`, offset, size, response | 100 ns | bytes, bytes | disk |
//! | Tencent CBS | timestamp, offset, size, 1 for a write or 0, volume | 1 s | 512 bytes, 512 bytes | volume |
//! | CloudPhysics | version, timestamp, SCSI opcode, size, first sector | 1 s | 512 bytes, bytes | there is one: 0 |
//!
//! Columns are parted by commas. A first line that does not begin with a digit is a heading; empty lines are left out.
//!
//! Invariants:
//! 1. Whatever the bytes are, reading ends in requests and errors; it never panics, and a line takes [`LINE_BYTES_MAX`] at most.
//! 2. A request ends within 2^63 bytes.
//! 3. Requests come in the order of their lines, which need not be that of their times.
//!
//! Left out: where the text comes from, and whether it is compressed.

use std::io::{BufRead, Read};
use std::str::FromStr;

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// When it came, in microseconds since a time that the format chose.
    pub at_us: u64,
    /// The volume's number.
    pub volume: u64,
    /// The first byte.
    pub offset: u64,
    /// How many; some traces have requests of none.
    pub bytes: u32,
    /// Whether it writes; else it reads.
    pub is_write: bool,
}

impl Request {
    /// The byte behind its last.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.bytes)
    }
}

/// How the lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceFormat {
    /// MSR Cambridge, as SNIA has it (trace 388).
    Msr,
    /// Tencent's cloud block storage.
    Tencent,
    /// CloudPhysics, as libCacheSim writes it.
    CloudPhysics,
}

impl TraceFormat {
    /// All of them, in the order in which they are tried.
    pub const ALL: [TraceFormat; 3] = [TraceFormat::Msr, TraceFormat::Tencent, TraceFormat::CloudPhysics];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            TraceFormat::Msr => "msr",
            TraceFormat::Tencent => "tencent",
            TraceFormat::CloudPhysics => "cloudphysics",
        }
    }

    /// The request in a line.
    ///
    /// # Errors
    /// What is wrong with the line.
    pub fn parse(self, line: &[u8]) -> Result<Request, Fault> {
        match self {
            TraceFormat::Msr => {
                let [at, _host, disk, kind, offset, size, _response] = columns(line)?;
                let is_write = match kind {
                    b"Write" | b"write" | b"W" => true,
                    b"Read" | b"read" | b"R" => false,
                    _ => return Err(Fault::Operation),
                };
                request(number(at, 1)? / 10, number(disk, 3)?, number(offset, 5)?, number(size, 6)?, is_write)
            }
            TraceFormat::Tencent => {
                let [at, offset, size, kind, volume] = columns(line)?;
                let is_write = match kind {
                    b"1" => true,
                    b"0" => false,
                    _ => return Err(Fault::Operation),
                };
                let (offset, bytes) = (sectors(number(offset, 2)?)?, sectors(number(size, 3)?)?);
                request(seconds(number(at, 1)?)?, number(volume, 5)?, offset, bytes, is_write)
            }
            TraceFormat::CloudPhysics => {
                let [_version, at, kind, size, first] = columns(line)?;
                let is_write = match kind.to_ascii_lowercase().as_slice() {
                    b"0a" | b"a" | b"2a" | b"8a" | b"aa" => true,
                    b"08" | b"8" | b"28" | b"88" | b"a8" => false,
                    _ => return Err(Fault::Operation),
                };
                request(seconds(number(at, 2)?)?, 0, sectors(number(first, 5)?)?, number(size, 4)?, is_write)
            }
        }
    }
}

impl FromStr for TraceFormat {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<TraceFormat, TraceError> {
        let found = TraceFormat::ALL.into_iter().find(|format| format.name() == text);
        found.ok_or(TraceError::NoFormat)
    }
}

/// Why there is no request.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The text cannot be read on.
    #[error("line {line} cannot be read")]
    Unreadable {
        /// From 1.
        line: u64,
        /// Why.
        source: std::io::Error,
    },
    /// The first line is none of any format.
    #[error("line {line} is of no known format: name it, msr, tencent or cloudphysics")]
    UnknownFormat {
        /// From 1.
        line: u64,
    },
    /// A name of no format.
    #[error("the formats are msr, tencent and cloudphysics")]
    NoFormat,
    /// A line is wrong.
    #[error("line {line}: {fault}")]
    Line {
        /// From 1.
        line: u64,
        /// What is wrong.
        fault: Fault,
    },
}

/// What is wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is too long to be one.
    #[error("it is longer than {LINE_BYTES_MAX} bytes")]
    Long,
    /// There are more or fewer columns.
    #[error("it has {found} columns, not {expected}")]
    Columns {
        /// In the line.
        found: usize,
        /// In the format.
        expected: usize,
    },
    /// A column is no number.
    #[error("column {column} is no number")]
    Number {
        /// From 1.
        column: usize,
    },
    /// It neither reads nor writes.
    #[error("it is neither a read nor a write")]
    Operation,
    /// No device has these bytes, or no request is so long.
    #[error("its time, offset or size is beyond all bounds")]
    Range,
}

/// The requests of a text.
#[derive(Debug)]
pub struct Requests<R> {
    text: R,
    format: Option<TraceFormat>,
    line: u64,
    buffer: Vec<u8>,
    is_over: bool,
}

impl<R: BufRead> Requests<R> {
    /// Reads `text`, in `format`; `None`: the one that its first request is in.
    pub fn new(text: R, format: Option<TraceFormat>) -> Requests<R> {
        Requests { text, format, line: 0, buffer: Vec::new(), is_over: false }
    }

    /// The format, once a request was read.
    pub fn format(&self) -> Option<TraceFormat> {
        self.format
    }

    /// Reads the next line into the buffer; `false` at the end.
    fn advance(&mut self) -> Result<bool, TraceError> {
        self.buffer.clear();
        self.line += 1;
        let line = self.line;
        let bound = LINE_BYTES_MAX as u64 + 1;
        let read = (&mut self.text).take(bound).read_until(b'\n', &mut self.buffer);
        let length = read.map_err(|source| TraceError::Unreadable { line, source })?;
        if length as u64 == bound && self.buffer.last() != Some(&b'\n') {
            return Err(TraceError::Line { line, fault: Fault::Long });
        }
        Ok(length > 0)
    }

    fn request(&mut self) -> Result<Option<Request>, TraceError> {
        while self.advance()? {
            let line = self.line;
            let text = self.buffer.trim_ascii();
            let is_heading = line == 1 && !text.first().is_some_and(u8::is_ascii_digit);
            if text.is_empty() || is_heading {
                continue;
            }
            let format = match self.format {
                Some(format) => format,
                None => {
                    let fits = |format: &TraceFormat| format.parse(text).is_ok();
                    let found = TraceFormat::ALL.into_iter().find(fits);
                    found.ok_or(TraceError::UnknownFormat { line })?
                }
            };
            self.format = Some(format);
            return format.parse(text).map(Some).map_err(|fault| TraceError::Line { line, fault });
        }
        Ok(None)
    }
}

impl<R: BufRead> Iterator for Requests<R> {
    type Item = Result<Request, TraceError>;

    /// The next request. After an error there is none: what follows a wrong line cannot be trusted.
    fn next(&mut self) -> Option<Result<Request, TraceError>> {
        if self.is_over {
            return None;
        }
        let next = self.request().transpose();
        self.is_over = !matches!(next, Some(Ok(_)));
        next
    }
}

fn columns<const N: usize>(line: &[u8]) -> Result<[&[u8]; N], Fault> {
    let mut found: [&[u8]; N] = [&[]; N];
    let mut count = 0;
    for column in line.split(|byte| *byte == b',') {
        if let Some(place) = found.get_mut(count) {
            *place = column.trim_ascii();
        }
        count += 1;
    }
    if count == N { Ok(found) } else { Err(Fault::Columns { found: count, expected: N }) }
}

fn number(text: &[u8], column: usize) -> Result<u64, Fault> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return Err(Fault::Number { column });
    }
    let digit = |number: u64, digit: &u8| number.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    text.iter().try_fold(0, digit).ok_or(Fault::Range)
}

fn seconds(seconds: u64) -> Result<u64, Fault> {
    seconds.checked_mul(1_000_000).ok_or(Fault::Range)
}

fn sectors(sectors: u64) -> Result<u64, Fault> {
    sectors.checked_mul(512).ok_or(Fault::Range)
}

fn request(at_us: u64, volume: u64, offset: u64, bytes: u64, is_write: bool) -> Result<Request, Fault> {
    let is_sound = bytes <= BYTES_MAX && offset.checked_add(bytes).is_some_and(|end| end <= 1 << 63);
    let bytes = u32::try_from(bytes).ok().filter(|_| is_sound).ok_or(Fault::Range)?;
    Ok(Request { at_us, volume, offset, bytes, is_write })
}

/// Longer lines are none.
pub const LINE_BYTES_MAX: usize = 4096;
/// Longer requests are none: what a SCSI command can ask for is far less.
const BYTES_MAX: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MSR: &str = "\
128166381000000005,made,1,Write,4096,512,94872
128166381000000015,made,1,Read,8192,4096,90
";
    const TENCENT: &str = "1538323200,8,16,1,1058\r\n\n1538323199,100,1,0,1063\r\n";
    const CLOUD_PHYSICS: &str = "version,time,op,size,lbn\n1,5633898,2a,512,8\n1,5633899,28,4096,16\n";

    fn read(text: &str, format: Option<TraceFormat>) -> Result<Vec<Request>, TraceError> {
        Requests::new(text.as_bytes(), format).collect()
    }

    fn request(at_us: u64, volume: u64, offset: u64, bytes: u32, is_write: bool) -> Request {
        Request { at_us, volume, offset, bytes, is_write }
    }

    #[test]
    fn each_format_is_known_by_its_first_request() {
        let msr = [
            request(12_816_638_100_000_000, 1, 4096, 512, true),
            request(12_816_638_100_000_001, 1, 8192, 4096, false),
        ];
        let tencent = [
            request(1_538_323_200_000_000, 1058, 4096, 8192, true),
            request(1_538_323_199_000_000, 1063, 51200, 512, false),
        ];
        let cloud_physics =
            [request(5_633_898_000_000, 0, 4096, 512, true), request(5_633_899_000_000, 0, 8192, 4096, false)];
        for (text, format, expected) in [
            (MSR, TraceFormat::Msr, msr),
            (TENCENT, TraceFormat::Tencent, tencent),
            (CLOUD_PHYSICS, TraceFormat::CloudPhysics, cloud_physics),
        ] {
            let mut requests = Requests::new(text.as_bytes(), None);
            let found: Vec<Request> = requests.by_ref().map(|request| request.expect("a request")).collect();
            assert_eq!((found.as_slice(), requests.format()), (&expected[..], Some(format)));
            assert_eq!(read(text, Some(format)).expect("the same"), expected);
            assert_eq!(format.name().parse::<TraceFormat>().expect("its name"), format);
        }
    }

    #[test]
    fn a_wrong_line_is_named_and_ends_the_trace() {
        let fault = |text: &str, format: Option<TraceFormat>| read(text, format).expect_err("wrong").to_string();
        let cases = [
            ("1,made,1,Write,0,512", "line 3: it has 6 columns, not 7"),
            ("x,made,1,Write,0,512,0", "line 3: column 1 is no number"),
            ("1,made,1,Erase,0,512,0", "line 3: it is neither a read nor a write"),
            ("1,made,1,Read,99999999999999999999,512,0", "line 3: its time, offset or size is beyond all bounds"),
            ("1,made,1,Read,9223372036854775807,2,0", "line 3: its time, offset or size is beyond all bounds"),
            ("1,made,1,Read,0,4294967296,0", "line 3: its time, offset or size is beyond all bounds"),
        ];
        for (line, expected) in cases {
            assert_eq!(fault(&format!("{MSR}{line}\n{MSR}"), None), expected);
        }
        let long = format!("{MSR}{}", "1".repeat(LINE_BYTES_MAX + 1));
        assert_eq!(fault(&long, None), "line 3: it is longer than 4096 bytes");
        assert!(fault("1,2,3\n", None).starts_with("line 1 is of no known format"));
        assert!(fault(MSR, Some(TraceFormat::Tencent)).starts_with("line 1: it has 7 columns"));
        let mut requests = Requests::new("1,made,1,Read,0,1,0\nx\n1,made,1,Read,0,1,0\n".as_bytes(), None);
        assert!(requests.next().expect("one").is_ok() && requests.next().expect("one").is_err());
        assert!(requests.next().is_none());
    }

    #[test]
    fn nothing_is_no_trace_and_no_error() {
        for text in ["", "\n\n", "a heading\n"] {
            assert_eq!(read(text, None).expect("no request"), []);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_an_end(lines in prop::collection::vec("[0-9a-fRWeadrit,. -]{0,60}", 0..20)) {
            let text = lines.join("\n");
            for format in TraceFormat::ALL.into_iter().map(Some).chain([None]) {
                let found: Vec<_> = Requests::new(text.as_bytes(), format).collect();
                prop_assert!(found.len() <= lines.len());
                prop_assert!(found.iter().rev().skip(1).all(Result::is_ok));
            }
        }

        #[test]
        fn what_is_written_is_read(
            at in 0u64..1 << 60, volume: u32, offset in 0u64..1 << 62, bytes in 0u32..1 << 30, is_write: bool,
        ) {
            let kind = if is_write { "Write" } else { "Read" };
            let line = format!("{at},made,{volume},{kind},{offset},{bytes},7");
            let expected = Request { at_us: at / 10, volume: volume.into(), offset, bytes, is_write };
            prop_assert_eq!(TraceFormat::Msr.parse(line.as_bytes()), Ok(expected));
            let (first, count) = (offset / 512, bytes / 512);
            let line = format!("{},{first},{count},{},{volume}", at >> 20, u8::from(is_write));
            let expected =
                Request { at_us: (at >> 20) * 1_000_000, offset: first * 512, bytes: count * 512, ..expected };
            prop_assert_eq!(TraceFormat::Tencent.parse(line.as_bytes()), Ok(expected));
        }
    }
}
