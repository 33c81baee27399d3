//! Bytes as what lies on a disk: the header of a chunk file, the identity of a disk, the record of a patch. What decodes is
//! written the same again and has lengths that make sense. Checksums are put right first, so that the fields behind them
//! are reached.
#![no_main]
#![allow(dead_code, reason = "the modules of crate `disk` that are pure, of which this uses the formats")]

#[path = "../../crates/disk/src/fields.rs"]
mod fields;
#[path = "../../crates/disk/src/identity.rs"]
mod identity;
#[path = "../../crates/disk/src/journal.rs"]
mod journal;
#[path = "../../crates/disk/src/layout.rs"]
mod layout;

use claystone_chunk::{ChunkId, Generation, StripeId};
use claystone_code::ChunkIndex;
use libfuzzer_sys::fuzz_target;

use self::fields::{crc32c, crc32c_without, put, u16_at, u32_at, u128_at};
use self::identity::{IDENTITY_BYTES, Identity};
use self::journal::{RECORD_HEADER_BYTES, Record};
use self::layout::{HEADER_BYTES, Head, Header};

fuzz_target!(|bytes: &[u8]| {
    header(bytes);
    identity(bytes);
    record(bytes);
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

fn record(bytes: &[u8]) {
    let _ = Record::decode(bytes);
    let mut whole = mended::<RECORD_HEADER_BYTES>(bytes, b"CLAYREDO").to_vec();
    let content = bytes.get(RECORD_HEADER_BYTES..).unwrap_or_default();
    if bytes.first().is_some_and(|first| first & 1 == 0) {
        put(&mut whole, 56, (content.len() as u64).to_le_bytes());
    }
    put(&mut whole, 36, crc32c(&[content]).to_le_bytes());
    let crc = crc32c_without(&whole, 12);
    put(&mut whole, 12, crc.to_le_bytes());
    whole.extend_from_slice(content);
    if let Some(record) = Record::decode(&whole) {
        assert!(content.starts_with(&record.content));
        assert_eq!(Record::decode(&record.encode()), Some(record));
    }
}
