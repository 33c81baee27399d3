//! A trace in memory: of a file, plain or compressed by gzip, or made here.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, ensure};
use claystone_model::side_by_side;
use claystone_model::trace::{Request, Requests, TraceFormat};
use flate2::bufread::MultiGzDecoder;

use super::{Choice, made};
use crate::table::{Table, bytes, seconds};

/// A trace, laid out on one device.
#[derive(Debug)]
pub struct Input {
    /// How it is written; `None`: it was made here.
    pub format: Option<TraceFormat>,
    /// All requests, in the order of the file.
    pub requests: Vec<Request>,
    /// Bytes of the stripes that they touch: the data.
    pub device_bytes: u64,
    /// From the first request to the last.
    pub span_us: u64,
    /// What it took to read them.
    pub read_seconds: f64,
    volumes: usize,
}

impl Input {
    /// Reads a trace, or makes one, and lays it out.
    ///
    /// # Errors
    /// The file cannot be read; a line is wrong; no request is left.
    pub fn read(choice: &Choice, stripe_bytes: u64) -> anyhow::Result<Input> {
        let begin = Instant::now();
        let (format, mut requests) = match &choice.path {
            Some(path) => {
                let (format, requests) = of_file(choice, path).with_context(|| path.display().to_string())?;
                (Some(format), requests)
            }
            None => (None, made::requests().filter(|request| choice.takes(request)).take(choice.limit()).collect()),
        };
        let read_seconds = begin.elapsed().as_secs_f64();
        ensure!(requests.iter().any(|request| request.bytes > 0), "{}: no request is left", choice.name());
        let mut volumes: Vec<u64> = requests.iter().map(|request| request.volume).collect();
        volumes.sort_unstable();
        volumes.dedup();
        let times = || requests.iter().map(|request| request.at_us);
        let span_us = times().max().unwrap_or(0) - times().min().unwrap_or(0);
        let device_bytes = side_by_side(&mut requests, stripe_bytes);
        Ok(Input { format, requests, device_bytes, span_us, read_seconds, volumes: volumes.len() })
    }

    /// What it is, for people.
    pub fn for_people(&self) -> Table {
        let writes = self.requests.iter().filter(|request| request.is_write);
        let written: u64 = writes.clone().map(|request| u64::from(request.bytes)).sum();
        let mut table = Table::new(&["format", "requests", "writes", "written", "volumes", "time", "stripes touched"]);
        table.row([
            self.format.map_or("made here", TraceFormat::name).to_owned(),
            self.requests.len().to_string(),
            writes.count().to_string(),
            bytes(written),
            self.volumes.to_string(),
            seconds(self.span_us / 1_000_000),
            bytes(self.device_bytes),
        ]);
        table
    }
}

impl Choice {
    fn name(&self) -> String {
        self.path.as_ref().map_or_else(|| "what is made here".to_owned(), |path| path.display().to_string())
    }

    fn takes(&self, request: &Request) -> bool {
        self.volume.is_none_or(|volume| request.volume == volume)
    }

    fn limit(&self) -> usize {
        self.limit.unwrap_or(usize::MAX)
    }
}

/// How a file is written, and its requests.
fn of_file(choice: &Choice, path: &Path) -> anyhow::Result<(TraceFormat, Vec<Request>)> {
    let mut plain = BufReader::with_capacity(BUFFER_BYTES, File::open(path)?);
    let is_compressed = plain.fill_buf()?.starts_with(&GZIP);
    let text: Box<dyn Read> = if is_compressed { Box::new(MultiGzDecoder::new(plain)) } else { Box::new(plain) };
    let mut lines = Requests::new(BufReader::with_capacity(BUFFER_BYTES, text), choice.format);
    let mut requests = Vec::new();
    for request in lines.by_ref() {
        let request = request?;
        if choice.takes(&request) {
            requests.push(request);
        }
        if requests.len() >= choice.limit() {
            break;
        }
    }
    Ok((lines.format().context("there is no request")?, requests))
}

/// What files of gzip begin with.
const GZIP: [u8; 2] = [0x1f, 0x8b];
const BUFFER_BYTES: usize = 1 << 18;
