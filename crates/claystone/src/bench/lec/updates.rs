//! Ways to new parity: encoding each updated group again (A), adding the change (B), and the one that reads less, chosen
//! for each update. Every group of a file has some consecutive sectors changed at a random place, with nothing in memory
//! but the sums.

use std::time::Duration;

use claystone_env::Sector;
use claystone_group::{Change, GroupShape, NOTHING_CACHED, UpdateChoice, UpdateWay};
use claystone_sim::run;

use super::drive::{Drive, Took, check, content};
use super::file::File;
use crate::rows::{Against, Figure};

/// Groups of the file.
const GROUPS: u32 = 200;
/// Data and parity sectors of a group.
pub const SHAPE: GroupShape = GroupShape { data: 250, parity: 5 };
/// Consecutive sectors that change in each group.
pub const LENGTHS: [u32; 2] = [50, 200];

/// What updates of all groups took: sectors read, and time.
#[derive(Debug, Clone, Copy)]
pub struct Costs {
    sectors_read: u64,
    took: Took,
}

/// The costs of the ways A, B and of the choice.
///
/// # Errors
/// The drive failed.
pub fn costs(length: u32) -> anyhow::Result<[Costs; 3]> {
    let only = |way| took(length, UpdateChoice::Only(way));
    Ok([only(UpdateWay::Reencode)?, only(UpdateWay::Delta)?, took(length, UpdateChoice::Cheapest)?])
}

/// The figures of a length.
pub fn figures(length: u32, costs: &[Costs; 3]) -> Vec<Figure> {
    let groups = f64::from(GROUPS);
    let read = |costs: &Costs| costs.sectors_read as f64 / groups;
    let millis = |costs: &Costs| (costs.took.drive + costs.took.software).as_secs_f64() * 1e3 / groups;
    let better = |of: &dyn Fn(&Costs) -> f64| of(&costs[0]).min(of(&costs[1]));
    let theory = |reads: u32| ("theory", f64::from(reads));
    let chosen = [("the better way", better(&read)), ("the better way", better(&millis))];
    let against =
        [[Some(theory(SHAPE.data - length)), None], [Some(theory(length + SHAPE.parity)), None], chosen.map(Some)];
    let mut figures = Vec::new();
    for ((name, costs), [of_read, of_millis]) in CASES.into_iter().zip(costs).zip(against) {
        let figure = |metric: &str, value, unit, against: Option<(&str, f64)>| Figure {
            bench: "lec",
            case: format!("update {length} of {}+{} {name}", SHAPE.data, SHAPE.parity),
            metric: metric.to_owned(),
            value,
            unit,
            against: against.map(|(name, value)| Against { name: name.to_owned(), value }),
        };
        figures.push(figure("sectors_read", read(costs), "sectors", of_read));
        figures.push(figure("update_ms", millis(costs), "ms", of_millis));
    }
    figures
}

const CASES: [&str; 3] = ["encoded again", "change added", "chosen"];

fn took(length: u32, choice: UpdateChoice) -> anyhow::Result<Costs> {
    run(11, |world| async move {
        let drive = Drive::new(&world, Duration::from_millis(20), SHAPE);
        let file = File::write(&drive.groups(), Sector(1), GROUPS * SHAPE.data)?;
        let (bulk, groups) = (file.bulk(), drive.groups());
        for number in 0..bulk.sums_sectors() {
            groups.sums_sector(bulk, number)?;
        }
        drive.move_head(file.first)?;
        let random = world.random().fork("places");
        let before = groups.statistics().now().sectors_read;
        let mut all = Took::default();
        let mut changed = Vec::new();
        for group in 0..GROUPS {
            let position = random.below(u64::from(SHAPE.data - length) + 1) as u32;
            let new = u64::from(GROUPS * SHAPE.data + group * 1000);
            changed.push((u64::from(group * SHAPE.data + position), new));
            let changes: Vec<Change<'_>> = (position..position + length)
                .zip(new..)
                .map(|(position, number)| Change { position, bytes: content(number) })
                .collect();
            all += drive.time(|| -> anyhow::Result<()> {
                let prepared = groups.prepare_bulk_update(bulk, group, &changes, NOTHING_CACHED, choice)?;
                prepared.update.write(drive.device())?;
                prepared.sums.iter().try_for_each(|(place, sums)| groups.write_sums(*place, sums))?;
                Ok(())
            })?;
        }
        all += drive.time(|| drive.device().sync())?;
        let sectors_read = groups.statistics().now().sectors_read - before;
        // Data, parity and sums fit each other, and what was written is there.
        let fresh = drive.groups();
        for group in 0..GROUPS {
            assert!(fresh.scrub_bulk(bulk, group)?.is_clean(), "group {group} after its update");
        }
        for (first, new) in changed {
            let mut into = vec![0; length as usize * 4096];
            fresh.read_bulk(bulk, first..first + u64::from(length), &|_| None, &mut into)?;
            check(new, &into);
        }
        Ok(Costs { sectors_read, took: all })
    })
}
