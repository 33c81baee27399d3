//! Requests of real block devices, recorded by others, or made here: what their writes cost in updates of parity, counted
//! (`simulate`), and carried out on a volume, or on a scratch volume that is kept by another method (`replay`).
//!
//! Invariants:
//! 1. Both see the same requests, laid out alike: stripes that the trace touches lie side by side in their order, and what is
//!    in a stripe stays where it is.

mod input;
mod made;
mod records;
pub mod replay;
pub mod simulate;

use std::path::PathBuf;

use anyhow::ensure;
use claystone_code::CodeSpec;
use claystone_meta::Redundancy;
use claystone_model::trace::TraceFormat;
use claystone_model::{PageCosts, StripeShape};
use claystone_volume::comparators::UpdateMethod;
use claystone_volume::costs;

pub use self::input::Input;
use crate::bench::volume::world::DISKS;

/// A trace, and what it is played against.
#[derive(Debug, Clone)]
pub struct Choice {
    /// The file; `None`: requests made here.
    pub path: Option<PathBuf>,
    /// How it is written; `None`: as its first line says.
    pub format: Option<TraceFormat>,
    /// Only requests of this volume.
    pub volume: Option<u64>,
    /// Only so many requests from its beginning.
    pub limit: Option<usize>,
    /// What the stripes get.
    pub redundancy: Redundancy,
    /// Kept by this method on a scratch volume, instead of on a volume; in a replay.
    pub scratch: Option<UpdateMethod>,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Where disks and a database are made; `None`: the system's place for temporary files.
    pub directory: Option<PathBuf>,
}

impl Choice {
    /// The shape of stripes, coded where there are two forms.
    fn shape(&self, page_bytes: u32) -> anyhow::Result<StripeShape> {
        let code = self.redundancy.code;
        let shape = code.shape();
        ensure!(shape.alpha == 1, "volumes take no {code}: its chunks are cut into parts");
        Ok(StripeShape { page_bytes, chunk_bytes: CHUNK_BYTES, data: shape.data.into(), parity: shape.parity.into() })
    }

    /// The code, if each write updates parity of it: copies have none, and of two forms nobody knows which a stripe has.
    fn updated(&self) -> Option<CodeSpec> {
        let Redundancy { code, mirroring: None } = self.redundancy else { return None };
        let shape = code.shape();
        let has_parity = shape.data > 1 && shape.parity > 0 && !matches!(code, CodeSpec::Mirror { .. });
        has_parity.then_some(code)
    }

    /// Copies of a volume's log.
    fn copies(&self) -> u32 {
        u32::from(self.redundancy.tolerance_max()) + 1
    }

    /// Disks for the stripes.
    fn disks(&self) -> u128 {
        DISKS.max(self.redundancy.disks_min().into())
    }
}

/// What a volume of so many bytes keeps of pages that wait.
fn costs_of(volume_bytes: u64, shape: StripeShape) -> PageCosts {
    let (pages, stripes) = (volume_bytes / u64::from(shape.page_bytes), volume_bytes / shape.stripe_bytes());
    PageCosts {
        write: costs::write_bytes(pages),
        written_page: costs::WRITTEN_PAGE_BYTES,
        begin: costs::BEGIN_BYTES,
        merge: costs::MERGE_BYTES,
        intent_stripe: costs::intent_stripe_bytes(stripes),
        intent_data: costs::INTENT_DATA_BYTES,
        intent_parity: costs::INTENT_PARITY_BYTES,
        merged_page: costs::merged_page_bytes(pages),
        intent_sectors: costs::INTENT_SECTORS,
        map_stripe: costs::MAP_STRIPE_BYTES,
        map_node: costs::MAP_NODE_BYTES,
        map_node_pages: costs::MAP_NODE_PAGES,
    }
}

/// As volumes are made.
const CHUNK_BYTES: u64 = 1 << 20;
