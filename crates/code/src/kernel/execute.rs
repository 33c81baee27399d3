//! Runs programs.
//!
//! Invariants:
//! 1. All tiers do the same; with AVX-512 and GFNI runs and blends have kernels of their own (`coupled`).
//! 2. Long sub-chunks are run strip by strip, which changes nothing: bytes at different offsets never meet.
//! 3. Nothing is allocated: lists are on the stack, and scratch is kept for the thread's next call.

use super::{
    List, Manner, Pair, Pass, ROWS_MAX, STRIP_BYTES, Start, Stretch, TERMS_MAX, Tier,
    program::{BUFFERS_MAX, Blend, BlendHow, Column, PackedPair, Program, RunSpan, Slot, Target},
    scratch::{self, LINE_BYTES},
};
#[cfg(target_arch = "x86_64")]
use super::{
    coupled::{self, Run},
    manner::Ahead,
    third::Third,
};

impl Program {
    /// Runs all steps on one tile. `reads` and `targets` hold their planned sub-chunks of `sub_bytes` each.
    ///
    /// # Panics
    /// If a count or a length is not as planned.
    pub(crate) fn run<'a>(
        &self,
        tier: Tier,
        reads: &[&[u8]],
        targets: impl IntoIterator<Item = &'a mut [u8]>,
        sub_bytes: usize,
    ) {
        assert!(Tier::available().contains(&tier));
        assert_eq!(reads.len(), self.reads, "as many reads as planned");
        let (whole_subs, scratch_subs) = self.subs.split_at(self.subs.len() - self.scratch);
        let mut subs = whole_subs.iter();
        // Sources and targets are mixed in the steps, so all are kept as *mut; those of reads are never written through.
        let mut whole = |start: *mut u8, length: usize| {
            let subs = subs.next().expect("as many targets as planned");
            assert_eq!(length, usize::from(*subs) * sub_bytes, "{subs} sub-chunks of {sub_bytes} bytes");
            Buffer { start, sub_bytes }
        };
        let mut buffers: List<Buffer, BUFFERS_MAX> = List::new();
        buffers.extend(reads.iter().map(|read| whole(read.as_ptr().cast_mut(), read.len())));
        buffers.extend(targets.into_iter().map(|target| whole(target.as_mut_ptr(), target.len())));
        assert_eq!(buffers.as_slice().len(), whole_subs.len(), "as many targets as planned");

        let kept_subs: usize = scratch_subs.iter().map(|subs| usize::from(*subs)).sum();
        let strip_bytes = sub_bytes.min(strip_bytes(kept_subs));
        let scratch_bytes = kept_subs * strip_bytes;
        scratch::lend(scratch_bytes, |scratch| {
            let mut start = scratch.as_mut_ptr();
            for subs in scratch_subs {
                buffers.push(Buffer { start, sub_bytes: strip_bytes });
                start = start.wrapping_add(usize::from(*subs) * strip_bytes);
            }
            self.run_strips(tier, buffers.as_mut_slice(), sub_bytes, strip_bytes);
        });
    }

    /// Runs all steps, `strip_bytes` of each sub-chunk at a time.
    fn run_strips(&self, tier: Tier, buffers: &mut [Buffer], sub_bytes: usize, strip_bytes: usize) {
        #[cfg(target_arch = "x86_64")]
        let touched = self.subs.iter().map(|subs| usize::from(*subs) * sub_bytes).sum();
        for at in (0..sub_bytes).step_by(strip_bytes.max(1)) {
            let bytes = strip_bytes.min(sub_bytes - at);
            let strip = Strip { buffers, bytes, is_whole: bytes == sub_bytes };
            match tier {
                #[cfg(target_arch = "x86_64")]
                Tier::Avx512Gfni => self.run_coupled(&strip, touched),
                _ => self.run_passes(tier, &strip),
            }
            // Scratch holds one strip only, so it stays.
            for buffer in &mut buffers[..self.subs.len() - self.scratch] {
                buffer.start = buffer.start.wrapping_add(bytes);
            }
        }
    }

    /// Runs and blends as passes, which all tiers have.
    fn run_passes(&self, tier: Tier, strip: &Strip) {
        let mut singles: List<*const u8, TERMS_MAX> = List::new();
        let mut pairs: List<Pair, TERMS_MAX> = List::new();
        let mut targets: List<*mut u8, ROWS_MAX> = List::new();
        let mut coefs: List<u8, { TERMS_MAX * ROWS_MAX }> = List::new();
        let mut rest = Rest::new(self);
        for run in &self.runs {
            let parts = rest.next(run);
            coefs.clear();
            let columns = parts.singles.iter().map(|(_, column)| *column);
            for column in columns.chain(parts.pairs.iter().map(|pair| pair.column)) {
                let rows = usize::from(run.plain_first)..parts.targets.len();
                coefs.extend(self.coefs[column.0 as usize..][rows].iter().copied());
            }
            for (first, bytes) in strip.passes(run.count) {
                singles.clear();
                singles.extend(parts.singles.iter().map(|(slot, _)| strip.resolve(*slot, first).cast_const()));
                pairs.clear();
                pairs.extend(parts.pairs.iter().map(|pair| Pair {
                    near: strip.resolve(pair.near, first),
                    far: strip.resolve(pair.far, first),
                    factor: pair.factor,
                }));
                targets.clear();
                targets.extend(parts.targets.iter().map(|target| strip.resolve(target.slot, first)));
                let (singles, pairs, targets) = (singles.as_slice(), pairs.as_slice(), targets.as_slice());
                let end = singles.len() + pairs.len();
                let plain = run.plain_first.then(|| Stretch { target: targets[0], end });
                let plain = plain.as_slice();
                let sums = pass(singles, pairs, plain, &targets[plain.len()..], coefs.as_slice(), bytes);
                // SAFETY: pointers are resolved slots with `bytes` bytes left in their sub-chunks; targets are no reads
                // and lie in exclusively borrowed buffers; slots are equal or disjoint, since a buffer's sub-chunks are,
                // and the builder keeps a run's sources from its other targets; the tier is available.
                unsafe { sums.run(tier) };
                for (target, Target { plus, .. }) in targets.iter().zip(parts.targets) {
                    let Some((plus, factor)) = plus else { continue };
                    let (plus, targets, coefs) = ([strip.resolve(*plus, first).cast_const()], [*target], [*factor]);
                    let pass = Pass { start: Start::Targets, ..pass(&plus, &[], &[], &targets, &coefs, bytes) };
                    // SAFETY: as above; the builder checked that no target of the run is added.
                    unsafe { pass.run(tier) };
                }
            }
            for Blend { a, b, how: BlendHow { own, other, both } } in parts.blends {
                let (a, b) = (strip.resolve(*a, 0), strip.resolve(*b, 0));
                let (targets, coefs) =
                    if *both { (&[a, b][..], [*own, *other, *other, *own]) } else { (&[a][..], [*own, *other, 0, 0]) };
                let sources = [a.cast_const(), b.cast_const()];
                let pass = pass(&sources, &[], &[], targets, &coefs[..2 * targets.len()], strip.bytes);
                // SAFETY: as above; the builder checked what is written, and a differs from b.
                unsafe { pass.run(tier) };
            }
        }
    }

    /// Runs and blends by their own kernels; all buffers together hold `touched` bytes.
    #[cfg(target_arch = "x86_64")]
    fn run_coupled(&self, strip: &Strip, touched: usize) {
        let mut rest = Rest::new(self);
        for run in &self.runs {
            let Parts { singles, pairs, targets, blends } = rest.next(run);
            let ahead = Ahead::of(Third::here(), touched, singles.len() + 2 * pairs.len());
            for (first, bytes) in strip.passes(run.count) {
                let (products, plain_first) = (&self.products[..], run.plain_first);
                let run = Run { strip, first, singles, pairs, targets, products, plain_first, ahead, bytes };
                // SAFETY: slots are in the strip's buffers and have `bytes` bytes left there; targets are no reads and lie in exclusively
                // borrowed buffers; slots are equal or disjoint, since a buffer's sub-chunks are, and the builder keeps a
                // run's sources from its other targets; a column has a matrix for each target; the tier is available.
                unsafe { run.run() };
            }
            for blends in blends.chunk_by(|a, b| a.how == b.how) {
                // SAFETY: as above; the builder checked what is written, and a differs from b.
                unsafe { coupled::blend(strip, blends, blends[0].how) };
            }
        }
    }
}

/// How much of each sub-chunk is run at once beside so many sub-chunks of scratch: less where these would fill more than
/// [`SCRATCH_BYTES`], as when one of four lost chunks of `clay:16+4:19` is decoded, but never less than four vectors.
fn strip_bytes(kept_subs: usize) -> usize {
    let fitting = SCRATCH_BYTES / kept_subs.max(1) / LINE_BYTES * LINE_BYTES;
    fitting.clamp(STRIP_BYTES_LEAST, STRIP_BYTES)
}

/// What a thread keeps as scratch, twice a second cache: with shorter strips one of four lost chunks of `clay:16+4:19` takes
/// half the time (sub-chunks of 4 KiB, a Xeon with a second cache of 2 MiB).
const SCRATCH_BYTES: usize = 4 << 20;

const STRIP_BYTES_LEAST: usize = 256;

/// The parts of a run.
struct Parts<'a> {
    singles: &'a [(Slot, Column)],
    pairs: &'a [PackedPair],
    targets: &'a [Target],
    blends: &'a [Blend],
}

/// What the runs so far have left of a program's flat arrays.
struct Rest<'a>(Parts<'a>);

impl<'a> Rest<'a> {
    fn new(program: &'a Program) -> Self {
        let Program { singles, pairs, targets, blends, .. } = program;
        Self(Parts { singles, pairs, targets, blends })
    }

    fn next(&mut self, run: &RunSpan) -> Parts<'a> {
        Parts {
            singles: take(&mut self.0.singles, run.singles.into()),
            pairs: take(&mut self.0.pairs, run.pairs.into()),
            targets: take(&mut self.0.targets, run.targets.into()),
            blends: take(&mut self.0.blends, run.blends as usize),
        }
    }
}

/// The first `count` items, which are taken off.
fn take<'a, T>(items: &mut &'a [T], count: usize) -> &'a [T] {
    let (taken, rest) = items.split_at(count);
    *items = rest;
    taken
}

/// The same bytes of every sub-chunk.
pub(super) struct Strip<'a> {
    buffers: &'a [Buffer],
    pub(super) bytes: usize,
    /// The strip is the whole sub-chunk.
    is_whole: bool,
}

/// Where the strip of a buffer's first sub-chunk is, and how far apart sub-chunks are.
#[derive(Clone, Copy)]
struct Buffer {
    start: *mut u8,
    sub_bytes: usize,
}

impl Strip<'_> {
    /// Where the strip of the `plus`-th sub-chunk from a slot on is.
    fn resolve(&self, slot: Slot, plus: u16) -> *mut u8 {
        assert!(usize::from(slot.buffer) < self.buffers.len(), "{slot:?} is in no buffer");
        // SAFETY: checked.
        unsafe { self.resolve_unchecked(slot, plus) }
    }

    /// The same. A kernel looks up a slot for every few products: with a check of each, a lost chunk of `clay:16+4:19` takes a tenth longer.
    ///
    /// # Safety
    /// The slot is in one of the buffers.
    #[inline]
    pub(super) unsafe fn resolve_unchecked(&self, slot: Slot, plus: u16) -> *mut u8 {
        // SAFETY: the caller's.
        let Buffer { start, sub_bytes } = unsafe { *self.buffers.get_unchecked(usize::from(slot.buffer)) };
        // The builder checked the slot and each that a run goes on with against the buffer's sub-chunks, and `run` the
        // buffer's length, so this lies inside the buffer.
        start.wrapping_add((usize::from(slot.sub) + usize::from(plus)) * sub_bytes)
    }

    /// The passes that a run of `count` sub-chunks takes, each with its first sub-chunk and bytes: one where the strip
    /// is the whole sub-chunk.
    fn passes(&self, count: u16) -> impl Iterator<Item = (u16, usize)> {
        let (passes, bytes) = if self.is_whole { (1, self.bytes * usize::from(count)) } else { (count, self.bytes) };
        (0..passes).map(move |first| (first, bytes))
    }
}

fn pass<'a>(
    singles: &'a [*const u8],
    pairs: &'a [Pair],
    plain: &'a [Stretch],
    targets: &'a [*mut u8],
    coefs: &'a [u8],
    bytes: usize,
) -> Pass<'a> {
    debug_assert!(singles.len() + pairs.len() <= TERMS_MAX);
    let start = Start::fresh(singles, coefs.get(..targets.len()).unwrap_or_default());
    Pass { singles, pairs, plain, targets, coefs, start, manner: Manner::PLAIN, bytes }
}
