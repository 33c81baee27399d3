//! Tests of `segment`.

use proptest::prelude::*;

use super::*;

const OWNER: OwnerId = OwnerId(0x0000_018f_3c5e_7a00_b1c2_d3e4_f506_172a);
const FILE_BYTES: u64 = (64 << 20) + CONTENT_OFFSET;

fn info() -> SegmentInfo {
    SegmentInfo { id: SegmentId { owner: OWNER, number: 7 }, term: Term(3), bytes: 64 << 20 }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

// The worked example of docs/formats/segments.md. A change here is a new format version.
#[test]
fn the_golden_header() {
    let bytes = encode_header(&info());
    assert_eq!(
        hex(&bytes[..64]),
        "434c41595345474d0100000045f64adc2a1706f5e4d3c2b1007a5e3c8f010000\
         0700000000000000030000000000000000000004000000000000000000000000"
    );
    assert!(bytes[64..].iter().all(|byte| *byte == 0));
    assert_eq!(decode_header(info().id, &bytes, FILE_BYTES), Head::Segment(info()));
    assert_eq!(segment_path(info().id), "segments/0000018f3c5e7a00b1c2d3e4f506172a.7");
}

#[test]
fn the_golden_fence() {
    let bytes = encode_fence(Lease { owner: OWNER, term: Term(3) });
    assert_eq!(
        hex(&bytes[..64]),
        "434c415946454e4301000000c3f91b702a1706f5e4d3c2b1007a5e3c8f010000\
         0000000000000000030000000000000000000000000000000000000000000000"
    );
    assert!(bytes[64..].iter().all(|byte| *byte == 0));
    assert_eq!(decode_fence(OWNER, &bytes), Ok(Term(3)));
    assert_eq!(fence_path(OWNER), "segments/0000018f3c5e7a00b1c2d3e4f506172a.fence");
}

#[test]
fn a_spare_says_what_it_was() {
    let header = encode_header(&info());
    assert_eq!(decode_former(&header), Former::Segment(info().id));
    assert_eq!(decode_former(&[0; HEADER_BYTES]), Former::None);
    for byte in [0, 16, 32, 48, 511] {
        let mut flipped = header;
        flipped[byte] ^= 1;
        assert_eq!(decode_former(&flipped), Former::Unknown);
    }
    let fence = encode_fence(Lease { owner: OWNER, term: Term(3) });
    assert_eq!(decode_former(&fence), Former::Unknown);
    assert_eq!(spare_path(7), "segments/spare.7");
    for number in [0, 7, u64::MAX] {
        let path = spare_path(number);
        let name = path.strip_prefix("segments/").expect("it is there");
        assert_eq!((parse_spare(name), Name::parse(name)), (Some((number, false)), None));
        let new = format!("{name}.new");
        assert_eq!(new_spare_path(number), format!("segments/{new}"));
        assert_eq!((parse_spare(&new), Name::parse(&new)), (Some((number, true)), None));
    }
    for name in
        ["spare", "spare.", "spare.07", "spare.-1", "spare.7.new.new", "spare..new", "spare.18446744073709551616"]
    {
        assert_eq!(parse_spare(name), None, "{name}");
    }
}

#[test]
fn a_cut_header_is_damaged_and_nothing_a_remnant() {
    let bytes = encode_header(&info());
    for end in 1..HEADER_BYTES {
        assert!(matches!(decode_header(info().id, &bytes[..end], end as u64), Head::Damaged(_)), "cut at {end}");
        decode_fence(OWNER, &bytes[..end]).expect_err("cut");
    }
    for zeros in [0, 5, HEADER_BYTES] {
        assert_eq!(decode_header(info().id, &vec![0; zeros], FILE_BYTES), Head::Remnant);
        // A fence is renamed when it is whole.
        decode_fence(OWNER, &vec![0; zeros]).expect_err("no fence");
    }
}

#[test]
fn a_flip_anywhere_is_damage() {
    let (header, fence) = (encode_header(&info()), encode_fence(Lease { owner: OWNER, term: Term(3) }));
    for bit in 0..HEADER_BYTES * 8 {
        let (mut header, mut fence) = (header, fence);
        header[bit / 8] ^= 1 << (bit % 8);
        fence[bit / 8] ^= 1 << (bit % 8);
        assert!(matches!(decode_header(info().id, &header, FILE_BYTES), Head::Damaged(_)), "bit {bit}");
        decode_fence(OWNER, &fence).expect_err("damaged");
    }
}

#[test]
fn what_does_not_belong_there_is_damaged() {
    let bytes = encode_header(&info());
    for id in [SegmentId { number: 8, ..info().id }, SegmentId { owner: OwnerId(1), ..info().id }] {
        assert_eq!(decode_header(id, &bytes, FILE_BYTES), Head::Damaged("it holds another segment"));
    }
    let short = decode_header(info().id, &bytes, FILE_BYTES - 1);
    assert_eq!(short, Head::Damaged("the file ends before the bytes reserved"));
    let fence = encode_fence(Lease { owner: OWNER, term: Term(3) });
    assert_eq!(decode_header(info().id, &fence, FILE_BYTES), Head::Damaged("it is another kind of file"));
    assert_eq!(decode_fence(OwnerId(1), &fence), Err("it is another owner's"));
    let mut later = bytes;
    put(&mut later, 8, 2u16.to_le_bytes());
    let crc = crc32c_without(&later, CRC_AT);
    put(&mut later, CRC_AT, crc.to_le_bytes());
    assert_eq!(decode_header(info().id, &later, FILE_BYTES), Head::Damaged("it needs a newer claystone"));
}

#[test]
fn names_are_parsed_one_way() {
    let owner = "0000018f3c5e7a00b1c2d3e4f506172a";
    for (rest, name) in [
        ("fence", Some(Name::Fence(OWNER))),
        ("fence.new", Some(Name::NewFence(OWNER))),
        ("0", Some(Name::Segment(SegmentId { owner: OWNER, number: 0 }))),
        ("18446744073709551615", Some(Name::Segment(SegmentId { owner: OWNER, number: u64::MAX }))),
        ("18446744073709551616", None),
        ("01", None),
        ("+1", None),
        ("1.new", None),
        ("", None),
    ] {
        assert_eq!(Name::parse(&format!("{owner}.{rest}")), name, "{rest:?}");
    }
    for name in ["", "fence", owner, "0000018F3C5E7A00b1c2d3e4f506172a.1", "+000018f3c5e7a00b1c2d3e4f506172a.1", "1.1"]
    {
        assert_eq!(Name::parse(name), None, "{name:?}");
    }
}

proptest! {
    #[test]
    fn headers_come_back(owner: u128, number: u64, term: u64, bytes in 1..u64::MAX - CONTENT_OFFSET) {
        let id = SegmentId { owner: OwnerId(owner), number };
        let info = SegmentInfo { id, term: Term(term), bytes };
        prop_assert_eq!(decode_header(id, &encode_header(&info), u64::MAX), Head::Segment(info));
        let name = segment_path(id);
        prop_assert_eq!(Name::parse(&name["segments/".len()..]), Some(Name::Segment(id)));
        let lease = Lease { owner: id.owner, term: info.term };
        prop_assert_eq!(decode_fence(id.owner, &encode_fence(lease)), Ok(info.term));
    }

    #[test]
    fn any_bytes_and_names_are_taken_without_panic(bytes: Vec<u8>, name: String, file_bytes: u64) {
        let _ = (decode_header(info().id, &bytes, file_bytes), decode_fence(OWNER, &bytes), Name::parse(&name));
    }
}
