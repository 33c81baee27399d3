//! What a trace touches, numbered anew without gaps: of a volume of terabytes a week touches little.
//!
//! ```text
//!   numbers touched       3 4 5   9    20 21          units, such as stripes or pages
//!   numbered anew         0 1 2   3     4  5
//! ```
//!
//! Invariants:
//! 1. Order stays, and so does being neighbours: a request that touches several units touches neighbours afterwards.

use std::ops::Range;

use crate::trace::Request;

/// Touched units of several volumes, numbered anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compact {
    /// Ascending, none touching the next.
    rows: Vec<Row>,
    units: u64,
}

/// Units that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    volume: u64,
    first: u64,
    end: u64,
    /// The new number of the first.
    base: u64,
}

impl Compact {
    /// Numbers what is touched, given as volumes and units.
    pub fn of(touched: impl Iterator<Item = (u64, Range<u64>)>) -> Compact {
        let mut rows: Vec<Row> = Vec::new();
        let mut bound = ROWS_MIN;
        for (volume, units) in touched.filter(|(_, units)| !units.is_empty()) {
            match rows.last() {
                Some(last) if last.volume == volume && last.first <= units.start && units.end <= last.end => continue,
                _ => rows.push(Row { volume, first: units.start, end: units.end, base: 0 }),
            }
            if rows.len() >= bound {
                merge(&mut rows);
                bound = ROWS_MIN.max(2 * rows.len());
            }
        }
        merge(&mut rows);
        let mut units = 0;
        for row in &mut rows {
            row.base = units;
            units += row.end - row.first;
        }
        Compact { rows, units }
    }

    /// How many are touched.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// The new number of a unit.
    ///
    /// # Panics
    /// If it was not touched.
    pub fn number(&self, volume: u64, unit: u64) -> u64 {
        let behind = self.rows.partition_point(|row| (row.volume, row.first) <= (volume, unit));
        let row = behind.checked_sub(1).map(|at| self.rows[at]);
        let row = row.filter(|row| row.volume == volume && unit < row.end);
        let row = row.expect("only what was touched is asked for");
        row.base + unit - row.first
    }
}

/// Sorts rows, and makes one of those that touch each other.
fn merge(rows: &mut Vec<Row>) {
    rows.sort_unstable();
    rows.dedup_by(|next, row| {
        let is_joined = next.volume == row.volume && next.first <= row.end;
        if is_joined {
            row.end = row.end.max(next.end);
        }
        is_joined
    });
}

/// Units of `unit_bytes` that a request touches.
pub(crate) fn units(request: &Request, unit_bytes: u64) -> Range<u64> {
    if request.bytes == 0 {
        return 0..0;
    }
    request.offset / unit_bytes..(request.end() - 1) / unit_bytes + 1
}

/// Puts the stripes of `stripe_bytes` that these requests touch, of all their volumes, side by side on one device in their
/// order, with what is in each left where it is. Returns the device's length.
pub fn side_by_side(requests: &mut [Request], stripe_bytes: u64) -> u64 {
    let stripes = Compact::of(requests.iter().map(|request| (request.volume, units(request, stripe_bytes))));
    for request in requests.iter_mut().filter(|request| request.bytes > 0) {
        let stripe = stripes.number(request.volume, request.offset / stripe_bytes);
        (request.volume, request.offset) = (0, stripe * stripe_bytes + request.offset % stripe_bytes);
    }
    stripes.units() * stripe_bytes
}

/// Rows are merged when there are so many.
const ROWS_MIN: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn stripes_of_all_volumes_lie_side_by_side() {
        let request = |volume, offset, bytes| Request { at_us: 0, volume, offset, bytes, is_write: true };
        let mut requests = [request(7, 1005, 3), request(2, 95, 10), request(7, 3, 0), request(2, 500, 1)];
        assert_eq!(side_by_side(&mut requests, 100), 400);
        let placed: Vec<_> = requests.iter().map(|request| (request.volume, request.offset)).collect();
        assert_eq!(placed, [(0, 305), (0, 95), (7, 3), (0, 200)]);
    }

    proptest! {
        #[test]
        fn numbers_are_ranks(touched in prop::collection::vec((0u64..3, 0u64..50, 0u64..5), 0..60)) {
            let ranges = touched.iter().map(|(volume, first, units)| (*volume, *first..first + units));
            let compact = Compact::of(ranges.clone());
            let all: BTreeSet<(u64, u64)> =
                ranges.flat_map(|(volume, units)| units.map(move |unit| (volume, unit))).collect();
            prop_assert_eq!(compact.units(), all.len() as u64);
            for (rank, (volume, unit)) in all.into_iter().enumerate() {
                prop_assert_eq!(compact.number(volume, unit), rank as u64);
            }
        }
    }
}
