//! What every segment store must do, checked through the trait alone and by opening the store anew.
//!
//! Left out: that space is taken and comes back. Others take and free space of a real disk at the same time.

use async_trait::async_trait;
use bytes::Bytes;

use super::{pattern, put};
use crate::{
    ByteRange, ChunkId, ChunkStore, Generation, Lease, OwnerId, SegmentError, SegmentId, SegmentInfo, SegmentStore,
    StripeId, Term,
};

/// A store that a suite crashes and opens anew.
#[async_trait(?Send)]
pub trait Reopen {
    /// The store as it is open now.
    fn store(&self) -> &dyn ChunkStore;

    /// Ends it with no more than it has made durable, or with more where it cannot lose that, and opens it anew.
    async fn reopen(&mut self);
}

/// Runs every check, each on a new empty store from `make`. Stores must hold at least 32 MiB.
///
/// # Panics
/// If the store breaks the contract.
pub async fn segments<R: Reopen, F: Future<Output = R>>(mut make: impl FnMut() -> F) {
    absent_segments_are_not_found(make().await.store().segments()).await;
    what_was_appended_is_read(make().await.store().segments()).await;
    appends_go_where_none_was_and_no_further(make().await.store().segments()).await;
    appends_come_in_any_order(make().await).await;
    a_number_is_taken_once(make().await.store().segments()).await;
    each_owner_has_its_own(make().await.store().segments()).await;
    a_fence_refuses_lesser_terms(make().await.store().segments()).await;
    a_fence_seals_what_lesser_terms_began(make().await.store().segments()).await;
    a_lease_that_began_nothing_appends_nothing(make().await.store().segments()).await;
    a_full_store_makes_no_segment(make().await.store()).await;
    a_forgotten_owner_is_gone(make().await.store().segments()).await;
    chunks_and_segments_do_not_meet(make().await.store()).await;
    what_was_synced_is_there_after_a_crash(make().await).await;
    segments_are_sealed_after_a_crash(make().await).await;
    a_fence_outlives_a_crash(make().await).await;
    a_sealed_segment_is_opened_again(make().await).await;
}

const OWNER: OwnerId = OwnerId(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);
const BYTES: u64 = 1 << 20;

fn lease(term: u64) -> Lease {
    Lease { owner: OWNER, term: Term(term) }
}

fn id(number: u64) -> SegmentId {
    SegmentId { owner: OWNER, number }
}

fn range(offset: u64, bytes: u64) -> ByteRange {
    ByteRange { offset, bytes }
}

fn info(number: u64, term: u64, bytes: u64) -> SegmentInfo {
    SegmentInfo { id: id(number), term: Term(term), bytes }
}

async fn numbers(store: &dyn SegmentStore, owner: OwnerId) -> Vec<u64> {
    store.segments(owner).await.expect("segments").iter().map(|info| info.id.number).collect()
}

async fn read(store: &dyn SegmentStore, number: u64, offset: u64, bytes: usize) -> Bytes {
    let mut buffers = store.read_segment(id(number), &[range(offset, bytes as u64)]).await.expect("readable");
    assert_eq!(buffers.len(), 1, "one buffer for one range");
    buffers.remove(0)
}

/// A segment with synced content.
async fn begin(store: &dyn SegmentStore, number: u64, term: u64, content: Bytes) {
    store.create_segment(number, lease(term), BYTES).await.expect("create");
    store.append(number, lease(term), 0, content).await.expect("append");
    store.sync_segment(number, lease(term)).await.expect("sync");
}

async fn absent_segments_are_not_found(store: &dyn SegmentStore) {
    let missing = SegmentError::NotFound { id: id(1) };
    assert_eq!(store.append(1, lease(1), 0, pattern(1, 10)).await, Err(missing.clone()));
    assert_eq!(store.sync_segment(1, lease(1)).await, Err(missing.clone()));
    assert_eq!(store.read_segment(id(1), &[range(0, 1)]).await, Err(missing));
    assert_eq!(store.delete_segment(1, lease(1)).await, Ok(()));
    assert_eq!(store.segments(OWNER).await, Ok(vec![]));
    assert_eq!(store.owners().await, Ok(vec![]));
    assert_eq!(store.forget_owner(lease(1)).await, Ok(()));
}

async fn what_was_appended_is_read(store: &dyn SegmentStore) {
    store.create_segment(7, lease(1), BYTES).await.expect("create");
    assert_eq!(store.segments(OWNER).await, Ok(vec![info(7, 1, BYTES)]));
    let mut content = Vec::new();
    for (seed, bytes) in (0..).zip([1, 511, 4096, 0, 4160, 8192, 100_000, 3]) {
        let more = pattern(seed, bytes);
        store.append(7, lease(1), content.len() as u64, more.clone()).await.expect("append");
        content.extend_from_slice(&more);
        assert!(read(store, 7, 0, content.len()).await == content, "after {bytes} bytes, before a sync");
        if seed % 2 == 0 {
            store.sync_segment(7, lease(1)).await.expect("sync");
        }
    }
    let end = content.len() as u64;
    let ranges = [range(end - 1, 1), range(0, 0), range(500, 5000), range(BYTES, 0), range(end, BYTES - end)];
    let buffers = store.read_segment(id(7), &ranges).await.expect("all of what is reserved is readable");
    assert_eq!(buffers.iter().map(|buffer| buffer.len() as u64).collect::<Vec<_>>(), ranges.map(|range| range.bytes));
    assert!(buffers[0] == content[content.len() - 1..] && buffers[2] == content[500..5500]);
    assert_eq!(store.delete_segment(7, lease(1)).await, Ok(()));
    assert_eq!(store.read_segment(id(7), &[range(0, 1)]).await, Err(SegmentError::NotFound { id: id(7) }));
    let missing = SegmentError::NotFound { id: id(7) };
    assert_eq!(store.append(7, lease(1), end, pattern(1, 1)).await, Err(missing));
}

async fn appends_go_where_none_was_and_no_further(store: &dyn SegmentStore) {
    store.create_segment(1, lease(1), 10_000).await.expect("create");
    store.append(1, lease(1), 0, pattern(1, 6000)).await.expect("append");
    for (offset, bytes) in [(0, 1), (5999, 10), (0, 10_000), (6000, 4001), (9999, 2), (10_000, 1), (u64::MAX, 1)] {
        let refused = SegmentError::OutOfRange { id: id(1), range: range(offset, bytes as u64), end_bytes: 6000 };
        assert_eq!(store.append(1, lease(1), offset, pattern(2, bytes)).await, Err(refused));
    }
    store.append(1, lease(1), 6000, pattern(3, 4000)).await.expect("it fits exactly");
    for bad in [range(0, 10_001), range(10_000, 1), range(u64::MAX, 1), range(1, u64::MAX)] {
        let refused = SegmentError::OutOfRange { id: id(1), range: bad, end_bytes: 10_000 };
        assert_eq!(store.read_segment(id(1), &[range(0, 1), bad]).await, Err(refused));
    }
    assert!(read(store, 1, 0, 6000).await == pattern(1, 6000));
    assert!(read(store, 1, 6000, 4000).await == pattern(3, 4000));
}

async fn appends_come_in_any_order(mut subject: impl Reopen) {
    let store = subject.store().segments();
    store.create_segment(1, lease(1), BYTES).await.expect("create");
    let append = |at: u64| store.append(1, lease(1), at * 1000, pattern(at, 1000));
    append(3).await.expect("a gap before it");
    append(1).await.expect("another one");
    let refused = store.append(1, lease(1), 3999, pattern(9, 10)).await;
    assert!(matches!(refused, Err(SegmentError::OutOfRange { end_bytes: 0, .. })), "one was there: {refused:?}");
    let refused = store.append(1, lease(1), 2500, pattern(9, 1000)).await;
    assert!(matches!(refused, Err(SegmentError::OutOfRange { end_bytes: 0, .. })), "one was there: {refused:?}");
    assert!(read(store, 1, 3000, 1000).await == pattern(3, 1000), "what is behind a gap is read");
    store.sync_segment(1, lease(1)).await.expect("sync");
    // Many at once, which fill the gaps too.
    let rest = tokio::join!(append(6), append(2), append(5), append(0), append(8), append(7), append(4), append(9));
    assert_eq!(rest, (Ok(()), Ok(()), Ok(()), Ok(()), Ok(()), Ok(()), Ok(()), Ok(())), "each has its place");
    for at in 0..10 {
        assert!(read(store, 1, at * 1000, 1000).await == pattern(at, 1000), "append {at}");
    }
    let refused = store.append(1, lease(1), 9999, pattern(9, 10)).await;
    assert!(matches!(refused, Err(SegmentError::OutOfRange { end_bytes: 10_000, .. })), "{refused:?}");
    subject.reopen().await;
    let store = subject.store().segments();
    for at in [1, 3] {
        assert!(read(store, 1, at * 1000, 1000).await == pattern(at, 1000), "append {at} was synced");
    }
    // Opened again at a gap, all behind it is appended anew.
    store.reopen_segment(1, lease(1), 2000).await.expect("it is sealed");
    store.append(1, lease(1), 3000, pattern(13, 1000)).await.expect("a gap before it");
    store.append(1, lease(1), 2000, pattern(12, 1000)).await.expect("the gap");
    assert!(read(store, 1, 1000, 3000).await == [pattern(1, 1000), pattern(12, 1000), pattern(13, 1000)].concat());
}

async fn a_number_is_taken_once(store: &dyn SegmentStore) {
    begin(store, 3, 1, pattern(1, 100)).await;
    let taken = SegmentError::AlreadyExists { id: id(3) };
    assert_eq!(store.create_segment(3, lease(1), BYTES).await, Err(taken.clone()));
    assert_eq!(store.create_segment(3, lease(2), 5).await, Err(taken));
    assert!(read(store, 3, 0, 100).await == pattern(1, 100));
    let (left, right) =
        tokio::join!(store.create_segment(4, lease(1), BYTES), store.create_segment(4, lease(1), BYTES));
    assert!(left.is_ok() != right.is_ok(), "{left:?} {right:?}");
    assert_eq!(left.and(right), Err(SegmentError::AlreadyExists { id: id(4) }));
}

async fn each_owner_has_its_own(store: &dyn SegmentStore) {
    let others = [OwnerId(0), OwnerId(OWNER.0 + 1), OwnerId(u128::MAX)];
    for number in [9, 1, u64::MAX, 0, 10] {
        store.create_segment(number, lease(1), 100).await.expect("create");
    }
    for owner in others {
        let lease = Lease { owner, term: Term(5) };
        store.create_segment(9, lease, 200).await.expect("create");
        store.append(9, lease, 0, pattern(owner.0 as u64, 200)).await.expect("append");
    }
    assert_eq!(numbers(store, OWNER).await, [0, 1, 9, 10, u64::MAX]);
    assert_eq!(store.owners().await, Ok(vec![others[0], OWNER, others[1], others[2]]));
    for owner in others {
        let id = SegmentId { owner, number: 9 };
        assert_eq!(store.segments(owner).await, Ok(vec![SegmentInfo { id, term: Term(5), bytes: 200 }]));
        assert!(store.read_segment(id, &[range(0, 200)]).await.expect("read")[0] == pattern(owner.0 as u64, 200));
    }
    store.delete_segment(9, Lease { owner: others[1], term: Term(5) }).await.expect("delete");
    assert_eq!(numbers(store, OWNER).await, [0, 1, 9, 10, u64::MAX]);
}

async fn a_fence_refuses_lesser_terms(store: &dyn SegmentStore) {
    begin(store, 1, 4, pattern(1, 100)).await;
    store.fence(lease(6)).await.expect("fence");
    store.fence(lease(6)).await.expect("again is no error");
    assert_eq!(store.owners().await, Ok(vec![OWNER]));
    for term in [0, 4, 5] {
        let refused = Err(SegmentError::Fenced { lease: lease(term), fenced: Term(6) });
        assert_eq!(store.fence(lease(term)).await, refused);
        assert_eq!(store.create_segment(2, lease(term), BYTES).await, refused);
        assert_eq!(store.append(1, lease(term), 100, pattern(1, 1)).await, refused);
        assert_eq!(store.sync_segment(1, lease(term)).await, refused);
        assert_eq!(store.delete_segment(1, lease(term)).await, refused);
        assert_eq!(store.delete_segment(99, lease(term)).await, refused);
        assert_eq!(store.forget_owner(lease(term)).await, refused);
    }
    assert_eq!(numbers(store, OWNER).await, [1]);
    begin(store, 2, 6, pattern(2, 100)).await;
    // A greater one needs no fence of its own for changes.
    begin(store, 3, 7, pattern(3, 100)).await;
    store.append(2, lease(6), 100, pattern(4, 10)).await.expect("nobody fenced 7");
    store.fence(lease(7)).await.expect("fence");
    let refused = SegmentError::Fenced { lease: lease(6), fenced: Term(7) };
    assert_eq!(store.append(2, lease(6), 110, pattern(4, 10)).await, Err(refused));
    store.append(3, lease(7), 100, pattern(5, 10)).await.expect("the fence is its own");
    let other = Lease { owner: OwnerId(1), term: Term(1) };
    store.create_segment(1, other, BYTES).await.expect("another owner's lease");
}

async fn a_fence_seals_what_lesser_terms_began(store: &dyn SegmentStore) {
    begin(store, 1, 1, pattern(1, 100)).await;
    store.fence(lease(2)).await.expect("fence");
    let sealed = SegmentError::Sealed { id: id(1) };
    assert_eq!(store.append(1, lease(2), 100, pattern(1, 1)).await, Err(sealed));
    assert_eq!(store.sync_segment(1, lease(2)).await, Ok(()));
    let refused = SegmentError::Fenced { lease: lease(1), fenced: Term(2) };
    assert_eq!(store.sync_segment(1, lease(1)).await, Err(refused));
    assert!(read(store, 1, 0, 100).await == pattern(1, 100));
    assert_eq!(store.segments(OWNER).await, Ok(vec![info(1, 1, BYTES)]));
    assert_eq!(store.delete_segment(1, lease(2)).await, Ok(()));
    assert_eq!(store.segments(OWNER).await, Ok(vec![]));
}

async fn a_lease_that_began_nothing_appends_nothing(store: &dyn SegmentStore) {
    begin(store, 1, 1, pattern(1, 100)).await;
    assert_eq!(store.append(1, lease(2), 100, pattern(1, 1)).await, Err(SegmentError::Sealed { id: id(1) }));
    store.append(1, lease(1), 100, pattern(1, 1)).await.expect("who began it goes on");
}

async fn a_full_store_makes_no_segment(store: &dyn ChunkStore) {
    let total_bytes = store.space().await.expect("space").total_bytes;
    for bytes in [total_bytes + 1, u64::MAX] {
        let refused = store.segments().create_segment(1, lease(1), bytes).await;
        assert!(matches!(refused, Err(SegmentError::DiskFull { .. })), "{refused:?}");
    }
    assert_eq!(store.segments().segments(OWNER).await, Ok(vec![]));
    begin(store.segments(), 1, 1, pattern(1, 100)).await;
}

async fn a_forgotten_owner_is_gone(store: &dyn SegmentStore) {
    begin(store, 1, 5, pattern(1, 100)).await;
    begin(store, 2, 5, pattern(1, 100)).await;
    store.fence(lease(5)).await.expect("fence");
    store.forget_owner(lease(6)).await.expect("forget");
    assert_eq!(store.owners().await, Ok(vec![]));
    assert_eq!(store.segments(OWNER).await, Ok(vec![]));
    assert_eq!(store.read_segment(id(1), &[range(0, 1)]).await, Err(SegmentError::NotFound { id: id(1) }));
    let missing = SegmentError::NotFound { id: id(1) };
    assert_eq!(store.append(1, lease(5), 100, pattern(1, 1)).await, Err(missing));
    // Its fence too.
    begin(store, 1, 1, pattern(2, 100)).await;
    store.fence(lease(1)).await.expect("fence");
}

async fn chunks_and_segments_do_not_meet(store: &dyn ChunkStore) {
    // A chunk with the digits of the owner.
    let index = claystone_code::ChunkIndex(0);
    let chunk = ChunkId { stripe: StripeId(OWNER.0), index, generation: Generation(1) };
    put(store, chunk, pattern(1, 9000)).await.expect("put");
    begin(store.segments(), 1, 1, pattern(2, 9000)).await;
    assert_eq!(store.list(None, 10).await, Ok(vec![chunk]));
    store.segments().forget_owner(lease(1)).await.expect("forget");
    assert!(store.read(chunk, &[range(0, 9000)]).await.expect("read")[0] == pattern(1, 9000));
}

async fn what_was_synced_is_there_after_a_crash(mut subject: impl Reopen) {
    let store = subject.store().segments();
    begin(store, 1, 1, pattern(1, 5000)).await;
    begin(store, 2, 1, pattern(2, 100_000)).await;
    store.append(1, lease(1), 5000, pattern(3, 7000)).await.expect("append");
    store.create_segment(3, lease(1), 77).await.expect("create");
    subject.reopen().await;
    let store = subject.store().segments();
    assert_eq!(store.segments(OWNER).await, Ok(vec![info(1, 1, BYTES), info(2, 1, BYTES), info(3, 1, 77)]));
    assert!(read(store, 1, 0, 5000).await == pattern(1, 5000));
    assert!(read(store, 2, 0, 100_000).await == pattern(2, 100_000));
    // What was not synced is anything, and readable.
    assert_eq!(read(store, 1, 0, BYTES as usize).await.len(), BYTES as usize);
    assert_eq!(read(store, 3, 0, 77).await.len(), 77);
    assert_eq!(store.owners().await, Ok(vec![OWNER]));
}

async fn segments_are_sealed_after_a_crash(mut subject: impl Reopen) {
    begin(subject.store().segments(), 1, 1, pattern(1, 100)).await;
    subject.reopen().await;
    let store = subject.store().segments();
    for term in [1, 2] {
        let sealed = SegmentError::Sealed { id: id(1) };
        assert_eq!(store.append(1, lease(term), 100, pattern(1, 1)).await, Err(sealed.clone()));
        assert_eq!(store.append(1, lease(term), 0, pattern(1, 1)).await, Err(sealed));
        store.sync_segment(1, lease(term)).await.expect("what is in it is made durable");
    }
    assert_eq!(store.create_segment(1, lease(1), 9).await, Err(SegmentError::AlreadyExists { id: id(1) }));
    assert!(read(store, 1, 0, 100).await == pattern(1, 100));
    begin(store, 2, 1, pattern(2, 100)).await;
    store.delete_segment(1, lease(1)).await.expect("delete");
    assert_eq!(numbers(store, OWNER).await, [2]);
    assert_eq!(store.read_segment(id(1), &[range(0, 1)]).await, Err(SegmentError::NotFound { id: id(1) }));
}

async fn a_fence_outlives_a_crash(mut subject: impl Reopen) {
    begin(subject.store().segments(), 1, 3, pattern(1, 100)).await;
    for term in [4, 9] {
        subject.store().segments().fence(lease(term)).await.expect("fence");
        subject.reopen().await;
        let store = subject.store().segments();
        let refused = Err(SegmentError::Fenced { lease: lease(3), fenced: Term(term) });
        assert_eq!(store.create_segment(2, lease(3), 10).await, refused);
        assert_eq!(store.delete_segment(1, lease(3)).await, refused);
        assert_eq!(store.fence(lease(3)).await, refused);
        store.fence(lease(term)).await.expect("again is no error");
        store.create_segment(term, lease(term), 10).await.expect("the one that was fenced");
        assert_eq!(store.owners().await, Ok(vec![OWNER]));
    }
    assert_eq!(numbers(subject.store().segments(), OWNER).await, [1, 4, 9]);
}

async fn a_sealed_segment_is_opened_again(mut subject: impl Reopen) {
    let store = subject.store().segments();
    assert_eq!(store.reopen_segment(9, lease(1), 0).await.err(), Some(SegmentError::NotFound { id: id(9) }));
    begin(store, 1, 1, pattern(1, 3000)).await;
    subject.reopen().await;
    let store = subject.store().segments();
    store.fence(lease(2)).await.expect("a greater term");
    let refused = store.reopen_segment(1, lease(1), 2000).await;
    assert!(matches!(refused, Err(SegmentError::Fenced { .. })), "a former lease opens nothing");
    let refused = store.reopen_segment(1, lease(2), BYTES + 1).await;
    assert!(matches!(refused, Err(SegmentError::OutOfRange { .. })), "there is no room so far behind");
    store.reopen_segment(1, lease(2), 2000).await.expect("it is sealed");
    let refused = store.append(1, lease(2), 1999, pattern(2, 10)).await;
    assert!(matches!(refused, Err(SegmentError::OutOfRange { end_bytes: 2000, .. })), "it ends where it was told");
    store.append(1, lease(2), 2000, pattern(2, 4000)).await.expect("its end");
    store.sync_segment(1, lease(2)).await.expect("sync");
    store.fence(lease(3)).await.expect("a greater term");
    let refused = store.append(1, lease(2), 6000, pattern(3, 10)).await;
    assert!(matches!(refused, Err(SegmentError::Fenced { .. })), "a fence ends it as any other");
    subject.reopen().await;
    let store = subject.store().segments();
    assert_eq!(store.segments(OWNER).await.expect("segments"), [info(1, 1, BYTES)], "it is who made it that is named");
    assert_eq!(read(store, 1, 0, 2000).await, pattern(1, 3000).slice(..2000));
    assert_eq!(read(store, 1, 2000, 4000).await, pattern(2, 4000));
}
