//! Tags of objects and buckets.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;
use s3s::dto::{Tag, TagSet};
use s3s::{S3Error, s3_error};

/// Tags from the `x-amz-tagging` header: `key=value&key`, percent-encoded.
///
/// # Errors
/// `InvalidArgument` if it cannot be read, `InvalidTag` beyond the limits.
pub(crate) fn of_header(text: &str) -> Result<BTreeMap<String, String>, S3Error> {
    let decode = |text: &str| {
        let spaced = text.replace('+', " ");
        let decoded = percent_decode_str(&spaced).decode_utf8().map(|text| text.into_owned());
        decoded.map_err(|_| {
            s3_error!(InvalidArgument, "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded")
        })
    };
    let mut pairs = Vec::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        pairs.push((decode(key)?, decode(value)?));
    }
    check(pairs, OBJECT_TAGS_MAX)
}

/// Tags from a document.
///
/// # Errors
/// `InvalidTag` beyond the limits, `MalformedXML` without a key or value.
pub(crate) fn of_set(set: TagSet, tags_max: usize) -> Result<BTreeMap<String, String>, S3Error> {
    let mut pairs = Vec::new();
    for tag in set {
        let (Some(key), Some(value)) = (tag.key, tag.value) else {
            return Err(s3_error!(MalformedXML, "Each tag needs a key and a value"));
        };
        pairs.push((key, value));
    }
    check(pairs, tags_max)
}

/// As S3 shows them.
pub(crate) fn to_set(tags: &BTreeMap<String, String>) -> TagSet {
    tags.iter().map(|(key, value)| Tag { key: Some(key.clone()), value: Some(value.clone()) }).collect()
}

fn check(pairs: Vec<(String, String)>, tags_max: usize) -> Result<BTreeMap<String, String>, S3Error> {
    if pairs.len() > tags_max {
        return Err(s3_error!(InvalidTag, "There can be at most {tags_max} tags, {} were given", pairs.len()));
    }
    let mut tags = BTreeMap::new();
    for (key, value) in pairs {
        if key.is_empty() || key.chars().count() > KEY_CHARS_MAX {
            return Err(s3_error!(InvalidTag, "A tag's key must have 1 to {KEY_CHARS_MAX} characters: {key:?}"));
        }
        if value.chars().count() > VALUE_CHARS_MAX {
            return Err(s3_error!(
                InvalidTag,
                "A tag's value can have at most {VALUE_CHARS_MAX} characters (key {key:?})"
            ));
        }
        if tags.contains_key(&key) {
            return Err(s3_error!(InvalidTag, "Cannot provide multiple tags with the same key: {key:?}"));
        }
        tags.insert(key, value);
    }
    Ok(tags)
}

/// Tags of an object, at most.
pub(crate) const OBJECT_TAGS_MAX: usize = 10;
/// Tags of a bucket, at most.
pub(crate) const BUCKET_TAGS_MAX: usize = 50;
const KEY_CHARS_MAX: usize = 128;
const VALUE_CHARS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Result<usize, String> {
        of_header(text).map(|tags| tags.len()).map_err(|error| error.code().as_str().to_owned())
    }

    #[test]
    fn a_header_is_decoded() {
        let tags = of_header("foo=b%20a+r&bar").expect("well formed");
        assert_eq!(tags, [("bar".to_owned(), String::new()), ("foo".to_owned(), "b a r".to_owned())].into());
        assert_eq!(code(""), Ok(0));
    }

    #[test]
    fn limits_hold() {
        let many = (0..11).map(|i| format!("k{i}=v")).collect::<Vec<_>>().join("&");
        assert_eq!(code(&many), Err("InvalidTag".to_owned()));
        assert_eq!(code(&format!("{}=v", "k".repeat(129))), Err("InvalidTag".to_owned()));
        assert_eq!(code(&format!("k={}", "v".repeat(257))), Err("InvalidTag".to_owned()));
        assert_eq!(code(&format!("{}={}", "k".repeat(128), "v".repeat(256))), Ok(1));
        assert_eq!(code("a=1&a=2"), Err("InvalidTag".to_owned()));
        assert_eq!(code("=v"), Err("InvalidTag".to_owned()));
    }
}
