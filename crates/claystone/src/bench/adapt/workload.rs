//! What is stored and when it is read: five made workloads, and recorded jobs of Facebook's clusters.
//!
//! The paper's table of its five workloads could not be had. What its text says of them bounds them, and these are made
//! within those bounds; the figures are nobody's measurements:
//!
//! | said | cc1 | cc2 | cc3 | cc4 | fb |
//! |---|---|---|---|---|---|
//! | 85 to 90 % of the reads of CC1, CC4 and FB go to hot data | 88 | 75 | 75 | 87 | 90 |
//! | 85 to 95 % of the files of CC1, CC2 and FB are cold | 92 | 88 | 75 | 75 | 94 |
//! | CC2, CC3 and CC4 have more hot data; CC3 and CC4 meet the bound (25 % in the fast code) | 8 | 20 | 35 | 35 | 6 |
//!
//! Beside these is one that the paper has not: `short`, files of 64 KiB to 8 MiB, which are no whole stripes of any code.
//!
//! The rows are: percent of reads that go to hot files, percent of files that are cold, percent of bytes in hot files.
//!
//! Invariants:
//! 1. A seed makes the same workload each time.
//! 2. A read is of a whole file, as jobs read their input.
//!
//! Left out: writes after the first hours, and deletes.
//! Source: [hacfs §5.1], [hacfs §5.3]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use flate2::bufread::MultiGzDecoder;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Files, and when each is read.
#[derive(Debug, Clone)]
pub struct Workload {
    /// What it is called.
    pub name: String,
    /// Bytes of each file.
    pub files: Vec<u64>,
    /// When which file is read, in seconds from the beginning, ascending.
    pub reads: Vec<(f64, usize)>,
    /// From when on figures count.
    pub measured_from_s: f64,
    /// When it ends.
    pub end_s: f64,
}

/// How large made workloads are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// Bytes of all files, about.
    pub data_bytes: u64,
    /// How many files.
    pub files: usize,
    /// Days, the first two included, which do not count: files are written and settle.
    pub days: u32,
    /// What lengths are multiples of.
    pub unit_bytes: u64,
}

impl Workload {
    /// A part of it for few and short files: every n-th file with its reads, so that `files_max` are left, and lengths that
    /// together are about `data_bytes` in multiples of `unit_bytes`.
    pub fn sampled(&self, files_max: usize, data_bytes: u64, unit_bytes: u64) -> Workload {
        let count = self.files.len().min(files_max);
        let chosen: Vec<usize> = (0..count).map(|at| at * self.files.len() / count).collect();
        let all: u64 = chosen.iter().map(|file| self.files[*file]).sum();
        let units = |file: &usize| {
            let share = self.files[*file] as f64 / all.max(1) as f64;
            (data_bytes as f64 * share / unit_bytes as f64).round().max(1.0) as u64
        };
        let files = chosen.iter().map(|file| units(file) * unit_bytes).collect();
        let places: BTreeMap<usize, usize> = chosen.iter().enumerate().map(|(at, file)| (*file, at)).collect();
        let reads = self.reads.iter().filter_map(|(at_s, file)| Some((*at_s, *places.get(file)?))).collect();
        Workload { files, reads, ..self.clone() }
    }
}

/// What the text says of a workload, and what is made of it.
#[derive(Debug, Clone, Copy)]
pub struct Made {
    /// What it is called.
    pub name: &'static str,
    /// Share of files that are hot, in percent.
    hot_files: u32,
    /// Share of bytes in these.
    hot_bytes: u32,
    /// Share of reads that go to these.
    hot_reads: u32,
    /// Blocks that are read and written again to rebuild a lost data block, as the paper has it; `None`: it has no such workload,
    /// and files are many and short.
    pub paper_rebuild_chunks: Option<f64>,
}

/// The five, and one of short files.
pub const MADE: [Made; 6] = [
    Made { name: "cc1", hot_files: 8, hot_bytes: 8, hot_reads: 88, paper_rebuild_chunks: Some(9.0) },
    Made { name: "cc2", hot_files: 12, hot_bytes: 20, hot_reads: 75, paper_rebuild_chunks: Some(9.0) },
    Made { name: "cc3", hot_files: 25, hot_bytes: 35, hot_reads: 75, paper_rebuild_chunks: Some(8.0) },
    Made { name: "cc4", hot_files: 25, hot_bytes: 35, hot_reads: 87, paper_rebuild_chunks: Some(8.0) },
    Made { name: "fb", hot_files: 6, hot_bytes: 6, hot_reads: 90, paper_rebuild_chunks: Some(9.0) },
    Made { name: "short", hot_files: 8, hot_bytes: 8, hot_reads: 88, paper_rebuild_chunks: None },
];

impl Made {
    /// Whether its files are blocks that are whole stripes of every code.
    pub fn is_of_blocks(&self) -> bool {
        self.paper_rebuild_chunks.is_some()
    }

    /// Makes it.
    pub fn make(&self, scale: Scale, seed: u64) -> Workload {
        self.make_with_hot(scale, seed).0
    }

    /// Makes it; also returns which files are hot on the first day.
    fn make_with_hot(&self, mut scale: Scale, seed: u64) -> (Workload, Vec<usize>) {
        scale.files *= if self.is_of_blocks() { 1 } else { SHORT_FOR_ONE };
        let seed = self.name.bytes().fold(seed, |seed, byte| seed.wrapping_mul(257).wrapping_add(byte.into()));
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let hot_count = (scale.files * self.hot_files as usize).div_ceil(100);
        // Which files are hot changes: each day some cool and as many others take their place.
        let mut order: Vec<usize> = (0..scale.files).collect();
        for at in 0..scale.files {
            order.swap(at, random.random_range(at..scale.files));
        }
        let hot = order[..hot_count].to_vec();
        let files = self.lengths(scale, &hot, &mut random);
        let hot_reads_a_day = READS_OF_HOT_A_DAY * hot_count as f64;
        let cold_reads_a_day = hot_reads_a_day * f64::from(100 - self.hot_reads) / f64::from(self.hot_reads);
        let popularity: Vec<f64> = (1..=hot_count).map(|rank| (rank as f64).powf(-SKEW)).collect();
        let all: f64 = popularity.iter().sum();
        let mut reads = Vec::new();
        for day in 0..scale.days {
            let begin = f64::from(day) * DAY_S + if day == 0 { WRITTEN_S } else { 0.0 };
            let share = (f64::from(day + 1) * DAY_S - begin) / DAY_S;
            let mut draw = |file: usize, mean: f64| {
                for _ in 0..poisson(mean * share, &mut random) {
                    reads.push((begin + random.random_range(0.0..share * DAY_S), file));
                }
            };
            for (file, weight) in order.iter().zip(&popularity) {
                draw(*file, hot_reads_a_day * weight / all);
            }
            let cold = cold_reads_a_day / (scale.files - hot_count) as f64;
            order[hot_count..].iter().for_each(|file| draw(*file, cold));
            for at in 0..hot_count {
                if random.random_bool(COOL_A_DAY) {
                    // With one of about its length, so that the share of hot bytes stays.
                    let bytes = files[order[at]] as f64;
                    let other = (0..TRIES).map(|_| random.random_range(hot_count..scale.files));
                    let off = |other: &usize| (files[order[*other]] as f64 / bytes).ln().abs();
                    let other = other.min_by(|one, two| off(one).total_cmp(&off(two))).expect("there are tries");
                    order.swap(at, other);
                }
            }
        }
        reads.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        let end_s = f64::from(scale.days) * DAY_S;
        (Workload { name: self.name.to_owned(), files, reads, measured_from_s: SETTLED_S, end_s }, hot)
    }

    /// Lengths of files, of which the hot ones hold their share of all bytes. Short ones have any length, as many from each one to
    /// its double.
    fn lengths(&self, scale: Scale, hot: &[usize], random: &mut ChaCha8Rng) -> Vec<u64> {
        if !self.is_of_blocks() {
            let of_octaves = (SHORT_BYTES_MAX as f64 / SHORT_BYTES_MIN as f64).log2();
            let mut length = || (SHORT_BYTES_MIN as f64 * random.random_range(0.0..of_octaves).exp2()) as u64 + 1;
            return (0..scale.files).map(|_| length()).collect();
        }
        let mut is_hot = vec![false; scale.files];
        hot.iter().for_each(|file| is_hot[*file] = true);
        // Three quarters of all lengths within a factor of five.
        let weights: Vec<f64> = (0..scale.files).map(|_| normal(random).exp()).collect();
        let sum = |hot| weights.iter().zip(&is_hot).filter(|(_, is)| **is == hot).map(|(weight, _)| weight).sum();
        let sums: [f64; 2] = [sum(false), sum(true)];
        let share = f64::from(self.hot_bytes) / 100.0;
        let length = |(weight, is_hot): (&f64, &bool)| {
            let (sum, share) = if *is_hot { (sums[1], share) } else { (sums[0], 1.0 - share) };
            let bytes = scale.data_bytes as f64 * share * weight / sum;
            (bytes / scale.unit_bytes as f64).round().max(1.0) as u64 * scale.unit_bytes
        };
        weights.iter().zip(&is_hot).map(length).collect()
    }
}

/// Recorded jobs: what a line has, and what of it counts.
#[derive(Debug)]
struct Job {
    submit_s: f64,
    input_bytes: u64,
    path: String,
}

/// Reads samples of jobs of Facebook's clusters: a file, or all of a directory. Files are there two days before the first
/// job, and what is shorter than a row of tiles, scaled, is left out.
///
/// # Errors
/// There is none, or a line has another form.
pub fn facebook(path: &Path, data_bytes: u64) -> anyhow::Result<Vec<Workload>> {
    let told = || {
        format!(
            "{}: no samples of Facebook's jobs (SWIM, FB-2009_samples_*.tsv.gz and FB-2010_samples_*.tsv.gz): name such a file, \
             or a directory of them, with --facebook; without it the made workloads run",
            path.display()
        )
    };
    let metadata = std::fs::metadata(path).with_context(told)?;
    let mut files: Vec<PathBuf> = if metadata.is_dir() {
        let entries: Vec<_> = std::fs::read_dir(path).with_context(told)?.collect::<Result<_, _>>()?;
        entries.into_iter().map(|entry| entry.path()).filter(|path| is_sample(path)).collect()
    } else {
        vec![path.to_owned()]
    };
    files.sort();
    if files.is_empty() {
        bail!(told());
    }
    files.iter().map(|file| sample(file, data_bytes)).collect()
}

fn is_sample(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    [".tsv", ".tsv.gz"].iter().any(|end| name.ends_with(end))
}

fn sample(path: &Path, data_bytes: u64) -> anyhow::Result<Workload> {
    let name = || path.display().to_string();
    let mut plain = BufReader::new(File::open(path).with_context(name)?);
    let is_compressed = plain.fill_buf().with_context(name)?.starts_with(&[0x1f, 0x8b]);
    let text: Box<dyn Read> = if is_compressed { Box::new(MultiGzDecoder::new(plain)) } else { Box::new(plain) };
    let mut jobs = Vec::new();
    for (number, line) in BufReader::new(text).lines().enumerate() {
        let line = line.with_context(name)?;
        if line.trim().is_empty() {
            continue;
        }
        let job = job(&line).with_context(|| format!("{}, line {}: {line:?}", path.display(), number + 1))?;
        jobs.push(job);
    }
    ensure!(!jobs.is_empty(), "{}: there is no job in it", path.display());
    let mut longest: BTreeMap<&str, u64> = BTreeMap::new();
    for job in &jobs {
        let known = longest.entry(&job.path).or_default();
        *known = (*known).max(job.input_bytes);
    }
    let all: u64 = longest.values().sum();
    ensure!(all > 0, "{}: no job has an input", path.display());
    let scale = (data_bytes as f64 / all as f64).min(1.0);
    let scaled = |bytes: u64| (bytes as f64 * scale) as u64;
    let mut files: Vec<u64> = Vec::new();
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    for (path, bytes) in &longest {
        if scaled(*bytes) >= SHORTEST_BYTES {
            known.insert(path, files.len());
            files.push(scaled(*bytes));
        }
    }
    let read = |job: &Job| Some((SETTLED_S + job.submit_s, *known.get(job.path.as_str())?));
    let mut reads: Vec<(f64, usize)> = jobs.iter().filter_map(read).collect();
    reads.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    let end_s = reads.last().map_or(SETTLED_S, |(at, _)| *at) + HOUR_S;
    let file_name = path.file_name().unwrap_or_default().to_string_lossy();
    let short = file_name.trim_end_matches(".gz").trim_end_matches(".tsv").to_lowercase();
    let short = short.replace("_samples_24_times_1hr", "").replace("_withinputpaths", "_paths");
    Ok(Workload { name: short, files, reads, measured_from_s: SETTLED_S, end_s })
}

/// One line: job, submit second, gap, map-input bytes, shuffle bytes, output bytes, and in some samples the input's path.
/// Where there are no paths each job's input is a file of its own.
fn job(line: &str) -> anyhow::Result<Job> {
    let fields: Vec<&str> = line.split('\t').collect();
    ensure!(fields.len() >= 6, "a job has six fields at least, separated by tabs: there are {}", fields.len());
    let submit_s = fields[1].trim().parse().context("the second when it was submitted")?;
    let input_bytes = fields[3].trim().parse().context("the bytes of its input")?;
    let path = fields.get(6).map(|path| path.trim()).filter(|path| !path.is_empty()).unwrap_or(fields[0]);
    Ok(Job { submit_s, input_bytes, path: path.to_owned() })
}

/// How many of something that happens `mean` times on average.
fn poisson(mean: f64, random: &mut ChaCha8Rng) -> u32 {
    let (limit, mut product, mut count) = ((-mean).exp(), random.random_range(0.0..1.0), 0);
    while product > limit && count < 10_000 {
        product *= random.random_range(0.0..1.0);
        count += 1;
    }
    count
}

/// One of a normal distribution of mean 0 and deviation 1.
fn normal(random: &mut ChaCha8Rng) -> f64 {
    let (one, other): (f64, f64) = (random.random_range(f64::MIN_POSITIVE..1.0), random.random_range(0.0..1.0));
    (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos()
}

/// Files are written in so long from the beginning, evenly.
pub const WRITTEN_S: f64 = 6.0 * HOUR_S;
/// When files were written, watched for a day and converted.
const SETTLED_S: f64 = 2.0 * DAY_S;
/// On average. Their thresholds are a fourth of a read and one read, half of which are forgotten in a day: a file that is
/// read 0.7 times a day stays at one.
const READS_OF_HOT_A_DAY: f64 = 4.0;
/// The n-th hottest file is read n to this power less often than the hottest.
const SKEW: f64 = 0.8;
/// So much of the hot files is cold the day after.
const COOL_A_DAY: f64 = 0.05;
const TRIES: usize = 16;
/// 60 blocks of 64 MiB: whole stripes of every code.
pub const UNIT_BYTES: u64 = 60 * (64 << 20);
/// Shorter ones share packs.
const SHORT_BYTES_MIN: u64 = 64 << 10;
const SHORT_BYTES_MAX: u64 = 8 << 20;
/// So many short files in the place of one.
const SHORT_FOR_ONE: usize = 8;
/// A row of twelve tiles.
const SHORTEST_BYTES: u64 = 12 * (64 << 10);
const HOUR_S: f64 = 3600.0;
const DAY_S: f64 = 24.0 * HOUR_S;

#[cfg(test)]
mod tests {
    use super::*;

    /// Test of: [hacfs §5.1], [hacfs §5.3]
    #[test]
    fn made_workloads_are_within_what_the_paper_says() {
        let scale = Scale { data_bytes: 64 << 40, files: 1000, days: 9, unit_bytes: UNIT_BYTES };
        for made in MADE {
            let (Workload { files, reads, .. }, hot) = made.make_with_hot(scale, 1);
            assert_eq!(hot.len(), files.len() * made.hot_files as usize / 100);
            let share = |of: u64, all: u64| 100.0 * of as f64 / all as f64;
            let bytes = share(hot.iter().map(|file| files[*file]).sum(), files.iter().sum());
            // Later others are hot.
            let first = || reads.iter().filter(|(at, _)| *at < DAY_S);
            let to_hot = first().filter(|(_, file)| hot.contains(file)).count() as u64;
            let to_hot = share(to_hot, first().count() as u64);
            let near = |share: f64, said: u32| (share - f64::from(said)).abs() < 3.0;
            assert!(near(bytes, made.hot_bytes), "{}: {bytes} % of bytes are hot", made.name);
            assert!(near(to_hot, made.hot_reads), "{}: {to_hot} % of reads", made.name);
            assert!(reads.is_sorted_by(|one, other| one.0 <= other.0));
            let of_blocks = files.iter().filter(|bytes| bytes.is_multiple_of(UNIT_BYTES)).count();
            assert_eq!(of_blocks, if made.is_of_blocks() { files.len() } else { 0 }, "{}", made.name);
        }
        let again = |seed| MADE[0].make(scale, seed).reads;
        assert!(again(1) == again(1) && again(1) != again(2));
    }

    #[test]
    fn a_sample_of_a_workload_has_the_reads_of_its_files() {
        let files = vec![10, 20, 30, 40, 100];
        let reads = vec![(1.0, 4), (2.0, 2), (3.0, 1), (4.0, 2), (5.0, 0)];
        let all = Workload { name: "w".to_owned(), files, reads, measured_from_s: 1.0, end_s: 9.0 };
        // The first and the third.
        let few = all.sampled(2, 400, 7);
        assert_eq!((few.files, few.reads), (vec![98, 301], vec![(2.0, 1), (4.0, 1), (5.0, 0)]));
        let short = all.sampled(9, 1, 7);
        assert_eq!((short.files, short.reads), (vec![7; 5], all.reads.clone()));
    }

    #[test]
    fn samples_are_read_with_and_without_paths() {
        let place = tempfile::tempdir().expect("a directory");
        let mib = 1 << 20;
        let line = |job: u32, second: u32, bytes: u64, path: &str| {
            format!(
                "job{job}\t{second}\t1\t{bytes}\t0\t5{}\n",
                if path.is_empty() { String::new() } else { format!("\t{path}\t") }
            )
        };
        let text = [line(0, 9, mib, "a"), line(1, 20, 3 * mib, "b"), line(2, 30, 2 * mib, "a"), line(3, 40, 10, "c")];
        std::fs::write(place.path().join("FB-1_samples_24_times_1hr_paths.tsv"), text.concat()).expect("written");
        let text = [line(0, 9, mib, ""), line(1, 20, mib, "")].concat();
        std::fs::write(place.path().join("FB-2.tsv"), text).expect("written");
        std::fs::write(place.path().join("LICENSE"), "text").expect("written");
        let both = facebook(place.path(), 1 << 40).expect("read");
        let names: Vec<&str> = both.iter().map(|workload| workload.name.as_str()).collect();
        assert_eq!(names, ["fb-1_paths", "fb-2"]);
        // `c` is too short.
        assert_eq!(both[0].files, [2 * mib, 3 * mib]);
        let at = |second: f64| SETTLED_S + second;
        assert_eq!(both[0].reads, [(at(9.0), 0), (at(20.0), 1), (at(30.0), 0)]);
        assert_eq!(both[1].reads, [(at(9.0), 0), (at(20.0), 1)]);
        // Scaled to a half.
        let half = facebook(&place.path().join("FB-2.tsv"), 2 * mib - 400_000).expect("read");
        assert!(half[0].files.iter().all(|bytes| *bytes < mib), "{:?}", half[0].files);
    }

    #[test]
    fn what_is_no_sample_is_told() {
        let place = tempfile::tempdir().expect("a directory");
        let told = |path: &Path| format!("{:#}", facebook(path, 1 << 40).expect_err("no sample"));
        assert!(told(&place.path().join("none")).contains("--facebook"));
        assert!(told(place.path()).contains("--facebook"));
        let file = place.path().join("a.tsv");
        std::fs::write(&file, "job0\t1\t1\tmany\t0\t0\n").expect("written");
        assert!(told(&file).contains("line 1"), "{}", told(&file));
        std::fs::write(&file, "job0 1 1\n").expect("written");
        assert!(told(&file).contains("six fields"), "{}", told(&file));
    }
}
