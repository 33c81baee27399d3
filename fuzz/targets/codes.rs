//! What codes do beside planning and recovering: parity that grows or changes by differences is the parity that encoding
//! gives, wrong chunks are named, the tolerance that is told is there, converted stripes are stripes of the new code; wrong
//! arguments are refused and write nothing.
#![no_main]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use arbitrary::Arbitrary;
use claystone_code::ConversionGoal;
use claystone_guard::{Conversion, Guard, Misuse};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input {
    code: Choice,
    to: Choice,
    sub_bytes: u8,
    fill: u8,
    /// Chunks, in the order they are taken.
    chunks: Vec<u16>,
    wrong: u8,
    /// Lengths and counts that a caller gets wrong.
    length: Option<u8>,
}

#[derive(Arbitrary, Debug)]
struct Choice {
    family: u8,
    k: u8,
    m: u8,
    x: u8,
}

impl Choice {
    /// Small codes, long ones by little more than they need to be long.
    fn name(&self) -> String {
        let (k, m, x) = (self.k % 13, self.m % 6, self.x % 18);
        match self.family % 12 {
            0 => format!("replica:{k}"),
            1 => format!("rs:{k}+{m}"),
            2 => format!("lrc:{k}+{m}+{x}"),
            3 => format!("pc:{m}x{k}"),
            4 => format!("rsm:{k}+{m}"),
            5 => format!("isal:{k}+{m}"),
            6 => format!("klauspost:{k}+{m}"),
            7 => format!("clay:{k}+{m}:{x}"),
            8 => format!("mirror:{k}x{m}"),
            9 => format!("hybrid:rsm:{k}+{m}x{}", x % 4),
            10 => format!("mixed:{k}+{m}x{}:{}", 2 + x % 2, members(self.x, k)),
            _ => format!("rs:{}+{m}", 250 + u16::from(k) + u16::from(x)),
        }
    }
}

/// Some of k data chunks: each whose bit is set.
fn members(bits: u8, k: u8) -> String {
    let chosen: Vec<String> =
        (0..k).filter(|chunk| bits >> (chunk % 8) & 1 == 1).map(|chunk| chunk.to_string()).collect();
    chosen.join("+")
}

thread_local! {
    static GUARDS: RefCell<BTreeMap<String, Option<Guard>>> = RefCell::default();
}

fn guard(name: String) -> Option<Guard> {
    GUARDS.with_borrow_mut(|guards| {
        if guards.len() > 300 {
            guards.clear();
        }
        guards.entry(name).or_insert_with_key(|name| Guard::new(name).ok()).clone()
    })
}

fuzz_target!(|input: Input| {
    let Some(code) = guard(input.code.name()) else { return };
    let shape = code.shape();
    if u32::from(shape.chunks()) * shape.alpha > 4096 {
        return;
    }
    let tile = shape.alpha as usize * (1 + usize::from(input.sub_bytes) % 9);
    let all = stripe(&code, input.fill, tile);
    check_adding(&code, &all, &input);
    check_changes(&code, &all, &input);
    check_wrong_chunks(&code, &all, &input);
    check_tolerance(&code, &all, &input);
    check_conversion(&code, &input);
});

/// The chunks of a stripe.
fn stripe(code: &Guard, fill: u8, tile: usize) -> Vec<Vec<u8>> {
    let shape = code.shape();
    let byte =
        |chunk: u16, at: usize| (at as u8).wrapping_mul(31) ^ (chunk as u8).wrapping_mul(fill) ^ (chunk >> 8) as u8;
    let mut all: Vec<Vec<u8>> =
        (0..shape.chunks()).map(|chunk| (0..tile).map(|at| byte(chunk, at)).collect()).collect();
    let (data, parity) = all.split_at_mut(shape.data.into());
    code.encode(&slices(data), &mut parity.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>())
        .expect("right lengths");
    all
}

fn slices(chunks: &[Vec<u8>]) -> Vec<&[u8]> {
    chunks.iter().map(Vec::as_slice).collect()
}

/// Parity grows from parts, in the order that the input says, and of wrong arguments nothing is written.
fn check_adding(code: &Guard, all: &[Vec<u8>], input: &Input) {
    let shape = code.shape();
    let data = usize::from(shape.data);
    let mut parity = vec![vec![0; all[0].len()]; shape.parity.into()];
    let mut cuts: BTreeSet<usize> = input.chunks.iter().map(|chunk| usize::from(*chunk) % data).collect();
    cuts.insert(0);
    let ends = cuts.iter().copied().skip(1).chain([data]);
    for (first, end) in cuts.iter().copied().zip(ends).collect::<Vec<_>>().into_iter().rev() {
        let mut buffers: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        code.encode_add(first as u16, &slices(&all[first..end]), &mut buffers).expect("right lengths");
    }
    assert!(parity == all[data..], "{}: parity does not grow to what it is", code.spec());
    if let Some(length) = input.length {
        let mut wrong = vec![vec![0xaa; length.into()]; parity.len().saturating_sub(usize::from(length) % 2)];
        let mut buffers: Vec<&mut [u8]> = wrong.iter_mut().map(Vec::as_mut_slice).collect();
        let added = code.encode_add(u16::from(input.wrong), &slices(&all[..1]), &mut buffers);
        assert!(added.is_ok() || wrong.iter().flatten().all(|byte| *byte == 0xaa), "something was written");
    }
}

/// A data chunk changes, and the parity by the difference.
fn check_changes(code: &Guard, all: &[Vec<u8>], input: &Input) {
    let (shape, tile) = (code.shape(), all[0].len());
    let chunk = input.chunks.first().copied().unwrap_or(0) % shape.data;
    let delta: Vec<u8> = (0..tile).map(|at| (at as u8).wrapping_mul(input.wrong)).collect();
    let mut changed = all.to_vec();
    changed[usize::from(chunk)].iter_mut().zip(&delta).for_each(|(byte, delta)| *byte ^= delta);
    for parity in shape.data..shape.chunks() {
        match code.apply_delta(chunk, parity, &delta, &mut changed[usize::from(parity)]) {
            Ok(()) => (),
            Err(Misuse::NoDelta { .. }) => return,
            Err(error) => panic!("{}: {error}", code.spec()),
        }
    }
    let mut parity = vec![vec![0; tile]; shape.parity.into()];
    let mut buffers: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
    code.encode(&slices(&changed[..shape.data.into()]), &mut buffers).expect("right lengths");
    assert!(parity == changed[shape.data.into()..], "{}: differences give another parity", code.spec());
}

/// As many chunks as can be named are wrong; none, if the code has nothing to spare.
fn check_wrong_chunks(code: &Guard, all: &[Vec<u8>], input: &Input) {
    let spec = code.spec();
    let wrong: BTreeSet<u16> = input
        .chunks
        .iter()
        .map(|chunk| chunk % code.shape().chunks())
        .take(usize::from(spec.tolerance() / 2).min(usize::from(input.wrong % 3)))
        .collect();
    let mut read = all.to_vec();
    for chunk in &wrong {
        let at = usize::from(input.fill) % all[0].len();
        read[usize::from(*chunk)][at] ^= input.fill | 1;
    }
    let given: Vec<Option<&[u8]>> = read.iter().map(|chunk| Some(chunk.as_slice())).collect();
    match code.locate(&given) {
        Ok(found) => {
            assert!(found.iter().map(|chunk| chunk.0).eq(wrong.iter().copied()), "{spec}: {found:?}, not {wrong:?}")
        }
        Err(Misuse::Locate(_)) => assert!(spec.tolerance() == 0 || wrong.len() > 1, "{spec} does not find {wrong:?}"),
        Err(error) => panic!("{spec}: {error}"),
    }
    if let Some(length) = input.length {
        let cut: Vec<Option<&[u8]>> = read.iter().map(|chunk| Some(&chunk[..chunk.len().min(length.into())])).collect();
        let _ = code.locate(&cut[..cut.len() - usize::from(length % 2)]);
    }
}

/// What is told of the losses is what plans find.
fn check_tolerance(code: &Guard, all: &[Vec<u8>], input: &Input) {
    let chunks = code.shape().chunks();
    let _ = code.tolerance_left(&input.chunks);
    let lost: BTreeSet<u16> = input.chunks.iter().map(|chunk| chunk % chunks).take(12).collect();
    let lost: Vec<u16> = lost.into_iter().collect();
    let left = code.tolerance_left(&lost).expect("chunks of the code, each once");
    let costs: Vec<Option<u32>> = (0..chunks).map(|chunk| (!lost.contains(&chunk)).then_some(1)).collect();
    let sub_bytes = (all[0].len() / code.shape().alpha as usize) as u32;
    match code.plan_read(&lost, &costs, sub_bytes, 1) {
        Ok(_) => assert!(left >= 0, "{} recovers {lost:?} and says {left}", code.spec()),
        Err(Misuse::Unrecoverable(_)) => assert!(left < 0, "{} refuses {lost:?} and says {left}", code.spec()),
        Err(error) => panic!("{}: {error}", code.spec()),
    }
}

/// Stripes of the one code become stripes of the other.
fn check_conversion(from: &Guard, input: &Input) {
    let Some(to) = guard(input.to.name()) else { return };
    let goal = match input.fill % 3 {
        0 => ConversionGoal::FewestReads,
        1 => ConversionGoal::ShortSums,
        _ => ConversionGoal::DataOnly,
    };
    if u32::from(from.shape().data) * u32::from(to.shape().data) > 200 {
        return;
    }
    let Ok(conversion) = Conversion::new(&from.spec().to_string(), &to.spec().to_string(), goal) else { return };
    let plan = conversion.plan();
    let tile = from.shape().alpha as usize * to.shape().alpha as usize;
    let chunks = usize::from(plan.sources) * usize::from(from.shape().chunks());
    if chunks * tile > 65_536 {
        return;
    }
    let sources: Vec<Vec<Vec<u8>>> =
        (0..plan.sources).map(|source| stripe(from, input.fill.wrapping_add(source as u8), tile)).collect();
    let fetched: Vec<&[u8]> =
        plan.reads.iter().map(|read| &sources[usize::from(read.stripe)][read.chunk.at()][..]).collect();
    let mut written = vec![vec![0xaa; tile]; plan.writes.len()];
    let mut buffers: Vec<&mut [u8]> = written.iter_mut().map(Vec::as_mut_slice).collect();
    conversion.apply(&fetched, &mut buffers).expect("right lengths");
    let mut targets = vec![vec![Vec::new(); to.shape().chunks().into()]; plan.targets.into()];
    for kept in &plan.kept {
        targets[usize::from(kept.to.stripe)][kept.to.chunk.at()] =
            sources[usize::from(kept.from.stripe)][kept.from.chunk.at()].clone();
    }
    for (write, bytes) in plan.writes.iter().zip(&written) {
        targets[usize::from(write.stripe)][write.chunk.at()].clone_from(bytes);
    }
    for target in &targets {
        let (data, parity) = target.split_at(to.shape().data.into());
        let mut made = vec![vec![0; tile]; parity.len()];
        let mut buffers: Vec<&mut [u8]> = made.iter_mut().map(Vec::as_mut_slice).collect();
        to.encode(&slices(data), &mut buffers).expect("right lengths");
        assert!(made == parity, "{} -> {}: another parity", from.spec(), to.spec());
    }
    if let Some(length) = input.length {
        let cut: Vec<&[u8]> = fetched.iter().map(|bytes| &bytes[..bytes.len().min(length.into())]).collect();
        let mut wrong = vec![vec![0xaa; tile]; plan.writes.len()];
        let mut buffers: Vec<&mut [u8]> = wrong.iter_mut().map(Vec::as_mut_slice).collect();
        let applied = conversion.apply(&cut, &mut buffers);
        assert!(applied.is_ok() || wrong.iter().flatten().all(|byte| *byte == 0xaa), "something was written");
    }
}
