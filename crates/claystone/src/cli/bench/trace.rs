//! `claystone bench trace`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use claystone_meta::Redundancy;
use claystone_model::trace::TraceFormat;
use claystone_volume::comparators::UpdateMethod;

use crate::bench::trace::replay::{self, Pace, Speed};
use crate::bench::trace::{Choice, simulate};
use crate::chart::Picture;
use crate::cli::disk::Size;
use crate::output::output;
use crate::rows::{self, Goals, Row};

#[derive(Debug, clap::Args)]
pub struct Trace {
    /// Requests of a block device, plain or compressed by gzip [default: an hour of requests made here]
    file: Option<PathBuf>,
    /// Only count updates of parity and metadata, in tables; without it, replay the trace on a volume
    #[arg(long)]
    simulate: bool,
    /// msr, tencent or cloudphysics [default: as the first line says]
    #[arg(long)]
    format: Option<TraceFormat>,
    /// The redundancy of the volume, as for `volume create`; with --simulate one code with parity: rs:K+M, lrc:K+L+G or pc:RxC
    #[arg(long, default_value = "rs:4+2")]
    redundancy: Redundancy,
    /// To compare with: replay on a scratch volume, written in place by `naive`, `parity-log`, `speculative` or `replicas` (of
    /// `replica:N`)
    #[arg(long, value_name = "METHOD", conflicts_with = "simulate")]
    scratch: Option<UpdateMethod>,
    /// Bytes of a page: 1k, 2k, 4k or 8k
    #[arg(long, default_value = "4k")]
    page: Size,
    /// Only requests of the volume with this number
    #[arg(long, value_name = "ID")]
    volume: Option<u64>,
    /// Only so many requests from the beginning
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Replay at the trace's times, so many times as fast (1x, 50x), or each request when one before it has ended (max)
    #[arg(long, default_value = "max")]
    speed: Speed,
    /// Requests at once at the speed `max`
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: u16,
    /// Bytes of the log that may wait to be merged, or of a scratch volume's to be replayed into parity, in a replay
    #[arg(long, default_value = "64M")]
    reserve: Size,
    /// The longest volume to replay on: what the trace touches beyond it is wrapped around
    #[arg(long, default_value = "1G", value_name = "BYTES")]
    size: Size,
    /// Write a plot of updates against the reserve to this .svg or .png; with --simulate
    #[arg(long, value_name = "FILE", requires = "simulate")]
    plot: Option<PathBuf>,
    /// Where to make the disks [default: the system's place for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

impl Trace {
    pub async fn run(self) -> anyhow::Result<()> {
        let page_bytes = match self.page.0 {
            bytes @ (1024 | 2048 | 4096 | 8192) => bytes as u32,
            _ => bail!("--page: pages are 1k, 2k, 4k or 8k long"),
        };
        ensure!(self.limit != Some(0), "--limit: no request is left");
        let choice = Choice {
            path: self.file,
            format: self.format,
            volume: self.volume,
            limit: self.limit,
            redundancy: self.redundancy,
            scratch: self.scratch,
            page_bytes,
            directory: self.dir,
        };
        let plot = self.plot.map(|path| anyhow::Ok((Picture::of(&path)?, path))).transpose()?;
        let goals = Goals::built_in();
        if self.simulate {
            let simulation = simulate::run(&choice).await?;
            if let Some((picture, path)) = plot {
                fs::write(&path, picture.encode(simulation.plot()?)?).with_context(|| path.display().to_string())?;
            }
            let rows: Vec<Row> = simulation.figures().into_iter().map(|figure| goals.row(figure)).collect();
            if self.json {
                rows::print(&rows, true)?;
            } else {
                for (heading, table) in simulation.for_people() {
                    writeln!(output(), "{heading}\n\n{table}")?;
                }
            }
            let missed: Vec<String> = rows.iter().filter(|row| row.is_missed()).map(Row::name).collect();
            ensure!(missed.is_empty(), "a goal was missed: {}", missed.join(", "));
            return Ok(());
        }
        let depth = self.depth.into();
        let pace = Pace { speed: self.speed, depth, reserve_bytes: self.reserve.0, device_bytes_max: self.size.0 };
        let replay = replay::run(&choice, &pace).await?;
        if !self.json {
            writeln!(output(), "{}", replay.for_people())?;
        }
        let rows: Vec<Row> = replay.figures().into_iter().map(|figure| goals.row(figure)).collect();
        super::print(&rows, self.json)
    }
}
