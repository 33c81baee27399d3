//! Tests of `journal`.

use proptest::prelude::*;

use super::*;

fn record() -> Record {
    Record {
        id: "0000018f3c5e7a00b1c2d3e4f506172a.4.1".parse().expect("an id"),
        version: Version(1),
        first_sector: 0,
        content: b"rock\n".to_vec(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

// A change here is a new format version.
#[test]
fn the_golden_record() {
    assert_eq!(
        hex(&record().encode()),
        "434c41595245444f010004007fceafd52a1706f5e4d3c2b1007a5e3c8f010000\
         01000000a65ace8b000000000000000001000000000000000500000000000000\
         726f636b0a"
    );
}

#[test]
fn what_follows_a_record_means_nothing() {
    let mut bytes = record().encode();
    bytes.extend_from_slice(&[9; 100]);
    assert_eq!(Record::decode(&bytes), Some(record()));
}

#[test]
fn a_cut_record_is_none() {
    let bytes = record().encode();
    for end in 0..bytes.len() {
        assert_eq!(Record::decode(&bytes[..end]), None, "cut at {end}");
    }
}

#[test]
fn a_flip_anywhere_is_no_record() {
    let bytes = record().encode();
    for bit in 0..bytes.len() * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Record::decode(&bytes), None, "bit {bit}");
    }
}

proptest! {
    #[test]
    fn records_come_back(first_sector: u64, version: u64, content: Vec<u8>) {
        let record = Record { version: Version(version), first_sector, content, ..record() };
        prop_assert_eq!(Record::decode(&record.encode()), Some(record));
    }

    #[test]
    fn any_bytes_decode_without_panic(bytes: Vec<u8>) {
        prop_assert_eq!(Record::decode(&bytes), None);
    }
}
