//! Buffers for a cell: all in one allocation on huge pages, each on a cache line's start.
//!
//! Where buffers lie decides which of them share a way of a cache: of the same code by up to a third. So a cell's buffers lie at
//! some of [`PLACES`] places in turn, and its figure is the middle of what they give.
//!
//! Invariants:
//! 1. The buffers of a stripe lie one behind the other, sources first; stripes do too.
//! 2. All contenders of a cell work on the same buffers at the same places, so none has better ones.

use memmap2::{Advice, MmapMut};

/// One codeword's buffers.
#[derive(Debug)]
pub struct Stripe<'a> {
    /// What is read.
    pub sources: Vec<&'a [u8]>,
    /// What is written.
    pub targets: Vec<&'a mut [u8]>,
}

/// The stripes of a cell, used in turn by all contenders together: nobody finds in the cache what another just read, unless
/// there is but one stripe.
#[derive(Debug)]
pub struct Stripes<'a> {
    all: Vec<Stripe<'a>>,
    at: usize,
}

impl<'a> Stripes<'a> {
    /// Goes on with the `at`-th stripe.
    #[must_use]
    pub fn from(self, at: usize) -> Self {
        Self { at, ..self }
    }

    /// Which stripe's turn it is.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The stripe whose turn it is.
    pub fn next_stripe(&mut self) -> &mut Stripe<'a> {
        let at = self.at;
        self.at = if at + 1 == self.all.len() { 0 } else { at + 1 };
        &mut self.all[at]
    }
}

/// The sizes of a cell's buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of each source.
    pub sources: Vec<usize>,
    /// Bytes of each target.
    pub targets: Vec<usize>,
    /// How many such sets are used in turn: 1 leaves them in the cache that holds them, many make every run read memory.
    pub stripes: usize,
}

impl Layout {
    /// `k` sources and `m` targets of one size.
    pub fn even(k: usize, m: usize, bytes: usize) -> Self {
        Self { sources: vec![bytes; k], targets: vec![bytes; m], stripes: 1 }
    }

    /// No buffers: for work on plans.
    pub fn none() -> Self {
        Self { sources: Vec::new(), targets: Vec::new(), stripes: 1 }
    }

    /// As many stripes as fill `bytes`.
    pub fn filling(mut self, bytes: usize) -> Self {
        self.stripes = bytes.div_ceil(self.stripe_bytes());
        self
    }

    /// The same with the sources of another, if those are more: for contenders that read more.
    pub fn with_sources_of(mut self, other: Self) -> Self {
        if other.sources.len() > self.sources.len() {
            self.sources = other.sources;
        }
        self
    }

    fn stripe_bytes(&self) -> usize {
        self.sources.iter().chain(&self.targets).map(|bytes| bytes.next_multiple_of(LINE)).sum()
    }
}

/// The allocation.
#[derive(Debug)]
pub struct Arena {
    map: MmapMut,
}

impl Arena {
    /// Memory for a layout, filled with noise.
    ///
    /// # Errors
    /// The system has not enough memory.
    pub fn new(layout: &Layout) -> std::io::Result<Self> {
        let bytes = layout.stripes * layout.stripe_bytes() + 2 * HUGE_PAGE;
        let mut map = MmapMut::map_anon(bytes)?;
        // Without huge pages the figures are lower for all contenders alike, so a refusal is no error.
        #[cfg(target_os = "linux")]
        let _ = map.advise(Advice::HugePage);
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for bytes in map.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.copy_from_slice(&state.to_le_bytes());
        }
        Ok(Self { map })
    }

    /// The stripes of the layout that the arena was made for, at one of [`PLACES`] places, the number of which may go on for
    /// ever. Neighbours have most of their memory in common.
    ///
    /// # Panics
    /// If it was made for a smaller one.
    pub fn stripes(&mut self, layout: &Layout, place: usize) -> Stripes<'_> {
        let to_page = self.map.as_ptr().align_offset(HUGE_PAGE);
        let to_place = place % PLACES * PAGES_APART % PLACES * PAGE;
        let mut rest = &mut self.map[to_page + to_place..];
        let mut cut = |bytes: usize| {
            let (buffer, after) = std::mem::take(&mut rest).split_at_mut(bytes.next_multiple_of(LINE));
            rest = after;
            &mut buffer[..bytes]
        };
        let stripe = |_| Stripe {
            sources: layout.sources.iter().map(|bytes| &*cut(*bytes)).collect(),
            targets: layout.targets.iter().map(|bytes| cut(*bytes)).collect(),
        };
        Stripes { all: (0..layout.stripes).map(stripe).collect(), at: 0 }
    }
}

const LINE: usize = 64;
const PAGE: usize = 4 << 10;
const HUGE_PAGE: usize = 2 << 20;

/// Places of an arena: the pages of a huge one.
pub const PLACES: usize = HUGE_PAGE / PAGE;

/// Pages from one place to the next: odd, so that all have their turn.
const PAGES_APART: usize = 37;

#[cfg(test)]
mod tests {
    use super::{Arena, Layout, PAGE, PLACES};

    #[test]
    fn buffers_are_aligned_and_follow_each_other() {
        let layout = Layout { sources: vec![100, 64], targets: vec![1], stripes: 2 };
        let mut arena = Arena::new(&layout).expect("little memory");
        let mut stripes = arena.stripes(&layout, 0);
        let mut starts: Vec<usize> = Vec::new();
        for _ in 0..2 {
            let stripe = stripes.next_stripe();
            starts.extend(stripe.sources.iter().map(|source| source.as_ptr().addr()));
            starts.extend(stripe.targets.iter().map(|target| target.as_ptr().addr()));
        }
        let offsets: Vec<usize> = starts.iter().map(|start| start - starts[0]).collect();
        assert_eq!(offsets, [0, 128, 192, 256, 384, 448]);
        assert_eq!(starts[0] % (2 << 20), 0);
        assert_ne!(stripes.all[0].sources[0], stripes.all[1].sources[0]);
        assert_eq!(stripes.next_stripe().sources[0].as_ptr().addr(), starts[0]);
        assert_eq!(stripes.at(), 1);
        let mut stripes = arena.stripes(&layout, 0).from(1);
        assert_eq!(stripes.next_stripe().sources[0].as_ptr().addr(), starts[3]);
    }

    #[test]
    fn every_page_of_a_huge_one_is_a_place() {
        let layout = Layout::even(1, 1, 100);
        let mut arena = Arena::new(&layout).expect("little memory");
        let mut start = |place| arena.stripes(&layout, place).next_stripe().sources[0].as_ptr().addr();
        let first = start(0);
        assert_eq!(start(PLACES), first);
        let mut apart: Vec<usize> = (0..PLACES).map(|place| start(place) - first).collect();
        apart.sort_unstable();
        assert!(apart.iter().copied().eq((0..PLACES).map(|page| page * PAGE)));
    }

    #[test]
    fn a_layout_fills_what_is_asked_for() {
        assert_eq!(Layout::even(10, 4, 1 << 20).filling(640 << 20).stripes, 46);
    }
}
