//! Scrubbing: reading a whole group to know that it is right, and mending what is not.
//!
//! Invariants:
//! 1. Parity is compared only with data that was checked, and only then written again.
//! 2. What is lost is named in the report; it stops nothing.

use claystone_env::{DeviceError, Effort, SECTOR_BYTES, aligned_buffer};

use crate::gathering::{Gathering, effort};
use crate::{BulkRun, GroupError, GroupPlace, Groups, Member, ShownRun, SumsSector};

/// What a scrub of a group found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScrubReport {
    /// Members that failed or were wrong, and were mended.
    pub mended: Vec<Member>,
    /// Data positions that are lost.
    pub lost: Vec<u32>,
    /// Parity sectors that are void: with them the group can bear as many losses less.
    pub parity_void: u32,
    /// Whether a sums sector was mended: the one before the group, or one of which this group was the last to be learnt.
    pub sums_mended: bool,
}

impl ScrubReport {
    /// Whether nothing had to be mended and nothing is lost.
    pub fn is_clean(&self) -> bool {
        *self == ScrubReport::default()
    }
}

impl Groups {
    /// Reads a group whole; checks its data by `sums`, the CRCs of what is in use, and its parity by its data; mends what
    /// is wrong.
    ///
    /// # Errors
    /// [`GroupError::Device`].
    ///
    /// # Panics
    /// If there is not a CRC for each data sector in use.
    pub fn scrub(&self, place: GroupPlace, sums: &[u32]) -> Result<ScrubReport, GroupError> {
        self.assert_place(place);
        self.sync_mended(place)?;
        let mut gathering = Gathering::new(self, place, sums.iter().copied().map(Some).collect());
        gathering.fetch(|_| true)?;
        let needed: Vec<usize> = (0..place.data as usize).collect();
        let restored = gathering.restore(&needed);
        gathering.settle(true);
        self.report(&gathering, place, restored)
    }

    /// As [`Groups::scrub`], for a group of a bulk run, of which a window shows some, and the sums sectors of which it is the first such group.
    /// So scrubbing all groups of a run that windows show scrubs all its sums sectors that have CRCs of them.
    ///
    /// # Errors
    /// [`GroupError::Device`].
    ///
    /// # Panics
    /// If there is no such group.
    pub fn scrub_bulk<'r>(&self, run: impl Into<ShownRun<'r>>, group: u32) -> Result<ScrubReport, GroupError> {
        let (shape, shown) = (self.shape(), run.into());
        let (run, place) = (shown.run, shown.run.group(group, shape));
        let k = shape.data as usize;
        let mut sums_mended = false;
        let (first, last) = (u64::from(group) * k as u64, (u64::from(group) + 1) * k as u64 - 1);
        for number in BulkRun::sums_of(first).0..=BulkRun::sums_of(last).0 {
            if run.summed_groups(number, shape).find(|group| shown.shows(*group, shape)) == Some(group) {
                self.sync_mended(place)?;
                sums_mended |= self.scrub_sums(run, number)?;
            }
        }
        self.sync_mended(place)?;
        let mut gathering = Gathering::new(self, place, self.group_sums(run, group, 0..k)?);
        gathering.fetch(|_| true)?;
        let restored = self.restore(shown, group, &mut gathering, 0..k, true);
        if let Ok(learnt) = &restored {
            // All that was still to be learnt may be of groups that were freed since.
            sums_mended |= *learnt || self.learn(shown, group, &gathering);
        }
        Ok(ScrubReport { sums_mended, ..self.report(&gathering, place, restored.map(drop))? })
    }

    /// Reads a sums sector and writes it again if memory has it and the device does not. Returns whether it did.
    fn scrub_sums(&self, run: BulkRun, number: u32) -> Result<bool, GroupError> {
        let place = run.sums(number, self.shape());
        let Some(sums) = self.sums_cache().whole(place) else {
            // Reading the group reads it, unless it was given up: then it is tried again here.
            if self.sums_cache().is_in_part(place) {
                self.load_sums(place, Effort::Retry)?;
            }
            return Ok(false);
        };
        let mut bytes = aligned_buffer(SECTOR_BYTES);
        bytes.resize(SECTOR_BYTES, 0);
        let failed = self.read_checked(place, &mut bytes, effort(self.shape().parity), |_| None)?;
        let found = SumsSector::parse(&bytes, self.disk(), place).ok().filter(|_| failed.is_empty());
        let is_wrong = found.is_none_or(|found| found != sums);
        Ok(is_wrong && self.mend_sums(run, number, &sums))
    }

    /// Makes the report of a group whose data was restored as far as possible, and mends its parity.
    fn report(
        &self,
        gathering: &Gathering<'_>,
        place: GroupPlace,
        restored: Result<(), GroupError>,
    ) -> Result<ScrubReport, GroupError> {
        let data = 0..place.data as usize;
        let mut report = ScrubReport { mended: gathering.failed_and_mended(data.clone()), ..ScrubReport::default() };
        match restored {
            Err(GroupError::Lost { positions, .. }) => {
                report.lost = positions;
                report.parity_void = gathering.parity_void() as u32;
                return Ok(report);
            }
            Err(error) => return Err(error),
            Ok(()) => {}
        }
        if !self.may_mend(place) {
            // The next scrub finds it.
            report.mended.clear();
            report.parity_void = gathering.parity_void() as u32;
            return Ok(report);
        }
        let data: Vec<&[u8]> = data.map(|at| gathering.bytes(at).expect("it was restored")).collect();
        let mut parity = aligned_buffer(self.shape().parity as usize * SECTOR_BYTES);
        parity.resize(self.shape().parity as usize * SECTOR_BYTES, 0);
        self.code().encode(&data, &mut parity);
        for (number, bytes) in (0..).zip(parity.chunks_exact(SECTOR_BYTES)) {
            let member = Member::Parity(number);
            if gathering.bytes(gathering.at(member)) == Some(bytes) {
                continue;
            }
            let mend = || self.mend(place, place.sector(member), bytes);
            if mend() || (self.sync_mended(place)? && mend()) {
                report.mended.push(member);
            }
        }
        Ok(report)
    }

    /// Makes durable what was mended of a group, so that as much can be again. Returns whether there was something.
    fn sync_mended(&self, place: GroupPlace) -> Result<bool, DeviceError> {
        let is_mended = self.is_mended(place);
        if is_mended {
            self.sync()?;
        }
        Ok(is_mended)
    }
}
