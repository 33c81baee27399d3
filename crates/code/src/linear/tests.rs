//! LRC, product, mergeable, mirror, hybrid and mixed codes: what they recover, what a repair reads, what their bytes are.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{Generator, Span};
use crate::{
    ChunkIndex, ChunkSet, CodeSpec, Coded, ErasureCode, Matrix, Method, ReadCosts, ReadPlan, SpecError, Unrecoverable,
    UpdatePlan,
    field::{mul, power},
    mergeable,
    tests::{build, check_plan, noise, plan_without, stripe, tier},
};

const LISTED: [&str; 18] = [
    "lrc:12+2+2",
    "lrc:12+6+2",
    "lrc:12+3+3",
    "lrc:8+2+4",
    "pc:2x5",
    "pc:6x5",
    "rsm:6+3",
    "rsm:12+3",
    "rsm:10+4",
    "rsm:20+4",
    "mirror:4x3",
    "mirror:5x2",
    "hybrid:rsm:6+3x2",
    "hybrid:pc:2x5x2",
    "hybrid:lrc:12+6+2x2",
    "mixed:4+2x3:1",
    "mixed:4+2x3:0+3",
    "mixed:6+3x2:0+2+4",
];

fn generator(text: &str) -> Generator {
    text.parse::<CodeSpec>().expect("a valid spec").generator().expect("of this module")
}

/// All sets of `size` of the numbers below `n`.
fn subsets(n: u16, size: usize) -> Vec<Vec<u16>> {
    if size == 0 {
        return vec![Vec::new()];
    }
    let with_last = |last| {
        subsets(last, size - 1).into_iter().map(move |mut set: Vec<u16>| {
            set.push(last);
            set
        })
    };
    (0..n).flat_map(with_last).collect()
}

fn is_recovered(code: &Generator, lost: &[u16]) -> bool {
    let mut span = Span::new(code.data().into());
    for chunk in (0..code.chunks()).filter(|chunk| !lost.contains(chunk)) {
        span.insert(&code.vector(ChunkIndex(chunk)));
    }
    span.rank() == code.data().into()
}

#[test]
fn every_loss_within_tolerance_is_recovered() {
    for text in LISTED {
        let code = build(text);
        let chunks = stripe(&*code, 3, 1);
        for size in 1..=code.spec().tolerance().into() {
            for lost in subsets(code.shape().chunks(), size) {
                check_plan(&*code, &plan_without(&*code, &lost), &chunks, 3);
            }
        }
    }
}

#[test]
fn tolerance_is_the_most_that_any_pattern_allows() {
    for text in LISTED {
        let code = generator(text);
        let tolerance = build(text).spec().tolerance();
        let worst = subsets(code.chunks(), usize::from(tolerance) + 1);
        assert!(worst.iter().any(|lost| !is_recovered(&code, lost)), "{text}");
    }
}

/// Test of: [hacfs §3.1]: which four losses are fatal; an independent script counted them.
#[test]
fn four_losses_are_fatal_as_often_as_the_reference_counted() {
    for (text, fatal, all) in
        [("pc:2x5", 45, 3060), ("pc:6x5", 315, 111_930), ("lrc:12+6+2", 30, 4845), ("lrc:12+2+2", 252, 1820)]
    {
        let code = generator(text);
        let patterns = subsets(code.chunks(), 4);
        assert_eq!(patterns.len(), all, "{text}");
        assert_eq!(patterns.iter().filter(|lost| !is_recovered(&code, lost)).count(), fatal, "{text}");
    }
}

/// Test of: [hacfs §3.2], [hacfs §3.3]: chunks read to repair each chunk, by the kind of chunk.
#[test]
fn a_single_loss_reads_what_theory_says() {
    for (text, data, local, rest) in [
        ("lrc:12+2+2", 6, 6, 12),
        ("lrc:12+6+2", 2, 2, 12),
        ("lrc:12+3+3", 4, 4, 12),
        ("lrc:8+2+4", 4, 4, 8),
        ("pc:2x5", 2, 2, 2),
        ("pc:6x5", 5, 5, 5),
        ("pc:3x3", 3, 3, 3),
        ("rsm:6+3", 6, 6, 6),
        ("rsm:20+4", 20, 20, 20),
        ("mirror:4x3", 1, 1, 1),
        ("mirror:5x2", 1, 1, 1),
    ] {
        let code = build(text);
        let locals = if let CodeSpec::Lrc { local, .. } = code.spec() { local.into() } else { 0 };
        let shape = code.shape();
        for chunk in 0..shape.chunks() {
            let reads = if chunk < shape.data {
                data
            } else if chunk < shape.data + locals {
                local
            } else {
                rest
            };
            let plan = plan_without(&*code, &[chunk]);
            assert_eq!(plan.sub_chunks_total(), reads, "{text}, chunk {chunk}");
        }
    }
}

/// Test of: [hacfs §3.3]: the mean over all chunks. The paper prints 3.25 for the first; 60 / 20 is 3.
#[test]
fn the_mean_repair_is_the_corrected_one() {
    for (text, total, chunks) in
        [("lrc:12+6+2", 60, 20), ("lrc:12+2+2", 108, 16), ("pc:2x5", 36, 18), ("pc:6x5", 210, 42)]
    {
        let code = build(text);
        let reads = (0..code.shape().chunks()).map(|chunk| plan_without(&*code, &[chunk]).sub_chunks_total());
        assert_eq!((reads.sum::<u64>(), code.shape().chunks()), (total, chunks), "{text}");
    }
}

#[test]
fn losses_in_two_groups_are_repaired_by_the_groups() {
    let code = build("lrc:12+6+2");
    // Chunks 0 and 4 stand in groups 0 and 2.
    let plan = plan_without(&*code, &[0, 4]);
    assert_eq!(plan.reads.iter().map(|read| read.chunk.0).collect::<Vec<_>>(), [1, 5, 12, 14]);
    // Both data chunks of group 0: a group cannot, so as much is read as any code of 12 data chunks needs.
    assert_eq!(plan_without(&*code, &[0, 1]).sub_chunks_total(), 12);
}

#[test]
fn a_row_repairs_what_its_column_cannot() {
    let code = build("pc:2x5");
    let costs: Vec<Option<u32>> = (0..18).map(|chunk| (chunk != 0 && chunk != 5).then_some(1)).collect();
    let costs = ReadCosts { chunks: &costs, sub_bytes: 1, granule: 1 };
    let plan = code.plan_read(&[ChunkIndex(0)], &costs).expect("a row is left");
    assert_eq!(plan.reads.iter().map(|read| read.chunk.0).collect::<Vec<_>>(), [1, 2, 3, 4, 10]);
}

#[test]
fn a_chain_of_rows_and_columns_is_followed() {
    // Data of pc:3x3 with chunk (0, 0) lost, and one more in its row and its column, and one each in theirs.
    let code = build("pc:3x3");
    let lost = [0, 1, 3, 5, 7];
    let chunks = stripe(&*code, 5, 2);
    let plan = plan_without(&*code, &lost);
    check_plan(&*code, &plan, &chunks, 5);
}

/// Two rectangles of losses and one chunk that joins them: no row or column has a single loss, and yet the chunk is the
/// sum of all rows of the one rectangle and what is left of them.
#[test]
fn what_no_row_or_column_can_start_is_solved_as_a_whole() {
    let code = build("pc:4x4");
    let grid = |row: u16, column: u16| row * 4 + column;
    let rectangle = |row, column| [(row, column), (row, column + 1), (row + 1, column), (row + 1, column + 1)];
    let mut lost: Vec<u16> = rectangle(0, 0).into_iter().chain(rectangle(2, 2)).map(|(r, c)| grid(r, c)).collect();
    lost.push(grid(0, 2));
    let costs: Vec<Option<u32>> = (0..25).map(|chunk| (!lost.contains(&chunk)).then_some(1)).collect();
    let costs = ReadCosts { chunks: &costs, sub_bytes: 4, granule: 1 };
    let plan = code.plan_read(&[ChunkIndex(grid(0, 2))], &costs).expect("the joint is determined");
    check_plan(&*code, &plan, &stripe(&*code, 4, 9), 4);
    let error = code.plan_read(&[ChunkIndex(0)], &costs).expect_err("a corner of a rectangle");
    assert_eq!(error, Unrecoverable { spec: code.spec(), wanted_lost: 1, available: 14, needed: 16, chunks: 25 });
}

#[test]
fn what_a_group_still_has_is_recovered_when_the_stripe_is_not() {
    let code = build("lrc:12+2+2");
    // Group 1 is gone but for two chunks, the globals are gone; group 0 has one loss.
    let lost = [2u16, 6, 7, 8, 9, 14, 15];
    let costs: Vec<Option<u32>> = (0..16).map(|chunk| (!lost.contains(&chunk)).then_some(1)).collect();
    let costs = ReadCosts { chunks: &costs, sub_bytes: 1, granule: 1 };
    assert_eq!(code.plan_read(&[ChunkIndex(2)], &costs).expect("a whole group").sub_chunks_total(), 6);
    let error = code.plan_read(&[ChunkIndex(6)], &costs).expect_err("more than counting allows");
    assert_eq!(error, Unrecoverable { spec: code.spec(), wanted_lost: 1, available: 9, needed: 12, chunks: 16 });
}

#[test]
fn cheap_chunks_are_preferred_where_nothing_else_differs() {
    let code = build("rsm:6+3");
    let costs = [None, Some(9), Some(1), Some(1), Some(1), Some(1), Some(8), Some(1), Some(2)];
    let plan = code.plan_read(&[ChunkIndex(0)], &ReadCosts { chunks: &costs, sub_bytes: 1, granule: 1 });
    let read: Vec<u16> = plan.expect("one loss").reads.iter().map(|read| read.chunk.0).collect();
    assert_eq!(read, [2, 3, 4, 5, 7, 8]);
}

/// Test of: [convertible §IV]: every square part of the parity rows is regular, so that any k chunks hold the data.
#[test]
fn every_listed_mergeable_code_is_proved() {
    for (data, parity) in [(255, 1), (254, 2), (253, 3), (33, 4)] {
        assert_eq!(mergeable::data_max(parity), data);
        let code = mergeable::generator(data, parity);
        assert!(is_mds(&code), "rsm:{data}+{parity}");
    }
    assert_eq!(mergeable::data_max(0), 0);
    assert_eq!(mergeable::data_max(5), 0);
}

/// One data chunk more than the points carry: the proof notices.
#[test]
fn the_bound_of_the_points_is_exact() {
    let mut rows = mergeable::generator(33, 4).parity().to_vec();
    for (row, exponent) in rows.iter_mut().zip([0, 3, 57, 201]) {
        row.push(power(exponent * 33));
    }
    assert!(!is_mds(&Generator::new(34, rows, Vec::new())));
}

/// Every square part of the parity rows is regular. Multiplying each row by a power of its point moves columns along,
/// so only sets of columns with the first one need a look.
fn is_mds(code: &Generator) -> bool {
    let rows = code.parity();
    (1u32..1 << rows.len()).all(|pattern| {
        let rows: Vec<&Vec<u8>> =
            (0..).zip(rows).filter(|(at, _)| pattern >> at & 1 == 1).map(|(_, row)| row).collect();
        let column = |at: usize| -> Vec<u8> { rows.iter().map(|row| row[at]).collect() };
        let mut span = Span::new(rows.len());
        span.insert(&column(0)) && all_independent(&span, 1, code.data().into(), rows.len() - 1, &column)
    })
}

fn all_independent(span: &Span, from: usize, to: usize, left: usize, column: &dyn Fn(usize) -> Vec<u8>) -> bool {
    left == 0
        || (from..to).all(|at| {
            let mut span = span.clone();
            span.insert(&column(at)) && all_independent(&span, at + 1, to, left - 1, column)
        })
}

#[test]
fn plans_read_no_more_than_the_best_of_all_plans() {
    for text in
        ["lrc:4+2+1", "lrc:4+2+2", "pc:2x2", "pc:2x3", "rsm:4+2", "mirror:3x3", "hybrid:rsm:3+2x2", "mixed:3+2x3:1"]
    {
        let code = build(text);
        let generator = generator(text);
        for size in 1..=3 {
            for lost in subsets(code.shape().chunks(), size) {
                let costs: Vec<Option<u32>> =
                    (0..code.shape().chunks()).map(|chunk| (!lost.contains(&chunk)).then_some(1)).collect();
                let costs = ReadCosts { chunks: &costs, sub_bytes: 1, granule: 1 };
                for want in (1..=size).flat_map(|count| subsets(size as u16, count)) {
                    let want: Vec<ChunkIndex> = want.iter().map(|at| ChunkIndex(lost[usize::from(*at)])).collect();
                    let plan = code.plan_read(&want, &costs).ok().map(|plan| plan.reads.len());
                    assert_eq!(plan, least_reads(&generator, &lost, &want), "{text}: {want:?} of {lost:?}");
                }
            }
        }
    }
}

/// By trying all sets of chunks.
fn least_reads(code: &Generator, lost: &[u16], want: &[ChunkIndex]) -> Option<usize> {
    let left: Vec<u16> = (0..code.chunks()).filter(|chunk| !lost.contains(chunk)).collect();
    let suffices = |reads: &Vec<u16>| {
        let mut span = Span::new(code.data().into());
        for at in reads {
            span.insert(&code.vector(ChunkIndex(left[usize::from(*at)])));
        }
        want.iter().all(|chunk| span.express(&code.vector(*chunk)).is_some())
    };
    (0..=left.len()).find(|size| subsets(left.len() as u16, *size).iter().any(suffices))
}

proptest! {
    /// Any wants and costs: what is in the span is planned and comes out right, and nothing else.
    #[test]
    fn plans_are_sound(
        text in prop::sample::select(&LISTED[..]),
        fates in prop::collection::vec((prop::option::weighted(0.85, 0u32..4), prop::bool::weighted(0.2)), 42),
    ) {
        let (code, generator) = (build(text), generator(text));
        let fates = &fates[..code.shape().chunks().into()];
        let costs: Vec<Option<u32>> = fates.iter().map(|fate| fate.0).collect();
        let want: Vec<ChunkIndex> = (0..).map(ChunkIndex).zip(fates).filter(|(_, fate)| fate.1).map(|(i, _)| i).collect();
        let mut span = Span::new(code.shape().data.into());
        for chunk in (0..code.shape().chunks()).filter(|chunk| costs[usize::from(*chunk)].is_some()) {
            span.insert(&generator.vector(ChunkIndex(chunk)));
        }
        let lost = want.iter().filter(|chunk| costs[chunk.at()].is_none()).count();
        let possible = want.iter().all(|chunk| span.express(&generator.vector(*chunk)).is_some());
        let plan = code.plan_read(&want, &ReadCosts { chunks: &costs, sub_bytes: 4096, granule: 4096 });
        prop_assert_eq!(plan.is_ok(), possible);
        let plan: ReadPlan = match plan {
            Ok(plan) => plan,
            Err(error) => {
                prop_assert_eq!(usize::from(error.available), span.rank());
                prop_assert!(error.available < error.needed);
                return Ok(());
            }
        };
        let left = want.len() - lost;
        let most = if lost == 0 { left } else { left + usize::from(code.shape().data) };
        prop_assert!(plan.reads.len() <= most);
        prop_assert!(plan.reads.is_sorted_by(|a, b| a.chunk < b.chunk));
        prop_assert!(plan.reads.iter().all(|read| costs[read.chunk.at()].is_some()));
        if let Method::Matrix(matrix) = &plan.method {
            for at in 0..plan.reads.len() {
                prop_assert!((0..matrix.rows()).any(|row| matrix.coefficient(row, at) != 0), "read {} is not used", at);
            }
        }
        check_plan(&*code, &plan, &stripe(&*code, 2, 11), 2);
    }
}

#[test]
fn parity_is_the_sum_that_update_coefficients_tell() {
    for text in LISTED {
        let code = build(text);
        let mut chunks = stripe(&*code, 41, 2);
        // A change of chunk 1 reaches just the parities that have it.
        let delta = noise(&mut 8, 41);
        let UpdatePlan::Delta(deltas) = code.plan_update(ChunkIndex(1)) else { panic!("{text} has deltas") };
        for (parity, coefficient) in deltas {
            code.apply_delta(coefficient, &delta, &mut chunks[parity.at()]);
        }
        chunks[1].iter_mut().zip(&delta).for_each(|(byte, delta)| *byte ^= delta);
        check_parity(&*code, &chunks);
    }
    // One local, two global; one row, one column, the corner; its own copies.
    for (text, parities) in [
        ("lrc:12+2+2", 3),
        ("pc:2x5", 3),
        ("rsm:10+4", 4),
        ("mirror:4x3", 2),
        ("hybrid:rsm:6+3x3", 5),
        ("mixed:4+3x3:1", 2),
        ("mixed:4+3x3:0", 3),
    ] {
        let UpdatePlan::Delta(deltas) = build(text).plan_update(ChunkIndex(1)) else { panic!("{text} has deltas") };
        assert_eq!(deltas.len(), parities, "{text}");
    }
}

#[test]
fn parity_grows_from_parts_of_the_data() {
    for text in LISTED {
        let code = build(text);
        let chunks = stripe(&*code, 4099, 6);
        let (data, parity) = chunks.split_at(code.shape().data.into());
        let mut grown = vec![vec![0; 4099]; parity.len()];
        let mut grown_parts: Vec<&mut [u8]> = grown.iter_mut().map(Vec::as_mut_slice).collect();
        for first in (0..data.len()).step_by(4) {
            let part: Vec<&[u8]> = data[first..].iter().take(4).map(Vec::as_slice).collect();
            code.encode_add(ChunkIndex(first as u16), &part, &mut grown_parts);
        }
        assert!(grown == parity, "{text}");
    }
}

/// All sets of losses of small codes, against what `plan_read` says of each: the least further losses after which it
/// refuses, and the least chunks that have to come back.
#[test]
fn tolerance_left_is_what_plans_tell() {
    for text in [
        "replica:3",
        "rs:4+2",
        "rsm:3+2",
        "clay:4+2:5",
        "lrc:4+2+2",
        "lrc:4+2+1",
        "lrc:6+2+2",
        "lrc:6+3+1",
        "lrc:3+1+2",
        "lrc:4+4+2",
        "lrc:4+1+3",
        "pc:1x1",
        "pc:1x3",
        "pc:3x1",
        "pc:2x2",
        "pc:2x3",
        "mirror:1x3",
        "mirror:4x2",
        "mirror:3x4",
        "mirror:4x3",
        "hybrid:rsm:3+2x2",
        "hybrid:rsm:2+2x4",
        "hybrid:rsm:1+3x3",
        "hybrid:lrc:4+2+1x2",
        "hybrid:lrc:3+1+2x3",
        "mixed:2+1x2:0",
        "mixed:4+2x3:2",
        "mixed:4+2x3:0+1+3",
        "mixed:3+3x2:0+2",
        "mixed:4+1x4:1+3",
    ] {
        let code = build(text);
        let n = code.shape().chunks();
        let lost = |set: u32| -> Vec<ChunkIndex> { (0..n).filter(|i| set >> i & 1 == 1).map(ChunkIndex).collect() };
        let is_recovered = |set: u32| {
            let costs: Vec<Option<u32>> = (0..n).map(|i| (set >> i & 1 == 0).then_some(1)).collect();
            code.plan_read(&lost(set), &ReadCosts { chunks: &costs, sub_bytes: 1, granule: 1 }).is_ok()
        };
        let sets = 1u32 << n;
        let members = |set: u32| (0..n).map(|i| 1 << i).filter(move |bit| set & bit != 0);
        let mut expected: Vec<i32> = (0..sets).map(|set| if is_recovered(set) { i32::MAX } else { -1 }).collect();
        for set in (0..sets).rev().filter(|set| is_recovered(*set)) {
            let further = members(!set & (sets - 1)).map(|bit| expected[(set | bit) as usize].max(-1) + 1);
            expected[set as usize] = further.min().expect("losing all is too much");
        }
        for set in 0..sets {
            if expected[set as usize] < 0 {
                let back = members(set).map(|bit| expected[(set & !bit) as usize].min(0)).max().expect("some are lost");
                expected[set as usize] = back - 1;
            }
            assert_eq!(
                code.spec().tolerance_left(&lost(set)),
                expected[set as usize],
                "{text} without {:?}",
                lost(set)
            );
        }
        assert_eq!(expected[0], i32::from(code.spec().tolerance()), "{text}");
    }
}

#[test]
fn wide_local_and_product_codes_tell_what_is_left() {
    let left = |text: &str, lost: &[u16]| {
        let lost: Vec<ChunkIndex> = lost.iter().copied().map(ChunkIndex).collect();
        text.parse::<CodeSpec>().expect("a valid spec").tolerance_left(&lost)
    };
    // Six groups of two data chunks and a local parity: one loss of each counts for nothing, and neither do parities.
    assert_eq!(left("lrc:12+6+2", &[0, 2, 4, 6, 8, 10]), 2);
    assert_eq!(left("lrc:12+6+2", &[0, 1, 12, 2, 3, 13]), -2);
    assert_eq!(left("lrc:12+6+2", &[12, 13, 14, 15, 16, 17, 18, 19]), 0);
    // 30 data chunks in 6 rows of 5; then a rectangle, and three corners of it with the fourth its row's parity.
    assert_eq!(left("pc:6x5", &[0, 6, 12, 18, 24]), 1);
    assert_eq!(left("pc:6x5", &[0, 1, 5, 6]), -1);
    assert_eq!(left("pc:6x5", &[0, 5, 30]), 0);
    // Twelve chunks are left of as many data chunks, and the data is gone all the same.
    assert_eq!(left("lrc:12+2+2", &[0, 1, 2, 3]), -1);
}

/// Chunks on disks as `may_share_disk` lets them be: every loss of as many disks as of chunks is recovered, and there is
/// one of one disk more that is not.
#[test]
fn as_many_disks_may_be_lost_as_chunks() {
    for text in [
        "mirror:4x3",
        "mirror:3x2",
        "mirror:2x4",
        "mirror:1x3",
        "rs:4+2",
        "lrc:4+2+2",
        "replica:3",
        "hybrid:rsm:6+3x2",
        "hybrid:rsm:4+2x3",
        "hybrid:lrc:4+2+2x2",
        "hybrid:pc:2x2x2",
        "hybrid:pc:2x3x3",
        "mixed:2+1x2:0",
        "mixed:4+2x3:1",
        "mixed:4+2x3:0+1+3",
        "mixed:4+1x3:0+2",
        "mixed:3+3x2:0+2",
    ] {
        let spec: CodeSpec = text.parse().expect("a valid spec");
        let chunks: Vec<ChunkIndex> = (0..spec.shape().chunks()).map(ChunkIndex).collect();
        // On the fewest disks there can be: each chunk on the first that lets it, from another one on each time.
        let disks_min = usize::from(spec.disks_min());
        let mut disks: Vec<Vec<ChunkIndex>> = vec![Vec::new(); disks_min];
        for (at, chunk) in chunks.iter().enumerate() {
            let mut turn = (0..disks_min).map(|step| (at + step) % disks_min);
            let fits = |disk: &usize| disks[*disk].iter().all(|other| spec.may_share_disk(*chunk, *other));
            let disk = turn.find(fits).unwrap_or_else(|| panic!("{text}: chunk {chunk} has a disk"));
            disks[disk].push(*chunk);
        }
        let lost = |set: &[u16]| set.iter().flat_map(|disk| disks[usize::from(*disk)].clone()).collect::<Vec<_>>();
        let count = u16::try_from(disks_min).expect("few");
        for size in 0..=spec.tolerance() {
            for set in subsets(count, size.into()) {
                let left = spec.tolerance_left(&lost(&set));
                assert!(left >= i32::from(spec.tolerance() - size), "{text} without the disks {set:?}: {left}");
            }
        }
        let mut worst = subsets(count, usize::from(spec.tolerance()) + 1).into_iter();
        assert!(worst.any(|set| spec.tolerance_left(&lost(&set)) < 0), "{text}");
    }
}

#[test]
fn copies_of_one_data_chunk_share_no_disk() {
    let spec: CodeSpec = "mirror:4x3".parse().expect("a valid spec");
    let share = |one, other| spec.may_share_disk(ChunkIndex(one), ChunkIndex(other));
    assert!(!share(1, 5) && !share(9, 1) && !share(5, 9));
    assert!(share(0, 1) && share(0, 5) && share(8, 5));
    assert!(!CodeSpec::ReedSolomon { data: 4, parity: 2 }.may_share_disk(ChunkIndex(0), ChunkIndex(1)));
}

#[test]
fn further_copies_are_those_beside_data_and_parity() {
    let copied = |text: &str| {
        let spec: CodeSpec = text.parse().expect("a valid spec");
        (0..spec.shape().chunks()).map(|chunk| spec.copied(ChunkIndex(chunk)).map(|data| data.0)).collect::<Vec<_>>()
    };
    assert_eq!(copied("replica:3"), [None, Some(0), Some(0)]);
    assert_eq!(copied("mirror:2x3"), [None, None, Some(0), Some(1), Some(0), Some(1)]);
    assert_eq!(copied("hybrid:rsm:2+1x3"), [None, None, None, Some(0), Some(1), Some(0), Some(1)]);
    assert_eq!(copied("lrc:4+2+2"), [None; 8]);
    assert_eq!(copied("mixed:3+1x3:0+2"), [None, None, None, None, Some(0), Some(2), Some(0), Some(2)]);
}

#[test]
fn a_mixed_stripe_is_one_of_its_code_with_zeros_and_mirrors_what_it_leaves_out() {
    for (text, whole) in [("mixed:4+2x3:1", "rs:4+2"), ("mixed:4+2x2:0+2+3", "rs:4+2"), ("mixed:6+3x3:0+5", "rs:6+3")] {
        let (code, whole) = (build(text), build(whole));
        let chunks = stripe(&*code, 67, 5);
        let CodeSpec::Mixed { mirrored, copies, .. } = code.spec() else { panic!("{text}") };
        let k = usize::from(code.shape().data);
        let zeros = vec![0; 67];
        let data: Vec<&[u8]> = (0..)
            .map(ChunkIndex)
            .zip(&chunks[..k])
            .map(|(at, chunk)| if mirrored.contains(at) { zeros.as_slice() } else { chunk.as_slice() })
            .collect();
        let mut parity = vec![vec![0xa5; 67]; whole.shape().parity.into()];
        whole.encode(&data, &mut parity.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        assert!(chunks[k..k + parity.len()] == parity, "{text}");
        let copied: Vec<Vec<u8>> =
            (1..copies).flat_map(|_| mirrored.iter()).map(|at| chunks[at.at()].clone()).collect();
        assert!(chunks[k + parity.len()..] == copied, "{text}");
    }
    let spec: CodeSpec = "mixed:4+2x3:0+2".parse().expect("valid");
    let apart = (0..spec.shape().chunks()).map(|chunk| spec.lost_with(ChunkIndex(chunk)).map(|data| data.0));
    let (zero, two) = (Some(0), Some(2));
    assert_eq!(apart.collect::<Vec<_>>(), [zero, None, two, None, None, None, zero, two, zero, two]);
}

#[test]
fn a_set_of_chunks_is_what_was_put_into_it() {
    let set: ChunkSet = [3, 0, 31].map(ChunkIndex).into_iter().collect();
    assert_eq!(set.iter().map(|chunk| chunk.0).collect::<Vec<_>>(), [0, 3, 31]);
    assert_eq!((set.count(), set.is_empty(), ChunkSet::default().is_empty()), (3, false, true));
    assert!(set.contains(ChunkIndex(31)) && !set.contains(ChunkIndex(1)) && !set.contains(ChunkIndex(35)));
    assert_eq!(set.without(ChunkIndex(31)).without(ChunkIndex(40)).with(ChunkIndex(1)).count(), 3);
    assert_eq!(set.minus(ChunkSet::first(4)).iter().collect::<Vec<_>>(), [ChunkIndex(31)]);
    assert_eq!((ChunkSet::first(32).count(), ChunkSet::first(0)), (32, ChunkSet::default()));
}

#[test]
fn a_stripe_with_copies_reads_one_chunk_for_each_that_has_another() {
    let reads = |lost: &[u16]| {
        let plan = plan_without(&*build("hybrid:rsm:6+3x2"), lost);
        plan.reads.iter().map(|read| read.chunk.0).collect::<Vec<_>>()
    };
    // Data and parity as under rsm:6+3, then the second copies.
    assert_eq!(reads(&[1]), [10]);
    assert_eq!(reads(&[10]), [1]);
    assert_eq!(reads(&[0, 3, 14]), [5, 9, 12]);
    assert_eq!(reads(&[7]).len(), 6, "parity is made of data");
    // Both copies of one: the others and a parity, each wherever it is left.
    assert_eq!(reads(&[0, 9]).len(), 6);
    let left = |lost: &[u16]| {
        let lost: Vec<ChunkIndex> = lost.iter().copied().map(ChunkIndex).collect();
        CodeSpec::Hybrid { coded: Coded::Mergeable { data: 6, parity: 3 }, copies: 2 }.tolerance_left(&lost)
    };
    assert_eq!((left(&[]), left(&[6, 7, 8]), left(&[0, 9]), left(&[0, 1, 2, 3, 4, 5])), (4, 1, 2, 3));
    assert_eq!((left(&[0, 9, 6, 7, 8]), left(&[0, 9, 1, 10, 6, 7, 8])), (-1, -2));
}

/// Of products with copies less may be told than is left, and never more.
#[test]
fn what_is_told_of_copies_beside_products_is_kept() {
    for text in ["hybrid:pc:1x2x3", "hybrid:pc:2x2x2"] {
        let (spec, generator): (CodeSpec, _) = (text.parse().expect("a valid spec"), generator(text));
        let n = generator.chunks();
        let chunks = |set: u32| (0..n).filter(|chunk| set >> chunk & 1 == 1).collect::<Vec<u16>>();
        let left = |set| spec.tolerance_left(&chunks(set).into_iter().map(ChunkIndex).collect::<Vec<_>>());
        let left: Vec<i32> = (0..1 << n).map(left).collect();
        for set in 0..1u32 << n {
            let lost = chunks(set);
            assert_eq!(left[set as usize] >= 0, is_recovered(&generator, &lost), "{text} without {lost:?}");
            for chunk in (0..n).filter(|chunk| !lost.contains(chunk)) {
                assert!(left[(set | 1 << chunk) as usize] >= left[set as usize] - 1, "{text}: {chunk} beside {lost:?}");
            }
        }
        assert_eq!(left[0], i32::from(spec.tolerance()));
    }
}

#[test]
fn a_chain_of_copies_is_one_read() {
    // The data chunk and its second copy are lost: the third makes both.
    let plan = plan_without(&*build("mirror:4x3"), &[1, 5]);
    assert_eq!(plan.reads.iter().map(|read| read.chunk.0).collect::<Vec<_>>(), [9]);
    // Each from its own: as many losses as there are copies to spare.
    let plan = plan_without(&*build("mirror:4x3"), &[0, 4, 1, 9, 6, 10, 7, 11]);
    assert_eq!(plan.reads.iter().map(|read| read.chunk.0).collect::<Vec<_>>(), [2, 3, 5, 8]);
}

#[test]
#[should_panic(expected = "chunk 6 of 6")]
fn a_lost_chunk_that_is_none_is_refused() {
    CodeSpec::ReedSolomon { data: 4, parity: 2 }.tolerance_left(&[ChunkIndex(6)]);
}

/// More terms than the kernel takes at once.
#[test]
fn long_sums_are_cut() {
    let rows: Vec<Vec<u8>> = (1..=3).map(|row| (0..600).map(|term| mul(row, power(term))).collect()).collect();
    let sources: Vec<Vec<u8>> = (0..600).map(|at| noise(&mut (at + 1), 5000)).collect();
    let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
    let mut outs = vec![vec![7; 5000]; 3];
    let mut targets: Vec<&mut [u8]> = outs.iter_mut().map(Vec::as_mut_slice).collect();
    Matrix::new(&rows, 600).combine(tier(), &sources, &mut targets);
    for (row, out) in rows.iter().zip(&outs) {
        for at in [0, 1, 4095, 4096, 4999] {
            let sum = row.iter().zip(&sources).fold(0, |sum, (coef, source)| sum ^ mul(*coef, source[at]));
            assert_eq!(out[at], sum);
        }
    }
}

fn check_parity(code: &dyn ErasureCode, chunks: &[Vec<u8>]) {
    let (data, parity) = chunks.split_at(code.shape().data.into());
    let mut encoded = vec![vec![0; chunks[0].len()]; parity.len()];
    let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    code.encode(&data, &mut encoded.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
    assert!(encoded == parity, "{}", code.spec());
}

#[test]
fn bad_specs_are_rejected_with_the_numbers() {
    let error = |text: &str| text.parse::<CodeSpec>().expect_err(text);
    for text in ["lrc:12+2", "lrc:12+2+", "lrc:12+2+2+2", "lrc:012+2+2", "lrc:256+2+2"] {
        assert_eq!(error(text), SpecError::Malformed { expected: "lrc:K+L+G", most: 255 }, "{text}");
    }
    for text in ["pc:2", "pc:2x", "pc:2+5", "pc:2x5x1"] {
        assert_eq!(error(text), SpecError::Malformed { expected: "pc:RxC", most: 255 }, "{text}");
    }
    for text in ["mirror:4", "mirror:4x", "mirror:4x03", "mirror:4x3x1", "mirror:256x2"] {
        assert_eq!(error(text), SpecError::Malformed { expected: "mirror:KxC", most: 255 }, "{text}");
    }
    let expected = "hybrid:CODExC with a CODE of rsm, lrc or pc";
    for text in
        ["hybrid:rsm:6+3", "hybrid:rs:6+3x2", "hybrid:rsm:6+3x02", "hybrid:hybrid:rsm:6+3x2x2", "hybrid:replica:3x2"]
    {
        assert_eq!(error(text), SpecError::Malformed { expected, most: 255 }, "{text}");
    }
    for text in [
        "mixed:4+2x3",
        "mixed:4+2:1",
        "mixed:4x3:1",
        "mixed:4+2x3:",
        "mixed:4+2x3:1+",
        "mixed:4+2x3:01",
        "mixed:rs:4+2x3:1",
    ] {
        assert_eq!(error(text), SpecError::Malformed { expected: "mixed:K+MxC:I+J", most: 255 }, "{text}");
    }
    for text in ["mixed:4+2x3:4", "mixed:4+2x3:1+1", "mixed:4+2x3:1+0", "mixed:4+2x3:0+1+2+3", "mixed:4+2x3:40"] {
        assert_eq!(error(text), SpecError::NotMixed { data: 4 }, "{text}");
    }
    assert_eq!(error("mixed:33+2x2:1"), SpecError::NotMixed { data: 33 });
    assert_eq!(error("mixed:4+0x2:1"), SpecError::TooFewParity { parity: 0, least: 1 });
    let coded = CodeSpec::ReedSolomon { data: 4, parity: 2 };
    assert_eq!(error("mixed:4+2x1:1"), SpecError::TooFewCopies { coded, copies: 1 });
    assert_eq!(error("mixed:4+2x255:1"), SpecError::TooManyChunks { data: 4, parity: 256, limit: 256 });
    assert_eq!(error("hybrid:6x2"), SpecError::UnknownFamily);
    let deep = format!("{}rsm:6+3{}", "hybrid:".repeat(100_000), "x2".repeat(100_000));
    assert_eq!(error(&deep), SpecError::Malformed { expected, most: 255 });
    assert_eq!(error("hybrid:rsm:6+5x2"), SpecError::TooWideToMerge { data: 6, parity: 5, most: 0 });
    let coded = CodeSpec::Mergeable { data: 6, parity: 3 };
    for copies in [0, 1] {
        assert_eq!(error(&format!("hybrid:rsm:6+3x{copies}")), SpecError::TooFewCopies { coded, copies });
    }
    assert_eq!(error("hybrid:rsm:100+3x3"), SpecError::TooManyChunks { data: 100, parity: 203, limit: 256 });
    assert_eq!(error("mirror:4x0"), SpecError::NoCopies);
    assert_eq!(error("mirror:0x3"), SpecError::NoData);
    assert_eq!(error("mirror:4x1"), SpecError::TooFewParity { parity: 0, least: 1 });
    assert_eq!(error("mirror:100x3"), SpecError::TooManyChunks { data: 100, parity: 200, limit: 256 });
    assert_eq!(error("rsm:4"), SpecError::Malformed { expected: "rsm:K+M", most: 255 });
    assert_eq!(error("lrc:0+1+1"), SpecError::NoData);
    assert_eq!(error("lrc:12+5+2"), SpecError::UnequalGroups { data: 12, local: 5 });
    assert_eq!(error("lrc:12+0+2"), SpecError::UnequalGroups { data: 12, local: 0 });
    assert_eq!(error("lrc:12+2+0"), SpecError::TooFewParity { parity: 0, least: 1 });
    assert_eq!(error("lrc:40+2+2"), SpecError::Unproved { data: 40, local: 2, global: 2 });
    assert_eq!(error("lrc:254+1+2"), SpecError::TooManyChunks { data: 254, parity: 3, limit: 256 });
    assert_eq!(error("pc:0x5"), SpecError::NoData);
    assert_eq!(error("pc:15x16"), SpecError::TooManyChunks { data: 240, parity: 32, limit: 256 });
    assert_eq!(error("rsm:0+2"), SpecError::NoData);
    assert_eq!(error("rsm:4+0"), SpecError::TooFewParity { parity: 0, least: 1 });
    assert_eq!(error("rsm:34+4"), SpecError::TooWideToMerge { data: 34, parity: 4, most: 33 });
    assert_eq!(error("rsm:6+5"), SpecError::TooWideToMerge { data: 6, parity: 5, most: 0 });
    for text in [
        "lrc:254+1+1",
        "lrc:17+17+2",
        "lrc:221+17+2",
        "lrc:100+1+7",
        "pc:15x15",
        "pc:1x1",
        "rsm:253+3",
        "mirror:128x2",
        "mirror:1x255",
        "hybrid:rsm:126+3x2",
        "hybrid:rsm:1+1x255",
        "mixed:32+31x3:0+31",
        "mixed:4+200x2:3",
    ] {
        let spec: CodeSpec = text.parse().expect(text);
        let lost: BTreeSet<u16> = (0..spec.tolerance()).collect();
        let code = build(text);
        let plan = plan_without(&*code, &lost.into_iter().collect::<Vec<_>>());
        check_plan(&*code, &plan, &stripe(&*code, 3, 4), 3);
    }
}
