//! Stripes that go from mirrored to coded and back: what they hold, what is planned, what a crash at any step leaves.

use std::collections::BTreeSet;
use std::time::Duration;

use claystone_chunk::testing::pattern;
use claystone_chunk::{ByteRange, ChunkId};
use claystone_code::ChunkIndex;
use claystone_meta::{MetaError, RedundancyError, StripeRecord};
use claystone_stripe::Unpaced;
use claystone_volume::{Blocks, Durable, Form, NewVolume, Settings, Switch, SwitchReport, Volume, VolumeError, joined};

use crate::world::{World, check, scribble, settings};

const BYTES: usize = 512 << 10;
const CHUNK: u64 = 64 << 10;
/// Three stripes of two data chunks, or two of three, where each step of a switch is tried.
const STEPS_BYTES: usize = 384 << 10;
/// Sets of lost disks that are tried after one step; of more than that, others after the next.
const SETS_MAX: usize = 2;

/// Every stripe becomes this.
async fn all_become(volume: &Volume, to: Form) -> SwitchReport {
    let positions = 0..volume.bytes().div_ceil(volume.status().stripe_bytes);
    volume.switch(positions.map(|position| Switch { position, to }).collect()).await.expect("switched")
}

/// These data chunks mirrored, and the others coded.
fn mixed(chunks: &[u16]) -> Form {
    Form::Mixed(chunks.iter().copied().map(ChunkIndex).collect())
}

/// A volume with stripes in all of it, merged.
async fn filled(world: &World, redundancy: &str) -> (Volume, Vec<u8>) {
    filled_with(world, redundancy, BYTES).await
}

async fn filled_with(world: &World, redundancy: &str, bytes: usize) -> (Volume, Vec<u8>) {
    let volume = world.create("v", bytes as u64, redundancy).await;
    let model = pattern(9, bytes).to_vec();
    volume.write(0, model.clone().into(), Durable::Now).await.expect("written");
    volume.merge_all().await.expect("merged");
    (volume, model)
}

fn codes(records: &[StripeRecord]) -> BTreeSet<String> {
    records.iter().map(|stripe| stripe.code.to_string()).collect()
}

fn data_chunks(records: &[StripeRecord]) -> Vec<Option<ChunkId>> {
    let data = |stripe: &StripeRecord| (0..stripe.code.shape().data).map(ChunkIndex).collect::<Vec<_>>();
    records.iter().flat_map(|stripe| data(stripe).into_iter().map(|index| stripe.chunk_id(index))).collect()
}

/// Settings under which heat is gone at once.
fn cold() -> Settings {
    Settings { heat_half_life: Duration::from_nanos(1), ..settings() }
}

/// Settings under which heat stays.
fn warm() -> Settings {
    Settings { heat_half_life: Duration::from_secs(1_000_000), ..settings() }
}

#[tokio::test]
async fn new_stripes_are_mirrored_the_cold_are_coded_and_no_data_moves() {
    let world = World::with(6, cold(), 1).await;
    let (volume, mut model) = filled(&world, "replica:3/rs:4+2").await;
    let mirrored = world.stripes_of_v().await;
    assert_eq!(codes(&mirrored), ["mirror:4x3".to_owned()].into());
    let status = volume.status();
    assert_eq!((status.stripes, status.mirrored.chunks, status.mirrored.bytes), (2, 8, 3 * BYTES as u64));

    let report = volume.switch_once(99).await.expect("switched");
    assert_eq!((report.coded, report.mirrored, report.refused), (8, 0, 0), "{report:?}");
    let coded = world.stripes_of_v().await;
    assert_eq!(codes(&coded), ["rs:4+2".to_owned()].into());
    assert_eq!(data_chunks(&coded), data_chunks(&mirrored), "data chunks stay");
    assert_eq!(world.garbage(&coded), 0, "the copies are gone");
    let status = volume.status();
    assert_eq!((status.mirrored.chunks, status.coded.bytes), (0, BYTES as u64 * 3 / 2));
    assert_eq!(status.switched, report);
    check(&volume, &model, "coded").await;
    assert_eq!(volume.switch_once(99).await.expect("nothing to do"), SwitchReport::default());

    // Merges go on under the code of each stripe.
    scribble(&volume, &mut model, 7, 9).await;
    volume.merge_all().await.expect("merged");
    all_become(&volume, Form::Mirrored).await;
    assert_eq!(data_chunks(&world.stripes_of_v().await), data_chunks(&mirrored));
    check(&volume, &model, "mirrored again").await;
    world.assert_sound().await;
    for lost in [[0, 1], [2, 5], [3, 4]] {
        lost.iter().for_each(|disk| world.lose(*disk));
        check(&volume, &model, "mirrored again, two disks lost").await;
        lost.iter().for_each(|disk| world.find(*disk));
    }
}

#[tokio::test]
async fn what_is_written_much_is_mirrored_and_what_is_between_stays() {
    let world = World::with(6, warm(), 1).await;
    let (volume, model) = filled(&world, "replica:3/rs:4+2").await;
    all_become(&volume, Form::Coded).await;
    // A restart: nothing is cold, and nothing is hot.
    let world = world.crash().await;
    let volume = {
        drop(volume);
        world.volumes.open("v").await.expect("it opens")
    };
    assert_eq!(volume.switch_once(99).await.expect("nothing to do"), SwitchReport::default());
    let page = model[300 << 10..][..4096].to_vec();
    for _ in 0..60 {
        volume.write(300 << 10, page.clone().into(), Durable::WithFlush).await.expect("written");
    }
    let report = volume.switch_once(99).await.expect("switched");
    assert_eq!((report.mirrored, report.coded), (1, 0));
    let codes: Vec<String> = world.stripes_of_v().await.iter().map(|stripe| stripe.code.to_string()).collect();
    assert_eq!(codes, ["rs:4+2", "mixed:4+2x3:0"], "the chunk that is hot, by itself");
    assert_eq!(volume.switch_once(99).await.expect("nothing to do"), SwitchReport::default());
    check(&volume, &model, "one of each").await;
    let (mirrored, coded) = (volume.status().mirrored, volume.status().coded);
    assert_eq!((mirrored.chunks, mirrored.bytes, coded.chunks, coded.bytes), (1, 3 * CHUNK, 7, 7 * CHUNK + 4 * CHUNK));

    // Another two: parity for a single chunk would take as much as its copies.
    for column in [1, 3] {
        let at = (256 << 10) + column * CHUNK;
        for _ in 0..65 {
            let page = model[at as usize..][..4096].to_vec();
            volume.write(at, page.into(), Durable::WithFlush).await.expect("written");
        }
    }
    let report = volume.switch_once(99).await.expect("switched");
    assert_eq!((report.mirrored, report.coded), (3, 0));
    // Where a code has no mixed form, a stripe turns as a whole.
    world.volumes.set_redundancy("v", "replica:3/lrc:4+1+1".parse().expect("valid")).await.expect("set");
    volume.switch_once(99).await.expect("switched");
    let codes: Vec<String> = world.stripes_of_v().await.iter().map(|stripe| stripe.code.to_string()).collect();
    assert_eq!(codes, ["lrc:4+1+1", "mirror:4x3"]);
    check(&volume, &model, "one of each").await;
}

/// Merges into a stripe of which a part is mirrored write the copies of the one and the parity of the other, while disks are lost.
#[tokio::test]
async fn stripes_of_both_forms_are_merged_and_read() {
    let mut world = World::with(8, warm(), 1).await;
    let (mut volume, mut model) = filled(&world, "replica:3/rs:4+2").await;
    let before = data_chunks(&world.stripes_of_v().await);
    let forms = [mixed(&[1]), mixed(&[1, 3]), Form::Coded, mixed(&[0, 2]), Form::Mirrored, mixed(&[2, 3]), mixed(&[0])];
    for (round, form) in (0..).zip(forms) {
        let what = format!("round {round}, {form:?}");
        let was = volume.status();
        let report = all_become(&volume, form).await;
        assert_eq!((report.refused, report.changed), (0, 0), "{what}");
        let status = volume.status();
        assert_eq!(status.mirrored.chunks, 2 * u64::from(form.mirrored(4)), "{what}");
        assert_eq!(status.mirrored.chunks + report.coded, was.mirrored.chunks + report.mirrored, "{what}");
        assert_eq!(data_chunks(&world.stripes_of_v().await), before, "{what}: data chunks stay");
        assert_eq!(world.garbage(&world.stripes_of_v().await), 0, "{what}");
        scribble(&volume, &mut model, round, 40).await;
        volume.merge_all().await.expect("merged");
        world.assert_sound().await;
        // All sets of disks in turn, which no log would bear: another process has it then.
        let name = format!("v@{round}");
        world.snapshot(&name).await.expect("taken");
        for lost in losses(8, 2).iter().filter(|lost| lost.len() == 2) {
            lost.iter().for_each(|disk| world.lose(*disk));
            check(&world.open_snapshot(&name).await, &model, &format!("{what}, {lost:?} lost")).await;
            lost.iter().for_each(|disk| world.find(*disk));
        }
        drop(volume);
        world = world.crash().await;
        world.volumes.delete_snapshot(&name.parse().expect("a name")).await.expect("deleted");
        volume = world.volumes.open("v").await.expect("it opens");
        check(&volume, &model, &what).await;
    }
}

#[tokio::test]
async fn the_bound_holds_from_the_first_stripe_on() {
    let world = World::with(6, warm(), 3).await;
    // Beside the log, of which there are two copies.
    let log_percent = 2 * warm().reserve_bytes * 100 / BYTES as u64;
    let bound = |percent: u64| format!("replica:2/rs:2+1<={}%", percent + log_percent);
    let (volume, _) = filled(&world, &bound(170)).await;
    let overhead = |volume: &Volume| {
        let status = volume.status();
        status.chunks_bytes() * 100 / (status.stripes * status.stripe_bytes)
    };
    // Four stripes: one and a half of two chunks each make 170 % of eight; so one is mirrored.
    assert_eq!((volume.status().stripes, volume.status().mirrored.chunks), (4, 2));
    assert!(overhead(&volume) <= 170);
    let report = all_become(&volume, Form::Mirrored).await;
    assert_eq!((report.mirrored, report.changed), (0, 4), "there is no room");
    let set = |redundancy: String| world.volumes.set_redundancy("v", redundancy.parse().expect("valid"));
    // With the log, even all coded is more than that.
    let refused = set(bound(149)).await.expect_err("it is too low").to_string();
    let (given, least) = (149 + log_percent, 150 + log_percent);
    assert_eq!(
        refused,
        format!(
            "a bound of {given} % is less than the {least} % that rs:2+1 takes with the volume's log, which takes \
             {log_percent} %"
        )
    );
    assert!(matches!(
        set("replica:2/rs:2+1<=170%".to_owned()).await,
        Err(VolumeError::Redundancy(RedundancyError::BoundTooLow { percent_max: 170, .. }))
    ));
    set(bound(150)).await.expect("set");
    // By this, or by what merges in the background: it looks at once.
    volume.switch_once(99).await.expect("switched");
    assert_eq!((overhead(&volume), volume.status().mirrored.chunks), (150, 0));
}

/// A long volume of which little is written takes more than its bound with the log alone; what survives less than is asked for is coded all the same.
#[tokio::test]
async fn what_has_a_former_code_is_coded_whatever_the_bound_says() {
    let world = World::with(8, cold(), 1).await;
    let volume = world.create("v", 256 << 20, "rs:4+1").await;
    let model = pattern(9, BYTES).to_vec();
    volume.write(0, model.clone().into(), Durable::Now).await.expect("written");
    volume.merge_all().await.expect("merged");
    drop(volume);
    world.volumes.set_redundancy("v", "replica:3/rs:4+2<=230%".parse().expect("valid")).await.expect("set");
    let volume = world.volumes.open("v").await.expect("it opens");
    volume.switch_once(99).await.expect("switched");
    assert_eq!(codes(&world.stripes_of_v().await), ["rs:4+2".to_owned()].into());
    assert_eq!(all_become(&volume, Form::Mirrored).await.changed, 1024, "there is no room, or no stripe");
    let mut found = joined(volume.read(ByteRange { offset: 0, bytes: BYTES as u64 }).await.expect("it reads"));
    assert!(found.split_to(BYTES)[..] == model[..]);
}

#[tokio::test]
async fn what_stripes_get_can_be_set_while_they_are_in_use() {
    let world = World::with(8, cold(), 1).await;
    let (volume, model) = filled(&world, "rs:4+2").await;
    let data = data_chunks(&world.stripes_of_v().await);
    for redundancy in ["lrc:4+2+1", "replica:3/rs:4+2", "mirror:4x2", "rs:4+1"] {
        let set = world.volumes.set_redundancy("v", redundancy.parse().expect("valid")).await.expect("set");
        assert_eq!(set.redundancy.to_string(), redundancy);
        assert_eq!(world.meta.volume("v").await.expect("it is there"), set);
        volume.switch_once(99).await.expect("switched");
        assert_eq!(codes(&world.stripes_of_v().await), [set.redundancy.code.to_string()].into(), "{redundancy}");
        assert_eq!(data_chunks(&world.stripes_of_v().await), data, "{redundancy}");
        check(&volume, &model, redundancy).await;
    }
    let refused = |redundancy: &str| world.volumes.set_redundancy("v", redundancy.parse().expect("valid"));
    assert!(matches!(refused("rs:3+2").await, Err(VolumeError::OtherData { .. })));
    assert!(matches!(refused("clay:4+2:5").await, Err(VolumeError::BadCode { .. })));
    assert!(matches!(refused("rs:4+5").await, Err(VolumeError::TooFewDisks { .. })));
    // The log has three copies.
    assert!(matches!(refused("replica:4/rs:4+1").await, Err(VolumeError::MoreCopies { .. })));
    drop(volume);
    refused("replica:4/rs:4+1").await.expect("nobody uses it");
    let volume = world.volumes.open("v").await.expect("it opens");
    check(&volume, &model, "with a longer log").await;
    let missing = world.volumes.set_redundancy("w", "rs:4+2".parse().expect("valid")).await;
    assert!(matches!(missing, Err(VolumeError::Meta(MetaError::NoSuchVolume { .. }))));
}

/// What merging will write into the log is counted by what each stripe is, not by what stripes get.
#[tokio::test]
async fn mirrored_stripes_are_not_counted_as_coded_ones() {
    let world = World::with(7, Settings { merge_from_percent: 1000, ..settings() }, 3).await;
    let (volume, _) = filled_with(&world, "replica:3/rs:4+2", 2 << 20).await;
    let used = |pages: u64, parity: u64| {
        let status = volume.status();
        assert_eq!(status.diff_pages, pages);
        assert_eq!(status.used_percent, 100 * (status.log_bytes + pages * parity * 4096) / status.reserve_bytes);
    };
    let pages = 512;
    let written = async || {
        for page in 0..pages {
            let content = claystone_chunk::testing::pattern(page, 4096);
            volume.write(page * 4096, content, Durable::WithFlush).await.expect("written");
        }
    };
    written().await;
    used(pages, 0);
    all_become(&volume, Form::Coded).await;
    used(pages, 2);
    volume.merge_all().await.expect("merged");
    used(0, 0);
}

#[tokio::test]
async fn snapshots_and_clones_switch_with_what_they_share() {
    let world = World::with(6, cold(), 1).await;
    let (volume, mut model) = filled(&world, "replica:3/rs:4+2").await;
    world.snapshot("v@one").await.expect("taken");
    let old = model.clone();
    world.volumes.clone_snapshot(&"v@one".parse().expect("a name"), "w").await.expect("made");
    let clone = world.volumes.open("w").await.expect("it opens");
    all_become(&volume, Form::Coded).await;
    check(&world.open_snapshot("v@one").await, &old, "snapshot").await;
    world.lose(2);
    check(&clone, &old, "clone, by records of before").await;
    check(&world.open_snapshot("v@one").await, &old, "snapshot").await;
    scribble(&volume, &mut model, 5, 9).await;
    scribble(&clone, &mut old.clone(), 6, 9).await;
    volume.merge_all().await.expect("merged");
    clone.merge_all().await.expect("merged");
    check(&volume, &model, "volume").await;
    check(&world.open_snapshot("v@one").await, &old, "snapshot").await;
    world.assert_sound().await;
}

/// Neither to less safety nor to more space than who shares a stripe has asked for; and two do not switch it to and fro.
#[tokio::test]
async fn what_is_shared_is_switched_only_as_suits_all_who_have_it() {
    let world = World::with(6, cold(), 1).await;
    let (volume, mut model) = filled(&world, "rs:4+2").await;
    world.snapshot("v@one").await.expect("taken");
    let old = model.clone();
    world.volumes.clone_snapshot(&"v@one".parse().expect("a name"), "w").await.expect("made");
    let clone = world.volumes.open("w").await.expect("it opens");
    let become_of = async |name: &str, redundancy: &str| {
        let redundancy = redundancy.parse().expect("valid");
        world.volumes.set_redundancy(name, redundancy).await.expect("set");
        let volume = world.volumes.open(name).await.expect("it opens");
        let report = volume.switch_once(99).await.expect("planned");
        (report.coded + report.mirrored, report.changed, codes(&world.stripes_of_v().await))
    };
    let has = |code: &str| BTreeSet::from([code.to_owned()]);
    assert_eq!(become_of("v", "mirror:4x3").await, (0, 0, has("rs:4+2")), "it would take more");
    assert_eq!(become_of("v", "rs:4+1").await, (0, 0, has("rs:4+2")), "it would survive less");
    // Nor where it is asked for by name.
    let report = all_become(&volume, Form::Coded).await;
    assert_eq!((report.coded, report.changed), (0, 2));

    // What is written is the volume's own, and becomes what it shall; the rest does when nobody else has it.
    scribble(&volume, &mut model[..4096], 5, 3).await;
    volume.merge_all().await.expect("merged");
    let own = ["rs:4+1", "rs:4+2"].map(str::to_owned);
    assert_eq!(codes(&world.stripes_of_v().await), BTreeSet::from(own));
    world.volumes.delete_snapshot(&"v@one".parse().expect("a name")).await.expect("deleted");
    check(&clone, &old, "the clone").await;
    drop(clone);
    world.volumes.delete("w").await.expect("deleted");
    let report = all_become(&volume, Form::Coded).await;
    assert_eq!((report.coded, codes(&world.stripes_of_v().await)), (4, has("rs:4+1")));
    check(&volume, &model, "in the end").await;
    world.assert_sound().await;
}

/// Who shares a stripe learns that another has switched it, and plans others from then on.
#[tokio::test]
async fn a_stripe_that_another_volume_has_switched_is_not_planned_again() {
    let world = World::with(6, cold(), 1).await;
    let (volume, model) = filled(&world, "replica:3/rs:4+2").await;
    world.snapshot("v@one").await.expect("taken");
    world.volumes.clone_snapshot(&"v@one".parse().expect("a name"), "w").await.expect("made");
    let clone = world.volumes.open("w").await.expect("it opens");
    assert_eq!(all_become(&volume, Form::Coded).await.coded, 8);
    assert_eq!(clone.status().mirrored.chunks, 8, "as it was when it was opened");
    let report = clone.switch_once(99).await.expect("planned");
    assert_eq!((report.coded, report.changed, clone.status().coded.chunks), (0, 2, 8));
    assert_eq!(clone.switch_once(99).await.expect("nothing to do"), SwitchReport::default());
    check(&clone, &model, "the clone").await;
}

/// What waits for its turn while the volume is closed for something else does nothing.
#[tokio::test]
async fn a_switch_of_a_volume_that_was_closed_meanwhile_does_nothing() {
    let world = World::with(6, cold(), 1).await;
    let (volume, model) = filled(&world, "replica:3/rs:4+2").await;
    world.snapshot("v@one").await.expect("taken");
    // The first is under way when everybody goes away; the second waits behind it.
    world.traps.log_reads().open();
    let reads = world.cut.hold_reads().await;
    let waits = Box::pin(volume.switch((0..2).map(|position| Switch { position, to: Form::Coded }).collect()));
    let started = futures::future::select(waits, Box::pin(world.env.clock.sleep(Duration::from_millis(20)))).await;
    assert!(matches!(started, futures::future::Either::Right(_)), "it reads");
    drop(started);
    drop(volume);
    let volumes = world.volumes.clone();
    let reverted = world.beside(async move { volumes.revert(&"v@one".parse().expect("a name")).await });
    world.env.clock.sleep(Duration::from_millis(20)).await;
    drop(reads);
    reverted.await.expect("it ends").expect("reverted");
    let volume = world.volumes.open("v").await.expect("it opens");
    check(&volume, &model, "reverted").await;
    assert_eq!(volume.status().switched, SwitchReport::default());
    let before = codes(&world.stripes_of_v().await);
    world.env.clock.sleep(Duration::from_millis(50)).await;
    assert_eq!(codes(&world.stripes_of_v().await), before);
    world.assert_sound().await;
}

/// Merges wait for a switch, and so would who writes once the reserve is used up.
#[tokio::test]
async fn a_switch_that_reads_for_ever_is_given_up_when_the_log_is_full() {
    let small = Settings { reserve_bytes: 24 << 20, segment_bytes: 6 << 20, ..cold() };
    let world = World::with(6, small, 1).await.with_read_timeout(Duration::from_secs(3600));
    let (volume, _) = filled(&world, "replica:3/rs:4+2").await;
    let before = world.stripes_of_v().await;
    world.traps.log_reads().open();
    let reads = world.cut.hold_reads().await;
    let switched = volume.switch(vec![Switch { position: 0, to: Form::Coded }]);
    let mut model = Vec::new();
    let written = async {
        for round in 0..80 {
            model = pattern(100 + round, BYTES).to_vec();
            volume.write(0, model.clone().into(), Durable::Now).await.expect("it can be merged");
        }
    };
    let (switched, ()) = futures::future::join(switched, written).await;
    let switched = switched.expect("it goes on");
    assert_eq!((switched.coded, switched.refused), (0, 1));
    volume.merge_all().await.expect("merged");
    drop(reads);
    assert_eq!(codes(&world.stripes_of_v().await), codes(&before));
    check(&volume, &model, "given up").await;
    all_become(&volume, Form::Coded).await;
    check(&volume, &model, "coded").await;
    world.assert_sound().await;
}

#[tokio::test]
async fn stripes_that_cannot_be_coded_now_stay_as_they_are() {
    let world = World::with(6, cold(), 1).await;
    let (volume, mut model) = filled(&world, "replica:3/rs:4+2").await;
    // Two of four data chunks of each stripe at least are on three disks: parity has none to go to, or too little is left.
    [1, 2].iter().for_each(|disk| world.lose(*disk));
    let report = volume.switch_once(99).await.expect("it goes on");
    assert_eq!((report.coded, report.refused), (0, 1), "{report:?}");
    scribble(&volume, &mut model, 5, 9).await;
    volume.merge_all().await.expect("merged");
    check(&volume, &model, "as it was").await;
    assert_eq!(codes(&world.stripes_of_v().await), ["mirror:4x3".to_owned()].into());
}

/// While a disk is away a copy of its data may be beside other data. Coded, both would be lost with one disk.
#[tokio::test]
async fn data_that_a_repair_put_on_one_disk_moves_apart_and_is_coded() {
    let world = World::with(4, cold(), 1).await;
    let (volume, mut model) = filled_with(&world, "replica:2/rs:3+1", 192 << 10).await;
    let before = world.stripes_of_v().await.remove(0);
    let disk_of = |record: &StripeRecord, index: usize| record.places[index].expect("placed").disk.0 as usize;
    let away = disk_of(&before, 0);
    world.lose(away);
    let lost: Vec<ChunkIndex> =
        (0..6).filter(|index| disk_of(&before, *index) == away).map(|index| ChunkIndex(index as u16)).collect();
    let rebuilt = world.stripes.rebuild(&before, &lost, &Unpaced).await.expect("rebuilt");
    let crowded = world.meta.swap(rebuilt.swap.clone()).await.expect("named");
    drop(rebuilt);
    let on = |record: &StripeRecord| (0..3).map(|index| disk_of(record, index)).collect::<BTreeSet<_>>().len();
    assert!(on(&crowded) < 3, "two data chunks are on one disk");
    // As long as it is away there is none for parity.
    assert_eq!(all_become(&volume, Form::Coded).await.coded, 0);
    world.find(away);
    scribble(&volume, &mut model, 3, 5).await;
    volume.merge_all().await.expect("merged");
    // It moves apart first, if the volume has not seen to that by itself.
    let reports = [all_become(&volume, Form::Coded).await, all_become(&volume, Form::Coded).await];
    assert_eq!(reports.iter().map(|report| report.coded).sum::<u64>(), 3, "{reports:?}");
    let after = world.stripes_of_v().await.remove(0);
    assert_eq!((on(&after), after.code.to_string()), (3, "rs:3+1".to_owned()));
    check(&volume, &model, "coded").await;
    world.assert_sound().await;
}

/// Disks that are lost after a crash, all sets that are tolerated.
fn losses(disks: usize, tolerance: usize) -> Vec<Vec<usize>> {
    let ones = (0..disks).map(|one| vec![one]);
    let twos = (0..disks).flat_map(|one| (one + 1..disks).map(move |other| vec![one, other]));
    std::iter::once(vec![]).chain(ones).chain(twos).filter(|set| set.len() <= tolerance).collect()
}

/// A merge, then all stripes, which are `from`, become `to`; the process ends at any change of a store on the way, and with it what the log
/// had not synced. The next opening finds a set of disks lost; or it finds all, and then sets are lost in turn.
/// `shared`: a snapshot has the stripes that the merge leaves alone, and is read too.
async fn every_step(redundancy: &str, disks: u128, tolerance: usize, (from, to): (Form, Form), shared: bool) {
    let sets = losses(disks as usize, tolerance);
    let mut steps = 0;
    for happens in [false, true] {
        for step in 0.. {
            let Some((world, model)) = cut_off(redundancy, disks, (from, to), shared, step, happens).await else {
                break;
            };
            steps += 1;
            let what = format!("{redundancy}, {from:?} to {to:?}: step {step}, happens: {happens}");
            let volume = world.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
            for lost in sets.iter().cycle().skip(step as usize * 7).take(SETS_MAX.min(sets.len())) {
                lost.iter().for_each(|disk| world.lose(*disk));
                let what = format!("{what}, then {lost:?} lost");
                check(&volume, &model, &what).await;
                check_snapshot(&world, shared, &what).await;
                lost.iter().for_each(|disk| world.find(*disk));
            }
            drop(volume);

            // One set of losses for each step; all have their turn, in each kind of step.
            let lost = &sets[(step as usize * 7 + usize::from(happens)) % sets.len()];
            let what = format!("{what}, opened without {lost:?}");
            let (world, model) =
                cut_off(redundancy, disks, (from, to), shared, step, happens).await.expect("the same steps");
            lost.iter().for_each(|disk| world.lose(*disk));
            let volume = world.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
            check(&volume, &model, &what).await;
            check_snapshot(&world, shared, &what).await;
            lost.iter().for_each(|disk| world.find(*disk));
            check(&volume, &model, &what).await;
            drop(volume);
            goes_on(world, model, &what).await;
        }
    }
    assert!(steps > 40, "only {steps} steps were cut");
}

/// What the next process finds; `None`: there are fewer steps.
async fn cut_off(
    redundancy: &str,
    disks: u128,
    (from, to): (Form, Form),
    shared: bool,
    step: u64,
    happens: bool,
) -> Option<(World, Vec<u8>)> {
    let world = World::with(disks, warm(), step).await;
    let (volume, mut model) = filled_with(&world, redundancy, STEPS_BYTES).await;
    all_become(&volume, from).await;
    if shared {
        world.snapshot("v@s").await.expect("taken");
    }
    scribble(&volume, &mut model, 2, 4).await;
    volume.flush().await.expect("flushed");
    world.cut.set(world.cut.calls() + step, happens);
    let work = async {
        volume.merge_all().await.expect("merged");
        all_become(&volume, to).await
    };
    tokio::select! {
        biased;
        () = world.cut.reached() => {}
        report = work => {
            assert_eq!(report.refused + report.changed, 0, "{report:?}");
            return None;
        }
    }
    drop(volume);
    Some((world.crash().await, model))
}

async fn check_snapshot(world: &World, shared: bool, what: &str) {
    if shared {
        check(&world.open_snapshot("v@s").await, &pattern(9, STEPS_BYTES), what).await;
    }
}

/// In one process more: the disks were away, so what the last one had of the log is not all of it.
async fn goes_on(world: World, mut model: Vec<u8>, what: &str) {
    let world = world.crash().await;
    let volume = world.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
    check(&volume, &model, what).await;
    scribble(&volume, &mut model, 3, 4).await;
    volume.merge_all().await.unwrap_or_else(|error| panic!("{what}: {error}"));
    check(&volume, &model, what).await;
    world.assert_sound().await;
}

#[tokio::test]
async fn a_crash_at_any_step_of_coding_loses_nothing() {
    every_step("replica:2/rs:2+1", 4, 1, (Form::Mirrored, Form::Coded), false).await;
}

#[tokio::test]
async fn a_crash_at_any_step_of_mirroring_loses_nothing() {
    every_step("replica:2/rs:2+1", 4, 1, (Form::Coded, Form::Mirrored), false).await;
}

#[tokio::test]
async fn a_crash_at_any_step_of_coding_what_a_snapshot_has_too_loses_nothing() {
    every_step("replica:2/rs:2+1", 4, 1, (Form::Mirrored, Form::Coded), true).await;
}

#[tokio::test]
async fn a_crash_at_any_step_of_coding_loses_nothing_with_two_disks_lost() {
    every_step("replica:3/rs:2+2", 4, 2, (Form::Mirrored, Form::Coded), false).await;
}

#[tokio::test]
async fn a_crash_at_any_step_of_turning_one_chunk_loses_nothing() {
    for ways in [
        (Form::Coded, mixed(&[1])),
        (mixed(&[1]), Form::Coded),
        (mixed(&[1]), mixed(&[0])),
        (mixed(&[0]), Form::Mirrored),
        (Form::Mirrored, mixed(&[2])),
    ] {
        every_step("replica:2/rs:3+1", 5, 1, ways, false).await;
    }
}

/// A disk dies at any step, and the process lives on.
#[tokio::test]
async fn a_disk_that_dies_at_any_step_of_a_switch_takes_nothing_with_it() {
    for disk in 0..5 {
        for step in 0.. {
            let world = World::with(5, warm(), step).await;
            let (volume, mut model) = filled_with(&world, "replica:2/rs:3+1", STEPS_BYTES).await;
            let calls = world.cut.calls();
            world.cut.kill(disk, calls + step);
            for form in [Form::Coded, mixed(&[0]), mixed(&[1]), Form::Mirrored] {
                all_become(&volume, form).await;
            }
            let what = format!("disk {disk} dies at step {step}");
            check(&volume, &model, &what).await;
            if world.cut.calls() < calls + step {
                break;
            }
            scribble(&volume, &mut model, 3, 3).await;
            volume.flush().await.expect("flushed");
            check(&volume, &model, &what).await;
        }
    }
}

/// Readers and a writer, with a disk lost, while stripes go back and forth.
#[tokio::test]
async fn clients_notice_nothing_of_switches() {
    let world = World::with(7, warm(), 1).await;
    let (volume, model) = filled(&world, "replica:3/rs:4+2").await;
    world.lose(3);
    let all = ByteRange { offset: 0, bytes: BYTES as u64 };
    let switching = async {
        for _ in 0..6 {
            for form in [Form::Coded, mixed(&[1]), mixed(&[0, 1]), Form::Mirrored, mixed(&[2])] {
                all_become(&volume, form).await;
            }
        }
    };
    let reading = || async {
        for _ in 0..60 {
            let read = joined(volume.read(all).await.expect("it reads"));
            assert!(read[..] == model[..], "other bytes");
            tokio::task::yield_now().await;
        }
    };
    // The same bytes again, so that readers know what there is, and merges have something to do.
    let writing = async {
        for page in 0..40 {
            let at = page * 3 * 4096 % BYTES;
            volume.write(at as u64, model[at..at + 4096].to_vec().into(), Durable::Now).await.expect("written");
            volume.merge_all().await.expect("merged");
        }
    };
    // Snapshots and clones come and go meanwhile.
    let keeping = async {
        for number in 0..6 {
            let name = format!("v@s{number}");
            world.snapshot(&name).await.expect("taken");
            let clone = format!("w{number}");
            world.volumes.clone_snapshot(&name.parse().expect("a name"), &clone).await.expect("made");
            let clone = world.volumes.open(&clone).await.expect("it opens");
            scribble(&clone, &mut model.clone(), number, 3).await;
            clone.switch(vec![Switch { position: number % 2, to: Form::Mirrored }]).await.expect("switched, or not");
            clone.merge_all().await.expect("merged");
            check(&world.open_snapshot(&name).await, &model, "a snapshot").await;
            if number % 2 == 0 {
                world.volumes.delete_snapshot(&name.parse().expect("a name")).await.expect("deleted");
            }
        }
    };
    tokio::join!(switching, reading(), reading(), writing, keeping);
    check(&volume, &model, "in the end").await;
    check(&world.open_snapshot("v@s5").await, &model, "in the end").await;
    world.assert_sound().await;
}

#[tokio::test]
async fn two_forms_are_checked_when_a_volume_is_made() {
    let world = World::new(5).await;
    let create = |redundancy: &str| {
        world.volumes.create(NewVolume {
            chunk_bytes: 64 << 10,
            ..NewVolume::new("v", 1 << 20, redundancy.parse().expect("valid"))
        })
    };
    assert!(matches!(create("replica:3/rs:4+2").await, Err(VolumeError::TooFewDisks { needed: 6, available: 5, .. })));
    assert!(matches!(create("replica:3/clay:2+2:3").await, Err(VolumeError::BadCode { .. })));
    create("replica:3/rs:3+2").await.expect("five disks");
}
