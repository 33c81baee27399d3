//! Which bytes of an object a request wants.

use claystone_object::ByteRange;
use s3s::dto::Range;
use s3s::{S3Error, s3_error};

/// The bytes a Range header means in an object of `object_bytes`.
///
/// # Errors
/// `InvalidRange` if it means none.
pub(crate) fn resolve(range: &Range, object_bytes: u64) -> Result<ByteRange, S3Error> {
    let range = range.check(object_bytes).ok().filter(|range| range.start < range.end);
    let range = range.ok_or_else(|| {
        let mut error =
            s3_error!(InvalidRange, "The requested range is not satisfiable: the object has {object_bytes} bytes");
        let mut headers = http::HeaderMap::new();
        if let Ok(value) = format!("bytes */{object_bytes}").parse() {
            headers.insert(http::header::CONTENT_RANGE, value);
        }
        headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/xml"));
        error.set_headers(headers);
        error
    })?;
    Ok(ByteRange { offset: range.start, bytes: range.end - range.start })
}

/// The value of Content-Range; it has no words for the range of an empty part.
pub(crate) fn content_range(range: ByteRange, object_bytes: u64) -> Option<String> {
    (range.bytes > 0).then(|| format!("bytes {}-{}/{object_bytes}", range.offset, range.end() - 1))
}

/// The bytes that `x-amz-copy-source-range` means: `bytes=FIRST-LAST`, both within the source.
///
/// # Errors
/// `InvalidArgument` if it has another form, `InvalidRange` if it lies outside.
pub(crate) fn of_copy_source(text: &str, object_bytes: u64) -> Result<ByteRange, S3Error> {
    let malformed =
        || s3_error!(InvalidArgument, "The x-amz-copy-source-range value must be of the form bytes=first-last");
    match Range::parse(text) {
        Ok(Range::Int { first, last: Some(last) }) if last < object_bytes => {
            Ok(ByteRange { offset: first, bytes: last - first + 1 })
        }
        Ok(Range::Int { last: Some(_), .. }) => {
            Err(s3_error!(InvalidRange, "The range {text} is not within the source of {object_bytes} bytes"))
        }
        _ => Err(malformed()),
    }
}

/// Whether a Range header is a single range as HTTP has it; others are ignored, as the RFC allows.
pub(crate) fn is_single(value: &[u8]) -> bool {
    std::str::from_utf8(value).is_ok_and(|text| Range::parse(text).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str, bytes: u64) -> Option<(u64, u64)> {
        resolve(&Range::parse(text).expect("a range"), bytes).ok().map(|range| (range.offset, range.bytes))
    }

    #[test]
    fn ranges_are_cut_to_the_object() {
        assert_eq!(range("bytes=0-3", 10), Some((0, 4)));
        assert_eq!(range("bytes=8-99", 10), Some((8, 2)));
        assert_eq!(range("bytes=4-", 10), Some((4, 6)));
        assert_eq!(range("bytes=-3", 10), Some((7, 3)));
        assert_eq!(range("bytes=-30", 10), Some((0, 10)));
        assert_eq!(content_range(ByteRange { offset: 7, bytes: 3 }, 10), Some("bytes 7-9/10".to_owned()));
        for offset in [0, 10] {
            assert_eq!(content_range(ByteRange { offset, bytes: 0 }, 10), None);
        }
    }

    #[test]
    fn a_range_of_no_bytes_is_not_satisfiable() {
        for (text, bytes) in [("bytes=10-", 10), ("bytes=0-", 0), ("bytes=-5", 0), ("bytes=-0", 10)] {
            assert_eq!(range(text, bytes), None, "{text} of {bytes}");
        }
    }

    #[test]
    fn copy_sources_need_both_ends_within() {
        let code =
            |text| of_copy_source(text, 10).map(|r| (r.offset, r.bytes)).map_err(|e| e.code().as_str().to_owned());
        assert_eq!(code("bytes=2-9"), Ok((2, 8)));
        assert_eq!(code("bytes=2-10"), Err("InvalidRange".to_owned()));
        for text in ["0-2", "bytes=0", "bytes=hello-world", "bytes=0-2,3-5", "bytes=0-", "bytes=-2", "bytes=3-2"] {
            assert_eq!(code(text), Err("InvalidArgument".to_owned()), "{text}");
        }
    }

    #[test]
    fn only_single_ranges_count() {
        assert!(is_single(b"bytes=0-1") && is_single(b"bytes=-1"));
        assert!(
            !is_single(b"bytes=0-1,3-4") && !is_single(b"lines=1-2") && !is_single(b"bytes=5-2") && !is_single(b"\xff")
        );
    }
}
