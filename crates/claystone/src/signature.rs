//! Signs S3 requests (AWS signature version 4, header form, payload unsigned).
//!
//! Only as much as our own client needs: paths are given as they go over the wire and hold nothing that would have to be
//! percent-encoded; there are no query parameters with values that would.

use hmac::{Hmac, Mac};
use hyper::Request;
use hyper::header::HeaderValue;
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use time::macros::format_description;

/// Who signs, and for where.
#[derive(Clone)]
pub struct Signer {
    /// Access key.
    pub access_key: String,
    /// Secret key.
    pub secret_key: String,
    /// Region.
    pub region: String,
}

impl Signer {
    /// Adds the headers of a signature made now. The request must have its `host` header.
    pub fn sign<B>(&self, request: &mut Request<B>) {
        self.sign_at(request, OffsetDateTime::now_utc());
    }

    fn sign_at<B>(&self, request: &mut Request<B>, now: OffsetDateTime) {
        let format = format_description!("[year][month][day]T[hour][minute][second]Z");
        let stamp = now.format(&format).expect("every date has these parts");
        let date = &stamp[..8];
        let text = |text: &str| HeaderValue::from_str(text).expect("printable");
        request.headers_mut().insert("x-amz-date", text(&stamp));
        request.headers_mut().insert("x-amz-content-sha256", HeaderValue::from_static(UNSIGNED));

        let host = request.headers().get("host").and_then(|host| host.to_str().ok()).expect("the caller sets it");
        let (method, path) = (request.method(), request.uri().path());
        let query = canonical_query(request.uri().query().unwrap_or(""));
        let canonical = format!(
            "{method}\n{path}\n{query}\nhost:{host}\nx-amz-content-sha256:{UNSIGNED}\nx-amz-date:{stamp}\n\n{SIGNED_HEADERS}\n{UNSIGNED}"
        );
        let scope = format!("{date}/{}/s3/aws4_request", self.region);
        let digest = hex::encode(Sha256::digest(canonical.as_bytes()));
        let to_sign = format!("AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}");
        let key = [date, &self.region, "s3", "aws4_request"]
            .iter()
            .fold(format!("AWS4{}", self.secret_key).into_bytes(), |key, part| mac(&key, part));
        let signature = hex::encode(mac(&key, &to_sign));
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope},SignedHeaders={SIGNED_HEADERS},Signature={signature}",
            self.access_key
        );
        request.headers_mut().insert("authorization", text(&authorization));
    }
}

fn canonical_query(query: &str) -> String {
    let mut pairs: Vec<String> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| if pair.contains('=') { pair.to_owned() } else { format!("{pair}=") })
        .collect();
    pairs.sort();
    pairs.join("&")
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any key length is allowed");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
const SIGNED_HEADERS: &str = "host;x-amz-content-sha256;x-amz-date";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_derived_key_is_as_the_specification_says() {
        // The example key of the specification: date 20120215, region us-east-1, service iam.
        let key = ["20120215", "us-east-1", "iam", "aws4_request"]
            .iter()
            .fold(b"AWS4wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_vec(), |key, part| mac(&key, part));
        assert_eq!(hex::encode(key), "f4780e2d9f65fa895f9c67b32ce1baf0b0d8a43505a000a1a9e090d414db404d");
    }

    #[test]
    fn query_parameters_are_sorted_and_have_values() {
        assert_eq!(canonical_query("uploads&a=1"), "a=1&uploads=");
        assert_eq!(canonical_query(""), "");
    }
}
