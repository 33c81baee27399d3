//! What follows from what is read: which planes can be solved, and in what order.
//!
//! Every vertex holds a stored symbol C and an uncoupled symbol U; each plane of U is a codeword of the scalar code.
//! Coupled pairs obey U = C + g C*, U* = g C + C*, so any two of {C, C*, U, U*} give the other two; a dot has U = C and
//! a virtual node has C = 0. A plane with at most m unknown U gives these. What it gives makes more pairs complete, and
//! so more planes solvable, until nothing new follows. Source: [clay §3], [clay §4]
//!
//! Invariants:
//! 1. Everything that follows by these rules is found, whatever was read: no repair method is known here.
//! 2. Planes of one round use only what was read and what earlier rounds solved; rounds and the planes in them are in
//!    an order that depends on nothing but grid and reads.
//!
//! Left out: which of the solved symbols are of use (`compile`).

use super::grid::Grid;

/// A node in a plane.
pub(super) type Vertex = (u16, u16);

/// What is read, and what follows.
#[derive(Clone, Debug)]
pub(super) struct Peeling {
    /// By node and plane: whether C is read, or zero.
    stored: Vec<Vec<bool>>,
    /// By node and plane: the position in `order` of the plane that gives U, if U was unknown until then.
    solved: Vec<Vec<Option<u16>>>,
    /// The planes that can be solved, in order.
    pub(super) order: Vec<Solved>,
}

/// A plane to solve.
#[derive(Clone, Debug)]
pub(super) struct Solved {
    pub(super) plane: u16,
    /// It uses what rounds before this one gave.
    pub(super) round: u16,
    /// The nodes whose U it gives, at most m. Ascending.
    pub(super) unknown: Vec<u16>,
}

impl Peeling {
    /// `stored[node][plane]`: whether C is read, or zero.
    pub(super) fn new(grid: &Grid, stored: Vec<Vec<bool>>) -> Self {
        let planes = usize::from(grid.planes().end);
        let solved = vec![vec![None; planes]; stored.len()];
        let mut peeling = Self { stored, solved, order: Vec::new() };
        let mut left: Vec<u16> = grid.planes().collect();
        for round in 0.. {
            let first = peeling.order.len();
            left.retain(|plane| {
                let unknown: Vec<u16> =
                    (0..grid.nodes()).filter(|node| !peeling.is_known(grid, (*node, *plane), round)).collect();
                let ready = unknown.len() <= usize::from(grid.parity);
                if ready {
                    peeling.order.push(Solved { plane: *plane, round, unknown });
                }
                !ready
            });
            if peeling.order.len() == first {
                break;
            }
            for at in first..peeling.order.len() {
                let Solved { plane, unknown, .. } = peeling.order[at].clone();
                for node in unknown {
                    peeling.solved[usize::from(node)][usize::from(plane)] = Some(position(at));
                }
            }
        }
        peeling
    }

    /// Whether a vertex' C is read, or zero.
    pub(super) fn is_stored(&self, (node, plane): Vertex) -> bool {
        self.stored[usize::from(node)][usize::from(plane)]
    }

    /// The position in `order` that gives a vertex' U.
    pub(super) fn solved_at(&self, (node, plane): Vertex) -> Option<u16> {
        self.solved[usize::from(node)][usize::from(plane)]
    }

    /// Whether a vertex' U was solved before a round.
    pub(super) fn is_solved(&self, vertex: Vertex, round: u16) -> bool {
        self.solved_at(vertex).is_some_and(|at| self.order[usize::from(at)].round < round)
    }

    /// Whether a vertex' U follows from what is read and what the rounds before `round` solved.
    fn is_known(&self, grid: &Grid, vertex: Vertex, round: u16) -> bool {
        let companion = grid.companion(vertex.0, vertex.1);
        if companion == vertex {
            return self.is_stored(vertex);
        }
        let known = [
            self.is_stored(vertex),
            self.is_stored(companion),
            self.is_solved(vertex, round),
            self.is_solved(companion, round),
        ];
        known.into_iter().filter(|known| *known).count() >= 2
    }
}

fn position(at: usize) -> u16 {
    u16::try_from(at).expect("at most ALPHA_MAX planes")
}
