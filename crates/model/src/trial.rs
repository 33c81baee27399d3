//! The same by chance: groups lose sectors at random, and files have sizes at random, many times over, as a check of the formulas.
//!
//! Invariants:
//! 1. The same random numbers give the same times.

use rand::Rng;

use crate::overhead::parity_sectors;
use crate::{GroupShape, ReadTimes, SECTOR_BYTES, SizeMix, distribution::counts};

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

/// The chance that more than `parity` of `sectors` fail softly, each with chance `soft`: groups are tried in which sectors fail so
/// often that a few of them lose one, and each counts as often as it would come about. Sectors fail one by one: no formula of
/// [`loss_chance`](crate::loss_chance) is in it.
///
/// # Panics
/// If `soft` is no chance.
pub fn try_loss(sectors: u32, parity: u32, soft: f64, trials: usize, random: &mut impl Rng) -> f64 {
    assert!((0.0..1.0).contains(&soft), "{soft} is no chance");
    let chance = soft.max((f64::from(parity) + 1.0) / f64::from(sectors)).min(0.5);
    let (failed_weight, read_weight) = ((soft / chance).ln(), ((1.0 - soft) / (1.0 - chance)).ln());
    let mut sum = 0.0;
    for _ in 0..trials {
        let (mut failed, mut at) = (0, 0);
        loop {
            // How many sectors read until one fails.
            let read = (1.0 - random.random::<f64>()).ln() / (1.0 - chance).ln();
            at += read as u64 + 1;
            if at > u64::from(sectors) {
                break;
            }
            failed += 1;
        }
        if failed > parity {
            sum += (f64::from(failed) * failed_weight + f64::from(sectors - failed) * read_weight).exp();
        }
    }
    sum / trials as f64
}

/// Parity bytes for each data byte of files that are drawn from a mix: each as often as its share of the bytes and its size say.
pub fn try_mix(mix: &SizeMix, group: GroupShape, trials: usize, random: &mut impl Rng) -> f64 {
    let (mut data, mut parity) = (0.0, 0.0);
    for _ in 0..trials {
        let mut at = random.random::<f64>();
        let range = mix.ranges.iter().find(|range| {
            at -= range.share;
            at < 0.0
        });
        let Some(range) = range.or(mix.ranges.last()) else { return 0.0 };
        let (low, high) = (range.least_bytes.ln(), range.most_bytes.ln());
        let bytes = (low + (high - low) * random.random::<f64>()).exp();
        let sectors = (bytes / f64::from(SECTOR_BYTES)).ceil() as u64;
        // A byte was drawn, and its file with it: large ones are drawn more often than there are of them.
        let files = 1.0 / sectors as f64;
        data += files * sectors as f64;
        parity += files * parity_sectors(sectors, group) as f64;
    }
    parity / data
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

    use super::{Trials, try_loss, try_mix, try_reads};
    use crate::{
        GroupShape, ReadTimes, SizeMix, SizeRange, coded_read, loss_chance, mix_overhead, parity_of_data, plain_read,
    };

    // Test of: [lec §3.1]
    #[test]
    fn groups_lose_sectors_as_often_as_the_formula_says() {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let codes = [(255, 3, 1e-4), (255, 4, 5e-4), (255, 5, 1e-3), (255, 9, 5e-3)];
        let long = [(1023, 4, 1e-4), (1023, 7, 5e-4), (1023, 9, 1e-3), (1023, 19, 5e-3)];
        for (sectors, parity, soft) in codes.into_iter().chain(long) {
            for parity in [parity - 1, parity] {
                let (tried, exact) =
                    (try_loss(sectors, parity, soft, 20_000, &mut random), loss_chance(sectors, parity, soft));
                assert!((tried / exact - 1.0).abs() < 0.06, "{sectors}, {parity}, {soft}: {tried:e} and {exact:e}");
            }
        }
        // The least parity by trial is that by formula, where the bound is not within the error of a trial.
        for data in [16, 128, 1024, 2048] {
            let parity = parity_of_data(data, 1e-3, 1e-8);
            let mut lost = |parity| try_loss(data + parity, parity, 1e-3, 20_000, &mut random);
            assert!(lost(parity) < 1e-8 && lost(parity - 1) > 1e-8, "{data} + {parity}");
        }
        assert_eq!(try_loss(255, 3, 0.0, 100, &mut random), 0.0);
    }

    // Test of: [lec §3.1]
    #[test]
    fn drawn_files_cost_what_their_mix_does() {
        let range = |share, least_bytes, most_bytes| SizeRange { share, least_bytes, most_bytes };
        let ranges = vec![range(0.2, 1e3, 1e5), range(0.8, 1e5, 1e7)];
        let (mix, group) = (SizeMix { name: "mix", ranges }, GroupShape { data: 250, parity: 5 });
        let tried = try_mix(&mix, group, 100_000, &mut ChaCha8Rng::seed_from_u64(5));
        let exact = mix_overhead(&mix, group);
        assert!((tried / exact - 1.0).abs() < 0.02, "{tried} and {exact}");
    }

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
