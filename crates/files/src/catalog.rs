//! The catalog: a database on the device, and over it the changes that it does not hold yet.
//!
//! 1. What a reader sees is the base with the overlay on top: the state after the last change that was applied.
//! 2. [`Catalog::checkpoint`] makes the overlay part of the base in one durable transaction: after a crash the base has all
//!    of it or nothing. If that fails, a reader sees what it saw before.
//!    [`Catalog::bring`] does so with some rows: the base is then of no one time, and only the journal makes it so again.
//!    [`Catalog::compact`] changes where rows lie, and none of them.
//! 3. No change is lost between: who applies changes has them in the journal from the position that the base names.
//!
//! Left out: what keys and values mean (`keys`, `inode`, `name`, `state`), and the pages under the database.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::iter::Peekable;

use claystone_env::SECTOR_BYTES;
use redb::{
    CompactionError, Database, ReadOnlyTable, ReadableDatabase, ReadableTableMetadata, StorageBackend, TableDefinition,
    TableError,
};

use crate::error::with_sources;
use crate::keys::Span;
use crate::overlay::{Overlay, TABLES};
use crate::{Change, FileError, Table};

/// Key and value.
pub(crate) type Row = (Vec<u8>, Vec<u8>);

/// Why the catalog could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CatalogError {
    /// The database does not open.
    #[error("the catalog does not open")]
    Open {
        /// What the database says.
        source: redb::DatabaseError,
    },
    /// Rows of a table do not read.
    #[error("table {} of the catalog does not read", name_of(*.table))]
    Read {
        /// The table.
        table: Table,
        /// What the database says.
        source: Box<redb::Error>,
    },
    /// The database stopped while it was compacted, so that no table of it is at hand.
    #[error("table {} of the catalog does not read: the database stopped", name_of(*.table))]
    Stopped {
        /// The table.
        table: Table,
    },
    /// A checkpoint was not written: whether it is on the device is unknown.
    #[error("the catalog does not take a checkpoint")]
    Write {
        /// What the database says.
        source: Box<redb::Error>,
    },
}

impl From<CatalogError> for FileError {
    fn from(error: CatalogError) -> FileError {
        FileError::Failed { why: with_sources(&error) }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Catalog {
    base: Database,
    /// The tables of the base as of the last checkpoint; `None` for one that has had no row so far. None of them at all where the
    /// base stopped while it was compacted: then nothing of it reads, for a row that is not found would pass for one that is not there.
    tables: Option<[Option<BaseTable>; TABLES.len()]>,
    overlay: Overlay,
    slack: Slack,
}

/// What the base has lost since it was compacted, or since somebody saw that it need not be.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Slack {
    /// Bytes of rows that it lost, those that it got taken off: about that much of its pages has become free.
    pub bytes: u64,
    /// Pages that it used when somebody counted them, and those that `bytes` had made free by then. `None` where nobody did since it was
    /// opened: before that, any part of it may have become free.
    pub counted: Option<u64>,
}

impl Slack {
    /// About how many pages have become free.
    pub(crate) fn pages(self) -> u64 {
        self.bytes / SECTOR_BYTES as u64
    }
}

/// Bytes of rows that a transaction took out of the base, and put there.
#[derive(Debug, Clone, Copy, Default)]
struct Turnover {
    removed: u64,
    put: u64,
}

/// In which order rows are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Ascending,
    Descending,
}

type Guard<'r> = redb::AccessGuard<'r, &'static [u8]>;
type BaseTable = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// Rows of one layer, or of several as one.
pub(crate) type Rows<'a> = Box<dyn Iterator<Item = Result<Row, CatalogError>> + 'a>;

impl Catalog {
    /// Opens the database, or makes one where the backend is empty; `cache_bytes` of it stay in memory.
    ///
    /// # Errors
    /// [`CatalogError::Open`], [`CatalogError::Read`].
    pub(crate) fn open(backend: impl StorageBackend, cache_bytes: usize) -> Result<Catalog, CatalogError> {
        let base = Database::builder()
            .set_cache_size(cache_bytes)
            .create_with_backend(backend)
            .map_err(|source| CatalogError::Open { source })?;
        let tables = tables_of(&base)?;
        Ok(Catalog { base, tables: Some(tables), overlay: Overlay::default(), slack: Slack::default() })
    }

    /// Opens the database anew, after it stopped and `backend` is again what it was after the last checkpoint. What a reader sees is the
    /// same.
    ///
    /// # Errors
    /// As [`Catalog::open`]; then nothing of the base reads any more.
    pub(crate) fn reopen(&mut self, backend: impl StorageBackend, cache_bytes: usize) -> Result<(), CatalogError> {
        let Catalog { base, tables, .. } = Catalog::open(backend, cache_bytes)?;
        // What there was has had an error, so it writes nothing when it goes. It lost no row that counts.
        (self.base, self.tables) = (base, tables);
        Ok(())
    }

    /// Reads every row of every table.
    ///
    /// # Errors
    /// [`CatalogError::Read`].
    pub(crate) fn read_all(&self) -> Result<(), CatalogError> {
        TABLES.into_iter().try_for_each(|table| self.ascending(table, &Span::all())?.try_for_each(|row| row.map(drop)))
    }

    /// As long as this is held, pages of the last checkpoint are not written over.
    ///
    /// # Errors
    /// [`CatalogError::Read`].
    pub(crate) fn pin(&self) -> Result<redb::ReadTransaction, CatalogError> {
        self.base.begin_read().map_err(|source| unread(Table::State, source))
    }

    /// The value of a row.
    ///
    /// # Errors
    /// [`CatalogError::Read`].
    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, CatalogError> {
        if let Some(value) = self.overlay.row(table, key) {
            return Ok(value.map(<[u8]>::to_vec));
        }
        match self.base_table(table)? {
            None => Ok(None),
            Some(base) => match base.get(key) {
                Ok(value) => Ok(value.map(|value| value.value().to_vec())),
                Err(source) => Err(unread(table, source)),
            },
        }
    }

    /// Up to `limit` rows of a span, ascending.
    ///
    /// # Errors
    /// [`CatalogError::Read`].
    pub(crate) fn range(&self, table: Table, span: &Span, limit: usize) -> Result<Vec<Row>, CatalogError> {
        self.ascending(table, span)?.take(limit).collect()
    }

    /// The row of the greatest key that is not behind `key`.
    ///
    /// # Errors
    /// [`CatalogError::Read`].
    pub(crate) fn last_before(&self, table: Table, key: &[u8]) -> Result<Option<Row>, CatalogError> {
        self.descending(table, &Span::up_to(key))?.next().transpose()
    }

    /// The rows of a span one by one, ascending.
    ///
    /// # Errors
    /// [`CatalogError::Read`], here and for each row.
    pub(crate) fn ascending<'c>(&'c self, table: Table, span: &Span) -> Result<Rows<'c>, CatalogError> {
        Ok(ascending_under(self.base_rows(table, span, Order::Ascending)?, &self.overlay, table, span))
    }

    /// The rows of a span one by one, descending.
    ///
    /// # Errors
    /// [`CatalogError::Read`], here and for each row.
    pub(crate) fn descending<'c>(&'c self, table: Table, span: &Span) -> Result<Rows<'c>, CatalogError> {
        Ok(descending_under(self.base_rows(table, span, Order::Descending)?, &self.overlay, table, span))
    }

    /// Takes changes into the overlay, in their order.
    pub(crate) fn apply(&mut self, changes: impl IntoIterator<Item = Change>) {
        for change in changes {
            self.overlay.put(change);
        }
    }

    /// Brings the overlay into the base, and `with` behind it, in one durable transaction.
    ///
    /// # Errors
    /// [`CatalogError::Write`]: whether it is on the device is unknown, and the base takes no more; [`CatalogError::Read`].
    pub(crate) fn checkpoint(&mut self, with: &[Change]) -> Result<(), CatalogError> {
        let turnover = self.write_base(with).map_err(|source| CatalogError::Write { source: Box::new(source) })?;
        self.tables = Some(tables_of(&self.base)?);
        self.overlay = Overlay::default();
        self.turn(turnover);
        Ok(())
    }

    /// Rows that the overlay changes and `other` does not: those that it deletes first.
    pub(crate) fn keys_beside(&self, other: &Overlay) -> Vec<(Table, Vec<u8>)> {
        self.overlay.keys_beside(other)
    }

    /// Brings rows of the overlay into the base, ahead of the others, in one durable transaction. What a reader sees is the same. Who calls has
    /// their changes in the journal, behind the position that the base names: so replaying it makes of the base what it would be
    /// without them.
    ///
    /// # Errors
    /// As [`Catalog::checkpoint`].
    pub(crate) fn bring(&mut self, rows: &[(Table, Vec<u8>)]) -> Result<(), CatalogError> {
        let turnover = self.write_rows(rows).map_err(|source| CatalogError::Write { source: Box::new(source) })?;
        self.tables = Some(tables_of(&self.base)?);
        self.turn(turnover);
        for (table, key) in rows {
            self.overlay.forget(*table, key);
        }
        Ok(())
    }

    /// Pages of its file that the database uses. It walks all its tables.
    ///
    /// # Errors
    /// [`CatalogError::Read`], after which the base takes no more.
    pub(crate) fn allocated_pages(&self) -> Result<u64, CatalogError> {
        let unread = |source| unread(Table::State, source);
        let transaction = self.base.begin_write().map_err(redb::Error::from).map_err(unread)?;
        let pages = transaction.stats().map_err(redb::Error::from).map_err(unread)?.allocated_pages();
        transaction.abort().map_err(redb::Error::from).map_err(unread)?;
        Ok(pages)
    }

    /// Moves the pages that the database uses to the front of its file, and ends the file behind them. No row changes, and at each moment of it
    /// the device has all of them. Returns `false` where that is not possible now, because somebody reads ([`Catalog::pin`]).
    ///
    /// It reads all pages but leaves, and reads and writes again those that it moves: who calls sees to it that these are not many.
    ///
    /// # Errors
    /// [`CatalogError::Write`], [`CatalogError::Read`]: the base takes no more and gives nothing out before it is opened anew.
    pub(crate) fn compact(&mut self) -> Result<bool, CatalogError> {
        // They are read transactions, and the database wants none.
        self.tables = None;
        let compacted = match self.base.compact() {
            Ok(_) => true,
            Err(CompactionError::Storage(source)) => {
                return Err(CatalogError::Write { source: Box::new(source.into()) });
            }
            // A reader; there are no savepoints.
            Err(_) => false,
        };
        self.tables = Some(tables_of(&self.base)?);
        Ok(compacted)
    }

    /// What the base has lost since [`Catalog::forget_slack`].
    pub(crate) fn slack(&self) -> Slack {
        self.slack
    }

    /// Somebody counted the pages that it uses, and leaves those that became free where they are.
    pub(crate) fn keep_slack(&mut self, used: u64) {
        self.slack.counted = Some(used + self.slack.pages());
    }

    /// It was compacted, or needs not be; so many pages are in use.
    pub(crate) fn forget_slack(&mut self, used: u64) {
        self.slack = Slack { bytes: 0, counted: Some(used) };
    }

    /// Rows of the base: it uses hardly more pages than that.
    ///
    /// # Errors
    /// [`CatalogError::Read`], [`CatalogError::Stopped`].
    pub(crate) fn rows(&self) -> Result<u64, CatalogError> {
        let mut rows = 0;
        for table in TABLES {
            if let Some(base) = self.base_table(table)? {
                rows += base.len().map_err(|source| unread(table, source))?;
            }
        }
        Ok(rows)
    }

    /// About how much memory the overlay takes: when to checkpoint.
    pub(crate) fn overlay_bytes(&self) -> usize {
        self.overlay.bytes()
    }

    fn turn(&mut self, Turnover { removed, put }: Turnover) {
        self.slack.bytes = (self.slack.bytes + removed).saturating_sub(put);
    }

    fn base_table(&self, table: Table) -> Result<Option<&BaseTable>, CatalogError> {
        let tables = self.tables.as_ref().ok_or(CatalogError::Stopped { table })?;
        Ok(tables[table as usize].as_ref())
    }

    fn write_base(&self, with: &[Change]) -> Result<Turnover, redb::Error> {
        let mut turnover = Turnover::default();
        let mut transaction = self.base.begin_write()?;
        transaction.set_quick_repair(QUICK_REPAIR);
        for table in TABLES {
            let mut overlay = self.overlay.rows(table, &Span::all()).peekable();
            let mut with = with.iter().filter(|change| change.table == table).peekable();
            if overlay.peek().is_none() && with.peek().is_none() {
                continue;
            }
            let mut base = transaction.open_table(definition(table))?;
            let rows = overlay.chain(with.map(|change| (&change.key, &change.value)));
            for (key, value) in rows {
                write_row(&mut base, key, value.as_deref(), &mut turnover)?;
            }
        }
        transaction.commit()?;
        Ok(turnover)
    }

    fn write_rows(&self, rows: &[(Table, Vec<u8>)]) -> Result<Turnover, redb::Error> {
        let mut turnover = Turnover::default();
        let mut transaction = self.base.begin_write()?;
        transaction.set_quick_repair(QUICK_REPAIR);
        for rows in rows.chunk_by(|one, next| one.0 == next.0) {
            let table = rows[0].0;
            let mut base = transaction.open_table(definition(table))?;
            for (_, key) in rows {
                if let Some(value) = self.overlay.row(table, key) {
                    write_row(&mut base, key, value, &mut turnover)?;
                }
            }
        }
        transaction.commit()?;
        Ok(turnover)
    }

    fn base_rows(&self, table: Table, span: &Span, order: Order) -> Result<Rows<'static>, CatalogError> {
        let (Some(base), Some(bounds)) = (self.base_table(table)?, span.bounds()) else {
            return Ok(Box::new(std::iter::empty()));
        };
        let rows = base.range::<&[u8]>(bounds).map_err(|source| unread(table, source))?;
        let copied = move |row: Result<(Guard<'_>, Guard<'_>), _>| match row {
            Ok((key, value)) => Ok((key.value().to_vec(), value.value().to_vec())),
            Err(source) => Err(unread(table, source)),
        };
        Ok(match order {
            Order::Ascending => Box::new(rows.map(copied)),
            Order::Descending => Box::new(rows.rev().map(copied)),
        })
    }
}

/// The rows of a layer with the changes of a layer above it, ascending.
pub(crate) fn ascending_under<'a>(lower: Rows<'a>, upper: &'a Overlay, table: Table, span: &Span) -> Rows<'a> {
    Box::new(Merge { lower: lower.peekable(), upper: upper.rows(table, span).peekable(), order: Order::Ascending })
}

/// The rows of a layer with the changes of a layer above it, descending.
pub(crate) fn descending_under<'a>(lower: Rows<'a>, upper: &'a Overlay, table: Table, span: &Span) -> Rows<'a> {
    Box::new(Merge {
        lower: lower.peekable(),
        upper: upper.rows(table, span).rev().peekable(),
        order: Order::Descending,
    })
}

/// Two layers in one order: where both have a row the upper counts, and what it deletes is not there.
struct Merge<'a, U: Iterator> {
    lower: Peekable<Rows<'a>>,
    upper: Peekable<U>,
    order: Order,
}

impl<'a, U> Iterator for Merge<'a, U>
where
    U: Iterator<Item = (&'a Vec<u8>, &'a Option<Vec<u8>>)>,
{
    type Item = Result<Row, CatalogError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let nearer = match (self.lower.peek(), self.upper.peek()) {
                (Some(Err(_)), _) | (_, None) => return self.lower.next(),
                (None, Some(_)) => Ordering::Greater,
                (Some(Ok((lower, _))), Some((upper, _))) => match self.order {
                    Order::Ascending => lower.cmp(upper),
                    Order::Descending => lower.cmp(upper).reverse(),
                },
            };
            match nearer {
                Ordering::Less => return self.lower.next(),
                Ordering::Equal => drop(self.lower.next()),
                Ordering::Greater => {}
            }
            if let Some((key, Some(value))) = self.upper.next() {
                return Some(Ok((key.clone(), value.clone())));
            }
        }
    }
}

/// With it redb keeps the state of its allocator in each commit and commits in two phases, so that opening after a
/// crash reads no more than it needs; without it, opening would read the whole catalog.
const QUICK_REPAIR: bool = true;

fn definition(table: Table) -> TableDefinition<'static, &'static [u8], &'static [u8]> {
    TableDefinition::new(name_of(table))
}

fn name_of(table: Table) -> &'static str {
    match table {
        Table::State => "state",
        Table::Inodes => "inodes",
        Table::Names => "names",
        Table::Attributes => "attributes",
        Table::Runs => "runs",
        Table::Free => "free",
        Table::Orphans => "orphans",
    }
}

/// Sets a row, or deletes it.
fn write_row(
    base: &mut redb::Table<'_, &'static [u8], &'static [u8]>,
    key: &[u8],
    value: Option<&[u8]>,
    turnover: &mut Turnover,
) -> Result<(), redb::Error> {
    let before = match value {
        Some(value) => {
            turnover.put += (key.len() + value.len()) as u64;
            base.insert(key, value)?
        }
        None => base.remove(key)?,
    };
    turnover.removed += before.map_or(0, |before| (key.len() + before.value().len()) as u64);
    Ok(())
}

fn tables_of(base: &Database) -> Result<[Option<BaseTable>; TABLES.len()], CatalogError> {
    let mut tables = [const { None }; TABLES.len()];
    let transaction = base.begin_read().map_err(|source| unread(Table::State, source))?;
    for (table, opened) in TABLES.into_iter().zip(&mut tables) {
        *opened = match transaction.open_table(definition(table)) {
            Ok(rows) => Some(rows),
            Err(TableError::TableDoesNotExist(_)) => None,
            Err(source) => return Err(unread(table, source)),
        };
    }
    Ok(tables)
}

fn unread(table: Table, source: impl Into<redb::Error>) -> CatalogError {
    CatalogError::Read { table, source: Box::new(source.into()) }
}
