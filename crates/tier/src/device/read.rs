//! Reading: what the overlay has from memory or from a log, the rest from home.

use std::convert::Infallible;

use claystone_env::{DeviceError, Effort, FailedSector, SECTOR_BYTES, Sector, SectorFailure, SectorRange};

use super::TieredDevice;
use super::state::{SsdState, State};
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
            state.free_unread();
            drop(state);
            self.landed.notify_all();
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
                parts.push(Part { request, first, into, side: Side::Hdd, on_device, crcs: None });
                continue;
            };
            let held = &state.records[&place.seq];
            if let (Some(content), false) = (held.content(place.at, piece.range.sectors), place.lost) {
                into.copy_from_slice(&content);
                continue;
            }
            let mut is_lost = |range: SectorRange, into: &mut [u8]| {
                into.fill(0);
                lost.extend((range.first.0..range.end().0).map(|sector| failed(sector, SectorFailure::Lost)));
            };
            if place.lost {
                is_lost(piece.range, into);
                continue;
            }
            if held.side == Side::Ssd && state.ssd != SsdState::Present {
                let mut rest = into;
                for (range, original) in state.originals(piece.range, place) {
                    let (into, behind) = rest.split_at_mut(range.sectors as usize * SECTOR_BYTES);
                    rest = behind;
                    let Some(original) = original else {
                        is_lost(range, into);
                        continue;
                    };
                    let on_device = Sector(self.logs[Side::Hdd as usize].first.0 + original.in_log);
                    let crcs = Some(held.crcs(original.at_of_copy, range.sectors).to_vec());
                    parts.push(Part { request, first: range.first.0, into, side: Side::Hdd, on_device, crcs });
                }
                continue;
            }
            let in_log = state.rings[held.side as usize].place(held.position) + 1 + u64::from(place.at);
            let on_device = Sector(self.logs[held.side as usize].first.0 + in_log);
            let crcs = Some(held.crcs(place.at, piece.range.sectors).to_vec());
            parts.push(Part { request, first, into, side: held.side, on_device, crcs });
        }
        lost
    }

    /// Reads parts, those of each device at once. Returns the requests that are to be planned again.
    fn read_parts(&self, mut parts: Vec<Part<'_>>, effort: Effort, outcomes: &mut [Outcome]) -> Vec<usize> {
        let mut again = Vec::new();
        for side in [Side::Ssd, Side::Hdd] {
            let mut of_side: Vec<&mut Part<'_>> = parts.iter_mut().filter(|part| part.side == side).collect();
            if of_side.is_empty() {
                continue;
            }
            let Ok(device) = self.device(side) else {
                again.extend(of_side.iter().map(|part| part.request));
                continue;
            };
            let mut requests: Vec<(Sector, &mut [u8])> =
                of_side.iter_mut().map(|part| (part.on_device, &mut *part.into)).collect();
            let mut read = || Ok::<_, Infallible>(device.read_each(&mut requests, effort));
            let Ok(results) = if side == Side::Hdd { self.disturb(false, read) } else { read() };
            for (part, result) in of_side.into_iter().zip(results) {
                match (result, side) {
                    (Ok(failed), _) => {
                        let failed = part.check(&failed, effort);
                        if let Ok(all) = &mut outcomes[part.request] {
                            all.extend(failed);
                        }
                    }
                    (Err(error), Side::Hdd) => outcomes[part.request] = Err(error),
                    (Err(error), Side::Ssd) => {
                        self.ssd_failed(&error);
                        again.push(part.request);
                    }
                }
            }
        }
        again
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
