//! Wrong calls are refused with the numbers, right ones are done.

use super::*;

/// Chunks of a code, parity included.
fn encoded(guard: &Guard, tile: usize) -> Vec<Vec<u8>> {
    let shape = guard.shape();
    let mut chunks: Vec<Vec<u8>> = (0..shape.chunks())
        .map(|chunk| (0..tile).map(|at| (at * 7 + usize::from(chunk) * 31) as u8).collect())
        .collect();
    let (data, parity) = chunks.split_at_mut(shape.data.into());
    let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
    guard.encode(&data, &mut parity).expect("right lengths");
    chunks
}

#[test]
fn every_family_encodes_loses_and_recovers() {
    for spec in ["replica:3", "rs:4+2", "clay:4+2:5"] {
        let guard = Guard::new(spec).expect("a code");
        let alpha = guard.shape().alpha as usize;
        let (sub_bytes, tile) = (96, 96 * alpha);
        let chunks = encoded(&guard, tile);
        let costs: Vec<Option<u32>> = (0..chunks.len()).map(|chunk| (chunk != 0).then_some(1)).collect();
        let plan = guard.plan_read(&[0], &costs, sub_bytes as u32, 1).expect("one loss");
        let reads = &plan.data().reads;
        let fetched: Vec<Vec<u8>> =
            reads.iter().map(|read| read.cut(&chunks[read.chunk.at()], sub_bytes as u32)).collect();
        let fetched: Vec<&[u8]> = fetched.iter().map(Vec::as_slice).collect();
        let mut out = vec![0; tile];
        guard.recover(&plan, &fetched, &mut [&mut out]).expect("right lengths");
        assert_eq!(out, chunks[0], "{spec}");
    }
}

#[test]
fn a_change_reaches_the_parity() {
    let guard = Guard::new("rs:4+2").expect("a code");
    let mut chunks = encoded(&guard, 100);
    let delta: Vec<u8> = (0..100).collect();
    chunks[1].iter_mut().zip(&delta).for_each(|(byte, delta)| *byte ^= delta);
    for parity in 4..6 {
        guard.apply_delta(1, parity, &delta, &mut chunks[usize::from(parity)]).expect("right lengths");
    }
    let mut parity = vec![vec![0; 100]; 2];
    let data: Vec<&[u8]> = chunks[..4].iter().map(Vec::as_slice).collect();
    let mut buffers: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
    guard.encode(&data, &mut buffers).expect("right lengths");
    assert_eq!(chunks[4..], parity);
    let mut sum = vec![vec![0; 100]; 2];
    for (first, data) in data.iter().enumerate() {
        let mut buffers: Vec<&mut [u8]> = sum.iter_mut().map(Vec::as_mut_slice).collect();
        guard.encode_add(first as u16, &[data], &mut buffers).expect("right lengths");
    }
    assert_eq!(sum, parity);
}

#[test]
fn each_misuse_is_told_with_its_numbers() {
    let rs = Guard::new("rs:2+1").expect("a code");
    let clay = Guard::new("clay:4+2:5").expect("a code");
    let (a, b): (&[u8], &[u8]) = (&[1; 8], &[2; 8]);
    let mut long = [0; 9];
    let mut one = [0; 8];
    let count = |what, got, expected| Err(Misuse::Count { what, got, expected });
    let count_of = |what, got, expected| Err(Misuse::Count { what, got, expected });
    assert!(matches!(Guard::new("rs:0+1"), Err(Misuse::Spec(SpecError::NoData))));
    assert_eq!(rs.encode(&[a], &mut [&mut one]), count("data buffers", 1, 2));
    assert_eq!(rs.encode(&[a, b], &mut []), count("parity buffers", 0, 1));
    let length = |what, at, got| Err(Misuse::Length { what, at, got, expected: 8 });
    assert_eq!(rs.encode(&[a, &b[..7]], &mut [&mut one]), length("data buffer", 1, 7));
    assert_eq!(rs.encode(&[a, b], &mut [&mut long]), length("parity buffer", 0, 9));
    let mut two = [[0; 9]; 2];
    let [p, q] = &mut two;
    assert_eq!(clay.encode(&[&[0; 9][..]; 4], &mut [p, q]), Err(Misuse::Tile { bytes: 9, alpha: 8 }));
    assert_eq!(rs.encode_add(1, &[a, b], &mut [&mut one]), count("data buffers from there on", 2, 1));
    assert!(matches!(rs.encode_add(2, &[a], &mut [&mut one]), Err(Misuse::NoSuchChunk { chunk: 2, .. })));

    let all = [Some(1); 3];
    let plan = |want: &[u16], costs: &[Option<u32>], sub, granule| rs.plan_read(want, costs, sub, granule).map(|_| ());
    assert_eq!(plan(&[0], &all[..2], 1, 1), count("costs", 2, 3));
    assert!(matches!(plan(&[3], &all, 1, 1), Err(Misuse::NoSuchChunk { chunk: 3, .. })));
    assert_eq!(plan(&[1, 1], &all, 1, 1), Err(Misuse::Twice { what: "wanted", chunk: 1 }));
    assert_eq!(plan(&[1], &all, 0, 1), Err(Misuse::Zero { what: "sub_bytes" }));
    assert_eq!(plan(&[1], &all, 1, 0), Err(Misuse::Zero { what: "granule" }));
    assert!(matches!(plan(&[1], &[Some(1), None, None], 1, 1), Err(Misuse::Unrecoverable(_))));

    let made = rs.plan_read(&[0], &[None, Some(1), Some(1)], 8, 1).expect("one loss");
    assert_eq!(rs.recover(&made, &[a], &mut [&mut one]), count("fetched buffers", 1, 2));
    assert_eq!(rs.recover(&made, &[a, b], &mut []), count("out buffers", 0, 1));
    assert_eq!(rs.recover(&made, &[a, &b[1..]], &mut [&mut one]), length("fetched buffer", 1, 7));
    assert!(matches!(clay.recover(&made, &[a, b], &mut [&mut one]), Err(Misuse::ForeignPlan { .. })));
    assert_eq!(made.bytes_read(8, 0), Err(Misuse::Zero { what: "granule" }));

    assert!(matches!(rs.plan_update(2), Err(Misuse::NoSuchChunk { chunk: 2, .. })));
    assert!(matches!(rs.apply_delta(0, 1, a, &mut one), Err(Misuse::NoSuchChunk { chunk: 1, first: 2, count: 1, .. })));
    assert_eq!(rs.apply_delta(0, 2, a, &mut long), length("parity buffer", 0, 9));
    assert!(matches!(clay.apply_delta(0, 4, a, &mut one), Err(Misuse::NoDelta { .. })));
    assert_eq!(rs.locate(&[Some(a), Some(b)]), count_of("chunks", 2, 3));
    assert_eq!(
        rs.locate(&[Some(a), None, Some(&b[1..])]),
        Err(Misuse::Length { what: "chunk", at: 2, got: 7, expected: 8 })
    );
    assert_eq!(clay.locate(&[Some(&b[..7]); 6]), Err(Misuse::Tile { bytes: 7, alpha: 8 }));
    assert_eq!(clay.locate(&[Some(&b[..0]); 6]), Ok(vec![]));
    let nothing = LocateError::NothingToCheck { spec: rs.spec(), available: 2, needed: 3 };
    assert_eq!(rs.locate(&[Some(a), None, Some(b)]), Err(Misuse::Locate(nothing)));
    assert_eq!((rs.tolerance_left(&[]), rs.tolerance_left(&[2]), rs.tolerance_left(&[2, 0])), (Ok(1), Ok(0), Ok(-1)));
    assert_eq!(rs.tolerance_left(&[2, 2]), Err(Misuse::Twice { what: "lost", chunk: 2 }));
    assert_eq!(rs.tolerance_left(&[3]), Err(Misuse::NoSuchChunk { what: "chunk", chunk: 3, first: 0, count: 3 }));

    let convert = |from, to| Conversion::new(from, to, ConversionGoal::FewestReads);
    assert!(matches!(convert("rs:2", "rs:2+1"), Err(Misuse::Spec(_))));
    assert!(matches!(convert("rs:2+1", "rs:2+1"), Err(Misuse::NoConversion(NoConversion::Same { .. }))));
    let wider = convert("rs:2+1", "rs:2+2").expect("a conversion");
    assert_eq!((wider.plan().reads.len(), wider.plan().writes.len()), (2, 1));
    assert_eq!(wider.apply(&[a], &mut [&mut one]), count("fetched buffers", 1, 2));
    assert_eq!(wider.apply(&[a, b], &mut []), count("written buffers", 0, 1));
    assert_eq!(wider.apply(&[a, &b[1..]], &mut [&mut one]), length("fetched buffer", 1, 7));
    let coupled = convert("rs:4+2", "clay:4+2:5").expect("a conversion");
    let mut two = [[0; 9]; 2];
    let [p, q] = &mut two;
    let reads = vec![&[0; 9][..]; coupled.plan().reads.len()];
    assert_eq!(coupled.apply(&reads, &mut [p, q]), Err(Misuse::Tile { bytes: 9, alpha: 8 }));
    assert_eq!(one, [0; 8], "nothing was written");
}

#[test]
#[expect(clippy::single_range_in_vec_init, reason = "lists of one range are meant")]
fn a_written_byte_is_in_one_buffer_only() {
    let apart = |read: &[Range<usize>], written: &[Range<usize>]| check_apart(read, written).is_ok();
    assert!(apart(&[0..10, 5..10, 0..10], &[10..12, 12..13]));
    assert!(apart(&[3..3], &[0..10]));
    assert!(!apart(&[], &[0..10, 9..11]));
    assert!(!apart(&[], &[0..10, 0..10]));
    assert!(!apart(&[0..100, 1..2], &[50..51]));
    assert!(!apart(&[4..5], &[0..10]));
    assert!(!apart(&[9..20], &[0..10]));
    let overlap = |what, written, other, bytes| Err(Misuse::Overlap { written, what, other, bytes });
    assert_eq!(check_apart(&[30..40, 8..20], &[50..60, 0..10]), overlap("read", 1, 1, 2));
    assert_eq!(check_apart(&[0..100, 1..2], &[50..51]), overlap("read", 0, 0, 1));
    assert_eq!(check_apart(&[], &[9..20, 0..10]), overlap("written", 0, 1, 1));
}

#[test]
fn wrong_chunks_are_named_and_stripes_converted() {
    let guard = Guard::new("rs:4+3").expect("a code");
    let mut chunks = encoded(&guard, 64);
    let to = Guard::new("rs:4+4").expect("a code");
    let wider = Conversion::new("rs:4+3", "rs:4+4", ConversionGoal::FewestReads).expect("a conversion");
    let reads: Vec<&[u8]> = wider.plan().reads.iter().map(|read| &chunks[read.chunk.at()][..]).collect();
    let mut made = vec![0; 64];
    wider.apply(&reads, &mut [&mut made]).expect("right lengths");
    assert_eq!(made, encoded(&to, 64)[7]);
    chunks[2][9] ^= 1;
    let given: Vec<Option<&[u8]>> = chunks.iter().map(|chunk| Some(&chunk[..])).collect();
    assert_eq!(guard.locate(&given), Ok(vec![ChunkIndex(2)]));
}
