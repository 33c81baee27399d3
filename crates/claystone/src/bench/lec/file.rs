//! A file on an emulated drive: a bulk run of whole groups, and what is left in a single run behind it.

use claystone_env::Sector;
use claystone_group::{BulkRun, GroupError, GroupPlace, GroupShape, Groups, NOTHING_CACHED};

use super::drive::{check, contents};

/// See the module.
#[derive(Debug)]
pub struct File {
    /// Its first sector on the drive.
    pub first: Sector,
    shape: GroupShape,
    bulk: BulkRun,
    tail: Option<(GroupPlace, Vec<u32>)>,
}

impl File {
    /// Writes a file of `sectors` sectors from `first` on.
    ///
    /// # Errors
    /// The drive failed.
    ///
    /// # Panics
    /// If it has no whole group.
    pub fn write(groups: &Groups, first: Sector, sectors: u32) -> Result<File, GroupError> {
        let shape = groups.code().shape();
        let bulk = BulkRun { first, data: sectors / shape.data * shape.data };
        groups.write_bulk(bulk, &contents(0, bulk.data.into()))?;
        let left = sectors - bulk.data;
        let tail = if left > 0 {
            let total = BulkRun::sectors_total(bulk.groups(shape), shape);
            let place = GroupPlace { first: Sector(first.0 + total), data: left, capacity: left };
            Some((place, groups.write_new(place, &contents(bulk.data.into(), left.into()))?.sums))
        } else {
            None
        };
        Ok(File { first, shape, bulk, tail })
    }

    /// Its bulk run.
    pub fn bulk(&self) -> BulkRun {
        self.bulk
    }

    /// Where its sums sectors are.
    pub fn sums(&self) -> Vec<Sector> {
        (0..self.bulk.sums_sectors()).map(|number| self.bulk.sums(number, self.shape)).collect()
    }

    /// Reads all of it in a row, whole groups in calls of at most as many sectors as `buffer` has room for, and checks
    /// what was read. `read` is called around each call of the groups.
    ///
    /// # Errors
    /// The drive failed, or a sector is lost.
    ///
    /// # Panics
    /// If the content is wrong.
    pub fn stream(
        &self,
        groups: &Groups,
        buffer: &mut [u8],
        mut read: impl FnMut(&mut dyn FnMut() -> Result<(), GroupError>) -> Result<(), GroupError>,
    ) -> Result<(), GroupError> {
        let stride = (buffer.len() / 4096) as u64 / u64::from(self.shape.data) * u64::from(self.shape.data);
        let end = u64::from(self.bulk.data);
        let mut next = 0;
        while next < end {
            let wanted = next..end.min(next + stride);
            let into = &mut buffer[..(wanted.end - next) as usize * 4096];
            read(&mut || groups.read_bulk(self.bulk, wanted.clone(), &|_| None, into))?;
            check(next, into);
            next = wanted.end;
        }
        if let Some((place, sums)) = &self.tail {
            let into = &mut buffer[..place.data as usize * 4096];
            read(&mut || groups.read(*place, 0..place.data, sums, NOTHING_CACHED, into))?;
            check(end, into);
        }
        Ok(())
    }

    /// A place for such a file where the parity between its two runs, which no call reads, does not lie across the end of
    /// a track: passing it would cost a turn, which real drives avoid by reading ahead.
    pub fn place(shape: GroupShape, sectors: u32, track_sectors: u64) -> Sector {
        let groups = sectors / shape.data;
        let total = BulkRun::sectors_total(groups, shape);
        let fits = |first: &u64| {
            let gap = first + total - u64::from(shape.parity);
            !gap.is_multiple_of(track_sectors) && (gap - 1) / track_sectors == (first + total) / track_sectors
        };
        Sector((1..).find(fits).expect("a track is longer than the parity"))
    }
}
