//! Strands of a volume with homes: what its data chunks of one home hold, as a block device of its own.
//!
//! ```text
//!  volume, rs:2+1, homes a and b      | chunk 0 | chunk 1 | chunk 0 | chunk 1 | ..
//!                                          |         |         |         |
//!  strand a                           | chunk 0 ------------| chunk 0 | ..                 whoever uses it reads node a alone
//!  strand b                                    | chunk 1 ------------| chunk 1 | ..
//! ```
//!
//! A strand is a window on the volume: one log, one lease, one merge, and a snapshot of the volume is one of all strands at one moment.
//!
//! Invariant: strands of a volume share no byte, and together they are its whole stripes.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use claystone_chunk::{ByteRange, NodeId};
use claystone_meta::VolumeRecord;
use futures::future::try_join_all;

use crate::blocks::Spans;
use crate::homes::chunks_at_home;
use crate::volumes::{SnapshotName, is_name};
use crate::{Access, Blocks, BlocksError, Durable, Span, Stretch, VolumeError, Zeroing, within};

/// `VOLUME:HOME`, or of a snapshot `VOLUME:HOME@SNAPSHOT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StrandName {
    /// The volume's name.
    pub volume: String,
    /// The home.
    pub home: NodeId,
    /// The snapshot's own name.
    pub snapshot: Option<String>,
}

impl StrandName {
    /// The snapshot that it is of.
    pub fn snapshot_name(&self) -> Option<SnapshotName> {
        let snapshot = self.snapshot.clone()?;
        Some(SnapshotName { volume: self.volume.clone(), snapshot })
    }
}

impl FromStr for StrandName {
    type Err = VolumeError;

    fn from_str(text: &str) -> Result<StrandName, VolumeError> {
        let bad = || VolumeError::BadStrandName { name: text.to_owned() };
        let (volume, rest) = text.split_once(':').ok_or_else(bad)?;
        let (home, snapshot) = rest.split_once('@').map_or((rest, None), |(home, snapshot)| (home, Some(snapshot)));
        if ![Some(volume), Some(home), snapshot].into_iter().flatten().all(is_name) {
            return Err(bad());
        }
        let (home, snapshot) = (NodeId(home.to_owned()), snapshot.map(str::to_owned));
        Ok(StrandName { volume: volume.to_owned(), home, snapshot })
    }
}

impl fmt::Display for StrandName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.volume, self.home)?;
        self.snapshot.iter().try_for_each(|snapshot| write!(f, "@{snapshot}"))
    }
}

/// Where the bytes of a strand lie in its volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Window {
    /// Bytes of the volume in one stripe.
    stripe_bytes: u64,
    /// Where in a stripe the strand begins.
    first: u64,
    /// How many bytes of each it has.
    bytes: u64,
}

impl Window {
    /// Of the home with this number.
    fn new(record: &VolumeRecord, home: usize) -> Window {
        let chunks = chunks_at_home(&record.homes, record.redundancy.code.shape().data);
        let bytes = u64::from(chunks) * record.chunk_bytes;
        Window { stripe_bytes: record.stripe_bytes(), first: home as u64 * bytes, bytes }
    }

    /// The strand's length, of whole stripes of a volume of `volume_bytes`.
    fn strand_bytes(&self, volume_bytes: u64) -> u64 {
        volume_bytes / self.stripe_bytes * self.bytes
    }

    /// The volume's byte at `offset` of the strand.
    fn place(&self, offset: u64) -> u64 {
        offset / self.bytes * self.stripe_bytes + self.first + offset % self.bytes
    }

    /// The offset in the strand of a byte of the volume that it has.
    fn offset(&self, place: u64) -> u64 {
        place / self.stripe_bytes * self.bytes + place % self.stripe_bytes - self.first
    }

    /// Cuts a range of the strand into what follows each other in the volume too, and says where that is.
    fn parts(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> {
        let window = *self;
        let mut at = range.offset;
        std::iter::from_fn(move || {
            let start = at;
            at = (start + window.bytes - start % window.bytes).min(range.end());
            (start < range.end()).then(|| ByteRange { offset: window.place(start), bytes: at - start })
        })
    }

    /// An error of the volume about a part that was asked for, told of the strand.
    fn told(&self, part: ByteRange, error: BlocksError) -> BlocksError {
        let told = |range: ByteRange| ByteRange { offset: self.offset(range.offset), ..range };
        match error {
            BlocksError::Lost { range } => BlocksError::Lost { range: told(range) },
            BlocksError::Slow { range } => BlocksError::Slow { range: told(range) },
            // It may be said of more than was asked for.
            BlocksError::Unavailable { reason, .. } => BlocksError::Unavailable { range: told(part), reason },
            other => other,
        }
    }
}

/// A strand that is in use. While it is there so is its volume, or its snapshot.
#[derive(Debug, Clone)]
pub struct Strand {
    name: StrandName,
    blocks: Arc<dyn Blocks>,
    window: Window,
}

impl Strand {
    /// The strand `name` of a volume of this record, or of a snapshot of it, which `open` opens if there is such a strand.
    pub(crate) async fn open(
        name: StrandName,
        record: &VolumeRecord,
        open: impl Future<Output = Result<Arc<dyn Blocks>, VolumeError>>,
    ) -> Result<Strand, VolumeError> {
        let home = record.homes.iter().position(|home| *home == name.home);
        let missing = || VolumeError::NoSuchStrand { name: name.to_string(), homes: record.homes.clone() };
        let window = Window::new(record, home.ok_or_else(missing)?);
        Ok(Strand { name, blocks: open.await?, window })
    }

    /// Its name.
    pub fn name(&self) -> &StrandName {
        &self.name
    }

    /// Whether a change of this range may be made.
    fn takes(&self, range: ByteRange) -> Result<(), BlocksError> {
        match self.access() {
            Access::ReadOnly => Err(BlocksError::ReadOnly),
            Access::ReadWrite => within(range, self.bytes()),
        }
    }
}

#[async_trait]
impl Blocks for Strand {
    fn bytes(&self) -> u64 {
        self.window.strand_bytes(self.blocks.bytes())
    }

    fn page_bytes(&self) -> u32 {
        self.blocks.page_bytes()
    }

    fn access(&self) -> Access {
        self.blocks.access()
    }

    async fn read(&self, range: ByteRange) -> Result<Vec<Stretch>, BlocksError> {
        within(range, self.bytes())?;
        let read = async |part| self.blocks.read(part).await.map_err(|error| self.window.told(part, error));
        let read = try_join_all(self.window.parts(range).map(read)).await?;
        Ok(read.into_iter().flatten().collect())
    }

    async fn write(&self, offset: u64, mut content: Bytes, durable: Durable) -> Result<(), BlocksError> {
        let range = ByteRange { offset, bytes: content.len() as u64 };
        self.takes(range)?;
        let parts = self.window.parts(range).count();
        // One after another, as the volume does with what is long; and durable together.
        for part in self.window.parts(range) {
            let durable = if parts == 1 { durable } else { Durable::WithFlush };
            let written = self.blocks.write(part.offset, content.split_to(part.bytes as usize), durable).await;
            written.map_err(|error| self.window.told(part, error))?;
        }
        if parts > 1 && durable == Durable::Now { self.blocks.flush().await } else { Ok(()) }
    }

    async fn write_zeroes(&self, range: ByteRange, how: Zeroing) -> Result<(), BlocksError> {
        self.takes(range)?;
        let page_bytes = u64::from(self.page_bytes());
        let is_of_pages = range.offset.is_multiple_of(page_bytes) && range.end().is_multiple_of(page_bytes);
        // Before anything is changed: some parts may be fast.
        if how.only_fast && range.bytes > 0 && !is_of_pages {
            return Err(BlocksError::Slow { range });
        }
        let of_part = Zeroing { durable: Durable::WithFlush, ..how };
        for part in self.window.parts(range) {
            let zeroed = self.blocks.write_zeroes(part, of_part).await;
            zeroed.map_err(|error| self.window.told(part, error))?;
        }
        if how.durable == Durable::Now { self.blocks.flush().await } else { Ok(()) }
    }

    async fn flush(&self) -> Result<(), BlocksError> {
        self.blocks.flush().await
    }

    async fn spans(&self, range: ByteRange, spans_max: usize) -> Result<Vec<Span>, BlocksError> {
        within(range, self.bytes())?;
        let mut spans = Spans::new(spans_max);
        for part in self.window.parts(range) {
            let found = self.blocks.spans(part, spans_max).await.map_err(|error| self.window.told(part, error))?;
            let covered: u64 = found.iter().map(|span| span.bytes).sum();
            let took_all = found.into_iter().all(|span| spans.push(span.bytes, span.kind));
            if !took_all || covered < part.bytes {
                break;
            }
        }
        Ok(spans.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_a_volume_a_home_and_perhaps_a_snapshot() {
        for text in ["v:a", "v.1:node-2@monday"] {
            assert_eq!(text.parse::<StrandName>().expect("a name").to_string(), text);
        }
        for bad in ["v", "v:", ":a", "v:a@", "v:a:b", "v:a@b@c", "v@s:a", "v:a b"] {
            assert!(matches!(bad.parse::<StrandName>(), Err(VolumeError::BadStrandName { .. })), "{bad}");
        }
    }

    #[test]
    fn strands_share_no_byte_and_are_all_of_the_volume() {
        // Two homes of two chunks of 3 bytes.
        let window = |home: u64| Window { stripe_bytes: 12, first: 6 * home, bytes: 6 };
        let mut places: Vec<u64> = Vec::new();
        for home in 0..2 {
            let window = window(home);
            assert_eq!(window.strand_bytes(3 * 12 + 5), 18, "of whole stripes");
            for offset in 0..18 {
                assert_eq!(window.offset(window.place(offset)), offset);
                places.push(window.place(offset));
            }
        }
        places.sort_unstable();
        assert_eq!(places, (0..36).collect::<Vec<_>>());
        let pieces: Vec<(u64, u64)> =
            window(1).parts(ByteRange { offset: 4, bytes: 9 }).map(|piece| (piece.offset, piece.bytes)).collect();
        assert_eq!(pieces, [(10, 2), (18, 6), (30, 1)]);
        assert_eq!(window(1).parts(ByteRange { offset: 6, bytes: 0 }).count(), 0);
    }
}
