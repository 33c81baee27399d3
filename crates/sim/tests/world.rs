//! One seed is one run, and a crash keeps what the contract of `Directory` says.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use claystone_env::{WallTime, call, timeout};
use claystone_sim::{DiskModel, Fault, SimDisk, TraceSum, World, run};
use futures::FutureExt;

fn disk(world: &World) -> SimDisk {
    world.disk("d", DiskModel::ssd(1 << 20))
}

/// Two tasks that race for a disk under random faults.
fn scenario(seed: u64) -> (TraceSum, Vec<u8>, Duration) {
    run(seed, |world| async move {
        let disk = world.disk("d", DiskModel::ssd(1 << 20));
        let process = world.process("p");
        let worker = process.worker(&disk);
        disk.fail_every(Some((9, Fault::Medium)));
        let mut tasks = Vec::new();
        for name in ["a", "b"] {
            let (directory, worker, env) = (disk.attach(), worker.clone(), process.env().clone());
            let random = env.random.fork(name);
            let task = async move {
                for _ in 0..50 {
                    let (directory, random) = (directory.clone(), random.clone());
                    let work = move || {
                        let file = directory.open(name).or_else(|_| directory.create(name));
                        let mut bytes = vec![0; random.below(3000) as usize];
                        random.fill(&mut bytes);
                        let _ = file.and_then(|file| file.write_at(random.below(3000), &bytes));
                    };
                    call(&*worker, work).await.expect("the worker runs");
                    env.clock.sleep(Duration::from_micros(1)).await;
                }
            };
            tasks.push(process.env().tasks.spawn("race", task.boxed()));
        }
        for task in tasks {
            task.ended().await;
        }
        disk.crash();
        let content = disk.files().iter().flat_map(|path| disk.content(path)).collect();
        (world.trace(), content, world.clock().now().0)
    })
}

#[test]
fn a_seed_repeats_its_run() {
    for seed in 0..20 {
        let first = scenario(seed);
        assert!(first.0.events > 100);
        assert!(scenario(seed) == first, "seed {seed}");
    }
    let hashes: BTreeSet<u64> = (0..20).map(|seed| scenario(seed).0.hash).collect();
    assert_eq!(hashes.len(), 20, "seeds differ");
}

#[test]
fn time_passes_only_in_the_world() {
    run(1, |world| async move {
        let clock = world.clock();
        let (now, wall) = (clock.now(), clock.wall());
        clock.sleep(Duration::from_micros(1)).await;
        assert_eq!(clock.now().since(now), Duration::from_micros(1));
        clock.sleep(Duration::from_secs(365 * 86400)).await;
        assert_eq!(clock.wall().unix_ms - wall.unix_ms, 365 * 86400 * 1000);
        let process = world.process("p");
        process.clock().set_wall_error_ms(-500);
        assert_eq!(process.env().clock.wall(), WallTime { unix_ms: clock.wall().unix_ms - 500 });
        let never = std::future::pending::<()>();
        assert_eq!(timeout(&*clock, Duration::from_secs(5), never).await, None);
    });
}

#[test]
fn a_process_that_starts_again_draws_other_numbers() {
    let draw = |seed| run(seed, |world| async move { [(); 2].map(|()| world.process("p").env().random.next_u64()) });
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1)[0], draw(1)[1]);
    assert_ne!(draw(1)[0], draw(2)[0]);
}

#[test]
fn killed_tasks_stop_and_no_new_ones_start() {
    run(1, |world| async move {
        let process = world.process("p");
        let ran = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let task = |delay: u64| {
            let (clock, ran) = (process.env().clock.clone(), ran.clone());
            let task = async move {
                clock.sleep(Duration::from_secs(delay)).await;
                ran.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            };
            process.env().tasks.spawn("t", task.boxed())
        };
        task(1);
        let second = task(3);
        world.clock().sleep(Duration::from_secs(2)).await;
        process.kill();
        task(1).ended().await;
        second.ended().await;
        world.clock().sleep(Duration::from_secs(9)).await;
        assert_eq!(ran.load(std::sync::atomic::Ordering::Relaxed), 1);
    });
}

#[test]
fn a_worker_charges_the_disk_s_time_in_turn() {
    run(1, |world| async move {
        let model = DiskModel { sync: Duration::from_millis(10), name: Duration::ZERO, ..DiskModel::ssd(1 << 20) };
        let disk = world.disk("d", model);
        let process = world.process("p");
        let worker = process.worker(&disk);
        let sync = || {
            let directory = disk.attach();
            call(&*worker, move || directory.sync_dir(""))
        };
        let (one, two) = futures::join!(sync(), sync());
        one.and(two).expect("the worker runs").expect("sync");
        assert_eq!(world.clock().now().0, Duration::from_millis(20));
        disk.set_latency_factor(3);
        disk.stall(Duration::from_millis(5));
        sync().await.expect("the worker runs").expect("sync");
        assert_eq!(world.clock().now().0, Duration::from_millis(55));
    });
}

#[test]
fn synced_bytes_and_names_survive() {
    for seed in 0..50 {
        run(seed, |world| async move {
            let disk = disk(&world);
            let directory = disk.attach();
            directory.make_dir("a").expect("make");
            directory.sync_dir("").expect("sync");
            let file = directory.create("a/f").expect("create");
            file.write_at(0, &[1; 5000]).expect("write");
            file.sync().expect("sync");
            directory.sync_dir("a").expect("sync");
            file.write_at(600, &[2; 2000]).expect("write");
            directory.remove("a/f").expect("remove");
            disk.crash();
            assert!(file.sync().is_err(), "handles from before the crash are dead");
            // Removed without a sync: it may be back, and then with bytes old or new by parts of 512.
            if disk.files().is_empty() {
                return;
            }
            let bytes = disk.content("a/f");
            assert_eq!(bytes.len(), 5000);
            for (at, part) in bytes.chunks(512).enumerate() {
                let written = |byte: usize| (600..2600).contains(&byte);
                let new = (0..part.len()).all(|i| part[i] == if written(at * 512 + i) { 2 } else { 1 });
                assert!(new || part.iter().all(|byte| *byte == 1), "part {at} is old or new");
            }
        });
    }
}

#[test]
fn every_outcome_of_a_crash_happens() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..200 {
        outcomes.insert(run(seed, |world| async move {
            let disk = disk(&world);
            let file = disk.attach().create("f").expect("create");
            file.write_at(0, &[1; 1024]).expect("write");
            disk.crash();
            disk.files().first().map(|path| {
                let bytes = disk.content(path);
                (bytes.len(), bytes.first().copied(), bytes.last().copied())
            })
        }));
    }
    let torn = [Some((1024, Some(1), Some(0))), Some((1024, Some(0), Some(1)))];
    let whole = [None, Some((0, None, None)), Some((1024, Some(1), Some(1))), Some((1024, Some(0), Some(0)))];
    for outcome in torn.into_iter().chain(whole) {
        assert!(outcomes.contains(&outcome), "{outcome:?} never happened: {outcomes:?}");
    }
}

#[test]
fn a_rename_shows_the_old_or_the_new_file() {
    let mut seen = BTreeSet::new();
    for seed in 0..50 {
        seen.insert(run(seed, |world| async move {
            let disk = disk(&world);
            let directory = disk.attach();
            for (name, byte) in [("old", 1), ("new", 2)] {
                let file = directory.create(name).expect("create");
                file.write_at(0, &[byte]).expect("write");
                file.sync().expect("sync");
            }
            directory.sync_dir("").expect("sync");
            directory.rename("new", "old").expect("rename");
            disk.crash();
            disk.content("old")
        }));
    }
    assert_eq!(seen, BTreeSet::from([vec![1], vec![2]]));
}

#[test]
fn faults_do_what_they_say() {
    run(1, |world| async move {
        let disk = disk(&world);
        let directory = disk.attach();
        let file = directory.create("f").expect("create");
        file.write_at(0, &[7; 9000]).expect("write");
        let mut byte = [0];
        let mut read = |at| file.read_at(at, &mut byte).map(|()| byte[0]).map_err(|error| error.kind());

        disk.make_unreadable("f", 4096..8192);
        assert_eq!((read(4095), read(4096), read(8192)), (Ok(7), Err(io::ErrorKind::Other), Ok(7)));
        file.write_at(4096, &[8; 4096]).expect("write");
        assert_eq!(read(5000), Ok(8));
        disk.flip_bit("f", 8 * 10);
        assert_eq!(read(10), Ok(6));
        disk.truncate("f", 100);
        assert_eq!(read(100), Err(io::ErrorKind::UnexpectedEof));

        disk.set_read_only(true);
        assert_eq!(file.write_at(0, &[1]).expect_err("refused").kind(), io::ErrorKind::ReadOnlyFilesystem);
        assert_eq!(read(0), Ok(7));
        disk.set_read_only(false);
        disk.set_removed(true);
        assert_eq!(read(0), Err(io::ErrorKind::Other));
        disk.set_removed(false);
        assert_eq!(read(0), Ok(7));

        disk.set_capacity(8192);
        assert_eq!(file.write_at(0, &[1; 8193]).expect_err("full").kind(), io::ErrorKind::StorageFull);
        file.write_at(0, &[1; 8192]).expect("fits");
        assert_eq!(directory.space().expect("space").free_bytes, 0);

        disk.fail_after(1, Fault::Medium);
        assert_eq!(read(0), Ok(1));
        assert_eq!(read(0), Err(io::ErrorKind::Other));
        assert_eq!(read(0), Ok(1));

        let lock = directory.lock().expect("free");
        assert_eq!(directory.lock().map(|_| ()).expect_err("held").kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        directory.lock().expect("free again");

        disk.cut_power_after(1);
        assert_eq!(read(0), Ok(1));
        assert!(read(0).is_err() && read(0).is_err());
        assert!(!disk.is_powered());
        disk.crash();
        assert!(disk.is_powered());
    });
}

#[test]
fn reserved_space_is_taken_and_a_crash_keeps_all_of_it_or_none() {
    let mut lengths = std::collections::BTreeSet::new();
    for seed in 0..40 {
        run(seed, |world| async move {
            let disk = disk(&world);
            let directory = disk.attach();
            let file = directory.create("a").expect("create");
            directory.sync_dir("").expect("sync");
            assert_eq!(file.reserve((1 << 20) + 1).expect_err("full").kind(), io::ErrorKind::StorageFull);
            file.reserve(10_000).expect("reserve");
            assert_eq!(file.bytes().expect("length"), 10_000);
            assert_eq!(directory.space().expect("space").free_bytes, (1 << 20) - 12_288);
            disk.set_capacity(12_288);
            file.write_at(9_000, &[7; 1000]).expect("within what is reserved");
            if seed % 2 == 0 {
                file.sync().expect("sync");
            }
            disk.crash();
            let bytes = disk.content("a").len();
            assert!(bytes == 10_000 || bytes == 0 && seed % 2 == 1, "{bytes}");
            bytes
        });
        let bytes = run(seed, |world| async move {
            let disk = disk(&world);
            let file = disk.attach().create("a").expect("create");
            disk.attach().sync_dir("").expect("sync");
            disk.cut_power_after(0);
            file.reserve(10_000).expect_err("power went");
            disk.crash();
            disk.content("a").len()
        });
        lengths.insert(bytes);
    }
    assert_eq!(lengths.into_iter().collect::<Vec<_>>(), [0, 10_000]);
}
