//! Matrix times buffers: encoding, decoding, adding to sums that are there, deltas.
//!
//! A matrix is made ready once: rows with the same terms form a group, and a group is summed in one pass over its own
//! terms. So a zero costs nothing where it is one of many (local groups, rows and columns), and a row of ones is a
//! plain XOR. Rows of ones that take the terms of a group one after another, as the local parities of an LRC do those of
//! its global ones, or the row parities of a product code those of its corner, join it as stretches of one plain row: the
//! sources are read once for all.
//!
//! Invariants:
//! 1. Nothing but making a matrix allocates (tested: `tests/allocations.rs`).
//! 2. How sums are cut into groups, strips and passes and how those write changes no byte of the result.
//! 3. A matrix' groups hold each row once, and no row or term that it has not.
//! 4. A group of several plain rows has at most [`TERMS_MAX`] terms, so that one pass sums it: each of its sums is either
//!    new or added to, as all others are.

use super::{
    List, Pass, ROWS_MAX, Start, Stretch, TERMS_MAX, Tier,
    manner::{Extent, Manner},
    third::Third,
};

/// A matrix over GF(2^8), ready to be multiplied with buffers: `rows` sums of `terms` products.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Matrix {
    rows: usize,
    terms: usize,
    groups: Vec<Group>,
}

/// Rows that are summed together: up to [`ROWS_MAX`], where all plain ones count as one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    /// Ascending; all others have coefficient 0 in these rows.
    terms: Vec<u16>,
    /// None, or rows that together take each term once.
    plain: Vec<PlainRow>,
    /// The other rows, each of which takes all terms.
    rows: Vec<u16>,
    /// Term by term, one coefficient for each of `rows`.
    coefs: Vec<u8>,
}

/// A row of ones over some of a group's terms: those from the end of the plain row before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PlainRow {
    row: u16,
    /// The place after its last term.
    end: usize,
}

/// Rows with the same terms, of which one at most is told to be plain, and plain rows that join them.
struct Sharing {
    terms: Vec<u16>,
    plain: Vec<PlainRow>,
    rows: Vec<u16>,
}

impl Matrix {
    /// From rows of `terms` coefficients.
    ///
    /// # Panics
    /// If a row has another number of coefficients, or there are more than 65,535 rows or terms.
    pub fn new(rows: &[Vec<u8>], terms: usize) -> Self {
        let mut sharing: Vec<(Vec<u16>, Vec<u16>)> = Vec::new();
        for (row, coefs) in (0..).zip(rows) {
            assert_eq!(coefs.len(), terms, "one coefficient for each term");
            let used = || (0..count(terms)).filter(|term| coefs[usize::from(*term)] != 0);
            match sharing.iter_mut().find(|(terms, _)| used().eq(terms.iter().copied())) {
                Some((_, rows)) => rows.push(row),
                None => sharing.push((used().collect(), vec![row])),
            }
        }
        let coef = |row: u16, term: u16| rows[usize::from(row)][usize::from(term)];
        let mut sharing: Vec<Sharing> =
            sharing.into_iter().map(|(terms, rows)| Sharing::new(terms, rows, coef)).collect();
        join(&mut sharing);
        Self { rows: rows.len(), terms, groups: sharing.iter().flat_map(|sharing| sharing.cut(coef)).collect() }
    }

    /// From a function of row and term that is hardly ever 0: all rows take all terms.
    pub(crate) fn dense(rows: usize, terms: usize, coef: impl Fn(usize, usize) -> u8) -> Self {
        let coef = |row: u16, term: u16| coef(row.into(), term.into());
        let sharing = Sharing::new((0..count(terms)).collect(), (0..count(rows)).collect(), coef);
        Self { rows, terms, groups: sharing.cut(coef) }
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
        let mut of_row = self.groups.iter().filter_map(|group| group.coefficient(row, term));
        of_row.next().expect("a row of the matrix")
    }

    /// outs\[r\] = sum over t of matrix\[r\]\[t\] * sources\[t\]; without terms, zeros.
    ///
    /// # Panics
    /// If counts differ from the matrix', lengths differ, or this machine has not got the tier.
    pub(crate) fn combine(&self, tier: Tier, sources: &[&[u8]], outs: &mut [&mut [u8]]) {
        self.combine_by(Third::here(), tier, sources, outs);
    }

    /// As [`combine`](Self::combine), where the third cache is of this kind.
    pub(super) fn combine_by(&self, third: Third, tier: Tier, sources: &[&[u8]], outs: &mut [&mut [u8]]) {
        assert_eq!(sources.len(), self.terms, "one source for each term");
        self.sum(third, tier, 0, sources, outs, false);
    }

    /// outs\[r\] += sum over t of matrix\[r\]\[first + t\] * sources\[t\].
    ///
    /// # Panics
    /// If the matrix has not so many terms or rows, lengths differ, or this machine has not got the tier.
    pub(crate) fn accumulate(&self, tier: Tier, first: usize, sources: &[&[u8]], outs: &mut [&mut [u8]]) {
        assert!(first + sources.len() <= self.terms, "one source for each term from the first on");
        self.sum(Third::here(), tier, first, sources, outs, true);
    }

    /// The sums of [`combine`](Self::combine), or of [`accumulate`](Self::accumulate) if the outs are `kept`.
    fn sum(&self, third: Third, tier: Tier, first: usize, sources: &[&[u8]], outs: &mut [&mut [u8]], kept: bool) {
        assert_eq!(outs.len(), self.rows, "one buffer for each row");
        assert!(Tier::available().contains(&tier));
        let Some(bytes) = outs.first().map(|out| out.len()) else {
            return;
        };
        assert!(sources.iter().all(|source| source.len() == bytes), "sources differ in length from targets");
        assert!(outs.iter().all(|out| out.len() == bytes), "targets differ in length");

        let is_shared = self.groups.len() > 1;
        let extent = Extent { sources: sources.len(), bytes, is_shared };
        let manner = Manner::of(third, extent, outs);
        let strip = if is_shared || sources.len() > manner.together { manner.strip } else { bytes };
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

impl Sharing {
    fn new(terms: Vec<u16>, mut rows: Vec<u16>, coef: impl Fn(u16, u16) -> u8) -> Self {
        let plain = rows.iter().position(|row| terms.iter().all(|term| coef(*row, *term) == 1));
        let plain = plain.map(|at| PlainRow { row: rows.remove(at), end: terms.len() });
        Self { plain: plain.into_iter().collect(), terms, rows }
    }

    fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.rows.is_empty()
    }

    /// Groups of as many of the rows as a group takes.
    fn cut(&self, coef: impl Fn(u16, u16) -> u8) -> Vec<Group> {
        let group = |plain: &[PlainRow], rows: &[u16]| Group {
            terms: self.terms.clone(),
            plain: plain.to_vec(),
            rows: rows.to_vec(),
            coefs: self.terms.iter().flat_map(|term| rows.iter().map(|row| coef(*row, *term))).collect(),
        };
        if self.plain.is_empty() {
            return self.rows.chunks(ROWS_MAX).map(|rows| group(&[], rows)).collect();
        }
        let (first, rest) = self.rows.split_at(self.rows.len().min(ROWS_MAX - 1));
        let rest = rest.chunks(ROWS_MAX).map(|rows| group(&[], rows));
        std::iter::once(group(&self.plain, first)).chain(rest).collect()
    }
}

/// Moves plain rows to rows that have none and whose terms they take one after another. A plain row alone over its terms
/// becomes one of those: the sources are read once less, which is more than its products cost.
fn join(sharing: &mut Vec<Sharing>) {
    for at in 0..sharing.len() {
        let Sharing { terms, plain, rows } = &sharing[at];
        let is_lone = rows.is_empty() && plain.len() == 1;
        if !(plain.is_empty() || is_lone) || terms.len() > TERMS_MAX {
            continue;
        }
        let mut left = &terms[..];
        let mut joining = Vec::new();
        let takes = |(from, Sharing { terms, plain, .. }): (usize, &Sharing), left: &[u16]| {
            from != at && !terms.is_empty() && plain.len() == 1 && left.starts_with(terms)
        };
        while !left.is_empty()
            && let Some(from) = sharing.iter().enumerate().position(|from| takes(from, left))
        {
            left = &left[sharing[from].terms.len()..];
            joining.push((from, terms.len() - left.len()));
        }
        if left.is_empty() && !joining.is_empty() {
            if is_lone {
                let lone = sharing[at].plain.remove(0).row;
                sharing[at].rows.push(lone);
            }
            let mut row = |from: usize| sharing[from].plain.remove(0).row;
            sharing[at].plain = joining.into_iter().map(|(from, end)| PlainRow { row: row(from), end }).collect();
        }
    }
    sharing.retain(|sharing| !sharing.is_empty());
}

impl Group {
    /// The coefficient of a term in a row, if it is one of the group's.
    fn coefficient(&self, row: usize, term: usize) -> Option<u8> {
        let term = self.terms.binary_search_by_key(&term, |term| usize::from(*term));
        if let Some(at) = self.plain.iter().position(|plain| usize::from(plain.row) == row) {
            let start = at.checked_sub(1).map_or(0, |before| self.plain[before].end);
            return Some(term.is_ok_and(|term| (start..self.plain[at].end).contains(&term)).into());
        }
        let row = self.rows.iter().position(|at| usize::from(*at) == row)?;
        Some(term.map_or(0, |term| self.coefs[term * self.rows.len() + row]))
    }

    /// Sums those of the terms `first..` that `sources` hold.
    fn sum(&self, part: &Part, first: usize, sources: &[&[u8]], outs: &mut [&mut [u8]], kept: bool) {
        let place = |term: usize| self.terms.partition_point(|at| usize::from(*at) < term);
        let held = place(first)..place(first + sources.len());
        if held.is_empty() && kept {
            return;
        }
        let mut target = |row: u16| outs[usize::from(row)][part.at..][..part.bytes].as_mut_ptr();
        let mut targets: List<*mut u8, ROWS_MAX> = List::new();
        targets.extend(self.rows.iter().map(|row| target(*row)));
        let mut plain: List<Stretch, TERMS_MAX> = List::new();
        let mut singles: List<*const u8, TERMS_MAX> = List::new();
        // Several plain rows need all terms in one pass.
        let together = if self.plain.len() > 1 { TERMS_MAX } else { part.manner.together };
        let mut kept = kept;
        let mut from = held.start;
        loop {
            let terms = from..held.end.min(from + together);
            from = terms.end;
            let coefs = &self.coefs[terms.start * targets.as_slice().len()..terms.end * targets.as_slice().len()];
            plain.clear();
            let mut start = terms.start;
            for row in &self.plain {
                let end = row.end.clamp(terms.start, terms.end);
                // A sum that gets no term here stays as it is; a new one has to become zeros.
                if end > start || !kept {
                    plain.push(Stretch { target: target(row.row), end: end - terms.start });
                }
                start = end;
            }
            singles.clear();
            let source = |term: &u16| sources[usize::from(*term) - first][part.at..][..part.bytes].as_ptr();
            singles.extend(self.terms[terms].iter().map(source));
            let singles = singles.as_slice();
            let (plain, targets, bytes) = (plain.as_slice(), targets.as_slice(), part.bytes);
            let of_first = &coefs[..targets.len().min(coefs.len())];
            let start = if kept { Start::Targets } else { Start::fresh(singles, of_first) };
            let manner = if kept { part.manner.adding() } else { part.manner };
            let pass = Pass { singles, pairs: &[], plain, targets, coefs, start, manner, bytes };
            // SAFETY: every pointer starts a part of `bytes` bytes of a live buffer; targets are distinct exclusive
            // borrows since a group holds a row once; stretches end where the group's plain rows do, of which the last
            // takes the last term; coefs has one for each term and target; and `sum` checked the tier.
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
    let (bytes, target) = (delta.len(), parity.as_mut_ptr());
    let (plain, targets, coefs) = match coefficient {
        1 => (&[Stretch { target, end: 1 }][..], &[][..], &[][..]),
        _ => (&[][..], &[target][..], &[coefficient][..]),
    };
    let (start, manner) = (Start::Targets, Manner::PLAIN);
    let pass = Pass { singles: &[delta.as_ptr()], pairs: &[], plain, targets, coefs, start, manner, bytes };
    // SAFETY: both buffers hold `bytes` bytes, the target is exclusively borrowed, the one term has a stretch or a
    // coefficient, and the tier is available.
    unsafe { pass.run(tier) };
}

/// parities\[r\] += sum over t of coefs\[t\]\[r\] * deltas\[t\].
///
/// # Panics
/// If the lengths differ.
pub(crate) fn add_products<const N: usize>(
    tier: Tier,
    coefs: [[u8; N]; N],
    deltas: [&[u8]; N],
    mut parities: [&mut [u8]; N],
) {
    const { assert!(0 < N && N <= ROWS_MAX) };
    assert!(Tier::available().contains(&tier));
    let bytes = deltas[0].len();
    assert!(deltas.iter().all(|delta| delta.len() == bytes), "deltas differ in length");
    assert!(parities.iter().all(|parity| parity.len() == bytes), "deltas and parities differ in length");
    let singles = deltas.map(<[u8]>::as_ptr);
    let targets = parities.each_mut().map(|parity| parity.as_mut_ptr());
    let (coefs, start, manner) = (coefs.as_flattened(), Start::Targets, Manner::PLAIN);
    let pass = Pass { singles: &singles, pairs: &[], plain: &[], targets: &targets, coefs, start, manner, bytes };
    // SAFETY: all buffers hold `bytes` bytes, the targets are exclusively borrowed, there are N coefficients for each of N
    // terms, and the tier is available.
    unsafe { pass.run(tier) };
}

fn count(len: usize) -> u16 {
    u16::try_from(len).expect("at most 65,535 rows and terms")
}

#[cfg(test)]
mod tests {
    use super::{Matrix, TERMS_MAX};

    /// How many passes a matrix takes whose rows have these coefficients over so many terms, each over a range.
    fn passes(terms: usize, rows: &[(std::ops::Range<usize>, u8)]) -> usize {
        let row = |(range, coef): &(std::ops::Range<usize>, u8)| {
            (0..terms).map(|term| if range.contains(&term) { *coef } else { 0 }).collect::<Vec<_>>()
        };
        Matrix::new(&rows.iter().map(row).collect::<Vec<_>>(), terms).groups.len()
    }

    #[test]
    fn plain_rows_that_take_the_terms_one_after_another_share_a_pass() {
        assert_eq!(passes(12, &[(0..6, 1), (6..12, 1), (0..12, 2), (0..12, 3)]), 1);
        assert_eq!(passes(12, &[(0..12, 2), (8..12, 1), (0..3, 1), (3..8, 1)]), 1, "in any order");
        assert_eq!(
            passes(12, &[(0..6, 1), (6..12, 1), (0..12, 2), (0..12, 1)]),
            3,
            "beside rows over all, one is plain"
        );
        assert_eq!(passes(12, &[(0..6, 1), (7..12, 1), (0..12, 2)]), 3, "a gap");
        assert_eq!(passes(12, &[(0..6, 1), (5..12, 1), (0..12, 2)]), 3, "an overlap");
        assert_eq!(passes(12, &[(0..6, 1), (6..12, 4), (0..12, 2)]), 3, "one that is not plain");
        let many = TERMS_MAX + 1;
        assert_eq!(passes(many, &[(0..6, 1), (6..many, 1), (0..many, 2)]), 3, "more terms than a pass takes");
        assert_eq!(passes(12, &[(0..6, 1), (6..12, 1), (0..12, 1)]), 1, "a plain row of all");
        assert_eq!(passes(12, &[(0..12, 1), (0..6, 1), (7..12, 1)]), 3, "a plain row of all, and a gap");
    }
}
