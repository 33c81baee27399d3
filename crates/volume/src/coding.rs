//! The codes that a volume's stripes have, made when they are first met.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use claystone_chunk::SECTOR_BYTES;
use claystone_code::{ChunkIndex, CodeSpec, ErasureCode};

use crate::geometry::Geometry;
use crate::merge::Reach;

/// A code, and what depends on what under it.
#[derive(Debug)]
pub(crate) struct Coding {
    pub(crate) code: Arc<dyn ErasureCode>,
    pub(crate) reach: Reach,
    /// Bytes that the merge of one page writes into the log at most.
    pub(crate) logged_bytes: u64,
}

/// Bytes that the merge of one page, alone in its rows, writes into the log again: sectors of which the log has not all.
fn logged_bytes(reach: &Reach, geometry: &Geometry) -> u64 {
    let (page_bytes, sector) = (u64::from(geometry.page_bytes), u64::from(SECTOR_BYTES));
    let reached = (0..geometry.columns).map(|column| {
        let parity = reach.parity_of(&BTreeSet::from([ChunkIndex(column)]));
        parity.into_iter().filter(|parity| reach.copied(*parity).is_none()).count() as u64
    });
    let parity = reached.max().unwrap_or(0);
    if page_bytes < sector { (parity + 1) * sector } else { parity * page_bytes }
}

/// The codes of a volume.
#[derive(Debug)]
pub(crate) struct Codings {
    geometry: Geometry,
    known: Mutex<BTreeMap<CodeSpec, Arc<Coding>>>,
}

impl Codings {
    /// None so far, of a volume of this geometry.
    pub(crate) fn new(geometry: &Geometry) -> Codings {
        Codings { geometry: *geometry, known: Mutex::default() }
    }

    /// The code of a stripe; `None` if a stripe of this volume cannot have it.
    pub(crate) fn of(&self, spec: CodeSpec) -> Option<Arc<Coding>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(coding) = known.get(&spec) {
            return Some(coding.clone());
        }
        let code = spec.build().ok()?;
        let shape = code.shape();
        if shape.data != self.geometry.columns || shape.alpha != 1 {
            return None;
        }
        let reach = Reach::of(&*code);
        if known.len() >= KNOWN_MAX {
            // There are as many as parts of a stripe can be mirrored; who has one keeps it.
            known.clear();
        }
        let coding = Arc::new(Coding { logged_bytes: logged_bytes(&reach, &self.geometry), reach, code });
        known.insert(spec, coding.clone());
        Some(coding)
    }

    /// Bytes that the merge of one page writes into the log at most, in a stripe of this code.
    pub(crate) fn logged_bytes(&self, spec: CodeSpec) -> u64 {
        // One of another kind fails before it is merged.
        self.of(spec).map_or(0, |coding| coding.logged_bytes)
    }
}

/// Codes that are kept at most.
const KNOWN_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_merge_writes_into_the_log_again_is_what_the_log_has_not() {
        let logged = |code: &str, columns: u16, page_bytes: u32| {
            let geometry = Geometry { page_bytes, chunk_bytes: 65536, columns };
            Codings::new(&geometry).logged_bytes(code.parse().expect("valid"))
        };
        assert_eq!(logged("rs:4+2", 4, 4096), 2 * 4096);
        assert_eq!(logged("rs:4+2", 4, 8192), 2 * 8192);
        // The sector that it is part of, and that of each parity.
        assert_eq!(logged("rs:4+2", 4, 1024), 3 * 4096);
        // Copies are what was written; a group's parity and those of all.
        assert_eq!(logged("replica:3", 1, 4096), 0);
        assert_eq!(logged("mirror:4x3", 4, 4096), 0);
        assert_eq!(logged("lrc:4+2+2", 4, 4096), 3 * 4096);
    }
}
