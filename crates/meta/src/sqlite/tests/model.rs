//! Random operations against a model that is too simple to be wrong.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{assert_sound, memory, named};
use crate::testing::{add_disks, at, new_object, stripe};
use crate::{
    BucketId, BucketRecords, DeleteObject, ListPage, ListQuery, NewContent, NewObject, ObjectRecord, ObjectRecords,
    Precondition, StripeRecords, VersionName, VersionRef, Versioning,
};

/// Keys that share prefixes, in several ways, around the delimiter.
const KEYS: [&str; 8] = ["a", "a/", "a/b", "a/b/c", "a0", "b//c", "é/x", "é0"];
const PREFIXES: [&str; 5] = ["", "a", "a/", "b/", "é"];

#[derive(Debug, Clone)]
enum Op {
    /// Writes without versioning, or a new version.
    Put { key: usize, versioned: bool, absent_only: bool },
    /// Copies the current version of one key to another.
    Copy { from: usize, to: usize },
    /// Deletes: plainly, with a `null` marker, or with a marker of its own name.
    Delete { key: usize, marker: Option<bool> },
    /// Deletes the version of this age.
    DeleteVersion { key: usize, age: usize },
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0..KEYS.len();
    prop_oneof![
        4 => (key.clone(), any::<bool>(), any::<bool>())
            .prop_map(|(key, versioned, absent_only)| Op::Put { key, versioned, absent_only }),
        1 => (key.clone(), key.clone()).prop_map(|(from, to)| Op::Copy { from, to }),
        2 => (key.clone(), any::<Option<bool>>())
            .prop_map(|(key, marker)| Op::Delete { key, marker }),
        2 => (key, 0..4usize).prop_map(|(key, age)| Op::DeleteVersion { key, age }),
    ]
}

#[derive(Debug, Clone, PartialEq)]
struct Version {
    name: String,
    /// The stripe of an object, `None` for a delete marker.
    stripe: Option<u128>,
}

/// Versions of each key, oldest first.
type Model = BTreeMap<String, Vec<Version>>;

fn stripes_of(model: &Model) -> BTreeSet<u128> {
    model.values().flatten().filter_map(|version| version.stripe).collect()
}

fn add(model: &mut Model, key: &str, name: String, stripe: Option<u128>) {
    let versions = model.entry(key.to_owned()).or_default();
    versions.retain(|version| version.name != name);
    versions.push(Version { name, stripe });
}

/// What a listing must show: names in order, each a key with a version or a common prefix.
fn expected(model: &Model, query: &ListQuery) -> Vec<(String, Option<Version>)> {
    let mut listed: Vec<(String, Option<Version>)> = Vec::new();
    for (key, versions) in model {
        let Some(rest) = key.strip_prefix(&query.prefix) else { continue };
        let shown: Vec<&Version> = if query.versions {
            versions.iter().rev().collect()
        } else {
            versions.last().into_iter().filter(|version| version.stripe.is_some()).collect()
        };
        let folded = query
            .delimiter
            .as_ref()
            .and_then(|delimiter| rest.find(delimiter).map(|at| &key[..query.prefix.len() + at + delimiter.len()]));
        for version in shown {
            match folded {
                Some(prefix) if listed.last().is_some_and(|(last, _)| last == prefix) => {}
                Some(prefix) => listed.push((prefix.to_owned(), None)),
                None => listed.push((key.clone(), Some(version.clone()))),
            }
        }
    }
    listed
}

/// A page in the same form.
fn seen(page: &ListPage<ObjectRecord>) -> Vec<(String, Option<String>)> {
    let mut rows: Vec<(String, Option<String>)> =
        page.common_prefixes.iter().map(|prefix| (prefix.clone(), None)).collect();
    rows.extend(page.entries.iter().map(|e| (e.key.clone(), Some(e.version.0.clone()))));
    // Stable: versions of a key stay in their order.
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    rows
}

async fn check_listing(meta: &super::SqliteMeta, bucket: BucketId, model: &Model, mut query: ListQuery) {
    let all: Vec<(String, Option<String>)> = expected(model, &query)
        .into_iter()
        .map(|(name, version)| (name, version.map(|version| version.name)))
        .collect();
    let mut listed = Vec::new();
    loop {
        let page = meta.list_objects(bucket, &query).await.expect("readable");
        let rows = seen(&page);
        assert!(rows.len() <= query.limit);
        listed.extend(rows.clone());
        assert_eq!(page.truncated, listed.len() < all.len(), "{query:?} of {all:?}");
        if !page.truncated {
            break;
        }
        let (name, version) = rows.last().expect("a truncated page is full").clone();
        query.after = Some(name);
        query.after_version = version.filter(|_| query.versions).map(VersionName);
    }
    assert_eq!(listed, all, "{query:?}");
}

async fn check_key(meta: &super::SqliteMeta, model: &Model, key: &str) {
    let versions = model.get(key).cloned().unwrap_or_default();
    let found = meta.object("photos", key, &VersionRef::Current).await.expect("readable");
    match versions.last() {
        None => assert_eq!(found.object, None),
        Some(version) => {
            let object = found.object.expect("the model has it");
            assert_eq!((&object.version.0, object.delete_marker), (&version.name, version.stripe.is_none()));
        }
    }
    for (age, version) in versions.iter().rev().enumerate() {
        let found = meta.object("photos", key, &named(&version.name)).await.expect("readable");
        assert_eq!(found.object.expect("the model has it").current, age == 0);
        let stripe = found.spans.first().map(|span| span.stripe.id.0);
        assert_eq!(stripe, version.stripe);
    }
}

async fn run(ops: &[Op], limit: usize) {
    let meta = memory().await;
    add_disks(&meta, 3).await.expect("room");
    let bucket = meta.create_bucket("photos", "ann", None, at(1)).await.expect("room").id;
    let mut model = Model::new();
    for (step, op) in ops.iter().enumerate() {
        let before = stripes_of(&model);
        let next = 1_000 + step as u128;
        let (key, dead) = match *op {
            Op::Put { key, versioned, absent_only } => {
                let key = KEYS[key];
                let name = if versioned { format!("v{step}") } else { "null".to_owned() };
                let versioning = if versioned { Versioning::On(VersionName(name.clone())) } else { Versioning::Off };
                let precondition = if absent_only { Precondition::Absent } else { Precondition::None };
                let there = model.get(key).and_then(|versions| versions.last());
                let refused = absent_only && there.is_some_and(|version| version.stripe.is_some());
                let object = new_object(bucket, key, vec![stripe(next, "replica:3", 5)]);
                let outcome = meta.put_object(NewObject { versioning, precondition, ..object }).await;
                assert_eq!(outcome.is_err(), refused);
                if !refused {
                    add(&mut model, key, name, Some(next));
                }
                (key, outcome.map(|outcome| outcome.dead).unwrap_or_default())
            }
            Op::Copy { from, to } => {
                let found = meta.object("photos", KEYS[from], &VersionRef::Current).await.expect("readable");
                let Some(content) = found.object.and_then(|object| object.content) else { continue };
                let object = new_object(bucket, KEYS[to], Vec::new());
                let copy = NewObject { content: NewContent::Shared(content), bytes: 5, ..object };
                let dead = meta.put_object(copy).await.expect("the source is there").dead;
                add(&mut model, KEYS[to], "null".to_owned(), Some(found.spans[0].stripe.id.0));
                (KEYS[to], dead)
            }
            Op::Delete { key, marker } => {
                let key = KEYS[key];
                let marker = marker.map(|own| if own { format!("d{step}") } else { "null".to_owned() });
                let delete =
                    DeleteObject { marker: marker.clone().map(VersionName), ..crate::testing::delete(bucket, key) };
                let deleted = meta.delete_object(delete).await.expect("room");
                assert_eq!(deleted.marker.map(|name| name.0), marker);
                match marker {
                    Some(name) => add(&mut model, key, name, None),
                    None => {
                        if let Some(versions) = model.get_mut(key) {
                            versions.retain(|version| version.name != "null");
                        }
                    }
                }
                (key, deleted.dead)
            }
            Op::DeleteVersion { key, age } => {
                let key = KEYS[key];
                let versions = model.entry(key.to_owned()).or_default();
                let Some(at) = versions.len().checked_sub(age + 1) else { continue };
                let version = versions.remove(at);
                let delete = DeleteObject { version: named(&version.name), ..crate::testing::delete(bucket, key) };
                let deleted = meta.delete_object(delete).await.expect("room");
                let removed = (VersionName(version.name), version.stripe.is_none());
                assert_eq!(deleted.removed, Some(removed));
                (key, deleted.dead)
            }
        };
        model.retain(|_, versions| !versions.is_empty());
        let dead: BTreeSet<u128> = dead.iter().map(|stripe| stripe.id.0).collect();
        let live = stripes_of(&model);
        assert_eq!(dead, before.difference(&live).copied().collect(), "after {op:?}");
        check_key(&meta, &model, key).await;
    }
    assert_eq!(meta.tally().await.expect("readable").stripes, stripes_of(&model).len() as u64);
    for prefix in PREFIXES {
        for delimiter in [None, Some("/")] {
            for versions in [false, true] {
                let query = ListQuery {
                    prefix: prefix.to_owned(),
                    delimiter: delimiter.map(str::to_owned),
                    limit,
                    versions,
                    ..ListQuery::default()
                };
                check_listing(&meta, bucket, &model, query).await;
            }
        }
    }
    assert_sound(&meta).await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn random_operations_do_as_the_model(ops in prop::collection::vec(op(), 1..40), limit in 1..6usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(run(&ops, limit));
    }
}
