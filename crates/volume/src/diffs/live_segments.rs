//! The segments of the log that something is needed in.
//!
//! Invariant: a segment has a place in the table from when it is held first until nobody holds it any more, always the same one; what
//! holds it may name it by that, in four bytes.

use std::collections::BTreeMap;

/// A table of them.
#[derive(Debug, Default)]
pub(super) struct LiveSegments {
    live: BTreeMap<u64, Live>,
    /// Numbers of segments, by their places; anything where there is none now.
    numbers: Vec<u64>,
    /// Places without a segment.
    free: Vec<u32>,
}

#[derive(Debug)]
struct Live {
    place: u32,
    /// How often it is held: at least once.
    held: u64,
}

impl LiveSegments {
    /// A segment is held once more. Returns its place.
    pub(super) fn hold(&mut self, number: u64) -> u32 {
        if let Some(live) = self.live.get_mut(&number) {
            live.held += 1;
            return live.place;
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.numbers.push(number);
            u32::try_from(self.numbers.len() - 1).expect("a log has fewer segments")
        });
        self.numbers[place as usize] = number;
        self.live.insert(number, Live { place, held: 1 });
        place
    }

    /// It is held once less.
    ///
    /// # Panics
    /// If it is not held.
    pub(super) fn release(&mut self, number: u64) {
        let live = self.live.get_mut(&number).expect("who is in a segment holds it");
        live.held -= 1;
        if live.held == 0 {
            self.free.push(live.place);
            self.live.remove(&number);
        }
    }

    /// The number of the segment at a place.
    pub(super) fn number(&self, place: u32) -> u64 {
        self.numbers[place as usize]
    }

    /// The one with the lowest number.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.live.keys().next().copied()
    }

    /// How often a segment is held.
    pub(super) fn held(&self, number: u64) -> u64 {
        self.live.get(&number).map_or(0, |live| live.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_keeps_its_place_while_it_is_held() {
        let mut segments = LiveSegments::default();
        let (first, second) = (segments.hold(7 << 40), segments.hold(3));
        assert_eq!((segments.hold(7 << 40), segments.number(first), segments.number(second)), (first, 7 << 40, 3));
        assert_eq!((segments.oldest(), segments.held(7 << 40), segments.held(4)), (Some(3), 2, 0));
        [7 << 40, 3].into_iter().for_each(|number| segments.release(number));
        assert_eq!((segments.oldest(), segments.held(3), segments.number(first)), (Some(7 << 40), 0, 7 << 40));
        // Another one takes the place that is free.
        assert_eq!((segments.hold(9), segments.number(second), segments.numbers.len()), (second, 9, 2));
    }
}
