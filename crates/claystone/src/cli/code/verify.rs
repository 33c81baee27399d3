//! `claystone code verify`.

use std::fmt::Write as _;

use claystone_parcel::{ChunkDamage, ManifestFile, Oddity, Parcel, Report, Verdict};
use serde_json::json;

use super::Exit;
use super::place::Parts;
use crate::output::output;
use crate::progress::Progress;
use crate::table::{bytes, counted};

/// Read every sector and say exactly what is damaged. Exit code 3: it can be repaired; 4: too much is lost.
#[derive(Debug, clap::Args)]
pub struct Verify {
    #[command(flatten)]
    parts: Parts,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

impl Verify {
    /// Verifies.
    ///
    /// # Errors
    /// No parcel is found, or it is not whole.
    pub fn run(self) -> anyhow::Result<()> {
        let parcel = self.parts.find()?;
        let progress = Progress::bytes("verifying", parcel.file_bytes());
        let report = parcel.verify(&mut |bytes| progress.step(bytes));
        progress.end();
        if self.json {
            crate::cli::print_json(&for_machines(&parcel, &report))?;
        } else {
            write!(output(), "{}", for_people(&parcel, &report))?;
        }
        let (code, message) = match report.verdict() {
            Verdict::Whole => return Ok(()),
            Verdict::Repairable => {
                let in_the_way = parcel.in_the_way(&self.parts.directory_of_new(None)?)?;
                (Exit::REPAIRABLE, repairable(&self.parts.typed(), &in_the_way))
            }
            Verdict::TooMuchLost => (Exit::LOST, lost(&parcel, &report)),
            Verdict::WrongHash => {
                (Exit::LOST, "every checksum passes, and the file's hash is not that of the encoded file".to_owned())
            }
        };
        Err(Exit { code, message }.into())
    }
}

/// What to do: a repair writes nothing over that has the name of a missing file.
fn repairable(typed: &str, in_the_way: &[String]) -> String {
    let first = match in_the_way {
        [] => String::new(),
        names => format!("move {} away first, then ", names.join(" and ")),
    };
    format!("damaged; {first}`claystone code repair {typed}` mends all of it")
}

fn lost(parcel: &Parcel, report: &Report) -> String {
    format!(
        "too much is lost: up to {} of {} cannot be recovered, from byte {} on; {} may lose any {} of its chunks",
        bytes(report.lost_bytes.min(parcel.file_bytes())),
        bytes(parcel.file_bytes()),
        report.first_lost_byte.unwrap_or(0),
        parcel.spec(),
        parcel.spec().tolerance()
    )
}

/// What was found, in words.
pub fn for_people(parcel: &Parcel, report: &Report) -> String {
    let chunks = parcel.layout().shape.chunks();
    let names: Vec<&str> = parcel.members().iter().map(|member| member.name.as_str()).collect();
    let mut text = format!(
        "{}: {} under {}, parcel {}\n{} of {chunks} chunk files are whole; {} were read\n",
        names.join(", "),
        bytes(parcel.file_bytes()),
        parcel.spec(),
        parcel.id(),
        usize::from(chunks) - report.damage.len(),
        bytes(report.read_bytes)
    );
    let (there, missing): (Vec<_>, Vec<_>) = report.damage.iter().partition(|damage| damage.path.is_some());
    for damage in there {
        let _ = writeln!(text, "chunk {}: {}", damage.chunk, in_words(damage));
    }
    let missing: Vec<u16> = missing.iter().map(|damage| damage.chunk).collect();
    match missing.len() {
        0 => (),
        1 => {
            let _ = writeln!(text, "chunk {}: missing", missing[0]);
        }
        count => {
            let _ = writeln!(text, "{count} chunks are missing: {}", ranges(&missing));
        }
    }
    let manifest = in_one_word(report.manifest_file);
    if report.manifest_file != ManifestFile::Whole {
        let _ = writeln!(text, "the manifest's own file is {manifest} (every chunk file holds a copy)");
    }
    for oddity in &report.oddities {
        let (path, what) = told(oddity);
        let _ = writeln!(text, "{path} {what}");
    }
    match report.is_hash_right {
        Some(true) => text.push_str("the file's hash is as it was when it was encoded\n"),
        Some(false) => text.push_str("THE FILE'S HASH IS NOT what it was when it was encoded\n"),
        None => (),
    }
    text
}

fn in_one_word(manifest: ManifestFile) -> &'static str {
    match manifest {
        ManifestFile::Whole => "whole",
        ManifestFile::Damaged => "damaged",
        ManifestFile::Missing => "missing",
    }
}

/// The path of what is odd, and what is odd with it.
fn told(oddity: &Oddity) -> (&str, String) {
    match oddity {
        Oddity::Foreign { path, holds } => (path, format!("holds {holds}: move it away")),
        Oddity::Longer { path, bytes, expected_bytes } => {
            let (one, many) = ("byte behind its end, which means nothing", "bytes behind its end, which mean nothing");
            (path, format!("has {}", counted(bytes - expected_bytes, one, many)))
        }
        Oddity::Unreadable { path, why } => (path, format!("cannot be read: {why}")),
    }
}

/// Ascending numbers, those that follow each other as one.
fn ranges(numbers: &[u16]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let run = |run: &[u16]| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => unreachable!("a run is not empty"),
    };
    runs.map(run).collect::<Vec<_>>().join(", ")
}

fn in_words(damage: &ChunkDamage) -> String {
    let Some(path) = &damage.path else { return "missing".to_owned() };
    let mut words = Vec::new();
    if let Some(head) = damage.head {
        words.push(format!("head damaged ({head})"));
    }
    if damage.file_bytes < damage.expected_bytes {
        words.push(format!("cut off: {} of {} bytes", damage.file_bytes, damage.expected_bytes));
    }
    if damage.sectors > 0 {
        let ranges: Vec<String> = damage
            .first_sectors
            .iter()
            .map(|range| match range.end - range.start {
                1 => range.start.to_string(),
                _ => format!("{}-{}", range.start, range.end - 1),
            })
            .collect();
        let told: u64 = damage.first_sectors.iter().map(|range| range.end - range.start).sum();
        let more = if told < damage.sectors { ", ..." } else { "" };
        let sectors = counted(damage.sectors, "damaged sector", "damaged sectors");
        words.push(format!("{sectors} of 4 KiB: {}{more}", ranges.join(", ")));
    }
    format!("{path}: {}", words.join("; "))
}

fn for_machines(parcel: &Parcel, report: &Report) -> serde_json::Value {
    let names: Vec<&str> = parcel.members().iter().map(|member| member.name.as_str()).collect();
    let damage: Vec<_> = report
        .damage
        .iter()
        .map(|damage| {
            json!({
                "chunk": damage.chunk,
                "file": damage.path,
                "head": damage.head,
                "file_bytes": damage.file_bytes,
                "expected_bytes": damage.expected_bytes,
                "sectors": damage.sectors,
                "first_sectors": damage.first_sectors.iter().map(|range| [range.start, range.end]).collect::<Vec<_>>(),
            })
        })
        .collect();
    let odd = report.oddities.iter().map(told);
    let oddities: Vec<_> = odd.map(|(path, what)| json!({ "file": path, "what": what })).collect();
    let verdict = match report.verdict() {
        Verdict::Whole => "whole",
        Verdict::Repairable => "repairable",
        Verdict::TooMuchLost => "too_much_lost",
        Verdict::WrongHash => "wrong_hash",
    };
    json!({
        "name": names.join(", "),
        "code": parcel.spec().to_string(),
        "parcel": parcel.id().to_string(),
        "file_bytes": parcel.file_bytes(),
        "verdict": verdict,
        "damage": damage,
        "lost_bytes": report.lost_bytes,
        "first_lost_byte": report.first_lost_byte,
        "hash_is_right": report.is_hash_right,
        "manifest_file": in_one_word(report.manifest_file),
        "has_manifest_file": report.manifest_file == ManifestFile::Whole,
        "oddities": oddities,
        "read_bytes": report.read_bytes,
    })
}
