//! Which pages of other origins a browser may let at a bucket.
//!
//! Invariants:
//! 1. The first rule that allows origin, method and requested headers decides; without one there are no headers.
//! 2. A preflight is answered before authentication, as browsers send it without.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use s3s::dto::{CORSConfiguration, CORSRule};
use s3s::{S3Error, s3_error};

/// The headers for a preflight.
///
/// # Errors
/// `InvalidRequest` (400) if it is none, `AccessDenied` (403) if no rule allows it.
pub(crate) fn preflight(config: Option<&CORSConfiguration>, request: &HeaderMap) -> Result<HeaderMap, S3Error> {
    let (Some(origin), Some(method)) =
        (text(request, header::ORIGIN), text(request, header::ACCESS_CONTROL_REQUEST_METHOD))
    else {
        return Err(s3_error!(
            InvalidRequest,
            "Insufficient information. Origin request header and Access-Control-Request-Method are needed"
        ));
    };
    let wanted: Vec<&str> = text(request, header::ACCESS_CONTROL_REQUEST_HEADERS)
        .map(|names| names.split(',').map(str::trim).filter(|name| !name.is_empty()).collect())
        .unwrap_or_default();
    let rule = config.and_then(|config| {
        config
            .cors_rules
            .iter()
            .find(|rule| allows(rule, origin, method) && wanted.iter().all(|name| allows_header(rule, name)))
    });
    let Some(rule) = rule else {
        return Err(s3_error!(AccessDenied, "CORSResponse: This CORS request is not allowed"));
    };
    let mut headers = answer(rule, origin, method);
    if !wanted.is_empty() {
        put(&mut headers, header::ACCESS_CONTROL_ALLOW_HEADERS, &wanted.join(", "));
    }
    Ok(headers)
}

/// The headers for the response to a request that has an Origin; none if no rule fits.
pub(crate) fn response(config: &CORSConfiguration, origin: &str, method: &str) -> HeaderMap {
    let rule = config.cors_rules.iter().find(|rule| allows(rule, origin, method));
    rule.map(|rule| answer(rule, origin, method)).unwrap_or_default()
}

/// Whether a configuration can be kept.
///
/// # Errors
/// `InvalidRequest`, `MalformedXML`.
pub(crate) fn check(config: &CORSConfiguration) -> Result<(), S3Error> {
    if config.cors_rules.is_empty() || config.cors_rules.len() > RULES_MAX {
        return Err(s3_error!(MalformedXML, "A CORS configuration has 1 to {RULES_MAX} rules"));
    }
    for rule in &config.cors_rules {
        if rule.allowed_methods.is_empty() || rule.allowed_origins.is_empty() {
            return Err(s3_error!(MalformedXML, "A CORS rule needs an AllowedMethod and an AllowedOrigin"));
        }
        for method in &rule.allowed_methods {
            if !["GET", "PUT", "POST", "DELETE", "HEAD"].contains(&method.as_str()) {
                return Err(s3_error!(
                    InvalidRequest,
                    "Found unsupported HTTP method in CORS config. Unsupported method is {method}"
                ));
            }
        }
        let patterns = rule.allowed_origins.iter().chain(rule.allowed_headers.iter().flatten());
        for pattern in patterns {
            if pattern.matches('*').count() > 1 {
                return Err(s3_error!(InvalidRequest, "{pattern:?} can not have more than one wildcard"));
            }
        }
    }
    Ok(())
}

fn allows(rule: &CORSRule, origin: &str, method: &str) -> bool {
    rule.allowed_methods.iter().any(|allowed| allowed == method)
        && rule.allowed_origins.iter().any(|pattern| matches(pattern, origin))
}

fn allows_header(rule: &CORSRule, name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    rule.allowed_headers.iter().flatten().any(|pattern| matches(&pattern.to_ascii_lowercase(), &name))
}

/// Whether `text` fits `pattern`, in which one `*` stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, tail)) => text.len() >= head.len() + tail.len() && text.starts_with(head) && text.ends_with(tail),
    }
}

fn answer(rule: &CORSRule, origin: &str, method: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let any = rule.allowed_origins.iter().any(|pattern| pattern == "*");
    put(&mut headers, header::ACCESS_CONTROL_ALLOW_ORIGIN, if any { "*" } else { origin });
    put(&mut headers, header::ACCESS_CONTROL_ALLOW_METHODS, method);
    put(&mut headers, header::VARY, "Origin, Access-Control-Request-Headers, Access-Control-Request-Method");
    if !any {
        put(&mut headers, header::ACCESS_CONTROL_ALLOW_CREDENTIALS, "true");
    }
    if let Some(exposed) = &rule.expose_headers {
        put(&mut headers, header::ACCESS_CONTROL_EXPOSE_HEADERS, &exposed.join(", "));
    }
    if let Some(seconds) = rule.max_age_seconds {
        put(&mut headers, header::ACCESS_CONTROL_MAX_AGE, &seconds.to_string());
    }
    headers
}

fn put(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Name of the document that holds the configuration.
pub(crate) const DOCUMENT: &str = "cors";
const RULES_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn config(origins: &[&str], methods: &[&str], headers: &[&str]) -> CORSConfiguration {
        let list = |items: &[&str]| items.iter().map(|&item| item.to_owned()).collect::<Vec<_>>();
        let rule = CORSRule {
            allowed_origins: list(origins),
            allowed_methods: list(methods),
            allowed_headers: Some(list(headers)),
            expose_headers: Some(list(&["etag"])),
            id: None,
            max_age_seconds: Some(5),
        };
        CORSConfiguration { cors_rules: vec![rule] }
    }

    fn request(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn a_wildcard_stands_anywhere() {
        assert!(matches("*suffix", "foo.suffix") && !matches("*suffix", "suffix.get"));
        assert!(
            matches("start*end", "startend") && matches("start*end", "start1end") && !matches("start*end", "start1")
        );
        assert!(matches("prefix*", "prefix.suffix") && !matches("prefix*", "bla.prefix"));
        assert!(!matches("ab*ba", "aba"), "the two ends must not overlap");
    }

    #[test]
    fn a_response_names_the_origin_and_the_method_asked_for() {
        let config = config(&["http://*.example.com"], &["GET", "PUT"], &[]);
        let headers = response(&config, "http://a.example.com", "GET");
        assert_eq!(headers[header::ACCESS_CONTROL_ALLOW_ORIGIN], "http://a.example.com");
        assert_eq!(headers[header::ACCESS_CONTROL_ALLOW_METHODS], "GET");
        assert!(response(&config, "http://other.com", "GET").is_empty());
        assert!(response(&config, "http://a.example.com", "DELETE").is_empty());
    }

    #[test]
    fn a_preflight_needs_origin_method_and_allowed_headers() {
        let config = config(&["*"], &["GET"], &["x-amz-meta-*"]);
        let status = |pairs: &[(&'static str, &'static str)]| {
            preflight(Some(&config), &request(pairs)).map_err(|error| error.code().as_str().to_owned())
        };
        assert_eq!(status(&[("origin", "http://a")]).expect_err("no method"), "InvalidRequest");
        let get = ("access-control-request-method", "GET");
        assert_eq!(status(&[("origin", "http://a"), get]).expect("allowed")[header::ACCESS_CONTROL_ALLOW_ORIGIN], "*");
        let asked = ("access-control-request-headers", "X-Amz-Meta-a, x-other");
        assert_eq!(status(&[("origin", "http://a"), get, asked]).expect_err("x-other"), "AccessDenied");
        let asked = ("access-control-request-headers", "X-Amz-Meta-a");
        assert!(status(&[("origin", "http://a"), get, asked]).is_ok());
        assert!(preflight(None, &request(&[("origin", "http://a"), get])).is_err());
    }

    #[test]
    fn rules_are_checked_before_they_are_kept() {
        assert!(check(&config(&["a*b"], &["GET"], &["*"])).is_ok());
        assert!(check(&config(&["a*b*"], &["GET"], &[])).is_err());
        assert!(check(&config(&["*"], &["PATCH"], &[])).is_err());
        assert!(check(&config(&[], &["GET"], &[])).is_err());
    }
}
