//! Whether the store serves, for load balancers and supervisors.
//!
//! ```text
//! GET /health        200 if objects can be read and written, else 503
//! GET /health/read   200 if objects can be read, else 503: for those that route reads to a store that is full
//! ```
//!
//! Objects can be read if the metadata store answers in time and a disk answers. They can be written if besides at least
//! as many disks as a write needs take writes and have room. A degraded store serves: `overall` says how it is, the
//! status code only whether to send requests. A store that lost stripes serves what is left.

use claystone_keeper::Status;

use crate::api::Health;

/// What to answer; `None`: the store could not be looked at in time.
pub(crate) fn health(status: Option<&Status>, disks_to_write: usize, version: &str) -> Health {
    let Some(status) = status else {
        return Health {
            status: "failing".to_owned(),
            overall: None,
            reads: false,
            writes: false,
            reason: Some("the metadata store does not answer".to_owned()),
            version: version.to_owned(),
        };
    };
    let present = status.disks.iter().filter(|disk| disk.present).count();
    let writable = status.disks.iter().filter(|disk| disk.writable && disk.free_bytes > 0).count();
    let reads = present > 0;
    let writes = reads && writable >= disks_to_write;
    let reason = if !reads {
        Some("no disk answers".to_owned())
    } else if !writes {
        Some(format!("a write needs {disks_to_write} disks with room, there are {writable}"))
    } else {
        None
    };
    Health {
        status: if writes { "ok" } else { "failing" }.to_owned(),
        overall: Some(status.overall.word().to_owned()),
        reads,
        writes,
        reason,
        version: version.to_owned(),
    }
}
