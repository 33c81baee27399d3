//! `claystone code repair`.

use std::path::PathBuf;

use claystone_parcel::{Extent, Repaired};
use serde_json::json;

use super::place::Parts;
use super::verify::for_people;
use crate::output::output;
use crate::progress::Progress;
use crate::table::{bytes, counted};

/// Rebuild missing chunk files and mend damaged sectors.
#[derive(Debug, clap::Args)]
pub struct Repair {
    #[command(flatten)]
    parts: Parts,
    /// Where to write missing chunk files [default: the directory of the first PATH]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Rebuild missing chunk files only, and read no more than that takes
    #[arg(long)]
    missing: bool,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

impl Repair {
    /// Repairs.
    ///
    /// # Errors
    /// Too much is lost, or a file cannot be written.
    pub fn run(self) -> anyhow::Result<()> {
        let parcel = self.parts.find()?;
        let into = self.parts.directory_of_new(self.out.as_deref())?;
        let (extent, passes) = if self.missing { (Extent::Missing, 1) } else { (Extent::All, 2) };
        let progress = Progress::bytes("repairing", parcel.file_bytes() * passes);
        let repaired = parcel.repair(&into, extent, &mut |bytes| progress.step(bytes));
        progress.end();
        let repaired = repaired.map_err(super::exit)?;
        if self.json {
            crate::cli::print_json(&json!({
                "rebuilt": repaired.rebuilt,
                "mended_sectors": repaired.mended_sectors,
                "mended_heads": repaired.mended_heads,
                "manifest_written": repaired.manifest_written,
                "lost_bytes": repaired.lost_bytes,
                "read_bytes": repaired.read_bytes,
                "checked_bytes": repaired.report.as_ref().map(|report| report.read_bytes),
                "met_sectors": repaired.met_sectors,
            }))?;
            return Ok(());
        }
        if let Some(report) = &repaired.report {
            write!(output(), "{}", for_people(&parcel, report))?;
        }
        write!(output(), "{}", in_words(&repaired))?;
        Ok(())
    }
}

fn in_words(repaired: &Repaired) -> String {
    if *repaired == (Repaired { report: repaired.report.clone(), ..Repaired::default() }) {
        return "nothing to repair\n".to_owned();
    }
    let manifest = if repaired.manifest_written { "wrote the manifest's own file\n" } else { "" };
    let manifest_alone = Repaired { report: repaired.report.clone(), manifest_written: true, ..Repaired::default() };
    if *repaired == manifest_alone {
        return manifest.to_owned();
    }
    let per_byte = repaired.read_bytes as f64 / repaired.lost_bytes.max(1) as f64;
    let mut text = format!(
        "rebuilt {}, mended {} and {}: read {} for {} lost, {per_byte:.2} bytes for each\n",
        counted(repaired.rebuilt.len() as u64, "chunk file", "chunk files"),
        counted(repaired.mended_sectors, "sector", "sectors"),
        counted(repaired.mended_heads, "head", "heads"),
        bytes(repaired.read_bytes),
        bytes(repaired.lost_bytes),
    );
    text.push_str(manifest);
    if repaired.met_sectors > 0 {
        text.push_str("damage was met in other chunk files and left there: repair again without --missing\n");
    }
    text
}
