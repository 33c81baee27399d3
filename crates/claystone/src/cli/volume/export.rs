//! A volume or a snapshot copied into a file.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use claystone_console::api;
use futures::{StreamExt, TryStreamExt, stream};
use serde::Deserialize;
use serde_json::json;

use super::{PIECE_BYTES, PIECES_AT_ONCE, route_of, say};
use crate::admin::AdminClient;
use crate::progress::Progress;
use crate::table::bytes;

/// What is copied: as much as this is of a volume and of a snapshot.
#[derive(Debug, Deserialize)]
struct Source {
    name: String,
    bytes: u64,
}

/// Copies the volume as it is now: what clients write meanwhile is in it or not.
///
/// The file has its name only when it is whole and synced; until then, `.part` is behind it.
pub async fn export(client: &AdminClient, name: &str, file: &Path, json: bool) -> anyhow::Result<()> {
    let volume: Source = client.get(&route_of(name, "")?).await?;
    let shown = file.display();
    ensure!(!file.exists(), "{shown} exists: name a new file");
    let mut part = file.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let target = OpenOptions::new().write(true).create(true).truncate(true).open(&part);
    let target = target.with_context(|| format!("{} cannot be written", part.display()))?;
    let copied = match copy(client, &volume, &target).await {
        Ok(copied) => copied,
        Err(error) => {
            // It is of no use, and the error that matters is the other one.
            let _ = std::fs::remove_file(&part);
            return Err(error);
        }
    };
    std::fs::rename(&part, file).with_context(|| format!("{shown} cannot be named"))?;
    let document = json!({ "file": file, "bytes": volume.bytes, "data_bytes": copied });
    let text = format!("{name} is in {shown}: {} of data, {} long", bytes(copied), bytes(volume.bytes));
    say(json, &document, &text)?;
    Ok(())
}

/// Returns the bytes that are no hole.
async fn copy(client: &AdminClient, volume: &Source, target: &File) -> anyhow::Result<u64> {
    target.set_len(volume.bytes).context("the file cannot be made so long")?;
    let progress = Progress::bytes(&volume.name, volume.bytes);
    let (mut at, mut copied) = (0, 0);
    while at < volume.bytes {
        let end = volume.bytes.min(at + WINDOW_BYTES);
        let query = format!("/spans?offset={at}&bytes={}", end - at);
        let api::VolumeSpans { spans } = client.get(&route_of(&volume.name, &query)?).await?;
        let mut pieces = Vec::new();
        for span in spans {
            if span.data {
                let starts = (at..at + span.bytes).step_by(PIECE_BYTES as usize);
                pieces.extend(starts.map(|start| (start, PIECE_BYTES.min(at + span.bytes - start))));
            } else {
                progress.step(span.bytes);
            }
            at += span.bytes;
        }
        let fetched = pieces.into_iter().map(|(offset, bytes)| async move {
            let query = format!("/content?offset={offset}&bytes={bytes}");
            let content = client.fetch(&route_of(&volume.name, &query)?).await?;
            ensure!(content.len() as u64 == bytes, "the store sent {} bytes instead of {bytes}", content.len());
            Ok((offset, content))
        });
        let mut fetched = stream::iter(fetched).buffer_unordered(PIECES_AT_ONCE);
        while let Some((offset, content)) = fetched.try_next().await? {
            copied += write_data(target, offset, &content)?;
            progress.step(content.len() as u64);
        }
    }
    target.sync_all().context("the file cannot be synced")?;
    progress.end();
    Ok(copied)
}

/// Writes what is not zeros. How much that was.
fn write_data(target: &File, offset: u64, content: &[u8]) -> anyhow::Result<u64> {
    let mut written = 0;
    for (start, run) in super::import::runs(content) {
        target.write_all_at(run, offset + start as u64).context("the file cannot be written")?;
        written += run.len() as u64;
    }
    Ok(written)
}

/// How much of a volume is looked at at once.
const WINDOW_BYTES: u64 = 1 << 30;
