//! Random histories of volumes, snapshots and clones against plain bytes.

use std::collections::BTreeMap;

use claystone_code::{ChunkIndex, ChunkSet};
use claystone_env::Random;
use claystone_sim::SimRandom;
use claystone_volume::{Blocks, Form, Switch};

use crate::world::{World, check, scribble, settings};

const BYTES: usize = 384 << 10;

/// What is there, and what it holds.
#[derive(Default)]
struct Model {
    volumes: BTreeMap<String, Vec<u8>>,
    snapshots: BTreeMap<String, Vec<u8>>,
}

fn pick(random: &SimRandom, all: &BTreeMap<String, Vec<u8>>) -> Option<String> {
    all.keys().nth(random.below(all.len().max(1) as u64) as usize).cloned()
}

fn volume_of(snapshot: &str) -> &str {
    snapshot.split('@').next().expect("a volume and a snapshot")
}

async fn check_all(world: &World, model: &Model, what: &str) {
    for (name, content) in &model.volumes {
        let volume = world.volumes.open(name).await.unwrap_or_else(|error| panic!("{what}: {name}: {error}"));
        check(&volume, content, &format!("{what}: {name}")).await;
    }
    for (name, content) in &model.snapshots {
        check(&world.open_snapshot(name).await, content, &format!("{what}: {name}")).await;
    }
    let listed = world.volumes.snapshots().await.expect("listed");
    assert_eq!(listed.len(), model.snapshots.len(), "{what}");
    world.assert_sound().await;
}

async fn history(seed: u64, code: &str, disks: u128) {
    let random = SimRandom::new(seed);
    let mut world = World::with(disks, settings(), seed).await;
    let mut model = Model::default();
    world.create("v0", BYTES as u64, code).await;
    model.volumes.insert("v0".to_owned(), vec![0; BYTES]);
    let mut made = 0;
    let mut lost = false;
    for step in 0..60 {
        let what = format!("seed {seed}, {code}, step {step}");
        match random.below(20) {
            0..=5 => {
                let Some(name) = pick(&random, &model.volumes) else { continue };
                let volume = world.volumes.open(&name).await.expect("it opens");
                let content = model.volumes.get_mut(&name).expect("it is there");
                scribble(&volume, content, seed * 1000 + step, 1 + random.below(6)).await;
            }
            6 => {
                let Some(name) = pick(&random, &model.volumes) else { continue };
                let volume = world.volumes.open(&name).await.expect("it opens");
                let form = |at: u64| match (random.below(3) + at) % 3 {
                    0 => Form::Coded,
                    1 => Form::Mirrored,
                    // Where the volume has such a form; else nothing changes.
                    _ => Form::Mixed(ChunkSet::default().with(ChunkIndex(random.below(2) as u16))),
                };
                let switches = (0..4).map(|position| Switch { position, to: form(position) }).collect();
                volume.switch(switches).await.expect("what cannot be switched stays");
            }
            7..=10 => {
                let Some(name) = pick(&random, &model.volumes) else { continue };
                let volume = world.volumes.open(&name).await.expect("it opens");
                volume.merge_once(1 + random.below(100)).await.expect("merged");
            }
            11..=12 => {
                let Some(name) = pick(&random, &model.volumes) else { continue };
                made += 1;
                let full = format!("{name}@s{made}");
                world.snapshot(&full).await.unwrap_or_else(|error| panic!("{what}: {error}"));
                model.snapshots.insert(full, model.volumes[&name].clone());
            }
            13..=14 if model.volumes.len() < 4 => {
                let Some(from) = pick(&random, &model.snapshots) else { continue };
                made += 1;
                let name = format!("v{made}");
                let parsed = from.parse().expect("a name");
                world.volumes.clone_snapshot(&parsed, &name).await.expect("made");
                model.volumes.insert(name, model.snapshots[&from].clone());
            }
            15 => {
                let Some(to) = pick(&random, &model.snapshots) else { continue };
                world.volumes.revert(&to.parse().expect("a name")).await.expect("nobody has it");
                model.volumes.insert(volume_of(&to).to_owned(), model.snapshots[&to].clone());
            }
            16 => {
                let Some(name) = pick(&random, &model.snapshots) else { continue };
                world.volumes.delete_snapshot(&name.parse().expect("a name")).await.expect("nobody reads it");
                model.snapshots.remove(&name);
            }
            17 => {
                let Some(name) = pick(&random, &model.volumes) else { continue };
                let needed = model.snapshots.keys().any(|snapshot| volume_of(snapshot) == name);
                let deleted = world.volumes.delete(&name).await;
                assert_eq!(deleted.is_err(), needed, "{what}: {deleted:?}");
                if !needed && model.volumes.len() > 1 {
                    model.volumes.remove(&name);
                } else if !needed {
                    model.volumes.insert(name.clone(), vec![0; BYTES]);
                    world.create(&name, BYTES as u64, code).await;
                }
            }
            18 => {
                for name in model.volumes.keys() {
                    world.volumes.open(name).await.expect("it opens").flush().await.expect("flushed");
                }
                world = world.crash().await;
                lost = false;
                check_all(&world, &model, &what).await;
            }
            _ if !lost => {
                lost = true;
                world.lose(random.below(disks as u64) as usize);
            }
            _ => {}
        }
        if step % 10 == 9 {
            check_all(&world, &model, &what).await;
        }
    }
    check_all(&world, &model, &format!("seed {seed}, {code}")).await;
    // Nothing is left of what nobody names.
    for name in model.snapshots.keys() {
        world.volumes.delete_snapshot(&name.parse().expect("a name")).await.expect("nobody reads it");
    }
    for name in model.volumes.keys() {
        world.volumes.delete(name).await.expect("it has no snapshots");
    }
    assert_eq!(world.meta.stripes(None, 9).await.expect("readable"), []);
    world.assert_sound().await;
}

#[tokio::test]
async fn random_histories_end_as_plain_bytes_do() {
    for seed in 0..12 {
        // Beside the log, of which there are two copies.
        let percent = 170 + (2 * settings().reserve_bytes * 100).div_ceil(BYTES as u64);
        let bounded = format!("replica:2/rs:3+1<={percent}%");
        let (code, disks) =
            [("rs:2+1", 4), ("replica:3/rs:4+2", 7), ("replica:2", 3), (&*bounded, 6)][seed as usize % 4];
        history(seed, code, disks).await;
    }
}
