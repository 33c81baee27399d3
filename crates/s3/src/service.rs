//! What happens to a request before s3s sees it and to a response behind it.
//!
//! Invariants:
//! 1. Every response has `x-amz-request-id`, and an error's document has the same id.
//! 2. What s3s 0.14.1 would take wrongly is taken care of here: chunks of any length, signatures of version 2,
//!    encryption that is not there, preflights (docs/decisions says why we stay on that version).
//! 3. The observer is told of each request exactly once, when its response has gone or was given up.

use std::borrow::Cow;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use claystone_env::{Clock, Env, Moment};
use futures::StreamExt;
use futures::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use s3s::dto::CORSConfiguration;
use s3s::service::S3Service;
use s3s::{S3Error, S3Result, StdError, s3_error};

use crate::body::awaited;
use crate::checksum::Declared;
use crate::chunked::{Mode, Rechunked};
use crate::error::from_object;
use crate::gateway::Gateway;
use crate::observer::{Observer, Trace};
use crate::operations::Domain;
use crate::{cors, documents, form, range};

/// Serves requests of one connection. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    pub(crate) shared: Arc<Shared>,
    pub(crate) peer: Option<IpAddr>,
}

pub(crate) struct Shared {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) s3s: S3Service,
    pub(crate) observer: Arc<dyn Observer>,
}

impl hyper::service::Service<Request<Incoming>> for Service {
    type Response = Response<Observed>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let waits = request.headers().contains_key(header::EXPECT);
            let given_up = Arc::new(AtomicBool::new(false));
            let env = service.shared.gateway.env.clone();
            let request = request.map(|body| {
                if body.is_end_stream() {
                    return s3s::Body::empty();
                }
                s3s::Body::http_body(Drained { body: Some(body), waits, env, given_up: given_up.clone() })
            });
            let mut response = service.answer(request).await;
            if given_up.load(Ordering::Acquire) {
                // What comes next on this connection may be the body or another request: nobody can tell.
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response)
        })
    }
}

impl Service {
    /// Answers a request.
    pub async fn answer(&self, request: Request<s3s::Body>) -> Response<Observed> {
        let gateway = &self.shared.gateway;
        let began = gateway.env.clock.now();
        let trace = Arc::new(Trace::new(format!("{:016X}", gateway.env.random.next_u64()), self.peer));
        let asked = Asked::of(&request);
        let mut response = match *request.method() {
            Method::OPTIONS => {
                trace.name("Preflight");
                self.preflight(&asked).await.unwrap_or_else(refusal)
            }
            _ => match prepare(request, gateway, &trace, asked.form).await {
                Ok(request) => self.shared.s3s.call(request).await.unwrap_or_else(|error| {
                    let error: StdError = error.into();
                    refusal(S3Error::with_source(s3s::S3ErrorCode::InternalError, error))
                }),
                Err(error) => refusal(error),
            },
        };
        if let Some(error) = trace.refusal() {
            response = refusal(error);
        }
        amend(&mut response, &trace, asked.form);
        if asked.method != Method::OPTIONS {
            self.add_cors(&asked, response.headers_mut()).await;
        }
        if let Ok(id) = HeaderValue::from_str(&trace.request_id) {
            response.headers_mut().insert(HeaderName::from_static("x-amz-request-id"), id);
        }
        let status = response.status().as_u16();
        let (observer, clock) = (self.shared.observer.clone(), gateway.env.clock.clone());
        let tally = Tally { observer, clock, trace, status, began, bytes_in: asked.body_bytes, bytes_out: 0 };
        response.map(|body| Observed { body, tally })
    }

    async fn preflight(&self, asked: &Asked) -> S3Result<Response<s3s::Body>> {
        let config = self.cors_of(asked).await?;
        let headers = cors::preflight(config.as_ref(), &asked.headers)?;
        let mut response = Response::new(s3s::Body::empty());
        *response.headers_mut() = headers;
        Ok(response)
    }

    /// The rules of the bucket that a request names.
    async fn cors_of(&self, asked: &Asked) -> S3Result<Option<CORSConfiguration>> {
        let Some(bucket) = asked.bucket(self.shared.gateway.settings.domain.as_deref()) else { return Ok(None) };
        let bucket = self.shared.gateway.objects.bucket(&bucket).await.map_err(from_object)?;
        documents::read(&bucket, cors::DOCUMENT)
    }

    async fn add_cors(&self, asked: &Asked, headers: &mut HeaderMap) {
        let text = |name| asked.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let Some(origin) = text(header::ORIGIN) else { return };
        let method = text(header::ACCESS_CONTROL_REQUEST_METHOD).unwrap_or(asked.method.as_str());
        if let Ok(Some(config)) = self.cors_of(asked).await {
            headers.extend(cors::response(&config, origin, method));
        }
    }
}

/// What is needed of a request after it is gone.
struct Asked {
    method: Method,
    uri: Uri,
    /// Host, Origin and what a preflight asks.
    headers: HeaderMap,
    body_bytes: u64,
    /// An HTML form is uploaded.
    form: bool,
}

impl Asked {
    fn of<B>(request: &Request<B>) -> Asked {
        let from = request.headers();
        let kept = [
            header::HOST,
            header::ORIGIN,
            header::ACCESS_CONTROL_REQUEST_METHOD,
            header::ACCESS_CONTROL_REQUEST_HEADERS,
        ];
        let headers = kept.into_iter().filter_map(|name| Some((name.clone(), from.get(&name)?.clone()))).collect();
        let text = |name| from.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        Asked {
            method: request.method().clone(),
            uri: request.uri().clone(),
            headers,
            body_bytes: text(header::CONTENT_LENGTH).and_then(|length| length.parse().ok()).unwrap_or(0),
            form: *request.method() == Method::POST
                && text(header::CONTENT_TYPE).is_some_and(|kind| kind.starts_with("multipart/form-data")),
        }
    }

    fn bucket(&self, domain: Option<&str>) -> Option<String> {
        let host = self.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = host.or(self.uri.authority().map(|authority| authority.as_str())).unwrap_or_default();
        if let Some(domain) = domain
            && let Some(bucket) = Domain(domain.to_owned()).bucket(host)
        {
            return Some(bucket.to_ascii_lowercase());
        }
        let path = self.uri.path().strip_prefix('/')?;
        let bucket = path.split('/').next().filter(|bucket| !bucket.is_empty())?;
        percent_encoding::percent_decode_str(bucket).decode_utf8().ok().map(|bucket| bucket.into_owned())
    }
}

/// Makes a request fit for s3s.
///
/// # Errors
/// What no operation should see.
async fn prepare(
    request: Request<s3s::Body>,
    gateway: &Gateway,
    trace: &Arc<Trace>,
    form: bool,
) -> S3Result<Request<s3s::Body>> {
    let (mut parts, body) = request.into_parts();
    let body = awaited(body, gateway.env.clock.clone(), trace.clone());
    refuse_unsupported(&parts.headers, &parts.uri)?;
    check_signed(&parts.headers, &parts.uri)?;
    let now = i64::try_from(gateway.env.clock.wall().unix_ms / 1000).unwrap_or(i64::MAX);
    if check_version_2(&parts.headers, &parts.uri, now)? {
        close_bucket_path(&mut parts.uri);
    }
    check_expiry(&parts.uri)?;
    let many = parts.headers.get(header::RANGE).is_some_and(|value| !range::is_single(value.as_bytes()));
    if many && signed_headers(&parts.headers, &parts.uri).is_none_or(|signed| !signed.contains("range")) {
        // A range that is none, or several, may be ignored (RFC 9110 section 14.2). A signed one must stay.
        parts.headers.remove(header::RANGE);
    }
    let mode = match parts.headers.get("x-amz-content-sha256").map(HeaderValue::as_bytes) {
        Some(b"STREAMING-UNSIGNED-PAYLOAD-TRAILER") => Some(Mode::Split),
        Some(kind) if kind.starts_with(b"STREAMING-") => Some(Mode::Bound),
        _ => None,
    };
    let body = match mode {
        Some(mode) => {
            let frames = http_body_util::StreamBody::new(Rechunked::new(body, mode).map(|item| item.map(Frame::data)));
            s3s::Body::http_body_unsync(frames)
        }
        None if is_document(&parts.method, &parts.uri) => {
            verified(body, Declared::from_headers(&parts.headers)?, trace)
        }
        None => body,
    };
    parts.extensions.insert(trace.clone());
    let request = Request::from_parts(parts, body);
    if form { form::prepare(request, trace).await } else { Ok(request) }
}

/// Whether the body is a document that s3s reads, rather than an object's bytes.
fn is_document(method: &Method, uri: &Uri) -> bool {
    let by_method: &[&str] = match *method {
        Method::PUT => &[
            "acl",
            "cors",
            "legal-hold",
            "lifecycle",
            "object-lock",
            "ownershipControls",
            "policy",
            "publicAccessBlock",
            "retention",
            "tagging",
            "versioning",
        ],
        Method::POST => &["delete"],
        _ => &[],
    };
    query(uri).any(|(name, _)| by_method.contains(&&*name))
}

/// A document's body with the checksums that its request declares, which s3s does not look at.
fn verified(body: s3s::Body, declared: Declared, trace: &Arc<Trace>) -> s3s::Body {
    let state = (body, Vec::new(), declared, trace.clone());
    let stream = futures::stream::try_unfold(state, |(mut body, mut seen, declared, trace)| async move {
        match body.next().await.transpose()? {
            Some(bytes) => {
                // s3s stops at its limit for documents, so no more than that is kept here.
                seen.extend_from_slice(&bytes);
                Ok(Some((Frame::data(bytes), (body, seen, declared, trace))))
            }
            None => match declared.check(&seen) {
                Ok(()) => Ok(None),
                Err(error) => {
                    trace.refuse(error);
                    Err::<_, StdError>("the document's checksum does not match".into())
                }
            },
        }
    });
    s3s::Body::http_body_unsync(http_body_util::StreamBody::new(stream.boxed()))
}

fn refuse_unsupported(headers: &HeaderMap, uri: &Uri) -> S3Result<()> {
    let encrypts = |name: &HeaderName| {
        let name = name.as_str();
        name.starts_with("x-amz-server-side-encryption") || name.starts_with("x-amz-copy-source-server-side-encryption")
    };
    if headers.keys().any(encrypts) {
        return Err(s3_error!(NotImplemented, "Server-side encryption is not supported: send the request without it"));
    }
    // s3s would take these for plain reads and writes.
    let unknown =
        ["renameObject", "append", "metadataConfiguration", "metadataInventoryTable", "metadataJournalTable", "abac"];
    if let Some((name, _)) = query(uri).find(|(name, _)| unknown.contains(&&**name)) {
        return Err(s3_error!(NotImplemented, "A request with ?{name} is not supported"));
    }
    Ok(())
}

/// Signatures of version 2 cover less of a request than those of version 4, so they are taken only in addresses that expire, which
/// `s3cmd signurl` and older versions of aws cli can sign in no other way, and in HTML forms.
///
/// Returns whether an address is signed so.
fn check_version_2(headers: &HeaderMap, uri: &Uri, now: i64) -> S3Result<bool> {
    if headers.get(header::AUTHORIZATION).is_some_and(|value| value.as_bytes().starts_with(b"AWS ")) {
        return Err(s3_error!(
            InvalidRequest,
            "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256."
        ));
    }
    if !query(uri).any(|(name, _)| name == "Signature") {
        return Ok(false);
    }
    if let Some((name, _)) = query(uri).find(|(name, _)| UNSIGNED_BY_VERSION_2.contains(&&**name)) {
        return Err(s3_error!(AccessDenied, "A signature of version 2 does not cover ?{name}: sign with version 4"));
    }
    let expires = query(uri).find(|(name, _)| *name == "Expires").and_then(|(_, at)| at.parse::<i64>().ok());
    if expires.is_some_and(|at| (1..=EXPIRY_SECONDS_MAX).contains(&at.saturating_sub(now))) {
        return Ok(true);
    }
    Err(s3_error!(AccessDenied, "Request has expired, or is good for more than a week"))
}

/// Makes `/bucket` the `/bucket/` that signers of version 2 take it for.
fn close_bucket_path(uri: &mut Uri) {
    let path = uri.path();
    if path.len() < 2 || path[1..].contains('/') {
        return;
    }
    let closed = match uri.query() {
        Some(query) => format!("{path}/?{query}"),
        None => format!("{path}/"),
    };
    let mut parts = uri.clone().into_parts();
    if let Ok(closed) = closed.parse() {
        parts.path_and_query = Some(closed);
        if let Ok(closed) = Uri::from_parts(parts) {
            *uri = closed;
        }
    }
}

/// A presigned address is good for a second to a week.
fn check_expiry(uri: &Uri) -> S3Result<()> {
    let Some((_, seconds)) = query(uri).find(|(name, _)| *name == "X-Amz-Expires") else { return Ok(()) };
    if seconds.parse::<i64>().is_ok_and(|seconds| (1..=EXPIRY_SECONDS_MAX).contains(&seconds)) {
        return Ok(());
    }
    Err(s3_error!(AccessDenied, "X-Amz-Expires must be between 1 and 604800 seconds, not {seconds:?}"))
}

/// A signature of version 4 must cover the host and every header of Amazon's: what it does not cover says who has the address, or who
/// passes the request on, not who signed it. The body's hash alone may be left out: it allows nothing, and is signed otherwise.
fn check_signed(headers: &HeaderMap, uri: &Uri) -> S3Result<()> {
    let Some(signed) = signed_headers(headers, uri) else { return Ok(()) };
    let must_be = |name: &&str| *name == "host" || (name.starts_with("x-amz-") && *name != "x-amz-content-sha256");
    let names = headers.keys().map(HeaderName::as_str).filter(must_be);
    let unsigned: Vec<&str> = names.filter(|name| !signed.contains(name)).collect();
    if unsigned.is_empty() {
        return Ok(());
    }
    let unsigned = unsigned.join(", ");
    Err(s3_error!(AccessDenied, "There were headers present in the request which were not signed: {unsigned}"))
}

/// The names of the headers that a signature of version 4 covers; `None` without one. They are read as s3s reads them: that of an
/// address counts before that of a header, and names in capitals cover nothing.
fn signed_headers(headers: &HeaderMap, uri: &Uri) -> Option<SignedHeaders> {
    if let Some((_, list)) = query(uri).find(|(name, _)| name == "X-Amz-SignedHeaders") {
        return Some(SignedHeaders(list.into_owned()));
    }
    let authorization = std::str::from_utf8(headers.get(header::AUTHORIZATION)?.as_bytes()).ok()?;
    // Whatever stands in front of the last one is not compared by s3s.
    let (_, rest) = authorization.rsplit_once("SignedHeaders=")?;
    rest.split(',').next().map(|list| SignedHeaders(list.to_owned()))
}

/// Names that are separated by semicolons.
struct SignedHeaders(String);

impl SignedHeaders {
    fn contains(&self, name: &str) -> bool {
        self.0.split(';').any(|signed| signed == name)
    }
}

/// The pairs of a query, decoded: s3s, which checks its signature, takes `%73ignature` for `signature` too.
fn query(uri: &Uri) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    let decoded = |text| percent_encoding::percent_decode_str(text).decode_utf8_lossy();
    let pairs = uri.query().unwrap_or_default().split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.map(move |(name, value)| (decoded(name), decoded(value)))
}

fn refusal(error: S3Error) -> Response<s3s::Body> {
    error.to_http_response().unwrap_or_else(|_| {
        let mut response = Response::new(s3s::Body::empty());
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response
    })
}

/// Mends what s3s 0.14.1 writes otherwise than S3: entity tags in attributes have no quotes, those in a form's redirect
/// have them; errors have words and the request's id, and breaking a form's policy is 403.
fn amend(response: &mut Response<s3s::Body>, trace: &Trace, form: bool) {
    if trace.operation() == "GetObjectAttributes" && response.status().is_success() {
        unquote_etag(response);
    }
    if form && response.status() == StatusCode::SEE_OTHER {
        quote_redirect(response.headers_mut());
    }
    if !response.status().is_client_error() && !response.status().is_server_error() {
        return;
    }
    let Some(document) = response.body().bytes().filter(|bytes| !bytes.is_empty()) else { return };
    let Ok(mut document) = String::from_utf8(document.to_vec()) else { return };
    if form && document.contains("<Code>InvalidPolicyDocument</Code>") && !document.contains("failed to parse") {
        document = document.replace("<Code>InvalidPolicyDocument</Code>", "<Code>AccessDenied</Code>");
        *response.status_mut() = StatusCode::FORBIDDEN;
    }
    if !document.contains("<Message>") {
        // s3s leaves some of its errors without words.
        let code = between(&document, "<Code>", "</Code>").unwrap_or_default();
        let message = message(code);
        document = document.replacen("</Code>", &format!("</Code><Message>{message}</Message>"), 1);
    }
    if !document.contains("<RequestId>") {
        document = document.replace("</Error>", &format!("<RequestId>{}</RequestId></Error>", trace.request_id));
    }
    response.headers_mut().remove(header::CONTENT_LENGTH);
    *response.body_mut() = s3s::Body::from(document);
}

fn unquote_etag(response: &mut Response<s3s::Body>) {
    let Some(document) = response.body().bytes().and_then(|bytes| String::from_utf8(bytes.to_vec()).ok()) else {
        return;
    };
    let Some(etag) = between(&document, "<ETag>", "</ETag>") else { return };
    let bare = etag.replace("&quot;", "").replace('"', "");
    let document = document.replacen(&format!("<ETag>{etag}</ETag>"), &format!("<ETag>{bare}</ETag>"), 1);
    *response.body_mut() = s3s::Body::from(document);
}

fn quote_redirect(headers: &mut HeaderMap) {
    let location = headers.get(header::LOCATION).and_then(|location| location.to_str().ok());
    let Some((before, etag)) = location.and_then(|location| location.rsplit_once("etag=")) else { return };
    if let Ok(location) = HeaderValue::from_str(&format!("{before}etag=%22{etag}%22")) {
        headers.insert(header::LOCATION, location);
    }
}

fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<&'a str> {
    text.split_once(from)?.1.split_once(to).map(|(inner, _)| inner)
}

/// Words for the errors that s3s gives without any.
fn message(code: &str) -> &'static str {
    match code {
        "SignatureDoesNotMatch" => {
            "The request signature we calculated does not match the signature you provided. Check your key and signing method."
        }
        "MalformedXML" => "The XML you provided was not well-formed or did not validate against our published schema",
        "MissingRequestBodyError" => "Request body is empty",
        "InvalidURI" => "Couldn't parse the specified URI",
        "InvalidBucketName" => {
            "The specified bucket is not valid: 3 to 63 lower-case letters, digits, dots and hyphens"
        }
        "KeyTooLongError" => "Your key is too long: the limit is 1024 bytes",
        "IncompleteBody" => "You did not provide the number of bytes specified by the Content-Length HTTP header",
        "MissingContentLength" => "You must provide the Content-Length HTTP header",
        "MethodNotAllowed" => "The specified method is not allowed against this resource",
        "MaxMessageLengthExceeded" => "Your request was too big",
        "NotImplemented" => "A header or query you provided implies functionality that is not implemented",
        "MalformedPOSTRequest" => "The body of your POST request is not well-formed multipart/form-data",
        "InternalError" => "We encountered an internal error. Please try again.",
        _ => "The request cannot be served as it is",
    }
}

/// A request's body. If nobody reads it to its end, a rest that is short is read and dropped, so that the client gets
/// to see the response instead of a reset connection.
struct Drained {
    body: Option<Incoming>,
    /// The client waits to be asked for the body; it must not be asked just to drop it.
    waits: bool,
    env: Env,
    /// Set if the body was dropped with a rest that is not read.
    given_up: Arc<AtomicBool>,
}

impl http_body::Body for Drained {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        self.waits = false;
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(body).poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), |body| body.size_hint())
    }
}

impl Drop for Drained {
    fn drop(&mut self) {
        let Some(mut body) = self.body.take().filter(|body| !body.is_end_stream()) else { return };
        if self.waits || body.size_hint().lower() > DRAIN_BYTES_MAX {
            self.given_up.store(true, Ordering::Release);
            return;
        }
        let clock = self.env.clock.clone();
        let drain = async move {
            let mut bytes = 0;
            let reading = async {
                while let Some(Ok(frame)) = body.frame().await {
                    bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                    if bytes > DRAIN_BYTES_MAX {
                        break;
                    }
                }
            };
            claystone_env::timeout(&*clock, DRAIN_TIME_MAX, reading).await;
        };
        self.env.tasks.spawn("drain", Box::pin(drain));
    }
}

/// A response's body that is counted.
pub struct Observed {
    body: s3s::Body,
    tally: Tally,
}

struct Tally {
    observer: Arc<dyn Observer>,
    clock: Arc<dyn Clock>,
    trace: Arc<Trace>,
    status: u16,
    began: Moment,
    bytes_in: u64,
    bytes_out: u64,
}

impl Drop for Tally {
    fn drop(&mut self) {
        let elapsed = self.clock.now().since(self.began);
        let operation = self.trace.operation();
        tracing::debug!(
            request = %self.trace.request_id, operation, status = self.status, ?elapsed, self.bytes_in, self.bytes_out,
            "request"
        );
        self.observer.request(operation, self.status, elapsed, self.bytes_in, self.bytes_out);
    }
}

impl http_body::Body for Observed {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let frame = ready!(http_body::Body::poll_frame(Pin::new(&mut self.body), cx));
        if let Some(Ok(frame)) = &frame {
            self.tally.bytes_out += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        http_body::Body::size_hint(&self.body)
    }
}

/// What is asked of a bucket or an object by a name in the query that is no part of what version 2 signs: whoever has a presigned address could
/// append it.
const UNSIGNED_BY_VERSION_2: [&str; 10] = [
    "attributes",
    "encryption",
    "intelligent-tiering",
    "legal-hold",
    "metadataTable",
    "ownershipControls",
    "policyStatus",
    "publicAccessBlock",
    "retention",
    "session",
];
const EXPIRY_SECONDS_MAX: i64 = 7 * 24 * 60 * 60;
const DRAIN_BYTES_MAX: u64 = 4 << 20;
const DRAIN_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str) -> Uri {
        text.parse().expect("a uri")
    }

    #[test]
    fn presigned_addresses_are_good_for_up_to_a_week() {
        for (seconds, good) in
            [("1", true), ("604800", true), ("0", false), ("604801", false), ("-7", false), ("x", false)]
        {
            assert_eq!(check_expiry(&uri(&format!("/b/k?X-Amz-Expires={seconds}"))).is_ok(), good, "{seconds}");
        }
        assert!(check_expiry(&uri("/b/k")).is_ok());
    }

    #[test]
    fn a_signature_covers_the_host_and_amazons_headers() {
        let code = |authorization: &str, path: &str, header: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static("localhost"));
            headers.insert(HeaderName::from_static(header), HeaderValue::from_static("1"));
            if !authorization.is_empty() {
                headers
                    .insert(header::AUTHORIZATION, HeaderValue::from_bytes(authorization.as_bytes()).expect("visible"));
            }
            check_signed(&headers, &uri(path)).map_err(|error| error.code().as_str().to_owned())
        };
        let denied = Err("AccessDenied".to_owned());
        let signed = |names: &str| format!("AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders={names}, Signature=00");
        assert_eq!(code(&signed("host;x-amz-acl"), "/", "x-amz-acl"), Ok(()));
        assert_eq!(code(&signed("host;x-amz-aclx"), "/", "x-amz-acl"), denied);
        for unsigned in ["x-amz-content-sha256", "x-amzn-trace-id", "range"] {
            assert_eq!(code(&signed("host"), "/", unsigned), Ok(()), "{unsigned}");
        }
        assert_eq!(code(&signed("x-amz-acl"), "/", "x-amz-acl"), denied, "the host names a bucket");
        assert_eq!(code("", "/", "x-amz-acl"), Ok(()), "who does not sign is nobody");
        // What s3s would not look up, or not compare.
        for names in ["host;X-Amz-Acl", "host;\u{e9}"] {
            assert_eq!(code(&signed(names), "/", "x-amz-acl"), denied, "{names}");
        }
        let algorithm = signed("host").replace("AWS4-HMAC-SHA256", "SignedHeaders=host;x-amz-acl,");
        assert_eq!(code(&algorithm, "/", "x-amz-acl"), denied);
        assert_eq!(code("", "/?X-Amz-SignedHeaders=host%3Bx-amz-acl", "x-amz-acl"), Ok(()));
        for path in ["/?X-Amz-SignedHeaders=host", "/?X-Amz-SignedHeader%73=host"] {
            assert_eq!(code(&signed("host;x-amz-acl"), path, "x-amz-acl"), denied, "{path}");
        }
    }

    #[test]
    fn version_2_is_taken_in_addresses_that_expire_and_not_in_headers() {
        let code = |headers: &HeaderMap, path: &str, now| {
            check_version_2(headers, &uri(path), now).map_err(|error| error.code().as_str().to_owned())
        };
        let signed: HeaderMap =
            [(header::AUTHORIZATION, HeaderValue::from_static("AWS key:signature"))].into_iter().collect();
        assert_eq!(code(&signed, "/b", 3600), Err("InvalidRequest".to_owned()));
        let query = |expires: &str, now| {
            code(&HeaderMap::new(), &format!("/b/k?AWSAccessKeyId=a&Signature=b&Expires={expires}"), now)
        };
        assert_eq!(query("3601", 3600), Ok(true));
        assert_eq!(query("3601&tagging", 3600), Ok(true), "that is signed");
        for appended in ["retention", "legal%2Dhold=x"] {
            assert_eq!(query(&format!("3601&{appended}"), 3600), Err("AccessDenied".to_owned()), "{appended}");
        }
        for (expires, now) in [("3600", 3600), ("604801", 0), ("x", 0)] {
            assert_eq!(query(expires, now), Err("AccessDenied".to_owned()), "{expires}");
        }
        assert_eq!(code(&HeaderMap::new(), "/b", 0), Ok(false));
    }

    #[test]
    fn bucket_paths_are_closed() {
        for (path, closed) in [("/b", "/b/"), ("/b?acl", "/b/?acl"), ("/b/k", "/b/k"), ("/", "/"), ("/b/", "/b/")] {
            let mut uri = uri(path);
            close_bucket_path(&mut uri);
            assert_eq!(uri, closed);
        }
    }

    #[test]
    fn encryption_and_unknown_subresources_are_refused() {
        let name = HeaderName::from_static("x-amz-server-side-encryption-customer-algorithm");
        let headers: HeaderMap = [(name, HeaderValue::from_static("AES256"))].into_iter().collect();
        let code = |result: S3Result<()>| result.map_err(|error| error.code().as_str().to_owned());
        assert_eq!(code(refuse_unsupported(&headers, &uri("/b/k"))), Err("NotImplemented".to_owned()));
        assert_eq!(
            code(refuse_unsupported(&HeaderMap::new(), &uri("/b/k?renameObject"))),
            Err("NotImplemented".to_owned())
        );
        assert_eq!(code(refuse_unsupported(&HeaderMap::new(), &uri("/b/k?x-id=PutObject"))), Ok(()));
    }

    #[test]
    fn a_document_with_a_wrong_checksum_is_refused() {
        let read = |md5: &'static str| {
            let name = HeaderName::from_static("content-md5");
            let headers: HeaderMap = [(name, HeaderValue::from_static(md5))].into_iter().collect();
            let declared = Declared::from_headers(&headers).expect("well formed");
            let trace = Arc::new(Trace::new("ID".to_owned(), None));
            let mut body = verified(s3s::Body::from("hello".to_owned()), declared, &trace);
            let result = futures::executor::block_on(body.store_all_limited(100));
            (result.is_ok(), trace.refusal().map(|error| error.code().as_str().to_owned()))
        };
        assert_eq!(read("XUFAKrxLKna5cZ2REBfFkg=="), (true, None));
        assert_eq!(read("rL0Y20zC+Fzt72VPzMSk2A=="), (false, Some("BadDigest".to_owned())));
        assert!(is_document(&Method::POST, &uri("/b?delete")) && is_document(&Method::PUT, &uri("/b/k?tagging")));
        assert!(!is_document(&Method::POST, &uri("/b/k?uploadId=1")) && !is_document(&Method::PUT, &uri("/b/k")));
    }

    #[test]
    fn an_error_document_gets_the_request_id_once() {
        let trace = Trace::new("ID".to_owned(), None);
        let mut response = refusal(s3_error!(AccessDenied, "no"));
        amend(&mut response, &trace, false);
        amend(&mut response, &trace, false);
        let document = String::from_utf8(response.body().bytes().expect("in memory").to_vec()).expect("text");
        assert_eq!(document.matches("<RequestId>ID</RequestId>").count(), 1, "{document}");
    }

    #[test]
    fn a_form_that_breaks_its_policy_is_denied() {
        let trace = Trace::new("ID".to_owned(), None);
        let mut response = refusal(s3_error!(InvalidPolicyDocument, "Policy condition 'eq' failed"));
        amend(&mut response, &trace, true);
        assert_eq!(response.status(), StatusCode::FORBIDDEN);
        let mut response = refusal(s3_error!(InvalidPolicyDocument, "failed to parse POST policy"));
        amend(&mut response, &trace, true);
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    }
}
