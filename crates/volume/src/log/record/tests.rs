//! Records as bytes: the format page, and whatever else is in a segment.

use claystone_chunk::OwnerId;
use proptest::prelude::*;

use super::*;

const SEGMENT: SegmentId = SegmentId { owner: OwnerId(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10), number: 3 };
const PAGE_BYTES: u32 = 1024;

fn encoded(record: &Record, offset: u64) -> Bytes {
    let mut bytes = BytesMut::new();
    record.encode(SEGMENT, offset, &mut bytes);
    assert_eq!(bytes.len(), record.bytes());
    bytes.freeze()
}

fn decoded(bytes: &Bytes, offset: u64) -> Option<(Record, usize)> {
    Record::decode(SEGMENT, offset, bytes, PAGE_BYTES)
}

fn write(first: u64, pages: usize) -> Record {
    let content = claystone_chunk::testing::pattern(first, pages * PAGE_BYTES as usize);
    let crcs = content.chunks_exact(PAGE_BYTES as usize).map(crc32c).collect();
    Record::Write { first: Page(first), crcs, content }
}

fn intent() -> Record {
    let inline = claystone_chunk::testing::pattern(9, 2 * SECTOR);
    let inline_sector = |chunk: u16, at: usize| SectorWrite {
        stripe: 1,
        chunk: ChunkIndex(chunk),
        sector: 7,
        crc: crc32c(&inline[at * SECTOR..][..SECTOR]),
        source: Source::Inline,
    };
    let logged = SectorWrite {
        stripe: 0,
        chunk: ChunkIndex(1),
        sector: 5,
        crc: 0x1234_5678,
        source: Source::Log(LogPlace { segment: 2, offset: 0x1000 }),
    };
    let sectors = vec![logged, inline_sector(4, 0), inline_sector(5, 1)];
    Record::Intent(Intent { stripes: vec![(10, StripeId(11)), (12, StripeId(13))], sectors, inline })
}

fn one_of_each() -> Vec<Record> {
    let diffs = vec![(Page(5), LogPlace { segment: 1, offset: 48 }), (Page(6), LogPlace { segment: 2, offset: 0 })];
    vec![
        Record::Begin {
            over_below: 2,
            previous: Some(LogPlace { segment: 2, offset: 0x1_0000 }),
            unsynced_from: None,
            page_bytes: PAGE_BYTES,
        },
        Record::Begin { over_below: 0, previous: None, unsynced_from: None, page_bytes: PAGE_BYTES },
        write(5, 1),
        write(100, 3),
        Record::Zero { first: Page(7), pages: 300 },
        intent(),
        Record::Merged { intent: Some(LogPlace { segment: 1, offset: 40 }), diffs: diffs.clone() },
        Record::Merged { intent: None, diffs },
        Record::Over { below: 9 },
    ]
}

/// Those that version 1 does not have.
fn newer() -> Vec<Record> {
    let previous = Some(LogPlace { segment: 2, offset: 0x1_0000 });
    vec![
        Record::Begin { over_below: 2, previous, unsynced_from: Some(1), page_bytes: PAGE_BYTES },
        Record::Synced { below: 3 },
    ]
}

/// An intent of a sector in each place there is.
fn intent_with_zeros() -> Record {
    let Record::Intent(mut intent) = intent() else { unreachable!("it is one") };
    let crc = crc32c(&[0; SECTOR]);
    intent.sectors.push(SectorWrite { stripe: 1, chunk: ChunkIndex(0), sector: 8, crc, source: Source::Zeros });
    Record::Intent(intent)
}

fn all() -> Vec<Record> {
    [one_of_each(), newer(), vec![intent_with_zeros()]].concat()
}

#[test]
fn what_is_encoded_is_decoded() {
    for record in all() {
        let bytes = encoded(&record, 4096);
        assert_eq!(decoded(&bytes, 4096), Some((record.clone(), bytes.len())));
        // What follows in the segment changes nothing.
        let mut longer = BytesMut::from(&bytes[..]);
        longer.extend_from_slice(&[0xff; 100]);
        assert_eq!(decoded(&longer.freeze(), 4096), Some((record, bytes.len())));
    }
}

#[test]
fn a_record_that_is_cut_or_flipped_anywhere_is_none() {
    for record in all() {
        let bytes = encoded(&record, 0);
        for end in 0..bytes.len() {
            assert_eq!(decoded(&bytes.slice(..end), 0), None, "{end} bytes of {record:?}");
        }
        for at in 0..bytes.len() {
            let mut flipped = bytes.to_vec();
            flipped[at] ^= 0x10;
            assert_eq!(decoded(&flipped.into(), 0), None, "byte {at} of {record:?}");
        }
    }
}

#[test]
fn a_record_of_another_place_is_none() {
    let bytes = encoded(&write(5, 1), 4096);
    assert_eq!(decoded(&bytes, 0), None);
    let elsewhere = SegmentId { number: 4, ..SEGMENT };
    assert_eq!(Record::decode(elsewhere, 4096, &bytes, PAGE_BYTES), None);
    let others = SegmentId { owner: OwnerId(1), ..SEGMENT };
    assert_eq!(Record::decode(others, 4096, &bytes, PAGE_BYTES), None);
    // Pages of another length would be other pages.
    assert_eq!(Record::decode(SEGMENT, 4096, &bytes, 512), None);
}

/// The worked example of docs/formats/volume-log.md.
#[test]
fn the_bytes_are_those_of_the_format_page() {
    let previous = Some(LogPlace { segment: 2, offset: 0x1_0000 });
    let begin = Record::Begin { over_below: 2, previous, unsynced_from: None, page_bytes: 4096 };
    let zero = Record::Zero { first: Page(7), pages: 300 };
    let mut bytes = BytesMut::new();
    begin.encode(SEGMENT, 0, &mut bytes);
    let offset = bytes.len() as u64;
    zero.encode(SEGMENT, offset, &mut bytes);
    let lines: Vec<String> = bytes
        .chunks(16)
        .map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "))
        .collect();
    let page = include_str!("../../../../../docs/formats/volume-log.md");
    for (number, line) in lines.iter().enumerate() {
        assert!(page.contains(line.as_str()), "line {number:x}0 is not on the page: {line}");
    }
    // The page itself could change with the code; these do not.
    assert_eq!(crc32c(&bytes), GOLDEN, "{:#010x}", crc32c(&bytes));
    let with_zeros = vec![intent_with_zeros()];
    for (records, golden) in [(one_of_each(), GOLDEN_ALL), (newer(), GOLDEN_NEWER), (with_zeros, GOLDEN_ZEROS)] {
        let bytes: Vec<u8> = records.iter().flat_map(|record| encoded(record, 0)).collect();
        assert_eq!(crc32c(&bytes), golden, "{:#010x}", crc32c(&bytes));
    }
}

const GOLDEN: u32 = 0xdd83_8ffc;
const GOLDEN_ALL: u32 = 0xb38b_cc5b;
const GOLDEN_NEWER: u32 = 0x0387_bfea;
const GOLDEN_ZEROS: u32 = 0x3dbf_3c27;

proptest! {
    #[test]
    fn any_bytes_are_a_record_or_none(mut bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0u32..11) {
        // Mostly with a head that looks right.
        if bytes.len() >= 16 && kind > 0 {
            bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
            bytes[8] = kind as u8;
        }
        let bytes = Bytes::from(bytes);
        Record::lengths_of(&bytes);
        Record::has_head(SEGMENT, 0, &bytes);
        prop_assert_eq!(decoded(&bytes, 0), None);
    }

    #[test]
    fn heads_with_right_checksums_are_decoded_without_harm(
        kind in 0u8..11, table in prop::collection::vec(any::<u8>(), 0..100), content_bytes in 0u32..100,
    ) {
        let mut bytes = BytesMut::new();
        bytes.put_u32_le(MAGIC);
        bytes.put_u32_le(0);
        bytes.put_u8(kind);
        bytes.put_uint_le(table.len() as u64, 3);
        bytes.put_u32_le(content_bytes);
        bytes.put_slice(&table);
        let crc = head_crc(SEGMENT, 0, &bytes);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes.resize(bytes.len() + content_bytes as usize, 2);
        // Whatever it is, it is these bytes and no others.
        if let Some((record, length)) = decoded(&bytes.clone().freeze(), 0) {
            prop_assert_eq!(length, bytes.len());
            prop_assert_eq!(encoded(&record, 0), bytes.freeze());
        }
    }

    #[test]
    fn numbers_of_any_size_come_back(
        numbers in prop::collection::vec((any::<u64>(), 0u32..64, any::<bool>()), 1..20), intent in any::<bool>(),
    ) {
        let numbers: Vec<u64> = numbers.iter().map(|(number, shift, high)| {
            if *high { u64::MAX - (number >> shift) } else { number >> shift }
        }).collect();
        let place = |at: usize| LogPlace {
            segment: numbers[at % numbers.len()].min(u64::MAX - 1),
            offset: numbers[(at + 1) % numbers.len()],
        };
        let record = if intent {
            let sector_of = |(at, number): (usize, &u64)| SectorWrite {
                stripe: (number % numbers.len() as u64) as u32,
                chunk: ChunkIndex(*number as u16),
                sector: (number >> 3) as u32,
                crc: *number as u32,
                source: if number % 3 == 0 { Source::Zeros } else { Source::Log(place(at)) },
            };
            let stripes = numbers.iter().map(|number| (*number, StripeId(u128::from(*number) << 40))).collect();
            let sectors = numbers.iter().enumerate().map(sector_of).collect();
            Record::Intent(Intent { stripes, sectors, inline: Bytes::new() })
        } else {
            let diffs = numbers.iter().enumerate().map(|(at, number)| (Page(*number), place(at))).collect();
            Record::Merged { intent: Some(place(7)), diffs }
        };
        let bytes = encoded(&record, 0);
        prop_assert_eq!(decoded(&bytes, 0), Some((record, bytes.len())));
    }
}

/// What the program wrote before there was version 2: one of each, all at the start of the segment.
#[test]
fn records_of_version_1_are_read() {
    let all = Bytes::from_static(include_bytes!("v1.bin"));
    let mut at = 0;
    for record in one_of_each() {
        let rest = all.slice(at..);
        let bytes = Record::lengths_of(&rest).expect("a record begins here").1 as usize;
        assert_eq!(decoded(&rest, 0), Some((record.clone(), bytes)));
        for flipped in 0..bytes {
            let mut damaged = rest[..bytes].to_vec();
            damaged[flipped] ^= 0x10;
            assert_eq!(decoded(&damaged.into(), 0), None, "byte {flipped} of {record:?}");
        }
        at += bytes;
    }
    assert_eq!(at, all.len());
}

#[test]
fn a_segment_of_such_records_is_read_whole() {
    // What the fuzz target does, once with records that are right.
    let part = |record: &Record| {
        let bytes = encoded(record, 0);
        let (head, content) = bytes.split_at(bytes.len() - record.content().len());
        (head.to_vec(), content.to_vec())
    };
    crate::fuzzing::segment(&all().iter().map(part).collect::<Vec<_>>());
}
