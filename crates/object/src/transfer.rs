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
use claystone_meta::{BucketId, ContentId, HeatPolicy, NewContent, NewStripe};
use claystone_stripe::{Claim, Family, Layout, StripeError, StripeReader, StripeWriter, Stripes, Taken, sub_bytes_for};
use futures::stream::{self, StreamExt};

use crate::digest::Digesting;
use crate::objects::{Body, Object, Objects};
use crate::packs::{Kind, Packed};
use crate::{Algorithm, BodyError, Cut, CutInBands, Digests, ObjectError, cut_in_bands, cut_to_merge, next_stripe};

/// A body that nobody names yet.
pub(crate) struct Stored {
    pub(crate) source: Source,
    pub(crate) digests: Digests,
}

/// Where the bytes of an object or part are before a transaction names them.
pub(crate) enum Source {
    /// In stripes of their own; none: there are no bytes.
    Stripes(Vec<Unnamed>),
    /// In a pack, and in memory too: the pack may come and go with the bytes of others. Written into another, it keeps its room: it takes
    /// about as much there.
    Pack { packed: Box<Packed>, bytes: Bytes, room: Option<Taken> },
    /// Where others have named them.
    Shared { content: ContentId, room: Option<Taken> },
}

/// A stripe that nobody names yet.
pub(crate) struct Unnamed {
    pub(crate) new: NewStripe,
    /// Keeps reclaim away.
    pub(crate) _claim: Claim,
    /// What it takes of the room of a bucket with a policy.
    pub(crate) room: Option<Taken>,
}

impl Source {
    /// The room that it takes is of what is named, if it is known to be.
    pub(crate) fn end_taking(self, is_named: bool) {
        let rooms: Vec<Taken> = match self {
            Source::Stripes(stripes) => stripes.into_iter().filter_map(|unnamed| unnamed.room).collect(),
            Source::Pack { room, .. } | Source::Shared { room, .. } => room.into_iter().collect(),
        };
        rooms.into_iter().for_each(|room| if is_named { room.name() } else { room.leave() });
    }

    pub(crate) fn content(&self) -> NewContent {
        match self {
            Source::Stripes(stripes) if stripes.is_empty() => NewContent::Empty,
            Source::Stripes(stripes) => {
                NewContent::Stripes(stripes.iter().map(|unnamed| unnamed.new.clone()).collect())
            }
            Source::Pack { packed, .. } => NewContent::Part(packed.new.clone()),
            Source::Shared { content, .. } => NewContent::Shared(*content),
        }
    }
}

/// Takes a body of `bytes` bytes into stripes of a bucket under the code `wanted`, or what fits the disks there are. The bucket's policy, whose
/// fast code that is, may have them merged later, and replicated before if the body is not long; where its bound leaves no room for
/// that, they are compact at once.
pub(crate) async fn store(
    objects: &Objects,
    bucket: BucketId,
    wanted: CodeSpec,
    policy: Option<HeatPolicy>,
    bytes: u64,
    body: Body,
    algorithms: &[Algorithm],
) -> Result<Stored, ObjectError> {
    if objects.packs(wanted, bytes) {
        return store_packed(objects, bucket, wanted, policy, bytes, body, algorithms).await;
    }
    let mut taking = Taking { objects, bucket, wanted, policy, bytes, taken: 0, writer: None, stripes: Vec::new() };
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
    bucket: BucketId,
    wanted: CodeSpec,
    policy: Option<HeatPolicy>,
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
    let packed = Box::new(objects.pack(Kind::new(wanted, policy), bytes.clone()).await?);
    let take = |policy| objects.stripes.rooms().take_anyway(bucket, policy, declared, packed.chunks_bytes);
    let room = policy.as_ref().map(take);
    Ok(Stored { source: Source::Pack { packed, bytes, room }, digests })
}

struct Taking<'a> {
    objects: &'a Objects,
    bucket: BucketId,
    wanted: CodeSpec,
    policy: Option<HeatPolicy>,
    bytes: u64,
    taken: u64,
    writer: Option<Filling>,
    stripes: Vec<Unnamed>,
}

/// A stripe that the next bytes of the body go into.
struct Filling {
    writer: StripeWriter,
    /// Bytes of the body that it is to hold.
    bytes: u64,
    /// Of these, how many are to come.
    left: u64,
    room: Option<Taken>,
}

impl Filling {
    /// Ends it with zeros if it is longer than what it holds.
    async fn finish(self) -> Result<Unnamed, StripeError> {
        let Filling { mut writer, bytes, room, .. } = self;
        writer.append(&vec![0; writer.bytes_left() as usize]).await?;
        let (stripe, claim) = writer.finish().await?;
        Ok(Unnamed { new: NewStripe { stripe, bytes }, _claim: claim, room })
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
        let (code, bytes) = self.next(self.wanted)?;
        match self.policy {
            Some(policy) if code == policy.fast => self.begin_converted(&policy, bytes).await,
            _ => self.begin_plain(code, bytes).await,
        }
    }

    /// The next stripe if all are to have this code.
    fn next(&self, wanted: CodeSpec) -> Result<(CodeSpec, u64), ObjectError> {
        let stripes = &self.objects.stripes;
        let disks = stripes.stores().candidates().len();
        let left = self.bytes - self.taken;
        let next = next_stripe(wanted, self.taken, left, disks, |code| stripes.data_bytes_max(code));
        next.ok_or_else(|| self.objects.too_few_disks(wanted))
    }

    /// Begins a stripe that nothing changes: what is too short, or has a narrower code on few disks. It takes room whether there is some or not.
    async fn begin_plain(&mut self, code: CodeSpec, bytes: u64) -> Result<Filling, ObjectError> {
        let stripes = &self.objects.stripes;
        let writer = stripes.writer(code, bytes, self.objects.settings.durability).await?;
        let take = |policy| stripes.rooms().take_anyway(self.bucket, policy, bytes, writer.chunks_bytes());
        let room = self.policy.as_ref().map(take);
        Ok(Filling { writer, bytes, left: bytes, room })
    }

    /// Begins a stripe that is converted as it is read: with as much redundancy as the bucket's bound leaves room for.
    async fn begin_converted(&mut self, policy: &HeatPolicy, bytes: u64) -> Result<Filling, ObjectError> {
        let HeatPolicy { fast, compact, .. } = *policy;
        let cut = cut_to_merge(fast, compact, bytes);
        let stripes = &self.objects.stripes;
        let chunk_bytes = Layout::new(fast.shape(), sub_bytes_for(fast), cut.stripe_bytes).chunk_bytes();
        let may_be_fresh = self.bytes <= FRESH_BYTES_MAX && self.has_room_for_copies(*policy, chunk_bytes);
        let codes: Vec<CodeSpec> = policy.fresh_code().filter(|_| may_be_fresh).into_iter().chain([fast]).collect();
        let chunks_bytes = |code: &CodeSpec| u64::from(code.shape().chunks()) * chunk_bytes;
        let taken = stripes.rooms().take(self.bucket, policy, cut.bytes, codes.iter().map(chunks_bytes));
        let (code, room) = match taken {
            Some((at, room)) => (codes[at], room),
            None => {
                if let Some(filling) = self.begin_compact(policy, cut).await? {
                    return Ok(filling);
                }
                let rooms = self.objects.stripes.rooms();
                (fast, rooms.take_anyway(self.bucket, policy, cut.bytes, chunks_bytes(&fast)))
            }
        };
        let Cut { bytes, stripe_bytes } = cut;
        let (stripes, durability) = (&self.objects.stripes, self.objects.settings.durability);
        let writer = stripes.writer_in_lane(code, Family { fast, compact }, stripe_bytes, durability).await?;
        Ok(Filling { writer, bytes, left: bytes, room: Some(room) })
    }

    /// Begins a stripe that is compact at once, if it can be, in place of one that would be cut so.
    async fn begin_compact(&mut self, policy: &HeatPolicy, cut: Cut) -> Result<Option<Filling>, ObjectError> {
        let HeatPolicy { fast, compact, .. } = *policy;
        let stripes = &self.objects.stripes;
        let disks = stripes.stores().candidates().len();
        if disks < usize::from(compact.disks_min()) || !stripes.stores().nodes().keep_safe(compact, fast) {
            return Ok(None);
        }
        let left = self.bytes - self.taken;
        let stripe_bytes_max = |code| stripes.data_bytes_max(code);
        let cut = cut_in_bands(policy, cut, self.taken, left, disks, stripe_bytes_max, IN_BANDS_BYTES_MAX);
        let Some(CutInBands { code, bytes, bands, band_bytes }) = cut else { return Ok(None) };
        let durability = self.objects.settings.durability;
        let begun = stripes.writer_in_bands(code, bands, band_bytes, durability).await;
        let writer = match begun {
            Ok(writer) => writer,
            // The fast code may need fewer of them.
            Err(StripeError::TooFewDisks { .. } | StripeError::NotDurable { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let room = stripes.rooms().take_anyway(self.bucket, policy, bytes, writer.chunks_bytes());
        Ok(Some(Filling { writer, bytes, left: bytes, room: Some(room) }))
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
/// The most that a stripe of several bands is written with: its parity is in memory until all of it is there.
const IN_BANDS_BYTES_MAX: u64 = 16 << 20;
/// Room for so many chunks, and for a tenth of the disk, is left to encode what is copies.
const SPARE_CHUNKS: u64 = 64;
const READ_AHEAD_BYTES_MIN: u64 = 1 << 20;
/// Tiles are 32 or 64 KiB: this is at most one window.
const READ_AHEAD_ITEMS: usize = 64;
