//! A small S3 client that blocks, and that lets a test send what no good client would.
//!
//! Invariants:
//! 1. An answer that ends before its declared length is an error, never a short body.
//!
//! Each request has a connection of its own, so a broken one says nothing about the next.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use time::macros::format_description;

/// Who asks, and where.
#[derive(Clone)]
pub struct Client {
    /// Where S3 answers.
    pub address: SocketAddr,
    /// Access key.
    pub access_key: String,
    /// Secret key.
    pub secret_key: String,
}

/// A request before it is signed.
pub struct Request {
    client: Client,
    method: String,
    path: String,
    query: Vec<(String, String)>,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    at: OffsetDateTime,
    payload: String,
    length: Option<String>,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    head: String,
    /// Body.
    pub body: Vec<u8>,
}

impl Client {
    /// A request; `path` begins with `/` and holds nothing that would have to be encoded.
    pub fn request(&self, method: &str, path: &str) -> Request {
        Request {
            client: self.clone(),
            method: method.to_owned(),
            path: path.to_owned(),
            query: Vec::new(),
            headers: Vec::new(),
            body: Vec::new(),
            at: OffsetDateTime::now_utc(),
            payload: "UNSIGNED-PAYLOAD".to_owned(),
            length: Some(String::new()),
        }
    }

    /// Stores an object.
    pub fn put(&self, path: &str, body: Vec<u8>) -> io::Result<Answer> {
        self.request("PUT", path).body(body).send()
    }

    /// Reads an object.
    pub fn get(&self, path: &str) -> io::Result<Answer> {
        self.request("GET", path).send()
    }

    /// Deletes an object.
    pub fn delete(&self, path: &str) -> io::Result<Answer> {
        self.request("DELETE", path).send()
    }

    /// Sends these bytes as they are and reads what comes back until the server closes.
    pub fn exchange(&self, bytes: &[u8]) -> io::Result<Answer> {
        let mut stream = connect(self.address)?;
        // A server that refuses early closes its side: what it said is there all the same.
        let sent = stream.write_all(bytes);
        let answer = read_answer(&mut stream);
        match sent {
            Err(error) if answer.is_err() => Err(error),
            _ => answer,
        }
    }

    /// Sends these bytes and hangs up without waiting for an answer.
    pub fn hang_up_after(&self, bytes: &[u8]) {
        let mut stream = connect(self.address).expect("the server accepts");
        stream.write_all(bytes).expect("the server reads");
    }
}

impl Request {
    /// Adds a query parameter.
    pub fn query(mut self, name: &str, value: &str) -> Request {
        self.query.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a header, which is signed; its name is in lower case.
    pub fn header(mut self, name: &str, value: &str) -> Request {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Request {
        self.body = body.into();
        self
    }

    /// Signs for another time than now.
    pub fn at(mut self, seconds_from_now: i64) -> Request {
        self.at += time::Duration::seconds(seconds_from_now);
        self
    }

    /// What is declared as the body's SHA-256.
    pub fn payload(mut self, payload: &str) -> Request {
        self.payload = payload.to_owned();
        self
    }

    /// Declares this length, or none.
    pub fn length(mut self, length: Option<&str>) -> Request {
        self.length = length.map(str::to_owned);
        self
    }

    /// Signs and sends it.
    ///
    /// # Errors
    /// The connection broke before the whole answer had come.
    pub fn send(self) -> io::Result<Answer> {
        let client = self.client.clone();
        client.exchange(&self.signed())
    }

    /// The request's bytes, signed.
    pub fn signed(mut self) -> Vec<u8> {
        let stamp = stamp(self.at);
        self.headers.push(("host".to_owned(), self.client.address.to_string()));
        self.headers.push(("x-amz-content-sha256".to_owned(), self.payload.clone()));
        self.headers.push(("x-amz-date".to_owned(), stamp.clone()));
        self.headers.sort();
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        let signed = names.join(";");
        let signature = self.signature(&stamp, &signed, &self.payload);
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{},SignedHeaders={signed},Signature={signature}",
            self.client.access_key,
            scope(&stamp)
        );
        self.headers.push(("authorization".to_owned(), authorization));
        self.bytes()
    }

    /// The request's bytes with the signature in the address, valid for so long.
    pub fn presigned(mut self, seconds: u32) -> Vec<u8> {
        let stamp = stamp(self.at);
        self.headers.push(("host".to_owned(), self.client.address.to_string()));
        let credential = format!("{}/{}", self.client.access_key, scope(&stamp));
        self = self
            .query("X-Amz-Algorithm", "AWS4-HMAC-SHA256")
            .query("X-Amz-Credential", &credential)
            .query("X-Amz-Date", &stamp)
            .query("X-Amz-Expires", &seconds.to_string())
            .query("X-Amz-SignedHeaders", "host");
        let signature = self.signature(&stamp, "host", "UNSIGNED-PAYLOAD");
        self.query("X-Amz-Signature", &signature).bytes()
    }

    fn signature(&self, stamp: &str, signed: &str, payload: &str) -> String {
        let mut canonical = format!("{}\n{}\n{}\n", self.method, self.path, self.canonical_query());
        for (name, value) in &self.headers {
            let _ = writeln!(canonical, "{name}:{value}");
        }
        let _ = write!(canonical, "\n{signed}\n{payload}");
        let scope = scope(stamp);
        let digest = hex::encode(Sha256::digest(canonical));
        let secret = format!("AWS4{}", self.client.secret_key).into_bytes();
        let key = scope.split('/').fold(secret, |key, part| mac(&key, part));
        hex::encode(mac(&key, &format!("AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}")))
    }

    fn canonical_query(&self) -> String {
        let mut pairs: Vec<String> =
            self.query.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
        pairs.sort();
        pairs.join("&")
    }

    fn bytes(self) -> Vec<u8> {
        let query = self.canonical_query();
        let question = if query.is_empty() { "" } else { "?" };
        let mut head = format!("{} {}{question}{query} HTTP/1.1\r\nconnection: close\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        match self.length.as_deref() {
            None => {}
            Some("") => {
                let _ = write!(head, "content-length: {}\r\n", self.body.len());
            }
            Some(length) => {
                let _ = write!(head, "content-length: {length}\r\n");
            }
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

impl Answer {
    /// Whether it says that all went well.
    pub fn ok(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// A header's value, or nothing.
    pub fn header(&self, name: &str) -> &str {
        header(&self.head, name).unwrap_or("")
    }

    /// The text of the first element of this name in the document, or nothing.
    pub fn element(&self, name: &str) -> String {
        let text = String::from_utf8_lossy(&self.body);
        let begin = text.split_once(&format!("<{name}>")).map_or("", |(_, rest)| rest);
        begin.split_once("</").map_or("", |(value, _)| value).to_owned()
    }

    /// Status and S3 error code.
    pub fn error(&self) -> (u16, String) {
        (self.status, self.element("Code"))
    }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    // Nothing here takes long: who waits so long waits for ever.
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.set_write_timeout(Some(Duration::from_secs(60)))?;
    Ok(stream)
}

/// Reads until the server closes, and takes the first final answer from it.
fn read_answer(stream: &mut TcpStream) -> io::Result<Answer> {
    let mut bytes = Vec::new();
    let read = stream.read_to_end(&mut bytes);
    let broken = || read.as_ref().err().map_or(io::ErrorKind::UnexpectedEof, io::Error::kind);
    let mut rest = &bytes[..];
    loop {
        let end = rest.windows(4).position(|four| four == b"\r\n\r\n").ok_or_else(broken)?;
        let head = String::from_utf8_lossy(&rest[..end + 2]).into_owned();
        rest = &rest[end + 4..];
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
        if status == 100 {
            continue;
        }
        let body = match header(&head, "content-length").map(str::parse) {
            Some(Ok(length)) => rest.get(..length).map(<[u8]>::to_vec),
            _ if header(&head, "transfer-encoding").is_some() => unchunked(rest),
            _ => Some(Vec::new()),
        };
        return Ok(Answer { status, head, body: body.ok_or_else(broken)? });
    }
}

fn unchunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        let bytes = usize::from_str_radix(std::str::from_utf8(&rest[..end]).ok()?, 16).ok()?;
        if bytes == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(end + 2..end + 2 + bytes)?);
        rest = rest.get(end + 4 + bytes..)?;
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = head.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

fn stamp(at: OffsetDateTime) -> String {
    let format = format_description!("[year][month][day]T[hour][minute][second]Z");
    at.format(&format).expect("every date has these parts")
}

fn scope(stamp: &str) -> String {
    format!("{}/us-east-1/s3/aws4_request", &stamp[..8])
}

fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any key length is allowed");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}
