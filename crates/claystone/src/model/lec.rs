//! Local erasure coding in figures: how much parity groups need, what long reads take, what files cost.

use claystone_model::{
    GroupShape, ReadTimes, SizeMix, SizeRange, Trials, coded_read, copies, loss_chance, mix_overhead, parity_of_data,
    parity_of_group, plain_read, tree_overhead, try_reads,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use crate::chart::{Lines, Picture};
use crate::table::Table;

/// A code that suffices for a length of group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    table: &'static str,
    /// Chance that a sector's read fails softly.
    soft_failure: f64,
    /// Data and parity sectors.
    sectors: u32,
    code: String,
    #[serde(skip)]
    shape: GroupShape,
    overhead_percent: f64,
    loss_chance: f64,
    loss_chance_with_one_less: f64,
    metadata_copies: u32,
}

/// Parity for a length of data.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Length {
    table: &'static str,
    soft_failure: f64,
    data_sectors: u32,
    parity_sectors: u32,
    overhead_percent: f64,
}

/// The slowest one in a hundred of long reads.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tail {
    table: &'static str,
    file_sectors: u64,
    soft_failure: f64,
    retry_ms: f64,
    code: String,
    plain_p99_s: f64,
    coded_p99_s: f64,
    lower_percent: f64,
    /// The same by trial, where there were trials.
    tried_lower_percent: Option<f64>,
}

/// What parity costs over files of many sizes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Files {
    table: &'static str,
    files: String,
    code: String,
    overhead_percent: f64,
}

/// All figures.
#[derive(Debug)]
pub struct Figures {
    /// Least codes by length of group.
    pub groups: Vec<Group>,
    /// Least parity by length of data.
    pub lengths: Vec<Length>,
    /// Long reads.
    pub tails: Vec<Tail>,
    /// Overhead by files.
    pub files: Vec<Files>,
}

/// A directory's files, by the bytes of each.
#[derive(Debug)]
pub struct Tree {
    /// What to call it.
    pub name: String,
    /// Bytes of each file.
    pub file_bytes: Vec<u64>,
}

impl Figures {
    /// Computes them; reads are also tried `trials` times, if that is above 0.
    pub fn of(trials: usize, tree: Option<&Tree>) -> Self {
        let groups: Vec<Group> = LENGTHS.iter().flat_map(|sectors| SOFT.map(|soft| group(*sectors, soft))).collect();
        let lengths = SOFT.iter().flat_map(|soft| DATA_SECTORS.map(|data| length(data, *soft))).collect();
        let mut random = ChaCha8Rng::seed_from_u64(SEED);
        let mut tails = Vec::new();
        for file_sectors in FILE_SECTORS {
            for (group, retry_s) in groups.iter().flat_map(|group| RETRY_S.map(|retry_s| (group, retry_s))) {
                tails.push(tail(file_sectors, group, retry_s, trials, &mut random));
            }
        }
        let files = groups.iter().filter(|group| group.soft_failure == SOFT[2]).flat_map(|group| {
            let row = |files: String, overhead: f64| Files {
                table: "files",
                files,
                code: group.code.clone(),
                overhead_percent: 100.0 * overhead,
            };
            let mixes = mixes().into_iter().map(move |mix| row(mix.name.to_owned(), mix_overhead(&mix, group.shape)));
            mixes.chain(tree.map(|tree| row(tree.name.clone(), tree_overhead(&tree.file_bytes, group.shape))))
        });
        let files = files.collect();
        Self { groups, lengths, tails, files }
    }

    /// The tables, each under its heading.
    pub fn for_people(&self) -> Vec<(&'static str, Table)> {
        let mut groups = Table::new(&[
            "soft failures",
            "sectors",
            "code",
            "overhead",
            "loses a sector",
            "with one less",
            "metadata",
        ]);
        for row in &self.groups {
            groups.row([
                row.soft_failure.to_string(),
                row.sectors.to_string(),
                row.code.clone(),
                format!("{:.2} %", row.overhead_percent),
                format!("{:.2e}", row.loss_chance),
                format!("{:.2e}", row.loss_chance_with_one_less),
                format!("{} copies", row.metadata_copies),
            ]);
        }
        let mut lengths = Table::new(&["data sectors", "0.0001", "0.0005", "0.001", "0.005"]);
        for data in DATA_SECTORS {
            let of = |soft: f64| {
                let mut rows = self.lengths.iter();
                let row = rows.find(|row| row.data_sectors == data && row.soft_failure == soft);
                row.map_or(String::new(), |row| format!("{:.2} %", row.overhead_percent))
            };
            let [a, b, c, d] = SOFT.map(of);
            lengths.row([data.to_string(), a, b, c, d]);
        }
        let mut tails = Table::new(&[
            "sectors read",
            "soft failures",
            "retry",
            "code",
            "p99 plain",
            "p99 coded",
            "lower by",
            "tried",
        ]);
        for row in &self.tails {
            tails.row([
                row.file_sectors.to_string(),
                row.soft_failure.to_string(),
                format!("{} ms", row.retry_ms),
                row.code.clone(),
                format!("{:.3} s", row.plain_p99_s),
                format!("{:.3} s", row.coded_p99_s),
                format!("{:.1} %", row.lower_percent),
                row.tried_lower_percent.map_or("-".to_owned(), |percent| format!("{percent:.1} %")),
            ]);
        }
        let mut files = Table::new(&["files", "code", "overhead"]);
        for row in &self.files {
            files.row([row.files.clone(), row.code.clone(), format!("{:.2} %", row.overhead_percent)]);
        }
        vec![
            ("Least parity by length of group: a sector lost once in a million groups at most", groups),
            ("Overhead by data sectors and soft failures: once in a hundred million", lengths),
            ("The slowest hundredth of long reads", tails),
            ("Overhead by files, one soft failure in a thousand", files),
        ]
    }

    /// File names and plots, each in all forms.
    ///
    /// # Errors
    /// A plot cannot be drawn.
    pub fn plots(&self) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
        let per_soft = |soft: f64| {
            let rows = self.lengths.iter().filter(|row| row.soft_failure == soft);
            let points = rows.map(|row| (f64::from(row.data_sectors), row.overhead_percent)).collect();
            (format!("{soft} soft failures"), points)
        };
        let lengths = Lines {
            title: "Parity for groups that lose a sector once in 10^8",
            x: "data sectors of a group",
            y: "overhead, per cent",
            lines: SOFT.map(per_soft).into(),
        };
        let per_case = |(soft, retry_s): (f64, f64)| {
            let is_case = |row: &&Tail| {
                row.soft_failure == soft && row.retry_ms == retry_s * 1e3 && self.is_short(&row.code, soft)
            };
            let points = self.tails.iter().filter(is_case);
            let points = points.map(|row| (row.file_sectors as f64, row.lower_percent)).collect();
            (format!("{soft} soft failures, retry {} ms", retry_s * 1e3), points)
        };
        let cases = SOFT.iter().flat_map(|soft| RETRY_S.map(|retry_s| (*soft, retry_s)));
        let tails = Lines {
            title: "How much local coding lowers the slowest hundredth of reads, groups of 255 sectors",
            x: "sectors read",
            y: "lower by, per cent",
            lines: cases.map(per_case).collect(),
        };
        let mut files = Vec::new();
        for (name, plot) in [("lec-overhead", lengths), ("lec-tails", tails)] {
            let svg = plot.draw()?;
            for picture in Picture::ALL {
                files.push((format!("{name}.{}", picture.extension()), picture.encode(svg.clone())?));
            }
        }
        Ok(files)
    }

    /// Whether a code is that of the short groups.
    fn is_short(&self, code: &str, soft: f64) -> bool {
        self.groups.iter().any(|row| row.code == code && row.soft_failure == soft && row.sectors == LENGTHS[0])
    }
}

// Source: [lec §3.1]
fn group(sectors: u32, soft_failure: f64) -> Group {
    let parity = parity_of_group(sectors, soft_failure, LOSS_BOUND).expect("groups of hundreds of sectors suffice");
    let shape = GroupShape { data: sectors - parity, parity };
    Group {
        table: "groups",
        soft_failure,
        sectors,
        code: format!("rs:{}+{parity}", shape.data),
        shape,
        overhead_percent: 100.0 * f64::from(parity) / f64::from(shape.data),
        loss_chance: loss_chance(sectors, parity, soft_failure),
        loss_chance_with_one_less: loss_chance(sectors, parity.saturating_sub(1), soft_failure),
        metadata_copies: copies(soft_failure, LOSS_BOUND),
    }
}

fn length(data_sectors: u32, soft_failure: f64) -> Length {
    let parity_sectors = parity_of_data(data_sectors, soft_failure, STRICT_LOSS_BOUND);
    let overhead_percent = 100.0 * f64::from(parity_sectors) / f64::from(data_sectors);
    Length { table: "lengths", soft_failure, data_sectors, parity_sectors, overhead_percent }
}

// Source: [lec §3.2]
fn tail(file_sectors: u64, group: &Group, retry_s: f64, trials: usize, random: &mut ChaCha8Rng) -> Tail {
    let (soft, shape) = (group.soft_failure, group.shape);
    // Decoders of GF(2^8) up to 256 sectors, of GF(2^16) above.
    let decode_bytes_per_s = if group.sectors <= 256 { 4e9 } else { 2e9 };
    let times = ReadTimes { sector_s: SECTOR_S, retry_s, decode_bytes_per_s };
    let lower = |plain: f64, coded: f64| 100.0 * (1.0 - coded / plain);
    let (plain, coded) = (plain_read(file_sectors, soft, times), coded_read(file_sectors, shape, soft, times));
    let (plain_p99_s, coded_p99_s) = (plain.quantile(P99), coded.quantile(P99));
    let tried_lower_percent = (trials > 0).then(|| {
        let tried = try_reads(file_sectors, shape, soft, times, trials, random);
        lower(Trials::quantile(&tried.plain_s, P99), Trials::quantile(&tried.coded_s, P99))
    });
    Tail {
        table: "tails",
        file_sectors,
        soft_failure: soft,
        retry_ms: retry_s * 1e3,
        code: group.code.clone(),
        plain_p99_s,
        coded_p99_s,
        lower_percent: lower(plain_p99_s, coded_p99_s),
        tried_lower_percent,
    }
}

/// Made to what the paper says of two of its data sets; the sets themselves were never published.
// Source: [lec §4]
fn mixes() -> [SizeMix; 2] {
    let range = |share, least_bytes, most_bytes| SizeRange { share, least_bytes, most_bytes };
    [
        SizeMix {
            name: "like pagerank",
            ranges: vec![range(0.014, 1e3, 1e4), range(0.034, 1e4, 1e5), range(0.952, 1e5, 1e6)],
        },
        SizeMix { name: "like hivebench", ranges: vec![range(0.008, 1e6, 1e8), range(0.992, 1e8, 1e9)] },
    ]
}

/// A sector of a group is lost once in so many groups at most.
const LOSS_BOUND: f64 = 1e-6;
const STRICT_LOSS_BOUND: f64 = 1e-8;
const LENGTHS: [u32; 2] = [255, 1023];
const SOFT: [f64; 4] = [1e-4, 5e-4, 1e-3, 5e-3];
const DATA_SECTORS: [u32; 8] = [16, 32, 64, 128, 256, 512, 1024, 2048];
const FILE_SECTORS: [u64; 4] = [10_000, 50_000, 100_000, 150_000];
const RETRY_S: [f64; 2] = [0.020, 0.040];
/// Transfer of a sector of 4 KiB.
const SECTOR_S: f64 = 33e-6;
const P99: f64 = 0.99;
/// Trials are the same each time.
const SEED: u64 = 1;

#[cfg(test)]
mod tests {
    use super::{Figures, Tree};

    #[test]
    fn the_published_figures_are_in_the_tables() {
        let tree = Tree { name: "a tree".to_owned(), file_bytes: vec![4096 * 250, 1] };
        let figures = Figures::of(0, Some(&tree));
        let codes: Vec<&str> = figures.groups.iter().map(|row| row.code.as_str()).collect();
        let short = ["rs:252+3", "rs:251+4", "rs:250+5", "rs:246+9"];
        let long = ["rs:1019+4", "rs:1016+7", "rs:1014+9", "rs:1004+19"];
        assert_eq!(codes, [short, long].concat());
        let lower = |sectors, soft, retry_ms: f64, code: &str| {
            let is_it = |row: &&super::Tail| {
                (row.file_sectors, row.soft_failure, row.code.as_str()) == (sectors, soft, code)
                    && (row.retry_ms - retry_ms).abs() < 1e-9
            };
            figures.tails.iter().find(is_it).expect("a row").lower_percent
        };
        assert!((lower(10_000, 1e-3, 20.0, "rs:250+5") - 51.2).abs() < 0.1);
        assert!((lower(10_000, 5e-3, 40.0, "rs:246+9") - 88.6).abs() < 0.1);
        let of_tree = figures.files.iter().find(|row| row.files == "a tree").expect("a row");
        assert!((of_tree.overhead_percent - 100.0 * 10.0 / 251.0).abs() < 1e-9);
        // Test of: [lec §4]: more than 12 per cent of many middling files, less than 2 of large ones.
        let of_mix = |files: &str| {
            let is_it = |row: &&super::Files| row.files == files && row.code == "rs:1014+9";
            figures.files.iter().find(is_it).expect("a row").overhead_percent
        };
        assert!(of_mix("like pagerank") > 12.0 && of_mix("like hivebench") < 2.0);
        assert_eq!(figures.for_people().len(), 4);
        let plots = figures.plots().expect("drawn");
        assert_eq!(plots.len(), 4);
        for (name, bytes) in plots {
            let text = String::from_utf8_lossy(&bytes);
            let is_svg = text.starts_with("<svg") && text.contains("soft failures");
            assert!(if name.ends_with(".svg") { is_svg } else { bytes.starts_with(b"\x89PNG") }, "{name}");
        }
    }
}
