//! Runs programs.
//!
//! Invariants:
//! 1. All tiers do the same; with AVX-512 and GFNI runs and blends have kernels of their own (`coupled`).
//! 2. Long sub-chunks are run strip by strip, which changes nothing: bytes at different offsets never meet.

#[cfg(target_arch = "x86_64")]
use super::coupled::{self, Run};
use super::{
    Manner, Pair, Pass, STRIP_BYTES, Start, Stretch, TERMS_MAX, Tier,
    program::{Blend, BlendHow, Column, PackedPair, Program, RunSpan, Slot},
};

impl Program {
    /// Runs all steps on one tile. `reads` and `targets` hold their planned sub-chunks of `sub_bytes` each.
    ///
    /// # Panics
    /// If a count or a length is not as planned.
    pub(crate) fn run(&self, tier: Tier, reads: &[&[u8]], targets: &mut [&mut [u8]], sub_bytes: usize) {
        assert!(Tier::available().contains(&tier));
        assert_eq!(reads.len(), self.reads, "as many reads as planned");
        assert_eq!(reads.len() + targets.len() + self.scratch, self.subs.len(), "as many targets as planned");
        let lengths = reads.iter().map(|read| read.len()).chain(targets.iter().map(|target| target.len()));
        for (length, subs) in lengths.zip(&self.subs) {
            assert_eq!(length, usize::from(*subs) * sub_bytes, "{subs} sub-chunks of {sub_bytes} bytes");
        }

        let strip_max = sub_bytes.min(STRIP_BYTES);
        let scratch_subs = &self.subs[self.subs.len() - self.scratch..];
        let mut scratch: Vec<Vec<u8>> =
            scratch_subs.iter().map(|subs| vec![0; usize::from(*subs) * strip_max]).collect();
        // Sources and targets are mixed in the steps, so all are kept as *mut; those of reads are never written through.
        let whole = |start| Buffer { start, sub_bytes };
        let whole = (reads.iter().map(|read| whole(read.as_ptr().cast_mut())))
            .chain(targets.iter_mut().map(|target| whole(target.as_mut_ptr())));
        let scratch = scratch.iter_mut().map(|part| Buffer { start: part.as_mut_ptr(), sub_bytes: strip_max });
        let mut strip = Strip { buffers: whole.chain(scratch).collect(), bytes: strip_max, is_whole: true };
        for at in (0..sub_bytes).step_by(strip_max.max(1)) {
            strip.bytes = strip_max.min(sub_bytes - at);
            strip.is_whole = strip.bytes == sub_bytes;
            match tier {
                #[cfg(target_arch = "x86_64")]
                Tier::Avx512Gfni => self.run_coupled(&strip),
                _ => self.run_passes(tier, &strip),
            }
            // Scratch holds one strip only, so it stays.
            for buffer in &mut strip.buffers[..self.subs.len() - self.scratch] {
                buffer.start = buffer.start.wrapping_add(strip.bytes);
            }
        }
    }

    /// Runs and blends as passes, which all tiers have.
    fn run_passes(&self, tier: Tier, strip: &Strip) {
        let (mut singles, mut pairs, mut targets) = (Vec::new(), Vec::new(), Vec::new());
        let mut coefs = Vec::new();
        let mut rest = Rest::new(self);
        for run in &self.runs {
            let parts = rest.next(run);
            coefs.clear();
            let columns = parts.singles.iter().map(|(_, column)| *column);
            for column in columns.chain(parts.pairs.iter().map(|pair| pair.column)) {
                let rows = usize::from(run.plain_first)..parts.targets.len();
                coefs.extend_from_slice(&self.coefs[column.0 as usize..][rows]);
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
                targets.extend(parts.targets.iter().map(|slot| strip.resolve(*slot, first)));
                let end = singles.len() + pairs.len();
                let plain = run.plain_first.then(|| Stretch { target: targets[0], end });
                let plain = plain.as_slice();
                let pass = pass(&singles, &pairs, plain, &targets[plain.len()..], &coefs, bytes);
                // SAFETY: pointers are resolved slots with `bytes` bytes left in their sub-chunks; targets are no reads
                // and lie in exclusively borrowed buffers; slots are equal or disjoint, since a buffer's sub-chunks are,
                // and the builder keeps a run's sources from its other targets; the tier is available.
                unsafe { pass.run(tier) };
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

    /// Runs and blends by their own kernels.
    #[cfg(target_arch = "x86_64")]
    fn run_coupled(&self, strip: &Strip) {
        let mut rest = Rest::new(self);
        for run in &self.runs {
            let Parts { singles, pairs, targets, blends } = rest.next(run);
            for (first, bytes) in strip.passes(run.count) {
                let (products, plain_first) = (&self.products[..], run.plain_first);
                let run = Run { strip, first, singles, pairs, targets, products, plain_first, bytes };
                // SAFETY: slots have `bytes` bytes left in their buffers; targets are no reads and lie in exclusively
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

/// The parts of a run.
struct Parts<'a> {
    singles: &'a [(Slot, Column)],
    pairs: &'a [PackedPair],
    targets: &'a [Slot],
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
pub(super) struct Strip {
    buffers: Vec<Buffer>,
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

impl Strip {
    /// Where the strip of the `plus`-th sub-chunk from a slot on is.
    #[inline]
    pub(super) fn resolve(&self, slot: Slot, plus: u16) -> *mut u8 {
        let Buffer { start, sub_bytes } = self.buffers[usize::from(slot.buffer)];
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
    Pass { singles, pairs, plain, targets, coefs, start, manner: Manner::default(), bytes }
}
