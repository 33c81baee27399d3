//! Bytes as an aws-chunked body, cut anywhere: how it is cut changes neither the verdict nor the data and trailers; what
//! is bounded comes out as it came in.
#![no_main]
#![allow(dead_code, reason = "a module of crate `s3`, of which this uses the framing")]

/// What the module names of `s3s`, without building it under the sanitizer.
extern crate self as s3s;
pub type StdError = Box<dyn std::error::Error + Send + Sync>;

#[path = "../../crates/s3/src/chunked.rs"]
mod chunked;

use std::collections::VecDeque;

use arbitrary::Arbitrary;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

use self::chunked::{ChunkedError, Mode, Rechunker};

#[derive(Arbitrary, Debug)]
enum Part {
    Raw(Vec<u8>),
    Chunk { data: Vec<u8>, extension: bool },
    End { trailers: Vec<u8> },
}

#[derive(Arbitrary, Debug)]
struct Input {
    parts: Vec<Part>,
    cuts: Vec<u8>,
    bound: bool,
}

fuzz_target!(|input: Input| {
    let mut body = Vec::new();
    for part in &input.parts {
        match part {
            Part::Raw(bytes) => body.extend_from_slice(bytes),
            Part::Chunk { data, extension } => {
                let extension = if *extension { ";chunk-signature=ad80c730" } else { "" };
                body.extend_from_slice(format!("{:x}{extension}\r\n", data.len()).as_bytes());
                body.extend_from_slice(data);
                body.extend_from_slice(b"\r\n");
            }
            Part::End { trailers } => {
                body.extend_from_slice(b"0\r\n");
                body.extend_from_slice(trailers);
            }
        }
    }
    let body = Bytes::from(body);
    let mode = if input.bound { Mode::Bound } else { Mode::Split };
    let whole = pass(mode, [body.clone()]);
    let mut pieces = Vec::new();
    let mut rest = body.clone();
    for cut in &input.cuts {
        pieces.push(rest.split_to(usize::from(*cut).min(rest.len())));
    }
    pieces.push(rest);
    let cut = pass(mode, pieces);
    match (whole, cut) {
        (Ok(whole), Ok(cut)) if mode == Mode::Bound => assert!(whole == body && cut == body),
        (Ok(whole), Ok(cut)) => assert_eq!(content(&whole), content(&cut)),
        (whole, cut) => assert_eq!(whole, cut),
    }
});

fn pass(mode: Mode, pieces: impl IntoIterator<Item = Bytes>) -> Result<Vec<u8>, ChunkedError> {
    let (mut rechunker, mut out) = (Rechunker::new(mode), VecDeque::new());
    for piece in pieces {
        if let Err(error) = rechunker.push(piece, &mut out) {
            assert_eq!(rechunker.finish(), Err(error.clone()), "an error stays one");
            return Err(error);
        }
    }
    rechunker.finish()?;
    Ok(out.into_iter().flatten().collect())
}

/// Data and trailers of what was split, which is well formed.
fn content(mut framed: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut data = Vec::new();
    loop {
        let end = framed.windows(2).position(|two| two == b"\r\n").expect("a line");
        let size = std::str::from_utf8(&framed[..end]).ok().and_then(|size| usize::from_str_radix(size, 16).ok());
        let size = size.expect("a size");
        framed = &framed[end + 2..];
        if size == 0 {
            return (data, framed.to_vec());
        }
        data.extend_from_slice(&framed[..size]);
        assert_eq!(&framed[size..size + 2], b"\r\n");
        framed = &framed[size + 2..];
    }
}
