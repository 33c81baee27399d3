//! Rows of the catalog set or deleted over an older state of it, in memory.

use std::collections::{BTreeMap, btree_map};

use crate::keys::Span;
use crate::{Change, Table};

/// The latest change of each row that has one.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    tables: [BTreeMap<Vec<u8>, Option<Vec<u8>>>; TABLES.len()],
    bytes: usize,
}

/// All tables, in the order of their numbers.
pub(crate) const TABLES: [Table; 7] =
    [Table::State, Table::Inodes, Table::Names, Table::Attributes, Table::Runs, Table::Free, Table::Orphans];

/// What a row takes beside its bytes: two vectors and its part of a node of the map.
const ROW_BYTES: usize = 64;

impl Overlay {
    /// Takes a change; an older one of the same row counts no more.
    pub(crate) fn put(&mut self, change: Change) {
        let Change { table, key, value } = change;
        let key_bytes = key.len();
        let bytes_of = |value: &Option<Vec<u8>>| value.as_ref().map_or(0, Vec::len);
        self.bytes += bytes_of(&value);
        match self.tables[table as usize].insert(key, value) {
            Some(older) => self.bytes -= bytes_of(&older),
            None => self.bytes += ROW_BYTES + key_bytes,
        }
    }

    /// Forgets the change of a row.
    pub(crate) fn forget(&mut self, table: Table, key: &[u8]) {
        if let Some(value) = self.tables[table as usize].remove(key) {
            self.bytes -= ROW_BYTES + key.len() + value.map_or(0, |value| value.len());
        }
    }

    /// Table and key of all rows that are changed here and not in `other`: first of those that are deleted, then of the others, each by
    /// table and key.
    pub(crate) fn keys_beside(&self, other: &Overlay) -> Vec<(Table, Vec<u8>)> {
        let all =
            TABLES.into_iter().zip(&self.tables).flat_map(|(table, rows)| rows.iter().map(move |row| (table, row)));
        let beside = all.filter(|(table, (key, _))| other.row(*table, key).is_none());
        let (deleted, set): (Vec<_>, Vec<_>) = beside.partition(|(_, (_, value))| value.is_none());
        deleted.into_iter().chain(set).map(|(table, (key, _))| (table, key.clone())).collect()
    }

    /// The change of a row: `None` if there is none, `Some(None)` if it is deleted.
    pub(crate) fn row(&self, table: Table, key: &[u8]) -> Option<Option<&[u8]>> {
        self.tables[table as usize].get(key).map(Option::as_deref)
    }

    /// The changes of a span of rows, ascending.
    pub(crate) fn rows(&self, table: Table, span: &Span) -> btree_map::Range<'_, Vec<u8>, Option<Vec<u8>>> {
        match span.bounds() {
            Some(bounds) => self.tables[table as usize].range::<[u8], _>(bounds),
            None => btree_map::Range::default(),
        }
    }

    /// All changes, by table and key.
    pub(crate) fn into_changes(self) -> Vec<Change> {
        let tables = TABLES.into_iter().zip(self.tables);
        let rows =
            tables.flat_map(|(table, rows)| rows.into_iter().map(move |(key, value)| Change { table, key, value }));
        rows.collect()
    }

    /// About how much memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(table: Table, key: &[u8], value: Option<&[u8]>) -> Change {
        Change { table, key: key.to_vec(), value: value.map(<[u8]>::to_vec) }
    }

    #[test]
    fn tables_stand_at_their_numbers() {
        for (number, table) in TABLES.into_iter().enumerate() {
            assert_eq!(table as usize, number);
        }
    }

    #[test]
    fn the_latest_change_counts_and_bytes_follow() {
        let mut overlay = Overlay::default();
        overlay.put(change(Table::Free, b"abc", Some(&[0; 100])));
        assert_eq!(overlay.bytes(), ROW_BYTES + 3 + 100);
        overlay.put(change(Table::Free, b"abc", None));
        assert_eq!(overlay.bytes(), ROW_BYTES + 3);
        overlay.put(change(Table::State, b"x", Some(b"y")));
        assert_eq!(overlay.row(Table::Free, b"abc"), Some(None));
        assert_eq!(overlay.row(Table::Runs, b"abc"), None);
        let mut other = Overlay::default();
        other.put(change(Table::Runs, b"abc", None));
        let both = [(Table::Free, b"abc".to_vec()), (Table::State, b"x".to_vec())];
        assert_eq!(overlay.keys_beside(&other), both);
        other.put(change(Table::Free, b"abc", None));
        assert_eq!(overlay.keys_beside(&other), both[1..]);
        other.forget(Table::Free, b"abc");
        other.forget(Table::Runs, b"abc");
        assert_eq!((other.bytes(), overlay.keys_beside(&other).len()), (0, 2));
        let changes = [change(Table::State, b"x", Some(b"y")), change(Table::Free, b"abc", None)];
        assert_eq!(overlay.into_changes(), changes);
    }
}
