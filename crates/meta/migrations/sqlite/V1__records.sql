-- docs/formats/metadata.md explains every table. A released migration is never edited: a change is a new file.

CREATE TABLE buckets (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    code TEXT,
    documents BLOB NOT NULL
) STRICT;

-- One row a version; the current one of a key has the greatest seq. version NULL is the version called null.
CREATE TABLE objects (
    bucket INTEGER NOT NULL,
    key BLOB NOT NULL,
    seq INTEGER NOT NULL,
    version TEXT,
    delete_marker INTEGER NOT NULL,
    content INTEGER,
    bytes INTEGER NOT NULL,
    etag TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    attributes BLOB NOT NULL,
    PRIMARY KEY (bucket, key, seq DESC)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX objects_version ON objects (bucket, key, version) WHERE version IS NOT NULL;

CREATE TABLE uploads (
    num INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    bucket INTEGER NOT NULL,
    key BLOB NOT NULL,
    created_ms INTEGER NOT NULL,
    attributes BLOB NOT NULL
) STRICT;
CREATE INDEX uploads_key ON uploads (bucket, key, id);

CREATE TABLE parts (
    upload INTEGER NOT NULL,
    number INTEGER NOT NULL,
    content INTEGER,
    bytes INTEGER NOT NULL,
    etag TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    attributes BLOB NOT NULL,
    PRIMARY KEY (upload, number)
) STRICT, WITHOUT ROWID;

-- refs: objects and parts that name it.
CREATE TABLE contents (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    refs INTEGER NOT NULL
) STRICT;

-- The stripes of a content in order.
CREATE TABLE spans (
    content INTEGER NOT NULL,
    position INTEGER NOT NULL,
    stripe BLOB NOT NULL,
    PRIMARY KEY (content, position)
) STRICT, WITHOUT ROWID;

-- refs: spans that name it; 0 is a dead stripe. lost: its chunks without a place, damaged, or on a lost or removed disk.
-- spare: how many more chunks a live stripe with losses can lose, negative when data is lost; otherwise NULL. It is no
-- generated column, because SQLite does not read those from an index alone.
CREATE TABLE stripes (
    id BLOB NOT NULL PRIMARY KEY,
    refs INTEGER NOT NULL,
    code TEXT NOT NULL,
    data_bytes INTEGER NOT NULL,
    sub_bytes INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    verified_ms INTEGER,
    tolerance INTEGER NOT NULL,
    lost INTEGER NOT NULL,
    spare INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX stripes_degraded ON stripes (spare, lost) WHERE spare IS NOT NULL;
CREATE INDEX stripes_dead ON stripes (refs) WHERE refs = 0;

-- The only place of chunk places: one row for each chunk of each stripe. disk NULL: the chunk has no place.
CREATE TABLE chunks (
    stripe BLOB NOT NULL,
    idx INTEGER NOT NULL,
    disk INTEGER,
    generation INTEGER NOT NULL,
    damaged INTEGER NOT NULL,
    PRIMARY KEY (stripe, idx)
) STRICT, WITHOUT ROWID;
CREATE INDEX chunks_disk ON chunks (disk, stripe);
CREATE INDEX chunks_damaged ON chunks (disk) WHERE damaged = 1;

-- state: 0 active, 1 draining, 2 lost, 3 removed.
CREATE TABLE disks (
    num INTEGER PRIMARY KEY AUTOINCREMENT,
    id BLOB NOT NULL UNIQUE,
    node TEXT NOT NULL,
    path TEXT NOT NULL,
    state INTEGER NOT NULL,
    added_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE keys (
    access_key TEXT NOT NULL PRIMARY KEY,
    secret_key TEXT NOT NULL,
    account TEXT NOT NULL,
    created_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Zeros that hold pages for transactions that free something (docs/formats/metadata.md, "Room").
CREATE TABLE reserve (
    bytes BLOB NOT NULL
) STRICT;

-- Counts of live stripes, kept by the two triggers below so that counting does not read them all.
CREATE TABLE totals (
    stripes INTEGER NOT NULL,
    data_bytes INTEGER NOT NULL,
    verified INTEGER NOT NULL
) STRICT;
INSERT INTO totals VALUES (0, 0, 0);

CREATE TRIGGER stripes_added AFTER INSERT ON stripes WHEN NEW.refs > 0 BEGIN
    UPDATE totals SET
        stripes = stripes + 1,
        data_bytes = data_bytes + NEW.data_bytes,
        verified = verified + (NEW.verified_ms IS NOT NULL AND NEW.lost = 0);
END;

CREATE TRIGGER stripes_changed AFTER UPDATE OF refs, verified_ms, lost ON stripes
WHEN (OLD.refs > 0) <> (NEW.refs > 0)
    OR (OLD.verified_ms IS NOT NULL AND OLD.lost = 0) <> (NEW.verified_ms IS NOT NULL AND NEW.lost = 0)
BEGIN
    UPDATE totals SET
        stripes = stripes + (NEW.refs > 0) - (OLD.refs > 0),
        data_bytes = data_bytes + NEW.data_bytes * ((NEW.refs > 0) - (OLD.refs > 0)),
        verified = verified
            + (NEW.refs > 0 AND NEW.verified_ms IS NOT NULL AND NEW.lost = 0)
            - (OLD.refs > 0 AND OLD.verified_ms IS NOT NULL AND OLD.lost = 0);
END;
