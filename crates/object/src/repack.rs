//! Writes packs anew that hold little: short ones, because few bodies came at once, and those whose contents were deleted.
//!
//! Invariants:
//! 1. The plan is a pure function; the executor makes no choice.
//! 2. Contents name their new place in one transaction, after all bytes are there. A content that went away or moved
//!    meanwhile stays as it is.
//! 3. What it replaces is given up only for a pack that is synced, was read back, and lacks no chunk.
//! 4. A pack that cannot be read, or a code that cannot be written, keeps no other from being written anew.
//! 5. Of a merged stripe a band is written anew only if that gives back space: it is all that is left in the stripe, or a policy splits
//!    off what holds nothing.
//! 6. A body is copied a bounded number of times: a new pack holds [`GROWTH`] times what the longest of the old ones did,
//!    or half of what a pack can hold, or gives back as much as it holds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use claystone_chunk::{ByteRange, Durability, StripeId};
use claystone_code::CodeSpec;
use claystone_meta::{HeatPolicy, Held, MetaError, Pack, PackedPart, Repack, Span, StripeRecord};
use claystone_stripe::{Claim, Unpaced};

use crate::ObjectError;
use crate::objects::Objects;
use crate::packs::{Hold, Kind, PACK_PARTS_MAX};

/// What one step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RepackRound {
    /// Stripes that no content is left in. What is left empty of a merged one goes when a policy splits it.
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

/// Leaves out bands of merged stripes of which no space would come back. `living` are the bands of each merged stripe that anything
/// names.
fn without_idle_bands(packs: Vec<Pack>, living: &BTreeMap<StripeId, u16>, policies: &[HeatPolicy]) -> Vec<Pack> {
    let mut thin: BTreeMap<StripeId, u16> = BTreeMap::new();
    packs.iter().for_each(|pack| *thin.entry(pack.stripe.id).or_default() += 1);
    let gives_back = |pack: &Pack| {
        let StripeRecord { id, code, ref bands, .. } = pack.stripe;
        // Of one that went away meanwhile nothing is left.
        let left = living.get(&id).copied().unwrap_or(0).saturating_sub(thin[&id]);
        let splits = |policy: &HeatPolicy| policy.compact == code && policy.splits_with(left);
        bands.is_empty() || left == 0 || policies.iter().any(splits)
    };
    packs.into_iter().filter(gives_back).collect()
}

/// How many of the first packs are worth to be written anew as one: as many as possible.
fn worthwhile(packs: &[Pack], bytes_max: u64) -> Option<usize> {
    let (mut live, mut held, mut parts, mut found) = (0, 0, 0, None);
    for (at, pack) in packs.iter().enumerate() {
        live += pack.live_bytes;
        held += pack.data_bytes();
        parts += pack.parts;
        if live > bytes_max || parts > PACK_PARTS_MAX as u64 {
            break;
        }
        let grows = at > 0 && (live >= GROWTH * pack.live_bytes || 2 * live >= bytes_max);
        if grows || held >= 2 * live {
            found = Some(at + 1);
        }
    }
    found
}

/// The stretches to be read of a band for these parts, in the order in which they lie, and how many parts are in each.
/// Parts with little between them are read as one.
fn stretches(parts: &[PackedPart]) -> Vec<(ByteRange, usize)> {
    let mut stretches: Vec<(ByteRange, usize)> = Vec::new();
    for part in parts {
        match stretches.last_mut() {
            Some((stretch, count))
                if part.part.offset <= stretch.end() + GAP_BYTES_MAX
                    && part.part.end() - stretch.offset <= STRETCH_BYTES_MAX =>
            {
                stretch.bytes = stretch.end().max(part.part.end()) - stretch.offset;
                *count += 1;
            }
            _ => stretches.push((part.part, 1)),
        }
    }
    stretches
}

impl Objects {
    /// Writes thin packs anew, as many as are worth it now. Packs that cannot be read, and codes that cannot be written, are
    /// left for later.
    ///
    /// # Errors
    /// `Meta`; what is done by then is done.
    pub async fn repack_once(&self) -> Result<RepackRound, ObjectError> {
        let now = self.env.clock.now();
        let unreadable: BTreeSet<(StripeId, u16)> = {
            let mut unreadable = self.packer.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
            unreadable.retain(|_, until| now < *until);
            unreadable.keys().copied().collect()
        };
        let bytes_max = self.pack_bytes_max(self.settings.code);
        // Whose objects lie in a pack is not known here: of buckets that have its code, the first decides, as elsewhere.
        let buckets = self.meta.buckets().await?;
        let policies: Vec<HeatPolicy> = buckets.into_iter().filter_map(|bucket| bucket.policy).collect();
        // As many more as are left out, so that these hide no others.
        let mut left_out = 0;
        let thin = loop {
            let found = self.meta.thin_packs(bytes_max / 2, THIN_MAX + left_out).await?;
            let count = found.len();
            let mut thin = found;
            thin.retain(|pack| !unreadable.contains(&(pack.stripe.id, pack.band)));
            let thin = self.worth_moving(thin, &policies).await?;
            let more = count - thin.len();
            if count < THIN_MAX + left_out || more <= left_out || more > LEFT_OUT_MAX {
                break thin;
            }
            left_out = more;
        };
        let mut round = RepackRound::default();
        let mut unwritable: BTreeSet<CodeSpec> = BTreeSet::new();
        for group in plan_repacks(&thin, |code| self.pack_bytes_max(code)) {
            let wanted = group[0].wanted;
            if unwritable.contains(&wanted) {
                continue;
            }
            let began = self.env.clock.now();
            let policy = policies.iter().find(|policy| policy.fast == wanted).copied();
            match self.repack(Kind::new(wanted, policy), &group).await {
                Ok(done) => {
                    round.packs += done.packs;
                    round.parts += done.parts;
                    round.bytes_written += done.bytes_written;
                }
                Err(ObjectError::Meta(error)) => return Err(error.into()),
                Err(error) => {
                    tracing::warn!(code = %wanted, %error, "thin packs could not be written anew");
                    unwritable.insert(wanted);
                }
            }
            self.env.clock.sleep(self.env.clock.now().since(began) * REST).await;
        }
        Ok(round)
    }

    /// Repacks for ever, at a part of the time.
    pub async fn repack_loop(self) {
        loop {
            match self.repack_once().await {
                Ok(RepackRound { parts: 0, .. }) => self.env.clock.sleep(REPACK_EVERY).await,
                Ok(round) => tracing::debug!(?round, "packs were written anew"),
                Err(error) => {
                    tracing::warn!(%error, "packs could not be written anew; tried again in {REPACK_EVERY:?}");
                    self.env.clock.sleep(REPACK_EVERY).await;
                }
            }
        }
    }

    /// Leaves out packs in merged stripes of which moving them would give back nothing.
    async fn worth_moving(&self, thin: Vec<Pack>, policies: &[HeatPolicy]) -> Result<Vec<Pack>, ObjectError> {
        let merged = thin.iter().filter(|pack| !pack.stripe.bands.is_empty()).map(|pack| pack.stripe.id);
        let merged: Vec<StripeId> = merged.collect::<BTreeSet<_>>().into_iter().collect();
        let mut living: BTreeMap<StripeId, u16> = BTreeMap::new();
        for ids in merged.chunks(NAMES_MAX) {
            let names = self.meta.names_of(ids).await?;
            living.extend(ids.iter().zip(names).map(|(id, names)| (*id, names.bands.len() as u16)));
        }
        Ok(without_idle_bands(thin, &living, policies))
    }

    async fn repack(&self, kind: Kind, group: &[Pack]) -> Result<RepackRound, ObjectError> {
        let _claims: Vec<Claim> = group.iter().map(|pack| self.stripes.claim_record(&pack.stripe)).collect();
        let mut bodies = Vec::new();
        for pack in group {
            match self.read_parts(pack).await {
                Ok(parts) => bodies.extend(parts),
                Err(ObjectError::Meta(error)) => return Err(error.into()),
                Err(error) => {
                    tracing::warn!(stripe = %pack.stripe.id, %error, "a thin pack cannot be read; tried again later");
                    let until = self.env.clock.now().after(UNREADABLE_FOR);
                    let mut unreadable = self.packer.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
                    unreadable.insert((pack.stripe.id, pack.band), until);
                }
            }
        }
        // By age, so that what was written together lies together.
        bodies.sort_by_key(|(part, _)| (part.content, part.position));
        let (parts, bodies): (Vec<PackedPart>, Vec<Bytes>) = bodies.into_iter().unzip();
        if parts.is_empty() {
            return Ok(RepackRound::default());
        }
        // What it replaces is durable, whatever is asked of new objects.
        let (pack, claim) = self.write_pack(kind, &bodies, Durability::Synced).await?;
        let hold = Hold::new(&self.env, &self.stripes, pack.clone(), claim);
        if !self.stripes.verify(&pack, &Unpaced).await.healthy() {
            return Err(ObjectError::NotVerified { stripe: pack.id.to_string() });
        }
        let mut offset = 0;
        let moves = parts.into_iter().map(|part| {
            offset += part.part.bytes;
            (part, offset - part.part.bytes)
        });
        let repack = Repack { wanted: kind.wanted, moves: moves.collect(), pack };
        let bytes_written = repack.pack.data_bytes;
        hold.name();
        let named = self.meta.repack(repack).await;
        match named {
            Ok((parts, dead)) if parts > 0 => Ok(RepackRound { packs: dead.len() as u64, parts, bytes_written }),
            // After `Unavailable` nobody knows whether it happened; reclaim will, by the records.
            Err(error @ MetaError::Unavailable { .. }) => Err(error.into()),
            refused => {
                hold.refused();
                Ok(refused.map(|_| RepackRound::default())?)
            }
        }
    }

    /// The parts of a pack with their bytes.
    async fn read_parts(&self, pack: &Pack) -> Result<Vec<(PackedPart, Bytes)>, ObjectError> {
        let all = self.meta.packed_parts(pack.stripe.id, pack.band).await?;
        let span = Span { stripe: pack.stripe.clone(), band: pack.band, held: Held::All };
        if all.iter().any(|part| part.part.end() > pack.data_bytes()) {
            return Err(ObjectError::Corrupt { what: format!("the parts of stripe {}", pack.stripe.id) });
        }
        let (mut bodies, mut parts) = (Vec::with_capacity(all.len()), &all[..]);
        for (stretch, count) in stretches(parts) {
            let mut reader = self.stripes.span_reader(&span, stretch);
            let mut bytes = BytesMut::with_capacity(stretch.bytes as usize);
            while let Some(piece) = reader.next().await? {
                bytes.extend_from_slice(&piece);
            }
            let (within, rest) = parts.split_at(count);
            bodies.extend(within.iter().map(|part| {
                let at = (part.part.offset - stretch.offset) as usize;
                // A copy, so that what lies between the parts is not held.
                (*part, Bytes::copy_from_slice(&bytes[at..at + part.part.bytes as usize]))
            }));
            parts = rest;
        }
        Ok(bodies)
    }
}

/// How much longer a new pack is than the longest that went into it, unless it is long enough or much is given back.
const GROWTH: u64 = 4;
/// Thin packs of one code that are looked at in a round.
const THIN_MAX: usize = 4096;
/// So many more are asked for at most because others are left out.
const LEFT_OUT_MAX: usize = 16 * THIN_MAX;
/// Stripes whose names are asked for at once.
const NAMES_MAX: usize = 256;
/// What lies between two parts is read with them if it is no longer than this: about what a read takes of itself.
const GAP_BYTES_MAX: u64 = 32 << 10;
const STRETCH_BYTES_MAX: u64 = 1 << 20;
/// How long a pack that cannot be read is left alone.
const UNREADABLE_FOR: Duration = Duration::from_secs(60 * 60);
const REPACK_EVERY: Duration = Duration::from_secs(30);
/// How many times as long as it worked it rests.
const REST: u32 = 4;

#[cfg(test)]
mod tests {
    use claystone_meta::Band;

    use super::*;

    const MAX: u64 = 1000;

    /// Packs of one code: bytes that are named, and bytes held.
    fn packs(sizes: &[(u64, u64)]) -> Vec<Pack> {
        let wanted: CodeSpec = "rs:4+2".parse().expect("valid");
        let pack = |(at, &(live_bytes, data_bytes)): (usize, &(u64, u64))| {
            let id = StripeId(at as u128);
            let (bands, places, origins) = (Vec::new(), Vec::new(), BTreeMap::new());
            let (code, sub_bytes, revision, verified) = (wanted, 4096, 0, None);
            let stripe = StripeRecord { id, code, data_bytes, bands, sub_bytes, places, origins, revision, verified };
            Pack { stripe, band: 0, live_bytes, parts: 1, wanted }
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

    /// Who moves what is left of a band gets its space back only with the stripe, or if upkeep splits that.
    #[test]
    fn bands_that_nobody_splits_off_stay_in_their_stripes() {
        let named = |name| HeatPolicy::named(name).expect("a preset");
        let (rsm, pc) = (named("rsm-6+3"), named("pc"));
        let merged = |policy: &HeatPolicy, band| {
            let bands = vec![Band { chunks: policy.fast.shape().data, data_bytes: 100 }; policy.sources().into()];
            let pack = packs(&[(10, 300)]).remove(0);
            let stripe = StripeRecord { code: policy.compact, bands, ..pack.stripe };
            Pack { stripe, band, ..pack }
        };
        let kept = |packs: Vec<Pack>, living: u16, policies: &[HeatPolicy]| {
            without_idle_bands(packs, &[(StripeId(0), living)].into(), policies).len()
        };
        let one = || vec![merged(&rsm, 0)];
        assert_eq!(kept(one(), 2, &[]), 0, "no policy");
        assert_eq!(kept(one(), 2, &[pc]), 0, "one of other codes");
        assert_eq!(kept(one(), 2, &[pc, rsm]), 1);
        assert_eq!(kept(one(), 1, &[]), 1, "nothing else is in the stripe");
        assert_eq!(kept(vec![merged(&rsm, 0), merged(&rsm, 1)], 2, &[]), 2, "both move");
        // Two of three product stripes take 36 chunks, the merged one 42.
        assert_eq!(kept(vec![merged(&pc, 2)], 3, &[pc]), 1);
        assert_eq!(kept(packs(&[(10, 20)]), 0, &[]), 1, "packs by themselves");
        // Three of four as they were take as much as the merged stripe: two go, or none.
        let wide: HeatPolicy = "rsm:2+1/rsm:8+1<=150%,0.25..1.00".parse().expect("valid");
        assert_eq!(kept(vec![merged(&wide, 0)], 4, &[wide]), 0);
        assert_eq!(kept(vec![merged(&wide, 0), merged(&wide, 3)], 4, &[wide]), 2);
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
