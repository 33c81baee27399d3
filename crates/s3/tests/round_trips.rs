//! Requests through the whole crate onto real directories. Nobody signs here: the bucket's policy lets everybody in.
//! Signatures, clients and documents are tested from outside, in tests/clients and tests/s3-tests.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test stands outside the store")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use claystone_chunk::{ChunkStore, DiskId, NodeId};
use claystone_disk::{ClusterId, DirectoryStore, Expected, Identity, Options, format};
use claystone_env::{Clock, Env, Moment, WallTime, Worker};
use claystone_host::{HostDirectory, ThreadWorker};
use claystone_meta::{DiskRecord, DiskRecords, DiskState, SqliteMeta};
use claystone_object::Objects;
use claystone_s3::{KeyRing, Observer, S3, Settings};
use claystone_stripe::{Member, Stores, Stripes};
use futures::StreamExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;

type Seen = Arc<Mutex<Vec<(&'static str, u16, u64, u64)>>>;

struct Notes(Seen);

impl Observer for Notes {
    fn request(&self, operation: &'static str, status: u16, _: Duration, bytes_in: u64, bytes_out: u64) {
        self.0.lock().expect("no test panics with it").push((operation, status, bytes_in, bytes_out));
    }
}

/// The host's clock, but every sleep is over at once.
struct Hasty(Arc<dyn Clock>);

impl Clock for Hasty {
    fn now(&self) -> Moment {
        self.0.now()
    }
    fn wall(&self) -> WallTime {
        self.0.wall()
    }
    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }
}

struct Server {
    s3: S3,
    objects: Objects,
    seen: Seen,
    _root: tempfile::TempDir,
}

impl Server {
    async fn start() -> Server {
        let root = tempfile::tempdir().expect("a place for temporary files");
        let env = claystone_host::env().expect("threads and random bytes");
        let worker = |name: &str| -> Arc<dyn Worker> { Arc::new(ThreadWorker::start(name, 1).expect("a thread")) };
        let meta = Arc::new(SqliteMeta::in_memory(worker("meta")).await.expect("an empty database"));
        let cluster = ClusterId::new(&*env.random);
        let stores = Stores::default();
        for number in 0..3 {
            let path = root.path().join(format!("d{number}"));
            let directory = Arc::new(HostDirectory::make(&path).expect("a directory"));
            let (disk, node, created) = (DiskId::new(&*env.random), NodeId("n".to_owned()), env.clock.wall());
            let identity = Identity { disk, cluster, node: node.clone(), created };
            format(&*worker("format"), directory.clone(), identity).await.expect("an empty directory");
            let expected = Expected { disk, cluster };
            let opened = DirectoryStore::open(&env, directory, worker("disk"), expected, Options::default()).await;
            let store = opened.expect("a disk just made");
            let record = DiskRecord {
                id: disk,
                node,
                path: path.display().to_string(),
                state: DiskState::Active,
                added: created,
            };
            meta.put_disk(record.clone()).await.expect("a database that can be written");
            let space = store.space().await.expect("a readable disk");
            stores.put(Member { record, store: Ok(Arc::new(store)), space });
        }
        let (stripes, _) = Stripes::new(env.clone(), stores, claystone_stripe::Settings::default());
        let code = "rs:2+1".parse().expect("a code");
        let objects = Objects::new(env.clone(), meta, stripes, claystone_object::Settings::new(code));
        objects.create_bucket("bkt", "owner", None).await.expect("a new bucket");
        let policy = r#"{"Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":["arn:aws:s3:::bkt","arn:aws:s3:::bkt/*"]}]}"#;
        objects.set_document("bkt", "policy", Some(policy.into())).await.expect("a bucket");
        let seen = Seen::default();
        let observer = Arc::new(Notes(seen.clone()));
        // Who waits here waits for clients.
        let env = Env { clock: Arc::new(Hasty(env.clock.clone())), ..env };
        let s3 = S3::new(env, objects.clone(), Settings::default(), Arc::new(KeyRing::new()), observer);
        Server { s3, objects, seen, _root: root }
    }

    async fn send(&self, method: Method, uri: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Response<Vec<u8>> {
        let mut request = Request::builder().method(method).uri(uri).header("host", "localhost");
        request = request.header("content-length", body.len());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(s3s::Body::from(body)).expect("a request");
        let (parts, body) = self.s3.service(None).answer(request).await.into_parts();
        let body = body.collect().await.expect("a whole body").to_bytes().to_vec();
        Response::from_parts(parts, body)
    }

    async fn get(&self, uri: &str) -> Response<Vec<u8>> {
        self.send(Method::GET, uri, &[], vec![]).await
    }

    async fn put(&self, uri: &str, headers: &[(&str, &str)], body: &[u8]) -> Response<Vec<u8>> {
        self.send(Method::PUT, uri, headers, body.to_vec()).await
    }
}

fn text(response: &Response<Vec<u8>>) -> String {
    String::from_utf8_lossy(response.body()).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_put_comes_back_whole_and_in_ranges() {
    let server = Server::start().await;
    let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    let put = server.put("/bkt/a%20b", &[("x-amz-meta-colour", "red"), ("content-type", "text/plain")], &bytes).await;
    assert_eq!(put.status(), StatusCode::OK, "{}", text(&put));
    let got = server.get("/bkt/a%20b").await;
    assert_eq!(got.headers()["etag"], put.headers()["etag"]);
    assert_eq!(got.headers()["x-amz-meta-colour"], "red");
    assert_eq!(got.headers()["x-claystone-code"], "rs:2+1");
    assert!(*got.body() == bytes, "other bytes came back");
    let range = server.send(Method::GET, "/bkt/a%20b", &[("range", "bytes=1000000-1000099")], vec![]).await;
    assert_eq!(range.status(), StatusCode::PARTIAL_CONTENT);
    assert_eq!(*range.body(), bytes[1_000_000..1_000_100]);
    let several = server.send(Method::GET, "/bkt/a%20b", &[("range", "bytes=0-1,5-6")], vec![]).await;
    assert_eq!((several.status(), several.body().len()), (StatusCode::OK, bytes.len()));
    let beyond = server.send(Method::GET, "/bkt/a%20b", &[("range", "bytes=3000000-")], vec![]).await;
    assert_eq!(beyond.status(), StatusCode::RANGE_NOT_SATISFIABLE);
    let list = server.get("/bkt?list-type=2&encoding-type=url").await;
    assert!(text(&list).contains("<Key>a%20b</Key>"), "{}", text(&list));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_write_changes_nothing() {
    let server = Server::start().await;
    assert_eq!(server.put("/bkt/k", &[], b"first").await.status(), StatusCode::OK);
    type Refused = (&'static [(&'static str, &'static str)], u16, &'static str);
    let refused: &[Refused] = &[
        (&[("if-none-match", "*")], 412, "PreconditionFailed"),
        (&[("if-match", "\"00\"")], 412, "PreconditionFailed"),
        (&[("content-md5", "rL0Y20zC+Fzt72VPzMSk2A==")], 400, "BadDigest"),
        (&[("content-md5", "")], 400, "InvalidDigest"),
        (&[("x-amz-checksum-crc32c", "AAAAAA==")], 400, "BadDigest"),
        (&[("x-amz-trailer", "x-amz-checksum-crc32")], 400, "InvalidRequest"),
        (&[("x-amz-decoded-content-length", "7")], 400, "IncompleteBody"),
        (&[("x-amz-server-side-encryption", "AES256")], 501, "NotImplemented"),
        (&[("x-amz-storage-class", "GLACIER")], 400, "InvalidStorageClass"),
        (&[("x-amz-tagging", "a=1&a=2")], 400, "InvalidTag"),
    ];
    for (headers, status, code) in refused {
        let answer = server.put("/bkt/k", headers, b"second").await;
        assert_eq!(answer.status().as_u16(), *status, "{headers:?}: {}", text(&answer));
        assert!(text(&answer).contains(&format!("<Code>{code}</Code>")), "{headers:?}: {}", text(&answer));
        assert_eq!(server.get("/bkt/k").await.body(), b"first", "{headers:?}");
    }
    let unknown = server.put("/bkt/k?renameObject", &[], b"").await;
    assert_eq!(unknown.status(), StatusCode::NOT_IMPLEMENTED);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_have_a_code_a_message_and_the_id_of_the_request() {
    let server = Server::start().await;
    for (uri, status, code) in
        [("/bkt/absent", 404, "NoSuchKey"), ("/absent/k", 404, "NoSuchBucket"), ("/b", 400, "InvalidBucketName")]
    {
        let answer = server.get(uri).await;
        let id = answer.headers()["x-amz-request-id"].to_str().expect("text").to_owned();
        let document = text(&answer);
        assert_eq!(answer.status().as_u16(), status, "{document}");
        assert!(document.contains(&format!("<Code>{code}</Code><Message>")), "{document}");
        assert!(document.contains(&format!("<RequestId>{id}</RequestId>")), "{document}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_policy_nobody_gets_in() {
    let server = Server::start().await;
    server.put("/bkt/k", &[], b"secret").await;
    server.objects.set_document("bkt", "policy", None).await.expect("a bucket");
    for (method, uri) in [
        (Method::GET, "/bkt/k"),
        (Method::GET, "/bkt/absent"),
        (Method::HEAD, "/bkt/k"),
        (Method::PUT, "/bkt/k"),
        (Method::DELETE, "/bkt/k"),
        (Method::GET, "/bkt"),
        (Method::GET, "/bkt?acl"),
        (Method::GET, "/bkt?policy"),
        (Method::GET, "/bkt/k?tagging"),
        (Method::GET, "/bkt/k?attributes"),
        (Method::POST, "/bkt/k?uploads"),
        (Method::GET, "/bkt?uploads"),
        (Method::GET, "/bkt?versions"),
        (Method::DELETE, "/bkt"),
        (Method::GET, "/"),
        (Method::PUT, "/new-bucket"),
    ] {
        let headers = [("x-amz-object-attributes", "ETag")];
        let answer = server.send(method.clone(), uri, &headers, vec![]).await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{method} {uri}: {}", text(&answer));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preflight_is_answered_by_the_bucket_s_rules() {
    let server = Server::start().await;
    let rules = "<CORSConfiguration><CORSRule><AllowedOrigin>http://*.example.com</AllowedOrigin>\
        <AllowedMethod>GET</AllowedMethod></CORSRule></CORSConfiguration>";
    let put = server.put("/bkt?cors", &[], rules.as_bytes()).await;
    assert_eq!(put.status(), StatusCode::OK, "{}", text(&put));
    let ask = |origin: &'static str| [("origin", origin), ("access-control-request-method", "GET")];
    let allowed = server.send(Method::OPTIONS, "/bkt/k", &ask("http://a.example.com"), vec![]).await;
    assert_eq!(allowed.status(), StatusCode::OK);
    assert_eq!(allowed.headers()["access-control-allow-origin"], "http://a.example.com");
    let denied = server.send(Method::OPTIONS, "/bkt/k", &ask("http://other.com"), vec![]).await;
    assert_eq!(denied.status(), StatusCode::FORBIDDEN);
    let absent = server.send(Method::GET, "/bkt/absent", &[("origin", "http://a.example.com")], vec![]).await;
    assert_eq!(absent.headers()["access-control-allow-origin"], "http://a.example.com", "errors have the headers too");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_observer_is_told_of_each_request_once() {
    let server = Server::start().await;
    server.put("/bkt/k", &[], b"12345").await;
    server.get("/bkt/k").await;
    server.get("/b").await;
    let seen = server.seen.lock().expect("no test panics with it").clone();
    assert_eq!(seen[..2], [("PutObject", 200, 5, 0), ("GetObject", 200, 0, 5)]);
    assert_eq!((seen.len(), seen[2].0, seen[2].1), (3, "Invalid", 400));
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_of_amazons_that_nobody_signed_are_refused() {
    let server = Server::start().await;
    let signed =
        |names| format!("AWS4-HMAC-SHA256 Credential=k/20300101/r/s3/aws4_request, SignedHeaders={names}, Signature=0");
    let by_header = [("authorization", &*signed("host;x-amz-date")), ("x-amz-date", "20300101T000000Z")];
    let by_header = [&by_header[..], &[("x-amz-acl", "public-read")]].concat();
    let presigned = "/bkt/k?X-Amz-SignedHeaders=host&X-Amz-Signature=0&X-Amz-Expires=60";
    for (uri, headers) in [("/bkt/k", &by_header[..]), (presigned, &[("x-amz-meta-colour", "red")])] {
        let answer = server.put(uri, headers, b"x").await;
        let document = text(&answer);
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{uri}: {document}");
        let words = "There were headers present in the request which were not signed: x-amz-";
        assert!(document.contains("<Code>AccessDenied</Code>") && document.contains(words), "{uri}: {document}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_without_a_name_is_none() {
    let server = Server::start().await;
    let versions = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    assert_eq!(server.put("/bkt?versioning", &[], versions.as_bytes()).await.status(), StatusCode::OK);
    server.put("/bkt/k", &[], b"first").await;
    server.put("/bkt/k", &[], b"second").await;
    let document = "<Delete><Object><Key>k</Key><VersionId></VersionId></Object></Delete>";
    for (method, uri, headers, body) in [
        (Method::DELETE, "/bkt/k?versionId=", &[][..], ""),
        (Method::DELETE, "/bkt/k?versionId", &[], ""),
        (Method::GET, "/bkt/k?versionId=", &[], ""),
        (Method::GET, "/bkt/k?tagging&versionId=", &[], ""),
        (Method::PUT, "/bkt/l", &[("x-amz-copy-source", "/bkt/k?versionId=")], ""),
        (Method::POST, "/bkt?delete", &[], document),
    ] {
        let answer = server.send(method.clone(), uri, headers, body.into()).await;
        assert!(text(&answer).contains("<Code>InvalidArgument</Code>"), "{method} {uri}: {}", text(&answer));
        assert_eq!(answer.status().is_success(), body == document, "{method} {uri}");
    }
    let list = text(&server.get("/bkt?versions").await);
    assert_eq!((list.matches("<Version>").count(), list.matches("<DeleteMarker>").count()), (2, 0), "{list}");
}

/// What lies between two texts.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let rest = text.split_once(from).unwrap_or_else(|| panic!("{from} in {text}")).1;
    rest.split_once(to).unwrap_or_else(|| panic!("{to} in {text}")).0
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_parts_are_parts() {
    let server = Server::start().await;
    server.put("/bkt/empty", &[], b"").await;
    let long: Vec<u8> = (0..5u32 << 20).map(|i| (i % 251) as u8).collect();
    for parts in [&[&long[..], b""][..], &[b""]] {
        let whole = parts.concat();
        for (algorithm, kind) in [("CRC64NVME", "FULL_OBJECT"), ("SHA256", "COMPOSITE")] {
            let headers = [("x-amz-checksum-algorithm", algorithm), ("x-amz-checksum-type", kind)];
            let begun = text(&server.send(Method::POST, "/bkt/k?uploads", &headers, vec![]).await);
            let upload = between(&begun, "<UploadId>", "</UploadId>").to_owned();
            let mut document = String::from("<CompleteMultipartUpload>");
            for (at, part) in parts.iter().enumerate() {
                let uri = format!("/bkt/k?partNumber={}&uploadId={upload}", at + 1);
                // An empty part comes from a client, and from a copy.
                let mut put = server.put(&uri, &[], part).await;
                if part.is_empty() {
                    assert_eq!(put.status(), StatusCode::OK, "{}", text(&put));
                    let copy = server.put(&uri, &[("x-amz-copy-source", "/bkt/empty")], b"").await;
                    let etag = between(&text(&copy), "<ETag>", "</ETag>").replace("&quot;", "\"");
                    assert_eq!(put.headers()["etag"], etag, "an empty copy is what an empty part is");
                    put.headers_mut().insert("etag", etag.parse().expect("visible"));
                }
                let etag = put.headers()["etag"].to_str().expect("text");
                document += &format!("<Part><PartNumber>{}</PartNumber><ETag>{etag}</ETag></Part>", at + 1);
            }
            document += "</CompleteMultipartUpload>";
            let uri = format!("/bkt/k?uploadId={upload}");
            let listed = text(&server.get(&uri).await);
            assert!(listed.contains("<Size>0</Size>"), "{listed}");
            let done = server.send(Method::POST, &uri, &[], document.into()).await;
            assert!(text(&done).contains("<ETag>"), "{}", text(&done));
            assert!(*server.get("/bkt/k").await.body() == whole, "other bytes came back");
            let asked = [("x-amz-object-attributes", "ObjectParts,ObjectSize,Checksum")];
            let shown = text(&server.send(Method::GET, "/bkt/k?attributes", &asked, vec![]).await);
            assert!(shown.contains("<Size>0</Size>"), "{shown}");
            assert!(shown.contains(&format!("<ObjectSize>{}</ObjectSize>", whole.len())), "{shown}");
            for method in [Method::GET, Method::HEAD] {
                for (at, part) in parts.iter().enumerate() {
                    let uri = format!("/bkt/k?partNumber={}", at + 1);
                    let got = server.send(method.clone(), &uri, &[], vec![]).await;
                    assert!(got.status().is_success(), "{method} {uri}: {}", got.status());
                    assert_eq!(got.headers()["content-length"], part.len().to_string(), "{method} {uri}");
                    assert_eq!(got.headers().contains_key("content-range"), !part.is_empty(), "{method} {uri}");
                    assert_eq!(got.headers()["x-amz-mp-parts-count"], parts.len().to_string(), "{method} {uri}");
                    assert!(method == Method::HEAD || *got.body() == **part, "other bytes came back");
                }
            }
            if let Some(last) = whole.len().checked_sub(1) {
                let range = format!("bytes={last}-{}", last + 9);
                let tail = server.send(Method::GET, "/bkt/k", &[("range", &*range)], vec![]).await;
                assert_eq!(*tail.body(), whole[last..]);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stops_sending_is_given_up_whatever_it_sends() {
    let server = Server::start().await;
    let begun = text(&server.send(Method::POST, "/bkt/k?uploads", &[], vec![]).await);
    let part = format!("/bkt/k?partNumber=1&uploadId={}", between(&begun, "<UploadId>", "</UploadId>"));
    let form = ("content-type", "multipart/form-data; boundary=B");
    let field = |name: &str| format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
    for (method, uri, headers, beginning) in [
        (Method::PUT, "/bkt/k", &[][..], "abc".to_owned()),
        (Method::PUT, &*part, &[], "abc".to_owned()),
        (Method::PUT, "/bkt/k?tagging", &[], "<Tagging>".to_owned()),
        (Method::PUT, "/bkt?policy", &[], "{".to_owned()),
        (Method::POST, "/bkt?delete", &[], "<Delete>".to_owned()),
        (Method::POST, "/bkt", &[form], field("key")),
        (Method::POST, "/bkt", &[form], format!("{}k\r\n{}abc", field("key"), field("file"))),
    ] {
        let mut request = Request::builder().method(method.clone()).uri(uri).header("host", "localhost");
        request = request.header("content-length", "1000");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let beginning = futures::stream::iter([Ok::<_, s3s::StdError>(http_body::Frame::data(beginning.into()))]);
        let body = http_body_util::StreamBody::new(beginning.chain(futures::stream::pending()));
        let request = request.body(s3s::Body::http_body_unsync(body)).expect("a request");
        let answering = server.s3.service(None);
        let answer = tokio::time::timeout(Duration::from_secs(30), answering.answer(request));
        let answer = answer.await.unwrap_or_else(|_| panic!("{method} {uri} hangs"));
        let (status, document) = (answer.status(), answer.into_body().collect().await.expect("a body").to_bytes());
        let document = String::from_utf8_lossy(&document).into_owned();
        assert_eq!(status, StatusCode::BAD_REQUEST, "{method} {uri}: {document}");
        assert!(document.contains("<Code>RequestTimeout</Code>"), "{method} {uri}: {document}");
    }
    assert_eq!(server.get("/bkt/k").await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_happens_on_the_conditions_of_its_source() {
    let server = Server::start().await;
    let put = server.put("/bkt/k", &[], b"bytes").await;
    let etag = put.headers()["etag"].to_str().expect("text");
    let begun = text(&server.send(Method::POST, "/bkt/copy?uploads", &[], vec![]).await);
    let part = format!("/bkt/copy?partNumber=1&uploadId={}", between(&begun, "<UploadId>", "</UploadId>"));
    let (past, future) = ("Sat, 29 Oct 1994 19:43:31 GMT", "Fri, 29 Oct 2094 19:43:31 GMT");
    for (conditions, status) in [
        (&[("if-match", etag)][..], 200),
        (&[("if-match", "\"00\"")], 412),
        (&[("if-none-match", etag)], 412),
        (&[("if-none-match", "\"00\"")], 200),
        (&[("if-modified-since", past)], 200),
        (&[("if-modified-since", future)], 412),
        (&[("if-unmodified-since", past)], 412),
        (&[("if-unmodified-since", future)], 200),
        (&[("if-match", etag), ("if-unmodified-since", past)], 200),
        (&[("if-match", "\"00\""), ("if-unmodified-since", future)], 412),
        (&[("if-none-match", etag), ("if-modified-since", past)], 412),
        (&[("if-none-match", "\"00\""), ("if-modified-since", future)], 200),
    ] {
        let names: Vec<String> = conditions.iter().map(|(name, _)| format!("x-amz-copy-source-{name}")).collect();
        let mut headers = vec![("x-amz-copy-source", "/bkt/k")];
        headers.extend(names.iter().zip(conditions).map(|(name, (_, value))| (name.as_str(), *value)));
        for uri in ["/bkt/copy", &*part] {
            let answer = server.put(uri, &headers, b"").await;
            assert_eq!(answer.status().as_u16(), status, "{uri} {conditions:?}: {}", text(&answer));
            assert_eq!(text(&answer).contains("<Code>PreconditionFailed</Code>"), status == 412, "{uri}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_set_at_once_is_all_set_and_on_what_was_looked_at() {
    let server = Server::start().await;
    let tags = "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>";
    for _ in 0..30 {
        server.put("/bkt/k", &[("content-type", "text/plain")], b"old").await;
        let list = [("x-amz-acl", "public-read")];
        let (tagged, listed) =
            futures::join!(server.put("/bkt/k?tagging", &[], tags.as_bytes()), server.put("/bkt/k?acl", &list, b""));
        assert_eq!((tagged.status(), listed.status()), (StatusCode::OK, StatusCode::OK));
        assert_eq!(server.get("/bkt/k").await.headers()["x-amz-tagging-count"], "1");
        assert!(text(&server.get("/bkt/k?acl").await).contains("AllUsers"));

        let (written, tagged) = futures::join!(
            server.put("/bkt/k", &[("content-type", "text/html")], b"new"),
            server.put("/bkt/k?tagging", &[], tags.as_bytes())
        );
        assert_eq!((written.status(), tagged.status()), (StatusCode::OK, StatusCode::OK));
        let got = server.get("/bkt/k").await;
        assert_eq!(
            (&got.headers()["content-type"], &got.body()[..]),
            (&"text/html".parse().expect("visible"), &b"new"[..])
        );
    }
}
