//! Matrix times buffers: encoding, decoding, adding to sums that are there, deltas.
//!
//! A matrix is made ready once: rows with the same terms form a group, and a group is summed in one pass over its own
//! terms. So a zero costs nothing where it is one of many (local groups, rows and columns), and a row of ones is a
//! plain XOR.
//!
//! Invariants:
//! 1. Nothing but making a matrix allocates.
//! 2. How sums are cut into groups, strips and passes and how those write changes no byte of the result.
//! 3. A matrix' groups hold each row once, and no row or term that it has not.

use std::cmp::Reverse;

use super::{List, Manner, Pass, ROWS_MAX, Start, TERMS_MAX, Tier};

/// A matrix over GF(2^8), ready to be multiplied with buffers: `rows` sums of `terms` products.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Matrix {
    rows: usize,
    terms: usize,
    groups: Vec<Group>,
}

/// Up to [`ROWS_MAX`] rows that are summed together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    rows: Vec<u16>,
    /// Ascending; all others have coefficient 0 in these rows.
    terms: Vec<u16>,
    /// Term by term, one coefficient for each row.
    coefs: Vec<u8>,
    /// The first row's coefficients are all 1.
    plain_first: bool,
}

impl Matrix {
    /// From rows of `terms` coefficients.
    ///
    /// # Panics
    /// If a row has another number of coefficients, or there are more than 65,535 rows or terms.
    pub fn new(rows: &[Vec<u8>], terms: usize) -> Self {
        let mut groups: Vec<(Vec<u16>, Vec<u16>)> = Vec::new();
        for (row, coefs) in (0..).zip(rows) {
            assert_eq!(coefs.len(), terms, "one coefficient for each term");
            let used = || (0..count(terms)).filter(|term| coefs[usize::from(*term)] != 0);
            match groups.iter_mut().find(|(_, terms)| used().eq(terms.iter().copied())) {
                Some((sharing, _)) => sharing.push(row),
                None => groups.push((vec![row], used().collect())),
            }
        }
        let coef = |row: u16, term: u16| rows[usize::from(row)][usize::from(term)];
        let groups = groups.into_iter().flat_map(|(rows, terms)| Group::cut(rows, &terms, coef)).collect();
        Self { rows: rows.len(), terms, groups }
    }

    /// From a function of row and term that is hardly ever 0: all rows take all terms.
    pub(crate) fn dense(rows: usize, terms: usize, coef: impl Fn(usize, usize) -> u8) -> Self {
        let all = (0..count(terms)).collect::<Vec<_>>();
        let groups = Group::cut((0..count(rows)).collect(), &all, |row, term| coef(row.into(), term.into()));
        Self { rows, terms, groups }
    }

    /// How many sums it makes.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many buffers it sums.
    pub fn terms(&self) -> usize {
        self.terms
    }

    /// The coefficient of a term in a row.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn coefficient(&self, row: usize, term: usize) -> u8 {
        let place = |group: &Group| group.rows.iter().position(|at| usize::from(*at) == row);
        let mut of_row = self.groups.iter().filter_map(|group| Some((group, place(group)?)));
        let (group, row) = of_row.next().expect("a row of the matrix");
        let term = group.terms.binary_search_by_key(&term, |term| usize::from(*term));
        term.map_or(0, |term| group.coefs[term * group.rows.len() + row])
    }

    /// outs\[r\] = sum over t of matrix\[r\]\[t\] * sources\[t\]; without terms, zeros.
    ///
    /// # Panics
    /// If counts differ from the matrix', lengths differ, or this machine has not got the tier.
    pub(crate) fn combine(&self, tier: Tier, sources: &[&[u8]], outs: &mut [&mut [u8]]) {
        assert_eq!(sources.len(), self.terms, "one source for each term");
        self.sum(tier, 0, sources, outs, false);
    }

    /// outs\[r\] += sum over t of matrix\[r\]\[first + t\] * sources\[t\].
    ///
    /// # Panics
    /// If the matrix has not so many terms or rows, lengths differ, or this machine has not got the tier.
    pub(crate) fn accumulate(&self, tier: Tier, first: usize, sources: &[&[u8]], outs: &mut [&mut [u8]]) {
        assert!(first + sources.len() <= self.terms, "one source for each term from the first on");
        self.sum(tier, first, sources, outs, true);
    }

    /// The sums of [`combine`](Self::combine), or of [`accumulate`](Self::accumulate) if the outs are `kept`.
    fn sum(&self, tier: Tier, first: usize, sources: &[&[u8]], outs: &mut [&mut [u8]], kept: bool) {
        assert_eq!(outs.len(), self.rows, "one buffer for each row");
        assert!(Tier::available().contains(&tier));
        let Some(bytes) = outs.first().map(|out| out.len()) else {
            return;
        };
        assert!(sources.iter().all(|source| source.len() == bytes), "sources differ in length from targets");
        assert!(outs.iter().all(|out| out.len() == bytes), "targets differ in length");

        let manner = if kept { Manner::default() } else { Manner::of(sources.len(), outs, bytes) };
        let strip = if self.groups.len() <= 1 { bytes } else { strip_bytes(sources.len()) };
        for at in (0..bytes).step_by(strip.max(1)) {
            for group in &self.groups {
                let part = Part { tier, manner, at, bytes: strip.min(bytes - at) };
                group.sum(&part, first, sources, outs, kept);
            }
        }
    }
}

/// Some bytes of all buffers.
struct Part {
    tier: Tier,
    manner: Manner,
    at: usize,
    bytes: usize,
}

impl Group {
    /// Groups of at most [`ROWS_MAX`] of the rows, which all have these terms.
    fn cut(mut rows: Vec<u16>, terms: &[u16], coef: impl Fn(u16, u16) -> u8) -> Vec<Self> {
        // A plain XOR comes first: the kernel has a cheaper first row.
        let is_plain = |row: u16| terms.iter().all(|term| coef(row, *term) == 1);
        rows.sort_by_key(|row| Reverse(is_plain(*row)));
        let group = |rows: &[u16]| Self {
            rows: rows.to_vec(),
            terms: terms.to_vec(),
            coefs: terms.iter().flat_map(|term| rows.iter().map(|row| coef(*row, *term))).collect(),
            plain_first: is_plain(rows[0]),
        };
        rows.chunks(ROWS_MAX).map(group).collect()
    }

    /// Sums those of the terms `first..` that `sources` hold.
    fn sum(&self, part: &Part, first: usize, sources: &[&[u8]], outs: &mut [&mut [u8]], kept: bool) {
        let place = |term: usize| self.terms.partition_point(|at| usize::from(*at) < term);
        let held = place(first)..place(first + sources.len());
        if held.is_empty() && kept {
            return;
        }
        let mut targets: List<*mut u8, ROWS_MAX> = List::new();
        targets.extend(self.rows.iter().map(|row| outs[usize::from(*row)][part.at..][..part.bytes].as_mut_ptr()));
        let mut singles: List<*const u8, TERMS_MAX> = List::new();
        let mut kept = kept;
        let mut from = held.start;
        loop {
            let terms = from..held.end.min(from + TERMS_MAX);
            from = terms.end;
            let stride = self.rows.len();
            let coefs = &self.coefs[terms.start * stride..terms.end * stride];
            singles.clear();
            let source = |term: &u16| sources[usize::from(*term) - first][part.at..][..part.bytes].as_ptr();
            singles.extend(self.terms[terms].iter().map(source));
            let singles = singles.as_slice();
            let start = if kept { Start::Targets } else { Start::fresh(singles, &coefs[..stride.min(coefs.len())]) };
            let manner = if kept { Manner::default() } else { part.manner };
            let (targets, plain_first) = (targets.as_slice(), self.plain_first);
            let (pairs, bytes) = (&[][..], part.bytes);
            let pass = Pass { singles, pairs, coefs, stride, first: 0, plain_first, start, manner, targets, bytes };
            // SAFETY: every pointer starts a part of `bytes` bytes of a live buffer, targets are distinct exclusive
            // borrows since a group holds a row once, coefs has `stride` rows for each term, and `sum` checked the tier.
            unsafe { pass.run(part.tier) };
            kept = true;
            if from == held.end {
                return;
            }
        }
    }
}

/// parity += coefficient * delta.
///
/// # Panics
/// If the lengths differ.
pub(crate) fn add_product(tier: Tier, coefficient: u8, delta: &[u8], parity: &mut [u8]) {
    assert_eq!(delta.len(), parity.len(), "delta and parity differ in length");
    assert!(Tier::available().contains(&tier));
    let pass = Pass {
        singles: &[delta.as_ptr()],
        pairs: &[],
        coefs: &[coefficient],
        stride: 1,
        first: 0,
        plain_first: coefficient == 1,
        start: Start::Targets,
        manner: Manner::default(),
        targets: &[parity.as_mut_ptr()],
        bytes: delta.len(),
    };
    // SAFETY: both buffers hold `bytes` bytes, the target is exclusively borrowed, one coefficient is there for the one
    // term, and the tier is available.
    unsafe { pass.run(tier) };
}

/// How much of each source is summed at once where several passes share them, so that it stays in the first cache.
fn strip_bytes(sources: usize) -> usize {
    (L1_SHARE / sources.max(1)).next_multiple_of(256).min(4096)
}

/// What sources may fill of a first cache: 32 KiB at least on all machines of note.
const L1_SHARE: usize = 24 << 10;

fn count(len: usize) -> u16 {
    u16::try_from(len).expect("at most 65,535 rows and terms")
}
