//! `claystone code encode`.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use claystone_code::CodeSpec;
use claystone_env::{Directory as _, Random as _};
use claystone_host::{HostDirectory, HostRandom};
use claystone_parcel::{Encoder, Layout, Manifest, ParcelId, manifest_file_name};
use serde::Serialize;

use super::place::split;
use crate::output::output;
use crate::progress::Progress;
use crate::table::{bytes, counted};

/// Cut a file into chunk files, any few of which may be lost.
#[derive(Debug, clap::Args)]
pub struct Encode {
    /// The file
    file: PathBuf,
    /// The code, such as rs:4+2 or clay:4+2:5; `claystone code info` compares them
    #[arg(long)]
    code: CodeSpec,
    /// Where to write the chunk files [default: beside the file]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// What was written, for machines.
#[derive(Debug, Serialize)]
pub struct Written {
    name: String,
    code: String,
    parcel: String,
    chunk_files: u16,
    file_bytes: u64,
    stored_bytes: u64,
    manifest: String,
}

impl Encode {
    /// Encodes.
    ///
    /// # Errors
    /// The file cannot be read, or the chunk files cannot be written.
    pub fn run(self) -> anyhow::Result<()> {
        let (directory, name) = split(&self.file)?;
        let input = HostDirectory::new(&directory);
        let whole = || self.file.display().to_string();
        let kind = self.file.metadata().with_context(whole)?.file_type();
        if kind.is_dir() {
            bail!("{} is a directory: pack it into one file first, with tar for example", whole());
        }
        if !kind.is_file() {
            bail!("{} is a device or a pipe, which does not say how long it is: write it to a file first", whole());
        }
        let file = input.open(&name).with_context(whole)?;
        let file_bytes = file.bytes().with_context(whole)?;
        let out = match self.out {
            Some(out) => HostDirectory::make(&out).with_context(|| out.display().to_string())?,
            None => input,
        };
        let mut encoder = begin(&out, self.code, &name, file_bytes)?;
        let progress = Progress::bytes("encoding", file_bytes);
        let mut buffer = vec![0; READ_BYTES];
        let mut at = 0;
        while at < file_bytes {
            let now = &mut buffer[..(file_bytes - at).min(READ_BYTES as u64) as usize];
            file.read_at(at, now).with_context(whole)?;
            encoder.write(now)?;
            at += now.len() as u64;
            progress.step(now.len() as u64);
        }
        // It may have grown meanwhile, or say that it is empty as those of /proc do: then what was read is not all of it.
        if file.read_at(file_bytes, &mut [0]).is_ok() {
            bail!("{} goes on behind the {file_bytes} bytes that it had at first: encode it again, or a copy", whole());
        }
        progress.say("syncing");
        let manifest = encoder.finish()?;
        progress.end();
        Written::new(&manifest, &out).print(self.json)?;
        Ok(())
    }
}

/// Begins a parcel with a random id.
pub fn begin(out: &HostDirectory, code: CodeSpec, name: &str, file_bytes: u64) -> anyhow::Result<Encoder> {
    Ok(Encoder::begin(Arc::new(out.clone()), random_id()?, code, name, file_bytes)?)
}

/// An id that no other parcel has.
pub fn random_id() -> anyhow::Result<ParcelId> {
    let mut id = [0; 16];
    HostRandom::from_system().context("the system gives no random bytes")?.fill(&mut id);
    Ok(ParcelId(id))
}

impl Written {
    /// Of a parcel that was written into `out`.
    pub fn new(manifest: &Manifest, out: &HostDirectory) -> Written {
        let layout: Layout = manifest.layout();
        Written {
            name: manifest.name.clone(),
            code: manifest.spec.to_string(),
            parcel: manifest.id.to_string(),
            chunk_files: layout.shape.chunks(),
            file_bytes: manifest.file_bytes,
            stored_bytes: layout.chunk_file_bytes() * u64::from(layout.shape.chunks()),
            manifest: out.path().join(manifest_file_name(&manifest.name)).display().to_string(),
        }
    }

    /// For machines or for people.
    ///
    /// # Errors
    /// Standard output takes no more.
    pub fn print(&self, json: bool) -> io::Result<()> {
        if json {
            return crate::cli::print_json(self);
        }
        let tolerance = self.code.parse::<CodeSpec>().map_or(0, |code| code.tolerance());
        writeln!(
            output(),
            "{}: {} in {} of {}, {} in all; any {tolerance} of them may be lost",
            self.manifest,
            bytes(self.file_bytes),
            counted(self.chunk_files.into(), "chunk file", "chunk files"),
            self.code,
            bytes(self.stored_bytes)
        )
    }
}

/// Read at once.
const READ_BYTES: usize = 1 << 20;
