//! Data chunks with copies: what a stripe is kept as while it is written much, with the data chunks of the code that it
//! gets later.
//!
//! A stripe of `mirror:KxR` has the K data chunks, then their second copies in the same order, then their third ones: chunk
//! z is a copy of data chunk z mod K, and the generator is R identities, one below the other. `mirror:1xR` has the chunks
//! of `replica:R`.
//!
//! Invariants:
//! 1. A stripe is lost only with all copies of one data chunk: any R - 1 losses are recovered, and of more all that leave
//!    each data chunk a copy.
//! 2. A lost chunk is repaired from one other, and a change of a data chunk reaches its own copies only.

use crate::{ChunkIndex, linear::Generator};

/// The data chunk that chunk `chunk` is a copy of, of `data` data chunks.
pub(crate) fn copied(chunk: ChunkIndex, data: u8) -> u16 {
    chunk.0 % u16::from(data)
}

/// [`CodeSpec::tolerance_left`](crate::CodeSpec::tolerance_left).
pub(crate) fn tolerance_left(data: u8, is_lost: &[bool]) -> i32 {
    let copies = |at: usize| is_lost[at..].iter().step_by(data.into());
    let left: Vec<i32> = (0..data.into()).map(|at| copies(at).filter(|lost| !**lost).count() as i32).collect();
    match left.iter().filter(|left| **left == 0).count() as i32 {
        0 => left.into_iter().min().expect("a code has a data chunk") - 1,
        gone => -gone,
    }
}

/// The code of `data` data chunks with `copies` of each, the data chunk itself included.
pub(crate) fn generator(data: u8, copies: u8) -> Generator {
    let (data, copies) = (u16::from(data), u16::from(copies));
    let row = |at: u16| (0..data).map(|column| u8::from(column == at)).collect();
    let parity = (1..copies).flat_map(|_| (0..data).map(row)).collect();
    let check = |chunk: u16| vec![ChunkIndex(chunk % data), ChunkIndex(chunk)];
    Generator::new(data, parity, (data..data * copies).map(check).collect())
}
