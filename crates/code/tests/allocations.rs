//! No call on bytes allocates, once one like it was made: an allocator that counts what this thread asks for says so.
//!
//! Not counted: making codes and plans, `locate`, and `encode_add` under Clay, whose doc says what memory it takes.

#![allow(unsafe_code, reason = "an allocator is unsafe; this one counts and asks the system's")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::Arc,
};

use claystone_code::{
    ChunkIndex, CodeSpec, ConversionGoal, Converter, ErasureCode, ReadCosts, ReadPlan, Tier, UpdatePlan,
    plan_conversion,
};

/// Codes of every family, shortened ones too: Clay with nodes of zeros, and with more helpers than a repair needs.
const CODES: [&str; 22] = [
    "replica:3",
    "mirror:4x3",
    "hybrid:rsm:6+3x2",
    "mixed:4+2x3:0+2",
    "rs:4+2",
    "rs:10+4",
    "rs:3+11",
    "rs:200+56",
    "isal:6+3",
    "klauspost:6+3",
    "rsm:6+3",
    "rs:1019+4",
    "rs:300+19",
    "rs:200+60",
    "lrc:12+2+2",
    "lrc:12+6+2",
    "pc:2x5",
    "pc:6x5",
    "clay:4+2:5",
    "clay:5+3:7",
    "clay:6+3:7",
    "clay:10+4:13",
];

/// Bytes of a sub-chunk: one odd vector, and strips of several passes with a rest.
const SUB_BYTES: [u32; 2] = [67, 5000];

struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that is ending counts no more.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: the system's allocator does all of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's.
        unsafe { System.realloc(memory, layout, bytes) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Makes a call twice, the first time to warm it up, and counts what the second allocates.
fn assert_none(what: &str, mut call: impl FnMut()) {
    call();
    let before = COUNT.get();
    call();
    assert_eq!(COUNT.get() - before, 0, "allocations: {what}");
}

/// Runs `check` for each code, tier and length of sub-chunks.
fn each_code(mut check: impl FnMut(&str, &dyn ErasureCode, u32)) {
    for text in CODES {
        for tier in Tier::available() {
            let spec: CodeSpec = text.parse().expect("a valid spec");
            let code: Arc<dyn ErasureCode> = spec.build_with_tier(*tier).expect("a valid spec");
            for sub_bytes in SUB_BYTES {
                check(&format!("{text} on {tier}, {sub_bytes} bytes"), &*code, sub_bytes);
            }
        }
    }
}

/// Tiles of zeros; what they hold does not matter here.
fn tiles(code: &dyn ErasureCode, sub_bytes: u32, count: u16) -> Vec<Vec<u8>> {
    vec![vec![0; code.shape().alpha as usize * sub_bytes as usize]; count.into()]
}

fn slices(tiles: &[Vec<u8>]) -> Vec<&[u8]> {
    tiles.iter().map(Vec::as_slice).collect()
}

fn slices_mut(tiles: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    tiles.iter_mut().map(Vec::as_mut_slice).collect()
}

#[test]
fn what_allocates_is_counted() {
    let before = COUNT.get();
    drop(std::hint::black_box(vec![0u8; 10]));
    assert_eq!(COUNT.get() - before, 1);
}

#[test]
fn encoding_allocates_nothing() {
    each_code(|what, code, sub_bytes| {
        let (data, mut parity) =
            (tiles(code, sub_bytes, code.shape().data), tiles(code, sub_bytes, code.shape().parity));
        let (data, mut parity) = (slices(&data), slices_mut(&mut parity));
        assert_none(what, || code.encode(&data, &mut parity));
    });
}

#[test]
fn growing_parity_allocates_nothing() {
    each_code(|what, code, sub_bytes| {
        if matches!(code.spec(), CodeSpec::Clay { .. }) {
            return;
        }
        let (data, mut parity) =
            (tiles(code, sub_bytes, code.shape().data), tiles(code, sub_bytes, code.shape().parity));
        let (data, mut parity) = (slices(&data), slices_mut(&mut parity));
        assert_none(what, || {
            for (first, data) in (0..).map(ChunkIndex).step_by(4).zip(data.chunks(4)) {
                code.encode_add(first, data, &mut parity);
            }
        });
    });
}

#[test]
fn changing_parity_by_differences_allocates_nothing() {
    each_code(|what, code, sub_bytes| {
        let delta = &tiles(code, sub_bytes, 1)[0];
        let parity = &mut tiles(code, sub_bytes, 1)[0];
        let UpdatePlan::Delta(deltas) = code.plan_update(ChunkIndex(code.shape().data - 1)) else {
            // A code that encodes anew; its kernel takes deltas all the same.
            return assert_none(what, || code.apply_delta(3, delta, parity));
        };
        assert_none(what, || deltas.iter().for_each(|(_, coefficient)| code.apply_delta(*coefficient, delta, parity)));
    });
}

/// Single losses of data and of parity; as many as may be lost; one wanted of several lost; one lost and one left wanted.
#[test]
fn carrying_out_plans_allocates_nothing() {
    each_code(|what, code, sub_bytes| {
        let (data, tolerance) = (code.shape().data, code.spec().tolerance());
        let some = 0..tolerance;
        for (lost, want) in [
            (0..1, vec![0]),
            (data..data + 1, vec![data]),
            (some.clone(), some.clone().collect()),
            (some.clone(), vec![tolerance - 1]),
            (1..2, vec![1, 0]),
            (0..0, vec![data - 1, data]),
        ] {
            let plan = plan(code, sub_bytes, lost.clone(), &want);
            let fetched: Vec<Vec<u8>> =
                plan.reads.iter().map(|read| vec![0; read.sub_chunks_total() as usize * sub_bytes as usize]).collect();
            let mut out = tiles(code, sub_bytes, want.len() as u16);
            let (fetched, mut out) = (slices(&fetched), slices_mut(&mut out));
            assert_none(&format!("{what}, {want:?} without {lost:?}"), || code.recover(&plan, &fetched, &mut out));
        }
    });
}

#[test]
fn a_kept_program_of_clay_is_found_without_allocating() {
    let code = "clay:6+3:8".parse::<CodeSpec>().expect("a valid spec").build().expect("a valid spec");
    let plans: Vec<ReadPlan> = (0..9).map(|chunk| plan(&*code, 1024, chunk..chunk + 1, &[chunk])).collect();
    let fetched = vec![vec![0; 9 * 1024]; 8];
    let mut out = vec![vec![0; 27 * 1024]];
    let (fetched, mut out) = (slices(&fetched), slices_mut(&mut out));
    assert_none("nine plans in turn", || plans.iter().for_each(|plan| code.recover(plan, &fetched, &mut out)));
}

#[test]
fn converting_by_sums_and_by_encoding_allocates_nothing() {
    for (from, to) in
        [("pc:2x5", "pc:6x5"), ("rsm:6+3", "rsm:12+3"), ("lrc:12+6+2", "lrc:12+2+2"), ("rs:4+2", "clay:4+2:5")]
    {
        let spec = |text: &str| text.parse::<CodeSpec>().expect("a valid spec");
        let plan = plan_conversion(spec(from), spec(to), ConversionGoal::FewestReads).expect("a conversion");
        let converter = Converter::new(&plan).expect("within the limits");
        let fetched = vec![vec![0; 64 * 67]; plan.reads.len()];
        let mut written = vec![vec![0; 64 * 67]; plan.writes.len()];
        let (fetched, mut written) = (slices(&fetched), slices_mut(&mut written));
        assert_none(&format!("{from} to {to}"), || converter.apply(&fetched, &mut written));
    }
}

/// The plan for `want` without the chunks `lost`, all others being equally cheap.
fn plan(code: &dyn ErasureCode, sub_bytes: u32, lost: std::ops::Range<u16>, want: &[u16]) -> ReadPlan {
    let costs: Vec<Option<u32>> =
        (0..code.shape().chunks()).map(|chunk| (!lost.contains(&chunk)).then_some(1)).collect();
    let want: Vec<ChunkIndex> = want.iter().copied().map(ChunkIndex).collect();
    code.plan_read(&want, &ReadCosts { chunks: &costs, sub_bytes, granule: 1 }).expect("within tolerance")
}
