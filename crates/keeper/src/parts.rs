//! What a bucket takes that is looked at in parts.
//!
//! Invariants:
//! 1. BucketParts follow each other: each is what was found behind the end of the one before.
//! 2. [`BucketParts::whole`] is of a bucket that was gone through once; behind the part that was looked at last it has those of the time before.
//!
//! Left out: what comes or goes meanwhile moves the ends of parts, so that until the bucket was gone through again some stripes count
//! twice or not at all. When the part at the end was looked at, all are of one time, and each stripe that was there counts.

use claystone_meta::SpanPlace;
use claystone_stripe::TakenBefore;

use crate::conversions::Space;

/// A part of a bucket, as it was looked at last.
#[derive(Debug, Clone)]
pub(crate) struct BucketPart {
    /// Behind which it begins; `None`: it is the first.
    pub(crate) after: Option<SpanPlace>,
    /// What it takes.
    pub(crate) space: Space,
    /// Conversions that are planned in it.
    pub(crate) left: u64,
    /// What of the bucket's room was taken before it was looked at.
    pub(crate) taken_before: TakenBefore,
    /// The excess of parts of uploads that were not complete before it was looked at.
    pub(crate) uploads_excess_bytes: u64,
}

/// The parts of a bucket; one that was looked at at once has one.
#[derive(Debug, Clone, Default)]
pub(crate) struct BucketParts {
    /// In their order.
    seen: Vec<BucketPart>,
    /// Which was looked at last.
    last: usize,
    /// Each was looked at.
    whole: bool,
}

impl BucketParts {
    /// Takes the part that was looked at behind the last one, or the first. `is_end`: there is none behind it.
    pub(crate) fn add(&mut self, part: BucketPart, is_end: bool) {
        self.last = if part.after.is_none() { 0 } else { (self.last + 1).min(self.seen.len()) };
        match self.seen.get_mut(self.last) {
            Some(known) => *known = part,
            None => self.seen.push(part),
        }
        if is_end {
            self.seen.truncate(self.last + 1);
            self.whole = true;
        }
    }

    /// In the part that was looked at last so many conversions are left.
    pub(crate) fn set_left(&mut self, left: u64) {
        if let Some(part) = self.seen.get_mut(self.last) {
            part.left = left;
        }
    }

    /// Whether each of them was looked at.
    pub(crate) fn whole(&self) -> bool {
        self.whole
    }

    /// What they take together.
    pub(crate) fn space(&self) -> Space {
        self.seen.iter().map(|part| part.space).sum()
    }

    /// What of the bucket's room was taken before any of them was looked at.
    pub(crate) fn taken_before(&self) -> TakenBefore {
        self.seen.iter().map(|part| part.taken_before).min().unwrap_or_default()
    }

    /// The most that parts of uploads took before any of them was looked at: what was completed since may lie in one that was looked at before.
    pub(crate) fn uploads_excess_bytes(&self) -> u64 {
        self.seen.iter().map(|part| part.uploads_excess_bytes).max().unwrap_or(0)
    }

    /// Conversions that are left in them.
    pub(crate) fn left(&self) -> u64 {
        self.seen.iter().map(|part| part.left).sum()
    }

    /// Where the part begins in which the object of this key does; `None`: at the first object.
    pub(crate) fn begin_of(&self, key: &str) -> Option<SpanPlace> {
        let mut begins = self.seen.iter().filter_map(|part| part.after.as_ref());
        begins.rfind(|after| after.key.as_str() < key).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(after: Option<&str>, bytes: u64) -> BucketPart {
        let after = after.map(|key| SpanPlace { key: key.to_owned(), sequence: 1, position: 0 });
        let space = Space { data_bytes: bytes, fast_bytes: 2 * bytes, ..Space::default() };
        BucketPart { after, space, left: bytes, taken_before: TakenBefore::default(), uploads_excess_bytes: 0 }
    }

    #[test]
    fn a_bucket_takes_what_its_parts_take_together() {
        let mut parts = BucketParts::default();
        parts.add(part(None, 1), false);
        parts.add(part(Some("f"), 10), false);
        assert_eq!((parts.whole(), parts.space().data_bytes, parts.left()), (false, 11, 11));
        parts.add(part(Some("p"), 100), true);
        assert_eq!((parts.whole(), parts.space().fast_bytes, parts.left()), (true, 222, 111));
        parts.set_left(5);
        assert_eq!(parts.left(), 16);
        let begins = ["a", "f", "g", "p", "q"].map(|key| parts.begin_of(key).map(|after| after.key));
        let [f, p] = ["f", "p"].map(|key| Some(key.to_owned()));
        assert_eq!(begins, [None, None, f.clone(), f, p]);
        // It is gone through again, and has become shorter.
        parts.add(part(None, 2), false);
        assert_eq!((parts.whole(), parts.space().data_bytes), (true, 112));
        parts.add(part(Some("h"), 20), true);
        assert_eq!((parts.whole(), parts.space().data_bytes, parts.left()), (true, 22, 22));
        parts.add(part(None, 7), true);
        assert_eq!((parts.whole(), parts.space().data_bytes), (true, 7));
    }
}
