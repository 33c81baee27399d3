//! Local erasure coding in figures: how much parity groups need, what long reads take, what files cost.

use claystone_model::{
    GroupShape, ReadTimes, SizeMix, SizeRange, Trials, coded_read, copies, loss_chance, mix_overhead, parity_of_data,
    parity_of_group, plain_read, tree_overhead, try_loss, try_mix, try_reads,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use crate::chart::{Bars, Lines, Picture};
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
    /// The same by trial, where there were trials.
    tried_loss_chance: Option<f64>,
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
    /// The chance of losing a sector of a group, by trial, where there were trials;
    tried_loss_chance: Option<f64>,
    /// and with one parity sector less, which is too much.
    tried_loss_chance_with_one_less: Option<f64>,
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

/// What files of many sizes cost beyond their data: of a mix its parity, of a directory all that a disk keeps.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Files {
    table: &'static str,
    files: String,
    code: String,
    #[serde(skip)]
    group_sectors: u32,
    overhead_percent: f64,
    /// The same by trial, where there were trials.
    tried_overhead_percent: Option<f64>,
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
    /// Computes them; all but a directory's are also tried `trials` times, if that is above 0.
    pub fn of(trials: usize, tree: Option<&Tree>) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(SEED);
        let of = LENGTHS.iter().flat_map(|sectors| SOFT.map(|soft| (*sectors, soft)));
        let groups: Vec<Group> = of.map(|(sectors, soft)| group(sectors, soft, trials, &mut random)).collect();
        let of = SOFT.iter().flat_map(|soft| DATA_SECTORS.map(|data| (data, *soft)));
        let lengths = of.map(|(data, soft)| length(data, soft, trials, &mut random)).collect();
        let mut tails = Vec::new();
        for file_sectors in FILE_SECTORS {
            for (group, retry_s) in groups.iter().flat_map(|group| RETRY_S.map(|retry_s| (group, retry_s))) {
                tails.push(tail(file_sectors, group, retry_s, trials, &mut random));
            }
        }
        let mut files = Vec::new();
        for group in groups.iter().filter(|group| group.soft_failure == SOFT[2]) {
            let row = |files: String, overhead: f64, tried: Option<f64>| Files {
                table: "files",
                files,
                code: group.code.clone(),
                group_sectors: group.sectors,
                overhead_percent: 100.0 * overhead,
                tried_overhead_percent: tried.map(|tried| 100.0 * tried),
            };
            for mix in mixes() {
                let tried = (trials > 0).then(|| try_mix(&mix, group.shape, trials, &mut random));
                files.push(row(mix.name.to_owned(), mix_overhead(&mix, group.shape), tried));
            }
            files.extend(tree.map(|tree| {
                row(tree.name.clone(), tree_overhead(&tree.file_bytes, group.shape, group.metadata_copies), None)
            }));
        }
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
            "tried",
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
                row.tried_loss_chance.map_or("-".to_owned(), |chance| format!("{chance:.2e}")),
                format!("{:.2e}", row.loss_chance_with_one_less),
                format!("{} copies", row.metadata_copies),
            ]);
        }
        let mut lengths = Table::new(&["data sectors", "0.0001", "0.0005", "0.001", "0.005", "tried"]);
        for data in DATA_SECTORS {
            let of = |soft: f64| {
                let mut rows = self.lengths.iter();
                let row = rows.find(|row| row.data_sectors == data && row.soft_failure == soft);
                row.map_or(String::new(), |row| format!("{:.2} %", row.overhead_percent))
            };
            let [a, b, c, d] = SOFT.map(of);
            // How near to the bound the nearest is, with the least parity and with one less, which is beyond.
            let of_data = || self.lengths.iter().filter(|row| row.data_sectors == data);
            let most = of_data().filter_map(|row| row.tried_loss_chance).reduce(f64::max);
            let least = of_data().filter_map(|row| row.tried_loss_chance_with_one_less).reduce(f64::min);
            let tried = most.zip(least).map_or("-".to_owned(), |(most, least)| format!("{most:.1e} to {least:.1e}"));
            lengths.row([data.to_string(), a, b, c, d, tried]);
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
        let mut files = Table::new(&["files", "code", "overhead", "tried"]);
        for row in &self.files {
            files.row([
                row.files.clone(),
                row.code.clone(),
                format!("{:.2} %", row.overhead_percent),
                row.tried_overhead_percent.map_or("-".to_owned(), |percent| format!("{percent:.2} %")),
            ]);
        }
        vec![
            ("Least parity by length of group: a sector lost once in a million groups at most", groups),
            ("Overhead by data sectors and soft failures: once in a hundred million", lengths),
            ("The slowest hundredth of long reads", tails),
            ("Overhead by files, one soft failure in a thousand; of a directory without names", files),
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
        let gains = Lines {
            title: "How much local coding lowers the slowest hundredth of reads, groups of 255 sectors",
            x: "sectors read",
            y: "lower by, per cent",
            lines: cases.map(per_case).collect(),
        };
        let mut plots = vec![("lec-overhead".to_owned(), lengths.draw()?), ("lec-gains".to_owned(), gains.draw()?)];
        for soft in SOFT {
            plots.push((format!("lec-tails-{soft}"), self.tails_plot(soft)?));
        }
        plots.push(("lec-files".to_owned(), self.files_plot()?));
        let mut files = Vec::new();
        for (name, svg) in plots {
            for picture in Picture::ALL {
                files.push((format!("{name}.{}", picture.extension()), picture.encode(svg.clone())?));
            }
        }
        Ok(files)
    }

    /// The slowest hundredth of reads by their length: without local coding, and with it for both lengths of group.
    // Source: [lec §3.2]
    fn tails_plot(&self, soft: f64) -> anyhow::Result<String> {
        let mut lines = Vec::new();
        for retry_ms in RETRY_S.map(|retry_s| retry_s * 1e3) {
            let rows = || self.tails.iter().filter(move |row| row.soft_failure == soft && row.retry_ms == retry_ms);
            let short = rows().filter(|row| self.is_short(&row.code, soft));
            let points = short.map(|row| (row.file_sectors as f64, row.plain_p99_s)).collect();
            lines.push((format!("uncoded, retry {retry_ms} ms"), points));
            for group in self.groups.iter().filter(|group| group.soft_failure == soft) {
                let coded = rows().filter(|row| row.code == group.code);
                let points = coded.map(|row| (row.file_sectors as f64, row.coded_p99_s)).collect();
                lines.push((format!("{}, retry {retry_ms} ms", group.code), points));
            }
        }
        let title = format!("The slowest hundredth of reads, {soft} soft failures");
        Lines { title: &title, x: "sectors read", y: "seconds", lines }.draw()
    }

    /// Overhead by files, one soft failure in a thousand.
    // Source: [lec §4]
    fn files_plot(&self) -> anyhow::Result<String> {
        let mut names: Vec<String> = Vec::new();
        let mut groups: Vec<(String, Vec<f64>)> = Vec::new();
        for row in &self.files {
            let name = format!("{}, groups of {} sectors", row.code, row.group_sectors);
            if !names.contains(&name) {
                names.push(name);
            }
            match groups.iter_mut().find(|(files, _)| *files == row.files) {
                Some((_, heights)) => heights.push(row.overhead_percent),
                None => groups.push((row.files.clone(), vec![row.overhead_percent])),
            }
        }
        Bars { title: "Overhead by files, 0.001 soft failures", y: "overhead, per cent", names, groups }.draw()
    }

    /// Whether a code is that of the short groups.
    fn is_short(&self, code: &str, soft: f64) -> bool {
        self.groups.iter().any(|row| row.code == code && row.soft_failure == soft && row.sectors == LENGTHS[0])
    }
}

// Source: [lec §3.1]
fn group(sectors: u32, soft_failure: f64, trials: usize, random: &mut ChaCha8Rng) -> Group {
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
        tried_loss_chance: (trials > 0).then(|| try_loss(sectors, parity, soft_failure, trials, random)),
        loss_chance_with_one_less: loss_chance(sectors, parity.saturating_sub(1), soft_failure),
        metadata_copies: copies(soft_failure, LOSS_BOUND),
    }
}

// Source: [lec §3.1]
fn length(data_sectors: u32, soft_failure: f64, trials: usize, random: &mut ChaCha8Rng) -> Length {
    let parity_sectors = parity_of_data(data_sectors, soft_failure, STRICT_LOSS_BOUND);
    let mut tried =
        |parity: u32| (trials > 0).then(|| try_loss(data_sectors + parity, parity, soft_failure, trials, random));
    Length {
        table: "lengths",
        soft_failure,
        data_sectors,
        parity_sectors,
        overhead_percent: 100.0 * f64::from(parity_sectors) / f64::from(data_sectors),
        tried_loss_chance: tried(parity_sectors),
        tried_loss_chance_with_one_less: tried(parity_sectors.saturating_sub(1)),
    }
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
    use std::sync::Arc;

    use claystone_env::testing::MemoryDevice;
    use claystone_env::{Device, SECTOR_BYTES};
    use claystone_files::{Disk, FileTree, Format, Inode, Kind, NewNode, Tuning};
    use claystone_host::{HostClock, HostRandom};
    use claystone_model::{GroupShape, file_sectors};

    use super::{Figures, Tree};

    #[test]
    fn the_published_figures_are_in_the_tables() {
        let tree = Tree { name: "a tree".to_owned(), file_bytes: vec![4096 * 250, 1] };
        let figures = Figures::of(200, Some(&tree));
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
        // Parity, two copies of 250 checksums, and of the byte in the catalog, with its record: 36 of them fit into a page.
        let kept = 5.0 * 4096.0 + 2.0 * 4.0 * 250.0 + (2.0 * 4096.0 / 36.0 - 1.0);
        assert!((of_tree.overhead_percent - 100.0 * kept / (250.0 * 4096.0 + 1.0)).abs() < 1e-9);
        // Test of: [lec §3.1]: by trial it is the same, as far as 200 trials tell.
        for row in &figures.groups {
            let ratio = row.tried_loss_chance.expect("tried") / row.loss_chance;
            assert!((0.5..2.0).contains(&ratio), "{}: {ratio}", row.code);
        }
        for row in &figures.lengths {
            let (least, less) = (row.tried_loss_chance, row.tried_loss_chance_with_one_less);
            assert!(least.expect("tried") < 2e-8 && less.expect("tried") > 5e-9, "{row:?}");
        }
        for row in figures.files.iter().filter(|row| row.files != "a tree") {
            let ratio = row.tried_overhead_percent.expect("tried") / row.overhead_percent;
            assert!((0.5..2.0).contains(&ratio), "{row:?}");
        }
        // Test of: [lec §4]: more than 12 per cent of many middling files, less than 2 of large ones.
        let of_mix = |files: &str| {
            let is_it = |row: &&super::Files| row.files == files && row.code == "rs:1014+9";
            figures.files.iter().find(is_it).expect("a row").overhead_percent
        };
        assert!(of_mix("like pagerank") > 12.0 && of_mix("like hivebench") < 2.0);
        assert_eq!(figures.for_people().len(), 4);
        let plots = figures.plots().expect("drawn");
        let names: Vec<&str> =
            plots.iter().map(|(name, _)| name.as_str()).filter(|name| name.ends_with("svg")).collect();
        let tails = ["lec-tails-0.0001.svg", "lec-tails-0.0005.svg", "lec-tails-0.001.svg", "lec-tails-0.005.svg"];
        assert_eq!(names, [&["lec-overhead.svg", "lec-gains.svg"][..], &tails, &["lec-files.svg"]].concat());
        let svg = |wanted: &str| {
            let (_, bytes) = plots.iter().find(|(name, _)| name == wanted).expect("plotted");
            String::from_utf8_lossy(bytes).into_owned()
        };
        for text in ["uncoded, retry 20 ms", "rs:250+5, retry 40 ms", "rs:1014+9, retry 20 ms"] {
            assert!(svg("lec-tails-0.001.svg").contains(text), "{text}");
        }
        for text in ["like pagerank", "like hivebench", "a tree", "rs:250+5", "rs:1014+9"] {
            assert!(svg("lec-files.svg").contains(text), "{text}");
        }
        for (name, bytes) in plots {
            let text = String::from_utf8_lossy(&bytes);
            let is_svg = text.starts_with("<svg") && text.contains("soft failures");
            assert!(if name.ends_with(".svg") { is_svg } else { bytes.starts_with(b"\x89PNG") }, "{name}");
        }
    }

    #[test]
    fn a_disk_keeps_of_a_file_what_the_model_says() {
        let shape = GroupShape { data: 50, parity: 3 };
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 14));
        let (clock, random) = (HostClock::start(), HostRandom::from_system().expect("the system's"));
        let (soft_failures, loss_target, label) = (1e-3, 1e-6, String::new());
        let format = Format { data: 50, parity: 3, copies: 2, soft_failures, loss_target, label };
        Disk::format(&device, &format, &clock, &random).expect("formatted");
        let disk = Disk::open(device, Arc::new(clock), Tuning::default()).expect("opened");
        let sector = SECTOR_BYTES as u64;
        for bytes in [0, 1, 2048, 2049, sector, 50 * sector, 51 * sector, 199 * sector, 200 * sector, 1300 * sector + 7]
        {
            let before = disk.check().expect("checked").file_sectors;
            let (kind, target) = (Kind::File, Vec::new());
            let node = NewNode { kind, permissions: 0o600, owner: 0, owner_group: 0, device: 0, target };
            let made = disk.make(Inode::ROOT, bytes.to_string().as_bytes(), &node).expect("made");
            disk.write(made.inode, 0, &vec![7; bytes as usize]).expect("written");
            disk.sync_all().expect("synced");
            let kept = disk.check().expect("checked").file_sectors - before;
            assert_eq!(kept, file_sectors(bytes, shape), "{bytes} bytes");
        }
    }
}
