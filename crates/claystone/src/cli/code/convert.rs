//! `claystone code convert`.

use std::io;
use std::path::PathBuf;

use anyhow::{Context, bail};
use claystone_code::CodeSpec;
use claystone_host::HostDirectory;
use claystone_parcel::{Conversion, Obstacle, Parcel};
use serde_json::json;

use super::encode::{begin, random_id};
use super::place::Parts;
use crate::output::output;
use crate::progress::Progress;
use crate::table::{bytes, counted};

/// Put data under another code. Where the codes allow it, chunk files with data stay as they are and parity is made from
/// what the conversion plan reads, in place of the old; else the file is encoded anew into --out
#[derive(Debug, clap::Args)]
pub struct Convert {
    #[command(flatten)]
    parts: Parts,
    /// The new code
    #[arg(long)]
    code: CodeSpec,
    /// Where to write the new chunk files [default: the directory of the first PATH]; another directory than the old ones'
    /// if the file is encoded anew
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Encode anew into --out, and leave the old chunk files as they are
    #[arg(long, requires = "out")]
    copy: bool,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// What was done.
struct Done {
    way: &'static str,
    from: CodeSpec,
    parcels: usize,
    read_bytes: u64,
    written_bytes: u64,
    combined_bytes: u64,
    written: Vec<String>,
    removed: Vec<String>,
}

impl Convert {
    /// Converts. At any moment the old chunk files are whole, or the new ones are.
    ///
    /// # Errors
    /// A parcel is not whole, too much is lost, no conversion keeps the data and --out is missing, or new files cannot be
    /// written.
    pub fn run(self) -> anyhow::Result<()> {
        let parcels = self.parts.find_all()?;
        let done = if self.copy { None } else { self.in_place(&parcels)? };
        let done = match done {
            Some(done) => done,
            None => self.anew(&parcels)?,
        };
        done.print(self.code, self.json)?;
        Ok(())
    }

    /// New parity over data that stays; `None` if nothing is better than encoding anew.
    fn in_place(&self, parcels: &[Parcel]) -> anyhow::Result<Option<Done>> {
        let from = parcels[0].spec();
        if from == self.code && parcels.iter().any(Parcel::has_superfluous) {
            let mut removed = Vec::new();
            for parcel in parcels {
                removed.extend(parcel.remove_superfluous()?);
            }
            let (parcels, written) = (parcels.len(), Vec::new());
            let way = "finished";
            return Ok(Some(Done {
                way,
                from,
                parcels,
                read_bytes: 0,
                written_bytes: 0,
                combined_bytes: 0,
                written,
                removed,
            }));
        }
        let Some(conversion) = Conversion::plan(parcels, self.code, random_id()?)? else { return Ok(None) };
        let into = self.parts.directory_of_new(self.out.as_deref())?;
        let progress = Progress::bytes("converting", conversion.chunk_bytes());
        let converted = conversion.run(&into, &mut |bytes| progress.step(bytes));
        progress.end();
        let converted = converted?;
        Ok(Some(Done {
            way: "in place",
            from,
            parcels: parcels.len(),
            read_bytes: converted.read_bytes,
            written_bytes: converted.written_bytes,
            combined_bytes: converted.combined_bytes,
            written: converted.written,
            removed: converted.removed,
        }))
    }

    /// Decodes and encodes at once: nothing but a row of each code is in between, and nothing gets a name before the
    /// file's hash was found right.
    fn anew(&self, parcels: &[Parcel]) -> anyhow::Result<Done> {
        let ([parcel], Some(out)) = (parcels, &self.out) else { bail!(self.why_not(parcels)?) };
        let Some(old) = parcel.manifest() else {
            let first = &parcel.members()[0];
            bail!("the parcels were merged: convert them back first, with --code {}", first.spec);
        };
        let out = HostDirectory::make(out).with_context(|| out.display().to_string())?;
        let mut encoder = begin(&out, self.code, &old.name, old.file_bytes)?;
        let progress = Progress::bytes("converting", old.file_bytes);
        let decoded = parcel.decode(&mut |piece| encoder.write(piece), &mut |bytes| progress.step(bytes));
        decoded.map_err(super::exit)?;
        progress.say("syncing");
        let manifest = encoder.finish()?;
        progress.end();
        let (layout, out) = (manifest.layout(), out.path());
        let shape = layout.shape;
        let name = |chunk| claystone_parcel::chunk_file_name(&manifest.name, chunk, shape.chunks());
        Ok(Done {
            way: "anew",
            from: parcel.spec(),
            parcels: 1,
            read_bytes: parcel.read_bytes(),
            written_bytes: layout.chunk_bytes() * u64::from(shape.chunks()),
            combined_bytes: layout.chunk_bytes() * u64::from(shape.data) * u64::from(shape.parity),
            written: (0..shape.chunks()).map(|chunk| out.join(name(chunk)).display().to_string()).collect(),
            removed: Vec::new(),
        })
    }
}

impl Convert {
    /// Why nothing is done, and what to do.
    fn why_not(&self, parcels: &[Parcel]) -> anyhow::Result<String> {
        let (from, to) = (parcels[0].spec(), self.code);
        let count = counted(parcels.len() as u64, "parcel", "parcels");
        let file = |parcel: &Parcel| {
            parcel.files().next().map_or_else(|| parcel.members()[0].name.clone(), |file| file.path())
        };
        let files = || parcels.iter().map(file).collect::<Vec<_>>().join(", ");
        let anew = match (parcels.len(), &self.out) {
            (1, _) => "encode it anew, with --out DIR".to_owned(),
            (_, None) => format!("encode one at a time anew, with --out DIR and a file of it: {}", files()),
            (_, Some(_)) => format!("encode one at a time anew, by naming a file of it: {}", files()),
        };
        if self.copy {
            return Ok(format!("--copy encodes one parcel, and {count} are there: {anew}"));
        }
        Ok(match Conversion::obstacle(parcels, to)? {
            Obstacle::Mixed => format!("the {count} are of several codes: name those of one, or {anew}"),
            Obstacle::Merged { members } => match parcels {
                [one] if one.manifest().is_some() => {
                    format!("the parcel was converted before: convert it back first, with --code {members}, or {anew}")
                }
                [_] => format!("the parcels were merged: convert them back first, with --code {members}"),
                _ => {
                    let merged = parcels.iter().find(|parcel| parcel.spec() != parcel.members()[0].spec);
                    let merged = file(merged.unwrap_or(&parcels[0]));
                    format!("{merged} was converted before: convert it back first, by itself, with --code {members}")
                }
            },
            Obstacle::Count { parcels } => format!(
                "a conversion of {from} to {to} takes {} and keeps the data, with {count} there is none: name as many, or \
                 {anew}",
                counted(parcels.into(), "parcel", "parcels"),
            ),
            Obstacle::Split { from: sources, into } => format!(
                "{} of {from} would become {into} of {to}, and no file is cut into several parcels: {anew}",
                counted(sources.into(), "parcel", "parcels"),
            ),
            Obstacle::NoGain => format!("no conversion of {from} to {to} keeps the data: {anew}"),
        })
    }
}

impl Done {
    fn print(&self, to: CodeSpec, json: bool) -> io::Result<()> {
        let Done { way, from, parcels, read_bytes, written_bytes, combined_bytes, written, removed } = self;
        if json {
            return crate::cli::print_json(&json!({
                "way": way,
                "from": from.to_string(),
                "to": to.to_string(),
                "parcels": parcels,
                "read_bytes": read_bytes,
                "written_bytes": written_bytes,
                "combined_bytes": combined_bytes,
                "written": written,
                "removed": removed,
            }));
        }
        let how = match *way {
            "in place" => "data stays where it is",
            "anew" => "encoded anew, the old chunk files stay",
            _ => "what was begun is finished",
        };
        writeln!(output(), "{parcels} x {from} -> {to}: {how}")?;
        writeln!(
            output(),
            "read {}, written {} in {}, combined {}; {} removed",
            bytes(*read_bytes),
            bytes(*written_bytes),
            counted(written.len() as u64, "file", "files"),
            bytes(*combined_bytes),
            counted(removed.len() as u64, "old file", "old files")
        )
    }
}
