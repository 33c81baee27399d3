//! Carries out a conversion plan on buffers.
//!
//! Invariants:
//! 1. Everything that depends on the plan alone is done once, when the converter is made.

use std::sync::Arc;

use super::{ConversionPlan, Making};
use crate::{ErasureCode, Matrix, SpecError, Tier};

/// A plan made ready. Make one for each plan and let any number of threads apply it.
#[derive(Debug)]
pub struct Converter {
    reads: usize,
    writes: usize,
    tier: Tier,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Sums(Matrix),
    Encode(Arc<dyn ErasureCode>),
}

impl Converter {
    /// For the instruction set that [`Tier::chosen`] names.
    ///
    /// # Errors
    /// If the plan's new code is not valid.
    ///
    /// # Panics
    /// If the plan is not one that [`super::plan_conversion`] makes.
    pub fn new(plan: &ConversionPlan) -> Result<Self, SpecError> {
        Self::with_tier(plan, Tier::chosen())
    }

    /// As [`new`](Self::new), for one of [`Tier::available`].
    ///
    /// # Errors
    /// If the plan's new code is not valid.
    ///
    /// # Panics
    /// If the plan is not one that [`super::plan_conversion`] makes, or this machine has not got the tier.
    pub fn with_tier(plan: &ConversionPlan, tier: Tier) -> Result<Self, SpecError> {
        let work = match &plan.making {
            Making::Sums(sums) => {
                assert_eq!(sums.len(), plan.writes.len(), "one sum for each write");
                let row = |sum: &Vec<(u16, u8)>| {
                    let mut row = vec![0; plan.reads.len()];
                    sum.iter().for_each(|(at, coef)| row[usize::from(*at)] = *coef);
                    row
                };
                Work::Sums(Matrix::new(&sums.iter().map(row).collect::<Vec<_>>(), plan.reads.len()))
            }
            Making::Encode => Work::Encode(plan.to.build_with_tier(tier)?),
        };
        Ok(Self { reads: plan.reads.len(), writes: plan.writes.len(), tier, work })
    }

    /// Makes `written[i]`, the chunk `plan.writes[i]`, of `fetched[j]`, the chunks `plan.reads[j]`. All are equally
    /// long: whole chunks or equal parts of them and, if the new code has alpha sub-chunks, one tile of
    /// `alpha * sub_bytes`.
    ///
    /// # Panics
    /// If a count or a length is not as said.
    pub fn apply(&self, fetched: &[&[u8]], written: &mut [&mut [u8]]) {
        assert_eq!(fetched.len(), self.reads, "one buffer for each read");
        assert_eq!(written.len(), self.writes, "one buffer for each write");
        match &self.work {
            Work::Sums(sums) => sums.combine(self.tier, fetched, written),
            Work::Encode(code) => {
                let shape = code.shape();
                let stripes = fetched.chunks(shape.data.into()).zip(written.chunks_mut(shape.parity.into()));
                stripes.for_each(|(data, parity)| code.encode(data, parity));
            }
        }
    }
}
