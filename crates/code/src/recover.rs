//! Carrying out plans of the codes without sub-chunks: copies and sums of products over GF(2^8).
//!
//! Invariants:
//! 1. A wanted chunk that was read is copied, never computed.
//! 2. Reads that no row takes are not touched.

use crate::{CodeSpec, Method, ReadPlan, Tier};

/// Makes the wanted chunks of `plan`, one of `spec`, from what was read.
///
/// # Panics
/// If a count or a length is not as planned, or the plan is one of another code.
pub(crate) fn run(tier: Tier, spec: CodeSpec, plan: &ReadPlan, fetched: &[&[u8]], out: &mut [&mut [u8]]) {
    assert_eq!(fetched.len(), plan.reads.len(), "one buffer for each read");
    assert_eq!(out.len(), plan.want.len(), "one buffer for each wanted chunk");
    match &plan.method {
        Method::Copy { from } => {
            for (out, from) in out.iter_mut().zip(from) {
                out.copy_from_slice(fetched[usize::from(*from)]);
            }
        }
        Method::Matrix(matrix) => matrix.combine(tier, fetched, out),
        Method::Syndromes { .. } | Method::ClayDecode | Method::ClayRepair { .. } => panic!("not a plan of {spec}"),
    }
}
