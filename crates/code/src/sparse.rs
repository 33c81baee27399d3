//! Sums of products where most coefficients are zero or one: rows that share their terms go in one pass, and a pass
//! takes nothing but its own terms.
//!
//! Invariants:
//! 1. A zero costs nothing, and a row of ones is a plain XOR.
//! 2. Several passes go strip by strip, so that a source which two of them need comes from the first cache.

use crate::kernel::{self, Matrix, TERMS_MAX, Tier};

/// A matrix with many zeros.
#[derive(Clone, Debug)]
pub(crate) struct Sparse {
    rows: usize,
    terms: usize,
    passes: Vec<Pass>,
}

/// Rows with the same terms.
#[derive(Clone, Debug)]
struct Pass {
    rows: Vec<usize>,
    terms: Vec<usize>,
    matrix: Matrix,
    /// One row of one term, whose coefficient is 1.
    copies: bool,
}

impl Sparse {
    /// From rows of `terms` coefficients each.
    ///
    /// # Panics
    /// If a row has another number of coefficients.
    pub(crate) fn new(rows: &[Vec<u8>], terms: usize) -> Self {
        let mut passes: Vec<(Vec<usize>, Vec<usize>)> = Vec::new();
        for (at, row) in rows.iter().enumerate() {
            assert_eq!(row.len(), terms, "one coefficient for each term");
            let used: Vec<usize> = (0..terms).filter(|term| row[*term] != 0).collect();
            match passes.iter_mut().find(|(_, terms)| *terms == used) {
                Some((shared, _)) => shared.push(at),
                None => passes.push((vec![at], used)),
            }
        }
        let pass = |(mut shared, used): (Vec<usize>, Vec<usize>)| {
            // A plain XOR comes first: the kernel has a cheaper first row.
            shared.sort_by_key(|row| used.iter().any(|term| rows[*row][*term] != 1));
            let matrix = Matrix::new(shared.len(), used.len(), |row, term| rows[shared[row]][used[term]]);
            let copies = shared.len() == 1 && used.len() == 1 && rows[shared[0]][used[0]] == 1;
            Pass { rows: shared, terms: used, matrix, copies }
        };
        Self { rows: rows.len(), terms, passes: passes.into_iter().map(pass).collect() }
    }

    /// outs\[r\] = sum over t of rows\[r\]\[t\] * sources\[t\].
    ///
    /// # Panics
    /// If a count is not the matrix', or lengths differ.
    pub(crate) fn run(&self, tier: Tier, sources: &[&[u8]], outs: &mut [&mut [u8]]) {
        assert_eq!(sources.len(), self.terms, "one source for each term");
        let sums = self.passes.iter().filter(|pass| !pass.copies).count();
        let strip = if sums <= 1 { usize::MAX } else { STRIP_BYTES };
        self.sweep(strip, sources, outs, |pass, sources, targets| {
            let terms: Vec<&[u8]> = pass.terms.iter().map(|term| sources[*term]).collect();
            if pass.copies {
                targets[0].copy_from_slice(terms[0]);
            } else if terms.len() <= TERMS_MAX {
                kernel::combine(tier, &pass.matrix, &terms, targets);
            } else {
                targets.iter_mut().for_each(|target| target.fill(0));
                for (part, terms) in terms.chunks(TERMS_MAX).enumerate() {
                    kernel::accumulate(tier, &pass.matrix, part * TERMS_MAX, terms, targets);
                }
            }
        });
    }

    /// outs\[r\] += sum over t of rows\[r\]\[first + t\] * sources\[t\].
    ///
    /// # Panics
    /// If there are more sources than terms from `first` on, or more than [`TERMS_MAX`], or lengths differ.
    pub(crate) fn add(&self, tier: Tier, first: usize, sources: &[&[u8]], outs: &mut [&mut [u8]]) {
        let part = first..first + sources.len();
        assert!(part.end <= self.terms, "as many sources as terms from the first on");
        self.sweep(STRIP_BYTES, sources, outs, |pass, sources, targets| {
            let skipped = pass.terms.partition_point(|term| *term < part.start);
            let terms = pass.terms[skipped..].iter().take_while(|term| **term < part.end);
            let terms: Vec<&[u8]> = terms.map(|term| sources[term - part.start]).collect();
            if !terms.is_empty() {
                kernel::accumulate(tier, &pass.matrix, skipped, &terms, targets);
            }
        });
    }

    /// Calls `sum` for each strip and pass with the strip's part of all sources and of the pass' targets.
    fn sweep(
        &self,
        strip: usize,
        sources: &[&[u8]],
        outs: &mut [&mut [u8]],
        sum: impl Fn(&Pass, &[&[u8]], &mut [&mut [u8]]),
    ) {
        assert_eq!(outs.len(), self.rows, "one buffer for each row");
        let Some(bytes) = outs.first().map(|out| out.len()) else {
            return;
        };
        assert!(sources.iter().all(|source| source.len() == bytes), "sources differ in length from targets");
        assert!(outs.iter().all(|out| out.len() == bytes), "targets differ in length");
        let mut at = 0;
        while at < bytes {
            let part = at..bytes.min(at.saturating_add(strip));
            at = part.end;
            let sources: Vec<&[u8]> = sources.iter().map(|source| &source[part.clone()]).collect();
            let mut targets: Vec<Option<&mut [u8]>> = outs.iter_mut().map(|out| Some(&mut out[part.clone()])).collect();
            for pass in &self.passes {
                let take = |row: &usize| targets[*row].take().expect("a row is in one pass");
                sum(pass, &sources, &mut pass.rows.iter().map(take).collect::<Vec<_>>());
            }
        }
    }
}

/// Bytes of one buffer handled at once where several passes share sources: a dozen such fit the first cache.
const STRIP_BYTES: usize = 4096;
