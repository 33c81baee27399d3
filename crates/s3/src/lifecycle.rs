//! Lifecycle configurations: kept and checked, not carried out.
//!
//! Clients such as backup programs put and read them back. Nothing expires or moves by them yet, and the answer to
//! a put says so in a header.

use std::collections::BTreeSet;

use http::{HeaderMap, HeaderName, HeaderValue};
use s3s::dto::{
    BucketLifecycleConfiguration, DeleteBucketLifecycleInput, DeleteBucketLifecycleOutput, ExpirationStatus,
    GetBucketLifecycleConfigurationInput, GetBucketLifecycleConfigurationOutput, LifecycleRule,
    PutBucketLifecycleConfigurationInput, PutBucketLifecycleConfigurationOutput,
};
use s3s::{S3Request, S3Response, S3Result, s3_error};

use crate::documents;
use crate::gateway::{self, Gateway};

impl Gateway {
    pub(crate) async fn put_bucket_lifecycle_configuration(
        &self,
        request: S3Request<PutBucketLifecycleConfigurationInput>,
    ) -> S3Result<S3Response<PutBucketLifecycleConfigurationOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket(&call, &input.bucket, gateway::PUT_BUCKET_LIFECYCLE).await?;
        let mut config =
            input.lifecycle_configuration.ok_or_else(|| s3_error!(MalformedXML, "The configuration is missing"))?;
        check(&config)?;
        for rule in config.rules.iter_mut().filter(|rule| rule.id.as_ref().is_none_or(String::is_empty)) {
            rule.id = Some(self.new_version().0);
        }
        self.set_document(&bucket, documents::LIFECYCLE, Some(documents::to_xml(&config)?)).await?;
        let mut headers = HeaderMap::new();
        headers.insert(
            HeaderName::from_static("x-claystone-note"),
            HeaderValue::from_static("lifecycle rules are kept but not carried out"),
        );
        Ok(S3Response::with_headers(PutBucketLifecycleConfigurationOutput::default(), headers))
    }

    pub(crate) async fn get_bucket_lifecycle_configuration(
        &self,
        request: S3Request<GetBucketLifecycleConfigurationInput>,
    ) -> S3Result<S3Response<GetBucketLifecycleConfigurationOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket(&call, &input.bucket, gateway::GET_BUCKET_LIFECYCLE).await?;
        let config: Option<BucketLifecycleConfiguration> = documents::read(&bucket, documents::LIFECYCLE)?;
        let config = config
            .ok_or_else(|| s3_error!(NoSuchLifecycleConfiguration, "The lifecycle configuration does not exist"))?;
        Ok(S3Response::new(GetBucketLifecycleConfigurationOutput {
            rules: Some(config.rules),
            transition_default_minimum_object_size: None,
        }))
    }

    pub(crate) async fn delete_bucket_lifecycle(
        &self,
        request: S3Request<DeleteBucketLifecycleInput>,
    ) -> S3Result<S3Response<DeleteBucketLifecycleOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket(&call, &input.bucket, gateway::PUT_BUCKET_LIFECYCLE).await?;
        self.set_document(&bucket, documents::LIFECYCLE, None).await?;
        Ok(S3Response::new(DeleteBucketLifecycleOutput::default()))
    }
}

/// Whether a configuration can be kept.
///
/// # Errors
/// `MalformedXML`, `InvalidArgument`.
fn check(config: &BucketLifecycleConfiguration) -> S3Result<()> {
    if config.rules.is_empty() || config.rules.len() > RULES_MAX {
        return Err(s3_error!(MalformedXML, "A lifecycle configuration has 1 to {RULES_MAX} rules"));
    }
    let mut ids = BTreeSet::new();
    for rule in &config.rules {
        check_rule(rule)?;
        if let Some(id) = rule.id.as_ref().filter(|id| !id.is_empty())
            && !ids.insert(id)
        {
            return Err(s3_error!(
                InvalidArgument,
                "Rule ID must be unique. Found same ID for more than one rule: {id}"
            ));
        }
    }
    Ok(())
}

fn check_rule(rule: &LifecycleRule) -> S3Result<()> {
    if rule.id.as_ref().is_some_and(|id| id.len() > ID_BYTES_MAX) {
        return Err(s3_error!(InvalidArgument, "ID length should not exceed allowed limit of {ID_BYTES_MAX}"));
    }
    if ![ExpirationStatus::ENABLED, ExpirationStatus::DISABLED].contains(&rule.status.as_str()) {
        return Err(s3_error!(MalformedXML, "A rule's status is Enabled or Disabled"));
    }
    if rule.prefix.is_some() && rule.filter.is_some() {
        return Err(s3_error!(MalformedXML, "A rule has either a Prefix or a Filter"));
    }
    let acts = rule.expiration.is_some()
        || rule.abort_incomplete_multipart_upload.is_some()
        || rule.noncurrent_version_expiration.is_some()
        || rule.transitions.as_ref().is_some_and(|transitions| !transitions.is_empty())
        || rule.noncurrent_version_transitions.as_ref().is_some_and(|transitions| !transitions.is_empty());
    if !acts {
        return Err(s3_error!(MalformedXML, "At least one action needs to be specified in a rule"));
    }
    if let Some(expiration) = &rule.expiration {
        let given =
            [expiration.days.is_some(), expiration.date.is_some(), expiration.expired_object_delete_marker.is_some()];
        if given.iter().filter(|given| **given).count() != 1 {
            return Err(s3_error!(MalformedXML, "An expiration has one of Days, Date and ExpiredObjectDeleteMarker"));
        }
        if expiration.days.is_some_and(|days| days <= 0) {
            return Err(s3_error!(InvalidArgument, "'Days' for Expiration action must be a positive integer"));
        }
    }
    let transitions = rule.transitions.iter().flatten().map(|transition| transition.date.as_ref());
    let dates = rule.expiration.iter().map(|expiration| expiration.date.as_ref()).chain(transitions).flatten();
    if dates.into_iter().any(|date| time::OffsetDateTime::from(date.clone()).time() != time::Time::MIDNIGHT) {
        return Err(s3_error!(InvalidArgument, "'Date' must be at midnight GMT"));
    }
    let periods = [
        rule.noncurrent_version_expiration.as_ref().and_then(|expiration| expiration.noncurrent_days),
        rule.abort_incomplete_multipart_upload.as_ref().and_then(|abort| abort.days_after_initiation),
    ];
    if periods.into_iter().flatten().any(|days| days <= 0) {
        return Err(s3_error!(InvalidArgument, "A number of days must be a positive integer"));
    }
    Ok(())
}

const RULES_MAX: usize = 1000;
const ID_BYTES_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;
    use s3s::dto::LifecycleExpiration;

    fn rule(id: &str, days: i32, status: &'static str) -> LifecycleRule {
        LifecycleRule {
            abort_incomplete_multipart_upload: None,
            expiration: Some(LifecycleExpiration { days: Some(days), ..LifecycleExpiration::default() }),
            filter: None,
            id: Some(id.to_owned()),
            noncurrent_version_expiration: None,
            noncurrent_version_transitions: None,
            prefix: Some(String::new()),
            status: ExpirationStatus::from_static(status),
            transitions: None,
        }
    }

    fn code(rules: Vec<LifecycleRule>) -> Result<(), String> {
        check(&BucketLifecycleConfiguration { rules }).map_err(|error| error.code().as_str().to_owned())
    }

    #[test]
    fn rules_are_checked() {
        assert_eq!(code(vec![rule("a", 1, "Enabled"), rule("b", 2, "Disabled")]), Ok(()));
        assert_eq!(code(vec![rule("a", 1, "Enabled"), rule("a", 2, "Enabled")]), Err("InvalidArgument".to_owned()));
        assert_eq!(code(vec![rule("a", 0, "Enabled")]), Err("InvalidArgument".to_owned()));
        assert_eq!(code(vec![rule("a", 1, "enabled")]), Err("MalformedXML".to_owned()));
        assert_eq!(code(vec![rule(&"a".repeat(256), 1, "Enabled")]), Err("InvalidArgument".to_owned()));
        assert_eq!(code(vec![]), Err("MalformedXML".to_owned()));
    }
}
