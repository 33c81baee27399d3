//! How long the slowest one in a hundred of long reads takes, with and without local coding, beside the exact model.
//!
//! Without: the drive retries at once what fails (groups without parity). Files of 100,000 sectors are read over and over, in
//! parts of 10,000 whose failures are independent: each is a short read, and any ten of them, in any order, a long one. With:
//! read in strides with the parity inline, decoded.
//!
//! The tail of long reads is that of all sums of ten parts, not of the few long reads that were there: of 120 of those the
//! 99th percentile is off by a standard error of 1.3 retries, of the sums by 0.3, and a retry is up to a point of gain.
//! `p99_off_model_error_points` is the standard error of what is judged, from reads drawn again out of those measured.
//!
//! With: a read waits for more than its transfers where a sums sector failed, which is about one of a hundred short reads at p_h = 1e-3,
//! so that the 99th percentile of a few hundred reads would be decided by chance. How often a read finds such a sector is
//! exact, 1 - (1 - p_h)^sums; each of the two kinds of reads counts for as much as it is likely, however many were measured.
//!
//! What is judged is the drive's time, which is exact, against the model without a time of decoding. Beside it, the gain with
//! the program's measured time after the last read, against the model with the paper's rates of decoding.

use std::collections::BTreeMap;
use std::time::Duration;

use claystone_env::SECTOR_BYTES;
use claystone_group::GroupShape;
use claystone_model::{self as model, Distribution, ReadTimes, Trials, coded_read, parity_of_group, plain_read};
use claystone_sim::run;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::drive::Drive;
use super::file::File;
use crate::rows::{Against, Figure};

/// The chance of losing a group that is accepted.
const LOSS_CHANCE: f64 = 1e-6;
/// Sectors of a short read; a long one has ten times as many.
const SHORT: u32 = 10_000;
/// Sectors of a track of the emulated drive.
const TRACK_SECTORS: u64 = 252;
/// Groups without parity, such that whole ones make a short read.
const PLAIN: GroupShape = GroupShape { data: 250, parity: 0 };

/// Chances of a soft failure, with how often a long file is read for the tail without coding. One retry more or less in the
/// tail of short reads is up to 4 points; so many samples tell the counts of retries apart.
pub const SOFT: [(f64, usize); 4] = [(1e-4, 120), (5e-4, 600), (1e-3, 600), (5e-3, 120)];
/// How long a retry takes.
pub const RETRIES_MS: [u64; 2] = [20, 40];
/// Sectors of a group.
pub const LENGTHS: [u32; 2] = [255, 1023];

/// A drive: how often its reads fail softly, and how long it retries.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The chance of a soft failure.
    pub soft: f64,
    /// The time of a retry.
    pub retry_ms: u64,
}

/// What the drive took for short reads without coding.
#[derive(Debug)]
pub struct Parts(Vec<Duration>);

/// What reads with coding took: short ones and long ones.
#[derive(Debug)]
pub struct Times {
    short: Reads,
    long: Reads,
}

/// What reads of one length took.
#[derive(Debug)]
struct Reads {
    times: Vec<Time>,
    /// The chance that none of the sums sectors fails softly.
    sums_read: f64,
}

/// What a read took.
#[derive(Debug, Clone, Copy, Default)]
struct Time {
    drive: Duration,
    /// The program's time after the last read of the drive.
    at_end: Duration,
    /// Whether a sums sector failed softly.
    sums_failed: bool,
}

impl Reads {
    /// The 99th percentile of what `took` says of each, in seconds.
    fn p99_s(times: &[Time], sums_read: f64, took: impl Fn(&Time) -> Duration) -> f64 {
        let failed = times.iter().filter(|time| time.sums_failed).count();
        let weight = |time: &Time| match (failed, times.len() - failed) {
            (0, all) | (all, 0) => 1.0 / all as f64,
            (failed, _) if time.sums_failed => (1.0 - sums_read) / failed as f64,
            (_, others) => sums_read / others as f64,
        };
        Distribution::new(times.iter().map(|time| (took(time).as_secs_f64(), weight(time))).collect()).quantile(0.99)
    }
}

/// The 99th percentile of times, in seconds.
fn p99_s(times: &[Duration]) -> f64 {
    let mut times_s: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
    times_s.sort_by(f64::total_cmp);
    Trials::quantile(&times_s, 0.99)
}

/// The 99th percentile of the sums of ten times, each as likely as any other, in seconds. Times are few: transfers, and so
/// many retries.
fn p99_of_ten_s(times: &[Duration]) -> f64 {
    let mut one: BTreeMap<Duration, f64> = BTreeMap::new();
    for &time in times {
        *one.entry(time).or_default() += 1.0 / times.len() as f64;
    }
    let sums = |some: &BTreeMap<Duration, f64>, others: &BTreeMap<Duration, f64>| {
        let mut sums: BTreeMap<Duration, f64> = BTreeMap::new();
        for (time, chance) in some {
            for (other, of_other) in others {
                *sums.entry(*time + *other).or_default() += chance * of_other;
            }
        }
        sums
    };
    let two = sums(&one, &one);
    let four = sums(&two, &two);
    let ten = sums(&sums(&four, &four), &two);
    let mut below = 0.0;
    let reached = |(_, chance): &(&Duration, &f64)| {
        below += **chance;
        below >= 0.99
    };
    ten.iter().find(reached).or(ten.last_key_value()).expect("something was read").0.as_secs_f64()
}

/// The standard error of a figure of times: how far it is off for times drawn from these, again and again.
fn error_of<T: Copy>(times: &[T], figure: impl Fn(&[T]) -> f64) -> f64 {
    let mut random = ChaCha8Rng::seed_from_u64(23);
    let mut drawn = || -> Vec<T> { times.iter().map(|_| times[random.random_range(0..times.len())]).collect() };
    let figures: Vec<f64> = (0..DRAWN_AGAIN).map(|_| figure(&drawn())).collect();
    let mean = figures.iter().sum::<f64>() / DRAWN_AGAIN as f64;
    let squares: f64 = figures.iter().map(|figure| (figure - mean).powi(2)).sum();
    (squares / (DRAWN_AGAIN - 1) as f64).sqrt()
}

const DRAWN_AGAIN: usize = 50;

/// Reads a file without coding, `times` times.
///
/// # Errors
/// The drive failed.
pub fn without(case: Case, times: usize) -> anyhow::Result<Parts> {
    run(seed(case, 0), |world| async move {
        let drive = Drive::new(&world, Duration::from_millis(case.retry_ms), PLAIN);
        let place = File::place(PLAIN, 10 * SHORT, TRACK_SECTORS);
        let file = File::write(&drive.groups(), place, 10 * SHORT)?;
        let mut buffer = vec![0; SHORT as usize * SECTOR_BYTES];
        let mut parts = Vec::new();
        for _ in 0..times {
            drive.fail_softly(0.0);
            drive.move_head(file.first)?;
            drive.fail_softly(case.soft);
            file.stream(&drive.groups(), &mut buffer, |read| {
                parts.push(drive.time(read)?.drive);
                Ok(())
            })?;
        }
        Ok(Parts(parts))
    })
}

/// Reads with coding, so many short and long ones.
///
/// # Errors
/// The drive failed.
pub fn with(case: Case, shape: GroupShape, short: usize, long: usize) -> anyhow::Result<Times> {
    run(seed(case, shape.data), |world| async move {
        let drive = Drive::new(&world, Duration::from_millis(case.retry_ms), shape);
        let mut buffer = vec![0; SHORT as usize * SECTOR_BYTES];
        let mut read = |sectors: u32, times: usize| -> anyhow::Result<Reads> {
            drive.fail_softly(0.0);
            let file = File::write(&drive.groups(), File::place(shape, sectors, TRACK_SECTORS), sectors)?;
            let sums = file.sums();
            let mut all = Vec::new();
            for _ in 0..times {
                drive.fail_softly(0.0);
                drive.move_head(file.first)?;
                drive.fail_softly(case.soft);
                drive.take_failed();
                let mut total = Time::default();
                file.stream(&drive.groups(), &mut buffer, |read| {
                    let took = drive.time(read)?;
                    total = Time { drive: total.drive + took.drive, at_end: took.software_at_end, ..total };
                    Ok(())
                })?;
                let failed = drive.take_failed();
                all.push(Time { sums_failed: sums.iter().any(|sums| failed.contains(sums)), ..total });
            }
            Ok(Reads { times: all, sums_read: (1.0 - case.soft).powi(sums.len() as i32) })
        };
        Ok(Times { short: read(SHORT, short)?, long: read(10 * SHORT, long)? })
    })
}

/// The code of groups of this length.
///
/// # Panics
/// If none suffices, which is so for no length and chance of this bench.
pub fn shape(length: u32, soft: f64) -> GroupShape {
    let parity = parity_of_group(length, soft, LOSS_CHANCE).expect("these lengths suffice");
    GroupShape { data: length - parity, parity }
}

/// The figures of a drive and a shape.
pub fn figures(case: Case, shape: GroupShape, without: &Parts, with: &Times) -> Vec<Figure> {
    let Case { soft, retry_ms } = case;
    let GroupShape { data, parity } = shape;
    let times = ReadTimes {
        sector_s: 33e-6,
        retry_s: retry_ms as f64 / 1e3,
        decode_bytes_per_s: if data + parity > 256 { 2e9 } else { 4e9 },
    };
    let group = model::GroupShape { data, parity };
    let mut figures = Vec::new();
    type P99 = fn(&[Duration]) -> f64;
    let lengths: [(u32, P99, &Reads); 2] = [(SHORT, p99_s, &with.short), (10 * SHORT, p99_of_ten_s, &with.long)];
    for (sectors, p99_of_parts_s, coded) in lengths {
        let length = u64::from(sectors);
        let exact_plain = plain_read(length, soft, times).quantile(0.99);
        let exact = |times| coded_read(length, group, soft, times).quantile(0.99);
        let exact_coded = exact(times);
        let exact_drive = exact(ReadTimes { decode_bytes_per_s: f64::INFINITY, ..times });
        let of_drive = |times: &[Time]| Reads::p99_s(times, coded.sums_read, |time| time.drive);
        let drive = of_drive(&coded.times);
        let (plain_error, drive_error) = (error_of(&without.0, p99_of_parts_s), error_of(&coded.times, of_drive));
        let plain = p99_of_parts_s(&without.0);
        let coded = Reads::p99_s(&coded.times, coded.sums_read, |time| time.drive + time.at_end);
        let lower = |plain: f64, coded: f64| 100.0 * (1.0 - coded / plain);
        let off = lower(plain, drive) - lower(exact_plain, exact_drive);
        let error = 100.0 * drive / plain * (plain_error / plain).hypot(drive_error / drive);
        let case = format!("rs:{data}+{parity} {soft:e} {retry_ms}ms {sectors}");
        let figure = |metric: &str, value, unit, model: Option<f64>| Figure {
            bench: "lec",
            case: case.clone(),
            metric: metric.to_owned(),
            value,
            unit,
            against: model.map(|value| Against { name: "model".to_owned(), value }),
        };
        figures.push(figure("plain_p99_ms", plain * 1e3, "ms", Some(exact_plain * 1e3)));
        figures.push(figure("coded_p99_ms", coded * 1e3, "ms", Some(exact_coded * 1e3)));
        figures.push(figure("p99_lower_percent", lower(plain, coded), "%", Some(lower(exact_plain, exact_coded))));
        figures.push(figure("p99_off_model_points", off.abs(), "points", None));
        figures.push(figure("p99_off_model_error_points", error, "points", None));
    }
    figures
}

fn seed(case: Case, data: u32) -> u64 {
    (case.soft * 1e6) as u64 * 1_000_000 + case.retry_ms * 10_000 + u64::from(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_with_a_failed_sums_sector_count_for_as_much_as_they_are_likely() {
        let time = |ms, sums_failed| Time { drive: Duration::from_millis(ms), sums_failed, ..Time::default() };
        let p99_s = |times: &[Time], sums_read| Reads::p99_s(times, sums_read, |time| time.drive);
        // A tenth of those measured, and one of a hundred of all, or one of fifty.
        let mut times = vec![time(330, false); 90];
        times.extend([time(338, true); 9]);
        times.push(time(346, true));
        assert_eq!(p99_s(&times, 0.991), 0.330);
        assert_eq!(p99_s(&times, 0.98), 0.338);
        assert_eq!(p99_s(&times, 0.80), 0.346);
        // Where none of a kind was measured, the others stand for all.
        assert_eq!(p99_s(&times[..90], 0.98), 0.330);
    }
}
