//! The program serves volumes, is killed again and again, loses disks, and gets them back or others in their place; clients
//! that know what they wrote look whether it is there.
//!
//! Invariants that are tested:
//! 1. What was flushed is there after every kill and every loss that the codes tolerate.
//! 2. Each page is as one write made it, of those that may count (`model`), at every read.
//! 3. Requests do not fail while the store serves.
//! 4. A snapshot is what its volume was at one moment while it was taken, for ever; so are its clones before they are written,
//!    and its volume when it goes back to it. One whose taking is cut off is there, or is not.
//! 5. When the disks are back everything is whole: scrub finds nothing, and each way to read says the same.
//!
//! `tests/volume/soak` runs it. `CLAYSTONE_SOAK_EVENTS`: after how many kills and losses of disks it ends.
//! `CLAYSTONE_SOAK_SEED` repeats the plan of events and the draws of a run, though not its timing.

mod beside;
mod clients;
mod model;
mod nbd;
mod plan;
mod rig;
#[path = "../running/mod.rs"]
mod running;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use claystone_code::CodeSpec;

use beside::{Beside, Looked};
use clients::{Signals, Tally, Volume};
use plan::{Cycle, Deed, End, Parts, Planner};
use rig::{CHUNK_BYTES, CUT, Counts, NODES, Rig};
use running::store::{Draw, nothing_is_orphaned, pause};

#[test]
#[ignore = "it takes minutes: tests/volume/soak runs it"]
fn what_was_flushed_outlives_kills_and_lost_disks() {
    let seed = Draw::seed("CLAYSTONE_SOAK_SEED");
    let events = std::env::var("CLAYSTONE_SOAK_EVENTS").ok().and_then(|events| events.parse().ok()).unwrap_or(EVENTS);
    println!("CLAYSTONE_SOAK_SEED={seed} CLAYSTONE_SOAK_EVENTS={events}");
    let begin = Instant::now();
    let mut draw = Draw(seed);
    let (mut counts, mut total) = (Counts::default(), Total::default());
    for number in 0.. {
        let left = events.saturating_sub(counts.hard);
        if left == 0 {
            break;
        }
        // Two kinds of stores even in a short run.
        let share = LIFE_EVENTS.min(events.div_ceil(2)).min(left);
        let mut life = Life::new(number, draw.next());
        let lived = catch_unwind(AssertUnwindSafe(|| life.live(share, begin)));
        total.add(&life.total);
        let wrong = match lived {
            Ok(Ok(())) => None,
            Ok(Err(wrong)) => Some(wrong),
            Err(_) => Some("the test itself failed, see above".to_owned()),
        };
        if let Some(wrong) = wrong {
            let cycles = life.cycles;
            println!("store {number}, cycle {cycles}: {:?}", life.last);
            let place = life.rig.keep();
            panic!(
                "store {number}, cycle {cycles}: {wrong}\nit is kept in {}; CLAYSTONE_SOAK_SEED={seed} \
                 CLAYSTONE_SOAK_EVENTS={events} repeats the plan",
                place.display()
            );
        }
        counts.add(std::mem::take(&mut life.rig.counts));
    }
    println!("{counts}{total}in {} s", begin.elapsed().as_secs());
    assert!(total.tally.writes > counts.hard * 10, "too little happened between the events");
}

/// What was looked at.
#[derive(Debug, Clone, Copy, Default)]
struct Total {
    tally: Tally,
    pages_checked: u64,
    beside: Looked,
}

impl Total {
    fn add(&mut self, other: &Total) {
        self.tally.add(other.tally);
        self.pages_checked += other.pages_checked;
        self.beside.add(other.beside);
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (kind, count) in &self.events {
            writeln!(f, "{count:9} {kind}")?;
        }
        writeln!(f, "{:9} kills and losses of disks in all", self.hard)?;
        writeln!(f, "{:9} merges under way, asked for by command, when the store was killed", self.merges_killed)?;
        writeln!(
            f,
            "{:9} openings of volumes with a log, {} of them with a merge to carry out again",
            self.openings, self.redone
        )?;
        for (said, count) in &self.said {
            writeln!(f, "{count:9} x {said}")?;
        }
        Ok(())
    }
}

impl std::fmt::Display for Total {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tally { writes, written_bytes, flushes, pages_read } = self.tally;
        writeln!(f, "{writes:9} writes acknowledged, {} MiB; {flushes} flushes", written_bytes >> 20)?;
        writeln!(f, "{pages_read:9} pages read while others wrote, {} after starts", self.pages_checked)?;
        let Looked { fio, images, images_mixed, snapshots } = self.beside;
        writeln!(
            f,
            "{fio:9} times verified by fio; {images} by e2fsck; {images_mixed} copies looked at that were cut off; \
             {snapshots} snapshots of all this"
        )
    }
}

/// One store, from its making to its end.
struct Life {
    rig: Rig,
    planner: Planner,
    draw: Draw,
    volumes: Vec<Volume>,
    beside: Beside,
    total: Total,
    cycles: u64,
    clones: u64,
    last: Option<Cycle>,
}

impl Life {
    fn new(number: u64, seed: u64) -> Life {
        let mut draw = Draw(seed);
        let kind = &KINDS[number as usize % KINDS.len()];
        let mut rig = Rig::new(DISKS);
        let shape = |code: &str| code.parse::<CodeSpec>().expect("a code").shape();
        let volumes: Vec<Volume> = (0..)
            .zip(kind.volumes)
            .map(|(number, (code, page_bytes))| {
                let name = format!("v{number}");
                rig.make_volume(&name, code, VOLUME_BYTES, page_bytes);
                let stripe_pages = usize::from(shape(code).data) * CHUNK_BYTES / page_bytes;
                Volume::new(number, &name, page_bytes, VOLUME_BYTES as usize / page_bytes, stripe_pages)
            })
            .collect();
        let beside = Beside::new(&mut rig, kind.beside, [NODES[0], NODES[1]]);
        let codes = kind.volumes.iter().map(|(code, _)| *code).chain([kind.beside]);
        let tolerance = codes.map(|code| code.parse::<CodeSpec>().expect("a code").tolerance()).min();
        let tolerance = usize::from(tolerance.expect("there are volumes"));
        let (modelled, small) = (volumes.len(), rig.small());
        let of = Parts { disks: DISKS, modelled, volumes: rig.volumes(), tolerance, small };
        let planner = Planner::new(draw.next(), of);
        let codes: Vec<&str> = kind.volumes.iter().map(|(code, _)| *code).collect();
        println!("store {number}: {} on {DISKS} disks, of which {tolerance} may be hurt", codes.join(", "));
        rig.kill("kill");
        Life { rig, planner, draw, volumes, beside, total: Total::default(), cycles: 0, clones: 0, last: None }
    }

    fn live(&mut self, events: u64, begin: Instant) -> Result<(), String> {
        let mut told = 0;
        while self.rig.counts.hard < events {
            self.cycles += 1;
            let cycle = self.planner.cycle();
            self.last = Some(cycle.clone());
            self.cycle(&cycle)?;
            if self.rig.counts.hard >= told + PROGRESS_EVERY {
                told = self.rig.counts.hard;
                let (redone, checked) = (self.rig.counts.redone, self.total.pages_checked);
                let seconds = begin.elapsed().as_secs();
                println!(
                    "{told} of {events} events, {redone} merges carried out again, {checked} pages checked, {seconds} s"
                );
            }
        }
        self.finish()
    }

    fn cycle(&mut self, cycle: &Cycle) -> Result<(), String> {
        for deed in &cycle.down {
            self.act(*deed)?;
        }
        for after_ms in &cycle.opening {
            self.rig.start_and_kill(*after_ms);
        }
        self.rig.start();
        self.check(cycle.checking)?;
        if cycle.checking.is_some() {
            return Ok(());
        }
        match cycle.heal {
            Some(Some(after_ms)) => {
                self.rig.merge_all();
                pause(Duration::from_millis(after_ms));
                self.kill("kill while it repairs");
                return Ok(());
            }
            Some(None) => self.rig.heal()?,
            None => {}
        }
        self.check_cut_snapshots()?;
        for number in 0..self.volumes.len() {
            if self.draw.below(3) == 0 {
                self.check_snapshots(number)?;
            }
        }
        if let Some(number) = cycle.revert.and_then(|number| self.with_snapshots(number)) {
            self.revert(number)?;
        }
        if let Some(number) = cycle.clone.and_then(|number| self.with_snapshots(number)) {
            self.clone_snapshot(number)?;
        }
        self.work_beside(false)?;
        self.use_all(cycle)
    }

    /// A snapshot that was being taken when the store was killed is there, or is not.
    fn check_cut_snapshots(&mut self) -> Result<(), String> {
        let socket = self.rig.socket();
        for volume in &self.volumes {
            let Some(mut snapshot) = volume.cut().take() else { continue };
            let name = format!("{}@{CUT}", volume.name);
            if self.rig.has_snapshot(&name)? {
                self.rig.counts.event("snapshot there though cut off", false);
                self.total.pages_checked += Volume::check_snapshot(&socket, &name, &mut snapshot)?;
                self.rig.ask_alone(&["volume", "delete", &name, "--yes"])?;
            }
        }
        Ok(())
    }

    fn check_snapshots(&mut self, number: usize) -> Result<(), String> {
        let (socket, volume) = (self.rig.socket(), &self.volumes[number]);
        for (name, snapshot) in &mut *volume.snapshots() {
            self.total.pages_checked += Volume::check_snapshot(&socket, name, snapshot)?;
        }
        Ok(())
    }

    /// The first volume from `number` on that has snapshots.
    fn with_snapshots(&self, number: usize) -> Option<usize> {
        let all = 0..self.volumes.len();
        all.clone().cycle().skip(number).take(all.len()).find(|number| !self.volumes[*number].snapshots().is_empty())
    }

    /// The volume becomes what its last snapshot is.
    fn revert(&mut self, number: usize) -> Result<(), String> {
        self.check_snapshots(number)?;
        let volume = &self.volumes[number];
        if let Some((name, snapshot)) = volume.snapshots().last() {
            self.rig.counts.event("revert", false);
            self.rig.ask_alone(&["volume", "revert", name, "--yes"])?;
            volume.model().reverted(snapshot);
        }
        self.check(None)
    }

    /// The last snapshot of a volume becomes a volume, which is used as the others are, in the place of the one before.
    fn clone_snapshot(&mut self, number: usize) -> Result<(), String> {
        self.check_snapshots(number)?;
        if let Some(former) = self.volumes.get(KINDS[0].volumes.len()) {
            self.rig.delete_volume(&former.name)?;
            self.volumes.pop();
        }
        let volume = &self.volumes[number];
        let clone = {
            let snapshots = volume.snapshots();
            let (name, snapshot) = snapshots.last().expect("there is one");
            self.clones += 1;
            let clone = format!("clone{}", self.clones);
            self.rig.clone_snapshot(name, &clone)?;
            Volume::clone_of(snapshot, CLONES + self.clones % CLONES, &clone, volume.stripe_pages)
        };
        self.volumes.push(clone);
        self.check(None)
    }

    /// Each snapshot becomes a volume of its own, which is looked at and deleted, and then the snapshot is.
    fn clone_snapshots(&mut self) -> Result<(), String> {
        for number in 0..self.volumes.len() {
            self.check_snapshots(number)?;
            for (name, mut snapshot) in std::mem::take(&mut *self.volumes[number].snapshots()) {
                self.rig.ask(&["volume", "clone", &name, "copy"])?;
                let bytes = self.export("copy")?;
                snapshot.observe(0, &bytes).map_err(|wrong| format!("a clone of {name}: {wrong}"))?;
                self.rig.ask_alone(&["volume", "delete", "copy", "--yes"])?;
                self.rig.ask_alone(&["volume", "delete", &name, "--yes"])?;
            }
        }
        Ok(())
    }

    fn export(&self, volume: &str) -> Result<Vec<u8>, String> {
        let out = self.rig.scratch.path("export");
        self.rig.ask(&["volume", "export", volume, &out.display().to_string()])?;
        let bytes = std::fs::read(&out).expect("it was written");
        std::fs::remove_file(out).expect("removed");
        Ok(bytes)
    }

    fn work_beside(&mut self, is_last: bool) -> Result<(), String> {
        self.beside.work(&self.rig, &mut self.draw, is_last)
    }

    /// Kills the store, under whoever uses it.
    fn kill(&mut self, kind: &'static str) {
        self.rig.kill(kind);
        self.ended();
    }

    fn ended(&mut self) {
        self.volumes.iter().for_each(|volume| volume.model().crashed());
        self.beside.after_end();
    }

    /// Reads everything back, or is killed while it does.
    fn check(&mut self, kill_after_ms: Option<u64>) -> Result<(), String> {
        let (signals, socket) = (Signals::default(), self.rig.socket());
        let (rig, volumes) = (&mut self.rig, &self.volumes);
        let checked = std::thread::scope(|scope| {
            let checks: Vec<_> = volumes.iter().map(|volume| scope.spawn(|| volume.check(&socket, &signals))).collect();
            if let Some(after_ms) = kill_after_ms {
                pause(Duration::from_millis(after_ms));
                signals.dying.store(true, Ordering::SeqCst);
                rig.kill("kill while everything is read");
            }
            let ended = checks.into_iter().map(|check| check.join().expect("no check panics"));
            ended.collect::<Vec<Result<u64, String>>>()
        });
        if kill_after_ms.is_some() {
            self.ended();
        }
        for pages in checked {
            self.total.pages_checked += pages?;
        }
        Ok(())
    }

    /// Clients at work, deeds between, and the end.
    fn use_all(&mut self, cycle: &Cycle) -> Result<(), String> {
        let (signals, socket) = (Signals::default(), self.rig.socket());
        let seeds: Vec<u64> = (0..self.volumes.len() * CONNECTIONS).map(|_| self.draw.next()).collect();
        let volumes = std::mem::take(&mut self.volumes);
        let (used, done) = std::thread::scope(|scope| {
            let all = volumes.iter().flat_map(|volume| std::iter::repeat_n(volume, CONNECTIONS)).zip(seeds);
            let clients: Vec<_> = all
                .map(|(volume, seed)| {
                    let (socket, signals) = (&socket, &signals);
                    scope.spawn(move || volume.use_it(socket, seed, signals))
                })
                .collect();
            let mut done = Ok(());
            for (after_ms, deed) in &cycle.running {
                pause(Duration::from_millis(*after_ms));
                if done.is_ok() {
                    done = act(&mut self.rig, &volumes, &mut self.beside, *deed);
                }
            }
            let cut = cycle.cut_snapshot.filter(|_| cycle.end == End::Kill).map(|number| &volumes[number]);
            let cut = cut.map(|volume| (volume, volume.model().begin_snapshot()));
            if let Some((volume, _)) = &cut {
                self.rig.begin_snapshot(&volume.name);
            }
            pause(Duration::from_millis(cycle.last));
            done = done.and_then(|()| self.beside.before_end());
            match cycle.end {
                End::Stop => signals.stop.store(true, Ordering::SeqCst),
                End::Kill => {
                    signals.dying.store(true, Ordering::SeqCst);
                    self.rig.kill("kill");
                }
            }
            let used = clients.into_iter().map(|client| client.join().expect("no client panics"));
            let used = used.collect::<Vec<Result<Tally, String>>>();
            if let Some((volume, begun)) = cut {
                let snapshot = volume.end_snapshot(begun);
                *volume.cut() = Some(snapshot);
            }
            (used, done)
        });
        self.volumes = volumes;
        for tally in used {
            self.total.tally.add(tally?);
        }
        done?;
        if cycle.end == End::Stop {
            // It syncs what it acknowledged before it ends.
            for volume in &self.volumes {
                let mut model = volume.model();
                let now = model.tick();
                model.flushed(now);
            }
            self.beside.before_end()?;
            self.rig.stop()?;
        }
        self.ended();
        Ok(())
    }

    fn act(&mut self, deed: Deed) -> Result<(), String> {
        act(&mut self.rig, &self.volumes, &mut self.beside, deed)
    }

    /// All disks come back, everything is repaired, and looked at in every way there is.
    fn finish(&mut self) -> Result<(), String> {
        for deed in self.planner.all_back() {
            self.act(deed)?;
        }
        self.rig.start();
        self.check(None)?;
        // They come to their end while it repairs, however busy the machine is.
        self.work_beside(false)?;
        self.rig.heal()?;
        self.beside.before_end()?;
        self.rig.stop()?;
        self.ended();
        self.rig.start();
        self.check(None)?;
        self.check_cut_snapshots()?;
        self.clone_snapshots()?;
        self.beside.take_snapshot(&mut self.rig)?;
        let segments = self.rig.segments();
        if segments > self.rig.volumes() * SEGMENTS_MAX {
            return Err(format!("{segments} segments of logs are left of volumes that nobody writes"));
        }
        nothing_is_orphaned(&self.rig.scratch);
        self.rig.ask(&["scrub", "--wait"])?;
        for volume in &self.volumes {
            let bytes = self.export(&volume.name)?;
            let pages = bytes.len() / volume.model().page_bytes;
            if pages != volume.model().len() {
                return Err(format!("{}, exported, has {pages} pages", volume.name));
            }
            volume.model().observe(0, &bytes).map_err(|wrong| format!("{}, exported: {wrong}", volume.name))?;
        }
        self.work_beside(true)?;
        self.total.beside = self.beside.looked()?;
        self.rig.stop()
    }
}

fn act(rig: &mut Rig, volumes: &[Volume], beside: &mut Beside, deed: Deed) -> Result<(), String> {
    match deed {
        // The last of a plan's volumes is the one of the clients beside; clones are none of them.
        Deed::Snapshot(number) if number == KINDS[0].volumes.len() => beside.take_snapshot(rig),
        Deed::Snapshot(number) => take_snapshot(rig, &volumes[number]),
        Deed::Grow(number) => {
            let volume = &volumes[number];
            let pages = volume.pages_min.load(Ordering::SeqCst) + GROWTH_PAGES;
            rig.act(deed, (pages * volume.model().page_bytes) as u64)?;
            volume.pages_min.store(pages, Ordering::SeqCst);
            Ok(())
        }
        _ => rig.act(deed, 0),
    }
}

/// Takes a snapshot while clients write, and deletes the oldest of several.
fn take_snapshot(rig: &mut Rig, volume: &Volume) -> Result<(), String> {
    let begun = volume.model().begin_snapshot();
    let taken = rig.take_snapshot(&volume.name);
    let snapshot = volume.end_snapshot(begun);
    let Some(name) = taken? else { return Ok(()) };
    let mut snapshots = volume.snapshots();
    snapshots.push((format!("{}@{name}", volume.name), snapshot));
    if snapshots.len() > SNAPSHOTS_MAX {
        let (oldest, _) = snapshots.remove(0);
        rig.ask_alone(&["volume", "delete", &oldest, "--yes"])?;
    }
    Ok(())
}

/// A kind of store.
struct Kind {
    /// Codes and page bytes of the volumes that are checked.
    volumes: [(&'static str, usize); 3],
    /// The code of the volume with homes, that fio and the image of a file system are on.
    beside: &'static str,
}

const KINDS: [Kind; 2] = [
    Kind { volumes: [("rs:4+2", 4096), ("replica:3", 1024), ("lrc:4+2+2", 8192)], beside: "rs:4+2" },
    Kind { volumes: [("rs:2+1", 4096), ("replica:2", 2048), ("pc:1x3", 4096)], beside: "rs:2+1" },
];
const DISKS: usize = 8;
const VOLUME_BYTES: u64 = 5 << 20;
const GROWTH_PAGES: usize = 33;
const SNAPSHOTS_MAX: usize = 2;
/// Clones are numbered from here on, in the contents that they are given.
const CLONES: u64 = 100;
/// Connections of each volume.
const CONNECTIONS: usize = 2;
const EVENTS: u64 = 60;
/// Of each volume, when all of it was merged and it was opened anew: as many copies as the codes here want, of two segments.
const SEGMENTS_MAX: usize = 8;
/// Events that one store sees.
const LIFE_EVENTS: u64 = 150;
const PROGRESS_EVERY: u64 = 25;
