//! Prints how fast the codes run on this machine, in GB/s of data bytes, one thread.
//!
//! A quick look, not a benchmark: the best of a few short samples, no peers, no gate against noisy neighbours.

use std::time::{Duration, Instant};

use claystone_code::{ChunkIndex, CodeSpec, ReadCosts, Tier};

fn main() {
    println!("{:<14} {:>10} {:<11} {:>9} {:>9}", "code", "sub-chunk", "tier", "encode", "repair 1");
    for (text, sub_bytes) in [
        ("rs:4+2", 8 << 10),
        ("rs:6+3", 8 << 10),
        ("rs:10+4", 8 << 10),
        ("rs:16+4", 8 << 10),
        ("rs:10+4", 128 << 10),
        ("rs:10+4", 1 << 20),
        ("clay:4+2:5", 4 << 10),
        ("clay:4+2:5", 64 << 10),
        ("clay:6+3:8", 4 << 10),
        ("clay:9+3:11", 1 << 10),
        ("clay:9+3:11", 4 << 10),
        ("clay:16+4:19", 64),
        ("clay:16+4:19", 1 << 10),
        ("clay:16+4:19", 4 << 10),
    ] {
        for tier in Tier::available().iter().rev() {
            measure(text, sub_bytes, *tier);
        }
    }
}

fn measure(text: &str, sub_bytes: u32, tier: Tier) {
    let spec: CodeSpec = text.parse().expect("a valid spec");
    let code = spec.build_with_tier(tier).expect("a valid spec");
    let shape = code.shape();
    let tile = shape.alpha as usize * sub_bytes as usize;
    let mut chunks: Vec<Vec<u8>> = (0..shape.chunks()).map(|i| vec![i as u8 + 1; tile]).collect();
    let (data, parity) = chunks.split_at_mut(shape.data.into());
    let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
    let encode = best(|| code.encode(&data, &mut parity));

    let costs: Vec<Option<u32>> = (0..shape.chunks()).map(|i| (i != 1).then_some(1)).collect();
    let costs = ReadCosts { chunks: &costs, sub_bytes, granule: 1 };
    let plan = code.plan_read(&[ChunkIndex(1)], &costs).expect("one loss");
    let fetched: Vec<Vec<u8>> = plan.reads.iter().map(|read| read.cut(&chunks[read.chunk.at()], sub_bytes)).collect();
    let fetched: Vec<&[u8]> = fetched.iter().map(Vec::as_slice).collect();
    let mut out = vec![0; tile];
    let repair = best(|| code.recover(&plan, &fetched, &mut [&mut out]));

    let rate = |time: Duration| usize::from(shape.data) as f64 * tile as f64 / time.as_nanos() as f64;
    println!("{text:<14} {sub_bytes:>10} {tier:<11?} {:>9.1} {:>9.1}", rate(encode), rate(repair));
}

/// The fastest of some runs.
#[expect(clippy::disallowed_methods, reason = "measures this machine; nothing of it is replayed")]
fn best(mut run: impl FnMut()) -> Duration {
    let mut best = Duration::MAX;
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(100) {
        let at = Instant::now();
        run();
        best = best.min(at.elapsed());
    }
    best
}
