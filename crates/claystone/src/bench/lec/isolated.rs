//! What the checksum of a sector that is read by itself costs: nothing where memory has it; the rest of its swath where memory has the
//! swath's; else its sums sector is read with it, in the same call and before it. Beside that, a read of all that lies between the two in one request.
//!
//! The drive takes requests in their order. One that has a queue may take the two in the order in which they pass under the head.

use std::time::Duration;

use claystone_env::{Effort, SECTOR_BYTES, Sector};
use claystone_group::BulkRun;
use claystone_sim::run;

use super::drive::{Drive, check};
use super::file::File;
use super::updates::SHAPE;
use crate::rows::{Against, Figure};

/// The longest bulk run of a disk.
const RUN_SECTORS: u32 = 13_250;

/// Means of so many reads, the head anywhere on the drive before each.
///
/// # Errors
/// The drive failed.
pub fn figures(reads: usize) -> anyhow::Result<Vec<Figure>> {
    let [warm, swath, cold, whole] =
        [Checksum::InMemory, Checksum::OfItsSwath, Checksum::OnTheDrive, Checksum::WithAllBetween]
            .map(|of| mean_ms(of, reads));
    let (warm, swath, cold, whole) = (warm?, swath?, cold?, whole?);
    let figure = |metric: &str, value, against: Option<f64>| Figure {
        bench: "lec",
        case: format!("isolated reads of {}+{}", SHAPE.data, SHAPE.parity),
        metric: metric.to_owned(),
        value,
        unit: "ms",
        against: against.map(|value| Against { name: "checksum in memory".to_owned(), value }),
    };
    Ok(vec![
        figure("warm_ms", warm, None),
        figure("swath_ms", swath, Some(warm)),
        figure("cold_ms", cold, Some(warm)),
        figure("one_request_ms", whole, Some(warm)),
    ])
}

/// Where the checksum of what is read is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Checksum {
    InMemory,
    OfItsSwath,
    OnTheDrive,
    WithAllBetween,
}

fn mean_ms(checksum: Checksum, reads: usize) -> anyhow::Result<f64> {
    run(13, |world| async move {
        let drive = Drive::new(&world, Duration::from_millis(20), SHAPE);
        let file = File::write(&drive.groups(), Sector(1), RUN_SECTORS)?;
        let bulk = file.bulk();
        let known = drive.groups();
        for number in 0..bulk.sums_sectors() {
            known.sums_sector(bulk, number)?;
        }
        // A sums sector, and the sums of swaths of 38.
        let swaths = drive.groups_with(16 << 10);
        swaths.load_swaths(bulk)?;
        let random = world.random().fork("places");
        let mut all = Duration::ZERO;
        let mut into = vec![0; SECTOR_BYTES];
        for _ in 0..reads {
            let at = random.below(bulk.data.into());
            drive.move_head(Sector(1 + random.below(drive.device().geometry().sectors - 1)))?;
            all += match checksum {
                Checksum::InMemory => drive.time(|| known.read_bulk(bulk, at..at + 1, &|_| None, &mut into))?.drive,
                Checksum::OfItsSwath => drive.time(|| swaths.read_bulk(bulk, at..at + 1, &|_| None, &mut into))?.drive,
                Checksum::OnTheDrive => {
                    let unknown = drive.groups();
                    drive.time(|| unknown.read_bulk(bulk, at..at + 1, &|_| None, &mut into))?.drive
                }
                Checksum::WithAllBetween => {
                    let (first, place) = (bulk.sums(BulkRun::sums_of(at).0, SHAPE), bulk.place_of(at, SHAPE));
                    let mut between = vec![0; (place.0 + 1 - first.0) as usize * SECTOR_BYTES];
                    let took = drive.time(|| drive.device().read(first, &mut between, Effort::FailFast).map(drop))?;
                    into.copy_from_slice(&between[between.len() - SECTOR_BYTES..]);
                    took.drive
                }
            };
            check(at, &into);
        }
        Ok(all.as_secs_f64() * 1e3 / reads as f64)
    })
}
