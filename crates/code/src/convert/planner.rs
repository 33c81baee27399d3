//! Finds conversions by the generators alone. No code is known by name here, so any two codes that can share parity do.
//! Source: [hacfs §3.2], [hacfs §3.3], [convertible §III]
//!
//! 1. A new parity that some old one equals is kept. So the global parities of an LRC stay when its groups change, the
//!    row parities of merged product codes stay, and `rs:6+4` is `rs:6+3` with one parity more.
//! 2. Any other is summed up source stripe by source stripe, since old parity never mixes data of different stripes.
//!    What it needs of one stripe is either read as data, or is a sum of the stripe's parities and of data that is read
//!    anyway. Row by row the way that reads less is taken; if all rows from data would have read less, that is.
//!
//! This finds the least that is known: parity only when stripes merge, and when one splits, the data of all parts but
//! the last.

use std::collections::BTreeSet;

use super::{CONVERSION_DATA_MAX, ConversionGoal, ConversionPlan, Kept, Making, NoConversion, StripeChunk};
use crate::{
    ChunkIndex, CodeSpec, Tier, UpdatePlan,
    field::{inv, mul},
    linear::Span,
};

/// Plans how stripes of code `from` become stripes of code `to`.
///
/// ```
/// use claystone_code::{ConversionGoal, plan_conversion};
///
/// // Two stripes of 6 + 3 become one of 12 + 3: the six parities are read, and not one of the twelve data chunks.
/// let (from, to) = ("rsm:6+3".parse().expect("valid"), "rsm:12+3".parse().expect("valid"));
/// let plan = plan_conversion(from, to, ConversionGoal::FewestReads).expect("a conversion");
/// assert_eq!((plan.sources, plan.targets), (2, 1));
/// assert_eq!((plan.reads.len(), plan.writes.len()), (6, 3));
/// assert!(plan.reads.iter().all(|read| read.chunk.0 >= 6));
/// ```
///
/// # Errors
/// All of [`NoConversion`].
pub fn plan_conversion(from: CodeSpec, to: CodeSpec, goal: ConversionGoal) -> Result<ConversionPlan, NoConversion> {
    plan_conversion_without(from, to, goal, &[])
}

/// As [`plan_conversion`], where the old parity chunks `lost` are not kept: another equal one is, or the new one is written.
///
/// # Errors
/// All of [`NoConversion`].
pub fn plan_conversion_without(
    from: CodeSpec,
    to: CodeSpec,
    goal: ConversionGoal,
    lost: &[StripeChunk],
) -> Result<ConversionPlan, NoConversion> {
    from.validate().map_err(|source| NoConversion::From { spec: from, source })?;
    to.validate().map_err(|source| NoConversion::To { spec: to, source })?;
    if from == to {
        return Err(NoConversion::Same { spec: from });
    }
    let (old_data, new_data) = (from.shape().data, to.shape().data);
    let data = u32::from(old_data) / gcd(old_data, new_data) * u32::from(new_data);
    if data > CONVERSION_DATA_MAX {
        return Err(NoConversion::TooWide { from, to, data, limit: CONVERSION_DATA_MAX });
    }
    let name = |at: u32, per: u16| StripeChunk {
        stripe: u16::try_from(at / u32::from(per)).expect("at most CONVERSION_DATA_MAX"),
        chunk: ChunkIndex(u16::try_from(at % u32::from(per)).expect("less than per")),
    };
    let mut plan = ConversionPlan {
        from,
        to,
        sources: name(data, old_data).stripe,
        targets: name(data, new_data).stripe,
        kept: (0..data).map(|at| Kept { from: name(at, old_data), to: name(at, new_data) }).collect(),
        reads: Vec::new(),
        writes: Vec::new(),
        making: Making::Encode,
    };
    if let Some(new_rows) = parity_rows(to) {
        let old_rows = parity_rows(from).unwrap_or_default();
        Planner { old_data, new_data, old_rows: &old_rows, new_rows: &new_rows, goal, lost }.complete(&mut plan);
    } else {
        plan.reads = plan.kept.iter().map(|kept| kept.from).collect();
        let parity = to.shape().data..to.shape().chunks();
        let writes = (0..plan.targets).flat_map(|stripe| parity.clone().map(move |chunk| (stripe, ChunkIndex(chunk))));
        plan.writes = writes.map(|(stripe, chunk)| StripeChunk { stripe, chunk }).collect();
    }
    plan.kept.sort_unstable_by_key(|kept| kept.to);
    Ok(plan)
}

/// The coefficients of each parity over the data; `None` for codes whose chunks are no sums of chunks over GF(2^8).
fn parity_rows(spec: CodeSpec) -> Option<Vec<Vec<u8>>> {
    let shape = spec.shape();
    if shape.alpha > 1 {
        return None;
    }
    let code = spec.build_with_tier(Tier::Scalar).expect("a validated spec");
    let mut rows = vec![vec![0; shape.data.into()]; shape.parity.into()];
    for chunk in 0..shape.data {
        let UpdatePlan::Delta(deltas) = code.plan_update(ChunkIndex(chunk)) else { return None };
        for (parity, coefficient) in deltas {
            rows[usize::from(parity.0 - shape.data)][usize::from(chunk)] = u8::try_from(coefficient).ok()?;
        }
    }
    Some(rows)
}

fn gcd(a: u16, b: u16) -> u32 {
    if b == 0 { a.into() } else { gcd(b, a % b) }
}

/// What the search needs to know of the two codes.
struct Planner<'a> {
    old_data: u16,
    new_data: u16,
    old_rows: &'a [Vec<u8>],
    new_rows: &'a [Vec<u8>],
    goal: ConversionGoal,
    lost: &'a [StripeChunk],
}

/// A sum in the making: old chunks and their coefficients.
type Sum = Vec<(StripeChunk, u8)>;

/// What was decided to read of one old stripe.
#[derive(Clone, Debug)]
struct Source {
    stripe: u16,
    /// For each data chunk whether it is read.
    data: Vec<bool>,
    /// For each parity chunk whether it is read.
    parity: Vec<bool>,
}

impl Source {
    fn reads(&self) -> usize {
        self.data.iter().chain(&self.parity).filter(|read| **read).count()
    }
}

impl Planner<'_> {
    /// Adds parity, reads, writes and sums to a plan that has the data.
    fn complete(&self, plan: &mut ConversionPlan) {
        let data = vec![false; self.old_data.into()];
        let parity = vec![false; self.old_rows.len()];
        let mut sources: Vec<Source> =
            (0..plan.sources).map(|stripe| Source { stripe, data: data.clone(), parity: parity.clone() }).collect();
        let mut taken: BTreeSet<StripeChunk> = BTreeSet::new();
        let mut sums: Vec<Sum> = Vec::new();
        for target in 0..plan.targets {
            let mut open: Vec<&[u8]> = Vec::new();
            for (row, chunk) in self.new_rows.iter().zip(self.new_data..) {
                let to = StripeChunk { stripe: target, chunk: ChunkIndex(chunk) };
                if let Some(from) =
                    self.equal_old(target, row).into_iter().find(|old| !taken.contains(old) && !self.lost.contains(old))
                {
                    taken.insert(from);
                    plan.kept.push(Kept { from, to });
                } else {
                    plan.writes.push(to);
                    open.push(row);
                }
            }
            let mut made = vec![Sum::new(); open.len()];
            for at in self.overlapping(target) {
                let parts: Vec<Vec<u8>> = open.iter().map(|row| self.part(target, row, at)).collect();
                let source = &mut sources[usize::from(at)];
                made.iter_mut().zip(self.sum_stripe(source, &parts)).for_each(|(sum, part)| sum.extend(part));
            }
            sums.append(&mut made);
        }
        let reads: BTreeSet<StripeChunk> = sums.iter().flatten().map(|(chunk, _)| *chunk).collect();
        plan.reads = reads.into_iter().collect();
        let place = |chunk| {
            let at = plan.reads.binary_search(&chunk).expect("every term is read");
            u16::try_from(at).expect("no more reads than data")
        };
        let terms = |sum: &Sum| {
            let mut terms: Vec<(u16, u8)> = sum.iter().map(|(chunk, coef)| (place(*chunk), *coef)).collect();
            terms.sort_unstable();
            terms
        };
        plan.making = Making::Sums(sums.iter().map(terms).collect());
    }

    /// Old stripes with data in the new stripe `target`.
    fn overlapping(&self, target: u16) -> std::ops::RangeInclusive<u16> {
        let stripe = |data: u32| u16::try_from(data / u32::from(self.old_data)).expect("at most CONVERSION_DATA_MAX");
        let first = u32::from(target) * u32::from(self.new_data);
        stripe(first)..=stripe(first + u32::from(self.new_data) - 1)
    }

    /// The coefficients that a row of `target` has for the data of the old stripe `source`.
    fn part(&self, target: u16, row: &[u8], source: u16) -> Vec<u8> {
        let first = u32::from(source) * u32::from(self.old_data);
        let start = u32::from(target) * u32::from(self.new_data);
        let coefficient = |at: u32| at.checked_sub(start).and_then(|at| row.get(at as usize)).copied().unwrap_or(0);
        (first..first + u32::from(self.old_data)).map(coefficient).collect()
    }

    /// Old parities with the same bytes as the new one of `row`.
    fn equal_old(&self, target: u16, row: &[u8]) -> Vec<StripeChunk> {
        let parts = self.overlapping(target).map(|source| (source, self.part(target, row, source)));
        let parts: Vec<(u16, Vec<u8>)> = parts.filter(|(_, part)| part.iter().any(|coef| *coef != 0)).collect();
        let [(stripe, part)] = &parts[..] else { return Vec::new() };
        let equal = (self.old_data..).map(ChunkIndex).zip(self.old_rows).filter(|(_, old)| *old == part);
        equal.map(|(chunk, _)| StripeChunk { stripe: *stripe, chunk }).collect()
    }

    /// Sums up each row over the data of one old stripe, by whichever way reads less of it.
    fn sum_stripe(&self, source: &mut Source, rows: &[Vec<u8>]) -> Vec<Sum> {
        let (mut by_row, mut by_data) = (source.clone(), source.clone());
        // A copy is made of its data chunk, which others find read then.
        let is_copy = |row: &[u8]| row.iter().filter(|coef| **coef != 0).count() == 1;
        let (copies, others): (Vec<usize>, Vec<usize>) = (0..rows.len()).partition(|at| is_copy(&rows[*at]));
        let mut short = vec![Sum::new(); rows.len()];
        copies.into_iter().chain(others).for_each(|at| short[at] = self.sum_row(&mut by_row, &rows[at]));
        let plain: Vec<Sum> = rows.iter().map(|row| self.sum_data(&mut by_data, row)).collect();
        if self.goal == ConversionGoal::DataOnly {
            *source = by_data;
            return plain;
        }
        let weight = |source: &Source, sums: &[Sum]| (source.reads(), sums.iter().map(Vec::len).sum::<usize>());
        let data_wins = weight(&by_data, &plain) < weight(&by_row, &short);
        *source = if data_wins { by_data } else { by_row };
        if data_wins { plain } else { short }
    }

    /// One row from data alone.
    fn sum_data(&self, source: &mut Source, row: &[u8]) -> Sum {
        source.data.iter_mut().zip(row).for_each(|(read, coef)| *read |= *coef != 0);
        self.sum_of(source, row, &[])
    }

    /// One row by the way that reads less: from data, or from parities and data that is read already.
    fn sum_row(&self, source: &mut Source, row: &[u8]) -> Sum {
        let unread: Vec<usize> = (0..row.len()).filter(|at| !source.data[*at]).collect();
        let narrow = |row: &[u8]| -> Vec<u8> { unread.iter().map(|at| row[*at]).collect() };
        let wanted = narrow(row);
        let data_reads = wanted.iter().filter(|coef| **coef != 0).count();
        let parity_reads = |recipe: &Recipe| match self.goal {
            ConversionGoal::ShortSums => recipe.len(),
            _ => recipe.iter().filter(|(parity, _)| !source.parity[*parity]).count(),
        };
        let parities: Vec<Vec<u8>> = self.old_rows.iter().map(|row| narrow(row)).collect();
        let recipe = recipes(&parities, &wanted, &source.parity)
            .into_iter()
            .filter(|recipe| parity_reads(recipe) < data_reads)
            .min_by_key(|recipe| (parity_reads(recipe), recipe.len()));
        let Some(recipe) = recipe else { return self.sum_data(source, row) };
        recipe.iter().for_each(|(parity, _)| source.parity[*parity] = true);
        self.sum_of(source, row, &recipe)
    }

    /// `row` as the parities of `recipe` and the data that it still takes.
    ///
    /// # Panics
    /// If that data is not read.
    fn sum_of(&self, source: &Source, row: &[u8], recipe: &[(usize, u8)]) -> Sum {
        let old = |chunk: usize, coefficient: u8| {
            let chunk = ChunkIndex(u16::try_from(chunk).expect("at most 65,535 chunks"));
            (StripeChunk { stripe: source.stripe, chunk }, coefficient)
        };
        let mut sum = Sum::new();
        for (at, coef) in row.iter().enumerate() {
            let rest = recipe.iter().fold(*coef, |rest, (parity, coef)| rest ^ mul(*coef, self.old_rows[*parity][at]));
            if rest != 0 {
                assert!(source.data[at], "data chunk {at} is not read");
                sum.push(old(at, rest));
            }
        }
        sum.extend(recipe.iter().map(|(parity, coef)| old(row.len() + parity, *coef)));
        sum
    }
}

/// Parities and their coefficients.
type Recipe = Vec<(usize, u8)>;

/// Ways to make `wanted` of `parities`: by a single one, by those that are read already, by all.
fn recipes(parities: &[Vec<u8>], wanted: &[u8], read: &[bool]) -> Vec<Recipe> {
    let Some(first) = wanted.iter().position(|coef| *coef != 0) else {
        return Vec::new();
    };
    let single = parities.iter().enumerate().filter(|(_, parity)| parity[first] != 0).find_map(|(at, parity)| {
        let factor = mul(wanted[first], inv(parity[first]));
        parity.iter().zip(wanted).all(|(value, coef)| mul(factor, *value) == *coef).then(|| vec![(at, factor)])
    });
    let mut span = Span::new(wanted.len());
    let mut members = Vec::new();
    let mut found = vec![single];
    for having in [true, false] {
        for at in (0..parities.len()).filter(|at| read[*at] == having) {
            if span.insert(&parities[at]) {
                members.push(at);
            }
        }
        found.push(
            span.express(wanted)
                .map(|recipe| members.iter().copied().zip(recipe).filter(|(_, coef)| *coef != 0).collect()),
        );
    }
    found.into_iter().flatten().collect()
}
