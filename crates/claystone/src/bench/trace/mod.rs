//! Requests of real block devices, recorded by others: what their writes cost in updates of parity, counted (`simulate`), and
//! carried out on a volume (`replay`).
//!
//! Invariants:
//! 1. Both see the same requests, laid out alike: stripes that the trace touches lie side by side in their order, and what is
//!    in a stripe stays where it is.

mod input;
mod records;
pub mod replay;
pub mod simulate;

use std::path::PathBuf;

use anyhow::ensure;
use claystone_code::CodeSpec;
use claystone_model::trace::TraceFormat;
use claystone_model::{PageCosts, StripeShape};
use claystone_volume::costs;

pub use self::input::Input;

/// A trace, and what it is played against.
#[derive(Debug, Clone)]
pub struct Choice {
    /// The file.
    pub path: PathBuf,
    /// How it is written; `None`: as its first line says.
    pub format: Option<TraceFormat>,
    /// Only requests of this volume.
    pub volume: Option<u64>,
    /// Only so many requests from its beginning.
    pub limit: Option<usize>,
    /// The code of the stripes.
    pub code: CodeSpec,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Where disks and a database are made; `None`: the system's place for temporary files.
    pub directory: Option<PathBuf>,
}

impl Choice {
    fn shape(&self, page_bytes: u32) -> anyhow::Result<StripeShape> {
        let shape = self.code.shape();
        ensure!(shape.alpha == 1, "volumes take no {}: its chunks are cut into parts", self.code);
        Ok(StripeShape { page_bytes, chunk_bytes: CHUNK_BYTES, data: shape.data.into(), parity: shape.parity.into() })
    }

    /// Whether there is parity that a write would update: copies are none.
    fn has_parity(&self) -> bool {
        let shape = self.code.shape();
        shape.data > 1 && shape.parity > 0 && !matches!(self.code, CodeSpec::Mirror { .. })
    }

    /// Copies of a volume's log.
    fn copies(&self) -> u32 {
        u32::from(self.code.tolerance()) + 1
    }
}

/// What volumes keep of a page that waits.
const COSTS: PageCosts = PageCosts {
    write: costs::WRITE_BYTES,
    written_page: costs::WRITTEN_PAGE_BYTES,
    begin: costs::BEGIN_BYTES,
    merge: costs::MERGE_BYTES,
    intent_stripe: costs::INTENT_STRIPE_BYTES,
    intent_data: costs::INTENT_DATA_BYTES,
    intent_parity: costs::INTENT_PARITY_BYTES,
    merged_page: costs::MERGED_PAGE_BYTES,
    intent_sectors: costs::INTENT_SECTORS,
    map_stripe: costs::MAP_STRIPE_BYTES,
    map_node: costs::MAP_NODE_BYTES,
    map_node_pages: costs::MAP_NODE_PAGES,
};
/// As volumes are made.
const CHUNK_BYTES: u64 = 1 << 20;
