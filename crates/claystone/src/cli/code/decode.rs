//! `claystone code decode`.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use claystone_env::Directory as _;
use claystone_host::HostDirectory;
use claystone_parcel::{Error, Manifest, Parcel, manifest_file_name};
use serde::Serialize;

use super::place::{Parts, split};
use crate::output::{note, output};
use crate::progress::Progress;
use crate::table::{bytes, counted};

/// Get a file back from its chunk files.
#[derive(Debug, clap::Args)]
pub struct Decode {
    #[command(flatten)]
    parts: Parts,
    /// The file to write [default: its old name, in the current directory]; `-` is standard output: bytes come before the whole is
    /// checked, and the exit code tells whether it was right
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace the file if it is there, or write to a terminal
    #[arg(long)]
    force: bool,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Decoded {
    file: String,
    file_bytes: u64,
    blake3: String,
    absent_chunks: Vec<u16>,
    read_bytes: u64,
}

impl Decode {
    /// Decodes. A file gets its name when all of it is written, checked and synced.
    ///
    /// # Errors
    /// Too much is lost, the file is there already, or it cannot be written.
    pub fn run(self) -> anyhow::Result<()> {
        let prints = self.out.as_ref().is_some_and(|out| out.as_os_str() == STANDARD_OUTPUT);
        if prints {
            ensure!(!self.json, "--json and the file cannot both go to standard output: leave one out");
            let shows = io::stdout().is_terminal() && !self.force;
            ensure!(!shows, "standard output is a terminal: send it elsewhere, or say --force");
        }
        let parcel = self.parts.find()?;
        let Some(manifest) = parcel.manifest() else {
            let found = parcel.members().iter().map(|member| manifest_file_name(&member.name)).collect();
            return Err(Error::Several { found }.into());
        };
        if prints {
            return print(&parcel, manifest);
        }
        let out = self.out.unwrap_or_else(|| PathBuf::from(&manifest.name));
        if out.symlink_metadata().is_ok() && !self.force {
            bail!("{} is already there: name another with --out, or replace it with --force", out.display());
        }
        if out.metadata().is_ok_and(|there| !there.is_file()) {
            bail!("{} is no file, and a file would take its place: name another with --out", out.display());
        }
        let (directory, name) = split(&out)?;
        let directory = HostDirectory::new(directory);
        let whole = || format!("{}: writing", out.display());
        let _lock = directory.lock().map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => anyhow::anyhow!("{}: another process writes there", directory.label()),
            _ => anyhow::Error::from(error).context(directory.label()),
        })?;
        let part = Part { directory: &directory, name: format!(".{name}.claystone-part") };
        // What a killed run left.
        let _ = directory.remove(&part.name);
        let file = directory.create(&part.name).with_context(whole)?;
        let progress = Progress::bytes("decoding", manifest.file_bytes);
        let mut at = 0;
        let mut sink = |piece: &[u8]| {
            let path = part.name.clone();
            file.write_at(at, piece).map_err(|source| Error::Io { path, doing: "writing", source })?;
            at += piece.len() as u64;
            Ok(())
        };
        parcel.decode(&mut sink, &mut |bytes| progress.step(bytes)).map_err(super::exit)?;
        progress.say("syncing");
        file.sync().with_context(whole)?;
        directory.rename(&part.name, &name).with_context(whole)?;
        directory.sync_dir("").with_context(whole)?;
        progress.end();

        let absent = parcel.absent();
        if self.json {
            crate::cli::print_json(&Decoded {
                file: out.display().to_string(),
                file_bytes: manifest.file_bytes,
                blake3: hex::encode(manifest.hash),
                absent_chunks: absent,
                read_bytes: parcel.read_bytes(),
            })?;
            return Ok(());
        }
        writeln!(output(), "{}: {}, hash as it was when it was encoded", out.display(), bytes(manifest.file_bytes))?;
        if let Some(missing) = missing(&absent) {
            writeln!(output(), "{missing}")?;
        }
        Ok(())
    }
}

/// The file's bytes on standard output. Each sector is right; that the whole is, only the exit code tells.
fn print(parcel: &Parcel, manifest: &Manifest) -> anyhow::Result<()> {
    let progress = Progress::bytes("decoding", manifest.file_bytes);
    let mut sink = |piece: &[u8]| {
        let failed = |source| Error::Io { path: manifest.name.clone(), doing: "decoding", source };
        output().write_bytes(piece).map_err(failed)
    };
    parcel.decode(&mut sink, &mut |bytes| progress.step(bytes)).map_err(super::exit)?;
    progress.end();
    missing(&parcel.absent()).into_iter().for_each(note);
    Ok(())
}

/// What to do about chunk files that are not there.
fn missing(absent: &[u16]) -> Option<String> {
    let (one, many) = ("chunk file is missing", "chunk files are missing");
    let missing = counted(absent.len() as u64, one, many);
    (!absent.is_empty()).then(|| format!("{missing}; `claystone code repair` rebuilds what is missing"))
}

const STANDARD_OUTPUT: &str = "-";

/// The unfinished file: taken away unless it got its name.
struct Part<'a> {
    directory: &'a HostDirectory,
    name: String,
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        let _ = self.directory.remove(&self.name);
    }
}
