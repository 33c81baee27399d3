//! Test support: the plainest device, and the suite that every device passes.
//!
//! Invariants:
//! 1. [`MemoryDevice`] is the contract of [`Device`](crate::Device) without faults; where another device differs, one of
//!    the two is wrong.
//! 2. [`device_conformance`] uses the trait only, so it says nothing about power cuts and bad sectors; each device tests
//!    those itself.

mod device_conformance;
mod memory_device;

pub use device_conformance::{device_conformance, sector_pattern};
pub use memory_device::MemoryDevice;
