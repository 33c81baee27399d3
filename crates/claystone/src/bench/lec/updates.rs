//! Ways to new parity: encoding each updated group again (A), adding the change (B), and the one that reads less, chosen
//! for each update. Every group of a file has some consecutive sectors changed at a random place, with nothing in memory
//! but the sums.
//!
//! What was in memory matters: `same_again_` is the choice where the same sectors of the group were updated just before, `elsewhere_again_` where
//! others were, at a random place, and `read_before_` where a stream has just passed the group.
//!
//! `sectors_read` and `update_ms` are of groups that read what an update needs and no more, as theory counts. Beside them,
//! `bridged_`, are those of groups as disks have them, which read on over small gaps rather than call the device again.

use std::time::Duration;

use anyhow::ensure;
use claystone_env::Sector;
use claystone_group::{Change, GroupChanges, GroupShape, UpdateChoice, UpdateWay};
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

/// What updates of all groups took: sectors read, those of them that were not needed, and time.
#[derive(Debug, Clone, Copy)]
pub struct Costs {
    sectors_read: u64,
    on_the_way: u64,
    took: Took,
}

/// Of the ways A, B and of the choice.
#[derive(Debug, Clone, Copy)]
pub struct Ways {
    /// What is needed is read, and no more.
    exact: [Costs; 3],
    /// Groups as disks have them.
    bridged: [Costs; 3],
    /// The choice, behind each of [`BEFORE`].
    again: [Costs; 3],
}

/// What happened to a group just before its update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    SameSectors,
    OtherSectors,
    LongRead,
}

const BEFORE: [(Before, &str); 3] =
    [(Before::SameSectors, "same_again"), (Before::OtherSectors, "elsewhere_again"), (Before::LongRead, "read_before")];

/// The costs of the ways A, B and of the choice.
///
/// # Errors
/// The drive failed.
pub fn costs(length: u32) -> anyhow::Result<Ways> {
    let choices =
        [UpdateChoice::Only(UpdateWay::Reencode), UpdateChoice::Only(UpdateWay::Delta), UpdateChoice::Cheapest];
    let each = |bridge: Option<usize>| -> anyhow::Result<[Costs; 3]> {
        let [a, b, chosen] = choices.map(|choice| took(length, choice, bridge, Before::Nothing));
        Ok([a?, b?, chosen?])
    };
    let [same, elsewhere, read] = BEFORE.map(|(before, _)| took(length, UpdateChoice::Cheapest, Some(0), before));
    Ok(Ways { exact: each(Some(0))?, bridged: each(None)?, again: [same?, elsewhere?, read?] })
}

/// The figures of a length.
pub fn figures(length: u32, ways: &Ways) -> Vec<Figure> {
    let Ways { exact, bridged, again } = ways;
    let each = |sectors: u64| sectors as f64 / f64::from(GROUPS);
    let read = |costs: &Costs| each(costs.sectors_read);
    let millis = |costs: &Costs| (costs.took.drive + costs.took.software).as_secs_f64() * 1e3 / f64::from(GROUPS);
    let better = |of: &dyn Fn(&Costs) -> f64| of(&exact[0]).min(of(&exact[1]));
    let theory = |reads: u32| ("theory", f64::from(reads));
    let chosen = [("the better way", better(&read)), ("the better way", better(&millis))];
    let against =
        [[Some(theory(SHAPE.data - length)), None], [Some(theory(length + SHAPE.parity)), None], chosen.map(Some)];
    let mut figures = Vec::new();
    for (at, [of_read, of_millis]) in against.into_iter().enumerate() {
        let figure = |metric: &str, value, unit, against: Option<(&str, f64)>| Figure {
            bench: "lec",
            case: format!("update {length} of {}+{} {}", SHAPE.data, SHAPE.parity, CASES[at]),
            metric: metric.to_owned(),
            value,
            unit,
            against: against.map(|(name, value)| Against { name: name.to_owned(), value }),
        };
        if at == CHOSEN {
            for ((_, name), costs) in BEFORE.iter().zip(again) {
                figures.push(figure(&format!("{name}_sectors_read"), read(costs), "sectors", None));
                figures.push(figure(&format!("{name}_update_ms"), millis(costs), "ms", None));
            }
        }
        let (exact, bridged) = (&exact[at], &bridged[at]);
        figures.push(figure("sectors_read", read(exact), "sectors", of_read));
        figures.push(figure("update_ms", millis(exact), "ms", of_millis));
        figures.push(figure("bridged_sectors_read", read(bridged), "sectors", None));
        figures.push(figure("bridged_sectors_on_the_way", each(bridged.on_the_way), "sectors", None));
        figures.push(figure("bridged_update_ms", millis(bridged), "ms", None));
    }
    figures
}

const CASES: [&str; 3] = ["encoded again", "change added", "chosen"];
const CHOSEN: usize = 2;

/// Updates of all groups; `bridge` is what groups read on the way at most, `None` what disks do.
fn took(length: u32, choice: UpdateChoice, bridge: Option<usize>, before: Before) -> anyhow::Result<Costs> {
    run(11, |world| async move {
        let drive = Drive::new(&world, Duration::from_millis(20), SHAPE);
        let file = File::write(&drive.groups(), Sector(1), GROUPS * SHAPE.data)?;
        let groups = match bridge {
            Some(sectors) => drive.groups().with_bridge(sectors),
            None => drive.groups(),
        };
        let bulk = file.bulk();
        for number in 0..bulk.sums_sectors() {
            groups.sums_sector(bulk, number)?;
        }
        drive.move_head(file.first)?;
        let random = world.random().fork("places");
        let mut sectors_read = 0;
        assert_eq!(groups.statistics().sectors_bridged(), 0, "sums sectors lie alone");
        let mut all = Took::default();
        let mut changed = Vec::new();
        for group in 0..GROUPS {
            let place = || random.below(u64::from(SHAPE.data - length) + 1) as u32;
            let (position, group_first) = (place(), u64::from(group * SHAPE.data));
            let new = u64::from(GROUPS * SHAPE.data + group * 1000);
            changed.push((group_first + u64::from(position), new));
            let update = |position: u32, new: u64| -> anyhow::Result<()> {
                let changes = (position..position + length).zip(new..);
                let changes = changes.map(|(position, number)| Change { position, bytes: content(number) });
                let changes = [GroupChanges { group, changes: changes.collect() }];
                let update = groups.prepare_bulk_update(bulk, &changes, choice)?;
                ensure!(update.lost.is_empty(), "no group can be lost");
                Ok(groups.write_bulk_update(&update)?)
            };
            match before {
                Before::Nothing => {}
                Before::SameSectors => update(position, new + 500)?,
                Before::OtherSectors => update(place(), new + 500)?,
                Before::LongRead => {
                    groups.read_bulk_kept(bulk, group_first..group_first + u64::from(SHAPE.data))?;
                }
            }
            let read = || groups.statistics().now().sectors_read;
            let read_before = read();
            all += drive.time(|| update(position, new))?;
            sectors_read += read() - read_before;
        }
        all += drive.time(|| drive.device().sync())?;
        let on_the_way = groups.statistics().sectors_bridged();
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
        assert!(bridge != Some(0) || on_the_way == 0, "nothing is read on the way");
        Ok(Costs { sectors_read, on_the_way, took: all })
    })
}
