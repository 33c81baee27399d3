//! Conversions: what they read and write, and that their bytes are those of a fresh encode.

use proptest::prelude::*;

use super::{
    CONVERSION_DATA_MAX, ConversionGoal, ConversionPlan, Converter, Making, NoConversion, StripeChunk, plan_conversion,
};
use crate::{
    ChunkIndex, CodeSpec, Coded, SpecError, Tier,
    tests::{noise, stripe, tier},
};

const GOALS: [ConversionGoal; 3] = [ConversionGoal::FewestReads, ConversionGoal::ShortSums, ConversionGoal::DataOnly];

fn spec(text: &str) -> CodeSpec {
    text.parse().expect("a valid spec")
}

fn plan(from: &str, to: &str, goal: ConversionGoal) -> ConversionPlan {
    plan_conversion(spec(from), spec(to), goal).expect("a conversion")
}

/// Converts random data and compares every new chunk with a fresh encode.
fn check(plan: &ConversionPlan, tier: Tier) {
    let build = |spec: CodeSpec| spec.build_with_tier(tier).expect("a valid spec");
    let (old_code, new_code) = (build(plan.from), build(plan.to));
    let bytes = (old_code.shape().alpha * new_code.shape().alpha) as usize * 3;
    let mut state = 5;
    let count = usize::from(plan.sources) * usize::from(old_code.shape().data);
    let data: Vec<Vec<u8>> = (0..count).map(|_| noise(&mut state, bytes)).collect();
    let encode = |code: &dyn crate::ErasureCode| -> Vec<Vec<Vec<u8>>> {
        data.chunks(code.shape().data.into())
            .map(|data| {
                let mut parity = vec![vec![0; bytes]; code.shape().parity.into()];
                let sources: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
                code.encode(&sources, &mut parity.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
                [data, &parity].concat()
            })
            .collect()
    };
    let (old, new) = (encode(&*old_code), encode(&*new_code));
    assert_eq!((old.len(), new.len()), (plan.sources.into(), plan.targets.into()));

    let fetched: Vec<&[u8]> = plan.reads.iter().map(|at| &old[usize::from(at.stripe)][at.chunk.at()][..]).collect();
    let mut written = vec![vec![0x5a; bytes]; plan.writes.len()];
    let converter = Converter::with_tier(plan, tier).expect("a valid spec");
    converter.apply(&fetched, &mut written.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());

    let mut made: Vec<Vec<Option<&[u8]>>> = new.iter().map(|stripe| vec![None; stripe.len()]).collect();
    let kept = plan.kept.iter().map(|kept| (kept.to, &old[usize::from(kept.from.stripe)][kept.from.chunk.at()][..]));
    for (to, chunk) in kept.chain(plan.writes.iter().copied().zip(written.iter().map(Vec::as_slice))) {
        let place = &mut made[usize::from(to.stripe)][to.chunk.at()];
        assert!(place.is_none(), "chunk {to} is made twice");
        *place = Some(chunk);
    }
    for (made, new) in made.iter().flatten().zip(new.iter().flatten()) {
        assert!(*made == Some(&new[..]), "{} -> {}", plan.from, plan.to);
    }
    let dropped = plan.dropped().len();
    assert_eq!(plan.kept.len() + dropped, old.iter().map(Vec::len).sum::<usize>());
}

/// Test of: [hacfs §3.2], [hacfs §3.3], [convertible §III]: chunks read and written, as an independent script counted.
#[test]
fn counts_are_the_corrected_ones_of_the_papers() {
    use ConversionGoal::{DataOnly, FewestReads, ShortSums};
    for (from, to, goal, stripes, reads, writes) in [
        // Merging product codes: 15 column parities and 3 corners. The corner is the sum of the column parities, which
        // are read anyway, so 15 do.
        ("pc:2x5", "pc:6x5", ShortSums, (3, 1), 18, 6),
        ("pc:2x5", "pc:6x5", FewestReads, (3, 1), 15, 6),
        // Splitting: the data of two stripes, the old column parities and the old corner, which again is a sum.
        ("pc:6x5", "pc:2x5", ShortSums, (1, 3), 26, 18),
        ("pc:6x5", "pc:2x5", FewestReads, (1, 3), 25, 18),
        // An LRC's groups collapse and split; the global parities stay.
        ("lrc:12+6+2", "lrc:12+2+2", FewestReads, (1, 1), 6, 2),
        ("lrc:12+2+2", "lrc:12+6+2", FewestReads, (1, 1), 10, 6),
        ("lrc:12+6+2", "lrc:12+2+2", ShortSums, (1, 1), 6, 2),
        ("lrc:12+2+2", "lrc:12+6+2", ShortSums, (1, 1), 10, 6),
        // Reed-Solomon merges by parity; a split reads the data of all parts but the last, and the parity.
        ("rsm:6+3", "rsm:12+3", FewestReads, (2, 1), 6, 3),
        ("rsm:10+4", "rsm:20+4", FewestReads, (2, 1), 8, 4),
        ("rsm:4+3", "rsm:12+3", FewestReads, (3, 1), 9, 3),
        ("rsm:12+3", "rsm:6+3", FewestReads, (1, 2), 9, 6),
        ("rsm:20+4", "rsm:10+4", FewestReads, (1, 2), 14, 8),
        // More parity than data: the data is the shorter way.
        ("rsm:2+3", "rsm:4+3", FewestReads, (2, 1), 4, 3),
        // The Cauchy matrix has no such points, but its first stripe has the same coefficients in the merged one.
        ("rs:6+3", "rs:12+3", FewestReads, (2, 1), 9, 3),
        // Nested codes: one more parity, or one less.
        ("rs:6+3", "rs:6+4", FewestReads, (1, 1), 6, 1),
        ("rs:6+4", "rs:6+3", FewestReads, (1, 1), 0, 0),
        // From and to replicas.
        ("replica:3", "rs:6+3", FewestReads, (6, 1), 6, 3),
        ("replica:3", "lrc:12+2+2", FewestReads, (12, 1), 12, 4),
        ("replica:3", "pc:2x5", FewestReads, (10, 1), 10, 8),
        ("mirror:4x3", "rs:4+2", FewestReads, (1, 1), 4, 2),
        ("rs:4+2", "mirror:4x3", FewestReads, (1, 1), 4, 8),
        ("mirror:4x2", "mirror:4x3", FewestReads, (1, 1), 4, 4),
        ("rs:6+3", "replica:3", FewestReads, (1, 6), 6, 12),
        // With the parity there, copies are dropped and nothing else; merging reads parity alone, or none where it is kept.
        ("hybrid:rsm:6+3x2", "rsm:6+3", FewestReads, (1, 1), 0, 0),
        ("hybrid:rsm:6+3x2", "rsm:12+3", FewestReads, (2, 1), 6, 3),
        ("hybrid:pc:2x5x2", "pc:2x5", FewestReads, (1, 1), 0, 0),
        ("hybrid:pc:2x5x2", "pc:6x5", FewestReads, (3, 1), 15, 6),
        ("hybrid:lrc:12+6+2x2", "lrc:12+2+2", FewestReads, (1, 1), 6, 2),
        ("rsm:6+3", "hybrid:rsm:6+3x2", FewestReads, (1, 1), 6, 6),
        ("mirror:6x2", "hybrid:rsm:6+3x2", FewestReads, (1, 1), 6, 3),
        // One chunk turned: its copies are new and its part of the parity goes, and back.
        ("rs:4+2", "mixed:4+2x3:1", FewestReads, (1, 1), 3, 4),
        ("mixed:4+2x3:1", "rs:4+2", FewestReads, (1, 1), 3, 2),
        ("mixed:4+2x3:1", "mixed:4+2x3:1+2", FewestReads, (1, 1), 3, 4),
        ("mirror:4x3", "mixed:4+2x3:1+2", FewestReads, (1, 1), 2, 2),
        ("mixed:4+2x3:1+2", "mirror:4x3", FewestReads, (1, 1), 2, 4),
        ("rs:4+2", "mixed:4+2x3:1", DataOnly, (1, 1), 4, 4),
        ("mixed:4+2x3:1", "rs:4+2", DataOnly, (1, 1), 4, 2),
        ("mirror:4x3", "mixed:4+2x3:1+2", DataOnly, (1, 1), 2, 2),
        ("lrc:12+6+2", "lrc:12+2+2", DataOnly, (1, 1), 12, 2),
        ("replica:2", "replica:3", FewestReads, (1, 1), 1, 1),
        ("replica:3", "replica:2", FewestReads, (1, 1), 0, 0),
        // Nothing in common but the data.
        ("rs:4+2", "rs:6+3", FewestReads, (3, 2), 12, 6),
        ("rs:4+2", "clay:4+2:5", FewestReads, (1, 1), 4, 2),
        ("clay:4+2:5", "rs:4+2", FewestReads, (1, 1), 4, 2),
        ("clay:4+2:5", "lrc:12+2+2", FewestReads, (3, 1), 12, 4),
        // The rows of a product code are the groups of an LRC.
        ("lrc:12+2+2", "pc:2x6", FewestReads, (1, 1), 12, 7),
    ] {
        let plan = plan(from, to, goal);
        let found = ((plan.sources, plan.targets), plan.reads.len(), plan.writes.len());
        assert_eq!(found, (stripes, reads, writes), "{from} -> {to}, {goal:?}");
        assert_eq!((plan.bytes_read(10), plan.bytes_written(10)), (reads as u64 * 10, writes as u64 * 10));
        for tier in Tier::available() {
            check(&plan, *tier);
        }
    }
}

/// Test of: [hacfs §3.2]: with every sum computed where one of its terms lies, merging moves 12 chunks.
#[test]
fn sums_beside_their_chunks_move_what_the_paper_says() {
    assert_eq!(plan("pc:2x5", "pc:6x5", ConversionGoal::ShortSums).transfers(), Some(12));
    assert_eq!(plan("lrc:12+6+2", "lrc:12+2+2", ConversionGoal::ShortSums).transfers(), Some(4));
    let merge = plan("rsm:10+4", "rsm:20+4", ConversionGoal::ShortSums);
    assert_eq!((merge.transfers(), merge.bytes_combined(1)), (Some(4), 8));
    assert_eq!(plan("rs:4+2", "clay:4+2:5", ConversionGoal::ShortSums).transfers(), None);
}

/// Test of: [hacfs §3.2], with its slip mended: row parities stay, column parities and the corner change.
#[test]
fn merging_product_codes_touches_no_data_and_no_row_parity() {
    let plan = plan("pc:2x5", "pc:6x5", ConversionGoal::ShortSums);
    assert!(plan.reads.iter().all(|read| read.chunk.0 >= 12));
    assert!(plan.writes.iter().all(|write| write.chunk.0 >= 36));
    let kept_rows = plan.kept.iter().filter(|kept| kept.to.chunk.0 >= 30);
    let rows: Vec<(u16, u16, u16)> =
        kept_rows.map(|kept| (kept.to.chunk.0, kept.from.stripe, kept.from.chunk.0)).collect();
    assert_eq!(rows, [(30, 0, 10), (31, 0, 11), (32, 1, 10), (33, 1, 11), (34, 2, 10), (35, 2, 11)]);
    let Making::Sums(sums) = &plan.making else { panic!("sums") };
    assert!(sums.iter().all(|sum| sum.len() == 3 && sum.iter().all(|(_, coefficient)| *coefficient == 1)));
}

/// Test of: [hacfs §3.3]: the globals of one are those of the other.
#[test]
fn lrcs_of_equal_size_share_their_global_parities() {
    let (fast, compact) = (spec("lrc:12+6+2"), spec("lrc:12+2+2"));
    let globals = |spec: CodeSpec| {
        let code = spec.build_with_tier(tier()).expect("a valid spec");
        stripe(&*code, 64, 1)[code.shape().chunks() as usize - 2..].to_vec()
    };
    assert!(globals(fast) == globals(compact));
}

#[test]
fn what_cannot_be_converted_says_why() {
    let error = |from, to| plan_conversion(from, to, ConversionGoal::FewestReads).expect_err("no conversion");
    let (good, bad) = (spec("rs:4+2"), CodeSpec::Replicated { copies: 0 });
    assert_eq!(error(bad, good), NoConversion::From { spec: bad, source: SpecError::NoCopies });
    assert_eq!(error(good, bad), NoConversion::To { spec: bad, source: SpecError::NoCopies });
    assert_eq!(error(good, good), NoConversion::Same { spec: good });
    let (from, to) = (spec("rs:64+2"), spec("rs:65+2"));
    assert_eq!(error(from, to), NoConversion::TooWide { from, to, data: 4160, limit: CONVERSION_DATA_MAX });
    assert_eq!(error(from, to).to_string(), "rs:64+2 and rs:65+2 meet at 4160 data chunks, the limit is 4096");
}

#[test]
fn no_stripe_becomes_less_safe_for_those_it_is_merged_with() {
    let weakened = |from, to, lost: &[(u16, u16)]| {
        let lost = lost.iter().map(|(stripe, chunk)| StripeChunk { stripe: *stripe, chunk: ChunkIndex(*chunk) });
        let weakened = plan(from, to, ConversionGoal::FewestReads).weakens(&lost.collect::<Vec<_>>());
        weakened.map(|weakened| (weakened.target, weakened.before, weakened.after))
    };
    let merged = |lost| weakened("rsm:6+3", "rsm:12+3", lost);
    assert_eq!(merged(&[]), None);
    assert_eq!(merged(&[(0, 6), (0, 7), (1, 8)]), None, "parity is made anew");
    assert_eq!(merged(&[(1, 0)]), Some((0, 3, 2)), "the other one is whole");
    assert_eq!(merged(&[(0, 8), (1, 0)]), None, "both survive two");
    assert_eq!(merged(&[(0, 0), (1, 0)]), Some((0, 2, 1)));
    assert_eq!(merged(&[(0, 0), (0, 1), (1, 0), (1, 1)]), Some((0, 1, -1)));
    // Copies survive two losses of any chunks, as many as the code: one data chunk is one loss, a copy none.
    assert_eq!(weakened("mirror:6x3", "rsm:6+2", &[(0, 7)]), None);
    assert_eq!(weakened("mirror:6x3", "rsm:6+2", &[(0, 0)]), None);
    assert_eq!(weakened("mirror:6x3", "rsm:6+2", &[(0, 0), (0, 1)]), Some((0, 1, 0)));
    // What copies survive beside the code is what they are dropped for.
    assert_eq!(weakened("hybrid:rsm:6+3x2", "rsm:6+3", &[]), None);
    assert_eq!(weakened("hybrid:rsm:6+3x2", "rsm:6+3", &[(0, 0)]), Some((0, 3, 2)));
    assert_eq!(weakened("hybrid:rsm:6+3x2", "rsm:6+3", &[(0, 9), (0, 14)]), None);
    // A new code that survives less is held to that.
    assert_eq!(weakened("rsm:6+3", "rsm:12+2", &[]), None);
    assert_eq!(weakened("rsm:6+3", "rsm:12+2", &[(0, 0)]), Some((0, 2, 1)));
    // Split, each half has its own losses.
    assert_eq!(weakened("rsm:12+3", "rsm:6+3", &[(0, 7)]), None);
    assert_eq!(weakened("rsm:12+3", "rsm:6+3", &[(0, 7), (0, 14)]), None);
}

#[test]
fn a_conversion_never_reads_more_than_the_data() {
    for from in ["replica:3", "rs:4+2", "rs:6+4", "lrc:12+3+3", "lrc:6+2+2", "pc:3x4", "pc:2x3", "rsm:3+3", "rsm:8+4"] {
        for to in ["replica:2", "rs:3+3", "lrc:12+2+3", "pc:6x4", "pc:2x6", "rsm:6+3", "rsm:5+4", "clay:4+2:5"] {
            for goal in GOALS {
                let plan = plan(from, to, goal);
                assert!(plan.reads.len() <= usize::from(plan.sources * spec(from).shape().data), "{from} -> {to}");
                check(&plan, tier());
            }
        }
    }
}

/// By sums, and by encoding. What Miri runs.
#[test]
fn small_codes_merge_split_and_become_others() {
    for (from, to, goal) in [
        ("rsm:2+2", "rsm:4+2", ConversionGoal::FewestReads),
        ("rsm:4+2", "rsm:2+2", ConversionGoal::ShortSums),
        ("pc:2x2", "rs:4+2", ConversionGoal::DataOnly),
        ("rs:2+2", "clay:2+2:3", ConversionGoal::FewestReads),
    ] {
        check(&plan(from, to, goal), tier());
    }
}

proptest! {
    #[test]
    fn any_two_small_codes_convert(
        families in (0..8, 0..8), sizes in (1..9u8, 1..5u8, 1..5u8), others in (1..9u8, 1..5u8, 1..5u8), goal in 0..3usize,
    ) {
        let code = |family, (a, b, c): (u8, u8, u8)| match family {
            0 => CodeSpec::ReedSolomon { data: a.into(), parity: b.into() },
            1 => CodeSpec::Lrc { data: b * c, local: b, global: 2 },
            2 => CodeSpec::Product { rows: b, columns: c },
            3 => CodeSpec::Mergeable { data: a, parity: b.min(4) },
            4 => CodeSpec::Mirror { data: a, copies: b + 1 },
            5 => CodeSpec::Hybrid { coded: Coded::Mergeable { data: a, parity: b.min(4) }, copies: 1 + c },
            6 => CodeSpec::Mixed {
                data: a + 1,
                parity: b,
                copies: 1 + c,
                mirrored: [a, a / 2].map(|at| ChunkIndex(at.into())).into_iter().take(1 + usize::from(a > 1)).collect(),
            },
            _ => CodeSpec::Replicated { copies: b },
        };
        let (from, to) = (code(families.0, sizes), code(families.1, others));
        prop_assume!(from != to);
        let plan = plan_conversion(from, to, GOALS[goal]).expect("small codes convert");
        check(&plan, tier());
        // Ascending, once each; data is read at its place.
        prop_assert!(plan.reads.is_sorted_by(|a, b| a < b) && plan.writes.is_sorted_by(|a, b| a < b));
        prop_assert!(plan.kept.is_sorted_by(|a, b| a.to < b.to));
        let parity = ChunkIndex(to.shape().data);
        prop_assert!(plan.writes.iter().all(|write| write.chunk >= parity));
    }
}
