//! Checksums that clients send, ask for and get back.
//!
//! Invariants:
//! 1. A checksum that was declared, in a header or for a trailer, is verified before anything is committed; one that
//!    was declared and does not come is an error.
//! 2. Values travel as base64 of big-endian bytes; stored names are `crc32`, `crc32c`, `crc64nvme`, `sha1`, `sha256`.
//! 3. A composite value is the checksum of the parts' raw checksums, followed by `-` and their number; a full-object
//!    CRC of parts is combined by arithmetic, without reading them.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use claystone_object::{Algorithm, BodyError, Confirmed, Digests, PartAttributes};
use http::HeaderMap;
use md5::Digest as _;
use s3s::dto::{ChecksumAlgorithm, ChecksumType};
use s3s::{S3Error, TrailingHeaders, s3_error};

use crate::error::Refusal;

/// A kind of checksum that S3 knows besides MD5.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Sha1,
    Sha256,
}

pub(crate) const KINDS: [Kind; 5] = [Kind::Crc32, Kind::Crc32c, Kind::Crc64Nvme, Kind::Sha1, Kind::Sha256];

impl Kind {
    /// As stored, and behind `x-amz-checksum-`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Crc32 => "crc32",
            Kind::Crc32c => "crc32c",
            Kind::Crc64Nvme => "crc64nvme",
            Kind::Sha1 => "sha1",
            Kind::Sha256 => "sha256",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Kind> {
        KINDS.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name))
    }

    /// As S3's documents spell it.
    pub(crate) fn label(self) -> ChecksumAlgorithm {
        ChecksumAlgorithm::from_static(match self {
            Kind::Crc32 => ChecksumAlgorithm::CRC32,
            Kind::Crc32c => ChecksumAlgorithm::CRC32C,
            Kind::Crc64Nvme => ChecksumAlgorithm::CRC64NVME,
            Kind::Sha1 => ChecksumAlgorithm::SHA1,
            Kind::Sha256 => ChecksumAlgorithm::SHA256,
        })
    }

    pub(crate) fn algorithm(self) -> Algorithm {
        match self {
            Kind::Crc32 => Algorithm::Crc32,
            Kind::Crc32c => Algorithm::Crc32c,
            Kind::Crc64Nvme => Algorithm::Crc64Nvme,
            Kind::Sha1 => Algorithm::Sha1,
            Kind::Sha256 => Algorithm::Sha256,
        }
    }

    /// How parts make a whole when the client does not say.
    pub(crate) fn default_type(self) -> &'static str {
        match self {
            Kind::Crc64Nvme => ChecksumType::FULL_OBJECT,
            _ => ChecksumType::COMPOSITE,
        }
    }

    /// Whether the checksum of a whole follows from those of its parts.
    fn combines(self) -> bool {
        matches!(self, Kind::Crc32 | Kind::Crc32c | Kind::Crc64Nvme)
    }

    fn digest(self, bytes: &[u8]) -> Vec<u8> {
        let crc = |kind, width: usize| crc_fast::checksum(kind, bytes).to_be_bytes()[8 - width..].to_vec();
        match self {
            Kind::Crc32 => crc(crc_fast::CrcAlgorithm::Crc32IsoHdlc, 4),
            Kind::Crc32c => crc(crc_fast::CrcAlgorithm::Crc32Iscsi, 4),
            Kind::Crc64Nvme => crc(crc_fast::CrcAlgorithm::Crc64Nvme, 8),
            Kind::Sha1 => sha1::Sha1::digest(bytes).to_vec(),
            Kind::Sha256 => sha2::Sha256::digest(bytes).to_vec(),
        }
    }
}

/// One of s3s's outputs with the fields of a [`s3s::dto::Checksum`] but its type, and nothing else.
macro_rules! with_checksums {
    ($output:ident, $checksum:expr) => {
        $output {
            checksum_crc32: $checksum.checksum_crc32,
            checksum_crc32c: $checksum.checksum_crc32c,
            checksum_crc64nvme: $checksum.checksum_crc64nvme,
            checksum_sha1: $checksum.checksum_sha1,
            checksum_sha256: $checksum.checksum_sha256,
            ..$output::default()
        }
    };
}
pub(crate) use with_checksums;

/// The values in those fields of one of s3s's inputs.
macro_rules! checksums_of {
    ($input:expr) => {
        [
            ($crate::checksum::Kind::Crc32, &$input.checksum_crc32),
            ($crate::checksum::Kind::Crc32c, &$input.checksum_crc32c),
            ($crate::checksum::Kind::Crc64Nvme, &$input.checksum_crc64nvme),
            ($crate::checksum::Kind::Sha1, &$input.checksum_sha1),
            ($crate::checksum::Kind::Sha256, &$input.checksum_sha256),
        ]
        .into_iter()
        .filter_map(|(kind, value)| value.as_ref().map(|value| (kind, value)))
    };
}
pub(crate) use checksums_of;

/// What a request says about the checksums of its body.
#[derive(Debug, Default)]
pub(crate) struct Declared {
    /// Raw MD5, from Content-MD5.
    md5: Option<Vec<u8>>,
    /// Values that came in headers, as sent.
    values: BTreeMap<Kind, String>,
    /// Values that are to come behind the body.
    trailers: Vec<Kind>,
    /// To be computed though no value comes.
    wanted: Option<Kind>,
}

impl Declared {
    /// Reads the headers of a request with a body.
    ///
    /// # Errors
    /// `InvalidDigest`, `InvalidRequest`.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Result<Declared, S3Error> {
        let mut declared = Declared::default();
        if let Some(value) = headers.get("content-md5") {
            declared.set_md5(value.to_str().unwrap_or_default())?;
        }
        for kind in KINDS {
            if let Some(value) = headers.get(format!("x-amz-checksum-{}", kind.name())) {
                declared.values.insert(kind, value.to_str().unwrap_or_default().to_owned());
            }
        }
        let names = headers.get_all("x-amz-trailer").into_iter().filter_map(|value| value.to_str().ok());
        for name in names.flat_map(|value| value.split(',')).map(|name| name.trim().to_ascii_lowercase()) {
            match name.strip_prefix("x-amz-checksum-").and_then(Kind::named) {
                Some(kind) => declared.trailers.push(kind),
                None => {
                    return Err(s3_error!(
                        InvalidRequest,
                        "The value specified in the x-amz-trailer header is not supported: {name}"
                    ));
                }
            }
        }
        for name in ["x-amz-sdk-checksum-algorithm", "x-amz-checksum-algorithm"] {
            if let Some(value) = headers.get(name).and_then(|value| value.to_str().ok()) {
                declared.want(value)?;
            }
        }
        if declared.values.len() + declared.trailers.len() > 1 {
            return Err(s3_error!(InvalidRequest, "Expecting a single x-amz-checksum- header"));
        }
        Ok(declared)
    }

    /// Takes a Content-MD5.
    pub(crate) fn set_md5(&mut self, value: &str) -> Result<(), S3Error> {
        let raw = STANDARD.decode(value).ok().filter(|raw| raw.len() == 16);
        let raw =
            raw.ok_or_else(|| s3_error!(InvalidDigest, "The Content-MD5 you specified is not base64 of 16 bytes"))?;
        self.md5 = Some(raw);
        Ok(())
    }

    /// Takes a value.
    pub(crate) fn set_value(&mut self, kind: Kind, value: String) {
        self.values.insert(kind, value);
    }

    /// Demands that an algorithm be computed.
    pub(crate) fn want(&mut self, algorithm: &str) -> Result<(), S3Error> {
        let kind = Kind::named(algorithm).ok_or_else(|| {
            s3_error!(InvalidRequest, "Checksum algorithm provided is unsupported: {algorithm}. Try one of CRC32, CRC32C, CRC64NVME, SHA1, SHA256")
        })?;
        self.wanted = Some(kind);
        Ok(())
    }

    /// What to compute.
    pub(crate) fn algorithms(&self) -> Vec<Algorithm> {
        let mut algorithms = vec![Algorithm::Md5];
        algorithms.extend(self.kinds().into_iter().map(Kind::algorithm));
        algorithms
    }

    fn kinds(&self) -> Vec<Kind> {
        let mut kinds: Vec<Kind> = self.values.keys().chain(&self.trailers).chain(&self.wanted).copied().collect();
        kinds.sort();
        kinds.dedup();
        kinds
    }

    /// Compares with what was computed; runs when the body is whole and before it is committed.
    ///
    /// # Errors
    /// `BadDigest`; `InvalidRequest` if a declared trailer did not come.
    pub(crate) fn confirm(
        &self,
        digests: &Digests,
        trailers: Option<&TrailingHeaders>,
    ) -> Result<Confirmed, BodyError> {
        self.compare(digests, trailers).map_err(|error| Refusal(error).into())
    }

    /// Compares with a small body that is at hand.
    ///
    /// # Errors
    /// `BadDigest`.
    pub(crate) fn check(&self, bytes: &[u8]) -> Result<(), S3Error> {
        let mut digests = Digests { bytes: bytes.len() as u64, values: BTreeMap::new() };
        digests.values.insert(Algorithm::Md5, md5::Md5::digest(bytes).to_vec());
        for kind in self.kinds() {
            digests.values.insert(kind.algorithm(), kind.digest(bytes));
        }
        self.compare(&digests, None).map(drop)
    }

    fn compare(&self, digests: &Digests, trailers: Option<&TrailingHeaders>) -> Result<Confirmed, S3Error> {
        let computed = |algorithm| {
            let value: Option<&Vec<u8>> = digests.values.get(&algorithm);
            value.ok_or_else(|| s3_error!(InternalError, "a checksum was not computed"))
        };
        let md5 = computed(Algorithm::Md5)?;
        if self.md5.as_ref().is_some_and(|declared| declared != md5) {
            return Err(s3_error!(BadDigest, "The Content-MD5 you specified did not match what we received"));
        }
        let mut checksums = BTreeMap::new();
        for kind in self.kinds() {
            let value = STANDARD.encode(computed(kind.algorithm())?);
            if self.values.get(&kind).is_some_and(|declared| *declared != value) {
                return Err(mismatch(kind));
            }
            checksums.insert(kind.name().to_owned(), value);
        }
        for &kind in &self.trailers {
            let name = format!("x-amz-checksum-{}", kind.name());
            let sent = trailers.and_then(|trailers| trailers.read(|map| map.get(&name).cloned()).flatten());
            let sent =
                sent.ok_or_else(|| s3_error!(InvalidRequest, "The trailer {name} was declared and did not come"))?;
            if checksums.get(kind.name()).is_none_or(|value| value.as_bytes() != sent.as_bytes()) {
                return Err(mismatch(kind));
            }
        }
        Ok(Confirmed { etag: hex::encode(md5), checksums })
    }
}

fn mismatch(kind: Kind) -> S3Error {
    s3_error!(BadDigest, "The {} you specified did not match the calculated checksum", kind.label().as_str())
}

/// The checksum of an object made of parts. `None` if a part lacks its checksum.
pub(crate) fn of_parts(kind: Kind, full_object: bool, parts: &[PartAttributes]) -> Option<String> {
    let raw = |part: &PartAttributes| part.checksums.get(kind.name()).and_then(|value| STANDARD.decode(value).ok());
    if !full_object {
        let mut joined = Vec::new();
        for part in parts {
            joined.extend(raw(part)?);
        }
        return Some(format!("{}-{}", STANDARD.encode(kind.digest(&joined)), parts.len()));
    }
    if !kind.combines() {
        return None;
    }
    let (algorithm, width) = match kind {
        Kind::Crc32 => (crc_fast::CrcAlgorithm::Crc32IsoHdlc, 4),
        Kind::Crc32c => (crc_fast::CrcAlgorithm::Crc32Iscsi, 4),
        _ => (crc_fast::CrcAlgorithm::Crc64Nvme, 8),
    };
    let mut whole: Option<u64> = None;
    for part in parts {
        let value = raw(part)?.iter().fold(0u64, |value, &byte| (value << 8) | u64::from(byte));
        whole = Some(match whole {
            None => value,
            Some(whole) => crc_fast::checksum_combine(algorithm, whole, value, part.bytes),
        });
    }
    Some(STANDARD.encode(&whole?.to_be_bytes()[8 - width..]))
}

/// The entity tag of an object made of parts: MD5 of their raw entity tags, and their number.
pub(crate) fn etag_of_parts<'a>(etags: impl ExactSizeIterator<Item = &'a str>) -> String {
    let count = etags.len();
    let mut hasher = md5::Md5::new();
    for etag in etags {
        match hex::decode(etag) {
            Ok(raw) => hasher.update(raw),
            Err(_) => hasher.update(etag.as_bytes()),
        }
    }
    format!("{}-{count}", hex::encode(hasher.finalize()))
}

/// Whether a combination of algorithm and type can be computed.
///
/// # Errors
/// `InvalidRequest`.
pub(crate) fn check_type(kind: Kind, full_object: bool) -> Result<(), S3Error> {
    match (kind, full_object) {
        (Kind::Sha1 | Kind::Sha256, true) => Err(s3_error!(
            InvalidRequest,
            "The FULL_OBJECT checksum type cannot be used with the {} checksum algorithm",
            kind.name()
        )),
        (Kind::Crc64Nvme, false) => Err(s3_error!(
            InvalidRequest,
            "The COMPOSITE checksum type cannot be used with the crc64nvme checksum algorithm"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
