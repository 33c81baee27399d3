//! A file copied into a volume.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, anyhow, bail, ensure};
use bytes::Bytes;
use claystone_console::api;
use claystone_meta::Redundancy;
use futures::{StreamExt, TryStreamExt, stream};
use hyper::Method;
use rustix::fs::{SeekFrom, seek};
use serde_json::json;

use super::{PIECE_BYTES, PIECES_AT_ONCE, route, say};
use crate::admin::AdminClient;
use crate::progress::Progress;
use crate::table;

/// Copies the file; when it returns, what was copied is durable.
pub async fn import(
    client: &AdminClient,
    path: &Path,
    name: &str,
    code: Option<Redundancy>,
    json: bool,
) -> anyhow::Result<()> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("{shown} cannot be read"))?;
    // Devices have no length that their metadata tells.
    let bytes = seek(&file, SeekFrom::End(0)).with_context(|| format!("{shown} is no file with a length"))?;
    ensure!(bytes > 0, "{shown} is empty");
    let volume = match code {
        Some(code) => {
            let bytes = bytes.div_ceil(PAGE_BYTES) * PAGE_BYTES;
            let (name, code) = (name.to_owned(), code.to_string());
            let add = api::AddVolume {
                name,
                bytes,
                code,
                page_bytes: None,
                chunk_bytes: None,
                homes: Vec::new(),
                scratch: None,
            };
            client.send(Method::POST, "/volumes", &add).await?
        }
        None => {
            let found: api::Volume = client.get(&route(name, "")?).await?;
            takes(&found, bytes)?;
            found
        }
    };
    let copied = copy(client, &file, bytes, &volume.name).await;
    let copied = copied.with_context(|| {
        format!("{name} has a part of {shown} only: `claystone volume delete {name}`, and begin again")
    })?;
    let document = json!({ "volume": name, "bytes": bytes, "data_bytes": copied });
    say(json, &document, &format!("{shown} is in {name}: {} of data", table::bytes(copied)))?;
    Ok(())
}

/// Whether the volume takes a file of so many bytes, and loses nothing by it.
fn takes(volume: &api::Volume, bytes: u64) -> anyhow::Result<()> {
    let name = &volume.name;
    ensure!(
        volume.bytes >= bytes,
        "the file has {bytes} bytes, {name} {}: `claystone volume resize {name} SIZE` makes it longer",
        volume.bytes
    );
    if let Some(reason) = &volume.reason {
        bail!("{name} cannot be written: {reason}");
    }
    let diffs = volume.open.as_ref().map_or(0, |open| open.diff_pages);
    ensure!(
        volume.stripes == Some(0) && diffs == 0,
        "{name} has data, and importing takes an empty volume: make another, or write over it with nbdcopy (`claystone \
         volume attach {name}` shows how)"
    );
    Ok(())
}

async fn copy(client: &AdminClient, file: &File, bytes: u64, name: &str) -> anyhow::Result<u64> {
    let progress = Progress::bytes(name, bytes);
    let mut copied = 0;
    let mut at = 0;
    while let Some((start, end)) = next_data(file, at, bytes)? {
        progress.step(start - at);
        let starts = (start..end).step_by(PIECE_BYTES as usize);
        let pieces = starts.map(|offset| {
            let length = PIECE_BYTES.min(end - offset);
            async move {
                let mut content = vec![0; length as usize];
                file.read_exact_at(&mut content, offset).context("the file cannot be read")?;
                let content = Bytes::from(content);
                let mut put = 0;
                for (start, run) in runs(&content) {
                    let path = route(name, &format!("/content?offset={}", offset + start as u64))?;
                    client.put(&path, content.slice_ref(run)).await?;
                    put += run.len() as u64;
                }
                Ok::<_, anyhow::Error>((length, put))
            }
        });
        let mut pieces = stream::iter(pieces).buffer_unordered(PIECES_AT_ONCE);
        while let Some((length, put)) = pieces.try_next().await? {
            copied += put;
            progress.step(length);
        }
        at = end;
    }
    let _: api::Done = client.send(Method::POST, &route(name, "/flush")?, &api::Done {}).await?;
    progress.end();
    Ok(copied)
}

/// The next bytes of a file that are no hole.
fn next_data(file: &File, at: u64, bytes: u64) -> anyhow::Result<Option<(u64, u64)>> {
    if at >= bytes {
        return Ok(None);
    }
    let start = match seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(rustix::io::Errno::NXIO) => return Ok(None),
        // It knows nothing of holes.
        Err(rustix::io::Errno::INVAL) => return Ok(Some((at, bytes))),
        Err(error) => return Err(anyhow!(error).context("the file's holes cannot be found")),
    };
    let end = seek(file, SeekFrom::Hole(start)).context("the file's holes cannot be found")?;
    Ok((start < bytes).then_some((start, end.min(bytes))))
}

/// The runs of bytes that are not zeros, in steps of [`RUN_BYTES`], each with where it starts.
pub fn runs(content: &[u8]) -> Vec<(usize, &[u8])> {
    let mut runs: Vec<(usize, &[u8])> = Vec::new();
    for (start, step) in (0..).step_by(RUN_BYTES).zip(content.chunks(RUN_BYTES)) {
        if step.iter().all(|byte| *byte == 0) {
            continue;
        }
        match runs.last_mut() {
            Some((first, run)) if *first + run.len() == start => *run = &content[*first..start + step.len()],
            _ => runs.push((start, step)),
        }
    }
    runs
}

/// Of volumes that are made here.
const PAGE_BYTES: u64 = 4096;
/// Fewer zeros than this are not worth a request of their own.
const RUN_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_what_is_not_zeros() {
        let mut content = vec![0; 5 * RUN_BYTES + 10];
        assert!(runs(&content).is_empty());
        content[RUN_BYTES] = 1;
        content[3 * RUN_BYTES - 1] = 1;
        content[5 * RUN_BYTES + 9] = 1;
        let found: Vec<(usize, usize)> = runs(&content).iter().map(|(start, run)| (*start, run.len())).collect();
        assert_eq!(found, [(RUN_BYTES, 2 * RUN_BYTES), (5 * RUN_BYTES, 10)]);
    }
}
