//! What the planners must choose, on hand-made and random snapshots.

use claystone_chunk::Generation;
use claystone_meta::ChunkPlace;
use proptest::prelude::*;

use super::*;

/// A stripe of `rs:4+2` whose chunk `i` lies on the i-th of these disks; 0: it has no place, negative: damaged.
fn stripe(id: u128, disks: [i32; 6]) -> StripeRecord {
    let place = |disk: i32| ChunkPlace {
        disk: DiskId(disk.unsigned_abs().into()),
        generation: Generation(0),
        damaged: disk < 0,
    };
    StripeRecord {
        id: StripeId(id),
        code: "rs:4+2".parse().expect("a valid code"),
        data_bytes: 1,
        bands: Vec::new(),
        origins: std::collections::BTreeMap::new(),
        sub_bytes: 65_536,
        places: disks.iter().map(|disk| (*disk != 0).then(|| place(*disk))).collect(),
        revision: 0,
        verified: None,
    }
}

fn snapshot(disks: &[(u128, Condition)], stripes: Vec<StripeRecord>) -> Snapshot {
    let disks = disks.iter().map(|(disk, condition)| (DiskId(*disk), *condition)).collect();
    Snapshot { disks, stripes, ..Snapshot::default() }
}

fn writable(count: u128) -> Vec<(u128, Condition)> {
    (1..=count).map(|disk| (disk, Condition::Writable)).collect()
}

/// Chunks on disks that answer.
fn answering(snapshot: &Snapshot, stripe: &StripeRecord) -> usize {
    let answers = |disk| matches!(snapshot.condition(disk), Condition::Writable | Condition::Readable);
    stripe.places.iter().flatten().filter(|place| answers(place.disk)).count()
}

fn chunks(task: &Task) -> (u128, Vec<u16>) {
    (task.stripe.id.0, task.chunks.iter().map(|chunk| chunk.0).collect())
}

#[test]
fn the_most_endangered_comes_first_then_data_then_the_oldest() {
    let stripes = vec![
        stripe(1, [1, 2, 3, 4, 5, -6]),
        stripe(2, [1, 2, 3, 4, 5, 6]),
        stripe(4, [-1, 2, 3, 4, 5, 6]),
        stripe(3, [1, -2, 3, 4, 5, 6]),
        stripe(5, [1, 2, 3, 4, -5, -6]),
        stripe(6, [-1, 2, -3, 4, 5, 6]),
    ];
    let plan = plan_repairs(&snapshot(&writable(7), stripes), 10);
    let order: Vec<_> = plan.tasks.iter().map(chunks).collect();
    assert_eq!(order, [(6, vec![0, 2]), (5, vec![4, 5]), (3, vec![1]), (4, vec![0]), (1, vec![5])]);
    assert_eq!((plan.waiting_chunks, plan.unrecoverable.len()), (0, 0));
}

/// Test of: [hacfs §4], but for danger, which comes first.
#[test]
fn fast_data_is_repaired_before_compact_data_and_both_before_parity() {
    let stripes = vec![
        stripe_without(1, "pc:6x5", &[30]),
        stripe_without(2, "pc:6x5", &[0]),
        stripe_without(3, "pc:2x5", &[10]),
        stripe_without(4, "pc:2x5", &[0]),
        stripe_without(5, "pc:6x5", &[0, 1]),
    ];
    let plan = plan_repairs(&snapshot(&writable(50), stripes), 10);
    let order: Vec<_> = plan.tasks.iter().map(|task| (task.stripe.id.0, task.tolerance_left)).collect();
    assert_eq!(order, [(5, 1), (4, 2), (2, 2), (3, 2), (1, 2)]);
}

#[test]
fn a_silent_disk_makes_stripes_more_urgent_but_is_not_rebuilt() {
    let mut disks = writable(8);
    disks[5].1 = Condition::Absent;
    let stripes = vec![stripe(1, [-1, 2, 3, 4, 5, 7]), stripe(2, [1, -2, 3, 4, 5, 6]), stripe(3, [1, 2, 3, 4, 5, 6])];
    let plan = plan_repairs(&snapshot(&disks, stripes), 10);
    let order: Vec<_> = plan.tasks.iter().map(|task| (chunks(task), task.tolerance_left)).collect();
    assert_eq!(order, [((2, vec![1]), 0), ((1, vec![0]), 1)]);
}

/// It goes before others that are as endangered, and is not waited for; but no disk is to be found for it at any price.
#[test]
fn what_is_read_degraded_goes_first_and_does_not_wait_for_its_disk() {
    let mut disks = writable(8);
    disks[5].1 = Condition::Absent;
    let stripes = vec![
        stripe(1, [-1, 2, 3, 4, 5, 7]),
        stripe(2, [1, 2, 3, 4, 7, 6]),
        stripe(3, [1, 2, 3, 4, 5, -7]),
        stripe(4, [-1, 2, -3, 4, 5, 8]),
    ];
    let cool = snapshot(&disks, stripes);
    let order = |snapshot: &Snapshot| plan_repairs(snapshot, 10).tasks.iter().map(chunks).collect::<Vec<_>>();
    assert_eq!(order(&cool), [(4, vec![0, 2]), (1, vec![0]), (3, vec![5])]);
    let hot = Snapshot { hot: [2, 3].map(StripeId).into(), ..cool };
    assert_eq!(order(&hot), [(4, vec![0, 2]), (2, vec![5]), (3, vec![5]), (1, vec![0])]);
    disks.retain(|(disk, _)| ![5, 8].contains(disk));
    let only = Snapshot { hot: [StripeId(2)].into(), ..snapshot(&disks, vec![stripe(2, [1, 2, 3, 4, 7, 6])]) };
    let plan = plan_repairs(&only, 10);
    assert_eq!((plan.tasks.len(), plan.waiting_chunks, plan.waiting.len()), (0, 0, 0));
}

#[test]
fn without_a_disk_to_go_to_nothing_is_planned_and_the_chunks_wait() {
    // Disk 6 is gone, and 1 to 5 have a chunk already.
    let plan = plan_repairs(&snapshot(&writable(5), vec![stripe(1, [1, 2, 3, 4, 5, 6])]), 10);
    assert_eq!((plan.tasks.len(), plan.waiting_chunks), (0, 1));
}

#[test]
fn where_disks_are_short_data_goes_first_and_the_rest_waits() {
    let mut disks = writable(7);
    disks[0].1 = Condition::Gone;
    disks[5].1 = Condition::Gone;
    let plan = plan_repairs(&snapshot(&disks, vec![stripe(1, [1, 2, 3, 4, 5, 6])]), 10);
    assert_eq!(plan.tasks.iter().map(chunks).collect::<Vec<_>>(), [(1, vec![0])]);
    assert_eq!(plan.waiting_chunks, 1);
}

#[test]
fn a_damaged_chunk_on_a_readable_disk_needs_no_free_disk_only_if_its_disk_takes_writes() {
    let mut disks = writable(6);
    let whole = snapshot(&disks, vec![stripe(1, [-1, 2, 3, 4, 5, 6])]);
    assert_eq!(plan_repairs(&whole, 10).tasks.len(), 1);
    disks[0].1 = Condition::Readable;
    let read_only = snapshot(&disks, vec![stripe(1, [-1, 2, 3, 4, 5, 6])]);
    assert_eq!((plan_repairs(&read_only, 10).tasks.len(), plan_repairs(&read_only, 10).waiting_chunks), (0, 1));
}

#[test]
fn too_many_losses_are_reported_by_what_could_still_help() {
    let mut disks = writable(9);
    for disk in [0, 1, 2] {
        disks[disk].1 = Condition::Gone;
    }
    let lost = snapshot(&disks, vec![stripe(1, [1, 2, 3, 4, 5, 6])]);
    assert_eq!(plan_repairs(&lost, 10).unrecoverable, [StripeId(1)]);
    disks[2].1 = Condition::Absent;
    let silent = snapshot(&disks, vec![stripe(1, [1, 2, 3, 4, 5, 6])]);
    let plan = plan_repairs(&silent, 10);
    assert_eq!((plan.unreachable, plan.tasks.len()), (vec![StripeId(1)], 0));
    // Three damaged chunks on disks that answer may have lost different sectors: worth an attempt.
    let damaged = snapshot(&writable(6), vec![stripe(1, [-1, -2, -3, 4, 5, 6])]);
    assert_eq!(plan_repairs(&damaged, 10).tasks[0].tolerance_left, -1);
}

/// A stripe of another code, chunk `i` on disk `i + 1` unless it is one of these.
fn stripe_without(id: u128, code: &str, lost: &[usize]) -> StripeRecord {
    let code: claystone_code::CodeSpec = code.parse().expect("a valid code");
    let place = |disk: usize| ChunkPlace { disk: DiskId(disk as u128 + 1), generation: Generation(0), damaged: false };
    let places = (0..code.shape().chunks().into()).map(|at| (!lost.contains(&at)).then(|| place(at))).collect();
    StripeRecord { code, places, ..stripe(id, [1; 6]) }
}

/// Test of: which chunks are left counts, not how many.
#[test]
fn local_and_product_stripes_are_recoverable_by_which_chunks_are_left() {
    let stripes = vec![
        // Four data chunks' worth of chunks is left, and data is gone: a group lost all three.
        stripe_without(1, "lrc:4+2+2", &[0, 1, 4, 6]),
        // As many are lost, one of each group and both global parities: recoverable.
        stripe_without(2, "lrc:4+2+2", &[0, 2, 6, 7]),
        // Of nine chunks of two by two data, a rectangle is gone: five are left, and data is lost.
        stripe_without(3, "pc:2x2", &[0, 1, 2, 3]),
        // Five are gone, four left: enough, because no rectangle is closed.
        stripe_without(4, "pc:2x2", &[0, 1, 2, 6, 8]),
        stripe_without(5, "lrc:4+2+2", &[0]),
        stripe_without(6, "lrc:4+2+2", &[0, 2]),
    ];
    let plan = plan_repairs(&snapshot(&writable(12), stripes.clone()), 10);
    assert_eq!(plan.unrecoverable, [StripeId(1), StripeId(3)]);
    let order: Vec<_> = plan.tasks.iter().map(|task| (task.stripe.id.0, task.tolerance_left)).collect();
    assert_eq!(order, [(4, 0), (2, 0), (5, 2), (6, 2)]);

    // A silent disk that holds one of what is missing: waiting, not lost.
    let mut disks = writable(12);
    disks[1].1 = Condition::Absent;
    let mut waiting = stripe_without(1, "lrc:4+2+2", &[0, 4, 6]);
    let plan = plan_repairs(&snapshot(&disks, vec![waiting.clone()]), 10);
    assert_eq!((plan.unreachable, plan.unrecoverable.len()), (vec![StripeId(1)], 0));
    waiting.places[7] = None;
    disks[1].1 = Condition::Gone;
    let plan = plan_repairs(&snapshot(&disks, vec![waiting]), 10);
    assert_eq!((plan.unreachable.len(), plan.unrecoverable), (0, vec![StripeId(1)]));
}

/// A stripe of `mirror:2x3` whose chunk `i` lies on the i-th of these disks.
fn mirror(id: u128, disks: [i32; 6]) -> StripeRecord {
    StripeRecord { code: "mirror:2x3".parse().expect("a valid code"), ..stripe(id, disks) }
}

#[test]
fn a_lost_disk_takes_several_chunks_of_a_mirror_and_each_goes_where_it_may() {
    // Two chunks on each of three disks; the third disk is gone.
    let stripes = vec![mirror(1, [1, 2, 2, 3, 3, 1])];
    let mut disks = writable(3);
    disks[2].1 = Condition::Gone;
    let plan = plan_repairs(&snapshot(&disks, stripes.clone()), 10);
    assert_eq!((plan.tasks.len(), plan.waiting_chunks), (0, 2), "both disks have copies of both");
    disks.push((4, Condition::Writable));
    let plan = plan_repairs(&snapshot(&disks, stripes.clone()), 10);
    assert_eq!(plan.tasks.iter().map(chunks).collect::<Vec<_>>(), [(1, vec![3, 4])]);
    assert_eq!(plan.tasks[0].tolerance_left, 1, "as many disks as ever, but for this one");
    // Two of three disks gone: one copy of each chunk is left, and one disk takes no two.
    disks[1].1 = Condition::Gone;
    let plan = plan_repairs(&snapshot(&disks, stripes), 10);
    assert_eq!(plan.tasks.iter().map(chunks).collect::<Vec<_>>(), [(1, vec![1, 2])]);
    assert_eq!((plan.tasks[0].tolerance_left, plan.waiting_chunks), (0, 2));
}

#[test]
fn a_drain_moves_all_chunks_of_a_mirror_that_lie_there() {
    let mut disks = writable(4);
    disks[0].1 = Condition::Readable;
    let stripes = vec![mirror(1, [1, 2, 2, 3, 3, 1])];
    let plan = plan_drain(&snapshot(&disks, stripes), DiskId(1), 10);
    assert_eq!(plan.tasks.iter().map(chunks).collect::<Vec<_>>(), [(1, vec![0, 5])]);
}

/// Eight chunks on eight disks: none is free when one is lost.
#[test]
fn copies_give_way_to_data_and_parity_that_have_no_disk_and_wait_then() {
    let all: Vec<(u128, Condition)> = writable(8);
    for lost in 0..8u16 {
        let mut disks = all.clone();
        disks[usize::from(lost)].1 = Condition::Gone;
        let stripe = stripe_without(1, "hybrid:rsm:3+2x2", &[]);
        let plan = plan_repairs(&snapshot(&disks, vec![stripe]), 10);
        let tasks: Vec<_> = plan.tasks.iter().map(chunks).collect();
        // Copies may lie on one disk.
        assert_eq!((tasks, plan.waiting_chunks), (vec![(1, vec![lost])], 0));
    }
    // Four disks are left. What gives way has nowhere to go after.
    let mut disks = all;
    [0, 3, 5, 6].iter().for_each(|disk: &usize| disks[*disk].1 = Condition::Gone);
    let plan = plan_repairs(&snapshot(&disks, vec![stripe_without(1, "hybrid:rsm:3+2x2", &[])]), 10);
    let tasks: Vec<_> = plan.tasks.iter().map(chunks).collect();
    assert_eq!((tasks, plan.waiting_chunks), (vec![(1, vec![0])], 3));
}

#[test]
fn deferred_stripes_are_left_alone() {
    let mut snapshot = snapshot(&writable(7), vec![stripe(1, [0, 2, 3, 4, 5, 6]), stripe(2, [0, 2, 3, 4, 5, 6])]);
    snapshot.deferred.insert(StripeId(1));
    let plan = plan_repairs(&snapshot, 10);
    assert_eq!(plan.tasks.iter().map(chunks).collect::<Vec<_>>(), [(2, vec![0])]);
    assert_eq!(plan.deferred, 1);
}

#[test]
fn a_drain_moves_the_disks_chunk_or_waits_and_leaves_damage_to_repair() {
    let mut disks = writable(7);
    disks[2].1 = Condition::Readable;
    let stripes = vec![stripe(2, [1, 2, 3, 4, 5, 6]), stripe(1, [3, 2, 1, 4, 5, 6]), stripe(3, [1, 2, -3, 4, 5, 6])];
    let plan = plan_drain(&snapshot(&disks, stripes.clone()), DiskId(3), 10);
    assert_eq!(plan.tasks.iter().map(chunks).collect::<Vec<_>>(), [(1, vec![0]), (2, vec![2])]);
    disks.pop();
    let plan = plan_drain(&snapshot(&disks, stripes), DiskId(3), 10);
    assert_eq!((plan.tasks.len(), plan.waiting_chunks), (0, 2));
}

fn condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        3 => Just(Condition::Writable),
        1 => Just(Condition::Readable),
        1 => Just(Condition::Absent),
        1 => Just(Condition::Gone),
    ]
}

fn any_stripe() -> impl Strategy<Value = StripeRecord> {
    let places = Just([1, 2, 3, 4, 5, 6, 7, 8, 9]).prop_shuffle();
    (0u128..1000, places, prop::array::uniform6(0u8..6)).prop_map(|(id, places, fates)| {
        let mut disks = [0; 6];
        for (i, fate) in fates.iter().enumerate() {
            disks[i] = match fate {
                0 => 0,
                1 => -places[i],
                _ => places[i],
            };
        }
        stripe(id, disks)
    })
}

proptest! {
    #[test]
    fn every_plan_keeps_its_promises(
        conditions in prop::collection::vec(condition(), 9),
        stripes in prop::collection::vec(any_stripe(), 0..8),
        limit in 0usize..8,
    ) {
        let disks: Vec<(u128, Condition)> = (1..).zip(conditions).collect();
        let snapshot = snapshot(&disks, stripes);
        let plan = plan_repairs(&snapshot, limit);
        prop_assert!(plan.tasks.len() <= limit);
        prop_assert!(plan.tasks.is_sorted_by_key(|task| task.tolerance_left));
        for task in &plan.tasks {
            let exposure = snapshot.exposure(&task.stripe);
            prop_assert!(!task.chunks.is_empty());
            prop_assert!(task.chunks.iter().all(|chunk| exposure.lost.contains(chunk)));
            prop_assert_eq!(exposure.outlook, Outlook::Recoverable);
            prop_assert!(answering(&snapshot, &task.stripe) >= 4);
            // As many disks as chunks, none with two chunks of the stripe.
            let homeless = task.chunks.iter().filter(|chunk| !snapshot.stays(task.stripe.places[chunk.at()].as_ref()));
            let named: BTreeSet<DiskId> = task.stripe.places.iter().flatten().map(|place| place.disk).collect();
            let is_free = |disk: &&DiskId| snapshot.condition(**disk) == Condition::Writable && !named.contains(disk);
            prop_assert!(homeless.count() <= snapshot.disks.keys().filter(is_free).count());
        }
        // With no limit every stripe with a loss is a task, waits, or cannot be recovered.
        let all = plan_repairs(&snapshot, usize::MAX);
        let lost: u64 = snapshot.stripes.iter().map(|stripe| snapshot.exposure(stripe).lost.len() as u64).sum();
        let planned: u64 = all.tasks.iter().map(|task| task.chunks.len() as u64).sum();
        let hopeless: u64 = snapshot.stripes.iter().filter(|stripe| answering(&snapshot, stripe) < 4)
            .map(|stripe| snapshot.exposure(stripe).lost.len() as u64).sum();
        prop_assert_eq!(planned + all.waiting_chunks + hopeless, lost);
    }
}
