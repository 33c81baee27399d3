-- Stripes that hold parts of several contents. docs/formats/metadata.md explains every table.

-- Which bytes of its band the content has; NULL: all.
ALTER TABLE spans ADD COLUMN first INTEGER;
ALTER TABLE spans ADD COLUMN bytes INTEGER;

-- One row for each live stripe with parts. wanted: the code that their contents are to have. live_bytes: of the parts that
-- spans name.
CREATE TABLE packs (
    stripe BLOB NOT NULL PRIMARY KEY,
    wanted TEXT NOT NULL,
    live_bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX packs_thin ON packs (wanted, live_bytes);
