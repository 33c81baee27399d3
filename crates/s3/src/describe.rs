//! What clients say of an object besides its bytes: headers, user metadata, tags.
//!
//! Invariants:
//! 1. `aws-chunked` is how a body travelled, not what it is: it never stays in Content-Encoding.
//! 2. User metadata is at most [`METADATA_BYTES_MAX`] bytes, names and values together.

use std::collections::BTreeMap;

use claystone_object::Attributes;
use s3s::dto::{Metadata, StorageClass, Timestamp, TimestampFormat};
use s3s::{S3Result, s3_error};

/// The fields that several inputs share.
#[derive(Debug, Default)]
pub(crate) struct Description {
    pub(crate) cache_control: Option<String>,
    pub(crate) content_disposition: Option<String>,
    pub(crate) content_encoding: Option<String>,
    pub(crate) content_language: Option<String>,
    pub(crate) content_type: Option<String>,
    pub(crate) expires: Option<Timestamp>,
    pub(crate) metadata: Option<Metadata>,
    pub(crate) storage_class: Option<StorageClass>,
    pub(crate) tagging: Option<String>,
    pub(crate) website_redirect_location: Option<String>,
}

/// Takes a [`Description`] out of an input.
macro_rules! describe {
    ($input:expr) => {
        $crate::describe::Description {
            cache_control: $input.cache_control.take(),
            content_disposition: $input.content_disposition.take(),
            content_encoding: $input.content_encoding.take(),
            content_language: $input.content_language.take(),
            content_type: $input.content_type.take(),
            expires: $input.expires.take(),
            metadata: $input.metadata.take(),
            storage_class: $input.storage_class.take(),
            tagging: $input.tagging.take(),
            website_redirect_location: $input.website_redirect_location.take(),
        }
    };
}
pub(crate) use describe;

impl Description {
    /// As kept with the object.
    ///
    /// # Errors
    /// `MetadataTooLarge`, `InvalidTag`, `InvalidStorageClass`.
    pub(crate) fn into_attributes(self) -> S3Result<Attributes> {
        if let Some(class) = &self.storage_class
            && class.as_str() != StorageClass::STANDARD
        {
            return Err(s3_error!(InvalidStorageClass, "The only storage class is STANDARD, not {}", class.as_str()));
        }
        let mut headers = BTreeMap::new();
        let texts = [
            ("cache-control", self.cache_control),
            ("content-disposition", self.content_disposition),
            ("content-encoding", self.content_encoding.and_then(|encoding| without_chunked(&encoding))),
            ("content-language", self.content_language),
            ("content-type", self.content_type),
            ("expires", self.expires.as_ref().and_then(http_date)),
            (REDIRECT, self.website_redirect_location),
        ];
        for (name, value) in texts {
            if let Some(value) = value {
                headers.insert(name.to_owned(), value);
            }
        }
        let user: BTreeMap<String, String> = self.metadata.unwrap_or_default().into_iter().collect();
        let bytes: usize = user.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > METADATA_BYTES_MAX {
            return Err(s3_error!(
                MetadataTooLarge,
                "Your metadata headers have {bytes} bytes, the limit is {METADATA_BYTES_MAX}"
            ));
        }
        let tags = self.tagging.as_deref().map(crate::tags::of_header).transpose()?.unwrap_or_default();
        Ok(Attributes { headers, user, tags, ..Attributes::default() })
    }
}

/// A Content-Encoding without `aws-chunked`; `None` if nothing else is in it.
fn without_chunked(encoding: &str) -> Option<String> {
    let rest: Vec<&str> =
        encoding.split(',').map(str::trim).filter(|one| !one.is_empty() && *one != "aws-chunked").collect();
    (!rest.is_empty()).then(|| rest.join(", "))
}

/// A date as headers have it.
pub(crate) fn http_date(date: &Timestamp) -> Option<String> {
    let mut text = Vec::new();
    date.format(TimestampFormat::HttpDate, &mut text).ok()?;
    String::from_utf8(text).ok()
}

/// Name under which a website's redirect is kept.
pub(crate) const REDIRECT: &str = "x-amz-website-redirect-location";
/// The type of what nobody gave a type.
pub(crate) const DEFAULT_TYPE: &str = "binary/octet-stream";
const METADATA_BYTES_MAX: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aws_chunked_is_taken_out_wherever_it_stands() {
        assert_eq!(without_chunked("aws-chunked"), None);
        assert_eq!(without_chunked("gzip, aws-chunked"), Some("gzip".to_owned()));
        assert_eq!(without_chunked("aws-chunked,gzip,br"), Some("gzip, br".to_owned()));
    }

    #[test]
    fn metadata_has_a_limit() {
        let with = |bytes: usize| {
            let metadata = [("a".to_owned(), "x".repeat(bytes - 1))].into_iter().collect();
            Description { metadata: Some(metadata), ..Description::default() }.into_attributes()
        };
        assert!(with(2048).is_ok());
        assert_eq!(with(2049).expect_err("too long").code().as_str(), "MetadataTooLarge");
    }

    #[test]
    fn there_is_one_storage_class() {
        let class = |name: &'static str| Some(StorageClass::from_static(name));
        assert!(Description { storage_class: class("STANDARD"), ..Description::default() }.into_attributes().is_ok());
        assert!(Description { storage_class: class("GLACIER"), ..Description::default() }.into_attributes().is_err());
    }
}
