//! Whether stripes that have lost chunks and are to be converted are repaired first or converted first: whichever reads less.
//!
//! ```text
//!   three pc:2x5 to pc:6x5, a column parity lost      repair 2, convert 15          = 17
//!                                                     convert 15, nothing is left   = 15    converted first
//!   the same, a data chunk lost                       repair 2, convert 15          = 17    repaired first
//!                                                     convert 15, repair 5          = 20, and two whole stripes less safe
//! ```
//!
//! Invariants:
//! 1. What is converted first survives, until it is repaired, as many further losses as the safest of its stripes did, or as the new
//!    code as a whole: no stripe that is merged with a hurt one is the less safe for it. The executor refuses the same
//!    (`ConversionPlan::weakens`), so nothing is begun here that it would not end.
//! 2. Of two ways that read alike the repair comes first.

use claystone_code::{ChunkIndex, CodeSpec, ConversionPlan, ReadCosts, StripeChunk};

/// Chunks that both ways read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OrderCosts {
    /// Of repairing what is lost and converting then.
    pub repair_first: f64,
    /// Of converting and repairing what is lost then still.
    pub conversion_first: f64,
}

impl OrderCosts {
    /// Whether to convert first.
    pub fn converts_first(self) -> bool {
        self.conversion_first < self.repair_first
    }
}

/// What both ways read when `lost` of the plan's old chunks cannot be read; `None` if one of them is not possible, or would
/// leave a stripe less safe than it is.
pub fn order_costs(plan: &ConversionPlan, lost: &[StripeChunk]) -> Option<OrderCosts> {
    let of = |chunks: &[StripeChunk], stripe: u16| -> Vec<ChunkIndex> {
        chunks.iter().filter(|chunk| chunk.stripe == stripe).map(|chunk| chunk.chunk).collect()
    };
    if plan.weakens(lost).is_some() {
        return None;
    }
    let (mut repair_first, mut conversion_first) = (plan.reads.len() as f64, 0.0);
    for stripe in 0..plan.sources {
        let lost = of(lost, stripe);
        repair_first += reads(plan.from, &lost, &lost)?;
        conversion_first += reads(plan.from, &of(&plan.reads, stripe), &lost)?;
    }
    let kept_lost = plan.kept.iter().filter(|kept| lost.contains(&kept.from)).map(|kept| kept.to);
    let kept_lost: Vec<StripeChunk> = kept_lost.collect();
    for stripe in 0..plan.targets {
        let lost = of(&kept_lost, stripe);
        conversion_first += reads(plan.to, &lost, &lost)?;
    }
    Some(OrderCosts { repair_first, conversion_first })
}

/// Chunks read for `want` of a stripe without `lost`; parts of chunks count as parts.
fn reads(code: CodeSpec, want: &[ChunkIndex], lost: &[ChunkIndex]) -> Option<f64> {
    if want.is_empty() {
        return Some(0.0);
    }
    let shape = code.shape();
    let cost = |chunk: u16| (!lost.contains(&ChunkIndex(chunk))).then_some(1);
    let chunks: Vec<Option<u32>> = (0..shape.chunks()).map(cost).collect();
    // Whole sub-chunks are what a long stripe reads.
    let costs = ReadCosts { chunks: &chunks, sub_bytes: 1, granule: 1 };
    let plan = code.build().ok()?.plan_read(want, &costs).ok()?;
    Some(plan.sub_chunks_total() as f64 / f64::from(shape.alpha))
}

#[cfg(test)]
mod tests {
    use claystone_code::{ConversionGoal, plan_conversion};

    use super::*;

    fn costs(from: &str, to: &str, lost: &[(u16, u16)]) -> Option<(f64, f64)> {
        let spec = |text: &str| text.parse::<CodeSpec>().expect("a valid code");
        let plan = plan_conversion(spec(from), spec(to), ConversionGoal::FewestReads).expect("a conversion");
        let lost: Vec<StripeChunk> =
            lost.iter().map(|(stripe, chunk)| StripeChunk { stripe: *stripe, chunk: ChunkIndex(*chunk) }).collect();
        order_costs(&plan, &lost).map(|costs| (costs.repair_first, costs.conversion_first))
    }

    #[test]
    fn a_lost_chunk_that_the_conversion_drops_is_not_repaired() {
        // A copy: it is neither read nor kept.
        assert_eq!(costs("mirror:6x3", "rsm:6+3", &[(0, 7)]), Some((7.0, 6.0)));
        // A column parity: it is read, and is the sum of the others and the global one.
        assert_eq!(costs("pc:2x5", "pc:6x5", &[(1, 12)]), Some((17.0, 15.0)));
        // A parity of a Reed-Solomon stripe: it costs the six others of which the plan reads two anyway.
        let (repair_first, conversion_first) = costs("rsm:6+3", "rsm:12+3", &[(0, 6)]).expect("both are possible");
        assert_eq!((repair_first, conversion_first), (12.0, 3.0 + 6.0));
    }

    #[test]
    fn a_lost_chunk_that_stays_is_repaired_where_that_is_cheaper() {
        assert_eq!(costs("mirror:6x3", "rsm:6+3", &[(0, 2)]), Some((7.0, 12.0)));
        // Compact ones are split first: repaired, the fast code reads two.
        let (repair_first, conversion_first) = costs("pc:6x5", "pc:2x5", &[(0, 29)]).expect("both are possible");
        assert!((repair_first, conversion_first) == (30.0, 27.0), "{repair_first} or {conversion_first}");
    }

    #[test]
    fn whole_stripes_are_converted_for_what_the_plan_says() {
        let (repair_first, conversion_first) = costs("pc:2x5", "pc:6x5", &[]).expect("nothing is lost");
        assert_eq!((repair_first, conversion_first), (15.0, 15.0));
        assert!(!OrderCosts { repair_first, conversion_first }.converts_first());
    }

    /// So that it moves five times less than copying whatever disk is lost: with two chunks written at most 9 of 52, which `demo --adaptive` holds.
    #[test]
    fn with_a_lost_local_parity_one_chunk_more_is_read() {
        for chunk in 0..20 {
            let ways = costs("lrc:12+6+2", "lrc:12+2+2", &[(0, chunk)]);
            if (12..18).contains(&chunk) {
                assert_eq!(ways, Some((8.0, 7.0)), "{chunk}");
            } else {
                assert!(
                    ways.is_none_or(|(repair_first, conversion_first)| repair_first <= conversion_first),
                    "{chunk}"
                );
            }
        }
        assert_eq!(costs("rsm:6+3", "rsm:12+3", &[(0, 6)]), Some((12.0, 9.0)));
    }

    #[test]
    fn what_would_be_less_safe_or_cannot_be_read_is_repaired_first() {
        // Two stripes with a lost data chunk each survive two more; the merged one survives one.
        assert_eq!(costs("rsm:6+3", "rsm:12+3", &[(0, 0), (1, 0)]), None);
        assert_eq!(costs("rsm:6+3", "rsm:12+3", &[(0, 0), (0, 1), (0, 2), (0, 3)]), None);
        // One lost a data chunk and a column parity, one a column parity, and the third would survive one loss less than it does.
        assert_eq!(costs("pc:2x5", "pc:6x5", &[(0, 3)]), None);
        assert_eq!(costs("pc:2x5", "pc:6x5", &[(0, 3), (0, 12), (1, 12)]), None);
    }
}
