//! Policies: what fits, what is refused, and globs against their definition.

use super::*;
use proptest::prelude::*;

const GET: &str = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"*"},"Action":"s3:Get*",
    "Resource":["arn:aws:s3:::b/*"]}]}"#;

fn parse(text: &str) -> Policy {
    Policy::parse(text.as_bytes()).expect("a policy")
}

fn decide(policy: &Policy, who: Option<&str>, action: &str, resource: &str, values: &[(&str, &str)]) -> Decision {
    let who = who.map(Account::named);
    let value = |wanted: &str| values.iter().find(|(key, _)| *key == wanted).map(|(_, value)| (*value).to_owned());
    policy.decide(&Asking { who: who.as_ref(), action, resource, value: &value })
}

#[test]
fn allows_what_it_names_and_is_silent_on_the_rest() {
    let policy = parse(GET);
    assert_eq!(decide(&policy, None, "s3:GetObject", "arn:aws:s3:::b/k", &[]), Decision::Allow);
    assert_eq!(decide(&policy, None, "s3:PutObject", "arn:aws:s3:::b/k", &[]), Decision::Silent);
    assert_eq!(decide(&policy, None, "s3:GetObject", "arn:aws:s3:::c/k", &[]), Decision::Silent);
    assert!(policy.is_public() && policy.is_about("b") && !policy.is_about("c"));
}

#[test]
fn a_denial_wins() {
    let policy = parse(
        r#"{"Statement":[{"Effect":"Allow","Principal":"*","Action":"*","Resource":"*"},
        {"Effect":"Deny","Principal":{"AWS":["arn:aws:iam:::user/bob"]},"Action":"s3:PutObject","Resource":"arn:aws:s3:::b/*"}]}"#,
    );
    assert_eq!(decide(&policy, Some("bob"), "s3:PutObject", "arn:aws:s3:::b/k", &[]), Decision::Deny);
    assert_eq!(decide(&policy, Some("ann"), "s3:PutObject", "arn:aws:s3:::b/k", &[]), Decision::Allow);
}

#[test]
fn principals_by_id_root_and_user() {
    for principal in ["ann", "arn:aws:iam::ann:root", "arn:aws:iam::tenant:user/ann"] {
        let policy = parse(&GET.replace(r#"{"AWS":"*"}"#, &format!(r#"{{"AWS":"{principal}"}}"#)));
        assert_eq!(
            decide(&policy, Some("ann"), "s3:GetObject", "arn:aws:s3:::b/k", &[]),
            Decision::Allow,
            "{principal}"
        );
        assert_eq!(
            decide(&policy, Some("bob"), "s3:GetObject", "arn:aws:s3:::b/k", &[]),
            Decision::Silent,
            "{principal}"
        );
        assert_eq!(decide(&policy, None, "s3:GetObject", "arn:aws:s3:::b/k", &[]), Decision::Silent, "{principal}");
        assert!(!policy.is_public());
    }
}

fn with_condition(condition: &str) -> Policy {
    parse(&GET.replace(r#""Action""#, &format!(r#""Condition":{condition},"Action""#)))
}

#[test]
fn conditions() {
    type Case = (&'static str, &'static [(&'static str, &'static str)], bool);
    let cases: &[Case] = &[
        (r#"{"StringEquals":{"s3:prefix":"a"}}"#, &[("s3:prefix", "a")], true),
        (r#"{"StringEquals":{"s3:prefix":["a","c"]}}"#, &[("s3:prefix", "b")], false),
        (r#"{"StringEquals":{"s3:prefix":"a"}}"#, &[], false),
        (r#"{"StringEqualsIfExists":{"s3:prefix":"a"}}"#, &[], true),
        (r#"{"StringNotEquals":{"s3:prefix":"a"}}"#, &[], true),
        (
            r#"{"StringLike":{"aws:Referer":["http://www.example.com/*"]}}"#,
            &[("aws:referer", "http://www.example.com/x")],
            true,
        ),
        (r#"{"IpAddress":{"aws:SourceIp":"10.0.0.0/8"}}"#, &[("aws:sourceip", "10.2.3.4")], true),
        (r#"{"IpAddress":{"aws:SourceIp":"10.0.0.0/8"}}"#, &[("aws:sourceip", "11.2.3.4")], false),
        (r#"{"IpAddress":{"aws:SourceIp":"0.0.0.0/0"}}"#, &[("aws:sourceip", "11.2.3.4")], true),
        (r#"{"NotIpAddress":{"aws:SourceIp":"2001:db8::/32"}}"#, &[("aws:sourceip", "2001:db8::1")], false),
        (r#"{"Null":{"s3:x-amz-acl":"true"}}"#, &[], true),
        (r#"{"Null":{"s3:x-amz-acl":false}}"#, &[], false),
        (r#"{"Bool":{"aws:SecureTransport":false}}"#, &[("aws:securetransport", "false")], true),
        (r#"{"NumericLessThanEquals":{"s3:max-keys":10}}"#, &[("s3:max-keys", "11")], false),
    ];
    for (condition, values, expected) in cases {
        let decision = decide(&with_condition(condition), None, "s3:GetObject", "arn:aws:s3:::b/k", values);
        assert_eq!(decision == Decision::Allow, *expected, "{condition} with {values:?}");
    }
}

#[test]
fn what_cannot_be_decided_is_refused() {
    for text in [
        "",
        "[]",
        "{}",
        r#"{"Statement":[{}]}"#,
        r#"{"Statement":[],"Other":1}"#,
        &GET.replace("Allow", "Perhaps"),
        &GET.replace(r#""Principal""#, r#""NotPrincipal""#),
        &GET.replace("s3:Get*", "iam:Get"),
        &GET.replace("arn:aws:s3:::", "arn:aws:sns:::"),
        &GET.replace(r#""Action""#, r#""Condition":{"DateEquals":{"aws:CurrentTime":"x"}},"Action""#),
        &GET.replace(r#""Action""#, r#""Condition":{"IpAddress":{"aws:SourceIp":"10.0.0.0/99"}},"Action""#),
        &GET.replace(r#"{"AWS":"*"}"#, r#"{"Service":"x"}"#),
        &GET.replace("2012-10-17", "2020-01-01"),
    ] {
        let error = Policy::parse(text.as_bytes()).expect_err(text);
        assert_eq!(error.code().as_str(), "MalformedPolicy", "{text}");
    }
}

/// By definition, without cleverness.
fn glob_by_definition(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.first(), text.first()) {
        (None, None) => true,
        (Some(b'*'), _) => {
            glob_by_definition(&pattern[1..], text) || (!text.is_empty() && glob_by_definition(pattern, &text[1..]))
        }
        (Some(b'?'), Some(_)) => glob_by_definition(&pattern[1..], &text[1..]),
        (Some(a), Some(b)) if a == b => glob_by_definition(&pattern[1..], &text[1..]),
        _ => false,
    }
}

proptest! {
    #[test]
    fn glob_is_as_defined(pattern in "[ab*?]{0,8}", text in "[ab]{0,8}") {
        prop_assert_eq!(glob(&pattern, &text), glob_by_definition(pattern.as_bytes(), text.as_bytes()));
    }

    #[test]
    fn no_text_panics(text in r#"[\[\]{}":,a-zA-Z0-9*]{0,60}"#) {
        let _ = Policy::parse(text.as_bytes());
    }
}
