//! HTML form uploads, as far as s3s 0.14.1 does not understand them.
//!
//! Invariants:
//! 1. Only the fields in front of the file are looked at and held; the file streams by untouched.
//! 2. What is not well formed is passed on as it came: s3s refuses it.
//!
//! Done here: `${filename}` in the key, the field `tagging`, a policy without a signature, and the form of its date.

use std::collections::BTreeMap;
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::StreamExt;
use http::{Request, header};
use http_body::Frame;
use s3s::dto::Tagging;
use s3s::{S3Result, StdError, s3_error};

use crate::observer::Trace;
use crate::{documents, tags};

/// The fields of a form up to its file.
#[derive(Debug, PartialEq, Eq)]
struct Fields {
    /// Lower-case names, and where their values lie.
    fields: Vec<(String, Range<usize>)>,
    /// The name of the file on the client's machine.
    filename: String,
}

/// What the beginning of a form is known to be.
#[derive(Debug, PartialEq, Eq)]
enum Scan {
    /// More of it is needed.
    More,
    Fields(Fields),
    Malformed,
}

/// Reads a form up to its file and makes it fit for s3s.
///
/// # Errors
/// What is wrong with the form.
pub(crate) async fn prepare(request: Request<s3s::Body>, trace: &Trace) -> S3Result<Request<s3s::Body>> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let Some(boundary) = boundary(kind).map(str::to_owned) else { return Ok(request) };
    let (parts, mut body) = request.into_parts();
    let mut seen = Vec::new();
    let fields = loop {
        match scan(&seen, &boundary) {
            Scan::Fields(fields) => break Some(fields),
            Scan::Malformed => break None,
            Scan::More if seen.len() > crate::FORM_FIELDS_BYTES_MAX => {
                return Err(s3_error!(
                    MaxPostPreDataLengthExceededError,
                    "Your POST request fields preceding the upload file were too large"
                ));
            }
            Scan::More => {}
        }
        match body.next().await {
            Some(Ok(bytes)) => seen.extend_from_slice(&bytes),
            Some(Err(error)) => return Err(s3_error!(IncompleteBody, "The form ended early: {error}")),
            None => break None,
        }
    };
    if let Some(fields) = fields {
        seen = rewrite(seen, &fields, trace)?;
    }
    let beginning = futures::stream::once(std::future::ready(Ok::<_, StdError>(Bytes::from(seen))));
    let frames = beginning.chain(body).map(|item| item.map(Frame::data));
    Ok(Request::from_parts(parts, s3s::Body::http_body_unsync(http_body_util::StreamBody::new(frames))))
}

fn rewrite(form: Vec<u8>, fields: &Fields, trace: &Trace) -> S3Result<Vec<u8>> {
    let value = |name: &str| fields.fields.iter().find(|(field, _)| field == name).map(|(_, range)| range.clone());
    if let Some(policy) = value("policy") {
        if value("signature").is_none() && value("x-amz-signature").is_none() {
            return Err(s3_error!(
                InvalidArgument,
                "Bucket POST must contain a field named 'signature' or 'x-amz-signature'"
            ));
        }
        if !has_iso_expiration(&form[policy]) {
            return Err(s3_error!(
                InvalidPolicyDocument,
                "failed to parse POST policy: its expiration must be an ISO 8601 date in UTC"
            ));
        }
    }
    if let Some(range) = value("tagging") {
        trace.set_form_tags(form_tags(&form[range])?);
    }
    let Some(range) = value("key") else { return Ok(form) };
    let Ok(key) = std::str::from_utf8(&form[range.clone()]) else { return Ok(form) };
    if !key.contains(FILENAME) {
        return Ok(form);
    }
    // Some browsers send the whole path.
    let name = fields.filename.rsplit(['/', '\\']).next().unwrap_or_default();
    let key = key.replace(FILENAME, name);
    Ok([&form[..range.start], key.as_bytes(), &form[range.end..]].concat())
}

fn form_tags(text: &[u8]) -> S3Result<BTreeMap<String, String>> {
    let tagging: Tagging = documents::from_xml(text)
        .map_err(|_| s3_error!(MalformedXML, "The form field tagging is not a Tagging document"))?;
    tags::of_set(tagging.tag_set, tags::OBJECT_TAGS_MAX)
}

/// Whether a policy's expiration reads `YYYY-MM-DDTHH:MM:SS[.sss]Z`. A policy that is no JSON is left to s3s.
fn has_iso_expiration(policy: &[u8]) -> bool {
    let json = STANDARD.decode(policy).ok().and_then(|json| serde_json::from_slice::<serde_json::Value>(&json).ok());
    let expiration = json.as_ref().and_then(|policy| policy.get("expiration")).and_then(|date| date.as_str());
    expiration.is_none_or(|date| date.as_bytes().get(10) == Some(&b'T') && date.ends_with('Z'))
}

/// The boundary in a `multipart/form-data` content type.
fn boundary(kind: &str) -> Option<&str> {
    let parameters = kind.strip_prefix("multipart/form-data")?.split(';').map(str::trim);
    let boundary = parameters.filter_map(|parameter| parameter.strip_prefix("boundary=")).next()?;
    let boundary = boundary.trim_matches('"');
    (!boundary.is_empty()).then_some(boundary)
}

/// Finds the fields in what has come of a form.
fn scan(form: &[u8], boundary: &str) -> Scan {
    let first = format!("--{boundary}\r\n").into_bytes();
    let next = format!("\r\n--{boundary}").into_bytes();
    if form.len() < first.len() {
        return if first.starts_with(form) { Scan::More } else { Scan::Malformed };
    }
    if !form.starts_with(&first) {
        return Scan::Malformed;
    }
    let mut at = first.len();
    let mut fields = Vec::new();
    loop {
        let Some(head_bytes) = find(&form[at..], b"\r\n\r\n") else { return Scan::More };
        let Some((name, filename)) = disposition(&form[at..at + head_bytes]) else { return Scan::Malformed };
        let start = at + head_bytes + 4;
        if name == "file" {
            return Scan::Fields(Fields { fields, filename: filename.unwrap_or_default() });
        }
        let Some(value_bytes) = find(&form[start..], &next) else { return Scan::More };
        fields.push((name, start..start + value_bytes));
        at = start + value_bytes + next.len();
        match form.get(at..at + 2) {
            None => return Scan::More,
            Some(b"\r\n") => at += 2,
            Some(_) => return Scan::Malformed,
        }
    }
}

/// Name, in lower case, and file name of a part.
fn disposition(head: &[u8]) -> Option<(String, Option<String>)> {
    let head = std::str::from_utf8(head).ok()?;
    let is_it = |line: &&str| line.get(..20).is_some_and(|name| name.eq_ignore_ascii_case("content-disposition:"));
    let line = head.split("\r\n").find(is_it)?;
    let quoted = |name: &str| {
        let (_, rest) = line.split_once(&format!("; {name}=\""))?;
        rest.split('"').next().map(str::to_owned)
    };
    Some((quoted("name")?.to_ascii_lowercase(), quoted("filename")))
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

const FILENAME: &str = "${filename}";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn form(fields: &[(&str, &str)], filename: &str) -> Vec<u8> {
        let mut text = String::new();
        for (name, value) in fields {
            text.push_str(&format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"));
        }
        text.push_str(&format!(
            "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{filename}\"\r\n\r\nDATA\r\n--B--\r\n"
        ));
        text.into_bytes()
    }

    fn rewritten(fields: &[(&str, &str)], filename: &str) -> Result<String, String> {
        let form = form(fields, filename);
        let Scan::Fields(fields) = scan(&form, "B") else { return Err("no fields".to_owned()) };
        let trace = Trace::new("ID".to_owned(), None);
        let form = rewrite(form, &fields, &trace).map_err(|error| error.code().as_str().to_owned())?;
        Ok(String::from_utf8(form).expect("text"))
    }

    #[test]
    fn the_file_name_stands_in_for_itself() {
        let fields = [("KEY", "a/${filename}/b")];
        assert!(rewritten(&fields, "C:\\x\\foo.txt").expect("a form").contains("\r\n\r\na/foo.txt/b\r\n"));
        assert!(rewritten(&[("key", "plain")], "foo").expect("a form").contains("\r\n\r\nplain\r\n"));
    }

    #[test]
    fn a_policy_needs_a_signature_and_an_iso_date() {
        let policy = |date: &str| STANDARD.encode(format!(r#"{{"expiration":"{date}","conditions":[]}}"#));
        let good = policy("2030-01-01T00:00:00Z");
        assert_eq!(rewritten(&[("policy", &good)], "f"), Err("InvalidArgument".to_owned()));
        assert!(rewritten(&[("policy", &good), ("signature", "s")], "f").is_ok());
        let bad = policy("2030-01-01 00:00:00+00:00");
        assert_eq!(rewritten(&[("policy", &bad), ("signature", "s")], "f"), Err("InvalidPolicyDocument".to_owned()));
    }

    #[test]
    fn tags_are_taken_from_their_field() {
        let text = b"<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>";
        assert_eq!(form_tags(text).expect("tags"), [("a".to_owned(), "b".to_owned())].into());
        assert!(form_tags(b"a=b").is_err());
    }

    #[test]
    fn boundaries() {
        assert_eq!(boundary("multipart/form-data; boundary=abc"), Some("abc"));
        assert_eq!(boundary("multipart/form-data; charset=x; boundary=\"a b\""), Some("a b"));
        assert_eq!(boundary("multipart/form-data"), None);
    }

    proptest! {
        #[test]
        fn every_beginning_wants_more_until_the_file(cut in 0usize..200) {
            let form = form(&[("key", "k"), ("acl", "private")], "f");
            let head_end = find(&form, b"DATA").expect("the file");
            prop_assume!(cut < form.len());
            match scan(&form[..cut], "B") {
                Scan::More => prop_assert!(cut < head_end),
                Scan::Fields(fields) => {
                    prop_assert!(cut >= head_end);
                    prop_assert_eq!(fields.fields.len(), 2);
                }
                Scan::Malformed => prop_assert!(false, "cut at {}", cut),
            }
        }

        #[test]
        fn any_bytes_are_scanned_without_panic(text in r#"(--B|\r\n|[a-z":;= ]|Content-Disposition: ){0,40}"#) {
            let _ = scan(text.as_bytes(), "B");
        }
    }
}
