//! What Clay repairs read, counted in plans: nothing is timed.
//!
//! Invariants:
//! 1. Bytes are counted in whole sectors, with sub-chunks of one sector each.

use claystone_code::{ChunkIndex, CodeSpec, ErasureCode, ReadCosts, Shape};

use crate::comparison::Comparison;

/// For each code: what the worst single repair reads beside theory, how many chunks are repaired from exactly that much,
/// and what repairs of two chunks read on average beside the paper's method. All in chunks.
///
/// # Panics
/// If a code cannot repair what it must.
pub fn repairs() -> Vec<Comparison> {
    CODES.iter().flat_map(|code| of_code(code.parse().expect("a code"))).collect()
}

fn of_code(spec: CodeSpec) -> [Comparison; 4] {
    let CodeSpec::Clay { data, helpers, .. } = spec else { panic!("{spec} is not Clay") };
    let code = spec.build().expect("a valid code");
    let chunks = spec.shape().chunks();
    let tile = f64::from(spec.shape().alpha) * f64::from(SECTOR);
    let read = |lost: &[u16]| bytes_read(&*code, lost) as f64 / tile;

    let theory = f64::from(helpers) / f64::from(helpers - data + 1);
    let single: Vec<f64> = (0..chunks).map(|chunk| read(&[chunk])).collect();
    let worst = single.iter().copied().fold(0.0, f64::max);
    let exact = single.iter().filter(|read| **read == theory).count();

    let pairs: Vec<[u16; 2]> = (0..chunks).flat_map(|a| (a + 1..chunks).map(move |b| [a, b])).collect();
    let mean = |cost: &dyn Fn(&[u16; 2]) -> f64| pairs.iter().map(cost).sum::<f64>() / pairs.len() as f64;
    let no_dearer = pairs.iter().filter(|pair| read(*pair) <= published_pair(spec, **pair) + ROUNDING).count();
    let (double, published) = (mean(&|pair| read(pair)), mean(&|pair| published_pair(spec, *pair)));

    let row = |metric: &str, value, unit, (name, against): (&str, f64)| Comparison {
        case: spec.to_string(),
        metric: metric.to_owned(),
        value,
        unit,
        against: Some((name.to_owned(), against)),
        is_settled: true,
        needs_against: true,
        is_peer: false,
    };
    [
        row("repair_1_read_most", worst, "chunks", ("theory", theory)),
        row("repair_1_read_as_theory", exact as f64, "nodes", ("all nodes", f64::from(chunks))),
        row("repair_2_read_mean", double, "chunks", ("published method", published)),
        row("repair_2_no_dearer", no_dearer as f64, "pairs", ("all pairs", pairs.len() as f64)),
    ]
}

fn bytes_read(code: &dyn ErasureCode, lost: &[u16]) -> u64 {
    let chunks = code.shape().chunks();
    let costs: Vec<Option<u32>> = (0..chunks).map(|chunk| (!lost.contains(&chunk)).then_some(1)).collect();
    let want: Vec<ChunkIndex> = lost.iter().copied().map(ChunkIndex).collect();
    let plan = code.plan_read(&want, &ReadCosts { chunks: &costs, sub_bytes: SECTOR, granule: SECTOR });
    plan.expect("within tolerance").bytes_read(SECTOR, SECTOR)
}

/// What the paper's repair of two chunks reads, in chunks: the planes in which either is a dot, from all that are left but
/// the aloof ones, if few enough nodes are unknown in a plane; else k whole chunks. Source: [clay §4]
fn published_pair(spec: CodeSpec, lost: [u16; 2]) -> f64 {
    let CodeSpec::Clay { data, helpers, .. } = spec else { panic!("{spec} is not Clay") };
    let Shape { data: k, parity: m, .. } = spec.shape();
    let q = u16::from(helpers - data) + 1;
    let virtuals = (k + m).next_multiple_of(q) - k - m;
    let section = |chunk: u16| (if chunk < k { chunk } else { chunk + virtuals }) / q;
    let [a, b] = lost.map(section);
    // Planes that are read, as a share of all; nodes of a hit section that are unknown beside the lost ones.
    let (share, mates) =
        if a == b { (2.0 / f64::from(q), q - 2) } else { (1.0 - (1.0 - 1.0 / f64::from(q)).powi(2), q - 1) };
    let Some(aloof) = m.checked_sub(2 + mates) else { return f64::from(k) };
    (f64::from(k + m - 2 - aloof) * share).min(f64::from(k))
}

const SECTOR: u32 = 4096;
/// Of sums of chunks as fractions.
const ROUNDING: f64 = 1e-9;

const CODES: [&str; 7] =
    ["clay:4+2:5", "clay:6+3:7", "clay:9+3:11", "clay:10+4:11", "clay:10+4:12", "clay:10+4:13", "clay:16+4:19"];

#[cfg(test)]
mod tests {
    use super::{CODES, published_pair, repairs};

    /// Test of: [clay §4]: the paper's averages over all pairs of lost chunks.
    #[test]
    fn the_published_method_reads_what_was_published() {
        for (code, expected) in [
            ("clay:4+2:5", 4.0),
            ("clay:9+3:11", 8.58),
            ("clay:10+4:11", 8.39),
            ("clay:10+4:12", 6.76),
            ("clay:10+4:13", 9.17),
            ("clay:16+4:19", 14.9),
        ] {
            let spec: claystone_code::CodeSpec = code.parse().expect("a code");
            let chunks = spec.shape().chunks();
            let pairs: Vec<[u16; 2]> = (0..chunks).flat_map(|a| (a + 1..chunks).map(move |b| [a, b])).collect();
            let mean = pairs.iter().map(|pair| published_pair(spec, *pair)).sum::<f64>() / pairs.len() as f64;
            assert!((mean - expected).abs() < 0.05, "{code}: {mean}");
        }
    }

    #[test]
    fn every_repair_reads_what_theory_says() {
        let rows = repairs();
        assert_eq!(rows.len(), 4 * CODES.len());
        for row in rows {
            let (_, against) = row.against.as_ref().expect("all have a bound");
            match row.metric.as_str() {
                "repair_2_read_mean" => assert!(row.value <= *against, "{row:?}"),
                _ => assert!(row.value == *against, "{row:?}"),
            }
        }
    }
}
