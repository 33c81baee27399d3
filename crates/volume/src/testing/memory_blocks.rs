//! A block device in memory.
//!
//! Invariants:
//! 1. A page that is in `pages` is data, any other is a hole; a page has all its bytes, also the device's last.
//! 2. `unflushed` has every page that changed since the last flush, as it was then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use claystone_chunk::ByteRange;

use crate::{Access, Blocks, BlocksError, Durable, Space, Span, SpanKind, Stretch, Zeroing, within};

/// The reference implementation of [`Blocks`]. Clones are the same device.
#[derive(Clone)]
pub struct MemoryBlocks {
    page_bytes: u32,
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    bytes: u64,
    pages: BTreeMap<u64, Bytes>,
    unflushed: BTreeMap<u64, Option<Bytes>>,
    lost: BTreeSet<u64>,
    capacity_bytes: u64,
    access: Access,
    failure: Option<String>,
}

impl MemoryBlocks {
    /// A device of `bytes` bytes, all a hole.
    ///
    /// # Panics
    /// If a page is not a power of two from 512 to 65536.
    pub fn new(bytes: u64, page_bytes: u32) -> MemoryBlocks {
        assert!(page_bytes.is_power_of_two() && (512..=65536).contains(&page_bytes), "a page of {page_bytes} bytes");
        let inner = Inner {
            bytes,
            pages: BTreeMap::new(),
            unflushed: BTreeMap::new(),
            lost: BTreeSet::new(),
            capacity_bytes: u64::MAX,
            access: Access::ReadWrite,
            failure: None,
        };
        MemoryBlocks { page_bytes, inner: Arc::new(Mutex::new(inner)) }
    }

    /// From now on full when its pages take this much.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        self.lock().capacity_bytes = capacity_bytes;
    }

    /// From now on so accessible.
    pub fn set_access(&self, access: Access) {
        self.lock().access = access;
    }

    /// From now on every call fails, or none does.
    pub fn set_failure(&self, reason: Option<&str>) {
        self.lock().failure = reason.map(str::to_owned);
    }

    /// Adds bytes at the end, as a resize would.
    pub fn grow(&self, bytes: u64) {
        self.lock().bytes += bytes;
    }

    /// Loses the page that has this byte, until it is written whole.
    pub fn lose_page(&self, offset: u64) {
        let page = offset / u64::from(self.page_bytes);
        self.lock().lost.insert(page);
    }

    /// Cuts the power: each page that changed since the last flush is as it was then, or as it is now if `keeps` says so
    /// of its number.
    pub fn power_cut(&self, mut keeps: impl FnMut(u64) -> bool) {
        let mut inner = self.lock();
        for (page, before) in std::mem::take(&mut inner.unflushed) {
            match before {
                _ if keeps(page) => None,
                Some(content) => inner.pages.insert(page, content),
                None => inner.pages.remove(&page),
            };
        }
    }

    /// How many bytes its pages take.
    pub fn used_bytes(&self) -> u64 {
        self.lock().pages.len() as u64 * u64::from(self.page_bytes)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn readable(&self, range: ByteRange) -> Result<MutexGuard<'_, Inner>, BlocksError> {
        let inner = self.lock();
        if let Some(reason) = &inner.failure {
            return Err(BlocksError::Failed { reason: reason.clone() });
        }
        within(range, inner.bytes)?;
        Ok(inner)
    }

    fn writable(&self, range: ByteRange) -> Result<MutexGuard<'_, Inner>, BlocksError> {
        let inner = self.readable(range)?;
        match inner.access {
            Access::ReadOnly => Err(BlocksError::ReadOnly),
            Access::ReadWrite => Ok(inner),
        }
    }

    /// The pages of a range: number, first byte within the page, byte after the last.
    fn pages_of(&self, range: ByteRange) -> impl Iterator<Item = (u64, usize, usize)> + use<> {
        let (page_bytes, end) = (u64::from(self.page_bytes), range.offset + range.bytes);
        let mut at = range.offset;
        std::iter::from_fn(move || {
            let page = at / page_bytes;
            let until = end.min((page + 1).saturating_mul(page_bytes));
            let found = (at < end).then_some((page, (at % page_bytes) as usize, (until - page * page_bytes) as usize));
            at = until;
            found
        })
    }

    /// Whether bytes `from..to` of a page are all that the device has of it.
    fn whole(&self, inner: &Inner, page: u64, from: usize, to: usize) -> bool {
        let (page_bytes, start) = (u64::from(self.page_bytes), page * u64::from(self.page_bytes));
        from == 0 && to as u64 >= page_bytes.min(inner.bytes - start)
    }

    /// Changes bytes `from..to` of a page to what `change` makes of them.
    fn change(
        &self,
        inner: &mut Inner,
        (page, from, to): (u64, usize, usize),
        durable: Durable,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<(), BlocksError> {
        let page_bytes = self.page_bytes as usize;
        let whole = self.whole(inner, page, from, to);
        if !whole && inner.lost.contains(&page) {
            let range = ByteRange { offset: page * page_bytes as u64, bytes: page_bytes as u64 };
            return Err(BlocksError::Lost { range });
        }
        let before = inner.pages.get(&page).cloned();
        if before.is_none() {
            let free_bytes = inner.capacity_bytes.saturating_sub(inner.pages.len() as u64 * page_bytes as u64);
            if free_bytes < page_bytes as u64 {
                return Err(BlocksError::NoSpace { needed_bytes: page_bytes as u64, free_bytes });
            }
        }
        let mut content = BytesMut::with_capacity(page_bytes);
        match &before {
            Some(before) if !whole => content.extend_from_slice(before),
            _ => content.resize(page_bytes, 0),
        }
        change(&mut content[from..to]);
        inner.pages.insert(page, content.freeze());
        inner.changed(page, before, durable);
        Ok(())
    }
}

impl Inner {
    fn changed(&mut self, page: u64, before: Option<Bytes>, durable: Durable) {
        self.lost.remove(&page);
        match durable {
            Durable::Now => drop(self.unflushed.remove(&page)),
            Durable::WithFlush => drop(self.unflushed.entry(page).or_insert(before)),
        }
    }
}

impl std::fmt::Debug for MemoryBlocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemoryBlocks({} bytes)", self.lock().bytes)
    }
}

#[async_trait]
impl Blocks for MemoryBlocks {
    fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    fn page_bytes(&self) -> u32 {
        self.page_bytes
    }

    fn access(&self) -> Access {
        self.lock().access
    }

    async fn read(&self, range: ByteRange) -> Result<Vec<Stretch>, BlocksError> {
        let inner = self.readable(range)?;
        let mut stretches = Vec::new();
        for (page, from, to) in self.pages_of(range) {
            if inner.lost.contains(&page) {
                let offset = page * u64::from(self.page_bytes) + from as u64;
                return Err(BlocksError::Lost { range: ByteRange { offset, bytes: (to - from) as u64 } });
            }
            match (inner.pages.get(&page), stretches.last_mut()) {
                (Some(content), _) => stretches.push(Stretch::Data(content.slice(from..to))),
                (None, Some(Stretch::Hole(bytes))) => *bytes += (to - from) as u64,
                (None, _) => stretches.push(Stretch::Hole((to - from) as u64)),
            }
        }
        Ok(stretches)
    }

    async fn write(&self, offset: u64, content: Bytes, durable: Durable) -> Result<(), BlocksError> {
        let range = ByteRange { offset, bytes: content.len() as u64 };
        let mut inner = self.writable(range)?;
        let mut at = 0;
        for place in self.pages_of(range) {
            let part = &content[at..at + place.2 - place.1];
            self.change(&mut inner, place, durable, |bytes| bytes.copy_from_slice(part))?;
            at += part.len();
        }
        Ok(())
    }

    async fn write_zeroes(&self, range: ByteRange, how: Zeroing) -> Result<(), BlocksError> {
        let mut inner = self.writable(range)?;
        if how.only_fast && how.space == Space::Keep {
            return Err(BlocksError::Slow { range });
        }
        for (page, from, to) in self.pages_of(range) {
            if how.space == Space::Keep {
                self.change(&mut inner, (page, from, to), how.durable, |bytes| bytes.fill(0))?;
            } else if self.whole(&inner, page, from, to) {
                let before = inner.pages.remove(&page);
                // A hole that was one is no change, unless an earlier one is to be durable.
                if before.is_some() || how.durable == Durable::Now || inner.lost.contains(&page) {
                    inner.changed(page, before, how.durable);
                }
            } else if inner.pages.contains_key(&page) || inner.lost.contains(&page) {
                self.change(&mut inner, (page, from, to), how.durable, |bytes| bytes.fill(0))?;
            }
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), BlocksError> {
        let mut inner = self.readable(ByteRange { offset: 0, bytes: 0 })?;
        inner.unflushed.clear();
        Ok(())
    }

    async fn spans(&self, range: ByteRange, spans_max: usize) -> Result<Vec<Span>, BlocksError> {
        assert!(spans_max > 0, "no spans were asked for");
        let inner = self.readable(range)?;
        let mut spans: Vec<Span> = Vec::new();
        for (page, from, to) in self.pages_of(range) {
            let kind = match inner.pages.contains_key(&page) || inner.lost.contains(&page) {
                true => SpanKind::Data,
                false => SpanKind::Hole,
            };
            let bytes = (to - from) as u64;
            let full = spans.len() == spans_max;
            match spans.last_mut() {
                Some(span) if span.kind == kind => span.bytes += bytes,
                _ if full => break,
                _ => spans.push(Span { bytes, kind }),
            }
        }
        Ok(spans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::joined;

    const PAGE: u64 = 4096;

    fn range(offset: u64, bytes: u64) -> ByteRange {
        ByteRange { offset, bytes }
    }

    async fn read(blocks: &MemoryBlocks, offset: u64, bytes: u64) -> Bytes {
        joined(blocks.read(range(offset, bytes)).await.expect("read"))
    }

    #[tokio::test]
    async fn a_power_cut_takes_what_was_not_flushed() {
        let blocks = MemoryBlocks::new(16 * PAGE, 4096);
        let page = |byte: u8| Bytes::from(vec![byte; PAGE as usize]);
        blocks.write(0, page(1), Durable::WithFlush).await.expect("write");
        blocks.flush().await.expect("flush");
        blocks.write(0, page(2), Durable::WithFlush).await.expect("write");
        blocks.write(PAGE, page(3), Durable::Now).await.expect("write");
        blocks.write(2 * PAGE, page(4), Durable::WithFlush).await.expect("write");
        blocks.write(3 * PAGE, page(5), Durable::WithFlush).await.expect("write");
        blocks.power_cut(|page| page == 3);
        for (page, byte) in [(0, 1), (1, 3), (2, 0), (3, 5)] {
            assert_eq!(read(&blocks, page * PAGE, 1).await[0], byte, "page {page}");
        }
        blocks.power_cut(|_| false);
        assert_eq!(read(&blocks, 3 * PAGE, 1).await[0], 5);
        blocks.discard(range(3 * PAGE, PAGE), Durable::WithFlush).await.expect("discard");
        blocks.discard(range(0, 16 * PAGE), Durable::Now).await.expect("discard");
        blocks.power_cut(|_| false);
        assert_eq!((read(&blocks, 3 * PAGE, 1).await[0], blocks.used_bytes()), (0, 0));
    }

    #[tokio::test]
    async fn a_full_device_takes_what_needs_no_space() {
        let blocks = MemoryBlocks::new(16 * PAGE, 4096);
        blocks.set_capacity(2 * PAGE);
        let page = Bytes::from(vec![1; PAGE as usize]);
        blocks.write(0, page.clone(), Durable::WithFlush).await.expect("write");
        blocks
            .write_zeroes(range(PAGE, PAGE), Zeroing { space: Space::Keep, ..Zeroing::default() })
            .await
            .expect("zeroes");
        let full = BlocksError::NoSpace { needed_bytes: PAGE, free_bytes: 0 };
        assert_eq!(blocks.write(5 * PAGE, page.clone(), Durable::WithFlush).await, Err(full));
        blocks.write(PAGE, page.clone(), Durable::WithFlush).await.expect("its space was kept");
        blocks.discard(range(0, PAGE), Durable::WithFlush).await.expect("discard");
        blocks.write(5 * PAGE, page, Durable::WithFlush).await.expect("space came back");
        assert_eq!(blocks.used_bytes(), 2 * PAGE);
    }

    #[tokio::test]
    async fn lost_pages_come_back_when_written_whole() {
        let blocks = MemoryBlocks::new(3 * PAGE, 4096);
        blocks.lose_page(PAGE + 5);
        let lost = Err(BlocksError::Lost { range: range(PAGE, 10) });
        assert_eq!(blocks.read(range(PAGE - 5, 15)).await, lost);
        assert_eq!(read(&blocks, 0, PAGE).await.len(), PAGE as usize);
        let part = blocks.write(PAGE, Bytes::from_static(b"part"), Durable::WithFlush).await;
        assert_eq!(part, Err(BlocksError::Lost { range: range(PAGE, PAGE) }));
        blocks.write(PAGE, Bytes::from(vec![9; PAGE as usize]), Durable::WithFlush).await.expect("write");
        assert_eq!(read(&blocks, PAGE, 1).await[0], 9);
    }

    #[tokio::test]
    async fn who_may_not_or_failed_says_so() {
        let blocks = MemoryBlocks::new(2 * PAGE, 4096);
        blocks.set_access(Access::ReadOnly);
        let written = blocks.write(0, Bytes::from_static(b"x"), Durable::WithFlush).await;
        assert_eq!(written, Err(BlocksError::ReadOnly));
        assert_eq!(blocks.discard(range(0, 1), Durable::WithFlush).await, Err(BlocksError::ReadOnly));
        blocks.set_failure(Some("the disk is gone"));
        let failed = BlocksError::Failed { reason: "the disk is gone".to_owned() };
        assert_eq!(blocks.read(range(0, 1)).await, Err(failed.clone()));
        assert_eq!(blocks.flush().await, Err(failed.clone()));
        assert_eq!(blocks.spans(range(0, 1), 1).await, Err(failed));
    }
}
