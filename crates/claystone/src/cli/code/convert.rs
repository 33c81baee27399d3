//! `claystone code convert`.

use std::path::PathBuf;

use anyhow::Context;
use claystone_code::CodeSpec;
use claystone_host::HostDirectory;

use super::encode::{Written, begin};
use super::place::Parts;
use crate::progress::Progress;

/// Write the chunk files of another code. The old ones stay as they are.
#[derive(Debug, clap::Args)]
pub struct Convert {
    #[command(flatten)]
    parts: Parts,
    /// The new code
    #[arg(long)]
    code: CodeSpec,
    /// Where to write the new chunk files: another directory, because the files have the same names
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

impl Convert {
    /// Decodes and encodes at once: nothing but a row of each code is in between, and nothing gets a name before the
    /// file's hash was found right.
    ///
    /// # Errors
    /// Too much is lost, or the new files cannot be written.
    pub fn run(self) -> anyhow::Result<()> {
        let parcel = self.parts.find()?;
        let old = parcel.manifest();
        let out = HostDirectory::make(&self.out).with_context(|| self.out.display().to_string())?;
        let mut encoder = begin(&out, self.code, &old.name, old.file_bytes)?;
        let progress = Progress::bytes("converting", old.file_bytes);
        let decoded = parcel.decode(&mut |piece| encoder.write(piece), &mut |bytes| progress.step(bytes));
        decoded.map_err(super::exit)?;
        progress.say("syncing");
        let manifest = encoder.finish()?;
        progress.end();
        Written::new(&manifest, &out).print(self.json);
        Ok(())
    }
}
