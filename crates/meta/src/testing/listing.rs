//! Listing objects.

use super::{bucket, delete, empty_object, named, put_versioned};
use crate::{BucketId, DeleteObject, ListPage, ListQuery, Meta, MetaError, ObjectRecord, VersionName};

/// Keys in the order of their bytes; `é` is above ASCII, and `a!` and `a0` are on both sides of `a/`.
const KEYS: [&str; 9] = ["a", "a!", "a/1", "a/2", "a/b/3", "a0", "b/", "é/x", "é/y"];

async fn filled(meta: &dyn Meta) -> Result<BucketId, MetaError> {
    let id = bucket(meta).await?;
    for key in KEYS.iter().rev() {
        meta.put_object(empty_object(id, key)).await?;
    }
    // A neighbour whose keys must not appear.
    let other = meta.create_bucket("other", "ann", None, super::at(1)).await?;
    meta.put_object(empty_object(other.id, "a/0")).await?;
    Ok(id)
}

fn query(prefix: &str, delimiter: Option<&str>, limit: usize) -> ListQuery {
    ListQuery { prefix: prefix.to_owned(), delimiter: delimiter.map(str::to_owned), limit, ..ListQuery::default() }
}

fn keys(page: &ListPage<ObjectRecord>) -> Vec<&str> {
    page.entries.iter().map(|entry| entry.key.as_str()).collect()
}

/// All pages of `limit` put together, each begun after the last key or prefix of the one before.
async fn paged(meta: &dyn Meta, id: BucketId, mut query: ListQuery) -> Result<Vec<String>, MetaError> {
    let mut listed: Vec<String> = Vec::new();
    loop {
        let page = meta.list_objects(id, &query).await?;
        let mut names: Vec<String> = page.common_prefixes.clone();
        names.extend(page.entries.iter().map(|entry| entry.key.clone()));
        names.sort();
        assert!(names.len() <= query.limit);
        assert!(!page.truncated || names.len() == query.limit, "a short page that is truncated");
        query.after = names.last().cloned();
        listed.append(&mut names);
        if !page.truncated {
            return Ok(listed);
        }
    }
}

pub(super) async fn keys_come_in_byte_order(meta: &dyn Meta) -> Result<(), MetaError> {
    let id = filled(meta).await?;
    let page = meta.list_objects(id, &query("", None, 100)).await?;
    assert_eq!(keys(&page), KEYS);
    assert!(!page.truncated && page.common_prefixes.is_empty());
    assert!(page.entries.iter().all(|entry| entry.current && entry.bucket == id));
    let page = meta.list_objects(id, &query("a/", None, 100)).await?;
    assert_eq!(keys(&page), ["a/1", "a/2", "a/b/3"]);
    let page = meta.list_objects(id, &query("é", None, 100)).await?;
    assert_eq!(keys(&page), ["é/x", "é/y"]);
    let page = meta.list_objects(id, &query("nothing", None, 100)).await?;
    assert_eq!((keys(&page).len(), page.truncated), (0, false));
    let after = |after: &str| ListQuery { after: Some(after.to_owned()), ..query("", None, 3) };
    assert_eq!(keys(&meta.list_objects(id, &after("a/2")).await?), ["a/b/3", "a0", "b/"]);
    assert_eq!(keys(&meta.list_objects(id, &after("a/11")).await?), ["a/2", "a/b/3", "a0"]);
    // `after` before and behind the prefix.
    let within = |after: &str| ListQuery { after: Some(after.to_owned()), ..query("a/", None, 9) };
    assert_eq!(keys(&meta.list_objects(id, &within("A")).await?), ["a/1", "a/2", "a/b/3"]);
    assert_eq!(keys(&meta.list_objects(id, &within("b")).await?), [""; 0]);
    Ok(())
}

pub(super) async fn delimiter_folds_and_pages_add_up(meta: &dyn Meta) -> Result<(), MetaError> {
    let id = filled(meta).await?;
    let page = meta.list_objects(id, &query("", Some("/"), 100)).await?;
    assert_eq!(keys(&page), ["a", "a!", "a0"]);
    assert_eq!(page.common_prefixes, ["a/", "b/", "é/"]);
    let page = meta.list_objects(id, &query("a/", Some("/"), 100)).await?;
    assert_eq!(keys(&page), ["a/1", "a/2"]);
    assert_eq!(page.common_prefixes, ["a/b/"]);
    let page = meta.list_objects(id, &query("", Some("/b"), 100)).await?;
    assert_eq!(page.common_prefixes, ["a/b"]);

    // Six are listed: six fit a page, five do not.
    assert!(!meta.list_objects(id, &query("", Some("/"), 6)).await?.truncated);
    assert!(meta.list_objects(id, &query("", Some("/"), 5)).await?.truncated);
    for limit in 1..=10 {
        let folded = paged(meta, id, query("", Some("/"), limit)).await?;
        assert_eq!(folded, ["a", "a!", "a/", "a0", "b/", "é/"], "pages of {limit}");
        assert_eq!(paged(meta, id, query("", None, limit)).await?, KEYS, "pages of {limit}");
    }
    Ok(())
}

pub(super) async fn markers_hide_keys_and_whole_prefixes(meta: &dyn Meta) -> Result<(), MetaError> {
    let id = filled(meta).await?;
    for (number, key) in ["a/1", "a/2", "a/b/3", "b/", "a"].into_iter().enumerate() {
        let marker = VersionName(format!("d{number}"));
        meta.delete_object(DeleteObject { marker: Some(marker), ..delete(id, key) }).await?;
    }
    // More old versions than a listing steps over.
    for number in 0..20 {
        put_versioned(meta, id, "a0", &format!("v{number}")).await?;
    }
    let page = meta.list_objects(id, &query("", Some("/"), 3)).await?;
    assert_eq!(keys(&page), ["a!", "a0"]);
    assert_eq!(page.common_prefixes, ["é/"]);
    assert!(!page.truncated, "what follows is hidden");
    assert_eq!(page.entries[1].version, VersionName("v19".to_owned()));
    let page = meta.list_objects(id, &query("a/", None, 1)).await?;
    assert_eq!((keys(&page).len(), page.truncated), (0, false));
    // One visible key brings its prefix back.
    meta.put_object(empty_object(id, "a/2")).await?;
    let page = meta.list_objects(id, &query("", Some("/"), 9)).await?;
    assert_eq!(page.common_prefixes, ["a/", "é/"]);
    Ok(())
}

pub(super) async fn versions_are_listed_newest_first_and_resumed(meta: &dyn Meta) -> Result<(), MetaError> {
    let id = bucket(meta).await?;
    meta.put_object(empty_object(id, "k")).await?;
    for version in ["v1", "v2"] {
        put_versioned(meta, id, "k", version).await?;
    }
    let marker = Some(VersionName("d".to_owned()));
    meta.delete_object(DeleteObject { marker, ..delete(id, "k") }).await?;
    put_versioned(meta, id, "j", "w").await?;
    put_versioned(meta, id, "p/x", "w").await?;
    put_versioned(meta, id, "p/x", "w2").await?;
    let expected = [
        ("j", "w", true, false),
        ("k", "d", true, true),
        ("k", "v2", false, false),
        ("k", "v1", false, false),
        ("k", "null", false, false),
        ("p/x", "w2", true, false),
        ("p/x", "w", false, false),
    ];
    let seen = |entries: &[ObjectRecord]| -> Vec<(String, String, bool, bool)> {
        let row = |entry: &ObjectRecord| {
            let name = entry.version.0.clone();
            (entry.key.clone(), name, entry.current, entry.delete_marker)
        };
        entries.iter().map(row).collect()
    };
    let expected =
        expected.map(|(key, version, current, marker)| (key.to_owned(), version.to_owned(), current, marker));
    for limit in 1..=8 {
        let mut query = ListQuery { versions: true, ..query("", None, limit) };
        let mut listed = Vec::new();
        loop {
            let page = meta.list_objects(id, &query).await?;
            listed.extend(seen(&page.entries));
            let Some(last) = page.entries.last().filter(|_| page.truncated) else { break };
            query.after = Some(last.key.clone());
            query.after_version = Some(last.version.clone());
        }
        assert_eq!(listed, expected, "pages of {limit}");
    }
    let folded = ListQuery { versions: true, ..query("", Some("/"), 9) };
    let page = meta.list_objects(id, &folded).await?;
    assert_eq!((page.entries.len(), page.common_prefixes), (5, vec!["p/".to_owned()]));

    // Without a version, all of the key is behind. With one that is gone, none is.
    let after = |version: Option<&str>| ListQuery {
        versions: true,
        after: Some("k".to_owned()),
        after_version: version.map(|name| VersionName(name.to_owned())),
        ..query("", None, 9)
    };
    assert_eq!(meta.list_objects(id, &after(None)).await?.entries.len(), 2);
    assert_eq!(seen(&meta.list_objects(id, &after(Some("v2"))).await?.entries), expected[3..]);
    meta.delete_object(DeleteObject { version: named("v2"), ..delete(id, "k") }).await?;
    let page = meta.list_objects(id, &after(Some("v2"))).await?;
    assert_eq!(page.entries.len(), 5, "the key begins anew when the version is gone");
    assert!(page.entries[0].current);
    Ok(())
}

pub(super) async fn after_a_prefix_or_inside_it_skips_it(meta: &dyn Meta) -> Result<(), MetaError> {
    let id = filled(meta).await?;
    for after in ["a/", "a/1", "a/zzz"] {
        let query = ListQuery { after: Some(after.to_owned()), ..query("", Some("/"), 9) };
        let page = meta.list_objects(id, &query).await?;
        assert_eq!(keys(&page), ["a0"], "after {after}");
        assert_eq!(page.common_prefixes, ["b/", "é/"], "after {after}");
    }
    Ok(())
}

pub(super) async fn limit_zero_lists_nothing(meta: &dyn Meta) -> Result<(), MetaError> {
    let id = filled(meta).await?;
    for versions in [false, true] {
        let query = ListQuery { versions, ..query("", Some("/"), 0) };
        let page = meta.list_objects(id, &query).await?;
        assert_eq!((page.entries.len(), page.common_prefixes.len()), (0, 0));
        assert!(!page.truncated);
    }
    Ok(())
}
