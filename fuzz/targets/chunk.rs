//! Bytes as what lies on a disk: the header of a chunk file, the identity of a disk, the header of a segment, a fence. What
//! decodes is written the same again and has lengths that make sense. Checksums are put right first, so that the fields behind them
//! are reached.
#![no_main]
#![allow(dead_code, reason = "the modules of crate `disk` that are pure, of which this uses the formats")]

#[path = "../../crates/disk/src/fields.rs"]
mod fields;
#[path = "../../crates/disk/src/identity.rs"]
mod identity;
#[path = "../../crates/disk/src/layout.rs"]
mod layout;
#[path = "../../crates/disk/src/segment.rs"]
mod segment;

use claystone_chunk::{ChunkId, Generation, Lease, OwnerId, SegmentId, StripeId};
use claystone_code::ChunkIndex;
use libfuzzer_sys::fuzz_target;

use self::fields::{crc32c_without, put, u16_at, u32_at, u64_at, u128_at};
use self::identity::{IDENTITY_BYTES, Identity};
use self::layout::{HEADER_BYTES, Head, Header};

fuzz_target!(|bytes: &[u8]| {
    header(bytes);
    identity(bytes);
    segment(bytes);
});

/// The first bytes with magic, version and checksum as they ought to be, unless the last byte is odd: then as they are.
fn mended<const N: usize>(bytes: &[u8], magic: &[u8; 8]) -> [u8; N] {
    let mut whole = [0; N];
    let length = bytes.len().min(N);
    whole[..length].copy_from_slice(&bytes[..length]);
    if bytes.last().is_none_or(|last| last & 1 == 0) {
        put(&mut whole, 0, *magic);
        put(&mut whole, 8, 1u16.to_le_bytes());
    }
    whole
}

fn header(bytes: &[u8]) {
    let mut head: [u8; HEADER_BYTES] = mended(bytes, b"CLAYCHNK");
    let crc = crc32c_without(&head, 12);
    put(&mut head, 12, crc.to_le_bytes());
    let id = ChunkId {
        stripe: StripeId(u128_at(&head, 16)),
        index: ChunkIndex(u16_at(&head, 10)),
        generation: Generation(u32_at(&head, 32)),
    };
    let _ = Header::decode(id, bytes);
    let other = ChunkId { index: ChunkIndex(id.index.0 ^ 1), ..id };
    assert!(!matches!(Header::decode(other, &head), Head::Committed(_)), "another chunk's file was taken");
    let Head::Committed(header) = Header::decode(id, &head) else { return };
    assert_eq!(header.id, id);
    assert_eq!(Header::decode(id, &header.encode()), Head::Committed(header));
    let (sectors, offset) = (header.sectors(), header.data_offset());
    assert_eq!(header.bytes_of(0, sectors).bytes, header.bytes);
    assert!(layout::table_offset(sectors) <= offset && layout::file_bytes(header.bytes) == offset + header.bytes);
}

fn identity(bytes: &[u8]) {
    let mut whole: [u8; IDENTITY_BYTES] = mended(bytes, b"CLAYDISK");
    let crc = crc32c_without(&whole, 12);
    put(&mut whole, 12, crc.to_le_bytes());
    let _ = Identity::decode(bytes);
    if let Ok(identity) = Identity::decode(&whole) {
        assert_eq!(Identity::decode(&identity.encode()), Ok(identity));
    }
}

fn segment(bytes: &[u8]) {
    let file_bytes = 1 << 40;
    let mut whole: [u8; segment::HEADER_BYTES] = mended(bytes, b"CLAYSEGM");
    let crc = crc32c_without(&whole, 12);
    put(&mut whole, 12, crc.to_le_bytes());
    let id = SegmentId { owner: OwnerId(u128_at(&whole, 16)), number: u64_at(&whole, 32) };
    let _ = segment::decode_header(id, bytes, file_bytes);
    let other = SegmentId { number: id.number ^ 1, ..id };
    assert!(!matches!(segment::decode_header(other, &whole, file_bytes), segment::Head::Segment(_)), "another's file");
    if let segment::Head::Segment(info) = segment::decode_header(id, &whole, file_bytes) {
        assert!(info.id == id && info.bytes > 0 && info.bytes < file_bytes);
        assert_eq!(
            segment::decode_header(id, &segment::encode_header(&info), file_bytes),
            segment::Head::Segment(info)
        );
    }
    put(&mut whole, 0, *b"CLAYFENC");
    let crc = crc32c_without(&whole, 12);
    put(&mut whole, 12, crc.to_le_bytes());
    let _ = segment::decode_fence(id.owner, bytes);
    if let Ok(term) = segment::decode_fence(id.owner, &whole) {
        assert_eq!(segment::decode_fence(id.owner, &segment::encode_fence(Lease { owner: id.owner, term })), Ok(term));
    }
}
