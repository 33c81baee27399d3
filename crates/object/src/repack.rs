//! Writes packs anew that hold little: short ones, because few bodies came at once, and those whose contents were deleted.
//!
//! Invariants:
//! 1. The plan is a pure function; the executor makes no choice.
//! 2. Contents name their new place in one transaction, after all bytes are there. A content that went away or moved
//!    meanwhile stays as it is.
//! 3. A body is copied a bounded number of times: a new pack holds [`GROWTH`] times what the longest of the old ones did,
//!    or half of what a pack can hold, or gives back as much as it holds.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use claystone_chunk::ByteRange;
use claystone_code::CodeSpec;
use claystone_meta::{Pack, PackedPart, Repack, Span};
use claystone_stripe::Claim;

use crate::ObjectError;
use crate::objects::Objects;
use crate::packs::Hold;

/// What one step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RepackRound {
    /// Packs that contents left.
    pub packs: u64,
    /// Contents that moved.
    pub parts: u64,
    /// Bytes of packs that were written.
    pub bytes_written: u64,
}

/// Which thin packs become one, by code and then by what they hold. `packs` are ordered by code and then by their live
/// bytes; a pack holds at most `pack_bytes_max(code)`.
pub(crate) fn plan_repacks(packs: &[Pack], pack_bytes_max: impl Fn(CodeSpec) -> u64) -> Vec<Vec<Pack>> {
    let mut groups = Vec::new();
    for packs in packs.chunk_by(|a, b| a.wanted == b.wanted) {
        let bytes_max = pack_bytes_max(packs[0].wanted);
        let mut left = packs;
        while let Some(taken) = worthwhile(left, bytes_max) {
            groups.push(left[..taken].to_vec());
            left = &left[taken..];
        }
    }
    groups
}

/// How many of the first packs are worth to be written anew as one: as many as possible.
fn worthwhile(packs: &[Pack], bytes_max: u64) -> Option<usize> {
    let (mut live, mut held, mut found) = (0, 0, None);
    for (at, pack) in packs.iter().enumerate() {
        live += pack.live_bytes;
        held += pack.stripe.data_bytes;
        if live > bytes_max {
            break;
        }
        let grows = at > 0 && (live >= GROWTH * pack.live_bytes || 2 * live >= bytes_max);
        if grows || held >= 2 * live {
            found = Some(at + 1);
        }
    }
    found
}

impl Objects {
    /// Writes thin packs anew, as many as are worth it now.
    ///
    /// # Errors
    /// As [`Objects::put`]; what is done by then is done.
    pub async fn repack_once(&self) -> Result<RepackRound, ObjectError> {
        let bytes_max = self.pack_bytes_max(self.settings.code);
        let thin = self.meta.thin_packs(bytes_max / 2, THIN_MAX).await?;
        let mut round = RepackRound::default();
        for group in plan_repacks(&thin, |code| self.pack_bytes_max(code)) {
            let began = self.env.clock.now();
            let claims: Vec<Claim> = group.iter().map(|pack| self.stripes.claim_record(&pack.stripe)).collect();
            let done = self.repack(&group).await?;
            drop(claims);
            round.packs += done.packs;
            round.parts += done.parts;
            round.bytes_written += done.bytes_written;
            self.env.clock.sleep(self.env.clock.now().since(began) * REST).await;
        }
        Ok(round)
    }

    /// Repacks for ever, at a part of the time.
    pub async fn repack_loop(self) {
        loop {
            self.env.clock.sleep(REPACK_EVERY).await;
            match self.repack_once().await {
                Ok(RepackRound { packs: 0, .. }) => {}
                Ok(round) => tracing::debug!(?round, "packs were written anew"),
                Err(error) => {
                    tracing::warn!(%error, "packs could not be written anew; tried again in {REPACK_EVERY:?}")
                }
            }
        }
    }

    async fn repack(&self, group: &[Pack]) -> Result<RepackRound, ObjectError> {
        let mut bodies = Vec::new();
        for pack in group {
            self.read_parts(pack, &mut bodies).await?;
        }
        // By age, so that what was written together lies together.
        bodies.sort_by_key(|(part, _)| (part.content, part.position));
        let (parts, bodies): (Vec<PackedPart>, Vec<Bytes>) = bodies.into_iter().unzip();
        if parts.is_empty() {
            return Ok(RepackRound::default());
        }
        let wanted = group[0].wanted;
        let (pack, claim) = self.write_pack(wanted, &bodies).await?;
        let hold = Hold::new(&self.env, &self.stripes, pack.clone(), claim);
        let mut offset = 0;
        let moves = parts.into_iter().map(|part| {
            offset += part.part.bytes;
            (part, offset - part.part.bytes)
        });
        let repack = Repack { wanted, moves: moves.collect(), pack };
        let bytes_written = repack.pack.data_bytes;
        match self.meta.repack(repack).await {
            // Nobody named it.
            Ok((0, _)) => Ok(RepackRound::default()),
            Ok((parts, dead)) => {
                hold.name();
                Ok(RepackRound { packs: dead.len() as u64, parts, bytes_written })
            }
            Err(error) => {
                // Nobody knows whether it happened; reclaim will, by the records.
                if matches!(error, claystone_meta::MetaError::Unavailable { .. }) {
                    hold.name();
                }
                Err(error.into())
            }
        }
    }

    /// The parts of a pack with their bytes, each band read at once from its first part to its last.
    async fn read_parts(&self, pack: &Pack, into: &mut Vec<(PackedPart, Bytes)>) -> Result<(), ObjectError> {
        let mut bands: BTreeMap<u16, Vec<PackedPart>> = BTreeMap::new();
        for part in self.meta.packed_parts(pack.stripe.id).await? {
            bands.entry(part.band).or_default().push(part);
        }
        for (band, parts) in bands {
            let first = parts.iter().map(|part| part.part.offset).min().unwrap_or_default();
            let end = parts.iter().map(|part| part.part.end()).max().unwrap_or_default();
            let span = Span { stripe: pack.stripe.clone(), band, part: None };
            let mut reader = self.stripes.span_reader(&span, ByteRange { offset: first, bytes: end - first });
            let mut bytes = BytesMut::new();
            while let Some(piece) = reader.next().await? {
                bytes.extend_from_slice(&piece);
            }
            let bytes = bytes.freeze();
            into.extend(parts.into_iter().map(|part| {
                let at = (part.part.offset - first) as usize;
                (part, bytes.slice(at..at + part.part.bytes as usize))
            }));
        }
        Ok(())
    }
}

/// How much longer a new pack is than the longest that went into it, unless it is long enough or much is given back.
const GROWTH: u64 = 4;
const THIN_MAX: usize = 4096;
const REPACK_EVERY: Duration = Duration::from_secs(30);
/// How many times as long as it worked it rests.
const REST: u32 = 4;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap as Map;

    use claystone_chunk::StripeId;
    use claystone_meta::StripeRecord;

    use super::*;

    const MAX: u64 = 1000;

    /// Packs of one code: bytes that are named, and bytes held.
    fn packs(sizes: &[(u64, u64)]) -> Vec<Pack> {
        let wanted: CodeSpec = "rs:4+2".parse().expect("valid");
        let pack = |(at, &(live_bytes, data_bytes)): (usize, &(u64, u64))| {
            let id = StripeId(at as u128);
            let (bands, places, origins) = (Vec::new(), Vec::new(), Map::new());
            let (code, sub_bytes, revision, verified) = (wanted, 4096, 0, None);
            let stripe = StripeRecord { id, code, data_bytes, bands, sub_bytes, places, origins, revision, verified };
            Pack { stripe, live_bytes, wanted }
        };
        sizes.iter().enumerate().map(pack).collect()
    }

    fn plan(sizes: &[(u64, u64)]) -> Vec<usize> {
        plan_repacks(&packs(sizes), |_| MAX).iter().map(Vec::len).collect()
    }

    #[test]
    fn packs_are_written_anew_when_they_grow_or_give_back_enough() {
        let full = |bytes: &[u64]| bytes.iter().map(|&bytes| (bytes, bytes)).collect::<Vec<_>>();
        let nothing: [usize; 0] = [];
        assert_eq!(plan(&[]), nothing);
        assert_eq!(plan(&full(&[10])), nothing, "nothing changes");
        assert_eq!(plan(&full(&[10, 10, 10])), nothing, "three times as long is too little");
        assert_eq!(plan(&full(&[10, 10, 10, 10])), [4]);
        assert_eq!(plan(&full(&[10, 10, 10, 10, 300])), [4], "the long one is left for later");
        assert_eq!(plan(&full(&[300, 300])), [2], "half of a whole pack is enough");
        assert_eq!(plan(&full(&[400, 400, 400, 400, 400])), [2, 2], "no more than a whole pack each");
        assert_eq!(plan(&[(10, 20)]), [1], "half of it is given back");
        assert_eq!(plan(&[(10, 19)]), nothing);
    }

    /// Bodies that come one by one, each a pack, planned after each: all of them are in few packs, and none was copied often.
    #[test]
    fn a_body_is_copied_a_few_times() {
        let mut sizes: Vec<u64> = Vec::new();
        let mut written = 0;
        for body in std::iter::repeat_n(2, 1000) {
            sizes.push(body);
            loop {
                sizes.sort_unstable();
                let thin: Vec<(u64, u64)> = sizes.iter().filter(|&&b| b < MAX / 2).map(|&b| (b, b)).collect();
                let Some(&first) = plan(&thin).first() else { break };
                let merged: u64 = sizes.drain(..first).sum();
                written += merged;
                sizes.push(merged);
            }
        }
        assert_eq!(sizes.iter().sum::<u64>(), 2000);
        assert!(sizes.len() <= 20, "{sizes:?}");
        assert!(written <= 6 * 2000, "{written} bytes for 2000");
    }
}
