//! A fixed sequence of steps over sub-chunks, compiled once and run on any tile: how Clay touches bytes.
//!
//! Buffers are numbered: the reads, then the targets, then scratch. A slot is one sub-chunk of one buffer.
//!
//! Invariants:
//! 1. Every slot of a program lies inside its buffer: checked when the step is added.
//! 2. Steps run in order; within a step all terms of a column are read before its targets are written.
//! 3. Long sub-chunks are run strip by strip, which changes nothing: bytes at different offsets never meet.

use super::{List, Manner, Pair, Pass, ROWS_MAX, STRIP_BYTES, Start, TERMS_MAX, Tier};

/// One sub-chunk of one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot {
    /// Counted over reads, targets and scratch, in this order.
    pub(crate) buffer: u16,
    /// The sub-chunk within the buffer.
    pub(crate) sub: u16,
}

/// A source of a step: `near`, or `near + factor * far`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    pub(crate) near: Slot,
    pub(crate) far: Option<(Slot, u8)>,
    /// One for each target of the step.
    pub(crate) coefs: Vec<u8>,
}

/// targets\[r\] = sum over terms of coefs\[r\] * term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) targets: Vec<Slot>,
    pub(crate) terms: Vec<Term>,
}

/// The compiled steps. Flat arrays, since a program has up to thousands of steps.
#[derive(Debug)]
pub(crate) struct Program {
    reads: usize,
    /// Sub-chunks in each buffer.
    subs: Vec<u16>,
    scratch: usize,
    steps: Vec<StepSpan>,
    singles: Vec<Slot>,
    pairs: Vec<(Slot, Slot, u8)>,
    targets: Vec<Slot>,
    coefs: Vec<u8>,
}

/// How much of the flat arrays a step takes, after what the steps before it took.
#[derive(Clone, Copy, Debug)]
struct StepSpan {
    singles: u16,
    pairs: u16,
    targets: u16,
    /// The first target's coefficients are all 1.
    plain_first: bool,
}

/// Checks steps and packs them.
#[derive(Debug)]
pub(crate) struct ProgramBuilder {
    program: Program,
}

impl ProgramBuilder {
    /// For buffers with so many sub-chunks each.
    pub(crate) fn new(reads: &[u16], targets: &[u16], scratch: &[u16]) -> Self {
        Self {
            program: Program {
                reads: reads.len(),
                subs: [reads, targets, scratch].concat(),
                scratch: scratch.len(),
                steps: Vec::new(),
                singles: Vec::new(),
                pairs: Vec::new(),
                targets: Vec::new(),
                coefs: Vec::new(),
            },
        }
    }

    /// Adds a step.
    ///
    /// # Panics
    /// If a slot is outside its buffer, a target is a read, or there are too many terms.
    pub(crate) fn push(&mut self, step: &Step) {
        let program = &mut self.program;
        let inside = |slot: &Slot| {
            assert!(slot.sub < program.subs[usize::from(slot.buffer)], "{slot:?} is outside its buffer");
        };
        assert!(!step.targets.is_empty() && step.terms.len() <= TERMS_MAX);
        for (i, target) in step.targets.iter().enumerate() {
            inside(target);
            assert!(usize::from(target.buffer) >= program.reads, "{target:?} is a read");
            assert!(!step.targets[..i].contains(target), "{target:?} is written twice");
        }
        for term in &step.terms {
            inside(&term.near);
            term.far.iter().for_each(|(slot, _)| inside(slot));
            assert_eq!(term.coefs.len(), step.targets.len(), "one coefficient for each target");
        }
        let (pairs, singles): (Vec<&Term>, Vec<&Term>) = step.terms.iter().partition(|term| term.far.is_some());
        let count = |len: usize| u16::try_from(len).expect("within TERMS_MAX");
        // A pass holds ROWS_MAX rows. More rows take more passes over the same terms.
        for first in (0..step.targets.len()).step_by(ROWS_MAX) {
            let rows = first..(first + ROWS_MAX).min(step.targets.len());
            program.steps.push(StepSpan {
                singles: count(singles.len()),
                pairs: count(pairs.len()),
                targets: count(rows.len()),
                plain_first: step.terms.iter().all(|term| term.coefs[first] == 1),
            });
            program.targets.extend(&step.targets[rows.clone()]);
            program.singles.extend(singles.iter().map(|term| term.near));
            program
                .pairs
                .extend(pairs.iter().filter_map(|term| term.far.map(|(far, factor)| (term.near, far, factor))));
            for term in singles.iter().chain(&pairs) {
                program.coefs.extend(&term.coefs[rows.clone()]);
            }
        }
        // With several passes, a target of an earlier one must not be a source of a later one.
        let in_place = step.terms.iter().any(|term| step.targets.contains(&term.near));
        assert!(step.targets.len() <= ROWS_MAX || !in_place, "a wide step in place");
    }

    /// The finished program.
    pub(crate) fn finish(self) -> Program {
        self.program
    }
}

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
        let buffers: Vec<Buffer> = reads
            .iter()
            .map(|read| Buffer { start: read.as_ptr().cast_mut(), sub_bytes, moves: true })
            .chain(targets.iter_mut().map(|target| Buffer { start: target.as_mut_ptr(), sub_bytes, moves: true }))
            .chain(scratch.iter_mut().map(|part| Buffer {
                start: part.as_mut_ptr(),
                sub_bytes: strip_max,
                moves: false,
            }))
            .collect();
        for at in (0..sub_bytes).step_by(strip_max.max(1)) {
            self.run_strip(tier, &buffers, at, strip_max.min(sub_bytes - at));
        }
    }

    fn run_strip(&self, tier: Tier, buffers: &[Buffer], at: usize, bytes: usize) {
        let resolve = |slot: Slot| {
            let buffer = &buffers[usize::from(slot.buffer)];
            let offset = usize::from(slot.sub) * buffer.sub_bytes + if buffer.moves { at } else { 0 };
            // SAFETY: `push` checked the slot against the buffer's sub-chunks and `run` the buffer's length.
            unsafe { buffer.start.add(offset) }
        };
        let mut singles: List<*const u8, TERMS_MAX> = List::new();
        let mut pairs: List<Pair, TERMS_MAX> = List::new();
        let mut targets: List<*mut u8, ROWS_MAX> = List::new();
        let (mut single_slots, mut pair_slots) = (&self.singles[..], &self.pairs[..]);
        let (mut target_slots, mut coefs) = (&self.targets[..], &self.coefs[..]);
        for step in &self.steps {
            singles.clear();
            singles.extend(take(&mut single_slots, step.singles.into()).iter().map(|slot| resolve(*slot).cast_const()));
            pairs.clear();
            pairs.extend(take(&mut pair_slots, step.pairs.into()).iter().map(|(near, far, factor)| Pair {
                near: resolve(*near),
                far: resolve(*far),
                factor: *factor,
            }));
            targets.clear();
            targets.extend(take(&mut target_slots, step.targets.into()).iter().map(|slot| resolve(*slot)));
            let stride = usize::from(step.targets);
            let step_coefs = take(&mut coefs, (usize::from(step.singles) + usize::from(step.pairs)) * stride);
            let pass = Pass {
                singles: singles.as_slice(),
                pairs: pairs.as_slice(),
                coefs: step_coefs,
                stride,
                first: 0,
                plain_first: step.plain_first,
                start: Start::fresh(singles.as_slice(), step_coefs.get(..stride).unwrap_or_default()),
                manner: Manner::default(),
                targets: targets.as_slice(),
                bytes,
            };
            // SAFETY: pointers are resolved slots with `bytes` bytes left in their sub-chunk; targets are no reads and
            // lie in exclusively borrowed buffers; slots are equal or disjoint, since a buffer's sub-chunks are; the
            // tier is available.
            unsafe { pass.run(tier) };
        }
    }
}

/// Where a buffer's sub-chunks are. Those of scratch hold one strip only, so their strips do not move.
#[derive(Clone, Copy)]
struct Buffer {
    start: *mut u8,
    sub_bytes: usize,
    moves: bool,
}

/// The first `count` items, which are taken off.
fn take<'a, T>(items: &mut &'a [T], count: usize) -> &'a [T] {
    let (taken, rest) = items.split_at(count);
    *items = rest;
    taken
}
