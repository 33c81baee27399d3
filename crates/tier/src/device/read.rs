//! Reading: what the overlay has from memory or from a log, the rest from home.

use std::collections::BTreeSet;
use std::convert::Infallible;

use claystone_env::{DeviceError, Effort, FailedSector, SECTOR_BYTES, Sector, SectorFailure, SectorRange};

use super::TieredDevice;
use super::original::{Original, asked_for};
use super::state::State;
use crate::fields::crc32c;
use crate::superblock::Side;

/// Part of a request that is read from a device.
struct Part<'a> {
    /// Which request.
    request: usize,
    /// Of the home, as the caller numbers it.
    first: u64,
    into: &'a mut [u8],
    side: Side,
    /// On the side's device.
    on_device: Sector,
    /// What it must have; `None`: it is at home.
    crcs: Option<Vec<u32>>,
    /// Where else it is,
    originals: Vec<Original>,
    /// in the record that was copied; 0: in none.
    copied: u64,
}

/// What came of a request.
type Outcome = Result<Vec<FailedSector>, DeviceError>;

impl TieredDevice {
    pub(super) fn read_all(&self, reads: &mut [(Sector, &mut [u8])], effort: Effort) -> Vec<Outcome> {
        let mut outcomes: Vec<Outcome> = reads.iter().map(|_| Ok(Vec::new())).collect();
        let mut again: Vec<usize> = (0..reads.len()).collect();
        // Twice at most: the second time the solid-state drive is known to have failed.
        while !again.is_empty() {
            let mut state = self.state();
            let reader = state.next_reader;
            state.next_reader += 1;
            state.readers.insert(reader);
            let mut parts = Vec::new();
            for (request, (first, into)) in reads.iter_mut().enumerate() {
                if again.contains(&request) {
                    outcomes[request] = Ok(self.plan(&state, request, *first, into, &mut parts));
                }
            }
            drop(state);
            again = self.read_parts(parts, effort, &mut outcomes);
            let mut state = self.state();
            state.readers.remove(&reader);
            let has_freed = state.free_unread();
            drop(state);
            // Nobody waits for reads but who waits for room that they keep.
            if has_freed {
                self.bell.ring();
            }
        }
        for failed in outcomes.iter_mut().flatten() {
            failed.sort_by_key(|failed| failed.sector);
        }
        outcomes
    }

    /// Fills what memory has, and says where the rest is. Returns what is lost.
    fn plan<'a>(
        &self,
        state: &State,
        request: usize,
        first: Sector,
        into: &'a mut [u8],
        parts: &mut Vec<Part<'a>>,
    ) -> Vec<FailedSector> {
        let mut lost = Vec::new();
        let mut rest = into;
        let all = SectorRange { first, sectors: (rest.len() / SECTOR_BYTES) as u64 };
        for piece in state.overlay.over(all) {
            let (into, behind) = std::mem::take(&mut rest).split_at_mut(piece.range.sectors as usize * SECTOR_BYTES);
            rest = behind;
            let first = piece.range.first.0;
            let Some(place) = piece.place else {
                let on_device = Sector(self.home.first.0 + first);
                let (side, originals) = (Side::Hdd, Vec::new());
                parts.push(Part { request, first, into, side, on_device, crcs: None, originals, copied: 0 });
                continue;
            };
            let held = &state.records[&place.seq];
            if let (Some(content), false) = (held.content(place.at, piece.range.sectors), place.lost) {
                into.copy_from_slice(&content);
                continue;
            }
            let all_failed = || (first..piece.range.end().0).map(|sector| failed(sector, SectorFailure::Lost));
            if place.lost {
                into.fill(0);
                lost.extend(all_failed());
                continue;
            }
            let side = held.side;
            let in_log = state.rings[side as usize].place(held.payload()) + u64::from(place.at);
            let on_device = Sector(self.logs[side as usize].first.0 + in_log);
            let crcs = Some(held.crcs(place.at, piece.range.sectors).to_vec());
            let originals = state.originals(piece.range, place);
            let part = Part { request, first, into, side, on_device, crcs, originals, copied: held.replaces };
            if state.is_unreadable(side) {
                part.into.fill(0);
                let mut failures = all_failed().collect();
                parts.extend(self.seek(part, &mut failures));
                lost.append(&mut failures);
            } else {
                parts.push(part);
            }
        }
        lost
    }

    /// Reads parts, those of each device at once, and what failed of the solid-state drive once more where it came from. Returns the requests
    /// that are to be planned again.
    fn read_parts(&self, parts: Vec<Part<'_>>, effort: Effort, outcomes: &mut [Outcome]) -> Vec<usize> {
        let mut again = Vec::new();
        let (of_ssd, mut of_hdd): (Vec<_>, Vec<_>) = parts.into_iter().partition(|part| part.side == Side::Ssd);
        for (mut part, result) in self.read_side(Side::Ssd, of_ssd, effort) {
            let request = part.request;
            match result {
                Ok(failed) => {
                    let mut failed = part.check(&failed, effort);
                    of_hdd.extend(self.seek(part, &mut failed));
                    if let Ok(all) = &mut outcomes[request] {
                        all.append(&mut failed);
                    }
                }
                Err(error) => {
                    self.ssd_read_failed(&error);
                    again.push(request);
                }
            }
        }
        // A sync that copies a record does not wait for it.
        let mut state = self.state();
        while of_hdd.iter().any(|part| state.in_flight.contains(&part.copied)) {
            state = self.wait(state);
        }
        drop(state);
        for (mut part, result) in self.read_side(Side::Hdd, of_hdd, effort) {
            match (result, &mut outcomes[part.request]) {
                (Ok(failed), Ok(all)) => all.extend(part.check(&failed, effort)),
                (Err(error), outcome) => *outcome = Err(error),
                (Ok(_), Err(_)) => {}
            }
        }
        again
    }

    /// Reads parts of one device.
    fn read_side<'a>(&self, side: Side, mut parts: Vec<Part<'a>>, effort: Effort) -> Vec<(Part<'a>, Outcome)> {
        if parts.is_empty() {
            return Vec::new();
        }
        let mut requests: Vec<(Sector, &mut [u8])> =
            parts.iter_mut().map(|part| (part.on_device, &mut *part.into)).collect();
        let results = match side {
            Side::Ssd => {
                let ssd = self.ssd.as_ref().expect("nothing is planned to be read from one that is lost");
                ssd.read_each(&mut requests, effort)
            }
            Side::Hdd => {
                let Ok(results) =
                    self.disturb(false, || Ok::<_, Infallible>(self.hdd.read_each(&mut requests, effort)));
                results
            }
        };
        parts.into_iter().zip(results).collect()
    }

    /// Splits off what of the sectors that failed is in the hard disk's log too, and takes it from the failures.
    fn seek<'a>(&self, part: Part<'a>, failures: &mut Vec<FailedSector>) -> Vec<Part<'a>> {
        let asked: BTreeSet<u64> = failures.iter().map(|failed| failed.sector.0).collect();
        let mut parts = Vec::new();
        let (mut rest, mut at) = (part.into, part.first);
        for original in asked_for(&part.originals, |sector| asked.contains(&sector)) {
            let (first, end) = (original.range.first.0, original.range.end().0);
            let (_, behind) = rest.split_at_mut((first - at) as usize * SECTOR_BYTES);
            let (into, behind) = behind.split_at_mut(original.range.sectors as usize * SECTOR_BYTES);
            (rest, at) = (behind, end);
            let on_device = Sector(self.logs[Side::Hdd as usize].first.0 + original.in_log);
            let numbers = (first - part.first) as usize..(end - part.first) as usize;
            let crcs = part.crcs.as_ref().map(|crcs| crcs[numbers].to_vec());
            failures.retain(|failed| !(first..end).contains(&failed.sector.0));
            parts.push(Part { first, into, side: Side::Hdd, on_device, crcs, originals: Vec::new(), ..part });
        }
        parts
    }
}

impl Part<'_> {
    /// The sectors that failed, by their numbers at home; of a log those too whose checksum is not theirs.
    fn check(&mut self, failures: &[FailedSector], effort: Effort) -> Vec<FailedSector> {
        let mut all: Vec<FailedSector> = failures
            .iter()
            .map(|of_device| failed(of_device.sector.0 - self.on_device.0 + self.first, of_device.failure))
            .collect();
        let Some(crcs) = &self.crcs else { return all };
        let wrong = match effort {
            Effort::FailFast => SectorFailure::Soft,
            Effort::Retry => SectorFailure::Lost,
        };
        for ((sector, bytes), crc) in (self.first..).zip(self.into.chunks_exact_mut(SECTOR_BYTES)).zip(crcs) {
            if all.iter().all(|failed| failed.sector.0 != sector) && crc32c(bytes) != *crc {
                bytes.fill(0);
                all.push(failed(sector, wrong));
            }
        }
        all
    }
}

fn failed(sector: u64, failure: SectorFailure) -> FailedSector {
    FailedSector { sector: Sector(sector), failure }
}
