//! Which pages of stripes are zeros, as far as that is known: so that a stripe that was discarded bit by bit is given back.
//!
//! Diffs of zeros that cover a whole stripe need none of this. Others are merged into it as bytes, and what they were is
//! remembered here until the volume is closed. When it is open again, and half of a stripe or more becomes zeros, the rest is read once.
//!
//! Invariants:
//! 1. A page that is known as zeros is zeros in its stripe, diffs apart.
//! 2. What is known takes [`BYTES_MAX`] at most: of stripes beyond that nothing is remembered.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::diffs::{Diff, DiffKind};
use crate::geometry::{Geometry, Page};

/// The pages that are zeros in all of a stripe's data.
pub(crate) fn zeros_of(geometry: &Geometry, position: u64, data: &[u8]) -> Vec<Page> {
    let first = first(geometry, position);
    let pages = data.chunks_exact(geometry.page_bytes as usize).enumerate();
    let zeros = pages.filter(|(_, content)| content.iter().all(|byte| *byte == 0));
    zeros.map(|(at, _)| Page(first + at as u64)).collect()
}

fn first(geometry: &Geometry, position: u64) -> u64 {
    geometry.page(position * geometry.stripe_bytes()).0
}

/// The pages that are known as zeros, of all stripes of a volume.
#[derive(Debug)]
pub(crate) struct Zeros {
    geometry: Geometry,
    /// By position, a bit for each page.
    stripes: BTreeMap<u64, Vec<u64>>,
}

impl Zeros {
    /// Nothing is known.
    pub(crate) fn new(geometry: Geometry) -> Zeros {
        Zeros { geometry, stripes: BTreeMap::new() }
    }

    /// A stripe was written, and these of its pages are zeros.
    pub(crate) fn learn(&mut self, position: u64, zeros: &[Page]) {
        self.forget(position);
        self.set(position, zeros);
    }

    /// These diffs were merged into a stripe.
    pub(crate) fn merged(&mut self, position: u64, diffs: &[(Page, Diff)]) {
        let first = first(&self.geometry, position);
        if let Some(bits) = self.stripes.get_mut(&position) {
            for (page, _) in diffs {
                let at = page.0 - first;
                bits[at as usize / 64] &= !(1 << (at % 64));
            }
        }
        let zeros = diffs.iter().filter(|(_, diff)| diff.kind == DiffKind::Zeros).map(|(page, _)| *page);
        self.set(position, &zeros.collect::<Vec<_>>());
        if self.stripes.get(&position).is_some_and(|bits| bits.iter().all(|bits| *bits == 0)) {
            self.forget(position);
        }
    }

    /// Whether it is worth to read what a stripe has beside these diffs: nothing is known of it and there is room to remember it,
    /// while half of its pages or more become zeros.
    pub(crate) fn wants_look(&self, position: u64, pages: u64, diffs: &[(Page, Diff)]) -> bool {
        let zeros = diffs.iter().filter(|(_, diff)| diff.kind == DiffKind::Zeros).count() as u64;
        !self.stripes.contains_key(&position) && self.has_room() && 2 * zeros >= pages
    }

    /// Nothing is known of a stripe any more.
    pub(crate) fn forget(&mut self, position: u64) {
        self.stripes.remove(&position);
    }

    /// Whether these pages of a stripe are known as zeros where they have none of these diffs, and the diffs are zeros.
    pub(crate) fn are_all(&self, position: u64, pages: Range<Page>, diffs: &[(Page, Diff)]) -> bool {
        if diffs.iter().any(|(_, diff)| diff.kind != DiffKind::Zeros) {
            return false;
        }
        let known = self.stripes.get(&position);
        let first = first(&self.geometry, position);
        let is_known =
            |page: u64| known.is_some_and(|bits| bits[(page - first) as usize / 64] >> ((page - first) % 64) & 1 == 1);
        let mut at = pages.start.0;
        for (page, _) in diffs {
            if !(at..page.0).all(is_known) {
                return false;
            }
            at = page.0 + 1;
        }
        (at..pages.end.0).all(is_known)
    }

    fn set(&mut self, position: u64, pages: &[Page]) {
        if pages.is_empty() {
            return;
        }
        if !self.stripes.contains_key(&position) && !self.has_room() {
            return;
        }
        let (first, words) = (first(&self.geometry, position), self.words());
        let bits = self.stripes.entry(position).or_insert_with(|| vec![0; words]);
        for page in pages {
            let at = page.0 - first;
            bits[at as usize / 64] |= 1 << (at % 64);
        }
    }

    /// Whether another stripe can be remembered.
    fn has_room(&self) -> bool {
        (self.stripes.len() + 1) * (self.words() * 8 + ENTRY_BYTES) <= BYTES_MAX
    }

    fn words(&self) -> usize {
        self.geometry.stripe_pages().div_ceil(64) as usize
    }
}

const BYTES_MAX: usize = 16 << 20;
/// What the bits of a stripe take beside themselves, in about.
const ENTRY_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::record::LogPlace;

    /// Stripes of 100 pages.
    fn zeros() -> Zeros {
        Zeros::new(Geometry { page_bytes: 4096, chunk_bytes: 50 * 4096, columns: 2 })
    }

    fn diffs(pages: Range<u64>, kind: DiffKind) -> Vec<(Page, Diff)> {
        let diff = Diff { at: LogPlace { segment: 1, offset: 0 }, kind };
        pages.map(|page| (Page(page), diff)).collect()
    }

    const ALL: Range<Page> = Page(100)..Page(200);

    #[test]
    fn zeros_that_were_merged_before_count() {
        let mut zeros = zeros();
        let first = diffs(100..170, DiffKind::Zeros);
        let rest = diffs(170..200, DiffKind::Zeros);
        assert!(!zeros.are_all(1, ALL, &first) && !zeros.are_all(1, ALL, &[]));
        assert!(zeros.are_all(1, ALL, &[&first[..], &rest[..]].concat()));
        zeros.merged(1, &first);
        assert!(zeros.are_all(1, ALL, &rest) && !zeros.are_all(1, ALL, &rest[1..]) && !zeros.are_all(1, ALL, &[]));
        // The volume ends within the stripe. What has no zeros any more takes no room.
        zeros.merged(2, &diffs(200..201, DiffKind::Zeros));
        zeros.merged(2, &diffs(200..201, DiffKind::Content { crc: 0 }));
        assert!(zeros.stripes.keys().eq(&[1]));
        assert!(zeros.are_all(1, Page(100)..Page(170), &[]));
        // A page is written again, and is zeros again.
        let one = diffs(130..131, DiffKind::Content { crc: 0 });
        assert!(!zeros.are_all(1, ALL, &[&one[..], &rest[..]].concat()));
        zeros.merged(1, &one);
        assert!(!zeros.are_all(1, ALL, &rest));
        zeros.merged(1, &diffs(130..131, DiffKind::Zeros));
        assert!(zeros.are_all(1, ALL, &rest) && !zeros.are_all(0, Page(0)..Page(1), &[]));
        zeros.forget(1);
        assert!(!zeros.are_all(1, ALL, &rest));
    }

    #[test]
    fn half_of_a_stripe_that_nobody_knows_is_worth_a_look() {
        let mut zeros = zeros();
        let wants = |zeros: &Zeros, diffs: &[(Page, Diff)]| zeros.wants_look(1, 100, diffs);
        assert!(wants(&zeros, &diffs(150..200, DiffKind::Zeros)) && !wants(&zeros, &diffs(151..200, DiffKind::Zeros)));
        assert!(!wants(&zeros, &diffs(100..200, DiffKind::Content { crc: 0 })));
        zeros.merged(1, &diffs(100..101, DiffKind::Zeros));
        assert!(!wants(&zeros, &diffs(150..200, DiffKind::Zeros)), "something is known");
    }

    #[test]
    fn a_stripe_that_is_written_is_known_by_its_data() {
        let mut zeros = zeros();
        let mut data = vec![0; 100 * 4096];
        data[3 * 4096 + 7] = 1;
        zeros.merged(1, &diffs(103..104, DiffKind::Zeros));
        let known = zeros_of(&zeros.geometry, 1, &data);
        zeros.learn(1, &known);
        assert!(!zeros.are_all(1, ALL, &[]) && zeros.are_all(1, ALL, &diffs(103..104, DiffKind::Zeros)));
    }

    #[test]
    fn what_is_known_is_bounded() {
        // A KiB of bits for each stripe.
        let mut zeros = Zeros::new(Geometry { page_bytes: 4096, chunk_bytes: 4096 << 10, columns: 8 });
        let page = |position: u64| Page(position << 13);
        for position in 0..20_000 {
            zeros.learn(position, &[page(position)]);
        }
        assert_eq!(zeros.stripes.len(), BYTES_MAX / (1024 + ENTRY_BYTES));
        let is_known = |position: u64| zeros.are_all(position, page(position)..Page(page(position).0 + 1), &[]);
        assert!(is_known(0) && !is_known(19_999));
    }
}
