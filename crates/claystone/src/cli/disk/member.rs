//! `claystone disk list|add|replace|drain|remove`: the disks of a running store.

use std::io;
use std::path::Path;

use anyhow::ensure;
use claystone_console::api;
use hyper::Method;

use crate::admin::AdminClient;
use crate::cli::status::disk_table;
use crate::cli::{find_disk, print_json};
use crate::disk_path;
use crate::output::output;
use crate::table::counted;

/// DISK is an id, the beginning of one, or a path.
#[derive(Debug, clap::Subcommand)]
pub enum Member {
    /// Store: all disks
    List,
    /// Store: take an empty directory, or a disk that `claystone disk format` made, as a new disk
    Add {
        /// The directory, or hdd: and a disk that `claystone disk format` made
        path: String,
        /// Its failure domain
        #[arg(long)]
        node: Option<String>,
    },
    /// Store: give a disk up and take an empty directory in its place; its chunks are rebuilt
    Replace {
        /// The disk that is given up
        disk: String,
        /// The new disk's directory; it may be the same path
        path: String,
    },
    /// Store: move everything off a disk; it is removed when it is empty
    Drain {
        /// The disk
        disk: String,
    },
    /// Store: give a disk up without a new one; its chunks are rebuilt on the others
    Remove {
        /// The disk
        disk: String,
        /// Also if it still answers (draining it first costs less)
        #[arg(long)]
        now: bool,
    },
}

impl Member {
    /// Acts on the store in `dir`.
    ///
    /// # Errors
    /// No store answers, or it says no.
    pub async fn run(self, dir: &Path, json: bool) -> anyhow::Result<()> {
        let client = AdminClient::of(dir)?;
        let api::Disks { disks } = client.get("/disks").await?;
        let watch = format!("`claystone status --watch {}` shows the rebuilding", dir.display());
        match self {
            Member::List if json => print_json(&api::Disks { disks })?,
            Member::List => {
                write!(output(), "{}", disk_table(&disks))?;
                for disk in disks.iter().filter(|disk| disk.state != "lost") {
                    if let Some(reason) = &disk.reason {
                        writeln!(output(), "{}: {reason}", disk.path)?;
                    }
                }
            }
            Member::Add { ref path, ref node } => {
                let path = disk_path::of_new(path)?.display().to_string();
                let added: api::DiskAdded =
                    client.send(Method::POST, "/disks", &api::AddDisk { path, node: node.clone() }).await?;
                tell(json, &added, &format!("added {} as disk {}", added.path, added.id))?;
            }
            Member::Replace { ref disk, ref path } => {
                let old = find_disk(&disks, disk)?;
                let path = Some(disk_path::of_new(path)?.display().to_string());
                let route = format!("/disks/{}/replace", old.id);
                let replaced: api::DiskReplaced = client.send(Method::POST, &route, &api::ReplaceDisk { path }).await?;
                tell(json, &replaced, &format!("disk {} is given up, its chunks are being rebuilt; {watch}", old.id))?;
            }
            Member::Drain { ref disk } => {
                let disk = find_disk(&disks, disk)?;
                let done: api::Done =
                    client.send(Method::POST, &format!("/disks/{}/drain", disk.id), &api::Done {}).await?;
                tell(json, &done, &format!("disk {} is being emptied and then removed; {watch}", disk.id))?;
            }
            Member::Remove { ref disk, now } => {
                let disk = find_disk(&disks, disk)?;
                ensure!(
                    now || !disk.present || disk.chunks == 0,
                    "disk {} answers and holds {}: `claystone disk drain` moves what it has without a rebuild, or \
                     give it up at once with --now",
                    disk.id,
                    counted(disk.chunks, "chunk", "chunks")
                );
                let route = format!("/disks/{}/replace", disk.id);
                let gone: api::DiskReplaced =
                    client.send(Method::POST, &route, &api::ReplaceDisk { path: None }).await?;
                tell(json, &gone, &format!("disk {} is given up, its chunks are being rebuilt; {watch}", disk.id))?;
            }
        }
        Ok(())
    }
}

fn tell(json: bool, answer: &impl serde::Serialize, text: &str) -> io::Result<()> {
    if json { print_json(answer) } else { writeln!(output(), "{text}") }
}
