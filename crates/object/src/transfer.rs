//! Moves bytes between a body and stripes.
//!
//! Invariants:
//! 1. A body of another length than declared is refused before anything is committed.
//! 2. At most one batch of rows of one stripe, and one batch for the checksums, is held of a body that comes in; at
//!    most three windows of one that goes out.

use bytes::{Bytes, BytesMut};
use claystone_chunk::ByteRange;
use claystone_code::CodeSpec;
use claystone_env::{Env, WallTime};
use claystone_meta::{ContentId, HeatPolicy, NewContent, NewStripe};
use claystone_stripe::{Claim, Family, StripeError, StripeReader, StripeWriter, Stripes};
use futures::stream::{self, StreamExt};

use crate::digest::Digesting;
use crate::objects::{Body, Object, Objects};
use crate::packs::{Kind, Packed};
use crate::{Algorithm, BodyError, Cut, Digests, ObjectError, cut_to_merge, next_stripe};

/// A body that nobody names yet.
pub(crate) struct Stored {
    pub(crate) source: Source,
    pub(crate) digests: Digests,
}

/// Where the bytes of an object or part are before a transaction names them.
pub(crate) enum Source {
    /// In stripes of their own; none: there are no bytes.
    Stripes(Vec<(NewStripe, Claim)>),
    /// In a pack, and in memory too: the pack may come and go with the bytes of others.
    Pack { packed: Box<Packed>, bytes: Bytes },
    /// Where others have named them.
    Shared(ContentId),
}

impl Source {
    pub(crate) fn content(&self) -> NewContent {
        match self {
            Source::Stripes(stripes) if stripes.is_empty() => NewContent::Empty,
            Source::Stripes(stripes) => NewContent::Stripes(stripes.iter().map(|(new, _)| new.clone()).collect()),
            Source::Pack { packed, .. } => NewContent::Part(packed.new.clone()),
            Source::Shared(content) => NewContent::Shared(*content),
        }
    }
}

/// Takes a body of `bytes` bytes into stripes under the code `wanted`, or what fits the disks there are. `policy`, whose fast
/// code that is, may have them merged later, and replicated before if the body is not long.
pub(crate) async fn store(
    objects: &Objects,
    wanted: CodeSpec,
    policy: Option<HeatPolicy>,
    bytes: u64,
    body: Body,
    algorithms: &[Algorithm],
) -> Result<Stored, ObjectError> {
    if objects.packs(wanted, bytes) {
        return store_packed(objects, Kind::new(wanted, policy), bytes, body, algorithms).await;
    }
    let mut taking = Taking { objects, wanted, policy, bytes, taken: 0, writer: None, stripes: Vec::new() };
    let mut digesting = Digesting::new(objects.env.clone(), algorithms);
    match taking.take(body, &mut digesting).await {
        Ok(()) => Ok(Stored { digests: digesting.finish().await?, source: Source::Stripes(taking.stripes) }),
        Err(error) => {
            objects.abandon(Source::Stripes(taking.stripes));
            Err(error)
        }
    }
}

/// Takes a short body whole, and then into a pack.
async fn store_packed(
    objects: &Objects,
    kind: Kind,
    declared: u64,
    mut body: Body,
    algorithms: &[Algorithm],
) -> Result<Stored, ObjectError> {
    let mut digesting = Digesting::new(objects.env.clone(), algorithms);
    let mut taken = BytesMut::with_capacity(declared as usize);
    while let Some(bytes) = body.next().await {
        let bytes = bytes?;
        let got = (taken.len() + bytes.len()) as u64;
        if got > declared {
            return Err(BodyError::WrongLength { declared, got }.into());
        }
        taken.extend_from_slice(&bytes);
        digesting.update(bytes).await?;
    }
    if (taken.len() as u64) < declared {
        return Err(BodyError::WrongLength { declared, got: taken.len() as u64 }.into());
    }
    let digests = digesting.finish().await?;
    let bytes = taken.freeze();
    let packed = Box::new(objects.pack(kind, bytes.clone()).await?);
    Ok(Stored { source: Source::Pack { packed, bytes }, digests })
}

struct Taking<'a> {
    objects: &'a Objects,
    wanted: CodeSpec,
    policy: Option<HeatPolicy>,
    bytes: u64,
    taken: u64,
    writer: Option<Filling>,
    stripes: Vec<(NewStripe, Claim)>,
}

/// A stripe that the next bytes of the body go into.
struct Filling {
    writer: StripeWriter,
    /// Bytes of the body that it is to hold.
    bytes: u64,
    /// Of these, how many are to come.
    left: u64,
}

impl Filling {
    /// Ends it with zeros if it is longer than what it holds.
    async fn finish(self) -> Result<(NewStripe, Claim), StripeError> {
        let Filling { mut writer, bytes, .. } = self;
        writer.append(&vec![0; writer.bytes_left() as usize]).await?;
        let (stripe, claim) = writer.finish().await?;
        Ok((NewStripe { stripe, bytes }, claim))
    }
}

impl Taking<'_> {
    async fn take(&mut self, mut body: Body, digesting: &mut Digesting) -> Result<(), ObjectError> {
        while let Some(bytes) = body.next().await {
            let bytes = bytes?;
            if bytes.len() as u64 > self.bytes - self.taken {
                let got = self.taken + bytes.len() as u64;
                return Err(BodyError::WrongLength { declared: self.bytes, got }.into());
            }
            digesting.update(bytes.clone()).await?;
            self.append(&bytes).await?;
        }
        if self.taken < self.bytes {
            return Err(BodyError::WrongLength { declared: self.bytes, got: self.taken }.into());
        }
        Ok(())
    }

    async fn append(&mut self, mut bytes: &[u8]) -> Result<(), ObjectError> {
        while !bytes.is_empty() {
            let mut filling = match self.writer.take() {
                Some(filling) => filling,
                None => self.begin().await?,
            };
            let part = bytes.len().min(usize::try_from(filling.left).unwrap_or(usize::MAX));
            filling.writer.append(&bytes[..part]).await?;
            filling.left -= part as u64;
            self.taken += part as u64;
            bytes = &bytes[part..];
            if filling.left > 0 {
                self.writer = Some(filling);
            } else {
                self.stripes.push(filling.finish().await?);
            }
        }
        Ok(())
    }

    /// Whether disks have so much room that copies can still be encoded when more of them come: that takes room before it gives
    /// some back.
    fn has_room_for_copies(&self, policy: HeatPolicy, chunk_bytes: u64) -> bool {
        self.objects.stripes.stores().roomy(SPARE_CHUNKS * chunk_bytes) >= policy.roomy_for_copies().into()
    }

    /// Begins the next stripe: as long as a stripe may be, or what is left, and longer if it finds others to be merged with then.
    async fn begin(&mut self) -> Result<Filling, ObjectError> {
        let stripes = &self.objects.stripes;
        let disks = stripes.stores().candidates().len();
        let left = self.bytes - self.taken;
        let next = next_stripe(self.wanted, self.taken, left, disks, |code| stripes.data_bytes_max(code));
        let (code, bytes) = next.ok_or_else(|| self.objects.too_few_disks(self.wanted))?;
        let durability = self.objects.settings.durability;
        let (writer, bytes) = match self.policy {
            Some(policy @ HeatPolicy { fast, compact, .. }) if code == fast => {
                let Cut { bytes, stripe_bytes } = cut_to_merge(fast, compact, bytes);
                let chunk_bytes = stripe_bytes.div_ceil(fast.shape().data.into());
                let fresh = policy
                    .fresh_code()
                    .filter(|_| self.bytes <= FRESH_BYTES_MAX && self.has_room_for_copies(policy, chunk_bytes));
                let family = Family { fast, compact };
                (stripes.writer_in_lane(fresh.unwrap_or(fast), family, stripe_bytes, durability).await?, bytes)
            }
            _ => (stripes.writer(code, bytes, durability).await?, bytes),
        };
        Ok(Filling { writer, bytes, left: bytes })
    }
}

/// The bytes of a range of an object.
///
/// A short range is read when the body is asked for it. A long one is read ahead by a task of its own, so that disks
/// and network work at the same time; it stops when the body is dropped.
pub(crate) fn read(env: &Env, stripes: &Stripes, object: Object, range: ByteRange) -> Body {
    let reading = Reading::new(stripes.clone(), object, range, env.clock.wall());
    if range.bytes <= READ_AHEAD_BYTES_MIN {
        return stream::unfold(Some(reading), |reading| async {
            let mut reading = reading?;
            match reading.next().await {
                Ok(bytes) => bytes.map(|bytes| (Ok(bytes), Some(reading))),
                Err(error) => Some((Err(refused(error)), None)),
            }
        })
        .boxed();
    }
    let (sender, receiver) = tokio::sync::mpsc::channel(READ_AHEAD_ITEMS);
    let pump = async move {
        let mut reading = reading;
        loop {
            let item = match reading.next().await {
                Ok(None) => return,
                Ok(Some(bytes)) => Ok(bytes),
                Err(error) => Err(refused(error)),
            };
            let failed = item.is_err();
            if sender.send(item).await.is_err() || failed {
                return;
            }
        }
    };
    env.tasks.spawn("read-ahead", Box::pin(pump));
    stream::unfold(receiver, |mut receiver| async { receiver.recv().await.map(|item| (item, receiver)) }).boxed()
}

struct Reading {
    stripes: Stripes,
    object: Object,
    /// Index of the next span and how many object bytes lie before it.
    next_span: usize,
    offset: u64,
    range: ByteRange,
    /// When it began.
    now: WallTime,
    reader: Option<StripeReader>,
}

impl Reading {
    fn new(stripes: Stripes, object: Object, range: ByteRange, now: WallTime) -> Reading {
        Reading { stripes, object, next_span: 0, offset: 0, range, now, reader: None }
    }

    async fn next(&mut self) -> Result<Option<Bytes>, StripeError> {
        loop {
            if let Some(reader) = &mut self.reader {
                if let Some(bytes) = reader.next().await? {
                    return Ok(Some(bytes));
                }
                self.reader = None;
            }
            let Some(span) = self.object.spans.get(self.next_span) else { return Ok(None) };
            let start = self.range.offset.max(self.offset);
            let end = self.range.end().min(self.offset + span.data_bytes());
            if start < end {
                let range = ByteRange { offset: start - self.offset, bytes: end - start };
                let stripe = &span.stripe;
                self.stripes.heats().read(stripe.id, range.bytes, stripe.data_bytes, self.now);
                self.reader = Some(self.stripes.span_reader(span, range));
            }
            self.offset += span.data_bytes();
            self.next_span += 1;
        }
    }
}

fn refused(error: StripeError) -> BodyError {
    BodyError::Refused(Box::new(error))
}

/// What is longer gets the fast code at once, and so do parts of uploads: their copies would be much to write and soon to drop.
const FRESH_BYTES_MAX: u64 = 16 << 20;
/// Room for so many chunks, and for a tenth of the disk, is left to encode what is copies.
const SPARE_CHUNKS: u64 = 64;
const READ_AHEAD_BYTES_MIN: u64 = 1 << 20;
/// Tiles are 32 or 64 KiB: this is at most one window.
const READ_AHEAD_ITEMS: usize = 64;
