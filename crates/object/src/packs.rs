//! Packs: small bodies share stripes.
//!
//! ```text
//! waiting --> written --> named
//!    |           |
//!    |           +-- nobody names it: its chunks are deleted
//!    +-- caller went away, or the pack could not be written: each that waits is tried alone
//! ```
//!
//! | state | what holds |
//! | --- | --- |
//! | waiting | the body is in memory, its caller waits; one pack at a time is written for a code, all that wait go into the next |
//! | written | the stripe is as durable as asked; a claim that all of its callers share keeps reclaim away |
//! | named | a transaction names one part of it or more; what it named is a content as any other |
//!
//! Invariants:
//! 1. A body waits for no other: where no pack of its code is being written, it is one by itself.
//! 2. The claim on a pack is held until each of its callers is done, so its record is not forgotten while somebody may name
//!    it for the first time.
//! 3. A pack is deleted here only if every transaction that was to name it is known not to have happened.
//! 4. Packs that are to be merged lie in lanes, and end with zeros that nobody names, so that few lengths of chunks are in use, as all
//!    fast stripes do. If more bodies wait than go in, they are whole rows.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use claystone_chunk::{ByteRange, Durability, StripeId};
use claystone_code::CodeSpec;
use claystone_env::{Env, Moment};
use claystone_meta::{HeatPolicy, NewPart, StripeRecord};
use claystone_stripe::{Claim, Family, Layout, Stripes};
use tokio::sync::oneshot;

use crate::objects::Objects;
use crate::policy::{padded_bytes, row_bytes};
use crate::{ObjectError, fit_code};

/// Longer bodies get stripes of their own: at this length chunks of `rs:4+2` are 16 KiB, and what a file costs beside its
/// bytes is little against that.
pub const PACKED_BYTES_MAX: u64 = 64 << 10;
/// The longest pack.
pub(crate) const PACK_BYTES_MAX: u64 = 4 << 20;
/// Bodies in a pack at most: a repack names each anew in one transaction, for which all others wait.
pub(crate) const PACK_PARTS_MAX: usize = 1024;

/// What bodies that go into one pack have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kind {
    /// The code that they are to have.
    pub(crate) wanted: CodeSpec,
    /// What packs of this code are merged into.
    family: Option<Family>,
}

impl Kind {
    /// Bodies that are to have the code `wanted`, in a bucket with this policy.
    pub(crate) fn new(wanted: CodeSpec, policy: Option<HeatPolicy>) -> Kind {
        let family = policy.map(|HeatPolicy { fast, compact, .. }| Family { fast, compact });
        Kind { wanted, family: family.filter(|family| family.fast == wanted) }
    }
}

/// Bodies that wait, by kind. An entry is there while packs of its kind are being written.
#[derive(Clone, Default)]
pub(crate) struct Packer {
    waiting: Arc<Mutex<BTreeMap<Kind, VecDeque<Waiting>>>>,
    /// Packs (stripe and band) that could not be read when they were to be written anew, and when that is tried again.
    pub(crate) unreadable: Arc<Mutex<BTreeMap<(StripeId, u16), Moment>>>,
}

struct Waiting {
    bytes: Bytes,
    reply: oneshot::Sender<Result<Packed, ObjectError>>,
}

/// A body in a pack.
pub(crate) struct Packed {
    pub(crate) kind: Kind,
    pub(crate) new: NewPart,
    /// Its share of the pack's chunks, by bytes.
    pub(crate) chunks_bytes: u64,
    pub(crate) hold: Arc<Hold>,
}

/// Held by all whose bodies are in a pack, until they are done.
pub(crate) struct Hold {
    env: Env,
    stripes: Stripes,
    /// The pack; taken when it is deleted.
    pack: Mutex<Option<(StripeRecord, Claim)>>,
    /// Transactions that named it, or may have: begun and not refused.
    named: AtomicUsize,
}

impl Packer {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Kind, VecDeque<Waiting>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a body. Returns whether nobody writes packs of its kind.
    fn add(&self, kind: Kind, waiting: Waiting) -> bool {
        let mut all = self.lock();
        let begins = !all.contains_key(&kind);
        all.entry(kind).or_default().push_back(waiting);
        begins
    }

    /// The bodies of the next pack; ends the writing if there are none.
    fn take(&self, kind: Kind, bytes_max: u64) -> Vec<Waiting> {
        let mut all = self.lock();
        let Some(of_kind) = all.get_mut(&kind) else { return Vec::new() };
        of_kind.retain(|waiting| !waiting.reply.is_closed());
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(next) = of_kind.front() {
            let with_next = bytes + next.bytes.len() as u64;
            if (with_next > bytes_max && !batch.is_empty()) || batch.len() == PACK_PARTS_MAX {
                break;
            }
            bytes = with_next;
            batch.extend(of_kind.pop_front());
        }
        // More wait than go in: what is behind the last whole row goes into the next.
        if let Some(family) = kind.family.filter(|_| !of_kind.is_empty()) {
            let whole = bytes - bytes % row_bytes(family.fast);
            while whole > 0
                && bytes > whole
                && let Some(last) = batch.pop()
            {
                bytes -= last.bytes.len() as u64;
                of_kind.push_front(last);
            }
        }
        if batch.is_empty() {
            all.remove(&kind);
        }
        batch
    }
}

/// Ends the writing of packs of a kind: when the task that writes them does not come to its end, who waits must not wait
/// for ever.
struct Writing {
    packer: Packer,
    kind: Kind,
    /// Its entry is gone already, and another may have begun.
    ended: bool,
}

impl Drop for Writing {
    fn drop(&mut self) {
        if !self.ended {
            self.packer.lock().remove(&self.kind);
        }
    }
}

impl Hold {
    pub(crate) fn new(env: &Env, stripes: &Stripes, pack: StripeRecord, claim: Claim) -> Hold {
        let (env, stripes) = (env.clone(), stripes.clone());
        Hold { env, stripes, pack: Mutex::new(Some((pack, claim))), named: AtomicUsize::new(0) }
    }

    /// A transaction that names the pack is about to begin. If nobody hears how it ended, reclaim finds out by the records.
    pub(crate) fn name(&self) {
        self.named.fetch_add(1, Ordering::AcqRel);
    }

    /// That transaction did not happen.
    pub(crate) fn refused(&self) {
        self.named.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let pack = self.pack.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((pack, claim)) = pack.filter(|_| self.named.load(Ordering::Acquire) == 0) else { return };
        let stripes = self.stripes.clone();
        let discard = async move {
            stripes.discard(&pack).await;
            drop(claim);
        };
        self.env.tasks.spawn("abandon", Box::pin(discard));
    }
}

impl Objects {
    /// Whether a body of so many bytes goes into a pack.
    pub(crate) fn packs(&self, wanted: CodeSpec, bytes: u64) -> bool {
        (1..=PACKED_BYTES_MAX.min(self.pack_bytes_max(wanted))).contains(&bytes)
    }

    /// The longest pack under this code.
    pub(crate) fn pack_bytes_max(&self, wanted: CodeSpec) -> u64 {
        PACK_BYTES_MAX.min(self.stripes.data_bytes_max(wanted))
    }

    /// Writes a body into a pack with others.
    pub(crate) async fn pack(&self, kind: Kind, bytes: Bytes) -> Result<Packed, ObjectError> {
        let (reply, answer) = oneshot::channel();
        if self.packer.add(kind, Waiting { bytes, reply }) {
            // Made here: the task may end before it ever runs.
            let writing = Writing { packer: self.packer.clone(), kind, ended: false };
            self.env.tasks.spawn("pack", Box::pin(self.clone().write_packs(writing)));
        }
        answer.await.map_err(|_| ObjectError::ShuttingDown)?
    }

    async fn write_packs(self, mut writing: Writing) {
        let kind = writing.kind;
        loop {
            let mut batch = self.packer.take(kind, self.pack_bytes_max(kind.wanted));
            let alone = if batch.len() == 1 { batch.pop() } else { None };
            if let Some(alone) = alone {
                self.write_alone(kind, alone).await;
            } else if batch.is_empty() {
                writing.ended = true;
                return;
            } else {
                let bodies: Vec<Bytes> = batch.iter().map(|waiting| waiting.bytes.clone()).collect();
                match self.write_pack(kind, &bodies, self.settings.durability).await {
                    Ok(written) => self.hand_out(kind, written, batch),
                    Err(_) => {
                        let alone = batch.into_iter().map(|waiting| self.write_alone(kind, waiting));
                        futures::future::join_all(alone).await;
                    }
                }
            }
        }
    }

    async fn write_alone(&self, kind: Kind, waiting: Waiting) {
        match self.write_pack(kind, std::slice::from_ref(&waiting.bytes), self.settings.durability).await {
            Ok(written) => self.hand_out(kind, written, vec![waiting]),
            Err(error) => {
                // A caller that went away needs no answer.
                let _ = waiting.reply.send(Err(error));
            }
        }
    }

    /// Writes bodies one behind the other into one stripe.
    pub(crate) async fn write_pack(
        &self,
        Kind { wanted, family }: Kind,
        bodies: &[Bytes],
        durability: Durability,
    ) -> Result<(StripeRecord, Claim), ObjectError> {
        let bytes = bodies.iter().map(|body| body.len() as u64).sum();
        let code = fit_code(wanted, bytes, self.stripes.stores().candidates().len());
        let code = code.ok_or_else(|| self.too_few_disks(wanted))?;
        let mut writer = match family.filter(|family| family.fast == code) {
            Some(family) => {
                let bytes = padded_bytes(family.fast, family.compact, bytes);
                self.stripes.writer_in_lane(code, family, bytes, durability).await?
            }
            None => self.stripes.writer(code, bytes, durability).await?,
        };
        for body in bodies {
            writer.append(body).await?;
        }
        writer.append(&vec![0; writer.bytes_left() as usize]).await?;
        Ok(writer.finish().await?)
    }

    fn hand_out(&self, kind: Kind, (pack, claim): (StripeRecord, Claim), batch: Vec<Waiting>) {
        let hold = Arc::new(Hold::new(&self.env, &self.stripes, pack.clone(), claim));
        let bytes: u64 = batch.iter().map(|waiting| waiting.bytes.len() as u64).sum();
        let chunks_bytes = pack.places.len() as u64 * Layout::chunk_bytes_of(&pack).unwrap_or(0);
        let mut offset = 0;
        for Waiting { bytes: body, reply } in batch {
            let part = ByteRange { offset, bytes: body.len() as u64 };
            offset = part.end();
            // What a caller that went away has in the pack is lost space until the pack is written anew.
            let new = NewPart { pack: pack.clone(), wanted: kind.wanted, part };
            let chunks_bytes = chunks_bytes * part.bytes / bytes.max(1);
            let _ = reply.send(Ok(Packed { kind, new, chunks_bytes, hold: hold.clone() }));
        }
    }
}
