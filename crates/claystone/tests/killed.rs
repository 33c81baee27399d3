//! The program is killed without warning, again and again, under clients and repairs, and is asked for everything that
//! it acknowledged.
//!
//! Invariants that are tested:
//! 1. An object has the bytes of its last acknowledged change, or those of one that was under way when the store died.
//! 2. At the end every chunk that a record names is on its disk and whole, and no other chunk is.
//!
//! `CLAYSTONE_SOAK_KILLS` kills more often. `CLAYSTONE_SOAK_SEED` repeats the draws of a run, though not its timing.

mod running;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use running::client::{Answer, Client};
use running::store::{Draw, content, disk, healed, nothing_is_orphaned, pause, until};
use running::{Scratch, Up};

#[test]
fn what_was_acknowledged_outlives_kills_and_lost_disks() {
    let seed = Draw::seed("CLAYSTONE_SOAK_SEED");
    println!("CLAYSTONE_SOAK_SEED={seed}");
    let mut draw = Draw(seed);
    let kills = std::env::var("CLAYSTONE_SOAK_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(KILLS);
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("claystone-data")).expect("made");
    let settings = "reclaim_seconds = 0\nrepair_share = 1.0\n";
    fs::write(scratch.path("claystone-data/claystone.toml"), settings).expect("written");
    assert!(Up::start(&scratch, &[]).stop().success());
    let up = Up::start(&scratch, &[]);
    for (bucket, code) in BUCKETS {
        assert!(scratch.run(&["bucket", "create", bucket, "--code", code]).ok());
    }
    up.kill();

    let mut disks =
        Disks { paths: (1..=6).map(|disk| format!("claystone-data/disk{disk}")).collect(), away: None, new: 0 };
    let mut owners: Vec<Owner> = (0..OWNERS).map(|number| Owner::new(number, draw.next())).collect();
    for kill in 0..kills {
        if draw.below(5) == 0 {
            // Before it serves: while it opens disks, reclaims and sweeps.
            let up = Up::begin(&scratch, &[]);
            pause(Duration::from_millis(draw.below(150)));
            up.kill();
        }
        let up = Up::start(&scratch, &[]);
        disks.before(kill, &scratch);
        let (client, killed) = (up.client(&scratch), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let (ready, all_ready) = mpsc::channel::<()>();
            for owner in &mut owners {
                let (client, killed, ready) = (&client, &killed, ready.clone());
                scope.spawn(move || {
                    let error = owner.work(client, || drop(ready)).expect_err("it works on until the end");
                    assert!(killed.load(Ordering::SeqCst), "a connection broke: {error}");
                });
            }
            drop(ready);
            // In one round of eight the kill meets the owners while they still read everything back.
            if draw.below(8) > 0 {
                all_ready.recv().expect_err("nothing is sent: the last owner that is ready ends it");
            }
            disks.during(kill, &scratch, &mut draw);
            pause(Duration::from_millis(draw.below(800)));
            killed.store(true, Ordering::SeqCst);
            up.kill();
        });
    }

    let up = Up::start(&scratch, &[]);
    let client = up.client(&scratch);
    disks.restore(&scratch);
    healed(&scratch);
    let (mut operations, mut objects) = (0, 0);
    for owner in &mut owners {
        owner.read_everything(&client).expect("it runs");
        owner.clear_uploads(&client).expect("it runs");
        operations += owner.acknowledged;
        objects += owner.objects();
    }
    println!("{kills} kills, {operations} changes acknowledged, {objects} objects at the end");
    assert!(operations > kills * 5, "too little happened between the kills");
    // A restart sweeps for what a lost or returned disk holds beyond the records.
    assert!(up.stop().success());
    let up = Up::start(&scratch, &[]);
    nothing_is_orphaned(&scratch);
    let scrub = scratch.run(&["scrub", "--wait"]);
    assert!(scrub.ok(), "{}{}", scrub.out, scrub.err);
    let client = up.client(&scratch);
    for owner in &mut owners {
        owner.read_everything(&client).expect("it runs");
        owner.delete_everything(&client).expect("it runs");
    }
    assert!(up.stop().success());
    let up = Up::start(&scratch, &[]);
    nothing_is_orphaned(&scratch);
    let left: u64 = disks.paths.iter().map(|path| running::store::files(&scratch.path(path))).sum();
    assert_eq!(left, 0, "nothing is stored, nothing is on the disks");
    assert!(up.stop().success());
}

/// What happens to the disks in which round, of ten.
struct Disks {
    paths: Vec<String>,
    /// A disk whose directory was moved away.
    away: Option<usize>,
    /// Directories taken as new disks so far.
    new: usize,
}

impl Disks {
    /// Before the clients begin: what was done in earlier rounds is to be repaired before the next disk goes.
    fn before(&mut self, round: u64, scratch: &Scratch) {
        match round % 10 {
            6 => healed(scratch),
            8 => self.restore(scratch),
            9 => healed(scratch),
            _ => {}
        }
    }

    /// While the clients work.
    fn during(&mut self, round: u64, scratch: &Scratch, draw: &mut Draw) {
        let drawn = draw.below(self.paths.len() as u64) as usize;
        match round % 10 {
            1 | 6 => {
                pause(Duration::from_millis(draw.below(300)));
                let path = scratch.path(&self.paths[drawn]);
                fs::rename(&path, path.with_extension("away")).expect("moved");
                self.away = Some(drawn);
            }
            3 => {
                let gone = self.away.take().expect("since round 1");
                let old = self.replace(gone, scratch);
                fs::remove_dir_all(scratch.path(&old).with_extension("away")).expect("removed");
            }
            9 => drop(self.replace(drawn, scratch)),
            _ => {}
        }
    }

    /// Gives a disk up and takes a new directory; the repair begins. Returns the old path.
    fn replace(&mut self, disk: usize, scratch: &Scratch) -> String {
        self.new += 1;
        let new = format!("claystone-data/new{}", self.new);
        let replaced = scratch.run(&["disk", "replace", &self.paths[disk], &new]);
        assert!(replaced.ok(), "{}", replaced.err);
        std::mem::replace(&mut self.paths[disk], new)
    }

    /// Puts the disk back that is away.
    fn restore(&mut self, scratch: &Scratch) {
        let Some(gone) = self.away.take() else { return };
        let path = scratch.path(&self.paths[gone]);
        fs::rename(path.with_extension("away"), &path).expect("moved back");
        until("the disk's return", || match disk(scratch, &self.paths[gone]) {
            disk if disk["present"] == true => Ok(()),
            disk => Err(disk.to_string()),
        });
    }
}

/// The parts of an object: the seed and the length of each.
type Content = Vec<(u64, usize)>;

/// Whoever changes these keys, one after the other, so that it knows what each must hold.
struct Owner {
    number: usize,
    draw: Draw,
    /// What each key may hold: one content, or several if changes were under way when the store died.
    keys: BTreeMap<String, Vec<Option<Content>>>,
    /// Changes that the store said it made.
    acknowledged: u64,
}

impl Owner {
    fn new(number: usize, seed: u64) -> Owner {
        Owner { number, draw: Draw(seed), keys: BTreeMap::new(), acknowledged: 0 }
    }

    /// Reads everything, calls `ready`, and changes objects until a connection breaks.
    fn work(&mut self, client: &Client, ready: impl FnOnce()) -> io::Result<()> {
        let read = self.read_everything(client);
        ready();
        read?;
        loop {
            let path = self.path();
            match self.draw.below(100) {
                0..45 => {
                    let content = vec![(self.draw.next(), self.length())];
                    self.change(&path, Some(content.clone()), || {
                        expect(client.put(&path, bytes_of(&content))?, "put")
                    })?;
                }
                45..60 => self.change(&path, None, || expect(client.delete(&path)?, "delete"))?,
                60..75 => self.copy(client, &path)?,
                75..88 => self.upload(client, &path)?,
                _ => self.read(client, &path)?,
            }
        }
    }

    fn path(&mut self) -> String {
        let bucket = BUCKETS[self.draw.below(BUCKETS.len() as u64) as usize].0;
        format!("/{bucket}/owner{}/{}", self.number, self.draw.below(KEYS))
    }

    /// Half of them short, some of them replicated, the others up to 2 MiB.
    fn length(&mut self) -> usize {
        let most = if self.draw.below(2) == 0 { 60 << 10 } else { 2 << 20 };
        (4 << 10) + self.draw.below(most) as usize
    }

    /// A change whose outcome is unknown until `act` returns.
    fn change(&mut self, path: &str, to: Option<Content>, act: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let known = self.keys.entry(path.to_owned()).or_insert_with(|| vec![None]);
        known.push(to.clone());
        act()?;
        *known = vec![to];
        self.acknowledged += 1;
        Ok(())
    }

    fn copy(&mut self, client: &Client, path: &str) -> io::Result<()> {
        let from = self.path();
        let Some(Some(content)) = self.keys.get(&from).map(|known| known[0].clone()) else { return Ok(()) };
        if from == path {
            return Ok(());
        }
        self.change(path, Some(content), || {
            let copied = client.request("PUT", path).header("x-amz-copy-source", &from).send()?;
            expect_element(copied, "CopyObjectResult")
        })
    }

    fn upload(&mut self, client: &Client, path: &str) -> io::Result<()> {
        let created = client.request("POST", path).query("uploads", "").send()?;
        let id = created.element("UploadId");
        assert!(created.ok() && !id.is_empty(), "{created:?}");
        let mut content = vec![(self.draw.next(), self.length())];
        if self.draw.below(3) == 0 {
            content.insert(0, (self.draw.next(), PART_BYTES_MIN + self.draw.below(4096) as usize));
        }
        let mut document = String::from("<CompleteMultipartUpload>");
        for (number, part) in (1..).zip(&content) {
            let request = client.request("PUT", path).query("uploadId", &id).query("partNumber", &number.to_string());
            let stored = request.body(bytes_of(std::slice::from_ref(part))).send()?;
            assert!(stored.ok(), "{stored:?}");
            let tag = stored.header("etag");
            document += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>");
        }
        document += "</CompleteMultipartUpload>";
        let request = |method| client.request(method, path).query("uploadId", &id);
        match self.draw.below(6) {
            0 => expect(request("DELETE").send()?, "abort"),
            // Left as it is: its parts stay until somebody aborts it.
            1 => Ok(()),
            _ => self.change(path, Some(content), || {
                expect_element(request("POST").body(document).send()?, "CompleteMultipartUploadResult")
            }),
        }
    }

    /// Reads one key, and so learns which of several contents it holds.
    fn read(&mut self, client: &Client, path: &str) -> io::Result<()> {
        let known = self.keys.entry(path.to_owned()).or_insert_with(|| vec![None]);
        let answer = client.get(path)?;
        let held = match answer.status {
            200 => known.iter().flatten().find(|content| bytes_of(content) == answer.body).cloned().map(Some),
            404 => known.contains(&None).then_some(None),
            status => panic!("{path}: {status} {}", String::from_utf8_lossy(&answer.body)),
        };
        let (status, length) = (answer.status, answer.body.len());
        *known = vec![held.unwrap_or_else(|| panic!("{path} holds {length} bytes ({status}), not one of {known:?}"))];
        Ok(())
    }

    fn read_everything(&mut self, client: &Client) -> io::Result<()> {
        let paths: Vec<String> = self.keys.keys().cloned().collect();
        paths.iter().try_for_each(|path| self.read(client, path))
    }

    fn delete_everything(&mut self, client: &Client) -> io::Result<()> {
        let paths: Vec<String> = self.keys.keys().cloned().collect();
        paths.iter().try_for_each(|path| self.change(path, None, || expect(client.delete(path)?, "delete")))
    }

    /// Aborts what was left incomplete, by intent or by a kill.
    fn clear_uploads(&mut self, client: &Client) -> io::Result<()> {
        for (bucket, _) in BUCKETS {
            let prefix = format!("owner{}/", self.number);
            let list =
                client.request("GET", &format!("/{bucket}")).query("uploads", "").query("prefix", &prefix).send()?;
            let text = String::from_utf8_lossy(&list.body).into_owned();
            assert!(list.ok() && !text.contains("<IsTruncated>true"), "{text}");
            for upload in text.split("<Upload>").skip(1) {
                let field = |name: &str| {
                    let rest = upload.split_once(&format!("<{name}>")).expect("each upload has it").1;
                    rest.split_once('<').expect("it ends").0.to_owned()
                };
                let path = format!("/{bucket}/{}", field("Key"));
                expect(client.request("DELETE", &path).query("uploadId", &field("UploadId")).send()?, "abort")?;
            }
        }
        Ok(())
    }

    fn objects(&self) -> usize {
        self.keys.values().filter(|known| known[0].is_some()).count()
    }
}

fn expect(answer: Answer, what: &str) -> io::Result<()> {
    assert!(answer.ok(), "{what}: {} {}", answer.status, String::from_utf8_lossy(&answer.body));
    Ok(())
}

/// Some successes begin before the outcome is known; their document tells.
fn expect_element(answer: Answer, name: &str) -> io::Result<()> {
    let text = String::from_utf8_lossy(&answer.body);
    assert!(answer.ok() && text.contains(name), "{name}: {} {text}", answer.status);
    Ok(())
}

fn bytes_of(parts: &[(u64, usize)]) -> Vec<u8> {
    parts.iter().flat_map(|(seed, bytes)| content(*seed, *bytes)).collect()
}

const KILLS: u64 = 12;
const OWNERS: usize = 4;
const KEYS: u64 = 10;
const PART_BYTES_MIN: usize = 5 << 20;
const BUCKETS: [(&str, &str); 2] = [("reed", "rs:4+2"), ("clay", "clay:4+2:5")];
