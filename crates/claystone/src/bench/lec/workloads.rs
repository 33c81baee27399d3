//! What local coding costs four workloads: a scan, random reads, a sort, updates.
//!
//! The ideal is a drive none of whose reads ever fails, under the same groups, and no time of the program. Beside it: the
//! same without any coding, which for updates means that nothing is read to make parity. The program's time, with the
//! coding in it, is added to the drive's, as if the drive stood still meanwhile.

use std::time::Duration;

use anyhow::ensure;
use claystone_env::{Random, SECTOR_BYTES, Sector};
use claystone_group::{BulkRun, Change, GroupChanges, GroupShape, Groups, UpdateChoice};
use claystone_sim::run;

use super::drive::{Drive, Took, check, content, contents};
use super::file::File;
use crate::rows::{Against, Figure};

/// A workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// A file read from its first sector to its last.
    Scan,
    /// Reads of 4 to 64 KiB anywhere in a file.
    RandomReads,
    /// A file read in pieces that are written as sorted runs, then the runs read in turns and written as one.
    Sort,
    /// 50 sectors changed at a time, anywhere in a file, and synced now and then.
    Updates,
}

/// All of them.
pub const WORKLOADS: [Workload; 4] = [Workload::Scan, Workload::RandomReads, Workload::Sort, Workload::Updates];

impl Workload {
    /// Its name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Scan => "scan",
            Workload::RandomReads => "random reads",
            Workload::Sort => "sort",
            Workload::Updates => "updates",
        }
    }
}

/// What a workload took.
#[derive(Debug, Clone, Copy)]
pub struct Costs {
    /// With coding, while reads fail.
    coded: Took,
    /// With coding, while none fails: the ideal.
    ideal: Took,
    /// Without coding, while reads fail and are retried.
    plain: Took,
    /// Without coding, while none fails.
    plain_ideal: Took,
}

/// Runs a workload with coding and without, with failures and without.
///
/// # Errors
/// The drive failed.
pub fn costs(workload: Workload, shape: GroupShape, soft: f64) -> anyhow::Result<Costs> {
    let plain = GroupShape { parity: 0, ..shape };
    Ok(Costs {
        coded: took(workload, shape, soft)?,
        ideal: took(workload, shape, 0.0)?,
        plain: took(workload, plain, soft)?,
        plain_ideal: took(workload, plain, 0.0)?,
    })
}

/// The figures of a workload, and how much slower than the ideal it is, in per cent.
pub fn figures(workload: Workload, shape: GroupShape, costs: &Costs) -> (Vec<Figure>, f64) {
    let seconds = |took: Took| (took.drive + took.software).as_secs_f64();
    let ideal = costs.ideal.drive.as_secs_f64();
    let slower = |time: f64, than: f64| 100.0 * (time / than - 1.0);
    let figure = |metric: &str, value, unit, against: Option<(&str, f64)>| Figure {
        bench: "lec",
        case: format!("{} rs:{}+{}", workload.name(), shape.data, shape.parity),
        metric: metric.to_owned(),
        value,
        unit,
        against: against.map(|(name, value)| Against { name: name.to_owned(), value }),
    };
    let slowdown = slower(seconds(costs.coded), ideal);
    let plain_ideal = costs.plain_ideal.drive.as_secs_f64();
    let figures = vec![
        figure("coded_s", seconds(costs.coded), "s", Some(("never fails", ideal))),
        figure("plain_s", costs.plain.drive.as_secs_f64(), "s", Some(("never fails, not coded", plain_ideal))),
        figure("slowdown_percent", slowdown, "%", None),
        figure("slowdown_beside_not_coded_percent", slower(seconds(costs.coded), plain_ideal), "%", None),
        figure("software_percent", 100.0 * costs.coded.software.as_secs_f64() / ideal, "%", None),
    ];
    (figures, slowdown)
}

/// Runs a workload on a new drive.
fn took(workload: Workload, shape: GroupShape, soft: f64) -> anyhow::Result<Took> {
    run(7 + workload as u64, |world| async move {
        let drive = Drive::new(&world, Duration::from_millis(RETRY_MS), shape);
        let groups = drive.groups();
        let file = File::write(&groups, Sector(1), FILE_SECTORS / shape.data * shape.data)?;
        drive.move_head(file.first)?;
        drive.fail_softly(soft);
        let random = world.random().fork("places");
        match workload {
            Workload::Scan => scan(&drive, &file),
            Workload::RandomReads => random_reads(&drive, &groups, &file, &*random),
            Workload::Sort => sort(&drive, &groups, &file),
            Workload::Updates => updates(&drive, &groups, &file, &*random, soft),
        }
    })
}

fn scan(drive: &Drive, file: &File) -> anyhow::Result<Took> {
    let mut buffer = vec![0; 8192 * SECTOR_BYTES];
    let mut all = Took::default();
    for _ in 0..SCANS {
        let groups = drive.groups();
        drive.move_head(file.first)?;
        file.stream(&groups, &mut buffer, |read| {
            all += drive.time(read)?;
            Ok(())
        })?;
    }
    Ok(all)
}

fn random_reads(drive: &Drive, groups: &Groups, file: &File, random: &dyn Random) -> anyhow::Result<Took> {
    let mut all = Took::default();
    for number in 0..RANDOM_READS {
        let sectors = 1 << (number % 5);
        let first = random.below(u64::from(file.bulk().data) - sectors + 1);
        let mut into = vec![0; sectors as usize * SECTOR_BYTES];
        all += drive.time(|| groups.read_bulk(file.bulk(), first..first + sectors, &|_| None, &mut into))?;
        check(first, &into);
    }
    Ok(all)
}

/// Sorted runs of four groups or one, by the length of groups; read in turns, a quarter of a run at a time.
fn sort(drive: &Drive, groups: &Groups, file: &File) -> anyhow::Result<Took> {
    let shape = groups.code().shape();
    let run_groups = if shape.data > 512 { 4 } else { 16 };
    let run_sectors = run_groups * shape.data;
    let run_total = BulkRun::sectors_total(run_groups, shape);
    let behind = file.first.0 + BulkRun::sectors_total(file.bulk().groups(shape), shape);
    let run_at = |base: u64, number: u64| BulkRun { first: Sector(base + number * run_total), data: run_sectors };
    let runs = u64::from(file.bulk().data / run_sectors);
    let mut into = vec![0; run_sectors as usize * SECTOR_BYTES];
    let mut all = Took::default();
    for number in 0..runs {
        let first = number * u64::from(run_sectors);
        let wanted = first..first + u64::from(run_sectors);
        all += drive.time(|| groups.read_bulk(file.bulk(), wanted, &|_| None, &mut into))?;
        check(first, &into);
        all += drive.time(|| groups.write_bulk(run_at(behind, number), &contents(first, run_sectors.into())))?;
    }
    all += drive.time(|| drive.device().sync())?;
    let merged = behind + runs * run_total;
    let quarter = u64::from(run_sectors) / 4;
    for number in 0..runs {
        for part in 0..4 {
            // Four runs take turns.
            let source = number / 4 * 4 + part;
            if source >= runs {
                continue;
            }
            let first = number % 4 * quarter;
            let into = &mut into[..quarter as usize * SECTOR_BYTES];
            let wanted = first..first + quarter;
            all += drive.time(|| groups.read_bulk(run_at(behind, source), wanted, &|_| None, into))?;
            check(source * u64::from(run_sectors) + first, into);
        }
        all += drive.time(|| groups.write_bulk(run_at(merged, number), &contents(number, run_sectors.into())))?;
    }
    all += drive.time(|| drive.device().sync())?;
    groups.read_bulk(run_at(merged, runs - 1), 0..run_sectors.into(), &|_| None, &mut into)?;
    check(runs - 1, &into);
    Ok(all)
}

fn updates(drive: &Drive, groups: &Groups, file: &File, random: &dyn Random, soft: f64) -> anyhow::Result<Took> {
    let (shape, bulk) = (groups.code().shape(), file.bulk());
    let mut all = Took::default();
    for number in 0..UPDATES {
        let group = random.below(bulk.groups(shape).into()) as u32;
        let position = random.below(u64::from(shape.data - UPDATED) + 1) as u32;
        let changes: Vec<Change<'_>> = (position..position + UPDATED)
            .map(|position| Change { position, bytes: content(u64::from(number) * 1000 + u64::from(position)) })
            .collect();
        let changes = [GroupChanges { group, changes }];
        all += drive.time(|| -> anyhow::Result<()> {
            let update = groups.prepare_bulk_update(bulk, &changes, UpdateChoice::Cheapest)?;
            ensure!(update.lost.is_empty(), "no group can be lost");
            groups.write_bulk_update(&update)?;
            if number % 50 == 49 {
                drive.device().sync()?;
            }
            Ok(())
        })?;
        if number % 50 == 49 {
            // Not part of the work: the update is read back.
            drive.fail_softly(0.0);
            let first = u64::from(group) * u64::from(shape.data) + u64::from(position);
            let mut into = vec![0; UPDATED as usize * SECTOR_BYTES];
            groups.read_bulk(bulk, first..first + u64::from(UPDATED), &|_| None, &mut into)?;
            check(u64::from(number) * 1000 + u64::from(position), &into);
            drive.fail_softly(soft);
        }
    }
    Ok(all)
}

/// How long the drive retries.
pub const RETRY_MS: u64 = 20;
const FILE_SECTORS: u32 = 40_000;
const SCANS: usize = 3;
const RANDOM_READS: u32 = 3000;
const UPDATES: u32 = 400;
const UPDATED: u32 = 50;
