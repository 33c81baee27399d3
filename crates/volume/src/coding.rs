//! The codes that a volume's stripes have, made when they are first met.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use claystone_code::{CodeSpec, ErasureCode};

use crate::geometry::Geometry;
use crate::merge::Reach;

/// A code, and what depends on what under it.
#[derive(Debug)]
pub(crate) struct Coding {
    pub(crate) code: Arc<dyn ErasureCode>,
    pub(crate) reach: Reach,
}

/// The codes of a volume.
#[derive(Debug)]
pub(crate) struct Codings {
    columns: u16,
    known: Mutex<BTreeMap<CodeSpec, Arc<Coding>>>,
}

impl Codings {
    /// None so far, of a volume of this geometry.
    pub(crate) fn new(geometry: &Geometry) -> Codings {
        Codings { columns: geometry.columns, known: Mutex::default() }
    }

    /// The code of a stripe; `None` if a stripe of this volume cannot have it.
    pub(crate) fn of(&self, spec: CodeSpec) -> Option<Arc<Coding>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(coding) = known.get(&spec) {
            return Some(coding.clone());
        }
        let code = spec.build().ok()?;
        let shape = code.shape();
        if shape.data != self.columns || shape.alpha != 1 {
            return None;
        }
        let coding = Arc::new(Coding { reach: Reach::of(&*code), code });
        known.insert(spec, coding.clone());
        Some(coding)
    }
}
