//! Tests of `layout`.

use proptest::prelude::*;

use super::*;

fn id() -> ChunkId {
    "0000018f3c5e7a00b1c2d3e4f506172a.4.1".parse().expect("an id")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

// The worked example of docs/formats/chunk-directory.md. A change here is a new format version.
#[test]
fn the_golden_packed_file() {
    let header = Header { id: id(), bytes: 5, is_hollow: false };
    let mut file = head(&header, &SectorCrc::new(id()).table(0, b"clay\n"));
    file.extend_from_slice(b"clay\n");
    assert_eq!(
        hex(&file),
        "434c415943484e4b0100040037c573cd2a1706f5e4d3c2b1007a5e3c8f010000\
         0100000000000000050000000000000000000000000000000000000000000000\
         0e0503be636c61790a"
    );
}

#[test]
fn the_golden_aligned_file() {
    let content: Vec<u8> = (0..10_000u32).map(|at| (at / 7) as u8).collect();
    let header = Header { id: id(), bytes: 10_000, is_hollow: false };
    let head = head(&header, &SectorCrc::new(id()).table(0, &content));
    assert_eq!(head.len(), 4096);
    assert_eq!(
        hex(&head[..80]),
        "434c415943484e4b01000400efc4d3d52a1706f5e4d3c2b1007a5e3c8f010000\
         0100000000000000102700000000000000000000000000000000000000000000\
         aa04279896c9dbd8717c08fd00000000"
    );
    assert!(head[76..].iter().all(|byte| *byte == 0));
}

#[test]
fn the_golden_hollow_file() {
    let header = Header { id: id(), bytes: 10_000, is_hollow: true };
    let head = head(&header, &table_of_zeros(id(), 10_000));
    assert_eq!(
        hex(&head[..80]),
        "434c415943484e4b01000400c8b9ef9c2a1706f5e4d3c2b1007a5e3c8f010000\
         0100000000000000102700000000000000000000000000000100000000000000\
         d2ac28fd9c64605e254a330c00000000"
    );
    assert_eq!(table_of_zeros(id(), 10_000), SectorCrc::new(id()).table(0, &[0; 10_000]));
    assert_eq!(Header::decode(id(), &head), Head::Committed(header));
}

// Builds before the first release counted changes in bytes that are reserved now.
#[test]
fn what_is_in_reserved_bytes_is_not_read() {
    let header = Header { id: id(), bytes: 10_000, is_hollow: false };
    let mut bytes = header.encode();
    put(&mut bytes, 48, 3u64.to_le_bytes());
    let crc = crc32c_without(&bytes, CRC_AT);
    put(&mut bytes, CRC_AT, crc.to_le_bytes());
    assert_eq!(Header::decode(id(), &bytes), Head::Committed(header));
}

#[test]
fn content_is_packed_while_the_file_is_one_block() {
    assert_eq!((data_offset(1), file_bytes(1)), (68, 69));
    assert_eq!((data_offset(4028), file_bytes(4028)), (68, 4096));
    assert_eq!((data_offset(4029), file_bytes(4029)), (4096, 8125));
    assert_eq!(data_offset(4096), 4096);
    // 1008 entries fill the first 4096 bytes.
    assert_eq!(data_offset(1008 * SECTOR), 4096);
    assert_eq!(data_offset(1008 * SECTOR + 1), 8192);
    assert_eq!(data_offset(CHUNK_BYTES_MAX), (64 + (CHUNK_BYTES_MAX / SECTOR) * 4).next_multiple_of(SECTOR));
}

#[test]
fn a_header_says_what_it_is() {
    let header = Header { id: id(), bytes: 5, is_hollow: false };
    let bytes = header.encode();
    assert_eq!(Header::decode(id(), &bytes), Head::Committed(header));
    assert_eq!(Header::decode(id(), &[]), Head::Remnant);
    assert_eq!(Header::decode(id(), &[0; 64]), Head::Remnant);
    let other = ChunkId { generation: Generation(2), ..id() };
    assert_eq!(Header::decode(other, &bytes), Head::Damaged("it holds another chunk"));
}

#[test]
fn a_cut_header_is_damaged() {
    let bytes = Header { id: id(), bytes: 5, is_hollow: false }.encode();
    for end in 1..HEADER_BYTES {
        assert!(matches!(Header::decode(id(), &bytes[..end]), Head::Damaged(_)), "cut at {end}");
    }
}

#[test]
fn a_flip_anywhere_in_a_header_is_damage() {
    let bytes = Header { id: id(), bytes: 5, is_hollow: false }.encode();
    for bit in 0..HEADER_BYTES * 8 {
        let mut bytes = bytes;
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(matches!(Header::decode(id(), &bytes), Head::Damaged(_)), "bit {bit}");
    }
}

#[test]
fn a_newer_chunk_is_said_to_be_newer() {
    let mut bytes = Header { id: id(), bytes: 5, is_hollow: false }.encode();
    put(&mut bytes, 8, 2u16.to_le_bytes());
    let crc = crc32c_without(&bytes, CRC_AT);
    put(&mut bytes, CRC_AT, crc.to_le_bytes());
    assert_eq!(Header::decode(id(), &bytes), Head::Damaged("it needs a newer claystone"));
}

#[test]
fn a_sector_s_checksum_covers_its_place() {
    let crc = SectorCrc::new(id());
    let content = [7; 4096];
    let here = crc.of(3, &content);
    assert_ne!(here, crc.of(4, &content));
    assert_ne!(here, crc.of(3, &content[..4095]));
    for other in ["0000018f3c5e7a00b1c2d3e4f506172b.4.1", "0000018f3c5e7a00b1c2d3e4f506172a.5.1"] {
        assert_ne!(here, SectorCrc::new(other.parse().expect("an id")).of(3, &content));
    }
    // The definition of the format.
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&id().stripe.0.to_le_bytes());
    bytes.extend_from_slice(&id().index.0.to_le_bytes());
    bytes.extend_from_slice(&id().generation.0.to_le_bytes());
    bytes.extend_from_slice(&3u64.to_le_bytes());
    bytes.extend_from_slice(&content);
    assert_eq!(here, crate::fields::crc32c(&[&bytes]));
}

#[test]
fn sectors_of_a_range_cover_it() {
    let range = |offset, bytes| sectors_of(ByteRange { offset, bytes });
    assert_eq!(range(0, 1), 0..1);
    assert_eq!(range(4095, 2), 0..2);
    assert_eq!(range(4096, 4096), 1..2);
    assert_eq!(range(5000, 0), 1..1);
}

proptest! {
    #[test]
    fn headers_come_back(stripe: u128, index: u16, generation: u32, bytes in 1..=CHUNK_BYTES_MAX) {
        let id = ChunkId { stripe: StripeId(stripe), index: ChunkIndex(index), generation: Generation(generation) };
        let header = Header { id, bytes, is_hollow: false };
        prop_assert_eq!(Header::decode(id, &header.encode()), Head::Committed(header));
    }

    #[test]
    fn any_bytes_decode_without_panic(bytes: Vec<u8>) {
        let _ = Header::decode(id(), &bytes);
    }
}
