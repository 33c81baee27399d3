//! Snapshots of volumes: taken, looked at, cloned, gone back to, deleted.

use claystone_console::api;
use claystone_volume::SnapshotName;
use hyper::Method;

use super::{confirm, say};
use crate::admin::AdminClient;
use crate::table::bytes;

/// The path of a snapshot in the admin API.
pub fn route(name: &SnapshotName, rest: &str) -> anyhow::Result<String> {
    // What was parsed has no letter that a path must not have; what a caller made may have.
    let name: SnapshotName = name.to_string().parse()?;
    Ok(format!("/snapshots/{name}{rest}"))
}

/// Takes one.
pub async fn take(client: &AdminClient, volume: &str, name: &str, json: bool) -> anyhow::Result<()> {
    let path = super::route(volume, "/snapshots")?;
    let taken: api::Snapshot = client.send(Method::POST, &path, &api::AddSnapshot { name: name.to_owned() }).await?;
    let text =
        format!("{} is {volume} as it is now; `claystone volume clone {0} NAME` makes a volume of it", taken.name);
    say(json, &taken, &text)?;
    Ok(())
}

/// Shows one.
pub async fn info(client: &AdminClient, name: &str, json: bool) -> anyhow::Result<()> {
    let snapshot: api::Snapshot = client.get(&route(&name.parse()?, "")?).await?;
    say(json, &snapshot, for_people(&snapshot).trim_end())?;
    Ok(())
}

fn for_people(snapshot: &api::Snapshot) -> String {
    let mut lines = vec![
        ("snapshot", snapshot.name.clone()),
        ("length", format!("{} ({} bytes)", bytes(snapshot.bytes), snapshot.bytes)),
        ("code", format!("{}, chunks of {}", snapshot.code, bytes(snapshot.chunk_bytes))),
        ("page", format!("{} bytes", snapshot.page_bytes)),
        ("clients", snapshot.clients.to_string()),
    ];
    if let (Some(stripes), Some(alone)) = (snapshot.stripes, snapshot.stripes_alone) {
        lines.push(("stripes", format!("{stripes}, of which {alone} are held by nothing else")));
    }
    lines.iter().map(|(name, value)| format!("{name:10}{value}\n")).collect()
}

/// Makes a volume of one.
pub async fn clone(client: &AdminClient, from: &SnapshotName, name: String, json: bool) -> anyhow::Result<()> {
    let path = route(from, "/clone")?;
    let made: api::Volume = client.send(Method::POST, &path, &api::CloneSnapshot { name }).await?;
    let text = format!("made {}: what {from} is; `claystone volume attach {0}` shows how to use it", made.name);
    say(json, &made, &text)?;
    Ok(())
}

/// Goes back to one.
pub async fn revert(client: &AdminClient, to: &SnapshotName, yes: bool, json: bool) -> anyhow::Result<()> {
    let snapshot: api::Snapshot = client.get(&route(to, "")?).await?;
    let volume = &to.volume;
    if !yes {
        let what = format!("{volume} will be what {} is, and what was written since will be gone", snapshot.name);
        confirm(volume, &what, "reverted")?;
    }
    let reverted: api::Volume = client.send(Method::POST, &route(to, "/revert")?, &api::Done {}).await?;
    say(json, &reverted, &format!("{volume} is what {to} is"))?;
    Ok(())
}

/// Deletes one.
pub async fn delete(client: &AdminClient, name: &str, yes: bool, json: bool) -> anyhow::Result<()> {
    let path = route(&name.parse()?, "")?;
    let snapshot: api::Snapshot = client.get(&path).await?;
    if !yes {
        confirm(name, &format!("{name}, {}, will be gone; its volume stays", bytes(snapshot.bytes)), "deleted")?;
    }
    let done: api::Done = client.send(Method::DELETE, &path, &api::Done {}).await?;
    say(json, &done, &format!("deleted {name}"))?;
    Ok(())
}
