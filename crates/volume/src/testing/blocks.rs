//! What every block device must do, checked through the trait alone.

use std::sync::Arc;

use bytes::Bytes;
use claystone_chunk::ByteRange;
use claystone_chunk::testing::pattern;
use futures::future::join;

use crate::{Access, Blocks, BlocksError, Durable, Space, Span, SpanKind, Zeroing, joined};

/// Runs every check, each on a new device from `make`, of which nothing was written. Devices have at least 64 pages and
/// 256 KiB, and space for all of it.
///
/// # Panics
/// If the device breaks the contract.
pub async fn blocks<F: Future<Output = Arc<dyn Blocks>>>(mut make: impl FnMut() -> F) {
    a_new_device_is_one_hole(&*make().await).await;
    what_was_written_is_read(&*make().await).await;
    parts_of_pages_keep_the_rest(&*make().await).await;
    ranges_outside_are_refused(&*make().await).await;
    no_bytes_are_no_change(&*make().await).await;
    zeroed_bytes_read_as_zeros(&*make().await).await;
    discarded_pages_are_holes(&*make().await).await;
    zeros_that_keep_their_space_are_no_holes(&*make().await).await;
    only_fast_zeros_are_zeros_or_refused(&*make().await).await;
    spans_cover_what_was_asked(&*make().await).await;
    writes_that_overlap_end_as_one_of_them(make().await).await;
    a_page_is_read_before_or_after_a_write(make().await).await;
    for seed in 1..=4 {
        random_calls_do_as_plain_bytes_do(&*make().await, seed).await;
    }
}

fn range(offset: u64, bytes: u64) -> ByteRange {
    ByteRange { offset, bytes }
}

async fn read(blocks: &dyn Blocks, offset: u64, bytes: u64) -> Bytes {
    let stretches = blocks.read(range(offset, bytes)).await.expect("the range is readable");
    assert!(stretches.iter().all(|stretch| stretch.bytes() > 0), "an empty stretch");
    let content = joined(stretches);
    assert_eq!(content.len() as u64, bytes, "a read covers its range");
    content
}

async fn write(blocks: &dyn Blocks, offset: u64, content: impl Into<Bytes>) {
    blocks.write(offset, content.into(), Durable::WithFlush).await.expect("the range is writable");
}

async fn spans(blocks: &dyn Blocks, range: ByteRange) -> Vec<Span> {
    let spans = blocks.spans(range, 1 << 20).await.expect("spans");
    assert_eq!(spans.iter().map(|span| span.bytes).sum::<u64>(), range.bytes, "spans cover their range");
    assert!(spans.iter().all(|span| span.bytes > 0), "an empty span");
    assert!(spans.windows(2).all(|pair| pair[0].kind != pair[1].kind), "spans of a kind follow each other");
    spans
}

fn is_zero(content: &[u8]) -> bool {
    content.iter().all(|byte| *byte == 0)
}

async fn a_new_device_is_one_hole(blocks: &dyn Blocks) {
    let (bytes, page) = (blocks.bytes(), u64::from(blocks.page_bytes()));
    assert!(page.is_power_of_two() && (512..=65536).contains(&page), "a page of {page} bytes");
    assert!(bytes >= 64 * page && bytes >= 256 << 10, "the suite needs more than {bytes} bytes");
    assert_eq!(blocks.access(), Access::ReadWrite);
    assert_eq!(spans(blocks, range(0, bytes)).await, [Span { bytes, kind: SpanKind::Hole }]);
    for offset in [0, page - 1, bytes / 2 + 1, bytes - page - 1] {
        assert!(is_zero(&read(blocks, offset, page + 1).await));
    }
    blocks.flush().await.expect("nothing is flushed too");
}

async fn what_was_written_is_read(blocks: &dyn Blocks) {
    let page = u64::from(blocks.page_bytes());
    for (seed, (offset, bytes)) in
        (1..).zip([(0, page), (page, 3 * page), (8 * page, 50 * page), (blocks.bytes() - page, page), (5 * page, page)])
    {
        let content = pattern(seed, bytes as usize);
        let durable = if seed % 2 == 0 { Durable::Now } else { Durable::WithFlush };
        blocks.write(offset, content.clone(), durable).await.expect("write");
        assert!(read(blocks, offset, bytes).await == content, "{bytes} bytes at {offset}");
        assert!(read(blocks, offset + 1, bytes - 2).await == content[1..content.len() - 1]);
        blocks.flush().await.expect("flush");
        assert!(read(blocks, offset, bytes).await == content, "{bytes} bytes at {offset}, flushed");
    }
    assert!(read(blocks, 0, page).await == pattern(1, page as usize), "the later writes harmed the first");
    assert!(is_zero(&read(blocks, 4 * page, page).await), "nobody wrote there");
}

async fn parts_of_pages_keep_the_rest(blocks: &dyn Blocks) {
    let page = u64::from(blocks.page_bytes());
    let mut whole = pattern(1, 4 * page as usize).to_vec();
    write(blocks, 0, whole.clone()).await;
    for (seed, (offset, bytes)) in
        (2..).zip([(0, 1), (page - 1, 1), (page - 1, 2), (page + 300, 300), (page / 2, 2 * page), (4 * page - 3, 3)])
    {
        let content = pattern(seed, bytes as usize);
        whole[offset as usize..(offset + bytes) as usize].copy_from_slice(&content);
        write(blocks, offset, content).await;
        assert!(read(blocks, 0, 4 * page).await == whole, "{bytes} bytes at {offset}");
    }
    // Where there was a hole, the rest is zeros.
    write(blocks, 9 * page + 7, pattern(9, 100)).await;
    let content = read(blocks, 9 * page, page).await;
    assert!(is_zero(&content[..7]) && content[7..107] == pattern(9, 100) && is_zero(&content[107..]));
}

async fn ranges_outside_are_refused(blocks: &dyn Blocks) {
    let bytes = blocks.bytes();
    write(blocks, bytes - 1, Bytes::from_static(b"z")).await;
    for bad in [range(bytes, 1), range(bytes - 1, 2), range(bytes + 1, 0), range(u64::MAX, 1), range(1, u64::MAX)] {
        let refused = BlocksError::OutOfRange { range: bad, blocks_bytes: bytes };
        assert_eq!(blocks.read(bad).await, Err(refused.clone()));
        assert_eq!(blocks.write_zeroes(bad, Zeroing::default()).await, Err(refused.clone()));
        assert_eq!(blocks.discard(bad, Durable::Now).await, Err(refused.clone()));
        assert_eq!(blocks.spans(bad, 1).await, Err(refused.clone()));
        if bad.bytes < 100 {
            let written = blocks.write(bad.offset, pattern(1, bad.bytes as usize), Durable::WithFlush).await;
            assert_eq!(written, Err(refused));
        }
    }
    assert_eq!(read(blocks, bytes - 1, 1).await, &b"z"[..], "what is refused changes nothing");
}

async fn no_bytes_are_no_change(blocks: &dyn Blocks) {
    write(blocks, 0, pattern(1, 100)).await;
    for offset in [0, 1, blocks.bytes()] {
        assert_eq!(blocks.read(range(offset, 0)).await, Ok(vec![]));
        write(blocks, offset, Bytes::new()).await;
        assert_eq!(blocks.discard(range(offset, 0), Durable::Now).await, Ok(()));
        assert_eq!(blocks.spans(range(offset, 0), 1).await, Ok(vec![]));
    }
    assert!(read(blocks, 0, 100).await == pattern(1, 100));
}

async fn zeroed_bytes_read_as_zeros(blocks: &dyn Blocks) {
    let page = u64::from(blocks.page_bytes());
    for space in [Space::Return, Space::Keep] {
        for (seed, (offset, bytes)) in (1..).zip([
            (0, page),
            (page, 3 * page),
            (page / 2, page),
            (page + 1, 300),
            (page - 1, 3 * page + 2),
            (20 * page, 2 * page),
            (0, 6 * page),
        ]) {
            let whole = pattern(seed, 6 * page as usize);
            write(blocks, 0, whole.clone()).await;
            let durable = if seed % 2 == 0 { Durable::Now } else { Durable::WithFlush };
            let how = Zeroing { space, only_fast: false, durable };
            blocks.write_zeroes(range(offset, bytes), how).await.expect("write_zeroes");
            let mut expected = whole.to_vec();
            expected.resize(22 * page as usize, 0);
            expected[offset as usize..(offset + bytes) as usize].fill(0);
            assert!(read(blocks, 0, 22 * page).await == expected, "{bytes} bytes at {offset}, {space:?}");
        }
    }
}

async fn discarded_pages_are_holes(blocks: &dyn Blocks) {
    let page = u64::from(blocks.page_bytes());
    let whole = pattern(1, 16 * page as usize);
    write(blocks, 0, whole.clone()).await;
    // Pages 4 to 7 whole, 3 and 8 in part.
    blocks.discard(range(3 * page + 1, 5 * page), Durable::WithFlush).await.expect("discard");
    for flushed in [false, true] {
        let content = read(blocks, 0, 16 * page).await;
        let (from, to) = (3 * page as usize + 1, 8 * page as usize + 1);
        assert!(content[..from] == whole[..from] && content[to..] == whole[to..], "flushed: {flushed}");
        assert!(is_zero(&content[from..to]), "flushed: {flushed}");
        if !flushed {
            // Later it may be data of zeros.
            let hole = Span { bytes: 4 * page, kind: SpanKind::Hole };
            assert_eq!(spans(blocks, range(4 * page, 4 * page)).await, [hole]);
        }
        blocks.flush().await.expect("flush");
    }
    // A hole can be written again, and all of the device discarded.
    write(blocks, 5 * page, whole.slice(..page as usize)).await;
    assert!(read(blocks, 5 * page, page).await == whole[..page as usize]);
    let all = range(0, blocks.bytes());
    blocks.discard(all, Durable::Now).await.expect("discard");
    assert_eq!(spans(blocks, all).await, [Span { bytes: all.bytes, kind: SpanKind::Hole }]);
    assert!(is_zero(&read(blocks, 0, 16 * page).await));
}

async fn zeros_that_keep_their_space_are_no_holes(blocks: &dyn Blocks) {
    let page = u64::from(blocks.page_bytes());
    let kept = Zeroing { space: Space::Keep, ..Zeroing::default() };
    write(blocks, 2 * page, pattern(1, 4 * page as usize)).await;
    // Where something was, and where nothing was.
    for asked in [range(0, 4 * page), range(20 * page + 1, page), range(30 * page, blocks.bytes() - 30 * page)] {
        blocks.write_zeroes(asked, kept).await.expect("write_zeroes");
        for _ in 0..2 {
            assert_eq!(spans(blocks, asked).await, [Span { bytes: asked.bytes, kind: SpanKind::Data }], "{asked:?}");
            assert!(is_zero(&read(blocks, asked.offset, asked.bytes).await), "{asked:?}");
            blocks.flush().await.expect("flush");
        }
    }
    // It is given back as any other.
    let all = range(0, blocks.bytes());
    blocks.write_zeroes(all, Zeroing::default()).await.expect("write_zeroes");
    assert_eq!(spans(blocks, all).await, [Span { bytes: all.bytes, kind: SpanKind::Hole }]);
}

async fn only_fast_zeros_are_zeros_or_refused(blocks: &dyn Blocks) {
    let page = u64::from(blocks.page_bytes());
    for space in [Space::Return, Space::Keep] {
        for asked in [range(0, 4 * page), range(page / 2, 2 * page)] {
            let whole = pattern(1, 4 * page as usize);
            write(blocks, 0, whole.clone()).await;
            let how = Zeroing { space, only_fast: true, durable: Durable::WithFlush };
            let zeroed = blocks.write_zeroes(asked, how).await;
            let mut expected = whole.to_vec();
            match zeroed {
                Ok(()) => expected[asked.offset as usize..(asked.offset + asked.bytes) as usize].fill(0),
                refused => assert_eq!(refused, Err(BlocksError::Slow { range: asked })),
            }
            assert!(read(blocks, 0, 4 * page).await == expected, "{asked:?} {space:?}");
        }
    }
}

async fn spans_cover_what_was_asked(blocks: &dyn Blocks) {
    let page = u64::from(blocks.page_bytes());
    for number in [2, 3, 10, 12, 14] {
        write(blocks, number * page, pattern(number, page as usize)).await;
    }
    for asked in [range(0, 20 * page), range(page / 2, 12 * page), range(2 * page + 1, 1), range(11 * page, 2 * page)] {
        let found = spans(blocks, asked).await;
        let content = read(blocks, asked.offset, asked.bytes).await;
        let mut at = 0;
        for span in &found {
            let part = &content[at..at + span.bytes as usize];
            assert!(span.kind == SpanKind::Data || is_zero(part), "a hole with bytes in {asked:?}");
            at += part.len();
        }
        for spans_max in 1..=found.len() {
            let few = blocks.spans(asked, spans_max).await.expect("spans");
            assert!(!few.is_empty() && few.len() <= spans_max);
            assert_eq!(
                few[..few.len() - 1],
                found[..few.len() - 1],
                "the first of them, except that the last may be cut"
            );
        }
    }
}

async fn writes_that_overlap_end_as_one_of_them(blocks: Arc<dyn Blocks>) {
    let page = u64::from(blocks.page_bytes());
    for round in 0..20 {
        let (left, right) = (pattern(100 + round, 4 * page as usize), pattern(200 + round, 4 * page as usize));
        let before = read(&*blocks, 0, 6 * page).await;
        let (first, second) = join(
            blocks.write(0, left.clone(), Durable::WithFlush),
            blocks.write(2 * page, right.clone(), Durable::WithFlush),
        )
        .await;
        first.expect("write");
        second.expect("write");
        let after = read(&*blocks, 0, 6 * page).await;
        let page = page as usize;
        assert!(after[..2 * page] == left[..2 * page] && after[4 * page..] == right[2 * page..], "round {round}");
        for number in 2..4 {
            let found = &after[number * page..(number + 1) * page];
            let one = found == &left[number * page..(number + 1) * page];
            let other = found == &right[(number - 2) * page..(number - 1) * page];
            assert!(one || other, "round {round}: page {number} is of neither write; before: {:?}", &before[..8]);
        }
    }
}

async fn a_page_is_read_before_or_after_a_write(blocks: Arc<dyn Blocks>) {
    let page = u64::from(blocks.page_bytes());
    for round in 0..20u8 {
        let content = Bytes::from(vec![round + 1; 3 * page as usize]);
        let (written, seen) =
            join(blocks.write(page, content, Durable::WithFlush), blocks.read(range(page, 3 * page))).await;
        written.expect("write");
        let seen = joined(seen.expect("read"));
        for found in seen.chunks(page as usize) {
            assert!(found.iter().all(|byte| *byte == found[0]), "round {round}: a page of two writes");
            assert!(found[0] == round || found[0] == round + 1, "round {round}: a page of an older write");
        }
    }
}

/// Any calls, compared with plain bytes after each.
async fn random_calls_do_as_plain_bytes_do(blocks: &dyn Blocks, seed: u64) {
    const CALLS: usize = 300;
    let page = u64::from(blocks.page_bytes());
    let bytes = 40 * page;
    let mut model = vec![0; bytes as usize];
    let draws = pattern(seed, CALLS * 16);
    for (number, draw) in draws.chunks_exact(16).enumerate() {
        let word = |at: usize| u64::from(u32::from_le_bytes([draw[at], draw[at + 1], draw[at + 2], draw[at + 3]]));
        let mut offset = word(0) % bytes;
        let mut length = word(4) % (1 + [64, page, 3 * page, 12 * page][draw[8] as usize % 4]);
        if draw[9] % 3 == 0 {
            offset -= offset % page;
            length = length.next_multiple_of(page);
        }
        length = length.min(bytes - offset);
        let asked = range(offset, length);
        let durable = if draw[10] % 4 == 0 { Durable::Now } else { Durable::WithFlush };
        let place = offset as usize..(offset + length) as usize;
        match draw[11] % 8 {
            0..=3 => {
                let content = pattern(seed * 1000 + number as u64, length as usize);
                model[place].copy_from_slice(&content);
                blocks.write(offset, content, durable).await.expect("write");
            }
            4 => {
                model[place].fill(0);
                blocks.discard(asked, durable).await.expect("discard");
            }
            5 => {
                model[place].fill(0);
                let space = if draw[12] % 2 == 0 { Space::Keep } else { Space::Return };
                blocks.write_zeroes(asked, Zeroing { space, only_fast: false, durable }).await.expect("write_zeroes");
            }
            6 => blocks.flush().await.expect("flush"),
            _ => {
                let mut at = 0;
                for span in spans(blocks, asked).await {
                    let part = &model[place.clone()][at..at + span.bytes as usize];
                    assert!(span.kind == SpanKind::Data || is_zero(part), "seed {seed} call {number}: no hole");
                    at += part.len();
                }
            }
        }
        let around = range(offset.saturating_sub(page), (length + 2 * page).min(bytes - offset.saturating_sub(page)));
        let expected = &model[around.offset as usize..(around.offset + around.bytes) as usize];
        assert!(read(blocks, around.offset, around.bytes).await == expected, "seed {seed} call {number} at {offset}");
    }
    assert!(read(blocks, 0, bytes).await == model, "seed {seed}: in the end");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemoryBlocks;

    #[tokio::test]
    async fn the_reference_conforms() {
        for (bytes, page_bytes) in [(1 << 20, 4096), (300_001, 512), (64 * 8192, 8192)] {
            blocks(|| async move { Arc::new(MemoryBlocks::new(bytes, page_bytes)) as Arc<dyn Blocks> }).await;
        }
    }
}
