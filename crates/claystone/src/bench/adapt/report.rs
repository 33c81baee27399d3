//! What was measured, as figures with the paper's beside them, as tables, and as plots.
//!
//! The paper's degraded reads take 16 s under RS(6,3) and 21 s under RS(10,4): 1.25 s for each chunk that is read, and 8.5 s
//! that no code changes. So what it says of latency is less than what codes save in reads: `*_by_paper_time_*` are our counts
//! with its times.

use std::collections::BTreeMap;

use claystone_code::CodeSpec;
use claystone_meta::HeatPolicy;

use super::machine::{Conversion, Copied, PerChunk, Transfers};
use super::replay::Replayed;
use super::simulate::{Keeping, Outcome};
use super::workload::{MADE, Made};
use super::{Kept, SYSTEMS, System};
use crate::chart::Bars;
use crate::rows::{Against, Figure};
use crate::table::{Table, bytes};

/// All that was measured.
#[derive(Debug, Default)]
pub struct Report {
    /// Simulations.
    pub simulated: Vec<Simulated>,
    /// Codes on this machine.
    pub codes: Codes,
    /// Workloads on this machine.
    pub on_machine: Vec<OnMachine>,
}

/// A simulation.
#[derive(Debug)]
pub struct Simulated {
    /// Of what.
    pub workload: String,
    /// How it was kept.
    pub system: System,
    /// Whether the policy's bound held.
    pub bounded: bool,
    /// What came of it.
    pub outcome: Outcome,
}

/// Codes, counted at the stores.
#[derive(Debug, Default)]
pub struct Codes {
    /// Rebuilding each chunk of a stripe.
    pub per_chunk: BTreeMap<CodeSpec, PerChunk>,
    /// Conversions.
    pub conversions: Vec<Conversion>,
}

/// A workload on this machine.
#[derive(Debug)]
pub struct OnMachine {
    /// Which.
    pub workload: String,
    /// How it was kept.
    pub system: System,
    /// What was measured.
    pub replayed: Replayed,
}

/// By how many percent a degraded read costs less than under a code that stays.
struct Gain {
    single: &'static str,
    /// In chunks read.
    chunks: f64,
    /// In simulated time.
    time: f64,
    /// In the time that the paper's cluster would take for those chunks.
    paper_time: f64,
}

impl System {
    fn policy(&self) -> Option<HeatPolicy> {
        match self.keeping() {
            Keeping::Policy(policy) => Some(policy),
            Keeping::Code(_) => None,
        }
    }

    fn is_single(&self) -> bool {
        matches!(self.kept, Kept::Code(_))
    }

    /// By how much the paper's degraded reads are faster, in percent, at least and at most.
    fn paper_gain(&self) -> Option<(f64, f64)> {
        match self.kept {
            Kept::Policy("pc") => Some((25.0, 46.0)),
            Kept::Policy("lrc") => Some((21.0, 43.0)),
            _ => None,
        }
    }

    /// What the paper moves to rebuild a lost data block of this workload.
    fn paper_rebuild(&self, workload: &str) -> Option<f64> {
        match self.kept {
            Kept::Code("rs:10+4") => Some(15.5),
            Kept::Policy("pc") => {
                MADE.iter().find(|made| made.name == workload).and_then(|made| made.paper_rebuild_chunks)
            }
            _ => None,
        }
    }
}

impl Simulated {
    fn degraded_chunks(&self) -> f64 {
        mean(&self.outcome.degraded_chunks)
    }

    fn degraded_s(&self) -> f64 {
        mean(&self.outcome.degraded_s)
    }

    fn rebuilt_per_data(&self) -> f64 {
        let rebuilt = &self.outcome.rebuilt;
        (rebuilt.read_bytes + rebuilt.written_bytes) / rebuilt.data_bytes
    }

    fn conversion_percent(&self) -> f64 {
        let (converted, encoded) = (self.outcome.converted.bytes(), self.outcome.encoded.bytes());
        100.0 * converted / (converted + encoded)
    }
}

impl Report {
    /// All figures.
    pub fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        for Conversion { from, to, transfers, copied } in &self.codes.conversions {
            let case = format!("{from} to {to}");
            let paper = PAPER_TRANSFERS.iter().find(|(name, ..)| *name == case);
            let beside = |value: f64| Against { name: "paper".to_owned(), value };
            let (read, written) = (transfers.data_read + transfers.parity_read, transfers.written);
            for (metric, value, against) in [
                ("data_chunks_read", transfers.data_read, None),
                ("parity_chunks_read", transfers.parity_read, None),
                ("chunks_read", read, paper.map(|(_, read, _)| beside(*read))),
                ("chunks_written", written, paper.map(|(_, _, written)| beside(*written))),
            ] {
                figures.push(figure(&case, metric, "chunks", value, against));
            }
            let Some(Copied { read: copy_read, written: copy_written, by_client }) = *copied else { continue };
            let beside = |value: f64| Some(Against { name: "copying".to_owned(), value });
            for (metric, value, against) in [
                ("written_beside_copying", written, copy_written),
                ("at_disks_beside_copying", read + written, copy_read + copy_written),
                ("moved_beside_client_copying", read + written, copy_read + copy_written + by_client),
            ] {
                figures.push(figure(&case, metric, "chunks", value, beside(against)));
            }
        }
        for (code, per_chunk) in &self.codes.per_chunk {
            let case = format!("rebuild {code}");
            figures.push(figure(&case, "chunks_read_mean", "chunks", per_chunk.read, None));
            figures.push(figure(&case, "chunks_read_most", "chunks", per_chunk.read_most, None));
            figures.push(figure(&case, "data_chunk_read_most", "chunks", per_chunk.read_data_most, None));
            figures.push(figure(&case, "moved_per_data_chunk", "chunks", per_chunk.moved_per_data, None));
        }
        self.on_machine.iter().for_each(|on| figures.extend(on.figures()));
        figures.extend(self.most_on_machine());
        self.simulated.iter().for_each(|simulated| figures.extend(self.simulated_figures(simulated)));
        figures
    }

    /// The most of any workload on this machine: moved for a lost data chunk, and the space of what follows heat.
    fn most_on_machine(&self) -> Vec<Figure> {
        let most = |system: &System, value: fn(&Replayed) -> f64| {
            let of_system = self.on_machine.iter().filter(|on| on.system == *system);
            of_system.map(|on| value(&on.replayed)).reduce(f64::max)
        };
        let of_system = |system: &System| {
            let case = format!("machine {}", system.name);
            let moved = most(system, Replayed::rebuilt_per_data);
            let moved = moved.map(|moved| figure(&case, "rebuild_moved_per_data_chunk", "chunks", moved, None));
            let space = system.policy().zip(most(system, |replayed| replayed.space_max)).map(|(policy, space)| {
                let bound = Against { name: "bound".to_owned(), value: policy.percent_max.into() };
                figure(&case, "space_percent", "%", space, Some(bound))
            });
            moved.into_iter().chain(space)
        };
        SYSTEMS.iter().flat_map(of_system).collect()
    }

    /// The same workload kept another way.
    fn beside(&self, simulated: &Simulated, kept: Kept) -> Option<&Simulated> {
        let same =
            |other: &&Simulated| other.workload == simulated.workload && other.system.kept == kept && other.bounded;
        self.simulated.iter().find(same)
    }

    /// How much less a degraded read costs than under each code that stays.
    fn gains(&self, simulated: &Simulated) -> Vec<Gain> {
        let singles = SYSTEMS.iter().filter(|system| system.is_single());
        let gain = |single: &System| {
            let other = self.beside(simulated, single.kept)?;
            let less = |cost: &dyn Fn(&Simulated) -> f64| 100.0 * (1.0 - cost(simulated) / cost(other));
            Some(Gain {
                single: single.name,
                chunks: less(&Simulated::degraded_chunks),
                time: less(&Simulated::degraded_s),
                paper_time: less(&|simulated| paper_s(simulated.degraded_chunks())),
            })
        };
        singles.filter_map(gain).collect()
    }

    fn simulated_figures(&self, simulated: &Simulated) -> Vec<Figure> {
        let Simulated { workload, system, bounded, outcome } = simulated;
        let paper = |value: f64| Some(Against { name: "paper".to_owned(), value });
        let mut figures = Vec::new();
        let name = format!("{workload} {}", system.name);
        if !bounded {
            let Some(with) = self.beside(simulated, system.kept) else { return figures };
            let case = format!("{name} unbounded");
            let (ours, other) = (simulated.degraded_chunks(), with.degraded_chunks());
            figures.push(figure(&case, "degraded_chunks_mean", "chunks", ours, None));
            let less = 100.0 * (1.0 - paper_s(ours) / paper_s(other));
            figures.push(figure(&case, "gain_by_paper_time_percent", "%", less, paper(20.0)));
            figures.push(figure(&case, "space_mean_percent", "%", outcome.space_mean, None));
            return figures;
        }
        let mut add = |metric: &str, unit, value, against| figures.push(figure(&name, metric, unit, value, against));
        add("degraded_reads", "reads", outcome.degraded_s.len() as f64, None);
        add("unreadable", "reads", outcome.unreadable as f64, None);
        add("degraded_chunks_mean", "chunks", simulated.degraded_chunks(), None);
        for (metric, share) in [("degraded_p50_s", 0.5), ("degraded_p99_s", 0.99)] {
            add(metric, "s", percentile(&outcome.degraded_s, share), None);
        }
        add("degraded_mean_s", "s", simulated.degraded_s(), None);
        add("plain_read_mean_s", "s", mean(&outcome.plain_s), None);
        if let Some((least, most)) = system.paper_gain() {
            let gains = self.gains(simulated);
            for Gain { single, chunks, time, .. } in &gains {
                let single = single.replace([':', '+'], "_");
                add(&format!("degraded_below_{single}_percent"), "%", *chunks, None);
                add(&format!("degraded_time_below_{single}_percent"), "%", *time, None);
            }
            let by_time = || gains.iter().map(|gain| gain.paper_time);
            if let (Some(low), Some(high)) = (by_time().reduce(f64::min), by_time().reduce(f64::max)) {
                add("below_by_paper_time_least_percent", "%", low, paper(least));
                add("below_by_paper_time_most_percent", "%", high, paper(most));
            }
        }
        let rebuilt = &outcome.rebuilt;
        add("rebuilt_chunks", "chunks", rebuilt.chunks as f64, None);
        add("rebuild_read_bytes", "bytes", rebuilt.read_bytes, None);
        add("rebuild_written_bytes", "bytes", rebuilt.written_bytes, None);
        let against = system.paper_rebuild(workload).and_then(paper);
        add("rebuild_moved_per_data_chunk", "chunks", simulated.rebuilt_per_data(), against);
        add("rebuild_server_s", "s", percentile(&rebuilt.seconds, 0.5), None);
        let bound = system.policy().map(|policy| f64::from(policy.percent_max));
        let bound = || bound.map(|value| Against { name: "bound".to_owned(), value });
        add("space_mean_percent", "%", outcome.space_mean, None);
        add("space_max_percent", "%", outcome.space_max, bound());
        if !system.is_single() {
            add("merged", "conversions", outcome.merged as f64, None);
            add("split", "conversions", outcome.split as f64, None);
            add("convert_read_bytes", "bytes", outcome.converted.read_bytes, None);
            add("convert_written_bytes", "bytes", outcome.converted.written_bytes, None);
            add("convert_combined_bytes", "bytes", outcome.converted.combined_bytes, None);
            add("encode_bytes", "bytes", outcome.encoded.bytes(), None);
            let against = system.paper_gain().and_then(|_| paper(18.0));
            add("conversion_share_percent", "%", simulated.conversion_percent(), against);
        }
        figures
    }

    /// Tables, each with what is above it.
    pub fn for_people(&self) -> Vec<(String, Table)> {
        let mut tables = Vec::new();
        if !self.codes.per_chunk.is_empty() {
            tables.push(("On this machine, each chunk of a stripe lost and rebuilt in turn".to_owned(), self.codes()));
            let heading =
                "Conversions, in chunks read and written at the stores, and copying to a bucket of the new code";
            tables.push((heading.to_owned(), self.transfers()));
        }
        let told = |workload: &str| {
            let made = MADE.iter().find(|made| made.name == workload);
            let what = match made.map(Made::is_of_blocks) {
                Some(true) => "synthetic, within what the paper says",
                Some(false) => "synthetic, short files",
                None => "recorded jobs, lengths scaled",
            };
            format!("{workload} ({what})")
        };
        let mut workloads: Vec<&str> = self.on_machine.iter().map(|on| on.workload.as_str()).collect();
        workloads.dedup();
        for workload in workloads {
            tables.push((format!("{}, small on this machine", told(workload)), self.machine(workload)));
        }
        let mut workloads: Vec<&str> = self.simulated.iter().map(|simulated| simulated.workload.as_str()).collect();
        workloads.dedup();
        for workload in workloads {
            tables.push((format!("{}, simulated", told(workload)), self.workload(workload)));
        }
        tables
    }

    fn codes(&self) -> Table {
        let mut table =
            Table::new(&["code", "read for a lost chunk", "for data", "at most", "read and written per data chunk"]);
        for (code, per_chunk) in &self.codes.per_chunk {
            let PerChunk { read, read_most, read_data_most, moved_per_data } = per_chunk;
            let figures = [read, read_data_most, read_most, moved_per_data];
            let [read, data, most, moved] = figures.map(|chunks| format!("{chunks:.2}"));
            table.row([code.to_string(), read, data, most, moved]);
        }
        table
    }

    fn transfers(&self) -> Table {
        let heading = [
            "from",
            "to",
            "data read",
            "parity read",
            "written",
            "paper read",
            "written",
            "a copy reads",
            "writes",
            "and its client",
            "written less",
            "at disks less",
            "in all less",
        ];
        let mut table = Table::new(&heading);
        for Conversion { from, to, transfers: Transfers { data_read, parity_read, written }, copied } in
            &self.codes.conversions
        {
            let beside =
                copied.map_or(Default::default(), |Copied { read: copy_read, written: copy_written, by_client }| {
                    let (moved, copy_moved) = (data_read + parity_read + written, copy_read + copy_written);
                    let times = |copying: f64, ours: f64| format!("{:.1} x", copying / ours);
                    [
                        format!("{copy_read:.2}"),
                        format!("{copy_written:.2}"),
                        format!("{by_client:.2}"),
                        times(copy_written, *written),
                        times(copy_moved, moved),
                        times(copy_moved + by_client, moved),
                    ]
                });
            let [data, parity, written] = [data_read, parity_read, written].map(|chunks| format!("{chunks:.2}"));
            let paper = PAPER_TRANSFERS.iter().find(|(name, ..)| *name == format!("{from} to {to}"));
            let paper = paper.map_or(Default::default(), |(_, read, written)| [read.to_string(), written.to_string()]);
            let ([paper_read, paper_written], [read, writes, client, less, at_disks, in_all]) = (paper, beside);
            let (from, to) = (from.to_string(), to.to_string());
            table.row([
                from,
                to,
                data,
                parity,
                written,
                paper_read,
                paper_written,
                read,
                writes,
                client,
                less,
                at_disks,
                in_all,
            ]);
        }
        table
    }

    fn machine(&self, workload: &str) -> Table {
        let mut table = Table::new(&[
            "kept",
            "chunks read",
            "p50",
            "p99",
            "lost",
            "read for it",
            "moved per lost chunk",
            "a disk rebuilt in",
            "space",
            "most",
            "bound",
            "conversions",
            "read",
            "written",
            "of all",
        ]);
        for OnMachine { system, replayed, .. } in self.on_machine.iter().filter(|on| on.workload == workload) {
            let Replayed { rebuilt, converted, .. } = replayed;
            let bound = system.policy().map(|policy| policy.percent_max);
            let of_policy = |text: String| if system.is_single() { String::new() } else { text };
            table.row([
                system.name.to_owned(),
                format!("{:.2}", replayed.degraded_chunks()),
                format!("{:.2} ms", percentile(&replayed.degraded_ms(), 0.5)),
                format!("{:.2} ms", percentile(&replayed.degraded_ms(), 0.99)),
                bytes(rebuilt.lost_bytes),
                bytes(rebuilt.read_bytes),
                format!("{:.2}", replayed.rebuilt_per_data()),
                format!("{:.2} s", mean(&rebuilt.seconds)),
                format!("{:.1} %", replayed.space_mean),
                format!("{:.1} %", replayed.space_max),
                bound.map_or(String::new(), |bound| format!("{bound} %")),
                of_policy(converted.conversions.to_string()),
                of_policy(bytes(converted.read_bytes)),
                of_policy(bytes(converted.written_bytes)),
                of_policy(format!("{:.1} %", replayed.conversion_percent())),
            ]);
        }
        table
    }

    fn workload(&self, workload: &str) -> Table {
        let mut table = Table::new(&[
            "kept",
            "chunks read",
            "p50",
            "p99",
            "below singles",
            "in time",
            "in the paper's time",
            "paper",
            "moved per lost chunk",
            "paper",
            "server rebuilt in",
            "space",
            "most",
            "bound",
            "conversions",
            "of all",
        ]);
        for simulated in self.simulated.iter().filter(|simulated| simulated.workload == workload) {
            let Simulated { system, bounded, outcome, .. } = simulated;
            let range = |values: Vec<f64>| {
                let (low, high) = (values.iter().copied().reduce(f64::min), values.iter().copied().reduce(f64::max));
                low.zip(high).map_or(String::new(), |(low, high)| format!("{low:.0}-{high:.0} %"))
            };
            let gains = if system.is_single() { Vec::new() } else { self.gains(simulated) };
            let bound = system.policy().filter(|_| *bounded).map(|policy| policy.percent_max);
            let conversions = outcome.merged + outcome.split;
            table.row([
                format!("{}{}", system.name, if *bounded { "" } else { " unbounded" }),
                format!("{:.2}", simulated.degraded_chunks()),
                format!("{:.2} s", percentile(&outcome.degraded_s, 0.5)),
                format!("{:.2} s", percentile(&outcome.degraded_s, 0.99)),
                range(gains.iter().map(|gain| gain.chunks).collect()),
                range(gains.iter().map(|gain| gain.time).collect()),
                range(gains.iter().map(|gain| gain.paper_time).collect()),
                system.paper_gain().map_or(String::new(), |(least, most)| format!("{least:.0}-{most:.0} %")),
                format!("{:.2}", simulated.rebuilt_per_data()),
                system.paper_rebuild(workload).map_or(String::new(), |chunks| format!("{chunks}")),
                format!("{:.0} s", percentile(&outcome.rebuilt.seconds, 0.5)),
                format!("{:.1} %", outcome.space_mean),
                format!("{:.1} %", outcome.space_max),
                bound.map_or(String::new(), |bound| format!("{bound} %")),
                if system.is_single() { String::new() } else { conversions.to_string() },
                if system.is_single() { String::new() } else { format!("{:.0} %", simulated.conversion_percent()) },
            ]);
        }
        table
    }

    /// Plots of what was simulated, each with its name; none if nothing was.
    ///
    /// # Errors
    /// There is nothing to draw.
    pub fn plots(&self) -> anyhow::Result<Vec<(&'static str, String)>> {
        if self.simulated.is_empty() {
            return Ok(Vec::new());
        }
        let bars = |title: &str, y: &str, height: &dyn Fn(&Simulated) -> f64| {
            let mut groups: Vec<(String, Vec<f64>)> = Vec::new();
            let mut names: Vec<String> = Vec::new();
            for simulated in self.simulated.iter().filter(|simulated| simulated.bounded) {
                if groups.last().is_none_or(|(workload, _)| *workload != simulated.workload) {
                    groups.push((simulated.workload.clone(), Vec::new()));
                }
                if !names.iter().any(|name| name == simulated.system.name) {
                    names.push(simulated.system.name.to_owned());
                }
                if let Some((_, heights)) = groups.last_mut() {
                    heights.push(height(simulated));
                }
            }
            Bars { title, y, names, groups }.draw()
        };
        let degraded = bars("Reads of a chunk that is missing", "chunks read", &Simulated::degraded_chunks)?;
        let title = "Rebuilding a lost server";
        let rebuilt = bars(title, "chunks read and written for a lost data chunk", &Simulated::rebuilt_per_data)?;
        let space = bars("Space", "percent of the data", &|simulated| simulated.outcome.space_mean)?;
        Ok(vec![("degraded-reads", degraded), ("rebuilding", rebuilt), ("space", space)])
    }
}

impl Replayed {
    fn degraded_chunks(&self) -> f64 {
        mean(&self.degraded.iter().map(|(_, chunks)| *chunks).collect::<Vec<_>>())
    }

    fn degraded_ms(&self) -> Vec<f64> {
        self.degraded.iter().map(|(took, _)| took.as_secs_f64() * 1000.0).collect()
    }

    /// Chunks read and written for each lost data chunk, with what its parity took, of a disk that has its share of data.
    fn rebuilt_per_data(&self) -> f64 {
        (self.rebuilt.read_bytes + self.rebuilt.written_bytes) as f64 / self.rebuilt.lost_data_bytes
    }

    fn conversion_percent(&self) -> f64 {
        let converted = self.converted.read_bytes + self.converted.written_bytes;
        100.0 * converted as f64 / (converted + self.put_bytes) as f64
    }
}

impl OnMachine {
    fn figures(&self) -> Vec<Figure> {
        let OnMachine { workload, system, replayed } = self;
        let Replayed { rebuilt, converted, .. } = replayed;
        let name = format!("machine {workload} {}", system.name);
        let bound = system.policy().map(|policy| f64::from(policy.percent_max));
        let bound = bound.map(|value| Against { name: "bound".to_owned(), value });
        let mut figures = Vec::new();
        let mut add = |metric: &str, unit, value, against| figures.push(figure(&name, metric, unit, value, against));
        add("files_read", "reads", replayed.reads as f64, None);
        add("degraded_reads", "reads", replayed.degraded.len() as f64, None);
        add("degraded_chunks_mean", "chunks", replayed.degraded_chunks(), None);
        add("degraded_p50_ms", "ms", percentile(&replayed.degraded_ms(), 0.5), None);
        add("degraded_p99_ms", "ms", percentile(&replayed.degraded_ms(), 0.99), None);
        let plain: Vec<f64> = replayed.plain.iter().map(|took| took.as_secs_f64() * 1000.0).collect();
        add("plain_read_p50_ms", "ms", percentile(&plain, 0.5), None);
        add("rebuild_lost_bytes", "bytes", rebuilt.lost_bytes as f64, None);
        add("rebuild_read_bytes", "bytes", rebuilt.read_bytes as f64, None);
        add("rebuild_written_bytes", "bytes", rebuilt.written_bytes as f64, None);
        let per_byte = rebuilt.read_bytes as f64 / rebuilt.lost_bytes as f64;
        add("rebuild_read_per_lost_byte", "bytes/byte", per_byte, None);
        add("rebuild_moved_per_data_chunk", "chunks", replayed.rebuilt_per_data(), None);
        add("rebuild_disk_s", "s", mean(&rebuilt.seconds), None);
        add("space_as_put_percent", "%", replayed.space_as_put, None);
        add("space_mean_percent", "%", replayed.space_mean, None);
        add("space_max_percent", "%", replayed.space_max, bound);
        add("put_bytes", "bytes", replayed.put_bytes as f64, None);
        if !system.is_single() {
            add("conversions", "conversions", converted.conversions as f64, None);
            add("convert_read_bytes", "bytes", converted.read_bytes as f64, None);
            add("convert_written_bytes", "bytes", converted.written_bytes as f64, None);
            add("convert_verified_bytes", "bytes", converted.verified_bytes as f64, None);
            add("convert_s", "s", converted.seconds, None);
            add("conversion_share_percent", "%", replayed.conversion_percent(), None);
        }
        figures
    }
}

fn figure(case: &str, metric: &str, unit: &'static str, value: f64, against: Option<Against>) -> Figure {
    Figure { bench: "adapt", case: case.to_owned(), metric: metric.to_owned(), value, unit, against }
}

/// How long a degraded read of so many chunks would take in the paper.
fn paper_s(chunks: f64) -> f64 {
    PAPER_FIXED_S + PAPER_CHUNK_S * chunks
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn percentile(values: &[f64], share: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let at = (values.len() as f64 * share).ceil() as usize;
    values.get(at.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// Chunks that conversions read and write by the paper's count, and by that of codes that merge: [hacfs §3.3],
/// [convertible §IV].
const PAPER_TRANSFERS: [(&str, f64, f64); 6] = [
    ("pc:2x5 to pc:6x5", 18.0, 6.0),
    ("pc:6x5 to pc:2x5", 26.0, 18.0),
    ("lrc:12+6+2 to lrc:12+2+2", 6.0, 2.0),
    ("lrc:12+2+2 to lrc:12+6+2", 10.0, 6.0),
    ("rsm:6+3 to rsm:12+3", 6.0, 3.0),
    ("rsm:10+4 to rsm:20+4", 8.0, 4.0),
];
/// 16 s for 6 chunks and 21 s for 10: [hacfs §5.3].
const PAPER_CHUNK_S: f64 = (21.0 - 16.0) / (10.0 - 6.0);
const PAPER_FIXED_S: f64 = 16.0 - 6.0 * PAPER_CHUNK_S;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::replay::{Converted, Rebuilt};
    use super::*;

    #[test]
    fn what_a_replay_moved_is_told_by_lost_data_and_by_what_was_put() {
        let rebuilt = Rebuilt { lost_data_bytes: 10.0, read_bytes: 60, written_bytes: 15, ..Rebuilt::default() };
        let converted = Converted { read_bytes: 15, written_bytes: 10, ..Converted::default() };
        let degraded = [(2, 2.0), (4, 5.0)].map(|(ms, chunks)| (Duration::from_millis(ms), chunks)).to_vec();
        let replayed = Replayed { put_bytes: 75, degraded, rebuilt, converted, ..Replayed::default() };
        assert_eq!((replayed.rebuilt_per_data(), replayed.conversion_percent()), (7.5, 25.0));
        assert_eq!((replayed.degraded_chunks(), replayed.degraded_ms()), (3.5, vec![2.0, 4.0]));
    }

    /// Test of: [hacfs §5.3]
    #[test]
    fn the_paper_s_times_are_those_of_its_two_codes() {
        assert_eq!((paper_s(6.0), paper_s(10.0)), (16.0, 21.0));
        let gain = |chunks: f64, other: f64| 100.0 * (1.0 - paper_s(chunks) / paper_s(other));
        // 88 of 100 reads of hot data: its 25 to 46 % are what the counts give.
        let pc = 0.88 * 2.0 + 0.12 * 5.0;
        assert!((gain(pc, 6.0) - 28.4).abs() < 0.1 && (gain(pc, 10.0) - 45.5).abs() < 0.1);
    }

    #[test]
    fn percentiles_are_of_the_values() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!((percentile(&values, 0.5), percentile(&values, 0.99), mean(&values)), (50.0, 99.0, 50.5));
        assert_eq!(percentile(&[], 0.5), 0.0);
    }
}
