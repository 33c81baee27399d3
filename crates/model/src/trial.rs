//! The same reads by chance: groups lose sectors at random, many times over, as a check of the formulas.
//!
//! Invariants:
//! 1. The same random numbers give the same times.

use rand::Rng;

use crate::{GroupShape, ReadTimes, distribution::counts};

/// Times of reads that were tried, ascending: without and with local coding.
#[derive(Clone, Debug, PartialEq)]
pub struct Trials {
    /// Every soft failure retried.
    pub plain_s: Vec<f64>,
    /// Decoded where parity suffices.
    pub coded_s: Vec<f64>,
}

impl Trials {
    /// The value that `share` of the times do not exceed.
    ///
    /// # Panics
    /// If there are no times, or `share` is not between 0 and 1.
    pub fn quantile(times: &[f64], share: f64) -> f64 {
        assert!((0.0..1.0).contains(&share), "{share} is no share");
        times[((times.len() as f64 * share).ceil() as usize).clamp(1, times.len()) - 1]
    }
}

/// Reads a file of `sectors` `trials` times, sectors failing softly with chance `soft`.
///
/// # Panics
/// If `soft` is no chance, or the group has no data.
pub fn try_reads(
    sectors: u64,
    group: GroupShape,
    soft: f64,
    times: ReadTimes,
    trials: usize,
    random: &mut impl Rng,
) -> Trials {
    let GroupShape { data, parity } = group;
    let (whole, rest) = (sectors / u64::from(data), (sectors % u64::from(data)) as u32);
    let groups = whole + u64::from(rest > 0);
    let (of_file, of_group) = (Draw::new(sectors, soft), Draw::new((data + parity).into(), soft));
    let of_rest = Draw::new((rest + parity).into(), soft);
    let (plain_transfer_s, transfer_s) =
        (sectors as f64 * times.sector_s, (sectors + groups * u64::from(parity)) as f64 * times.sector_s);
    let mut all = Trials { plain_s: Vec::with_capacity(trials), coded_s: Vec::with_capacity(trials) };
    for _ in 0..trials {
        all.plain_s.push(plain_transfer_s + f64::from(of_file.next(random)) * times.retry_s);
        let (mut retries, mut last) = (0, (0, 0));
        for _ in 0..whole {
            let failed = of_group.next(random);
            retries += failed.saturating_sub(parity);
            last = (failed, data);
        }
        if rest > 0 {
            let failed = of_rest.next(random);
            retries += failed.saturating_sub(parity);
            last = (failed, rest);
        }
        let decode_s = times.decode_s(last.0.min(parity), last.1);
        all.coded_s.push(transfer_s + decode_s + f64::from(retries) * times.retry_s);
    }
    all.plain_s.sort_by(f64::total_cmp);
    all.coded_s.sort_by(f64::total_cmp);
    all
}

/// Draws how many of some sectors fail.
struct Draw {
    /// The chance of at most so many.
    at_most: Vec<f64>,
}

impl Draw {
    fn new(sectors: u64, soft: f64) -> Self {
        let sum = |sum: &mut f64, chance: f64| {
            *sum += chance;
            Some(*sum)
        };
        Self { at_most: counts(sectors, soft).into_iter().scan(0.0, sum).collect() }
    }

    fn next(&self, random: &mut impl Rng) -> u32 {
        let at = random.random::<f64>();
        self.at_most.partition_point(|sum| *sum < at) as u32
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::{Trials, try_reads};
    use crate::{GroupShape, ReadTimes, coded_read, plain_read};

    // Test of: [lec §3.2]
    #[test]
    fn chance_agrees_with_the_formulas() {
        let times = ReadTimes { sector_s: 33e-6, retry_s: 0.02, decode_bytes_per_s: 4e9 };
        for (sectors, soft, group) in [
            (10_000, 1e-3, GroupShape { data: 250, parity: 5 }),
            (10_100, 5e-3, GroupShape { data: 246, parity: 9 }),
            // So little parity that retries are common.
            (5_000, 1e-2, GroupShape { data: 250, parity: 2 }),
        ] {
            let tried = try_reads(sectors, group, soft, times, 40_000, &mut ChaCha8Rng::seed_from_u64(7));
            let (plain, coded) = (plain_read(sectors, soft, times), coded_read(sectors, group, soft, times));
            for share in [0.5, 0.9, 0.99] {
                for (tried, exact) in [
                    (Trials::quantile(&tried.plain_s, share), plain.quantile(share)),
                    (Trials::quantile(&tried.coded_s, share), coded.quantile(share)),
                ] {
                    // A quantile of 40,000 draws may be one retry beside the exact one.
                    assert!((tried - exact).abs() <= 0.0201, "{sectors} {soft} {share}: {tried} {exact}");
                }
            }
            let mean = tried.coded_s.iter().sum::<f64>() / tried.coded_s.len() as f64;
            assert!((mean / coded.mean() - 1.0).abs() < 0.005, "{mean} {}", coded.mean());
        }
    }
}
