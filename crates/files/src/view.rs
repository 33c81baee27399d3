//! The catalog as a plan sees it: with the changes that the plan has made so far.
//!
//! 1. Reads see the plan's own changes; nobody else does until they are journalled and applied.
//! 2. A planner that returns an error may have made some of its changes: then the whole view is dropped.

use crate::catalog::{Catalog, CatalogError, Row, Rows, ascending_under};
use crate::inode::InodeRecord;
use crate::keys::{self, Span};
use crate::malformed::Malformed;
use crate::overlay::Overlay;
use crate::{Change, FileError, Inode, Table};

/// See the module.
#[derive(Debug)]
pub(crate) struct View<'c> {
    catalog: &'c Catalog,
    changes: Overlay,
}

impl<'c> View<'c> {
    /// The catalog as it is.
    pub(crate) fn new(catalog: &'c Catalog) -> View<'c> {
        View { catalog, changes: Overlay::default() }
    }

    /// The value of a row.
    ///
    /// # Errors
    /// [`CatalogError::Read`].
    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, CatalogError> {
        match self.changes.row(table, key) {
            Some(value) => Ok(value.map(<[u8]>::to_vec)),
            None => self.catalog.get(table, key),
        }
    }

    /// Up to `limit` rows of a span, ascending.
    ///
    /// # Errors
    /// [`CatalogError::Read`].
    pub(crate) fn range(&self, table: Table, span: &Span, limit: usize) -> Result<Vec<Row>, CatalogError> {
        self.rows(table, span)?.take(limit).collect()
    }

    /// The rows of a span one by one, ascending.
    ///
    /// # Errors
    /// [`CatalogError::Read`], here and for each row.
    pub(crate) fn rows(&self, table: Table, span: &Span) -> Result<Rows<'_>, CatalogError> {
        Ok(ascending_under(self.catalog.ascending(table, span)?, &self.changes, table, span))
    }

    /// Sets a row.
    pub(crate) fn set(&mut self, table: Table, key: &[u8], value: Vec<u8>) {
        self.changes.put(Change { table, key: key.to_vec(), value: Some(value) });
    }

    /// Deletes a row.
    pub(crate) fn delete(&mut self, table: Table, key: &[u8]) {
        self.changes.put(Change { table, key: key.to_vec(), value: None });
    }

    /// The record of a node.
    ///
    /// # Errors
    /// [`FileError::NotFound`]; [`FileError::Failed`] where the row does not read or makes no sense.
    pub(crate) fn inode(&self, inode: Inode) -> Result<InodeRecord, FileError> {
        let key = keys::inode(inode);
        let value = self.get(Table::Inodes, &key)?.ok_or(FileError::NotFound)?;
        InodeRecord::decode(&value).map_err(|source| senseless(Table::Inodes, &key, source))
    }

    /// Sets the record of a node.
    pub(crate) fn set_inode(&mut self, inode: Inode, record: &InodeRecord) {
        self.set(Table::Inodes, &keys::inode(inode), record.encode());
    }

    /// What the plan changes, by table and key, each row once.
    pub(crate) fn into_changes(self) -> Vec<Change> {
        self.changes.into_changes()
    }
}

/// The error for a row that makes no sense.
pub(crate) fn senseless(table: Table, key: &[u8], source: Malformed) -> FileError {
    let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    FileError::Failed { why: format!("row {key} of table {table:?} of the catalog makes no sense: {source}") }
}
