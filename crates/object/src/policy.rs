//! Which code a new object gets.

use claystone_chunk::Durability;
use claystone_code::CodeSpec;

/// What the operator decided, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The code of buckets that name none.
    pub code: CodeSpec,
    /// When a put may be acknowledged.
    pub durability: Durability,
    /// The longest object.
    pub object_bytes_max: u64,
    /// The least length of a part that is not the last.
    pub part_bytes_min: u64,
}

/// The code for a stripe of `bytes` bytes when `disks` disks take writes.
pub fn fit_code(_wanted: CodeSpec, _bytes: u64, _disks: usize) -> Option<CodeSpec> {
    None
}
