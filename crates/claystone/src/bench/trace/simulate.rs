//! A trace's updates of parity in tables: by length of page and by reserve, what is kept for it, and what a store gains that
//! codes what was written least.
//!
//! Invariants:
//! 1. Figures are counts; only `requests_per_s` is measured, and the bytes of a stripe's records, in a database made for it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, ensure};
use claystone_model::trace::Request;
use claystone_model::{
    Bound, Folded, MetadataShare, PageUpdates, Space, StripeRecords, StripeShape, chunk_writes, coded_for_reserve,
    coldest_chunks, folded_updates, page_updates, writes_within,
};

use super::records::stripe_record_bytes;
use super::{Choice, Input, costs_of};
use crate::chart::Lines;
use crate::rows::{Against, Figure};
use crate::table::{Table, bytes};

/// All that was counted.
#[derive(Debug)]
pub struct Simulation {
    input: Input,
    pages: Vec<Length>,
    /// At each length of page and share of data.
    metadata: Vec<Metadata>,
    dynamic: Dynamic,
    sums_percent: f64,
    seconds: f64,
}

/// One length of page.
#[derive(Debug)]
struct Length {
    page_bytes: u32,
    /// In pages, ascending.
    reserves: Vec<u64>,
    counts: PageUpdates,
    /// With each of the reserves.
    folded: Vec<Folded>,
    /// With a log for a share of the data, in percent, full before anything is merged.
    full: Vec<(f64, Folded)>,
}

#[derive(Debug)]
struct Metadata {
    page_bytes: u32,
    reserve_percent: f64,
    share: MetadataShare,
}

/// A store that codes what was written least in the first six sevenths of the trace, and keeps the rest replicated; counted
/// is the last seventh.
#[derive(Debug)]
struct Dynamic {
    page_bytes: u32,
    chunks: u64,
    /// Updates without a reserve, in so many coded chunks.
    base: (u64, u64),
    /// The same in rows of stripes.
    base_rows: u64,
    with_reserve: Vec<DynamicReserve>,
}

#[derive(Debug)]
struct DynamicReserve {
    percent: f64,
    coded_percent: f64,
    coded_chunks: u64,
    /// In the chunks that are coded to pay for the reserve, if it were not used.
    unmerged: u64,
    /// Page by page, and rows stripe by stripe.
    updates: u64,
    row_updates: u64,
}

/// Counts a trace.
///
/// # Errors
/// It cannot be read; the code has no parity; no database can be made.
pub async fn run(choice: &Choice) -> anyhow::Result<Simulation> {
    ensure!(choice.updated().is_some(), "{} has no parity that each write would update", choice.redundancy);
    let shape = choice.shape(choice.page_bytes)?;
    let input = Input::read(choice, shape.stripe_bytes())?;
    let record_bytes = stripe_record_bytes(choice).await?;
    let begin = Instant::now();
    let pages = lengths(choice, &input)?;
    let seconds = begin.elapsed().as_secs_f64();
    let records = StripeRecords { stripe_bytes: shape.stripe_bytes(), record_bytes };
    let metadata = pages.iter().flat_map(|length| {
        let of = |(percent, full): &(f64, Folded)| {
            let share = MetadataShare::of(&full.kept_most, records, input.device_bytes);
            Metadata { page_bytes: length.page_bytes, reserve_percent: *percent, share }
        };
        length.full.iter().map(of)
    });
    let metadata = metadata.collect();
    let dynamic = dynamic(choice, &input)?;
    // Each chunk has a head of whole sectors with 4 bytes for each sector of content.
    let head = (64 + 4 * shape.chunk_bytes / 4096).next_multiple_of(4096);
    let sums_percent = 100.0 * (head * u64::from(shape.data + shape.parity)) as f64 / shape.stripe_bytes() as f64;
    Ok(Simulation { input, pages, metadata, dynamic, sums_percent, seconds })
}

/// One pass over the trace.
#[derive(Debug, Clone, Copy)]
enum Pass {
    /// Page by page, all reserves at once.
    Pages,
    /// Stripe by stripe, one of the reserves.
    Stripes(usize),
    /// The same with a log for a share of the data, in percent.
    Log(f64),
}

enum Counted {
    Pages(PageUpdates),
    Stripes(Folded),
}

/// Counts all lengths of page and reserves, several at a time.
fn lengths(choice: &Choice, input: &Input) -> anyhow::Result<Vec<Length>> {
    let mut lengths: Vec<(StripeShape, Vec<u64>)> = Vec::new();
    let mut passes: Vec<(usize, Pass)> = Vec::new();
    for (at, page_bytes) in PAGES_BYTES.into_iter().enumerate() {
        let shares = RESERVE_PERCENTS.map(|percent| reserve_pages(input, page_bytes, percent));
        let mut reserves: Vec<u64> = RESERVES.into_iter().chain(shares).collect();
        reserves.sort_unstable();
        reserves.dedup();
        let stripes = (0..reserves.len()).map(Pass::Stripes);
        let is_wanted = |percent: &f64| page_bytes == FULL_PAGE_BYTES || *percent == PAPER_BESIDE;
        let logs = RESERVE_PERCENTS.into_iter().filter(is_wanted).map(Pass::Log);
        passes.extend([Pass::Pages].into_iter().chain(stripes).chain(logs).map(|pass| (at, pass)));
        lengths.push((choice.shape(page_bytes)?, reserves));
    }
    let next = AtomicUsize::new(0);
    let counted: Vec<Mutex<Option<Counted>>> = passes.iter().map(|_| Mutex::new(None)).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(at) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|at| *at < passes.len()) {
                    let (length, pass) = passes[at];
                    let (shape, reserves) = &lengths[length];
                    let result = carry_out(choice, input, *shape, reserves, pass);
                    *counted[at].lock().expect("nobody panics here") = Some(result);
                }
            });
        }
    });
    let mut done: Vec<Length> = Vec::new();
    for ((length, pass), counted) in passes.into_iter().zip(counted) {
        let counted = counted.into_inner().ok().flatten().context("a count panicked")?;
        match (pass, counted) {
            (Pass::Pages, Counted::Pages(counts)) => {
                let (shape, reserves) = lengths[length].clone();
                done.push(Length {
                    page_bytes: shape.page_bytes,
                    reserves,
                    counts,
                    folded: Vec::new(),
                    full: Vec::new(),
                });
            }
            (Pass::Stripes(_), Counted::Stripes(folded)) => done[length].folded.push(folded),
            (Pass::Log(percent), Counted::Stripes(full)) => done[length].full.push((percent, full)),
            _ => unreachable!("each pass has its kind of result"),
        }
    }
    Ok(done)
}

fn carry_out(choice: &Choice, input: &Input, shape: StripeShape, reserves: &[u64], pass: Pass) -> Counted {
    let (requests, device_bytes) = (&input.requests, input.device_bytes);
    let bound = match pass {
        Pass::Pages => return Counted::Pages(page_updates(requests, shape.page_bytes, reserves)),
        Pass::Stripes(at) => Bound::Pages(reserves[at]),
        Pass::Log(percent) => {
            let bytes = (percent / 100.0 * device_bytes as f64) as u64;
            Bound::Log {
                bytes,
                merge_from_percent: 100,
                segment_bytes: bytes / SEGMENTS,
                copies: choice.copies().into(),
            }
        }
    };
    Counted::Stripes(folded_updates(requests, device_bytes, shape, bound, &costs_of(device_bytes, shape)))
}

/// The pages of a reserve that is a share of the data.
fn reserve_pages(input: &Input, page_bytes: u32, percent: f64) -> u64 {
    ((percent / 100.0 * input.device_bytes as f64 / f64::from(page_bytes)) as u64).max(1)
}

// Source: [drc-dpu §real-world workloads]
fn dynamic(choice: &Choice, input: &Input) -> anyhow::Result<Dynamic> {
    let shape = choice.shape(choice.page_bytes)?;
    let coded = f64::from(shape.data + shape.parity) / f64::from(shape.data);
    let space = Space { replicated: choice.copies().into(), coded };
    let first_us = input.requests.iter().map(|request| request.at_us).min().unwrap_or(0);
    let day_us = first_us + (input.span_us as f64 * LEARNT) as u64;
    let (learnt, played): (Vec<_>, Vec<_>) = input.requests.iter().copied().partition(|request| request.at_us < day_us);
    let writes = chunk_writes(&learnt, input.device_bytes, shape.chunk_bytes);
    let chunks = writes.len() as u64;
    let within = |share: f64| {
        let count = ((share * writes.len() as f64).round() as usize).min(writes.len());
        let coded = coldest_chunks(&writes, count);
        (writes_within(&played, shape.chunk_bytes, &coded), count as u64)
    };
    let (played_base, coded_base) = within(CODED);
    let base = page_updates(&played_base, shape.page_bytes, &[]).page_writes;
    let fold = |played: &[Request], reserve: u64| {
        let costs = costs_of(input.device_bytes, shape);
        folded_updates(played, input.device_bytes, shape, Bound::Pages(reserve), &costs)
    };
    let base_rows = fold(&played_base, 1).row_writes;
    let with_reserve = RESERVE_PERCENTS.map(|percent| {
        let reserve_bytes = (percent / 100.0 * input.device_bytes as f64) as u64;
        let share = (CODED + coded_for_reserve(reserve_bytes, input.device_bytes, space)).min(1.0);
        let (played, coded_chunks) = within(share);
        let reserve = reserve_pages(input, shape.page_bytes, percent);
        let counts = page_updates(&played, shape.page_bytes, &[reserve]);
        DynamicReserve {
            percent,
            coded_percent: 100.0 * share,
            coded_chunks,
            unmerged: counts.page_writes,
            updates: counts.updates[0],
            row_updates: fold(&played, reserve).row_updates,
        }
    });
    Ok(Dynamic {
        page_bytes: shape.page_bytes,
        chunks,
        base: (base, coded_base),
        base_rows,
        with_reserve: with_reserve.into(),
    })
}

impl Simulation {
    /// The figures, each a row.
    pub fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        let mut figure = |case: &str, metric: &str, value: f64, unit, against: Option<(&str, f64)>| {
            figures.push(Figure {
                bench: "trace",
                case: case.to_owned(),
                metric: metric.to_owned(),
                value,
                unit,
                against: against.map(|(name, value)| Against { name: name.to_owned(), value }),
            });
        };
        let passes: usize = self.pages.iter().map(|length| length.reserves.len() + length.full.len() + 1).sum();
        let requests = self.input.requests.len() as f64;
        figure("reading", "requests_per_s", requests / self.input.read_seconds, "/s", None);
        figure("simulating", "requests_per_s", requests / self.seconds, "/s", None);
        figure("simulating", "passes", passes as f64, "", None);
        for length in &self.pages {
            let page = bytes(length.page_bytes.into()).replace(".0 ", "");
            let counts = &length.counts;
            figure(&page, "page_writes", counts.page_writes as f64, "", None);
            figure(&page, "pages_written", counts.pages as f64, "", None);
            figure(&page, "partial_writes_percent", percent(counts.partial_writes, counts.writes), "%", None);
            figure(&page, "read_modify_writes", counts.partial_pages as f64, "", None);
            for ((reserve, updates), folded) in length.reserves.iter().zip(&counts.updates).zip(&length.folded) {
                let case = format!("{page} reserve {reserve} pages");
                let naive = Some(("naive", counts.page_writes as f64));
                figure(&case, "parity_updates", *updates as f64, "", naive);
                let naive = Some(("naive", folded.row_writes as f64));
                figure(&case, "parity_updates_by_stripe", folded.row_updates as f64, "", naive);
            }
        }
        for Metadata { page_bytes, reserve_percent, share } in &self.metadata {
            let page = bytes(u64::from(*page_bytes)).replace(".0 ", "");
            let case = format!("metadata {page} reserve {reserve_percent}%");
            for (metric, share) in [
                ("metadata_percent", share.all()),
                ("metadata_of_writes_percent", share.writes),
                ("metadata_of_merges_percent", share.merges),
                ("metadata_of_map_percent", share.map),
                ("metadata_of_stripes_percent", share.stripes),
            ] {
                figure(&case, metric, 100.0 * share, "%", None);
            }
        }
        figure("metadata", "checksums_percent", self.sums_percent, "%", None);
        let (base, chunks) = self.dynamic.base;
        figure("last seventh", "naive_updates_per_coded_chunk", each(base, chunks), "", None);
        for row in &self.dynamic.with_reserve {
            let case = format!("last seventh reserve {}%", row.percent);
            figure(&case, "coded_percent", row.coded_percent, "%", None);
            let against = Some(("naive", base as f64));
            figure(&case, "parity_updates", row.updates as f64, "", against);
            let against = Some(("naive", self.dynamic.base_rows as f64));
            figure(&case, "parity_updates_by_stripe", row.row_updates as f64, "", against);
            figure(&case, "updates_per_coded_chunk", each(row.updates, row.coded_chunks), "", None);
        }
        figures
    }

    /// The tables, each under its heading.
    pub fn for_people(&self) -> Vec<(String, String)> {
        let requests = self.input.requests.len() as f64;
        let (reading, counting) = (requests / self.input.read_seconds, requests / self.seconds);
        let sums = self.sums_percent;
        vec![
            ("The trace".to_owned(), self.input.for_people().to_string()),
            (
                "Updates of parity that a reserve for diffs leaves, of those without one: pages one by one, as in the \
                 paper | stripe by stripe, as a merge folds them"
                    .to_owned(),
                self.updates_table().to_string(),
            ),
            ("Writes of parts of pages".to_owned(), self.partial_table().to_string()),
            (
                format!(
                    "Metadata when the reserve is full, in per cent of the data, all copies of the log counted (checksums of \
                     sectors, not counted: {sums:.2} %)"
                ),
                self.metadata_table().to_string(),
            ),
            (
                format!(
                    "Coding what was written least in the first six sevenths of the trace, {:.0} % of {} chunks and what \
                     pays for the reserve; updates of parity in the last seventh, pages of {}",
                    100.0 * CODED,
                    self.dynamic.chunks,
                    bytes(self.dynamic.page_bytes.into())
                ),
                self.dynamic_table().to_string(),
            ),
            (format!("{reading:.0} requests a second read, {counting:.0} counted through all tables"), String::new()),
        ]
    }

    fn updates_table(&self) -> Table {
        let names = self.pages.iter().map(|length| bytes(length.page_bytes.into()).replace(".0", ""));
        let heading: Vec<String> = ["reserve".to_owned()]
            .into_iter()
            .chain(names.clone())
            .chain(names.map(|name| format!("| {name}")))
            .collect();
        let mut table = Table::new(&heading.iter().map(String::as_str).collect::<Vec<_>>());
        let mut row = |name: String, reserve: &dyn Fn(&Length) -> u64| {
            let at = |length: &Length| {
                let wanted = reserve(length);
                length.reserves.iter().position(|pages| *pages == wanted).expect("it was counted")
            };
            let [a, b, c, d] = [0, 1, 2, 3].map(|page| {
                let length = &self.pages[page];
                format!("{:.1} %", percent(length.counts.updates[at(length)], length.counts.page_writes))
            });
            let [e, f, g, h] = [0, 1, 2, 3].map(|page| {
                let folded = &self.pages[page].folded[at(&self.pages[page])];
                format!("| {:.1} %", percent(folded.row_updates, folded.row_writes))
            });
            table.row([name, a, b, c, d, e, f, g, h]);
        };
        for reserve in RESERVES {
            row(format!("{reserve} pages"), &|_| reserve);
        }
        for share in RESERVE_PERCENTS {
            row(format!("{share} % of the data"), &|length| reserve_pages(&self.input, length.page_bytes, share));
        }
        table
    }

    fn partial_table(&self) -> Table {
        let mut table =
            Table::new(&["page", "page writes", "pages", "writes with parts", "read-modify-writes", "for each write"]);
        for Length { page_bytes, counts, .. } in &self.pages {
            table.row([
                bytes(u64::from(*page_bytes)),
                counts.page_writes.to_string(),
                counts.pages.to_string(),
                format!("{:.1} %", percent(counts.partial_writes, counts.writes)),
                counts.partial_pages.to_string(),
                format!("{:.2}", each(counts.partial_pages, counts.writes)),
            ]);
        }
        table
    }

    fn metadata_table(&self) -> Table {
        let mut table = Table::new(&["page", "reserve", "writes", "merges", "map", "stripes", "all", "the paper's"]);
        for Metadata { page_bytes, reserve_percent, share } in &self.metadata {
            let [writes, merges, map, stripes, all] =
                [share.writes, share.merges, share.map, share.stripes, share.all()]
                    .map(|share| format!("{:.4}", 100.0 * share));
            let paper = PAGES_BYTES.iter().position(|page| page == page_bytes).map(|at| PAPER_PERCENTS[at]);
            let paper =
                paper.filter(|_| *reserve_percent == PAPER_BESIDE).map_or(String::new(), |paper| paper.to_string());
            table.row([
                bytes(u64::from(*page_bytes)),
                format!("{reserve_percent} %"),
                writes,
                merges,
                map,
                stripes,
                all,
                paper,
            ]);
        }
        table
    }

    fn dynamic_table(&self) -> Table {
        let mut table = Table::new(&[
            "reserve",
            "coded",
            "updates",
            "for each chunk",
            "with the reserve",
            "left",
            "left by stripe",
        ]);
        let (base, chunks) = self.dynamic.base;
        let coded = format!("{:.1} %", 100.0 * CODED);
        let none = String::new;
        let each_chunk = |updates, chunks| format!("{:.2}", each(updates, chunks));
        table.row(["none".to_owned(), coded, base.to_string(), each_chunk(base, chunks), none(), none(), none()]);
        let left = |updates, base| if base == 0 { "-".to_owned() } else { format!("{:.1} %", percent(updates, base)) };
        for row in &self.dynamic.with_reserve {
            table.row([
                format!("{} %", row.percent),
                format!("{:.1} %", row.coded_percent),
                row.unmerged.to_string(),
                each_chunk(row.updates, row.coded_chunks),
                row.updates.to_string(),
                left(row.updates, base),
                left(row.row_updates, self.dynamic.base_rows),
            ]);
        }
        table
    }

    /// Updates against the reserve, as SVG.
    ///
    /// # Errors
    /// Nothing was written.
    pub fn plot(&self) -> anyhow::Result<String> {
        let mut lines = Vec::new();
        for (name, is_folded) in [("page by page", false), ("by stripe", true)] {
            for length in &self.pages {
                let share = |at: usize| match is_folded {
                    true => percent(length.folded[at].row_updates, length.folded[at].row_writes),
                    false => percent(length.counts.updates[at], length.counts.page_writes),
                };
                let points = length.reserves.iter().enumerate().map(|(at, reserve)| (*reserve as f64, share(at)));
                let page = bytes(length.page_bytes.into()).replace(".0", "");
                lines.push((format!("pages of {page}, {name}"), points.collect()));
            }
        }
        let (title, x, y) = (
            "Updates of parity that a reserve for diffs leaves",
            "reserve, in pages",
            "updates left of those without one, per cent",
        );
        Lines { title, x, y, lines }.draw()
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * each(part, whole)
}

fn each(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

const PAGES_BYTES: [u32; 4] = [1024, 2048, 4096, 8192];
/// In pages.
const RESERVES: [u64; 5] = [64, 256, 1024, 4096, 16384];
/// Of the data.
const RESERVE_PERCENTS: [f64; 5] = [0.1, 0.5, 1.0, 2.0, 5.0];
/// What is published for these lengths of page; for which reserve is not said.
// Source: [drc-dpu §metadata capacity consumption]
const PAPER_PERCENTS: [f64; 4] = [0.097, 0.061, 0.042, 0.033];
const PAPER_BESIDE: f64 = 1.0;
/// The page whose metadata are counted with each reserve.
const FULL_PAGE_BYTES: u32 = 4096;
/// The share of chunks that is coded without a reserve.
const CODED: f64 = 0.2;
/// The share of a trace's time in which it is learnt what is written: six days of a week.
const LEARNT: f64 = 6.0 / 7.0;
const THREADS_MAX: usize = 8;
/// Segments of a log, as volumes have them by default.
const SEGMENTS: u64 = 16;
