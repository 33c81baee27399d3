//! A process takes a volume over while its former owner is at work: at every change of a store by the one or the other, what
//! was flushed is there, and the former owner changes nothing any more.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use claystone_chunk::testing::pattern;
use claystone_chunk::{ByteRange, ChunkStore};
use claystone_volume::{Blocks, BlocksError, Durable, Form, Settings, Switch, Volume, joined};

use crate::world::{World, moment, settings};

/// Two stripes of two data chunks.
const BYTES: usize = 256 << 10;
const PAGE: usize = 4096;
const DISKS: u64 = 4;
/// Pages that are written, each filled with the number of a version.
const SLOTS: usize = 5;

fn place(slot: usize) -> usize {
    slot * 13 * PAGE
}

/// What the volume holds when its slots have these versions.
fn content(versions: &[u8]) -> Vec<u8> {
    let mut content = pattern(9, BYTES).to_vec();
    for (slot, version) in versions.iter().enumerate() {
        content[place(slot)..place(slot) + PAGE].fill(*version);
    }
    content
}

/// The versions that a volume has, and nothing else.
async fn versions(volume: &Volume, what: &str) -> Vec<u8> {
    let all = ByteRange { offset: 0, bytes: BYTES as u64 };
    let found = joined(volume.read(all).await.unwrap_or_else(|error| panic!("{what}: {error}")));
    let versions: Vec<u8> = (0..SLOTS).map(|slot| found[place(slot)]).collect();
    let expected = content(&versions);
    let wrong = found.chunks(PAGE).zip(expected.chunks(PAGE)).position(|(found, expected)| found != expected);
    assert_eq!(wrong, None, "{what}: a page has parts of versions, or other bytes");
    versions
}

async fn write(volume: &Volume, slot: usize, version: u8) -> Result<(), BlocksError> {
    volume.write(place(slot) as u64, Bytes::from(vec![version; PAGE]), Durable::WithFlush).await
}

/// A version that was written to every slot: flushed, and begun.
type Known = Arc<Mutex<(u8, u8)>>;

/// Writes a version to every slot and flushes.
async fn write_all(volume: &Volume, version: u8, known: &Known) -> Result<(), BlocksError> {
    let lock = || known.lock().unwrap_or_else(PoisonError::into_inner);
    lock().1 = version;
    for slot in 0..SLOTS {
        write(volume, slot, version).await?;
    }
    volume.flush().await?;
    lock().0 = version;
    Ok(())
}

/// All that an owner does: writes, flushes, merges and switches.
async fn work(volume: Volume, known: Known) -> Result<(), BlocksError> {
    write_all(&volume, 2, &known).await?;
    volume.merge_all().await?;
    let all = |to| (0..2).map(|position| Switch { position, to }).collect();
    volume.switch(all(Form::Coded)).await?;
    write_all(&volume, 3, &known).await?;
    volume.merge_all().await?;
    volume.switch(all(Form::Mirrored)).await?;
    Ok(())
}

/// A volume with stripes, and version 1 in every slot, flushed and not merged.
async fn prepared(seed: u64) -> (World, Volume, Known) {
    let warm = Settings { heat_half_life: Duration::from_secs(1_000_000), ..settings() };
    let world = World::with(DISKS.into(), warm, seed).await;
    let volume = world.create("v", BYTES as u64, "replica:2/rs:2+1").await;
    volume.write(0, content(&[]).into(), Durable::Now).await.expect("written");
    volume.merge_all().await.expect("merged");
    let known = Known::default();
    write_all(&volume, 1, &known).await.expect("flushed");
    (world, volume, known)
}

/// What may be read: what was flushed, or begun after it.
fn assert_possible(found: &[u8], known: &Known, what: &str) {
    let (flushed, begun) = *known.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(found.iter().all(|version| (flushed..=begun).contains(version)), "{what}: {found:?}, {flushed}..={begun}");
}

/// The former owner is refused whatever it does.
async fn assert_refused(old: &Volume, what: &str) {
    let written = old.write(0, Bytes::from(vec![99; PAGE]), Durable::Now).await;
    assert!(written.is_err(), "{what}: the former owner writes");
    assert!(old.flush().await.is_err(), "{what}: the former owner flushes");
    assert!(old.merge_all().await.is_err(), "{what}: the former owner merges");
    let switched = old.switch(vec![Switch { position: 0, to: Form::Coded }]).await;
    assert!(switched.is_err(), "{what}: the former owner switches");
}

/// The next owner finds what the last one had, with a disk lost, and goes on.
async fn goes_on(world: World, expected: &[u8], step: u64, what: &str) {
    let world = world.crash().await;
    world.lose((step % DISKS) as usize);
    let volume = world.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(versions(&volume, what).await, expected, "{what}: in the next life");
    volume.merge_all().await.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(versions(&volume, what).await, expected, "{what}: merged");
    world.assert_sound().await;
}

/// A former owner that has nothing to write learns that it is one from the records, before they name what it read.
#[tokio::test]
async fn an_idle_former_owner_switches_nothing() {
    let (world, old, known) = prepared(5).await;
    old.merge_all().await.expect("merged");
    let second = world.another_process();
    let new = second.volumes.open("v").await.expect("taken over");
    let switched = old.switch(vec![Switch { position: 0, to: Form::Coded }]).await;
    assert!(switched.is_err(), "{switched:?}");
    assert!(old.has_failed());
    let found = versions(&new, "taken over").await;
    assert_possible(&found, &known, "taken over");
    new.switch(vec![Switch { position: 0, to: Form::Coded }]).await.expect("it is its stripe");
    goes_on(second, &found, 1, "switched").await;
}

/// The former owner stands still at any change that it makes, and goes on when the next one has opened the volume, written
/// it, or merged or switched its stripes.
#[tokio::test]
async fn a_former_owner_that_goes_on_at_any_step_changes_nothing() {
    let mut steps = 0;
    for happens in [false, true] {
        for step in 0.. {
            let (world, old, known) = prepared(step).await;
            world.cut.stop(world.cut.calls() + step, happens);
            let working = world.beside(work(old.clone(), known.clone()));
            let Some(working) = stands_still(&world, working).await else { break };
            steps += 1;
            let what = format!("step {step}, happens: {happens}");
            let second = world.another_process();
            let new = second.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
            let mut expected = versions(&new, &what).await;
            assert_possible(&expected, &known, &what);
            for slot in [1, 3] {
                write(&new, slot, 50).await.unwrap_or_else(|error| panic!("{what}: {error}"));
                expected[slot] = 50;
            }
            new.flush().await.unwrap_or_else(|error| panic!("{what}: {error}"));
            // What it has changed in place a late patch would undo.
            if step % 4 > 0 {
                new.merge_all().await.unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            if step % 4 > 1 {
                let to = if step % 4 == 2 { Form::Coded } else { Form::Mirrored };
                let switches = (0..2).map(|position| Switch { position, to }).collect();
                new.switch(switches).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            }

            world.cut.go_on();
            // If all its work is done, it was done before.
            drop(working.await.expect("it ends"));
            assert_possible(&[expected[0], expected[2], expected[4]], &known, &what);
            assert_refused(&old, &what).await;
            // A switch that was about to be committed may have changed a record under it.
            second.lose((step % DISKS) as usize);
            assert_eq!(versions(&new, &what).await, expected, "{what}: beside the former owner, with a disk lost");
            second.find((step % DISKS) as usize);
            new.merge_all().await.unwrap_or_else(|error| panic!("{what}: {error}"));
            write(&new, 2, 51).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            expected[2] = 51;
            new.flush().await.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(versions(&new, &what).await, expected, "{what}: merged");
            drop((old, new));
            goes_on(second, &expected, step, &what).await;
        }
    }
    assert!(steps > 100, "only {steps} steps");
}

type Working = tokio::sync::oneshot::Receiver<Result<(), BlocksError>>;

/// Waits until a process stands still. `None`: its work has fewer changes, and is done.
async fn stands_still(world: &World, mut working: Working) -> Option<Working> {
    tokio::select! {
        biased;
        () = world.cut.reached() => {}
        worked = &mut working => {
            worked.expect("it ends").expect("nothing happened");
            return None;
        }
    }
    // What does not wait for that change goes on.
    moment().await;
    Some(working)
}

/// The next owner ends at any change of its opening, while the former one writes and flushes: whatever was flushed, before or
/// after, is found by the one that comes then.
#[tokio::test]
async fn a_new_owner_may_end_at_any_step_of_its_opening() {
    let mut steps = 0;
    for happens in [false, true] {
        for step in 0.. {
            let (world, old, known) = prepared(step).await;
            // Not flushed.
            write(&old, 0, 2).await.expect("written");
            known.lock().unwrap_or_else(PoisonError::into_inner).1 = 2;
            let second = world.another_process();
            second.cut.set(step, happens);
            if second.until_cut(second.volumes.open("v")).await.is_some_and(|opened| opened.is_ok()) {
                break;
            }
            steps += 1;
            let what = format!("step {step} of the opening, happens: {happens}");
            // Some disks are fenced, or all.
            let is_refused = write_all(&old, 3, &known).await.is_err();
            assert!(is_refused || step < DISKS, "{what}: all disks were fenced, and the former owner flushes");
            let power_cut = step % 3 == 0;
            let third = if power_cut { second.crash().await } else { second.kill() };
            let new = third.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
            let expected = versions(&new, &what).await;
            assert_possible(&expected, &known, &what);
            assert_refused(&old, &what).await;
            assert_eq!(versions(&new, &what).await, expected, "{what}: beside the former owner");
            drop((old, new));
            goes_on(third, &expected, step, &what).await;
        }
    }
    assert!(steps > 20, "only {steps} steps");
}

/// A disk does not answer the next owner from any change of its opening on, and the former one has it still.
#[tokio::test]
async fn a_disk_that_only_the_former_owner_has_helps_it_nothing() {
    let mut steps = 0;
    for disk in 0..DISKS as usize {
        for step in 0.. {
            let (world, old, known) = prepared(step).await;
            write(&old, 0, 2).await.expect("written");
            known.lock().unwrap_or_else(PoisonError::into_inner).1 = 2;
            let second = world.another_process();
            second.cut.kill(disk, step);
            let what = format!("without disk {disk} from step {step} on");
            let mut new = second.volumes.open("v").await;
            let is_over = second.cut.calls() <= step;
            // It was the one that nothing else could do without.
            if new.is_err() {
                second.cut.heal();
                new = second.volumes.open("v").await;
            }
            let new = new.unwrap_or_else(|error| panic!("{what}: {error}"));
            let mut expected = versions(&new, &what).await;
            assert_possible(&expected, &known, &what);
            write(&new, 1, 50).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            new.flush().await.unwrap_or_else(|error| panic!("{what}: {error}"));
            expected[1] = 50;
            assert_refused(&old, &what).await;
            // The disk is back, with what it missed.
            second.cut.heal();
            new.merge_all().await.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_refused(&old, &what).await;
            assert_eq!(versions(&new, &what).await, expected, "{what}: beside the former owner");
            drop((old, new));
            goes_on(second, &expected, disk as u64 + 1, &what).await;
            if is_over {
                break;
            }
            steps += 1;
        }
    }
    assert!(steps > 40, "only {steps} steps");
}

/// Whatever a former owner left on disks is over when the next one has opened the volume and merged.
#[tokio::test]
async fn nothing_of_a_former_owners_log_stays() {
    let (world, old, known) = prepared(1).await;
    let second = world.another_process();
    let new = second.volumes.open("v").await.expect("it opens");
    assert_refused(&old, "then").await;
    drop(old);
    new.merge_all().await.expect("merged");
    let id = new.record().id;
    for disk in &world.disks {
        for info in disk.segments().segments(id).await.expect("listed") {
            assert_eq!(info.term, new.record().term, "a segment of a former owner on {disk:?}");
        }
    }
    assert_possible(&versions(&new, "then").await, &known, "then");
}
