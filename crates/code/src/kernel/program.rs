//! A fixed sequence of steps over sub-chunks, compiled once and run on any tile: how Clay touches bytes.
//!
//! Buffers are numbered: the reads, then the targets, then scratch. A slot is one sub-chunk of one buffer. Steps over
//! neighbouring sub-chunks that do the same become one *run*, as long as a longer sub-chunk; blends that would stand
//! between them wait until after it.
//!
//! Invariants:
//! 1. Every slot of a program lies inside its buffer: checked when the step is added. There are at most [`BUFFERS_MAX`].
//! 2. A program has the effect of its steps and blends one after the other. What a run brings together or puts off
//!    touches nothing in common.
//!
//! Left out: execution (`execute`).

use std::collections::BTreeMap;

use super::{ROWS_MAX, TERMS_MAX};
use crate::field::mul;

/// The most buffers of a program: a chunk is read or a target, and a node has one buffer of scratch.
pub(super) const BUFFERS_MAX: usize = 2 * TERMS_MAX;

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

/// What a step writes: a sum, or that and a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) slot: Slot,
    /// A slot that the step does not write, and the factor by which it is added to the sum.
    pub(crate) plus: Option<(Slot, u8)>,
}

impl Target {
    /// The sum alone.
    pub(crate) fn sum(slot: Slot) -> Self {
        Self { slot, plus: None }
    }
}

/// targets\[r\] = sum over terms of coefs\[r\] * term, and what the target says. All terms are read before the targets are
/// written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) targets: Vec<Target>,
    pub(crate) terms: Vec<Term>,
}

/// a = own * a + other * b; if `both`, also b = other * a + own * b, of the old a and b.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blend {
    pub(crate) a: Slot,
    pub(crate) b: Slot,
    pub(crate) how: BlendHow,
}

/// The coefficients of a blend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlendHow {
    pub(crate) own: u8,
    pub(crate) other: u8,
    pub(crate) both: bool,
}

/// The compiled steps. Flat arrays, since a program has up to thousands of steps.
#[derive(Debug)]
pub(crate) struct Program {
    pub(super) reads: usize,
    /// Sub-chunks in each buffer.
    pub(super) subs: Vec<u16>,
    pub(super) scratch: usize,
    pub(super) runs: Vec<RunSpan>,
    pub(super) singles: Vec<(Slot, Column)>,
    pub(super) pairs: Vec<PackedPair>,
    pub(super) targets: Vec<Target>,
    pub(super) blends: Vec<Blend>,
    /// The coefficients of all columns.
    pub(super) coefs: Vec<u8>,
    /// The product matrix of each of `coefs`.
    #[cfg(target_arch = "x86_64")]
    pub(super) products: Vec<u64>,
}

/// A term's coefficients: where they start. Terms with the same ones share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Column(pub(super) u32);

/// near + factor * far.
#[derive(Clone, Copy, Debug)]
pub(super) struct PackedPair {
    pub(super) near: Slot,
    pub(super) far: Slot,
    pub(super) factor: u8,
    pub(super) column: Column,
}

/// How much of the flat arrays a run takes, after what the runs before it took.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunSpan {
    pub(super) singles: u16,
    pub(super) pairs: u16,
    pub(super) targets: u16,
    /// Sub-chunks from each slot on.
    pub(super) count: u16,
    /// The first target's coefficients are all 1.
    pub(super) plain_first: bool,
    /// Blends after it, in order.
    pub(super) blends: u32,
}

/// Checks steps and packs them.
#[derive(Debug)]
pub(crate) struct ProgramBuilder {
    program: Program,
    columns: BTreeMap<Vec<u8>, Column>,
    open: Option<OpenRun>,
}

/// Steps that may grow by the next one.
#[derive(Debug)]
struct OpenRun {
    first: Step,
    count: u16,
    blends: Vec<Blend>,
}

impl ProgramBuilder {
    /// For buffers with so many sub-chunks each.
    ///
    /// # Panics
    /// If there are more than [`BUFFERS_MAX`].
    pub(crate) fn new(reads: &[u16], targets: &[u16], scratch: &[u16]) -> Self {
        let subs = [reads, targets, scratch].concat();
        assert!(subs.len() <= BUFFERS_MAX, "{} buffers", subs.len());
        Self {
            program: Program {
                reads: reads.len(),
                subs,
                scratch: scratch.len(),
                runs: Vec::new(),
                singles: Vec::new(),
                pairs: Vec::new(),
                targets: Vec::new(),
                blends: Vec::new(),
                coefs: Vec::new(),
                #[cfg(target_arch = "x86_64")]
                products: Vec::new(),
            },
            columns: BTreeMap::new(),
            open: None,
        }
    }

    /// Adds a step.
    ///
    /// # Panics
    /// If a slot is outside its buffer, a target is a read, or there are too many terms.
    pub(crate) fn push(&mut self, step: &Step) {
        assert!(!step.targets.is_empty() && step.terms.len() <= TERMS_MAX);
        for (i, Target { slot, plus }) in step.targets.iter().enumerate() {
            self.check_target(slot);
            assert!(step.targets[..i].iter().all(|before| before.slot != *slot), "{slot:?} is written twice");
            if let Some((plus, _)) = plus {
                self.check_inside(plus);
                assert!(!step.writes(*plus), "{plus:?} is added by a step that writes it");
            }
        }
        for term in &step.terms {
            self.check_inside(&term.near);
            term.far.iter().for_each(|(slot, _)| self.check_inside(slot));
            assert_eq!(term.coefs.len(), step.targets.len(), "one coefficient for each target");
        }
        // With several passes, a target of an earlier one must not be a source of a later one.
        let in_place = step.terms.iter().any(|term| step.writes(term.near));
        assert!(step.targets.len() <= ROWS_MAX || !in_place, "a wide step in place");

        match &mut self.open {
            Some(open) if open.goes_on_with(step) => open.count += 1,
            _ => {
                self.close();
                self.open = Some(OpenRun { first: step.clone(), count: 1, blends: Vec::new() });
            }
        }
    }

    /// Adds a blend.
    ///
    /// # Panics
    /// If a slot is outside its buffer, a slot that is written is a read, both are the same, or no step came before.
    pub(crate) fn blend(&mut self, blend: Blend) {
        self.check_target(&blend.a);
        if blend.how.both {
            self.check_target(&blend.b)
        } else {
            self.check_inside(&blend.b)
        }
        assert_ne!(blend.a, blend.b, "a blend with itself");
        self.open.as_mut().expect("a blend follows a step").blends.push(blend);
    }

    /// The finished program.
    pub(crate) fn finish(mut self) -> Program {
        self.close();
        self.program
    }

    /// Packs the open run.
    fn close(&mut self) {
        let Some(OpenRun { first: step, count, blends }) = self.open.take() else { return };
        let (pairs, singles): (Vec<&Term>, Vec<&Term>) = step.terms.iter().partition(|term| term.far.is_some());
        let length = |len: usize| u16::try_from(len).expect("within TERMS_MAX");
        // A pass holds ROWS_MAX rows. More rows take more passes over the same terms.
        for first in (0..step.targets.len()).step_by(ROWS_MAX) {
            let rows = first..(first + ROWS_MAX).min(step.targets.len());
            self.program.runs.push(RunSpan {
                singles: length(singles.len()),
                pairs: length(pairs.len()),
                targets: length(rows.len()),
                count,
                plain_first: step.terms.iter().all(|term| term.coefs[first] == 1),
                blends: 0,
            });
            self.program.targets.extend(&step.targets[rows.clone()]);
            for term in &singles {
                let column = self.column(&term.coefs[rows.clone()]);
                self.program.singles.push((term.near, column));
            }
            for term in &pairs {
                let column = self.column(&term.coefs[rows.clone()]);
                let (far, factor) = term.far.expect("a pair has two slots");
                self.program.pairs.push(PackedPair { near: term.near, far, factor, column });
            }
        }
        let last = self.program.runs.last_mut().expect("a step has targets");
        last.blends = u32::try_from(blends.len()).expect("a blend for each sub-chunk at most");
        self.program.blends.extend(blends);
    }

    fn column(&mut self, coefs: &[u8]) -> Column {
        let program = &mut self.program;
        *self.columns.entry(coefs.to_vec()).or_insert_with(|| {
            let start = u32::try_from(program.coefs.len()).expect("a program has fewer coefficients");
            program.coefs.extend(coefs);
            #[cfg(target_arch = "x86_64")]
            program.products.extend(coefs.iter().map(|coef| super::coupled::product_matrix(*coef)));
            Column(start)
        })
    }

    fn check_inside(&self, slot: &Slot) {
        assert!(slot.sub < self.program.subs[usize::from(slot.buffer)], "{slot:?} is outside its buffer");
    }

    fn check_target(&self, slot: &Slot) {
        self.check_inside(slot);
        assert!(usize::from(slot.buffer) >= self.program.reads, "{slot:?} is a read");
    }
}

impl Step {
    /// Whether a slot is one of the targets.
    fn writes(&self, slot: Slot) -> bool {
        self.targets.iter().any(|target| target.slot == slot)
    }

    /// Has the step do what the blend would right after it, if that makes one target of its sum and of what the step does not write.
    pub(crate) fn take_in(&mut self, Blend { a, b, how }: Blend) -> bool {
        let row = self.targets.iter().position(|target| target.slot == a && target.plus.is_none());
        let Some(row) = row.filter(|_| !how.both && !self.writes(b)) else { return false };
        self.terms.iter_mut().for_each(|term| term.coefs[row] = mul(how.own, term.coefs[row]));
        self.targets[row].plus = Some((b, how.other));
        true
    }
}

impl OpenRun {
    /// Whether a step does to the next sub-chunks what this run does, and touches nothing that it wrote or puts off, nor writes
    /// what it adds.
    fn goes_on_with(&self, step: &Step) -> bool {
        let next = |a: &Slot, b: &Slot| a.buffer == b.buffer && a.sub + self.count == b.sub;
        let alike = |a: Option<(Slot, u8)>, b: Option<(Slot, u8)>| match (a, b) {
            (None, None) => true,
            (Some((a, factor)), Some((b, other))) => next(&a, &b) && factor == other,
            _ => false,
        };
        let same = |a: &Term, b: &Term| next(&a.near, &b.near) && alike(a.far, b.far) && a.coefs == b.coefs;
        let same_target = |a: &Target, b: &Target| next(&a.slot, &b.slot) && alike(a.plus, b.plus);
        let within = |slot: &Slot, from: &Slot| {
            slot.buffer == from.buffer && (from.sub..from.sub + self.count).contains(&slot.sub)
        };
        let is_written = |slot: &Slot| self.first.targets.iter().any(|target| within(slot, &target.slot));
        let is_added = |slot: &Slot| {
            self.first.targets.iter().any(|target| target.plus.is_some_and(|(plus, _)| within(slot, &plus)))
        };
        let is_put_off = |slot: &Slot| self.blends.iter().any(|blend| blend.a == *slot || blend.b == *slot);
        let mut near = step.targets.iter().map(|target| &target.slot).chain(step.terms.iter().map(|term| &term.near));
        let added = step.targets.iter().map(|target| &target.plus).chain(step.terms.iter().map(|term| &term.far));
        let mut far = added.flatten().map(|(slot, _)| slot);
        self.first.targets.len() == step.targets.len()
            && self.first.terms.len() == step.terms.len()
            && self.first.targets.iter().zip(&step.targets).all(|(a, b)| same_target(a, b))
            && self.first.terms.iter().zip(&step.terms).all(|(a, b)| same(a, b))
            && !step.targets.iter().any(|target| is_added(&target.slot))
            && !near.any(|slot| is_written(slot) || is_put_off(slot))
            && !far.any(|slot| is_written(slot) || is_put_off(slot))
    }
}
