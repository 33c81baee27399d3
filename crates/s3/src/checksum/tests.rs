//! Checksums against known values, and what is refused.

use super::*;

fn digests(bytes: &[u8]) -> Digests {
    let mut values: BTreeMap<Algorithm, Vec<u8>> =
        KINDS.into_iter().map(|kind| (kind.algorithm(), kind.digest(bytes))).collect();
    values.insert(Algorithm::Md5, md5::Md5::digest(bytes).to_vec());
    Digests { bytes: bytes.len() as u64, values }
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs.iter().map(|&(name, value)| (http::HeaderName::from_static(name), value.parse().expect("a header"))).collect()
}

fn code(result: Result<Confirmed, S3Error>) -> String {
    result.map_or_else(|error| error.code().as_str().to_owned(), |confirmed| confirmed.etag)
}

#[test]
fn known_values() {
    let bytes = b"123456789";
    let value = |kind: Kind| STANDARD.encode(kind.digest(bytes));
    assert_eq!(hex::encode(Kind::Crc32.digest(bytes)), "cbf43926");
    assert_eq!(hex::encode(Kind::Crc32c.digest(bytes)), "e3069283");
    assert_eq!(hex::encode(Kind::Crc64Nvme.digest(bytes)), "ae8b14860a799888");
    assert_eq!(value(Kind::Sha1), "98O8HYCOBHMq32eZZczDTKeuNEE=");
}

#[test]
fn declared_values_are_compared() {
    let good = STANDARD.encode(Kind::Crc32c.digest(b"hello"));
    let declared = Declared::from_headers(&headers(&[("x-amz-checksum-crc32c", &good)])).expect("good headers");
    let confirmed = declared.compare(&digests(b"hello"), None).expect("equal");
    assert_eq!(confirmed.etag, "5d41402abc4b2a76b9719d911017c592");
    assert_eq!(confirmed.checksums.get("crc32c"), Some(&good));
    assert_eq!(code(declared.compare(&digests(b"hellO"), None)), "BadDigest");
}

#[test]
fn a_malformed_value_does_not_match() {
    let declared = Declared::from_headers(&headers(&[("x-amz-checksum-sha256", "bad")])).expect("good headers");
    assert_eq!(code(declared.compare(&digests(b"hello"), None)), "BadDigest");
}

#[test]
fn content_md5_must_be_sixteen_bytes_and_right() {
    for bad in ["", "short", "YWJj", "rL0Y20zC+Fzt72VPzMSk2A"] {
        let error = Declared::from_headers(&headers(&[("content-md5", bad)])).expect_err("malformed");
        assert_eq!(error.code().as_str(), "InvalidDigest", "{bad:?}");
    }
    let declared =
        Declared::from_headers(&headers(&[("content-md5", "rL0Y20zC+Fzt72VPzMSk2A==")])).expect("well formed");
    assert_eq!(code(declared.compare(&digests(b"hello"), None)), "BadDigest");
}

#[test]
fn a_declared_trailer_that_does_not_come_is_refused() {
    let declared =
        Declared::from_headers(&headers(&[("x-amz-trailer", "x-amz-checksum-crc32")])).expect("good headers");
    assert!(declared.algorithms().contains(&Algorithm::Crc32));
    assert_eq!(code(declared.compare(&digests(b"hello"), None)), "InvalidRequest");
}

#[test]
fn unknown_trailers_and_two_checksums_are_refused() {
    assert!(Declared::from_headers(&headers(&[("x-amz-trailer", "x-other")])).is_err());
    assert!(Declared::from_headers(&headers(&[("x-amz-checksum-crc32", "a"), ("x-amz-checksum-sha1", "b")])).is_err());
    assert!(Declared::from_headers(&headers(&[("x-amz-sdk-checksum-algorithm", "MD7")])).is_err());
}

#[test]
fn full_object_crcs_combine_to_that_of_the_whole() {
    let whole: Vec<u8> = (0..100_000u32).map(|i| (i * 7 % 251) as u8).collect();
    for kind in [Kind::Crc32, Kind::Crc32c, Kind::Crc64Nvme] {
        let parts: Vec<PartAttributes> = [&whole[..1], &whole[1..70_000], &whole[70_000..]]
            .iter()
            .zip(1..)
            .map(|(bytes, number)| PartAttributes {
                number,
                bytes: bytes.len() as u64,
                checksums: [(kind.name().to_owned(), STANDARD.encode(kind.digest(bytes)))].into(),
            })
            .collect();
        assert_eq!(of_parts(kind, true, &parts), Some(STANDARD.encode(kind.digest(&whole))), "{kind:?}");
        assert!(of_parts(kind, false, &parts).is_some_and(|value| value.ends_with("-3")));
    }
}

#[test]
fn composite_is_the_checksum_of_the_raw_checksums() {
    let part = |bytes: &[u8]| PartAttributes {
        number: 1,
        bytes: bytes.len() as u64,
        checksums: [("sha256".to_owned(), STANDARD.encode(Kind::Sha256.digest(bytes)))].into(),
    };
    let joined = [Kind::Sha256.digest(b"a"), Kind::Sha256.digest(b"b")].concat();
    let expected = format!("{}-2", STANDARD.encode(Kind::Sha256.digest(&joined)));
    assert_eq!(of_parts(Kind::Sha256, false, &[part(b"a"), part(b"b")]), Some(expected));
    assert_eq!(of_parts(Kind::Crc32, false, &[part(b"a")]), None);
    assert_eq!(of_parts(Kind::Sha256, true, &[part(b"a")]), None);
}

#[test]
fn the_entity_tag_of_parts() {
    // md5(md5("hello") md5("hello")) of the raw bytes.
    let etag = "5d41402abc4b2a76b9719d911017c592";
    let raw = hex::decode(etag).expect("hex");
    let expected = hex::encode(md5::Md5::digest([raw.clone(), raw].concat()));
    assert_eq!(etag_of_parts([etag, etag].into_iter()), format!("{expected}-2"));
}
