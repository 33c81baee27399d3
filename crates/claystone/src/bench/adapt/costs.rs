//! What the codes' own plans ask for, each made once: reads around missing chunks, and conversions.

use std::collections::BTreeMap;
use std::sync::Arc;

use claystone_code::{
    ChunkIndex, CodeSpec, ConversionGoal, ConversionPlan, ErasureCode, NoConversion, ReadCosts, SpecError,
    plan_conversion,
};
use claystone_stripe::sub_bytes_for;

/// A chunk that is read, and the share of its bytes that is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    /// Which.
    pub chunk: ChunkIndex,
    /// 1: all of it.
    pub share: f64,
}

/// A code, chunks that are wanted, chunks that are missing.
type Asked = (CodeSpec, Vec<ChunkIndex>, Vec<ChunkIndex>);

/// Plans that were asked for before.
#[derive(Debug, Default)]
pub struct Costs {
    codes: BTreeMap<CodeSpec, Arc<dyn ErasureCode>>,
    /// `None`: nothing does.
    reads: BTreeMap<Asked, Option<Arc<[Part]>>>,
    conversions: BTreeMap<(CodeSpec, CodeSpec), Arc<ConversionPlan>>,
}

impl Costs {
    /// What the code reads for the chunks `want` while those of `missing` cannot be read, both ascending; `None`: they cannot
    /// be recovered.
    ///
    /// # Errors
    /// The code is none.
    pub fn read(
        &mut self,
        code: CodeSpec,
        want: &[ChunkIndex],
        missing: &[ChunkIndex],
    ) -> Result<Option<Arc<[Part]>>, SpecError> {
        let key = (code, want.to_vec(), missing.to_vec());
        if let Some(known) = self.reads.get(&key) {
            return Ok(known.clone());
        }
        let built = match self.codes.get(&code) {
            Some(built) => built.clone(),
            None => self.codes.entry(code).or_insert(code.build()?).clone(),
        };
        let mut chunks: Vec<Option<u32>> = vec![Some(1); code.shape().chunks().into()];
        missing.iter().for_each(|chunk| chunks[chunk.at()] = None);
        let costs = ReadCosts { chunks: &chunks, sub_bytes: sub_bytes_for(code), granule: GRANULE_BYTES };
        let parts = built.plan_read(want, &costs).ok().map(|plan| {
            let share = |total: u64| total as f64 / f64::from(plan.alpha);
            let part =
                |read: &claystone_code::ChunkRead| Part { chunk: read.chunk, share: share(read.sub_chunks_total()) };
            plan.reads.iter().map(part).collect()
        });
        self.reads.insert(key, parts.clone());
        Ok(parts)
    }

    /// The conversion that upkeep carries out.
    ///
    /// # Errors
    /// There is none.
    pub fn conversion(&mut self, from: CodeSpec, to: CodeSpec) -> Result<Arc<ConversionPlan>, NoConversion> {
        if let Some(known) = self.conversions.get(&(from, to)) {
            return Ok(known.clone());
        }
        let plan = Arc::new(plan_conversion(from, to, ConversionGoal::FewestReads)?);
        self.conversions.insert((from, to), plan.clone());
        Ok(plan)
    }
}

/// What a disk reads at least.
const GRANULE_BYTES: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_the_code_plans() {
        let mut costs = Costs::default();
        let mut read = |code: &str, missing: &[u16]| {
            let missing: Vec<ChunkIndex> = missing.iter().copied().map(ChunkIndex).collect();
            let parts = costs.read(code.parse().expect("valid"), &missing[..1], &missing).expect("a code");
            parts.map(|parts| parts.iter().map(|part| part.share).sum::<f64>())
        };
        assert_eq!(read("pc:2x5", &[0]), Some(2.0));
        assert_eq!(read("pc:6x5", &[0]), Some(5.0));
        assert_eq!(read("lrc:12+2+2", &[0]), Some(6.0));
        assert_eq!(read("clay:6+2:7", &[0]), Some(3.5));
        assert_eq!(read("clay:6+2:7", &[0, 1]), Some(6.0));
        assert_eq!(read("mirror:6x3", &[0]), Some(1.0));
        assert_eq!(read("rs:6+3", &[0, 1, 2, 3]), None);
    }
}
