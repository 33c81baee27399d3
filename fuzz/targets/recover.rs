//! Any code, any chunks lost, any lengths: what is planned and recovered is what was encoded; what cannot be recovered
//! is refused; wrong arguments are refused and write nothing.
#![no_main]

use std::cell::RefCell;
use std::collections::BTreeMap;

use arbitrary::Arbitrary;
use claystone_guard::{Guard, Misuse};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input {
    code: Choice,
    sub_bytes: u16,
    granule: u32,
    /// How many of the following chunks, counted around, are lost whatever they cost: of long codes too, without hundreds of costs
    /// before them.
    losses: u8,
    lost: [u16; 6],
    /// Whether these are not wanted first.
    is_lost_left: bool,
    costs: Vec<Option<u8>>,
    want: Vec<u16>,
    fill: u8,
    wrong: Option<Wrong>,
}

#[derive(Arbitrary, Debug)]
enum Choice {
    Known(u8),
    Numbers { family: u8, k: u8, m: u8, x: u8 },
    Long { k: u8, m: u8 },
    Text(String),
}

/// What a caller may get wrong.
#[derive(Arbitrary, Debug)]
enum Wrong {
    Costs(u8),
    Fetched(u8),
    Length(u8, u16),
    Out(u8, u16),
}

const KNOWN: [&str; 10] = [
    "replica:1",
    "replica:3",
    "rs:1+1",
    "rs:4+2",
    "rs:10+4",
    "clay:2+2:3",
    "clay:3+2:4",
    "clay:4+2:5",
    "clay:5+3:7",
    "clay:6+3:7",
];

thread_local! {
    static GUARDS: RefCell<BTreeMap<String, Option<Guard>>> = RefCell::default();
}

fn guard(choice: &Choice) -> Option<Guard> {
    let spec = match choice {
        Choice::Known(at) => KNOWN[usize::from(*at) % KNOWN.len()].to_owned(),
        Choice::Numbers { family, k, m, x } => {
            // Small: a code of 60,000 chunks takes longer than it teaches.
            let (k, m, x) = (k % 16, m % 6, x % 22);
            match family % 10 {
                0 => format!("replica:{k}"),
                1 => format!("rs:{k}+{m}"),
                2 => format!("lrc:{k}+{m}+{x}"),
                3 => format!("pc:{m}x{k}"),
                4 => format!("rsm:{k}+{m}"),
                5 => format!("isal:{k}+{m}"),
                6 => format!("klauspost:{k}+{m}"),
                7 => format!("hybrid:rsm:{k}+{m}x{}", x % 4),
                8 => format!("mixed:{k}+{m}x{}:{}+{}", 2 + x % 2, x % 3, 3 + x / 3),
                _ => format!("clay:{k}+{m}:{x}"),
            }
        }
        // Around the 257 chunks from which on they are over GF(2^16).
        Choice::Long { k, m } => format!("rs:{}+{}", 250 + u16::from(k % 51), 1 + m % 6),
        // Only what is small is built.
        Choice::Text(text) => match text.parse::<claystone_code::CodeSpec>() {
            Ok(spec) if u32::from(spec.shape().chunks()) * spec.shape().alpha <= 4096 => text.clone(),
            _ => return None,
        },
    };
    GUARDS.with_borrow_mut(|guards| {
        if guards.len() > 300 {
            guards.clear();
        }
        guards.entry(spec).or_insert_with_key(|spec| Guard::new(spec).ok()).clone()
    })
}

fuzz_target!(|input: Input| {
    let Some(guard) = guard(&input.code) else { return };
    let shape = guard.shape();
    let chunks = usize::from(shape.chunks());
    if chunks * shape.alpha as usize > 4096 {
        return;
    }
    let sub_bytes = u32::from(input.sub_bytes) % (65_536 / (chunks as u32 * shape.alpha)).clamp(1, 300);
    let tile = shape.alpha as usize * sub_bytes as usize;
    let mut all: Vec<Vec<u8>> = (0..chunks)
        .map(|chunk| {
            let of_chunk = (chunk as u8).wrapping_mul(input.fill) ^ (chunk >> 8) as u8;
            (0..tile).map(|at| (at as u8).wrapping_mul(31) ^ of_chunk).collect()
        })
        .collect();
    let (data, parity) = all.split_at_mut(shape.data.into());
    let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
    guard.encode(&data, &mut parity).expect("right lengths");

    let mut costs: Vec<Option<u32>> =
        (0..chunks).map(|chunk| input.costs.get(chunk).copied().unwrap_or(Some(1)).map(u32::from)).collect();
    let mut want = Vec::new();
    for chunk in input.lost.iter().take(usize::from(input.losses % 7)).map(|chunk| usize::from(*chunk) % chunks) {
        if costs[chunk].take().is_some() && !input.is_lost_left {
            want.push(chunk as u16);
        }
    }
    want.extend(&input.want);
    if let Some(Wrong::Costs(count)) = input.wrong {
        costs.truncate(count.into());
    }
    let lost = costs.iter().filter(|cost| cost.is_none()).count();
    let plan = match guard.plan_read(&want, &costs, sub_bytes, input.granule) {
        Ok(plan) => plan,
        Err(Misuse::Unrecoverable(_)) => {
            assert!(lost > usize::from(guard.spec().tolerance()), "{} refuses {lost} lost", guard.spec());
            return;
        }
        Err(_) => return,
    };
    let reads = &plan.data().reads;
    assert!(reads.iter().all(|read| costs[read.chunk.at()].is_some()), "a lost chunk is read");
    let mut fetched: Vec<Vec<u8>> = reads.iter().map(|read| read.cut(&all[read.chunk.at()], sub_bytes)).collect();
    let mut out = vec![vec![0xaa; tile]; want.len()];
    match input.wrong {
        Some(Wrong::Fetched(count)) => fetched.truncate(count.into()),
        Some(Wrong::Length(at, length)) => {
            if let Some(fetched) = fetched.get_mut(usize::from(at)) {
                fetched.resize(length.into(), 0);
            }
        }
        Some(Wrong::Out(at, length)) => {
            if let Some(out) = out.get_mut(usize::from(at)) {
                out.resize(length.into(), 0xaa);
            }
        }
        _ => (),
    }
    let fetched: Vec<&[u8]> = fetched.iter().map(Vec::as_slice).collect();
    let mut buffers: Vec<&mut [u8]> = out.iter_mut().map(Vec::as_mut_slice).collect();
    match guard.recover(&plan, &fetched, &mut buffers) {
        // A wrong length that happens to be right for another tile is no mistake that can be seen.
        Ok(()) if input.wrong.is_some() => (),
        Ok(()) => {
            for (chunk, out) in want.iter().zip(&out) {
                assert!(*out == all[usize::from(*chunk)], "{}: chunk {chunk} comes back wrong", guard.spec());
            }
        }
        Err(error) => {
            assert!(input.wrong.is_some(), "{}: {error}", guard.spec());
            assert!(out.iter().flatten().all(|byte| *byte == 0xaa), "something was written");
        }
    }
});
