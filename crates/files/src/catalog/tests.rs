//! The catalog against a map: what is read agrees over changes, plans, checkpoints and opening again.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use redb::backends::InMemoryBackend;

use super::*;
use crate::view::View;

const CACHE_BYTES: usize = 1 << 20;

/// A backend that outlives its database, and fails when told.
#[derive(Clone, Default)]
struct Shared {
    bytes: Arc<InMemoryBackend>,
    broken: Arc<AtomicBool>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

impl Shared {
    fn working(&self) -> std::io::Result<()> {
        match self.broken.load(Ordering::Relaxed) {
            true => Err(std::io::Error::other("broken by the test")),
            false => Ok(()),
        }
    }
}

impl StorageBackend for Shared {
    fn len(&self) -> std::io::Result<u64> {
        self.working()?;
        self.bytes.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.working()?;
        self.bytes.read(offset, out)
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.working()?;
        self.bytes.set_len(len)
    }

    fn sync_data(&self) -> std::io::Result<()> {
        self.working()?;
        self.bytes.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.working()?;
        self.bytes.write(offset, data)
    }
}

#[derive(Debug, Clone)]
enum Step {
    Change(Change),
    Plan(Vec<Change>),
    Checkpoint(Option<Change>),
    Compact { while_somebody_reads: bool },
    Reopen,
}

fn change() -> impl Strategy<Value = Change> {
    let key = prop::collection::vec(0..3_u8, 1..4);
    let value = prop::option::of(prop::collection::vec(any::<u8>(), 0..5));
    (prop::sample::select(&[Table::State, Table::Runs][..]), key, value).prop_map(|(table, key, value)| Change {
        table,
        key,
        value,
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => change().prop_map(Step::Change),
        4 => prop::collection::vec(change(), 0..12).prop_map(Step::Plan),
        2 => prop::option::of(change()).prop_map(Step::Checkpoint),
        1 => any::<bool>().prop_map(|while_somebody_reads| Step::Compact { while_somebody_reads }),
        1 => Just(Step::Reopen),
    ]
}

type Model = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

fn change_model(model: &mut Model, change: &Change) {
    let row = (change.table, change.key.clone());
    match &change.value {
        Some(value) => drop(model.insert(row, value.clone())),
        None => drop(model.remove(&row)),
    }
}

/// Keys that the model has, and some between.
fn probes() -> Vec<Vec<u8>> {
    let digits = 0..3_u8;
    let mut probes = vec![vec![], vec![9]];
    for a in digits.clone() {
        probes.push(vec![a]);
        for b in digits.clone() {
            probes.extend([vec![a, b], vec![a, b, 0], vec![a, b, 2]]);
        }
    }
    probes
}

fn agrees(view: &View<'_>, model: &Model, limit: usize) {
    for table in [Table::State, Table::Runs, Table::Free] {
        let rows: Vec<Row> = model
            .iter()
            .filter(|(row, _)| row.0 == table)
            .map(|((_, key), value)| (key.clone(), value.clone()))
            .collect();
        assert_eq!(view.range(table, &Span::all(), usize::MAX).expect("memory reads"), rows);
        for probe in probes() {
            let expected = model.get(&(table, probe.clone())).cloned();
            assert_eq!(view.get(table, &probe).expect("memory reads"), expected);
            let behind: Vec<Row> = rows.iter().filter(|(key, _)| *key > probe).take(limit).cloned().collect();
            assert_eq!(view.range(table, &Span::after(&probe), limit).expect("memory reads"), behind);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn reads_agree_with_a_map_over_changes_plans_checkpoints_and_opening_again(
        steps in prop::collection::vec(step(), 1..60),
        limit in 1..4_usize,
    ) {
        let device = Shared::default();
        let mut catalog = Catalog::open(device.clone(), CACHE_BYTES).expect("memory opens");
        let mut model = Model::new();
        let mut held = Model::new();
        for step in steps {
            match step {
                Step::Change(change) => {
                    change_model(&mut model, &change);
                    catalog.apply([change]);
                }
                Step::Plan(changes) => {
                    let mut planned = model.clone();
                    let mut view = View::new(&catalog);
                    for Change { table, key, value } in &changes {
                        match value {
                            Some(value) => view.set(*table, key, value.clone()),
                            None => view.delete(*table, key),
                        }
                        change_model(&mut planned, &Change { table: *table, key: key.clone(), value: value.clone() });
                    }
                    agrees(&view, &planned, limit);
                    let changes = view.into_changes();
                    agrees(&View::new(&catalog), &model, limit);
                    catalog.apply(changes);
                    model = planned;
                }
                Step::Checkpoint(with) => {
                    if let Some(change) = &with {
                        change_model(&mut model, change);
                    }
                    catalog.checkpoint(with.as_slice()).expect("memory takes writes");
                    prop_assert_eq!(catalog.overlay_bytes(), 0);
                    held = model.clone();
                }
                Step::Compact { while_somebody_reads } => {
                    let reading = while_somebody_reads.then(|| catalog.pin().expect("memory reads"));
                    prop_assert_eq!(catalog.compact().expect("memory takes writes"), reading.is_none());
                }
                Step::Reopen => {
                    drop(catalog);
                    catalog = Catalog::open(device.clone(), CACHE_BYTES).expect("memory opens");
                    model = held.clone();
                }
            }
            agrees(&View::new(&catalog), &model, limit);
        }
    }
}

fn put(key: &[u8]) -> Change {
    Change { table: Table::Inodes, key: key.to_vec(), value: Some(vec![1; 10]) }
}

#[test]
fn what_was_deleted_makes_the_file_shorter() {
    let device = Shared::default();
    let mut catalog = Catalog::open(device.clone(), CACHE_BYTES).expect("memory opens");
    let keys = (0..3000_u64).map(u64::to_be_bytes);
    catalog.apply(keys.clone().map(|key| Change {
        table: Table::Inodes,
        key: key.to_vec(),
        value: Some(vec![1; 2000]),
    }));
    catalog.checkpoint(&[]).expect("memory takes writes");
    assert_eq!((catalog.slack().bytes, catalog.slack().counted), (0, None));
    assert_eq!(catalog.rows().expect("memory reads"), 3000);
    let long = device.len().expect("memory");
    catalog.apply(keys.skip(3).map(|key| Change { table: Table::Inodes, key: key.to_vec(), value: None }));
    catalog.checkpoint(&[]).expect("memory takes writes");
    assert_eq!((catalog.slack().bytes, catalog.rows().expect("memory reads")), (2997 * 2008, 3));
    catalog.keep_slack(9);
    assert_eq!((catalog.slack().bytes, catalog.slack().counted), (2997 * 2008, Some(9 + 1469)));
    assert!(catalog.compact().expect("memory takes writes"));
    catalog.forget_slack(9);
    assert_eq!((catalog.slack().bytes, catalog.slack().counted), (0, Some(9)));
    let short = device.len().expect("memory");
    assert!(short * 20 < long, "{long} bytes before and {short} after");
    let there = catalog.range(Table::Inodes, &Span::all(), usize::MAX).expect("memory reads");
    assert_eq!(there.len(), 3);
}

#[test]
fn a_database_that_stopped_in_a_compaction_says_so_and_not_that_rows_are_gone() {
    let device = Shared::default();
    let mut catalog = Catalog::open(device.clone(), 0).expect("memory opens");
    catalog.apply((0..2000_u64).map(|number| put(&number.to_be_bytes())));
    catalog.checkpoint(&[]).expect("memory takes writes");
    catalog.apply([put(b"later")]);
    device.broken.store(true, Ordering::Relaxed);
    assert!(catalog.compact().is_err());
    assert_eq!(catalog.get(Table::Inodes, b"later").expect("the overlay has it"), Some(vec![1; 10]));
    for table in [Table::Inodes, Table::Runs] {
        assert!(catalog.get(table, &1234_u64.to_be_bytes()).is_err());
        assert!(catalog.range(table, &Span::all(), 9).is_err());
    }
    device.broken.store(false, Ordering::Relaxed);
    catalog.reopen(device, 0).expect("memory opens");
    assert_eq!(catalog.get(Table::Inodes, &1234_u64.to_be_bytes()).expect("it reads"), Some(vec![1; 10]));
    assert_eq!(catalog.get(Table::Runs, &1234_u64.to_be_bytes()).expect("it reads"), None);
}

#[test]
fn a_device_that_fails_gives_errors_and_never_panics() {
    let device = Shared::default();
    let mut catalog = Catalog::open(device.clone(), 0).expect("memory opens");
    catalog.apply((0..2000_u64).map(|number| put(&number.to_be_bytes())));
    catalog.checkpoint(&[]).expect("memory takes writes");
    catalog.apply([put(b"later")]);
    device.broken.store(true, Ordering::Relaxed);
    assert!(matches!(catalog.checkpoint(&[]), Err(CatalogError::Write { .. })));
    assert_eq!(catalog.get(Table::Inodes, b"later").expect("the overlay has it"), Some(vec![1; 10]));
    let unread = catalog.get(Table::Inodes, &1234_u64.to_be_bytes()).expect_err("nothing is cached");
    assert!(matches!(unread, CatalogError::Read { table: Table::Inodes, .. }));
    let FileError::Failed { why } = FileError::from(unread) else { panic!("the disk failed") };
    assert!(why.starts_with("table inodes of the catalog does not read: "), "{why}");
    assert!(catalog.range(Table::Inodes, &Span::all(), 9).is_err());
    drop(catalog);
    assert!(matches!(Catalog::open(device, 0), Err(CatalogError::Open { .. })));
}
