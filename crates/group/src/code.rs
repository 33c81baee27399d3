//! The code of a disk's groups: Reed-Solomon over sectors, or none.
//!
//! Invariants:
//! 1. Data that is not there counts as zeros, so one code serves groups of any size up to k.
//! 2. Without parity nothing is encoded and nothing can be decoded.

use std::sync::Arc;

use claystone_code::{ChunkIndex, CodeSpec, ErasureCode, ReadCosts};
use claystone_env::SECTOR_BYTES;
use thiserror::Error;

use crate::{GroupShape, SUMS_PER_SECTOR};

/// There is no such code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "no code for groups of {data} data and {parity} parity sectors: 1 to {} data, {} together",
    GroupCode::DATA_MAX,
    GroupCode::SECTORS_MAX
)]
pub struct GroupCodeError {
    /// Data sectors asked for.
    pub data: u32,
    /// Parity sectors asked for.
    pub parity: u32,
}

/// `rs:k+m` over sectors. Cheap to clone.
#[derive(Debug, Clone)]
pub struct GroupCode {
    shape: GroupShape,
    code: Option<Arc<dyn ErasureCode>>,
}

impl GroupCode {
    /// The most data sectors of a group: those of a sums sector.
    pub const DATA_MAX: u32 = SUMS_PER_SECTOR as u32;
    /// The most sectors of a group.
    pub const SECTORS_MAX: u32 = 1023;

    /// The code of `data` data sectors, k, and `parity` parity sectors, m, possibly none.
    ///
    /// # Errors
    /// There is no such code.
    pub fn new(data: u32, parity: u32) -> Result<GroupCode, GroupCodeError> {
        let error = GroupCodeError { data, parity };
        let fits = (1..=Self::DATA_MAX).contains(&data) && parity <= Self::SECTORS_MAX - data;
        if !fits {
            return Err(error);
        }
        let spec = CodeSpec::ReedSolomon { data: data as u16, parity: parity as u16 };
        let code = (parity > 0).then(|| spec.build()).transpose().map_err(|_| error)?;
        Ok(GroupCode { shape: GroupShape { data, parity }, code })
    }

    /// Its data and parity sectors.
    pub fn shape(&self) -> GroupShape {
        self.shape
    }

    /// Makes the parity of `data`, sectors from position 0 on, at most k.
    ///
    /// # Panics
    /// If there are more, or `parity` is not m sectors.
    pub fn encode(&self, data: &[&[u8]], parity: &mut [u8]) {
        match &self.code {
            Some(code) if data.len() == self.shape.data as usize => {
                self.assert_parity(parity);
                code.encode(data, &mut sectors_mut(parity));
            }
            _ => {
                parity.fill(0);
                self.encode_add(0, data, parity);
            }
        }
    }

    /// Adds to `parity` what the data sectors at `first` and on contribute to it: of new positions their data, of others
    /// what changed (old XOR new).
    ///
    /// # Panics
    /// If there are no such positions, or `parity` is not m sectors.
    // Source: [lec §4.3]
    pub fn encode_add(&self, first: u32, data: &[&[u8]], parity: &mut [u8]) {
        self.assert_parity(parity);
        assert!(first as usize + data.len() <= self.shape.data as usize, "{} sectors from {first}", data.len());
        if let (Some(code), false) = (&self.code, data.is_empty()) {
            code.encode_add(ChunkIndex(first as u16), data, &mut sectors_mut(parity));
        }
    }

    /// Computes the members `want` from k others; `members[z]` is data z or parity z - k, `None` if it is not there.
    /// `None` if fewer than k are there.
    ///
    /// # Panics
    /// If there is not an entry for each member.
    pub fn decode(&self, members: &[Option<&[u8]>], want: &[usize]) -> Option<Vec<u8>> {
        let code = self.code.as_ref()?;
        assert_eq!(members.len(), (self.shape.data + self.shape.parity) as usize, "one entry a member");
        let costs: Vec<Option<u32>> = members.iter().map(|member| member.map(|_| 1)).collect();
        let want: Vec<ChunkIndex> = want.iter().map(|at| ChunkIndex(*at as u16)).collect();
        let sub_bytes = SECTOR_BYTES as u32 / code.shape().alpha;
        let costs = ReadCosts { chunks: &costs, sub_bytes, granule: SECTOR_BYTES as u32 };
        let plan = code.plan_read(&want, &costs).ok()?;
        let fetched: Vec<&[u8]> =
            plan.reads.iter().map(|read| members[read.chunk.at()].expect("only what is there is read")).collect();
        let mut out = vec![0; want.len() * SECTOR_BYTES];
        code.recover(&plan, &fetched, &mut sectors_mut(&mut out));
        Some(out)
    }

    /// The members that are wrong, if as many others as it takes agree on it: none of a codeword. `members` as in
    /// `decode`, more than k there.
    pub(crate) fn locate(&self, members: &[Option<&[u8]>]) -> Option<Vec<usize>> {
        let wrong = self.code.as_ref()?.locate(members).ok()?;
        Some(wrong.into_iter().map(ChunkIndex::at).collect())
    }

    fn assert_parity(&self, parity: &[u8]) {
        assert_eq!(parity.len(), self.shape.parity as usize * SECTOR_BYTES, "{} parity sectors", self.shape.parity);
    }
}

fn sectors_mut(bytes: &mut [u8]) -> Vec<&mut [u8]> {
    bytes.chunks_exact_mut(SECTOR_BYTES).collect()
}

/// What counts as the data that is not there.
pub(crate) static ZEROS: [u8; SECTOR_BYTES] = [0; SECTOR_BYTES];

#[cfg(test)]
mod tests {
    use claystone_env::testing::sector_pattern;

    use super::{GroupCode, ZEROS};

    fn sectors(bytes: &[u8]) -> Vec<&[u8]> {
        bytes.chunks_exact(4096).collect()
    }

    #[test]
    fn sizes_are_bounded() {
        for (data, parity) in [(0, 3), (1021, 0), (1020, 4), (1, 1023), (u32::MAX, 1), (1, u32::MAX)] {
            assert!(GroupCode::new(data, parity).is_err(), "{data}+{parity}");
        }
        for (data, parity) in [(1, 0), (1, 1), (250, 5), (1020, 3), (1020, 0), (1004, 19), (959, 64)] {
            assert!(GroupCode::new(data, parity).is_ok(), "{data}+{parity}");
        }
    }

    #[test]
    fn without_parity_nothing_is_made_and_nothing_decoded() {
        let code = GroupCode::new(4, 0).expect("a code");
        let data = sector_pattern(1, 4);
        code.encode(&sectors(&data), &mut []);
        code.encode_add(2, &sectors(&data)[..2], &mut []);
        assert_eq!(code.decode(&[Some(&data[..4096]), None, None, None], &[1]), None);
    }

    #[test]
    fn short_data_is_encoded_as_if_zeros_followed() {
        for (k, m) in [(250, 5), (1014, 9)] {
            let code = GroupCode::new(k, m).expect("a code");
            let data = sector_pattern(2, 7);
            let mut whole = sectors(&data);
            whole.resize(k as usize, &ZEROS);
            let (mut short, mut long) = (vec![1; m as usize * 4096], vec![2; m as usize * 4096]);
            code.encode(&sectors(&data), &mut short);
            code.encode(&whole, &mut long);
            assert!(short == long, "{k}+{m}");
            let mut members: Vec<Option<&[u8]>> = whole.iter().copied().map(Some).collect();
            members.extend(long.chunks_exact(4096).map(Some));
            members[3] = None;
            members[6] = None;
            let decoded = code.decode(&members, &[6, 3]).expect("two losses");
            assert!(decoded == [&data[6 * 4096..7 * 4096], &data[3 * 4096..4 * 4096]].concat());
        }
    }
}
