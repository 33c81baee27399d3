//! Which chunks to read, and how the lost ones sum up from them: pure functions of a generator.
//!
//! Two ways are tried, and the one with fewer reads is taken, then the cheaper one, then the first:
//! 1. By checks: chunk after chunk, each from checks of which it is the last unknown, however long the chain. Local
//!    groups, rows and columns give their short repairs this way. Found as a shortest path is (Knuth's generalisation
//!    of Dijkstra's search to sums); what one chunk's repair reads is free for the next.
//! 2. By rank: the cheapest independent chunks of all, as many as the wanted ones depend on.
//!
//! Invariants:
//! 1. A wanted chunk is recovered if and only if it is in the span of the chunks that can be read: no pattern that can
//!    be recovered is refused.
//! 2. Every read is used: reads are independent (wanted ones apart), and each has a coefficient in some row.
//! 3. At most the wanted chunks that can be read and further chunks up to k independent ones are read.

use std::collections::BTreeSet;

use super::{Generator, Span};
use crate::{ChunkIndex, ChunkRead, CodeSpec, Matrix, Method, ReadCosts, ReadPlan, Unrecoverable, code::copies};

/// Plans a read of `want`; see [`crate::ErasureCode::plan_read`].
pub(super) fn plan_read(
    code: &Generator,
    spec: CodeSpec,
    want: &[ChunkIndex],
    costs: &ReadCosts,
) -> Result<ReadPlan, Unrecoverable> {
    let (left, lost): (Vec<ChunkIndex>, Vec<ChunkIndex>) =
        want.iter().partition(|chunk| costs.chunks[chunk.at()].is_some());
    let readable = by_cost(costs, &left);
    let ways = [peel(code, costs, &left, &lost), Some(readable.iter().copied().collect())];
    let best = ways
        .into_iter()
        .flatten()
        .filter_map(|allowed| solve(code, &readable, &allowed, &left, &lost))
        .min_by_key(|way| (way.reads.len(), way.cost(costs)));
    let Some(Way { reads, rows: solved }) = best else {
        let mut span = Span::new(code.data().into());
        for chunk in &readable {
            span.insert(&code.vector(*chunk));
        }
        let count = |len: usize| u16::try_from(len).expect("at most 256 chunks");
        return Err(Unrecoverable {
            spec,
            wanted_lost: count(lost.len()),
            available: count(span.rank()),
            needed: code.data(),
            chunks: code.chunks(),
        });
    };
    let method = if lost.is_empty() {
        copies(want, &reads)
    } else {
        let mut solved = solved.into_iter();
        let row_of = |chunk: &ChunkIndex| match reads.binary_search(chunk) {
            Ok(at) => (0..reads.len()).map(|i| u8::from(i == at)).collect(),
            Err(_) => solved.next().expect("one row for each lost chunk, in the order wanted"),
        };
        Method::Matrix(Matrix::new(&want.iter().map(row_of).collect::<Vec<_>>(), reads.len()))
    };
    #[expect(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]
    let reads = reads.iter().map(|chunk| ChunkRead { chunk: *chunk, sub_chunks: vec![0..1] }).collect();
    Ok(ReadPlan { want: want.to_vec(), reads, method, alpha: 1 })
}

/// What is read, ascending, and for each lost chunk its coefficient for each read.
#[derive(Debug)]
struct Way {
    reads: Vec<ChunkIndex>,
    rows: Vec<Vec<u8>>,
}

impl Way {
    fn cost(&self, costs: &ReadCosts) -> u64 {
        self.reads.iter().filter_map(|chunk| costs.chunks[chunk.at()]).map(u64::from).sum()
    }
}

/// The chunks that can be read: those of `left`, then the others, the cheapest first, lower index first among equals.
fn by_cost(costs: &ReadCosts, left: &[ChunkIndex]) -> Vec<ChunkIndex> {
    let mut readable: Vec<(bool, u32, ChunkIndex)> = (0..)
        .map(ChunkIndex)
        .zip(costs.chunks)
        .filter_map(|(chunk, cost)| cost.map(|cost| (!left.contains(&chunk), cost, chunk)))
        .collect();
    readable.sort_unstable();
    readable.into_iter().map(|(.., chunk)| chunk).collect()
}

/// Expresses `lost` by the first independent ones of `readable` that are `allowed`, and keeps those it takes; `left`
/// is read in any case. `None` if the allowed ones do not determine it.
fn solve(
    code: &Generator,
    readable: &[ChunkIndex],
    allowed: &BTreeSet<ChunkIndex>,
    left: &[ChunkIndex],
    lost: &[ChunkIndex],
) -> Option<Way> {
    let mut span = Span::new(code.data().into());
    let members: Vec<ChunkIndex> = readable
        .iter()
        .copied()
        .filter(|chunk| !lost.is_empty() && allowed.contains(chunk) && span.insert(&code.vector(*chunk)))
        .collect();
    let recipes: Vec<Vec<u8>> = lost.iter().map(|chunk| span.express(&code.vector(*chunk))).collect::<Option<_>>()?;
    let used = (0..members.len()).filter(|at| recipes.iter().any(|recipe| recipe[*at] != 0)).map(|at| members[at]);
    let reads: BTreeSet<ChunkIndex> = used.chain(left.iter().copied()).collect();
    let reads: Vec<ChunkIndex> = reads.into_iter().collect();
    let coefficient = |recipe: &[u8], chunk: &ChunkIndex| {
        members.iter().position(|member| member == chunk).map_or(0, |at| recipe[at])
    };
    let rows = recipes.iter().map(|recipe| reads.iter().map(|chunk| coefficient(recipe, chunk)).collect()).collect();
    Some(Way { reads, rows })
}

/// The reads that make all of `lost` known by checks alone, if there are such: the best of the orders to go by, or with
/// many lost chunks, whichever is nearest next.
fn peel(code: &Generator, costs: &ReadCosts, left: &[ChunkIndex], lost: &[ChunkIndex]) -> Option<BTreeSet<ChunkIndex>> {
    let start = Peeling::new(code, left);
    let mut ways = vec![(start, lost.to_vec())];
    for _ in lost {
        let mut next = Vec::new();
        for (way, open) in &ways {
            let search = Search::run(code, costs, &way.known);
            let mut nearest: Vec<(usize, (u64, u64))> =
                open.iter().enumerate().filter_map(|(at, chunk)| Some((at, search.price[chunk.at()]?))).collect();
            if lost.len() > ORDERS_MAX {
                nearest.sort_by_key(|(_, price)| *price);
                nearest.truncate(1);
            }
            for (at, _) in nearest {
                let (mut way, mut open) = (way.clone(), open.clone());
                way.add(code, &search, open.swap_remove(at));
                next.push((way, open));
            }
        }
        ways = next;
    }
    let cost = |reads: &BTreeSet<ChunkIndex>| {
        reads.iter().filter_map(|chunk| costs.chunks[chunk.at()]).map(u64::from).sum::<u64>()
    };
    ways.into_iter().map(|(way, _)| way.reads).min_by_key(|reads| (reads.len(), cost(reads)))
}

/// Up to so many lost chunks, all orders to recover them in are tried.
const ORDERS_MAX: usize = 3;

/// What is read, and known with it.
#[derive(Clone, Debug)]
struct Peeling {
    known: Vec<bool>,
    reads: BTreeSet<ChunkIndex>,
}

impl Peeling {
    fn new(code: &Generator, left: &[ChunkIndex]) -> Self {
        let known = (0..code.chunks()).map(|chunk| left.contains(&ChunkIndex(chunk))).collect();
        Self { known, reads: left.iter().copied().collect() }
    }

    /// Adds `chunk` and what it is made of.
    fn add(&mut self, code: &Generator, search: &Search, chunk: ChunkIndex) {
        if self.known[chunk.at()] {
            return;
        }
        self.known[chunk.at()] = true;
        match search.by[chunk.at()] {
            Some(check) => code.checks()[check].iter().for_each(|member| self.add(code, search, *member)),
            None => {
                self.reads.insert(chunk);
            }
        }
    }
}

/// The cheapest way by checks to every chunk that has one.
#[derive(Debug)]
struct Search {
    /// Reads and their costs, summed along the way.
    price: Vec<Option<(u64, u64)>>,
    /// The check that a chunk is made by, if it is not read.
    by: Vec<Option<usize>>,
}

impl Search {
    fn run(code: &Generator, costs: &ReadCosts, known: &[bool]) -> Self {
        let read = |(known, cost): (&bool, &Option<u32>)| match (known, cost) {
            (true, _) => Some((0, 0)),
            (false, cost) => cost.map(|cost| (1, u64::from(cost))),
        };
        let mut price: Vec<Option<(u64, u64)>> = known.iter().zip(costs.chunks).map(read).collect();
        let mut by = vec![None; price.len()];
        let mut final_ = vec![false; price.len()];
        // Each round makes one chunk's price final: no sum can still undercut the least that is left.
        while let Some((chunk, _)) = (0..price.len())
            .filter(|chunk| !final_[*chunk])
            .filter_map(|chunk| Some((chunk, price[chunk]?)))
            .min_by_key(|(_, price)| *price)
        {
            final_[chunk] = true;
            for (at, check) in code.checks().iter().enumerate() {
                if !check.iter().any(|member| member.at() == chunk) {
                    continue;
                }
                let mut open = check.iter().filter(|member| !final_[member.at()]);
                let (Some(last), None) = (open.next(), open.next()) else { continue };
                let sum = check
                    .iter()
                    .filter(|member| *member != last)
                    .filter_map(|member| price[member.at()])
                    .fold((0, 0), |sum, price| (sum.0 + price.0, sum.1 + price.1));
                if price[last.at()].is_none_or(|price| sum < price) {
                    price[last.at()] = Some(sum);
                    by[last.at()] = Some(at);
                }
            }
        }
        Self { price, by }
    }
}
