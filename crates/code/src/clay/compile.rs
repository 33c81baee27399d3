//! Turns "these chunks are read, those are wanted" into a program of steps over sub-chunks.
//!
//! Every vertex holds a stored symbol C and an uncoupled symbol U; each plane of U is a codeword of the scalar code.
//! Coupled pairs obey U = C + g C*, U* = g C + C*, with g = 2; a dot has U = C and a virtual node has C = 0.
//! Planes are solved in the order of their score over the unknown nodes. In each, the U of the known nodes are
//!
//! | companion | U of a known node |
//! |---|---|
//! | itself (dot) | C |
//! | known | C + g C* |
//! | unknown, in a plane that is read | (1 + g^2) C + g U*, where U* has a lower score and is solved |
//! | unknown, in a plane that is not read | unknown too (a *mate* of a lost node) |
//!
//! and the scalar code gives the rest. A lost node's C then follows in place of its U: as U of a dot; C = U + g C*;
//! C = (U + g U*) / (1 + g^2) if the companion is lost as well; or, in planes that are not read, C = (U* + C*) / g.
//!
//! Invariants:
//! 1. Source terms are folded into the plane's sum (pairs on the fly), so no U of a known node is ever stored.
//! 2. An unknown U is stored only if something uses it; where a wanted chunk's C will stand, if it has such a place.
//! 3. A U is turned into C only after its last use, and as early as that allows.

use std::collections::BTreeMap;

use super::grid::Grid;
use crate::{
    ChunkIndex, cauchy,
    field::{inv, mul},
    kernel::{Program, ProgramBuilder, Slot, Step, Term},
};

/// The coupling factor g: not 0, and g^2 not 1.
const COUPLING: u8 = 2;

/// What a program is compiled from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recipe {
    /// The chunks that are read, in the order of the program's reads, and whether whole or just the repair's planes.
    pub(super) reads: Vec<(ChunkIndex, bool)>,
    /// The chunks to make, in the order of the program's targets.
    pub(super) targets: Vec<ChunkIndex>,
    /// All chunks taken as lost, among them the targets. What is neither lost nor read is aloof.
    pub(super) lost: Vec<ChunkIndex>,
    /// Every plane is read (decoding), else just those in which a lost node is a dot (repair).
    pub(super) all_planes: bool,
}

/// Compiles a recipe.
///
/// # Panics
/// If the recipe has more unknown nodes in a plane than parity: planners must not make such a one.
pub(super) fn compile(grid: &Grid, recipe: &Recipe) -> Program {
    let mut compiler = Compiler::new(grid, recipe);
    compiler.find_uses();
    compiler.plan_finishes(recipe);
    compiler.emit()
}

/// What a node is in this recipe.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Virtual,
    /// Read; the buffer's number, and whether it holds all planes.
    Read {
        buffer: u16,
        whole: bool,
    },
    /// Unknown: lost or aloof.
    Unknown,
}

struct Compiler<'a> {
    grid: &'a Grid,
    roles: Vec<Role>,
    /// The target buffer of each node that is wanted.
    target_of: Vec<Option<u16>>,
    /// The planes to solve, in order.
    order: Vec<u16>,
    /// Each plane's position in `order`, if it is read.
    position: Vec<Option<u16>>,
    /// Each plane's index among those that are read, ascending.
    rank: Vec<u16>,
    /// Where the U of an unknown vertex is stored, if it is used.
    stored: BTreeMap<(u16, u16), Slot>,
    /// The position of the last step that uses an unknown vertex' U.
    last_use: BTreeMap<(u16, u16), u16>,
    /// Scratch buffers by node.
    scratch: BTreeMap<u16, u16>,
    /// Buffers before the scratch ones.
    named_buffers: u16,
    /// Steps that turn U into C, by the position after which they run.
    finishes: BTreeMap<u16, Vec<Step>>,
    read_subs: Vec<u16>,
    planes_read: u16,
}

impl<'a> Compiler<'a> {
    fn new(grid: &'a Grid, recipe: &Recipe) -> Self {
        let nodes = usize::from(grid.nodes());
        let count = |len: usize| u16::try_from(len).expect("at most 256 chunks");
        let lost: Vec<u16> = recipe.lost.iter().map(|chunk| grid.node(*chunk)).collect();
        let mut roles = vec![Role::Unknown; nodes];
        roles[usize::from(grid.data)..usize::from(grid.scalar_data())].fill(Role::Virtual);
        for (buffer, (chunk, whole)) in (0..).zip(&recipe.reads) {
            roles[usize::from(grid.node(*chunk))] = Role::Read { buffer, whole: *whole };
        }
        let mut target_of = vec![None; nodes];
        for (buffer, chunk) in (count(recipe.reads.len())..).zip(&recipe.targets) {
            assert!(recipe.lost.contains(chunk), "chunk {chunk} is a target and not lost");
            target_of[usize::from(grid.node(*chunk))] = Some(buffer);
        }

        let is_read: Vec<bool> = grid.scores(&lost).iter().map(|score| recipe.all_planes || *score > 0).collect();
        let unknown: Vec<u16> = (0..grid.nodes()).filter(|node| roles[usize::from(*node)] == Role::Unknown).collect();
        let scores = grid.scores(&unknown);
        let mut order: Vec<u16> = grid.planes().filter(|plane| is_read[usize::from(*plane)]).collect();
        let mut rank = vec![0; scores.len()];
        for (at, plane) in (0..).zip(&order) {
            rank[usize::from(*plane)] = at;
        }
        order.sort_by_key(|plane| scores[usize::from(*plane)]);
        let mut position = vec![None; scores.len()];
        for (at, plane) in (0..).zip(&order) {
            position[usize::from(*plane)] = Some(at);
        }
        let planes_read = count(order.len());
        let alpha = grid.planes().end;
        let read_subs = recipe.reads.iter().map(|(_, whole)| if *whole { alpha } else { planes_read }).collect();
        Self {
            grid,
            roles,
            target_of,
            order,
            position,
            rank,
            stored: BTreeMap::new(),
            last_use: BTreeMap::new(),
            scratch: BTreeMap::new(),
            named_buffers: count(recipe.reads.len() + recipe.targets.len()),
            finishes: BTreeMap::new(),
            read_subs,
            planes_read,
        }
    }

    /// Stores every U that the sum of some later plane uses.
    fn find_uses(&mut self) {
        for (at, plane) in (0..).zip(self.order.clone()) {
            for node in 0..self.grid.nodes() {
                if self.role(node) != Role::Unknown && self.meets_unknown(node, plane) {
                    let companion = self.grid.companion(node, plane);
                    if self.is_read(companion.1) {
                        self.store(companion);
                        self.last_use.insert(companion, at);
                    }
                }
            }
        }
    }

    /// For each wanted symbol, stores the U it is made of and plans the step that makes it.
    fn plan_finishes(&mut self, recipe: &Recipe) {
        let half = inv(COUPLING);
        let unpair = inv(mul(COUPLING, COUPLING) ^ 1);
        let single = |near, coefs: &[u8]| Term { near, far: None, coefs: coefs.to_vec() };
        for chunk in &recipe.targets {
            let node = self.grid.node(*chunk);
            for plane in self.grid.planes() {
                let vertex = (node, plane);
                let companion = self.grid.companion(node, plane);
                let place = self.target_slot(vertex).expect("a target has a buffer");
                if companion == vertex {
                    self.store(vertex);
                } else if self.role(companion.0) == Role::Unknown {
                    let (own, other) = (self.store(vertex), self.store(companion));
                    if self.target_slot(companion).is_none() {
                        let terms = vec![single(own, &[unpair]), single(other, &[mul(unpair, COUPLING)])];
                        self.finish(&[vertex], &[companion], Step { targets: vec![place], terms });
                    } else if vertex < companion {
                        let cross = mul(unpair, COUPLING);
                        let terms = vec![single(own, &[unpair, cross]), single(other, &[cross, unpair])];
                        self.finish(&[vertex, companion], &[], Step { targets: vec![own, other], terms });
                    }
                } else if self.is_read(plane) {
                    let own = self.store(vertex);
                    if let Some(far) = self.read_slot(companion) {
                        let terms = vec![Term { near: own, far: Some((far, COUPLING)), coefs: vec![1] }];
                        self.finish(&[vertex], &[], Step { targets: vec![place], terms });
                    }
                } else {
                    // The mate's U stands where this symbol will.
                    self.stored.insert(companion, place);
                    let mut terms = vec![single(place, &[half])];
                    terms.extend(self.read_slot(companion).map(|stored| single(stored, &[half])));
                    self.finish(&[companion], &[], Step { targets: vec![place], terms });
                }
            }
        }
    }

    /// Plans a step that overwrites the U of `replaced` and reads that of `used`: after all of them are solved, and
    /// after the last other use of what it overwrites.
    fn finish(&mut self, replaced: &[(u16, u16)], used: &[(u16, u16)], step: Step) {
        let solved = replaced.iter().chain(used).map(|vertex| self.position[usize::from(vertex.1)]);
        let last_uses = replaced.iter().map(|vertex| self.last_use.get(vertex).copied());
        let at = solved.chain(last_uses).flatten().max().expect("a wanted symbol is made of a solved one");
        self.finishes.entry(at).or_default().push(step);
    }

    /// Writes out the planes in order, each followed by the finishes that have become possible.
    fn emit(mut self) -> Program {
        let alpha = self.grid.planes().end;
        let targets = vec![alpha; usize::from(self.named_buffers) - self.read_subs.len()];
        let scratch = vec![self.planes_read; self.scratch.len()];
        let mut builder = ProgramBuilder::new(&self.read_subs, &targets, &scratch);
        let mut solutions = BTreeMap::new();
        for (at, plane) in (0..).zip(self.order.clone()) {
            if let Some(step) = self.solve_plane(plane, &mut solutions) {
                builder.push(&step);
            }
            for step in self.finishes.remove(&at).unwrap_or_default() {
                builder.push(&step);
            }
        }
        assert!(self.finishes.is_empty(), "every finish follows some plane");
        builder.finish()
    }

    /// The sum that gives the unknown U of a plane that are stored.
    fn solve_plane(&self, plane: u16, solutions: &mut BTreeMap<Vec<u16>, Solution>) -> Option<Step> {
        let (unknown, known): (Vec<u16>, Vec<u16>) =
            (0..self.grid.nodes()).partition(|node| self.is_unknown_in(*node, plane));
        let solution = solutions.entry(unknown).or_insert_with_key(|unknown| Solution::new(self.grid, unknown));
        let (rows, targets): (Vec<&Vec<u8>>, Vec<Slot>) = (solution.want.iter().zip(&solution.rows))
            .filter_map(|(node, row)| self.stored.get(&(*node, plane)).map(|slot| (row, *slot)))
            .unzip();
        if targets.is_empty() {
            return None;
        }
        let mut terms = Vec::new();
        for node in known {
            let Some(column) = solution.have.iter().position(|have| *have == node) else {
                continue;
            };
            let Some(mut term) = self.uncoupled(node, plane) else { continue };
            let scale = term.coefs[0];
            term.coefs = rows.iter().map(|row| mul(row[column], scale)).collect();
            if term.coefs.iter().any(|coef| *coef != 0) {
                terms.push(term);
            }
        }
        Some(Step { targets, terms })
    }

    /// A known node's U as a term for one row, that of U itself; `None` if it is zero.
    fn uncoupled(&self, node: u16, plane: u16) -> Option<Term> {
        let companion = self.grid.companion(node, plane);
        let own = self.read_slot((node, plane));
        // U = scale * C + g * other.
        let (other, scale) = if companion == (node, plane) {
            (None, 1)
        } else if self.role(companion.0) == Role::Unknown {
            (self.stored.get(&companion).copied(), mul(COUPLING, COUPLING) ^ 1)
        } else {
            (self.read_slot(companion), 1)
        };
        let (near, far, scale) = match (own, other) {
            (Some(own), other) => (own, other.map(|other| (other, mul(COUPLING, inv(scale)))), scale),
            (None, other) => (other?, None, COUPLING),
        };
        Some(Term { near, far, coefs: vec![scale] })
    }

    fn role(&self, node: u16) -> Role {
        self.roles[usize::from(node)]
    }

    fn is_read(&self, plane: u16) -> bool {
        self.position[usize::from(plane)].is_some()
    }

    /// Whether the node's companion is an unknown node.
    fn meets_unknown(&self, node: u16, plane: u16) -> bool {
        self.role(self.grid.companion(node, plane).0) == Role::Unknown
    }

    /// Whether the node's U must be solved for: it is lost, aloof, or its companion is so and in a plane not read.
    fn is_unknown_in(&self, node: u16, plane: u16) -> bool {
        self.role(node) == Role::Unknown
            || self.meets_unknown(node, plane) && !self.is_read(self.grid.companion(node, plane).1)
    }

    /// The place of a known vertex' C; `None` for a virtual node.
    fn read_slot(&self, (node, plane): (u16, u16)) -> Option<Slot> {
        match self.role(node) {
            Role::Virtual => None,
            Role::Read { buffer, whole: true } => Some(Slot { buffer, sub: plane }),
            Role::Read { buffer, whole: false } => {
                assert!(self.is_read(plane), "plane {plane} of node {node} is not read");
                Some(Slot { buffer, sub: self.rank[usize::from(plane)] })
            }
            Role::Unknown => unreachable!("node {node} is not read"),
        }
    }

    /// The place of a wanted symbol.
    fn target_slot(&self, (node, plane): (u16, u16)) -> Option<Slot> {
        self.target_of[usize::from(node)].map(|buffer| Slot { buffer, sub: plane })
    }

    /// Gives an unknown vertex' U a place, if it has none yet.
    fn store(&mut self, vertex: (u16, u16)) -> Slot {
        assert!(self.is_read(vertex.1), "plane {} is not solved", vertex.1);
        let slot = self.target_slot(vertex).unwrap_or_else(|| {
            let next = self.named_buffers + u16::try_from(self.scratch.len()).expect("at most 256 nodes");
            Slot { buffer: *self.scratch.entry(vertex.0).or_insert(next), sub: self.rank[usize::from(vertex.1)] }
        });
        *self.stored.entry(vertex).or_insert(slot)
    }
}

/// How the scalar code gives unknown nodes from known ones.
struct Solution {
    want: Vec<u16>,
    have: Vec<u16>,
    rows: Vec<Vec<u8>>,
}

impl Solution {
    /// Reads all known data, and as many known parities as data is unknown.
    fn new(grid: &Grid, unknown: &[u16]) -> Self {
        assert!(unknown.len() <= usize::from(grid.parity), "{} nodes are unknown", unknown.len());
        let known = (0..grid.nodes()).filter(|node| !unknown.contains(node));
        let have: Vec<u16> = known.take(grid.scalar_data().into()).collect();
        Self { rows: cauchy::solve(grid.scalar_data(), unknown, &have), want: unknown.to_vec(), have }
    }
}
