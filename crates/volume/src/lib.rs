//! Block volumes: what a block device promises.
//!
//! Left out: protocols, which are above ([`Blocks`] is what they translate to).

mod blocks;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use blocks::{Access, Blocks, BlocksError, Durable, Space, Span, SpanKind, Stretch, Zeroing, joined, within};
