//! Block devices over NBD: translates between the protocol and [`claystone_volume::Blocks`].
//!
//! Invariants:
//! 1. This is the only crate that knows NBD. It decides nothing about bytes, durability or who is whose.
//! 2. Whatever a client sends, it gets the protocol's answer or loses its connection; nothing panics, and other
//!    connections go on.
//! 3. A connection holds at most [`Settings::requests_max`] requests and [`Settings::bytes_max`] bytes of their contents,
//!    from a request's arrival until its reply is sent; then it reads no further. A handshake holds one option.
//! 4. A request that began is finished, unless its client is gone without a disconnect, or a shutdown comes to its hard end.
//! 5. Nothing here opens a socket or a file: listener and certificates come from outside.
//!
//! What is spoken: fixed newstyle with TLS, structured replies, `base:allocation`; all commands but `CACHE` and `RESIZE`.
//! Each export takes several connections: a device's flush covers what came over any.
//!
//! Left out: extended headers, and authorisation beyond certificates of clients.

mod error;
mod exports;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod handshake;
mod output;
mod peer;
mod server;
mod session;
mod tls;
mod wire;

pub use error::NbdError;
pub use exports::{Export, Exports, Listed, NoExport};
pub use server::{Listener, Nbd, Settings};
pub use tls::{Tls, TlsError, tls_config};
pub use tokio_rustls::rustls::ServerConfig;
