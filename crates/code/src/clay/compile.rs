//! Turns "these sub-chunks are read, those chunks are wanted" into a program of steps over sub-chunks.
//!
//! `peel` says which planes give which U. Here each plane becomes a sum over k nodes whose U are known before it:
//!
//! | known of the pair | U of the node | C of the node |
//! |---|---|---|
//! | dot | C | U |
//! | C, C* | C + g C* | |
//! | C, U* | (1 + g^2) C + g U* | |
//! | C*, U* | (U* + (1 + g^2) C*) / g | (U* + C*) / g |
//! | C*, U | | U + g C* |
//! | U, U* | | (U + g U*) / (1 + g^2) |
//!
//! with g = 2. A wanted C follows in place of its U, or of its companion's.
//!
//! Invariants:
//! 1. Source terms are folded into the plane's sum (pairs on the fly), so no U of a known node is ever stored.
//! 2. A solved U is stored only if something uses it; where a wanted chunk's C will stand, if it has such a place.
//! 3. A U is turned into C only after its last use, and as early as that allows.

use std::collections::BTreeMap;

use super::{
    grid::Grid,
    peel::{Peeling, Solved, Vertex},
};
use crate::{
    ChunkIndex, ChunkRead,
    field::{inv, mul},
    grs::Grs,
    kernel::{Blend, BlendHow, Program, ProgramBuilder, Slot, Step, Target, Term},
};

/// The coupling factor g: not 0, and g^2 not 1.
pub(super) const COUPLING: u8 = 2;

/// Compiles what makes `targets` of `reads`, with the code `scalar` in each plane.
///
/// # Panics
/// If the targets do not follow from the reads, or one of them is read: planners must not make such a plan.
pub(super) fn compile(grid: &Grid, scalar: &Grs, reads: &[ChunkRead], targets: &[ChunkIndex]) -> Program {
    let mut compiler = Compiler::new(grid, scalar, reads, targets);
    compiler.find_uses();
    compiler.plan_finishes(targets);
    compiler.emit()
}

struct Compiler<'a> {
    grid: &'a Grid,
    scalar: &'a Grs,
    peeling: Peeling,
    /// Sub-chunks of each read.
    read_subs: Vec<u16>,
    /// By node and plane: where a C that is read lies. Virtual nodes have none.
    read_slots: Vec<Vec<Option<Slot>>>,
    /// The target buffer of each node that is wanted.
    target_of: Vec<Option<u16>>,
    /// What each wanted symbol is made of.
    makings: BTreeMap<Vertex, Making>,
    /// For each U that is used: the position of the last plane that uses it, if one does.
    uses: BTreeMap<Vertex, Option<u16>>,
    /// Where a used U is stored.
    places: BTreeMap<Vertex, Slot>,
    /// Scratch by node: the buffer's number and its sub-chunks.
    scratch: BTreeMap<u16, (u16, u16)>,
    /// What turns U into C, by the position after which they run.
    finishes: BTreeMap<u16, Vec<Finish>>,
}

/// What a wanted C is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Making {
    /// U = C.
    Dot,
    /// U and C*.
    Own,
    /// U* and C*.
    Companion,
    /// U and U*.
    Both,
}

/// Turns a U into a wanted C, in place.
enum Finish {
    Blend(Blend),
    Step(Step),
}

impl<'a> Compiler<'a> {
    fn new(grid: &'a Grid, scalar: &'a Grs, reads: &[ChunkRead], targets: &[ChunkIndex]) -> Self {
        let (nodes, planes) = (usize::from(grid.nodes()), usize::from(grid.planes().end));
        let count = |len: usize| u16::try_from(len).expect("at most 256 chunks");
        let mut read_slots = vec![vec![None; planes]; nodes];
        let mut stored = vec![vec![false; planes]; nodes];
        stored[usize::from(grid.data)..usize::from(grid.scalar_data())].fill(vec![true; planes]);
        let mut read_subs = Vec::new();
        for (buffer, read) in (0..).zip(reads) {
            let node = usize::from(grid.node(read.chunk));
            let mut subs = 0..;
            for plane in read.sub_chunks.iter().flat_map(|range| range.start as usize..range.end as usize) {
                let sub = subs.next().expect("at most ALPHA_MAX planes");
                read_slots[node][plane] = Some(Slot { buffer, sub });
                stored[node][plane] = true;
            }
            read_subs.push(subs.start);
        }
        let mut target_of = vec![None; nodes];
        for (buffer, chunk) in (count(reads.len())..).zip(targets) {
            assert!(reads.iter().all(|read| read.chunk != *chunk), "chunk {chunk} is a target and read");
            target_of[usize::from(grid.node(*chunk))] = Some(buffer);
        }
        Self {
            grid,
            scalar,
            peeling: Peeling::new(grid, stored),
            read_subs,
            read_slots,
            target_of,
            makings: BTreeMap::new(),
            uses: BTreeMap::new(),
            places: BTreeMap::new(),
            scratch: BTreeMap::new(),
            finishes: BTreeMap::new(),
        }
    }

    /// Finds which U are used: by wanted symbols first, then, plane by plane from the last, by planes that are used.
    fn find_uses(&mut self) {
        for node in (0..self.grid.nodes()).filter(|node| self.target_of[usize::from(*node)].is_some()) {
            for plane in self.grid.planes() {
                let vertex = (node, plane);
                let companion = self.companion(vertex);
                let solved = |vertex| self.peeling.solved_at(vertex).is_some();
                let making = if companion == vertex {
                    Making::Dot
                } else if !self.peeling.is_stored(companion) {
                    Making::Both
                } else if solved(vertex) {
                    Making::Own
                } else {
                    Making::Companion
                };
                let own = (making != Making::Companion).then_some(vertex);
                let other = matches!(making, Making::Companion | Making::Both).then_some(companion);
                for used in [own, other].into_iter().flatten() {
                    assert!(solved(used), "plane {} of node {} does not follow from the reads", used.1, used.0);
                    self.uses.entry(used).or_default();
                }
                self.makings.insert(vertex, making);
            }
        }
        for at in (0..self.peeling.order.len()).rev() {
            let solved = self.peeling.order[at].clone();
            if solved.unknown.iter().any(|node| self.uses.contains_key(&(*node, solved.plane))) {
                for node in self.sources(&solved) {
                    if let Some(used) = self.solved_source((node, solved.plane)) {
                        let last = self.uses.entry(used).or_default();
                        *last = (*last).max(Some(position(at)));
                    }
                }
            }
        }
    }

    /// The nodes that a plane is solved from: k known ones, first those that need nothing solved, ascending.
    fn sources(&self, solved: &Solved) -> Vec<u16> {
        let mut known: Vec<u16> = (0..self.grid.nodes()).filter(|node| !solved.unknown.contains(node)).collect();
        known.sort_by_key(|node| (self.solved_source((*node, solved.plane)).is_some(), *node));
        known.truncate(self.grid.scalar_data().into());
        known.sort_unstable();
        known
    }

    /// The solved U that a known vertex' U is made of, if it needs one.
    fn solved_source(&self, vertex: Vertex) -> Option<Vertex> {
        let companion = self.companion(vertex);
        let both_stored = self.peeling.is_stored(vertex) && self.peeling.is_stored(companion);
        (!both_stored).then_some(companion)
    }

    /// Gives each used U a place and plans the steps that turn them into the wanted symbols.
    fn plan_finishes(&mut self, targets: &[ChunkIndex]) {
        let used: Vec<Vertex> = self.uses.keys().copied().collect();
        let mut next_buffer = u16::try_from(self.read_subs.len() + targets.len()).expect("at most 256 chunks");
        for vertex in used {
            let companion = self.companion(vertex);
            let own = self.target_slot(vertex);
            let free = self.target_slot(companion).filter(|_| !self.uses.contains_key(&companion));
            let place = own.or(free).unwrap_or_else(|| {
                let (buffer, subs) = self.scratch.entry(vertex.0).or_insert_with(|| {
                    next_buffer += 1;
                    (next_buffer - 1, 0)
                });
                *subs += 1;
                Slot { buffer: *buffer, sub: *subs - 1 }
            });
            self.places.insert(vertex, place);
        }
        let half = inv(COUPLING);
        let unpair = inv(mul(COUPLING, COUPLING) ^ 1);
        let cross = mul(unpair, COUPLING);
        for (vertex, making) in std::mem::take(&mut self.makings) {
            let companion = self.companion(vertex);
            let place = self.target_slot(vertex).expect("a wanted symbol has a place");
            let at = |vertex: Vertex| self.places[&vertex];
            match making {
                Making::Dot => {}
                Making::Own => {
                    if let Some(far) = self.read_slot(companion) {
                        let how = BlendHow { own: 1, other: COUPLING, both: false };
                        self.finish(&[vertex], &[], Finish::Blend(Blend { a: place, b: far, how }));
                    }
                }
                Making::Companion => match self.read_slot(companion) {
                    Some(stored) => {
                        let how = BlendHow { own: half, other: half, both: false };
                        self.finish(&[companion], &[], Finish::Blend(Blend { a: place, b: stored, how }));
                    }
                    None => {
                        let terms = vec![single(at(companion), &[half])];
                        self.finish(&[companion], &[], Finish::Step(Step { targets: vec![Target::sum(place)], terms }));
                    }
                },
                Making::Both if self.target_slot(companion).is_none() => {
                    let how = BlendHow { own: unpair, other: cross, both: false };
                    let blend = Blend { a: at(vertex), b: at(companion), how };
                    self.finish(&[vertex], &[companion], Finish::Blend(blend));
                }
                Making::Both if vertex < companion => {
                    let how = BlendHow { own: unpair, other: cross, both: true };
                    let blend = Blend { a: at(vertex), b: at(companion), how };
                    self.finish(&[vertex, companion], &[], Finish::Blend(blend));
                }
                Making::Both => {} // Made together with its companion.
            }
        }
    }

    /// Plans a step that overwrites the U of `replaced` and reads that of `used`: after all of them are solved, and
    /// after the last other use of what it overwrites.
    fn finish(&mut self, replaced: &[Vertex], used: &[Vertex], finish: Finish) {
        let solved = replaced.iter().chain(used).map(|vertex| self.peeling.solved_at(*vertex));
        let last_uses = replaced.iter().map(|vertex| self.uses[vertex]);
        let at = solved.chain(last_uses).flatten().max().expect("a wanted symbol is made of a solved one");
        self.finishes.entry(at).or_default().push(finish);
    }

    /// Writes out the planes in order, each followed by the finishes that have become possible.
    fn emit(mut self) -> Program {
        let targets = self.target_of.iter().flatten().count();
        let mut scratch: Vec<(u16, u16)> = self.scratch.values().copied().collect();
        scratch.sort_unstable();
        let scratch: Vec<u16> = scratch.into_iter().map(|(_, subs)| subs).collect();
        let mut builder = ProgramBuilder::new(&self.read_subs, &vec![self.grid.planes().end; targets], &scratch);
        let mut solutions = BTreeMap::new();
        for (at, solved) in (0..).zip(&self.peeling.order) {
            let mut step = self.solve_plane(solved, &mut solutions);
            let mut finishes = self.finishes.remove(&at).unwrap_or_default();
            if let Some(step) = &mut step {
                // Up to the first that it cannot take in: what one makes the next may read.
                let takes = |finish: &&Finish| matches!(finish, Finish::Blend(blend) if step.take_in(*blend));
                let taken = finishes.iter().take_while(takes).count();
                finishes.drain(..taken);
                builder.push(step);
            }
            for finish in finishes {
                match finish {
                    Finish::Blend(blend) => builder.blend(blend),
                    Finish::Step(step) => builder.push(&step),
                }
            }
        }
        assert!(self.finishes.is_empty(), "every finish follows some plane");
        builder.finish()
    }

    /// The sum that gives the unknown U of a plane that are used.
    fn solve_plane(&self, solved: &Solved, solutions: &mut BTreeMap<SolutionKey, Vec<Vec<u8>>>) -> Option<Step> {
        let plane = solved.plane;
        let places: Vec<(usize, Slot)> = (solved.unknown.iter().enumerate())
            .filter_map(|(row, node)| Some((row, *self.places.get(&(*node, plane))?)))
            .collect();
        if places.is_empty() {
            return None;
        }
        let sources = self.sources(solved);
        let rows = solutions
            .entry((solved.unknown.clone(), sources.clone()))
            .or_insert_with_key(|(want, have)| self.scalar.solve(want, have));
        let mut terms = Vec::new();
        for (column, node) in sources.into_iter().enumerate() {
            let Some(mut term) = self.uncoupled((node, plane)) else { continue };
            let scale = term.coefs[0];
            term.coefs = places.iter().map(|(row, _)| mul(rows[*row][column], scale)).collect();
            if term.coefs.iter().any(|coef| *coef != 0) {
                terms.push(term);
            }
        }
        Some(Step { targets: places.into_iter().map(|(_, place)| Target::sum(place)).collect(), terms })
    }

    /// A known vertex' U as a term for one row, that of U itself; `None` if it is zero.
    fn uncoupled(&self, vertex: Vertex) -> Option<Term> {
        let companion = self.companion(vertex);
        let own = self.read_slot(vertex);
        let square = mul(COUPLING, COUPLING) ^ 1;
        // U = scale * near + factor * far.
        let (near, scale, far, factor) = if companion == vertex {
            (own, 1, None, 0)
        } else if self.solved_source(vertex).is_none() {
            (own, 1, self.read_slot(companion), COUPLING)
        } else if self.peeling.is_stored(vertex) {
            (own, square, Some(self.places[&companion]), COUPLING)
        } else {
            let (half, stored) = (inv(COUPLING), self.read_slot(companion));
            (Some(self.places[&companion]), half, stored, mul(half, square))
        };
        match (near, far) {
            (Some(near), Some(far)) => {
                Some(Term { near, far: Some((far, mul(factor, inv(scale)))), coefs: vec![scale] })
            }
            (Some(near), None) => Some(single(near, &[scale])),
            (None, Some(far)) => Some(single(far, &[factor])),
            (None, None) => None,
        }
    }

    fn companion(&self, (node, plane): Vertex) -> Vertex {
        self.grid.companion(node, plane)
    }

    /// The place of a C that is read; `None` for a virtual node.
    fn read_slot(&self, (node, plane): Vertex) -> Option<Slot> {
        self.read_slots[usize::from(node)][usize::from(plane)]
    }

    /// The place of a wanted symbol.
    fn target_slot(&self, (node, plane): Vertex) -> Option<Slot> {
        self.target_of[usize::from(node)].map(|buffer| Slot { buffer, sub: plane })
    }
}

/// The unknown nodes, and those they are solved from.
type SolutionKey = (Vec<u16>, Vec<u16>);

fn single(near: Slot, coefs: &[u8]) -> Term {
    Term { near, far: None, coefs: coefs.to_vec() }
}

fn position(at: usize) -> u16 {
    u16::try_from(at).expect("at most ALPHA_MAX planes")
}
