//! `klauspost:K+M` gives the bytes of the crate reed-solomon-erasure, which are those of klauspost/reedsolomon
//! (`tests/klauspost/run` asks that one).
//!
//! `isal:K+M` is pinned by golden hashes that the real ISA-L gave; `tests/isal/run` asks it again.

mod forced;

use claystone_code::{ChunkIndex, CodeSpec, ReadCosts};
use reed_solomon_erasure::galois_8::ReedSolomon;

#[test]
fn klauspost_codes_encode_the_bytes_of_reed_solomon_erasure() {
    for (data, parity) in [(1, 1), (4, 2), (5, 5), (10, 4), (17, 3), (28, 4), (100, 30), (200, 56), (246, 9)] {
        let (ours, theirs) = (stripe(data, parity, true), stripe(data, parity, false));
        assert!(ours == theirs, "{data}+{parity}");
    }
}

#[test]
fn chunks_that_the_other_library_made_are_recovered() {
    let chunks = stripe(10, 4, false);
    let code = forced::build("klauspost:10+4".parse().expect("a valid spec"));
    let lost = [0, 3, 9, 12].map(ChunkIndex);
    let costs: Vec<Option<u32>> = (0..14).map(|z| (!lost.contains(&ChunkIndex(z))).then_some(1)).collect();
    let plan = code.plan_read(&lost, &ReadCosts { chunks: &costs, sub_bytes: 999, granule: 1 }).expect("four losses");
    let fetched: Vec<&[u8]> = plan.reads.iter().map(|read| &chunks[read.chunk.at()][..]).collect();
    let mut out = vec![vec![0; 999]; 4];
    code.recover(&plan, &fetched, &mut out.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
    for (made, chunk) in out.iter().zip(lost) {
        assert!(*made == chunks[chunk.at()], "chunk {chunk}");
    }
}

/// Data of a fixed pattern and its parity, by us or by the other library.
fn stripe(data: usize, parity: usize, ours: bool) -> Vec<Vec<u8>> {
    let byte = |chunk: usize, at: usize| (chunk * 31 + at * 7 + (chunk * at) % 251) as u8;
    let mut chunks: Vec<Vec<u8>> =
        (0..data + parity).map(|chunk| (0..999).map(|at| byte(chunk, at)).collect()).collect();
    if ours {
        let spec: CodeSpec = format!("klauspost:{data}+{parity}").parse().expect("a valid spec");
        let (sources, targets) = chunks.split_at_mut(data);
        let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
        let code = forced::build(spec);
        code.encode(&sources, &mut targets.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
    } else {
        ReedSolomon::new(data, parity).expect("a size it takes").encode(&mut chunks).expect("chunks of one length");
    }
    chunks
}
