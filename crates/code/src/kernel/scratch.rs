//! Memory that a thread keeps for its next call: once a call has taken as much, none like it allocates.
//!
//! Invariants:
//! 1. What is lent is its borrower's alone: a loan within a loan gets memory of its own.
//! 2. Bytes hold what the borrower before left there; lists are empty.

use std::{cell::Cell, thread::LocalKey};

/// One cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; LINE_BYTES]);

pub(super) const LINE_BYTES: usize = 64;

thread_local! {
    static LINES: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
}

/// Lends so many bytes, whole lines from the first on.
pub(super) fn lend<R>(bytes: usize, work: impl FnOnce(&mut [u8]) -> R) -> R {
    let mut lines = LINES.take();
    let count = bytes.div_ceil(LINE_BYTES);
    if lines.len() < count {
        lines.resize(count, Line([0; LINE_BYTES]));
    }
    // SAFETY: there are as many initialised bytes, and nobody else has the lines until they are set again.
    let made = work(unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), bytes) });
    LINES.set(lines);
    made
}

/// A list's memory, kept by each thread. The items differ from those lent in a lifetime only.
pub(crate) type Spare<T> = LocalKey<Cell<Vec<T>>>;

/// Lends an empty list in the memory of `spare`.
pub(crate) fn lend_list<Kept, Item, R>(spare: &'static Spare<Kept>, work: impl FnOnce(&mut Vec<Item>) -> R) -> R {
    let mut list = emptied(spare.take());
    let made = work(&mut list);
    spare.set(emptied(list));
    made
}

/// An empty list in the memory of one with items of the same size: collecting in place keeps it.
fn emptied<Old, New>(mut list: Vec<Old>) -> Vec<New> {
    const { assert!(size_of::<Old>() == size_of::<New>() && align_of::<Old>() == align_of::<New>()) };
    list.clear();
    list.into_iter().map(|_| unreachable!("the list is empty")).collect()
}

#[cfg(test)]
mod tests {
    use super::{LINE_BYTES, lend, lend_list};
    use std::cell::Cell;

    thread_local! {
        static SLICES: Cell<Vec<&'static [u8]>> = const { Cell::new(Vec::new()) };
    }

    #[test]
    fn the_next_loan_has_the_memory_of_the_one_before() {
        let place = lend(1000, |bytes| {
            bytes.fill(7);
            bytes.as_ptr().addr()
        });
        assert!(place.is_multiple_of(LINE_BYTES));
        lend(999, |bytes| {
            assert_eq!((bytes.as_ptr().addr(), bytes.len(), bytes[998]), (place, 999, 7));
            lend(10, |other| assert_ne!(other.as_ptr().addr(), place));
        });
    }

    #[test]
    fn a_list_keeps_its_memory_and_none_of_its_items() {
        let text = *b"some bytes";
        let place = lend_list(&SLICES, |list| {
            list.extend([&text[..4], &text[5..]]);
            list.as_ptr().addr()
        });
        lend_list(&SLICES, |list: &mut Vec<&[u8]>| {
            assert!(list.is_empty() && list.capacity() >= 2 && list.as_ptr().addr() == place);
        });
    }
}
