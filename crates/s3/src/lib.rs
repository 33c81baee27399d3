//! S3 over HTTP: translates between the protocol (crate `s3s`) and [`claystone_object`].
//!
//! Invariants:
//! 1. This is the only crate that knows S3. It decides nothing about bytes, disks or codes.
//! 2. What is not supported answers 501 `NotImplemented` as S3's XML; nothing is half done or silently ignored.
//! 3. A request body that is short, long, malformed, wrongly signed or has a wrong or missing checksum changes nothing.
//! 4. Memory for a body is a few pieces in either direction, whatever its length. HTML form uploads are the exception:
//!    s3s takes them whole, so their length is limited to [`Settings::form_bytes_max`].
//! 5. Nothing here opens a socket or a file: the listener comes from outside.
//!
//! Left out: TLS, encryption at rest, website hosting, replication, notifications, IAM, and carrying out lifecycle
//! rules (they are kept and shown only).

mod acl;
mod body;
mod bucket;
mod checksum;
pub mod chunked;
mod conditions;
mod copy;
mod cors;
mod delete;
mod describe;
mod documents;
mod error;
mod form;
mod gateway;
mod keys;
mod lifecycle;
mod listing;
mod lock;
mod multipart;
mod object;
mod observer;
mod operations;
pub mod policy;
mod range;
mod read;
mod server;
mod service;
mod tags;
mod write;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use claystone_env::Env;
use claystone_object::Objects;
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::S3ServiceBuilder;

pub use keys::{Account, KeyRing, Keys};
pub use observer::{Observer, Unobserved};
pub use read::CODE_HEADER;
pub use service::{Observed, Service};

use crate::gateway::Gateway;
use crate::operations::{Access, Domain, Operations, Secrets};

/// What the operator decided, checked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The region that buckets lie in, for clients that ask. Signatures may name any.
    pub region: String,
    /// With `s3.example.com`, the host `b.s3.example.com` means bucket `b`; paths work always.
    pub domain: Option<String>,
    /// Open connections, at most.
    pub connections_max: u32,
    /// How long requests under way may take to end after the signal to stop.
    pub grace: Duration,
    /// The longest file in an HTML form upload, which is held in memory.
    pub form_bytes_max: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            region: "us-east-1".to_owned(),
            domain: None,
            connections_max: 1024,
            grace: Duration::from_secs(10),
            form_bytes_max: 32 << 20,
        }
    }
}

/// The S3 server. Cheap to clone.
#[derive(Clone)]
pub struct S3 {
    shared: Arc<service::Shared>,
}

impl S3 {
    /// A server of these objects for whom `keys` knows.
    pub fn new(env: Env, objects: Objects, settings: Settings, keys: Arc<dyn Keys>, observer: Arc<dyn Observer>) -> S3 {
        let mut config = S3Config::default();
        config.xml_max_body_size = DOCUMENT_BYTES_MAX;
        config.post_object_max_file_size = settings.form_bytes_max;
        config.form_max_field_size = FORM_FIELD_BYTES_MAX;
        config.form_max_fields_size = FORM_FIELDS_BYTES_MAX;
        let domain = settings.domain.clone();
        let gateway = Arc::new(Gateway { env, objects, settings, keys: keys.clone() });
        let mut builder = S3ServiceBuilder::new(Operations(gateway.clone()));
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
        builder.set_auth(Secrets(keys));
        builder.set_access(Access);
        if let Some(domain) = domain {
            builder.set_host(Domain(domain));
        }
        S3 { shared: Arc::new(service::Shared { gateway, s3s: builder.build(), observer }) }
    }

    /// What to serve one connection with; `peer` is who is at its other end.
    pub fn service(&self, peer: Option<IpAddr>) -> Service {
        Service { shared: self.shared.clone(), peer }
    }

    fn settings(&self) -> &Settings {
        &self.shared.gateway.settings
    }

    fn env(&self) -> &Env {
        &self.shared.gateway.env
    }
}

/// Documents hold at most 10,000 parts with checksums, or 1,000 keys.
const DOCUMENT_BYTES_MAX: usize = 8 << 20;
const FORM_FIELD_BYTES_MAX: usize = 64 << 10;
const FORM_FIELDS_BYTES_MAX: usize = 1 << 20;
