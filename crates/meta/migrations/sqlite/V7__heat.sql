-- How much stripes are read, and what buckets do about it. docs/formats/metadata.md explains every table.

-- count: reads of all of a stripe's bytes, decayed, as it was then. A stripe without a row counts as never read.
CREATE TABLE heat (
    stripe BLOB NOT NULL PRIMARY KEY,
    count REAL NOT NULL,
    as_of_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- NULL: stripes of the bucket stay as they were written.
ALTER TABLE buckets ADD COLUMN policy TEXT;
