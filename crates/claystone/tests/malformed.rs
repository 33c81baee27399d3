//! Requests that no good client sends, and disks that are not what they should be.
//!
//! Invariants that are tested:
//! 1. Each gets an error that names what is wrong, and the server goes on.
//! 2. Nothing of a refused request is stored.
//! 3. A store starts with the disks that are right, and says of each other what is wrong with it and what to do.

mod running;

use std::fs;
use std::io::{Seek, SeekFrom, Write};

use running::client::{Answer, Client};
use running::store::{content, disk, files, nothing_is_orphaned, system};
use running::{Scratch, Up};

/// A store with the bucket `box` that holds the object `whole`.
fn begin(scratch: &Scratch) -> (Up, Client) {
    fs::create_dir(scratch.path("claystone-data")).expect("made");
    fs::write(scratch.path("claystone-data/claystone.toml"), "reclaim_seconds = 0\n").expect("written");
    let up = Up::start(scratch, &[]);
    let client = up.client(scratch);
    assert!(client.put("/box", Vec::new()).expect("an answer").ok());
    assert!(client.put("/box/whole", whole()).expect("an answer").ok());
    (up, client)
}

fn whole() -> Vec<u8> {
    content(1, 300_000)
}

/// That the server answers, and that the bucket holds what it held.
fn check(client: &Client, context: &str) {
    let list = client.get("/box").unwrap_or_else(|error| panic!("after {context}: {error}"));
    assert_eq!(list.element("KeyCount") + &list.element("Key"), "whole", "after {context}");
    assert_eq!(client.get("/box/whole").expect("an answer").body, whole(), "after {context}");
}

/// Sends each request, and fails with all answers that are not the wanted status and code.
fn expect(client: &Client, requests: Vec<(&str, (u16, &str), Vec<u8>)>) {
    let mut wrong = Vec::new();
    for (context, wanted, bytes) in requests {
        let answer = client.exchange(&bytes).unwrap_or_else(|error| panic!("{context}: {error}"));
        let (status, code) = answer.error();
        let told = code.is_empty() || !answer.element("Message").is_empty();
        if (status, &*code) != wanted || !told {
            wrong.push(format!("{context}: {status} {}, wanted {wanted:?}", String::from_utf8_lossy(&answer.body)));
        }
        check(client, context);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_no_request_is_refused() {
    let scratch = Scratch::new();
    let (up, client) = begin(&scratch);
    let host = client.address;
    let many: String = (0..300).map(|number| format!("x-amz-meta-{number}: x\r\n")).collect();
    let long = "x".repeat(1 << 20);
    // The HTTP level says these, before there is a request that S3 could answer.
    let requests = [
        ("noise", 400, "\x16\x03\x01\x02\x00\x01\x00\x01\u{fc}\x03\x03noise\r\n\r\n".to_owned()),
        ("a line without an end", 431, "GET /".to_owned() + &long),
        ("too many headers", 431, format!("GET /box HTTP/1.1\r\nhost: {host}\r\n{many}\r\n")),
        (
            "a header that is too long",
            431,
            format!("GET /box HTTP/1.1\r\nhost: {host}\r\nx-amz-meta-a: {long}\r\n\r\n"),
        ),
        (
            "a length that is no number",
            400,
            format!("PUT /box/k HTTP/1.1\r\nhost: {host}\r\ncontent-length: -5\r\n\r\n"),
        ),
        (
            "two lengths",
            400,
            format!("PUT /box/k HTTP/1.1\r\nhost: {host}\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n123456"),
        ),
        (
            "a length beyond 64 bits",
            400,
            format!("PUT /box/k HTTP/1.1\r\nhost: {host}\r\ncontent-length: 99999999999999999999999\r\n\r\n"),
        ),
    ];
    expect(&client, requests.map(|(context, status, text)| (context, (status, ""), text.into_bytes())).into());
    assert!(up.stop().success());
}

#[test]
fn who_signs_wrongly_is_refused() {
    let scratch = Scratch::new();
    let (up, client) = begin(&scratch);
    let put = || client.request("PUT", "/box/k").body("bytes");
    let get = || client.request("GET", "/box/whole");
    let stranger = Client { access_key: "CSNOBODY".to_owned(), ..client.clone() };
    let liar = Client { secret_key: "guessed".to_owned(), ..client.clone() };
    let day = 24 * 3600;
    let unsigned =
        format!("PUT /box/k HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: 1\r\n\r\nx", client.address);
    let mut changed = put().signed();
    let at = changed.windows(8).position(|eight| eight == b"PUT /box").expect("it begins so");
    changed[at + 9] = b'j';
    let nonsense = |value: &str| {
        let head = format!("GET /box/whole HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", client.address);
        let head = format!("{head}authorization: {value}\r\n\r\n");
        head.into_bytes()
    };
    let requests = vec![
        ("no signature", (403, "AccessDenied"), unsigned.into_bytes()),
        ("an unknown key", (403, "InvalidAccessKeyId"), stranger.request("PUT", "/box/k").body("x").signed()),
        ("a wrong secret", (403, "SignatureDoesNotMatch"), liar.request("PUT", "/box/k").body("x").signed()),
        ("another path than was signed", (403, "SignatureDoesNotMatch"), changed),
        ("a clock that is slow", (403, "RequestTimeTooSkewed"), put().at(-3600).signed()),
        ("a clock that is fast", (403, "RequestTimeTooSkewed"), put().at(3600).signed()),
        ("an expired address", (403, "AccessDenied"), get().at(-3600).presigned(60)),
        ("an address that is valid too long", (403, "AccessDenied"), get().presigned(8 * day)),
        ("an unknown scheme", (400, "InvalidRequest"), nonsense("Basic dXNlcjpwYXNz")),
        ("half a signature", (400, "InvalidRequest"), nonsense("AWS4-HMAC-SHA256 Credential=x")),
    ];
    expect(&client, requests);
    assert!(client.exchange(&get().presigned(60)).expect("an answer").ok(), "the good one is taken");
    assert!(up.stop().success());
}

#[test]
fn bodies_that_are_not_what_was_declared_change_nothing() {
    let scratch = Scratch::new();
    let (up, client) = begin(&scratch);
    let put = |path: &str| client.request("PUT", path);
    let sha = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let chunked = |declared: &str| {
        let request =
            put("/box/k").header("x-amz-decoded-content-length", declared).header("content-encoding", "aws-chunked");
        let request =
            request.payload("STREAMING-UNSIGNED-PAYLOAD-TRAILER").header("x-amz-trailer", "x-amz-checksum-crc32");
        // CRC-32 of "bytes" is not 0.
        request.body("5\r\nbytes\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n").signed()
    };
    let requests = vec![
        ("no length", (411, "MissingContentLength"), put("/box/k").length(None).signed()),
        (
            "a length that no object has",
            (400, "EntityTooLarge"),
            put("/box/k").length(Some("9000000000000000")).signed(),
        ),
        (
            "another MD5",
            (400, "BadDigest"),
            put("/box/k").header("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==").body("x").signed(),
        ),
        ("no MD5 at all", (400, "InvalidDigest"), put("/box/k").header("content-md5", "never").body("x").signed()),
        ("another SHA-256", (400, "XAmzContentSHA256Mismatch"), put("/box/k").payload(sha).body("x").signed()),
        (
            "another CRC",
            (400, "BadDigest"),
            put("/box/k").header("x-amz-checksum-crc32", "AAAAAA==").body("bytes").signed(),
        ),
        ("another CRC behind the body", (400, "BadDigest"), chunked("5")),
        ("fewer decoded bytes than declared", (400, "IncompleteBody"), chunked("9")),
        ("more decoded bytes than declared", (400, "IncompleteBody"), chunked("3")),
        (
            "a key that is too long",
            (400, "KeyTooLongError"),
            put(&format!("/box/{}", "k".repeat(1025))).body("x").signed(),
        ),
        ("a bucket name that is none", (400, "InvalidBucketName"), put("/A_B").signed()),
        ("a bucket that is not there", (404, "NoSuchBucket"), put("/nowhere/k").body("x").signed()),
    ];
    expect(&client, requests);
    // The connection ends within the body, early and late.
    let bytes = put("/box/k").body(content(2, 3_000_000)).signed();
    for sent in [bytes.len() - 3_000_000, bytes.len() - 2_900_000, bytes.len() / 2, bytes.len() - 1] {
        client.hang_up_after(&bytes[..sent]);
        check(&client, "a body that was cut short");
    }
    // What follows the declared length is not the object's, and no request either.
    let answer = client.exchange(&put("/box/k").body("12345TRAILING").length(Some("5")).signed()).expect("an answer");
    assert!(answer.ok(), "{answer:?}");
    assert_eq!(client.get("/box/k").expect("an answer").body, b"12345");
    assert!(client.delete("/box/k").expect("an answer").ok());
    check(&client, "bytes behind the body");
    assert!(up.stop().success());
    let up = Up::start(&scratch, &[]);
    nothing_is_orphaned(&scratch);
    let chunks: u64 = (1..=6).map(|disk| files(&scratch.path(&format!("claystone-data/disk{disk}")))).sum();
    assert_eq!(chunks, 6, "the chunks of one object and nothing else");
    assert!(up.stop().success());
}

#[test]
fn ranges_outside_the_object_are_refused() {
    let scratch = Scratch::new();
    let (up, client) = begin(&scratch);
    let get = |range: &str| client.request("GET", "/box/whole").header("range", range);
    let outside = ["bytes=300000-", "bytes=300000-300001", "bytes=99999999999-", "bytes=-0"];
    expect(&client, outside.map(|range| (range, (416, "InvalidRange"), get(range).signed())).into());
    let answered = |range: &str| -> Answer { get(range).send().expect("an answer") };
    for (range, first, end) in [
        ("bytes=0-0", 0, 1),
        ("bytes=299999-", 299_999, 300_000),
        ("bytes=-5", 299_995, 300_000),
        ("bytes=7-9999999", 7, 300_000),
    ] {
        let answer = answered(range);
        assert_eq!((answer.status, &answer.body[..]), (206, &whole()[first..end]), "{range}");
        assert_eq!(answer.header("content-range"), format!("bytes {first}-{}/300000", end - 1));
    }
    // What is no range may be ignored (RFC 9110, 14.2), or refused by name.
    for range in ["bytes=5-2", "bytes=--5", "bytes=a-b", "lines=1-2", "bytes="] {
        let answer = answered(range);
        let ignored = answer.status == 200 && answer.body == whole();
        let refused =
            answer.error() == (400, "InvalidArgument".to_owned()) && answer.element("Message").contains("range");
        assert!(ignored || refused, "{range}: {answer:?}");
    }
    check(&client, "ranges");
    assert!(up.stop().success());
}

#[test]
fn uploads_that_do_not_fit_together_are_refused() {
    let scratch = Scratch::new();
    let (up, client) = begin(&scratch);
    let created = client.request("POST", "/box/k").query("uploads", "").send().expect("an answer");
    let id = created.element("UploadId");
    let request = |method: &str| client.request(method, "/box/k").query("uploadId", &id);
    let part = |number: &str| request("PUT").query("partNumber", number).body(content(3, 10_000));
    let complete = |parts: &[(&str, &str)]| {
        let parts = parts
            .iter()
            .map(|(number, tag)| format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>"));
        let parts: String = parts.collect();
        request("POST").body(format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>")).signed()
    };
    let one = part("1").send().expect("an answer").header("etag").to_owned();
    let two = part("2").send().expect("an answer").header("etag").to_owned();
    let stranger = client.request("PUT", "/box/k").query("uploadId", "nonsense").query("partNumber", "1").body("x");
    let requests = vec![
        ("part 0", (400, "InvalidArgument"), part("0").signed()),
        ("part 10001", (400, "InvalidArgument"), part("10001").signed()),
        ("part minus one", (400, "InvalidArgument"), part("-1").signed()),
        ("a part that is no number", (400, "InvalidArgument"), part("one").signed()),
        ("a part of no upload", (404, "NoSuchUpload"), stranger.signed()),
        ("the same part twice", (400, "InvalidPartOrder"), complete(&[("1", &one), ("1", &one)])),
        ("parts in disorder", (400, "InvalidPartOrder"), complete(&[("2", &two), ("1", &one)])),
        ("a part that is not there", (400, "InvalidPart"), complete(&[("1", &one), ("3", &two)])),
        ("another tag", (400, "InvalidPart"), complete(&[("1", "\"00000000000000000000000000000000\"")])),
        ("a short part before the last", (400, "EntityTooSmall"), complete(&[("1", &one), ("2", &two)])),
        ("no parts", (400, "MalformedXML"), complete(&[])),
        ("no document", (400, "MalformedXML"), request("POST").body("").signed()),
        ("half a document", (400, "MalformedXML"), request("POST").body("<CompleteMultipartUpload><Part>").signed()),
        ("another document", (400, "MalformedXML"), request("POST").body("<Delete/>").signed()),
        ("no XML", (400, "MalformedXML"), request("POST").body("{\"parts\": []}").signed()),
    ];
    expect(&client, requests);
    let deep = "<a>".repeat(100_000);
    let entities = "<!DOCTYPE d [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;\">]><Delete><Object><Key>&b;</Key></Object></Delete>";
    let delete = |body: &str| client.request("POST", "/box").query("delete", "").body(body).signed();
    let malformed = (400, "MalformedXML");
    let documents = vec![
        ("a deep document", malformed, delete(&deep)),
        ("entities", malformed, delete(entities)),
        ("no document", (400, "MissingRequestBodyError"), delete("")),
    ];
    expect(&client, documents);
    assert!(request("DELETE").send().expect("an answer").ok(), "the upload is still there");
    assert!(up.stop().success());
}

/// Stops the store, does something to its disks, starts it, and returns what is said of `disk2`.
fn after(scratch: &Scratch, harm: impl FnOnce(&dyn Fn(&str) -> std::path::PathBuf)) -> (Up, Client, serde_json::Value) {
    let (up, _) = begin(scratch);
    assert!(up.stop().success());
    harm(&|name| scratch.path("claystone-data").join(name));
    let up = Up::start(scratch, &[]);
    let client = up.client(scratch);
    check(&client, "the harm");
    // The others take writes.
    assert!(client.put("/box/more", content(5, 200_000)).expect("an answer").ok());
    assert_eq!(client.get("/box/more").expect("an answer").body, content(5, 200_000));
    let disk = disk(scratch, "claystone-data/disk2");
    (up, client, disk)
}

fn reason(disk: &serde_json::Value) -> &str {
    disk["reason"].as_str().unwrap_or_default()
}

#[test]
fn a_disk_of_another_store_is_left_alone() {
    let other = Scratch::new();
    assert!(Up::start(&other, &[]).stop().success());
    let scratch = Scratch::new();
    let (up, _, disk) = after(&scratch, |path| {
        fs::rename(path("disk2"), path("kept")).expect("moved");
        fs::rename(other.path("claystone-data/disk1"), path("disk2")).expect("moved");
    });
    assert_eq!(disk["present"], false);
    assert!(reason(&disk).contains("belongs to another cluster"), "{disk}");
    assert!(reason(&disk).contains("mount the right disk"), "{disk}");
    assert_eq!(files(&scratch.path("claystone-data/disk2")), 0, "nothing was written to it");
    assert!(up.stop().success());
}

#[test]
fn swapped_disks_are_used_where_they_are() {
    let scratch = Scratch::new();
    let (up, _, disk) = after(&scratch, |path| {
        fs::rename(path("disk2"), path("kept")).expect("moved");
        fs::rename(path("disk1"), path("disk2")).expect("moved");
        fs::rename(path("kept"), path("disk1")).expect("moved");
    });
    assert_eq!((&disk["present"], &disk["writable"]), (&true.into(), &true.into()), "{disk}");
    assert!(up.stop().success());
}

#[test]
fn a_disk_of_a_newer_format_is_left_alone() {
    for right_checksum in [false, true] {
        let scratch = Scratch::new();
        let (up, _, disk) = after(&scratch, |path| {
            let identity = path("disk2").join("claystone.disk");
            let mut bytes = fs::read(&identity).expect("read");
            bytes[8] = 2;
            if right_checksum {
                bytes[12..16].fill(0);
                let crc = crc32c(&bytes).to_le_bytes();
                bytes[12..16].copy_from_slice(&crc);
            }
            fs::write(&identity, bytes).expect("written");
        });
        assert!(reason(&disk).contains("has disk format 2"), "{disk}");
        assert!(reason(&disk).contains("needs a newer claystone"), "{disk}");
        assert!(up.stop().success());
    }
}

#[test]
fn a_disk_whose_identity_is_damaged_is_left_alone() {
    for bytes in [9, 511] {
        let scratch = Scratch::new();
        let (up, _, disk) = after(&scratch, |path| {
            let file = fs::File::options().write(true).open(path("disk2").join("claystone.disk")).expect("opened");
            file.set_len(bytes).expect("cut");
        });
        assert!(reason(&disk).contains("is damaged"), "{disk}");
        assert!(reason(&disk).contains("claystone disk replace"), "{disk}");
        assert!(up.stop().success());
    }
    let scratch = Scratch::new();
    let (up, _, disk) = after(&scratch, |path| {
        let mut file = fs::File::options().write(true).open(path("disk2").join("claystone.disk")).expect("opened");
        file.seek(SeekFrom::Start(20)).expect("sought");
        file.write_all(b"flip").expect("written");
    });
    assert!(reason(&disk).contains("checksum does not match"), "{disk}");
    assert!(up.stop().success());
}

#[test]
fn a_directory_that_takes_no_writes_is_read() {
    let scratch = Scratch::new();
    // A user who may write everywhere needs a mount that says no; others are told no by the mode.
    let path = scratch.path("claystone-data/disk2").display().to_string();
    let mut mounted = false;
    let (up, _, disk) = after(&scratch, |_| {
        mounted = system("mount", &["--bind", &path, &path]) && system("mount", &["-o", "remount,bind,ro", &path]);
        assert!(mounted || system("chmod", &["-R", "a-w", &path]));
    });
    let undone = if mounted { system("umount", &["-l", &path]) } else { system("chmod", &["-R", "u+w", &path]) };
    assert!(undone);
    assert_eq!((&disk["present"], &disk["writable"]), (&true.into(), &false.into()), "{disk}");
    assert!(!reason(&disk).is_empty(), "{disk}");
    assert!(up.stop().success());
}

#[test]
fn with_too_few_disks_objects_are_refused_in_words() {
    let scratch = Scratch::new();
    let (up, _) = begin(&scratch);
    assert!(up.stop().success());
    for disk in 2..=6 {
        let path = scratch.path(&format!("claystone-data/disk{disk}"));
        fs::rename(&path, path.with_extension("away")).expect("moved");
    }
    let up = Up::start(&scratch, &[]);
    let client = up.client(&scratch);
    for answer in
        [client.get("/box/whole"), client.put("/box/more", vec![1; 100]), client.put("/box/more", vec![1; 100_000])]
    {
        let answer = answer.expect("an answer");
        assert_eq!(answer.error(), (503, "ServiceUnavailable".to_owned()), "{answer:?}");
        assert!(answer.element("Message").contains("need"), "{answer:?}");
    }
    let list = client.get("/box").expect("an answer");
    assert_eq!(list.element("Key"), "whole", "the records are there");
    assert!(up.stop().success());
    for disk in 2..=6 {
        let path = scratch.path(&format!("claystone-data/disk{disk}"));
        fs::rename(path.with_extension("away"), &path).expect("moved back");
    }
    let up = Up::start(&scratch, &[]);
    check(&up.client(&scratch), "the disks' return");
    assert!(up.stop().success());
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 })
    })
}
