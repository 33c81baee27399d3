//! What travels with an object besides its bytes.
//!
//! Stored as JSON in the object's record; unknown fields of a newer program are refused rather than dropped.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ObjectError;

/// Headers, tags and documents of one object version (or of an upload, for the object to come).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Attributes {
    /// Response headers by lower-case name: `content-type`, `cache-control`, `content-encoding`, ...
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// User metadata by lower-case name, without the protocol's prefix.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub user: BTreeMap<String, String>,
    /// Tags.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Checksums by algorithm name (`crc32c`, `sha256`, ..), base64, of the whole object or of its parts
    /// (`checksum_type`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub checksums: BTreeMap<String, String>,
    /// The protocol's name for how a checksum of several parts was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum_type: Option<String>,
    /// The parts it was uploaded in, in order; empty for a plain put.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartAttributes>,
    /// Documents of the protocol crates by name (`acl`, `retention`, `legal-hold`, ...).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub documents: BTreeMap<String, String>,
}

/// A part of a completed upload.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PartAttributes {
    /// Its number.
    pub number: u32,
    /// Its length.
    pub bytes: u64,
    /// Its checksums, as in [`Attributes::checksums`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub checksums: BTreeMap<String, String>,
}

impl Attributes {
    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("maps with text keys always serialise")
    }

    /// Reads what [`ObjectRecord::attributes`](crate::ObjectRecord) or an upload's record holds.
    ///
    /// # Errors
    /// [`ObjectError::Corrupt`] if it is not what this program writes.
    pub fn decode(bytes: &[u8]) -> Result<Attributes, ObjectError> {
        decode(bytes, "object attributes")
    }
}

impl PartAttributes {
    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("maps with text keys always serialise")
    }

    /// Reads what [`PartRecord::attributes`](crate::PartRecord) holds.
    ///
    /// # Errors
    /// [`ObjectError::Corrupt`] if it is not what this program writes.
    pub fn decode(bytes: &[u8]) -> Result<PartAttributes, ObjectError> {
        decode(bytes, "part attributes")
    }
}

fn decode<T: Default + for<'de> Deserialize<'de>>(bytes: &[u8], what: &str) -> Result<T, ObjectError> {
    if bytes.is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(bytes).map_err(|error| ObjectError::Corrupt { what: format!("{what}: {error}") })
}
