//! Stored bytes of inode records, and that no other bytes are taken for one.

use proptest::prelude::*;

use super::*;

fn example() -> InodeRecord {
    let time = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
    InodeRecord {
        kind: Kind::Link,
        permissions: 0o4755,
        owner: 0x01020304,
        owner_group: 0x05060708,
        names: 3,
        bytes: 5,
        unused: 0x1112,
        device: 0x2122232425262728,
        accessed: time(-1, 999_999_999),
        modified: time(1, 2),
        changed: time(3, 4),
        made: time(5, 6),
        parent: Inode(0x31),
        tail: b"there".to_vec(),
    }
}

#[test]
fn stored_bytes_of_a_record() {
    let value = example().encode();
    let golden: [u8; 101] = [
        1, 3, 0xed, 0x09, 4, 3, 2, 1, 8, 7, 6, 5, 3, 0, 0, 0, // version, kind, permissions, owners, names
        5, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x11, 0, 0, 0, 0, 0, 0, // bytes, unused
        0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, // device
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xc9, 0x9a, 0x3b, // accessed
        1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, // modified
        3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, // changed
        5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, // made
        0x31, 0, 0, 0, 0, 0, 0, 0, // parent
        b't', b'h', b'e', b'r', b'e', // tail
    ];
    assert_eq!(value, golden);
    assert_eq!(InodeRecord::decode(&golden), Ok(example()));
}

#[test]
fn each_truncation_is_refused_up_to_the_tail() {
    let value = example().encode();
    for bytes in 0..value.len() {
        let decoded = InodeRecord::decode(&value[..bytes]);
        match bytes < FIELD_BYTES {
            true => assert_eq!(decoded, Err(Malformed::TooShort { bytes, bytes_min: 96 })),
            false => assert_eq!(decoded.map(|record| record.tail.len()), Ok(bytes - 96)),
        }
    }
}

#[test]
fn wrong_fields_are_named_with_their_numbers() {
    let with = |offset: usize, byte: u8| {
        let mut value = example().encode();
        value[offset] = byte;
        InodeRecord::decode(&value)
    };
    assert_eq!(with(0, 2), Err(Malformed::Version { version: 2 }));
    assert_eq!(with(1, 0), Err(Malformed::Kind { kind: 0 }));
    assert_eq!(with(1, 8), Err(Malformed::Kind { kind: 8 }));
    assert_eq!(with(1, 2), Err(Malformed::TooLong { bytes: 101, bytes_max: 96 }));
    assert_eq!(with(3, 0x19), Err(Malformed::Permissions { permissions: 0x19ed }));
    for offset in [48, 60, 72, 84] {
        assert!(matches!(with(offset + 3, 0x3c), Err(Malformed::Nanoseconds { .. })), "time at {offset}");
    }
}

#[test]
fn tails_have_a_longest() {
    for (kind, bytes_max) in [(Kind::File, TINY_BYTES_MAX), (Kind::Link, TARGET_BYTES_MAX), (Kind::Pipe, 0)] {
        let record = |bytes| InodeRecord { kind, tail: vec![7; bytes], ..example() };
        assert_eq!(InodeRecord::decode(&record(bytes_max).encode()), Ok(record(bytes_max)));
        assert_eq!(
            InodeRecord::decode(&record(bytes_max + 1).encode()),
            Err(Malformed::TooLong { bytes: 97 + bytes_max, bytes_max: 96 + bytes_max })
        );
    }
}

proptest! {
    #[test]
    fn any_bytes_decode_to_what_encodes_to_them_or_are_refused(
        value in prop::collection::vec(any::<u8>(), 0..200),
        offset in 0..101_usize,
        byte: u8,
    ) {
        let mut near = example().encode();
        near[offset] = byte;
        for value in [value, near] {
            if let Ok(record) = InodeRecord::decode(&value) {
                prop_assert_eq!(record.encode(), value);
            }
        }
    }
}
