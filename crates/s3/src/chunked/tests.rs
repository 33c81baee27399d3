//! The rechunker against a naive reader, at any cut.

use super::*;
use proptest::prelude::*;

/// What the framing means, by a second and naive reader.
fn decode(body: &[u8]) -> Option<(Vec<u8>, Vec<u8>, usize)> {
    let (mut data, mut at, mut longest) = (Vec::new(), 0, 0);
    loop {
        let end = at + body[at..].windows(2).position(|pair| pair == b"\r\n")?;
        let line = std::str::from_utf8(&body[at..end]).ok()?;
        let size = usize::from_str_radix(line.split(';').next()?, 16).ok()?;
        at = end + 2;
        if size == 0 {
            return Some((data, body[at..].to_vec(), longest));
        }
        data.extend_from_slice(body.get(at..at + size)?);
        longest = longest.max(size);
        at += size + 2;
    }
}

fn frame(chunks: &[Vec<u8>], extension: &str, trailers: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    for chunk in chunks.iter().filter(|chunk| !chunk.is_empty()) {
        body.extend(format!("{:x}{extension}\r\n", chunk.len()).into_bytes());
        body.extend(chunk);
        body.extend(b"\r\n");
    }
    body.extend(format!("0{extension}\r\n").into_bytes());
    body.extend(trailers);
    body
}

fn run(mode: Mode, body: &[u8], cuts: &[usize]) -> Result<Vec<u8>, ChunkedError> {
    let mut rechunker = Rechunker::new(mode);
    let (mut out, mut rest) = (VecDeque::new(), Bytes::copy_from_slice(body));
    let mut cuts = cuts.iter().cycle();
    while !rest.is_empty() {
        let cut = cuts.next().map_or(rest.len(), |&cut| cut.clamp(1, rest.len()));
        rechunker.push(rest.split_to(cut), &mut out)?;
    }
    rechunker.finish()?;
    Ok(out.into_iter().flatten().collect())
}

proptest! {
    #[test]
    fn split_keeps_data_and_trailers_at_any_cut(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..6),
        cuts in prop::collection::vec(1usize..400, 1..20),
        signed in any::<bool>(),
    ) {
        let trailers = b"x-amz-checksum-crc32:AAAAAA==\r\n\r\n";
        let body = frame(&chunks, if signed { ";chunk-signature=00" } else { "" }, trailers);
        let out = run(Mode::Split, &body, &cuts).expect("well framed");
        let (data, rest, longest) = decode(&out).expect("well framed again");
        prop_assert_eq!(data, chunks.concat());
        prop_assert_eq!(rest, trailers);
        prop_assert!(longest <= cuts.iter().copied().max().unwrap_or(0));
    }

    #[test]
    fn bound_passes_on_what_came(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..6),
        cuts in prop::collection::vec(1usize..400, 1..20),
    ) {
        let body = frame(&chunks, ";chunk-signature=00", b"\r\n");
        prop_assert_eq!(run(Mode::Bound, &body, &cuts), Ok(body));
    }

    #[test]
    fn any_bytes_are_taken_or_refused_without_panic(
        body in prop::collection::vec(prop::sample::select(b"0123af;\r\nxyz\0".to_vec()), 0..200),
        cuts in prop::collection::vec(1usize..40, 1..10),
    ) {
        let _ = run(Mode::Split, &body, &cuts);
        let _ = run(Mode::Bound, &body, &cuts);
    }

    #[test]
    fn a_body_cut_short_is_incomplete(at in 0usize..20) {
        let body = frame(&[b"0123456789".to_vec()], "", b"");
        prop_assume!(at < body.len());
        prop_assert_eq!(run(Mode::Split, &body[..at], &[3]), Err(ChunkedError::Incomplete));
    }
}

#[test]
fn malformed_framing_is_refused() {
    for body in
        [&b"\r\n"[..], b"zz\r\n", b"5\n12345\r\n0\r\n", b"3\r\n1234\r\n0\r\n", b"11111111111111111\r\n", b"-1\r\n"]
    {
        assert_eq!(run(Mode::Split, body, &[1]), Err(ChunkedError::Malformed), "{:?}", String::from_utf8_lossy(body));
    }
    let endless = vec![b'1'; LINE_BYTES_MAX + 1];
    assert_eq!(run(Mode::Split, &endless, &[7]), Err(ChunkedError::Malformed));
}

#[test]
fn a_signed_chunk_beyond_the_limit_is_refused_before_its_data() {
    let line = format!("{:x};chunk-signature=00\r\n", CHUNK_BYTES_MAX + 1);
    assert!(matches!(run(Mode::Bound, line.as_bytes(), &[5]), Err(ChunkedError::ChunkTooLarge { .. })));
}
