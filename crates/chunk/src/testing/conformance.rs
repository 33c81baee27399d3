//! What every chunk store must do, checked through the trait alone.

use std::sync::Arc;

use bytes::Bytes;
use claystone_code::ChunkIndex;

use crate::{
    ByteRange, ChunkError, ChunkId, ChunkInfo, ChunkStore, Durability, Generation, Lease, Overwrite, OwnerId,
    StoreState, StripeId, Term,
};

/// Runs every check, each on a new empty store from `make`. Stores must hold at least 64 MiB.
///
/// # Panics
/// If the store breaks the contract.
pub async fn conformance<F: Future<Output = Arc<dyn ChunkStore>>>(mut make: impl FnMut() -> F) {
    absent_chunks_are_not_found(&*make().await).await;
    what_was_written_is_read(&*make().await).await;
    ranges_outside_are_refused(&*make().await).await;
    a_chunk_is_invisible_until_committed(&*make().await).await;
    a_dropped_writer_leaves_nothing(&*make().await).await;
    an_id_is_taken_once(&*make().await).await;
    a_chunk_has_exactly_its_length(&*make().await).await;
    overwrites_change_what_they_name(&*make().await).await;
    zeros_are_content(&*make().await).await;
    overwrites_of_parts_of_sectors_are_refused(&*make().await).await;
    a_fenced_lease_overwrites_nothing(&*make().await).await;
    reads_beside_overwrites_see_whole_sectors(&*make().await).await;
    deleted_chunks_are_gone(&*make().await).await;
    lists_are_ordered_and_paged(&*make().await).await;
    verify_reads_every_byte(&*make().await).await;
    buffered_chunks_are_readable_and_can_be_synced(&*make().await).await;
    one_of_two_racing_writers_wins(&*make().await).await;
    a_new_store_serves(&*make().await).await;
}

/// Bytes that differ by `seed` and by place.
pub fn pattern(seed: u64, bytes: usize) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut content = Vec::with_capacity(bytes + 8);
    while content.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // The low bits of a word alone would repeat sooner.
        content.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    content.truncate(bytes);
    content.into()
}

/// Writes a whole chunk, synced.
///
/// # Errors
/// Those of [`ChunkStore::create`] and [`ChunkWriter::commit`](crate::ChunkWriter::commit).
pub async fn put(store: &dyn ChunkStore, id: ChunkId, bytes: Bytes) -> Result<(), ChunkError> {
    let mut writer = store.create(id, bytes.len() as u64).await?;
    writer.append(bytes).await?;
    writer.commit(Durability::Synced).await
}

// Both sides of a sector, of what fits into one sector with a header, and of 1 MiB, where stores may begin to stream.
const LENGTHS: [usize; 14] =
    [1, 511, 512, 1024, 4028, 4029, 4095, 4096, 4097, 10_000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (3 << 20) + 17];

const LEASE: Lease = Lease { owner: OwnerId(7), term: Term(2) };

fn id(number: u64) -> ChunkId {
    // Spread over both ends of the id, so that stores that sort by either see several places.
    let stripe = StripeId((u128::from(number) << 80) | u128::from(number * 7));
    ChunkId { stripe, index: ChunkIndex((number % 5) as u16), generation: Generation((number % 3) as u32) }
}

fn range(offset: u64, bytes: u64) -> ByteRange {
    ByteRange { offset, bytes }
}

async fn read_all(store: &dyn ChunkStore, id: ChunkId, bytes: usize) -> Bytes {
    let mut buffers = store.read(id, &[range(0, bytes as u64)]).await.expect("the chunk is readable");
    assert_eq!(buffers.len(), 1, "one buffer for one range");
    buffers.remove(0)
}

async fn absent_chunks_are_not_found(store: &dyn ChunkStore) {
    let id = id(1);
    let missing = ChunkError::NotFound { id };
    let change = [Overwrite { offset: 0, bytes: Bytes::from_static(b"x") }];
    assert_eq!(store.read(id, &[range(0, 1)]).await, Err(missing.clone()));
    assert_eq!(store.info(id).await, Err(missing.clone()));
    assert_eq!(store.verify(id).await, Err(missing.clone()));
    assert_eq!(store.overwrite(id, LEASE, &change).await, Err(missing));
    assert_eq!(store.delete(id).await, Ok(()));
    assert_eq!(store.list(None, 10).await, Ok(vec![]));
}

async fn what_was_written_is_read(store: &dyn ChunkStore) {
    for (number, bytes) in (0..).zip(LENGTHS) {
        let id = id(number);
        let content = pattern(number, bytes);
        let mut writer = store.create(id, bytes as u64).await.expect("create");
        // Appends that fit neither sectors nor each other.
        let mut rest = content.clone();
        let mut step = 1;
        while !rest.is_empty() {
            writer.append(rest.split_to(step.min(rest.len()))).await.expect("append");
            step = step * 3 + 1;
        }
        writer.commit(Durability::Synced).await.expect("commit");

        assert_eq!(store.info(id).await, Ok(ChunkInfo { bytes: bytes as u64 }));
        assert!(read_all(store, id, bytes).await == content, "chunk of {bytes} bytes");
        let end = bytes as u64;
        let ranges = [
            range(end - 1, 1),
            range(0, 1),
            range(end / 2, end - end / 2),
            range(end / 3, end / 2),
            range(0, 0),
            range(end, 0),
            range(4096.min(end), 4096.min(end.saturating_sub(4096))),
        ];
        let buffers = store.read(id, &ranges).await.expect("read");
        assert_eq!(buffers.len(), ranges.len());
        for (range, buffer) in ranges.iter().zip(buffers) {
            assert!(buffer == content[range.offset as usize..range.end() as usize], "{range:?} of {bytes} bytes");
        }
    }
    // The later chunks harmed none of the earlier ones.
    for (number, bytes) in (0..).zip(LENGTHS) {
        assert!(read_all(store, id(number), bytes).await == pattern(number, bytes), "chunk of {bytes} bytes again");
    }
}

async fn ranges_outside_are_refused(store: &dyn ChunkStore) {
    let id = id(1);
    put(store, id, pattern(1, 5000)).await.expect("put");
    for bad in [range(0, 5001), range(5000, 1), range(5001, 0), range(u64::MAX, 1), range(1, u64::MAX)] {
        let refused = ChunkError::OutOfRange { id, range: bad, chunk_bytes: 5000 };
        assert_eq!(store.read(id, &[range(0, 1), bad]).await, Err(refused));
    }
    for (offset, bytes) in [(4096, 905), (8192, 1), (5000, 1), (4999, 2), (u64::MAX, 1)] {
        let good = Overwrite { offset: 0, bytes: pattern(2, 4096) };
        let bad = Overwrite { offset, bytes: pattern(2, bytes) };
        let refused = ChunkError::OutOfRange { id, range: bad.range(), chunk_bytes: 5000 };
        assert_eq!(store.overwrite(id, LEASE, &[good, bad]).await, Err(refused));
    }
    assert!(read_all(store, id, 5000).await == pattern(1, 5000), "nothing was changed");
}

async fn a_chunk_is_invisible_until_committed(store: &dyn ChunkStore) {
    for (number, bytes) in [(1, 100), (2, 5 << 20)] {
        let id = id(number);
        let content = pattern(number, bytes);
        let mut writer = store.create(id, bytes as u64).await.expect("create");
        writer.append(content.slice(..bytes - 1)).await.expect("append");
        assert_eq!(store.info(id).await, Err(ChunkError::NotFound { id }));
        assert_eq!(store.read(id, &[range(0, 1)]).await, Err(ChunkError::NotFound { id }));
        assert!(!store.list(None, 10).await.expect("list").contains(&id));
        writer.append(content.slice(bytes - 1..)).await.expect("append");
        writer.commit(Durability::Synced).await.expect("commit");
        assert!(read_all(store, id, bytes).await == content);
        assert!(store.list(None, 10).await.expect("list").contains(&id));
    }
}

async fn a_dropped_writer_leaves_nothing(store: &dyn ChunkStore) {
    for (number, bytes) in [(1, 100), (2, 5 << 20)] {
        let id = id(number);
        let mut writer = store.create(id, bytes as u64).await.expect("create");
        writer.append(pattern(number, bytes)).await.expect("append");
        drop(writer);
        assert_eq!(store.info(id).await, Err(ChunkError::NotFound { id }));
        assert_eq!(store.list(None, 10).await, Ok(vec![]));
    }
}

async fn an_id_is_taken_once(store: &dyn ChunkStore) {
    let id = id(3);
    put(store, id, pattern(1, 300)).await.expect("put");
    for bytes in [300, 3 << 20] {
        assert_eq!(put(store, id, pattern(2, bytes)).await, Err(ChunkError::AlreadyExists { id }));
    }
    assert!(read_all(store, id, 300).await == pattern(1, 300));
    assert_eq!(store.list(None, 10).await, Ok(vec![id]));
}

async fn a_chunk_has_exactly_its_length(store: &dyn ChunkStore) {
    let id = id(4);
    let mut writer = store.create(id, 10).await.expect("create");
    writer.append(pattern(1, 8)).await.expect("append");
    let beyond = ChunkError::OutOfRange { id, range: range(8, 3), chunk_bytes: 10 };
    assert_eq!(writer.append(pattern(1, 3)).await, Err(beyond));
    drop(writer);

    let id = self::id(5);
    let mut writer = store.create(id, 10).await.expect("create");
    writer.append(pattern(1, 8)).await.expect("append");
    let missing = writer.commit(Durability::Synced).await;
    assert!(matches!(missing, Err(ChunkError::OutOfRange { .. })), "{missing:?}");
    assert_eq!(store.info(id).await, Err(ChunkError::NotFound { id }));
    assert_eq!(store.list(None, 10).await, Ok(vec![]));
}

async fn overwrites_change_what_they_name(store: &dyn ChunkStore) {
    // The last length has table entries behind the first 4096 bytes of a file.
    for (number, bytes) in (0..).zip([50, 4028, 4096, 9000, 2 << 20, (5 << 20) + 1]) {
        let id = id(number);
        let mut content = pattern(number, bytes).to_vec();
        put(store, id, content.clone().into()).await.expect("put");
        let last = (bytes - 1) / 4096 * 4096;
        let middle = bytes / 2 / 4096 * 4096;
        let span = |from: usize, to: usize| from..to;
        let sector = |offset: usize| offset..(offset + 4096).min(bytes);
        let calls = [
            vec![sector(0)],
            vec![sector(last)],
            vec![span(0, bytes)],
            vec![],
            vec![span(middle, middle)],
            // Apart, adjacent, backwards, and one twice.
            vec![sector(0), sector(last)],
            vec![span(0, middle), span(middle, bytes)],
            vec![sector(last), sector(middle), sector(0), sector(middle)],
        ];
        for (call, ranges) in (100..).zip(calls) {
            let changes: Vec<Overwrite> = (call * 10..)
                .zip(ranges)
                .map(|(seed, range)| {
                    let new = pattern(seed, range.len());
                    content[range.clone()].copy_from_slice(&new);
                    Overwrite { offset: range.start as u64, bytes: new }
                })
                .collect();
            store.overwrite(id, LEASE, &changes).await.expect("overwrite");
            assert!(read_all(store, id, bytes).await == content, "call {call} on {bytes} bytes");
            let one = store.read(id, &[range(last as u64, 1)]).await.expect("read");
            assert!(one[0] == content[last..last + 1]);
        }
        assert_eq!(store.sync().await, Ok(()));
        assert_eq!(store.info(id).await, Ok(ChunkInfo { bytes: bytes as u64 }));
        assert_eq!(store.verify(id).await.expect("verify").lost_sectors, vec![]);
        assert!(read_all(store, id, bytes).await == content);
    }
    let id = id(9);
    put(store, id, pattern(1, 9000)).await.expect("put");
    store.overwrite(id, LEASE, &[Overwrite { offset: 0, bytes: pattern(2, 4096) }]).await.expect("overwrite");
    store.delete(id).await.expect("delete");
    assert_eq!(store.read(id, &[range(0, 1)]).await, Err(ChunkError::NotFound { id }));
    let change = [Overwrite { offset: 0, bytes: pattern(2, 4096) }];
    assert_eq!(store.overwrite(id, LEASE, &change).await, Err(ChunkError::NotFound { id }));
    put(store, id, pattern(3, 5000)).await.expect("put");
    assert_eq!(store.sync().await, Ok(()));
    assert!(read_all(store, id, 5000).await == pattern(3, 5000));
}

/// A store may keep zeros without space, and nobody notices.
async fn zeros_are_content(store: &dyn ChunkStore) {
    for (number, bytes) in (0..).zip([1, 4028, 4096, 10_000, 1 << 20, (3 << 20) + 17]) {
        // Nothing else, up to the last sector, and up to the last byte of one.
        let last = (bytes - 1) / 4096 * 4096;
        for (number, zeros) in (10 * number..).zip([bytes, last, last / 2]) {
            let id = id(number);
            let mut content = pattern(number, bytes).to_vec();
            content[..zeros].fill(0);
            let mut writer = store.create(id, bytes as u64).await.expect("create");
            for part in content.chunks((bytes / 3).max(1)) {
                writer.append(part.to_vec().into()).await.expect("append");
            }
            writer.commit(Durability::Synced).await.expect("commit");
            assert!(read_all(store, id, bytes).await == content, "{zeros} of {bytes}");
            assert_eq!(store.info(id).await, Ok(ChunkInfo { bytes: bytes as u64 }));
            assert_eq!(store.verify(id).await.expect("verify").lost_sectors, vec![]);
            if number % 2 == 0 {
                store.take_space(id).await.expect("filled");
                assert!(read_all(store, id, bytes).await == content, "{zeros} of {bytes}, filled");
            }
            let new = pattern(99, bytes - last);
            content[last..].copy_from_slice(&new);
            let change = Overwrite { offset: last as u64, bytes: new };
            store.overwrite(id, LEASE, &[change]).await.expect("overwrite");
            assert!(read_all(store, id, bytes).await == content, "{zeros} of {bytes}, overwritten");
            assert_eq!(store.sync().await, Ok(()));
            assert_eq!(store.verify(id).await.expect("verify").lost_sectors, vec![]);
            store.delete(id).await.expect("delete");
        }
    }
    let id = id(1);
    assert!(matches!(store.take_space(id).await, Ok(()) | Err(ChunkError::NotFound { .. })));
}

async fn overwrites_of_parts_of_sectors_are_refused(store: &dyn ChunkStore) {
    let id = id(1);
    put(store, id, pattern(1, 9000)).await.expect("put");
    for (offset, bytes) in [(0, 1), (0, 4095), (1, 4095), (4096, 4097), (8192, 807), (8193, 807), (100, 0)] {
        let good = Overwrite { offset: 0, bytes: pattern(2, 4096) };
        let bad = Overwrite { offset, bytes: pattern(2, bytes) };
        let refused = ChunkError::NotSectors { id, range: bad.range() };
        assert_eq!(store.overwrite(id, LEASE, &[good, bad]).await, Err(refused));
    }
    assert!(read_all(store, id, 9000).await == pattern(1, 9000), "nothing was changed");
}

async fn a_fenced_lease_overwrites_nothing(store: &dyn ChunkStore) {
    let id = id(1);
    put(store, id, pattern(1, 4096)).await.expect("put");
    let change = |seed| [Overwrite { offset: 0, bytes: pattern(seed, 4096) }];
    let lease = |term| Lease { owner: LEASE.owner, term: Term(term) };
    store.overwrite(id, lease(2), &change(2)).await.expect("nobody fenced");
    store.segments().fence(lease(3)).await.expect("fence");
    let refused = ChunkError::Fenced { lease: lease(2), fenced: Term(3) };
    assert_eq!(store.overwrite(id, lease(2), &change(3)).await, Err(refused));
    assert!(read_all(store, id, 4096).await == pattern(2, 4096));
    for (seed, lease) in [(4, lease(3)), (5, lease(4)), (6, Lease { owner: OwnerId(9), term: Term(1) })] {
        store.overwrite(id, lease, &change(seed)).await.expect("not below a fence of its owner");
        assert!(read_all(store, id, 4096).await == pattern(seed, 4096));
    }
    // Who overwrites under a term is not overwritten under a lesser one, though nobody fenced it.
    let refused = ChunkError::Fenced { lease: lease(3), fenced: Term(4) };
    assert_eq!(store.overwrite(id, lease(3), &change(7)).await, Err(refused));
    assert!(read_all(store, id, 4096).await == pattern(6, 4096));
    store.segments().fence(lease(4)).await.expect("fence");
}

async fn reads_beside_overwrites_see_whole_sectors(store: &dyn ChunkStore) {
    let id = id(1);
    let bytes = 3 * 4096;
    put(store, id, pattern(0, bytes)).await.expect("put");
    let write = async {
        for seed in 1..40 {
            let change = [Overwrite { offset: 0, bytes: pattern(seed, bytes) }];
            store.overwrite(id, LEASE, &change).await.expect("overwrite");
        }
    };
    let read = async {
        for _ in 0..40 {
            let found = read_all(store, id, bytes).await;
            let seeds: Vec<Option<u64>> = (0..3)
                .map(|sector| {
                    let part = sector * 4096..(sector + 1) * 4096;
                    (0..40).find(|seed| pattern(*seed, bytes)[part.clone()] == found[part.clone()])
                })
                .collect();
            assert!(seeds.iter().all(Option::is_some), "{seeds:?}");
        }
    };
    tokio::join!(write, read);
    assert!(read_all(store, id, bytes).await == pattern(39, bytes));
}

async fn deleted_chunks_are_gone(store: &dyn ChunkStore) {
    for (number, bytes) in [(1, 100), (2, 2 << 20)] {
        let id = id(number);
        put(store, id, pattern(1, bytes)).await.expect("put");
        assert_eq!(store.delete(id).await, Ok(()));
        assert_eq!(store.delete(id).await, Ok(()));
        assert_eq!(store.info(id).await, Err(ChunkError::NotFound { id }));
        assert_eq!(store.read(id, &[range(0, 1)]).await, Err(ChunkError::NotFound { id }));
        assert_eq!(store.list(None, 10).await, Ok(vec![]));
    }
}

async fn lists_are_ordered_and_paged(store: &dyn ChunkStore) {
    let mut ids: Vec<ChunkId> = (0..40).map(|number| id(number * 37 % 40)).collect();
    for (number, id) in ids.iter().enumerate() {
        put(store, *id, pattern(number as u64, 10)).await.expect("put");
        if number == 20 {
            // From here on the list must follow changes.
            assert_eq!(store.list(None, 100).await.expect("list").len(), 21);
        }
    }
    store.delete(ids.swap_remove(11)).await.expect("delete");
    ids.sort_unstable();
    let mut seen = Vec::new();
    loop {
        let page = store.list(seen.last().copied(), 7).await.expect("list");
        assert!(page.len() <= 7);
        if page.is_empty() {
            break;
        }
        seen.extend(page);
    }
    assert_eq!(seen, ids);
}

async fn verify_reads_every_byte(store: &dyn ChunkStore) {
    for (number, bytes) in [(1, 100), (2, 4096 * 3), (3, (2 << 20) + 1)] {
        let id = id(number);
        put(store, id, pattern(number, bytes)).await.expect("put");
        let verdict = store.verify(id).await.expect("verify");
        assert_eq!(verdict.info, ChunkInfo { bytes: bytes as u64 });
        assert_eq!(verdict.lost_sectors, vec![]);
        assert!(verdict.bytes_read >= bytes as u64);
    }
}

async fn buffered_chunks_are_readable_and_can_be_synced(store: &dyn ChunkStore) {
    let id = id(1);
    let mut writer = store.create(id, 5000).await.expect("create");
    writer.append(pattern(1, 5000)).await.expect("append");
    writer.commit(Durability::Buffered).await.expect("commit");
    assert!(read_all(store, id, 5000).await == pattern(1, 5000));
    assert_eq!(store.sync().await, Ok(()));
    assert_eq!(store.verify(id).await.expect("verify").lost_sectors, vec![]);
    store.delete(id).await.expect("delete");
    assert_eq!(store.sync().await, Ok(()));
}

async fn one_of_two_racing_writers_wins(store: &dyn ChunkStore) {
    let id = id(1);
    let (left, right) = tokio::join!(put(store, id, pattern(1, 9000)), put(store, id, pattern(2, 9000)));
    let winner = match (left, right) {
        (Ok(()), Err(ChunkError::AlreadyExists { .. })) => 1,
        (Err(ChunkError::AlreadyExists { .. }), Ok(())) => 2,
        other => panic!("one writer must win and one must find the id taken: {other:?}"),
    };
    assert!(read_all(store, id, 9000).await == pattern(winner, 9000));
}

async fn a_new_store_serves(store: &dyn ChunkStore) {
    assert_eq!(store.state(), StoreState::Serving);
    let space = store.space().await.expect("space");
    assert!(space.free_bytes <= space.total_bytes && space.free_bytes > 0, "{space:?}");
    let _ = store.load();
}
