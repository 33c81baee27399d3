//! Small objects that share stripes.

mod world;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use claystone_chunk::testing::{Faults, pattern};
use claystone_chunk::{ByteRange, DiskId};
use claystone_code::{ConversionGoal, plan_conversion};
use claystone_meta::{HeatPolicy, HeatRecords, Precondition, StripeRecord, StripeRecords};
use claystone_object::{BodyError, Put};
use claystone_stripe::{Layout, Unpaced};
use world::{World, delete_of, etag_of_md5, put};

async fn put_all(world: &World, sizes: &[usize]) -> Vec<(String, Bytes)> {
    let bodies: Vec<(String, Bytes)> =
        sizes.iter().enumerate().map(|(at, &bytes)| (format!("small {at}"), pattern(at as u64, bytes))).collect();
    let puts = bodies.iter().map(|(key, data)| async { world.put(key, data).await.expect("room") });
    futures::future::join_all(puts).await;
    bodies
}

async fn stripes_of(world: &World) -> Vec<(String, u64)> {
    let stripes = world.meta.stripes(None, 10_000).await.expect("records");
    stripes.iter().map(|stripe| (stripe.code.to_string(), stripe.data_bytes)).collect()
}

#[tokio::test]
async fn small_objects_that_come_at_once_share_stripes() {
    let world = World::new(6, "rs:4+2").await;
    let sizes: Vec<usize> = (1..=100).map(|at| at * 160).collect();
    let bodies = put_all(&world, &sizes).await;
    let stripes = stripes_of(&world).await;
    assert!(stripes.len() <= 20, "a few together, how many is a matter of time: {stripes:?}");
    for (key, data) in &bodies {
        world.assert_holds(key, data).await;
        let object = world.object(key).await.expect("there");
        let range = ByteRange { offset: data.len() as u64 / 3, bytes: data.len() as u64 / 2 };
        let within = range.offset as usize..range.end() as usize;
        assert!(world.read(&object, Some(range)).await == data[within], "{key}");
    }
    // A disk is lost: parts are decoded as all else.
    world.faulty[2].set(Faults { reads_fail: Some("lost".to_owned()), ..Faults::default() });
    for (key, data) in &bodies {
        world.assert_holds(key, data).await;
    }
    assert_eq!(world.meta.check().await.expect("readable"), Vec::<String>::new());
}

#[tokio::test]
async fn a_pack_that_nobody_names_is_deleted() {
    let world = World::new(6, "rs:4+2").await;
    let mut refused = put("bad", &pattern(1, 5000));
    refused.confirm = Box::new(|_| Err(BodyError::WrongLength { declared: 1, got: 2 }));
    world.objects.put(refused).await.expect_err("refused");
    world.put("good", &pattern(3, 5000)).await.expect("room");
    let taken = Put { precondition: Precondition::Absent, ..put("good", &pattern(2, 5000)) };
    world.objects.put(taken).await.expect_err("it is there");
    // Deleted by a task of its own.
    for _ in 0..1000 {
        if world.chunks().await == (3, 3) {
            return;
        }
        tokio::task::yield_now().await;
        world.env.clock.sleep(Duration::from_millis(1)).await;
    }
    panic!("chunks stored and named: {:?}", world.chunks().await);
}

/// Bodies that came one by one are replicated; written anew together they are coded. What is deleted leaves no hole behind.
#[tokio::test]
async fn thin_packs_are_written_anew_together() {
    let world = World::new(6, "rs:4+2").await;
    let bodies: Vec<(String, Bytes)> = (0..40).map(|at| (format!("key {at}"), pattern(at, 3000))).collect();
    for (key, data) in &bodies {
        world.put(key, data).await.expect("room");
    }
    assert_eq!(stripes_of(&world).await, vec![("replica:3".to_owned(), 3000); 40]);
    let before = world.object("key 7").await.expect("there");
    let round = world.objects.repack_once().await.expect("all disks are there");
    assert_eq!((round.packs, round.parts, round.bytes_written), (40, 40, 120_000));
    assert_eq!(stripes_of(&world).await, [("rs:4+2".to_owned(), 120_000)]);
    assert!(world.read(&before, None).await == bodies[7].1, "found before, read after");
    assert_eq!(world.objects.repack_once().await.expect("readable").packs, 0, "once is enough");
    for (key, data) in &bodies {
        world.assert_holds(key, data).await;
    }
    // Half of it is worth writing the other half anew.
    for (key, _) in &bodies[..20] {
        let object = world.object(key).await.expect("there");
        world.objects.delete(delete_of(&object)).await.expect("there");
        let round = world.objects.repack_once().await.expect("readable");
        assert_eq!(round.packs, u64::from(key == "key 19"), "{key}");
    }
    assert_eq!(stripes_of(&world).await, [("rs:4+2".to_owned(), 60_000)]);
    for (key, data) in &bodies[20..] {
        world.assert_holds(key, data).await;
    }
    assert_eq!(world.meta.check().await.expect("readable"), Vec::<String>::new());
}

/// Of two packs that were merged, one is deleted by half and more: what is left of it is written anew, and its band is empty.
#[tokio::test]
async fn what_is_deleted_of_one_pack_of_a_merged_stripe_is_given_back() {
    let world = World::new(9, "rsm:2+1").await;
    let room = |disks: std::ops::RangeInclusive<u128>| {
        for disk in (1..=9).map(DiskId) {
            let free_bytes = if disks.contains(&disk.0) { 1 << 40 } else { 0 };
            world.stripes.stores().update(disk, |member| member.space.free_bytes = free_bytes);
        }
    };
    let bodies: Vec<(String, Bytes)> = (0..80).map(|at| (format!("key {at}"), pattern(at, 3000))).collect();
    for (bodies, disks) in bodies.chunks(40).zip([1..=3, 4..=6]) {
        room(disks);
        for (key, data) in bodies {
            world.put(key, data).await.expect("room");
        }
        assert_eq!(world.objects.repack_once().await.expect("all disks are there").parts, 40);
    }
    room(1..=9);
    let sources = world.meta.stripes(None, 9).await.expect("records");
    let [fast, compact] = ["rsm:2+1", "rsm:4+1"].map(|code| code.parse().expect("valid"));
    let plan = plan_conversion(fast, compact, ConversionGoal::FewestReads).expect("they merge");
    let converted = world.stripes.convert(&sources, &plan, &Unpaced).await.expect("they are apart");
    let merged = world.meta.convert(converted.change).await.expect("nothing changed meanwhile")[0].id;
    for (key, _) in &bodies[40..59] {
        let object = world.object(key).await.expect("there");
        world.objects.delete(delete_of(&object)).await.expect("there");
    }
    let policy: HeatPolicy = "rsm:2+1/rsm:4+1<=150%,0.25..1.00".parse().expect("valid");
    let set_policy = async |policy| world.objects.set_policy("bucket", policy).await.expect("enough disks");
    set_policy(Some(policy)).await;
    assert_eq!(world.objects.repack_once().await.expect("readable").parts, 0, "more than half of it is left");
    let object = world.object(&bodies[59].0).await.expect("there");
    world.objects.delete(delete_of(&object)).await.expect("there");
    set_policy(None).await;
    assert_eq!(world.objects.repack_once().await.expect("readable").parts, 0, "nobody would split the stripe");
    set_policy(Some(policy)).await;
    let round = world.objects.repack_once().await.expect("readable");
    assert_eq!(
        (round.packs, round.parts, round.bytes_written),
        (0, 20, 60 << 10),
        "with zeros, so that others are as long"
    );
    assert_eq!(world.meta.names_of(&[merged]).await.expect("readable")[0].bands, [(0, 40)].into());
    assert_eq!(world.objects.repack_once().await.expect("readable").parts, 0, "once is enough");
    for (key, data) in bodies[..40].iter().chain(&bodies[60..]) {
        world.assert_holds(key, data).await;
    }
    assert_eq!(world.meta.check().await.expect("readable"), Vec::<String>::new());
}

/// On exactly so many disks a merge has no choice: lanes must have left packs the right ones, and chunks of one length.
#[tokio::test]
async fn packs_that_are_full_are_merged() {
    for (policy, disks) in [("rsm-6+3", 15), ("clay", 8)] {
        let policy = HeatPolicy::named(policy).expect("a preset");
        let HeatPolicy { fast, compact, .. } = policy;
        let world = World::new(disks, "rs:4+2").await;
        world.objects.set_policy("bucket", Some(policy)).await.expect("enough disks");
        // While one pack is written, many wait for the next.
        let slow = Faults { write_delay: Duration::from_millis(100), ..Faults::default() };
        world.faulty.iter().for_each(|store| store.set(slow.clone()));
        let sizes: Vec<usize> = (0..800).map(|at: usize| 1000 + at.wrapping_mul(2_654_435_761) % 60_000).collect();
        let bodies = put_all(&world, &sizes).await;
        world.faulty.iter().for_each(|store| store.set(Faults::default()));
        let row_bytes = u64::from(fast.shape().data) << 16;
        let stripes = world.meta.stripes(None, 999).await.expect("records");
        let mut full: Vec<StripeRecord> =
            stripes.into_iter().filter(|stripe| stripe.data_bytes == 10 * row_bytes).collect();
        assert!(full.len() > 3, "{} full packs", full.len());
        let plan = plan_conversion(fast, compact, ConversionGoal::FewestReads).expect("they merge");
        let data_disks = |stripe: &StripeRecord| {
            let places = stripe.places[..usize::from(fast.shape().data)].iter().flatten();
            places.map(|place| place.disk).collect::<BTreeSet<_>>()
        };
        while full.len() >= usize::from(plan.sources) {
            let first = full.remove(0);
            assert_eq!((first.code, Layout::is_whole_rows(&first).ok()), (fast, Some(true)));
            let mut sources = vec![first];
            for _ in 1..plan.sources {
                let is_partner = |other: &StripeRecord| {
                    sources.iter().all(|source| {
                        source.data_bytes == other.data_bytes && data_disks(source).is_disjoint(&data_disks(other))
                    })
                };
                let partner = full.iter().position(is_partner);
                sources.push(full.remove(partner.expect("one in another lane, as long")));
            }
            let converted = world.stripes.convert(&sources, &plan, &Unpaced).await.expect("they are apart");
            world.meta.convert(converted.change).await.expect("nothing changed meanwhile");
        }
        // What is short is written anew, and read all the same.
        world.objects.repack_once().await.expect("readable");
        for (key, data) in &bodies {
            world.assert_holds(key, data).await;
        }
        assert_eq!(world.meta.check().await.expect("readable"), Vec::<String>::new());
    }
}

/// All that others have in a pack is deleted before the last body of it is named: that one is packed again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_body_whose_pack_died_is_packed_again() {
    let world = Arc::new(World::new(6, "rs:4+2").await);
    let slow = Faults { write_delay: Duration::from_millis(50), ..Faults::default() };
    world.faulty.iter().for_each(|store| store.set(slow.clone()));
    let spawn = |put: Put| {
        let objects = world.objects.clone();
        let task = async move {
            objects.put(put).await.expect("room");
        };
        world.env.tasks.spawn("put", Box::pin(task)).ended()
    };
    // While the first is written, the two behind it wait for the next pack.
    let first = spawn(put("first", &pattern(1, 4000)));
    world.env.clock.sleep(Duration::from_millis(20)).await;
    let (packed, is_packed) = std::sync::mpsc::channel();
    let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
    let confirm = etag_of_md5();
    let late = Put {
        confirm: Box::new(move |digests| {
            packed.send(()).expect("the test waits");
            may_go_on.recv().expect("the test says so");
            confirm(digests)
        }),
        ..put("late", &pattern(3, 6000))
    };
    let (late, early) = (spawn(late), spawn(put("early", &pattern(2, 5000))));
    first.await;
    early.await;
    is_packed.recv().expect("it gets there");
    let early = world.object("early").await.expect("there");
    let pack = early.stripes()[0].clone();
    assert_eq!(pack.data_bytes, 11_000, "both are in one pack");
    world.objects.delete(delete_of(&early)).await.expect("there");
    go_on.send(()).expect("it waits");
    late.await;
    world.assert_holds("late", &pattern(3, 6000)).await;
    assert_ne!(world.object("late").await.expect("there").stripes()[0].id, pack.id);
    assert_eq!(world.meta.check().await.expect("readable"), Vec::<String>::new());
}

/// A pack that cannot be read keeps no other from being written anew, and one that would lack a chunk is no gain.
#[tokio::test]
async fn packs_that_cannot_be_read_or_written_whole_are_left() {
    let world = World::new(9, "rs:4+2").await;
    let bodies: Vec<(String, Bytes)> = (0..40).map(|at| (format!("key {at}"), pattern(at, 3000))).collect();
    let room = |disks: std::ops::RangeInclusive<u128>, bytes| {
        disks.for_each(|disk| world.stripes.stores().update(DiskId(disk), |member| member.space.free_bytes = bytes));
    };
    // The first lies on three disks that are lost then.
    room(1..=6, 0);
    world.put("lost", &pattern(77, 3000)).await.expect("room");
    room(1..=6, 1 << 40);
    room(7..=9, 0);
    for (key, data) in &bodies {
        world.put(key, data).await.expect("room");
    }
    for store in &world.faulty[6..] {
        store.set(Faults { reads_fail: Some("lost".to_owned()), ..Faults::default() });
    }
    // A disk that takes no writes costs the new pack a chunk.
    world.faulty[2].set(Faults { writes_fail: Some("broken".to_owned()), ..Faults::default() });
    assert_eq!(world.objects.repack_once().await.expect("records").packs, 0);
    world.faulty[2].set(Faults::default());
    let round = world.objects.repack_once().await.expect("records");
    assert_eq!((round.packs, round.parts), (40, 40));
    for (key, data) in &bodies {
        world.assert_holds(key, data).await;
    }
    assert_eq!(stripes_of(&world).await.len(), 2, "the lost one, and one of all others");
}

/// A repack that is stopped anywhere, as the store is when it stops, leaves every body readable.
#[tokio::test]
async fn a_repack_that_is_cut_off_anywhere_loses_nothing() {
    let mut cut = 0;
    let whole = loop {
        let world = World::new(6, "rs:4+2").await;
        let bodies: Vec<(String, Bytes)> = (0..5).map(|at| (format!("key {at}"), pattern(at, 4000))).collect();
        for (key, data) in &bodies {
            world.put(key, data).await.expect("room");
        }
        let mut repack = Box::pin(world.objects.repack_once());
        let mut whole = false;
        for _ in 0..cut {
            whole = whole || futures::poll!(&mut repack).is_ready();
            if whole {
                break;
            }
            world.env.clock.sleep(Duration::from_micros(300)).await;
        }
        drop(repack);
        // Whatever was spawned or waits in the records' queue gets its time.
        world.env.clock.sleep(Duration::from_millis(10)).await;
        for (key, data) in &bodies {
            world.assert_holds(key, data).await;
        }
        assert_eq!(world.meta.check().await.expect("readable"), Vec::<String>::new());
        if whole {
            break cut;
        }
        cut += 1;
    };
    assert!(whole > 2, "cut at {whole} places");
}
