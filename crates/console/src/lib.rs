//! Health, metrics, the status page and the admin API.
//!
//! Invariants:
//! 1. Nothing here listens or reads files: [`router`] gives the routes, the program gives them a listener.
//! 2. `/admin/v1` answers to the token only, wherever it listens. Where the listener is not on loopback, every other
//!    path but `/health` wants the token too.
//! 3. What changes the store goes through [`Admin`] or the [`Keeper`](claystone_keeper::Keeper); this crate decides
//!    nothing.
//! 4. A secret is in one response only: that of the request which made the key.
//!
//! Left out: TLS, which is the listener's.

mod access;
mod admin;
pub mod api;
mod health;
mod metrics;
mod page;
mod policies;
mod router;
mod volumes;

pub use access::{AdminToken, TokenError};
pub use admin::{Admin, AdminError};
pub use metrics::Metrics;
pub use router::{Parts, router};
