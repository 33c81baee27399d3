-- Block volumes. docs/formats/metadata.md explains every table.

-- term: of the last lease, 0 while there was none. log_copies: the fewest copies that any segment of the log has.
CREATE TABLE volumes (
    num INTEGER PRIMARY KEY AUTOINCREMENT,
    id BLOB NOT NULL UNIQUE,
    name TEXT NOT NULL UNIQUE,
    bytes INTEGER NOT NULL,
    page_bytes INTEGER NOT NULL,
    chunk_bytes INTEGER NOT NULL,
    code TEXT NOT NULL,
    home TEXT,
    term INTEGER NOT NULL,
    log_copies INTEGER NOT NULL,
    created_ms INTEGER NOT NULL
) STRICT;

-- The stripes of a volume; a position without a row reads as zeros. From now on stripes.refs counts these rows too.
CREATE TABLE volume_spans (
    volume INTEGER NOT NULL,
    position INTEGER NOT NULL,
    stripe BLOB NOT NULL,
    PRIMARY KEY (volume, position)
) STRICT, WITHOUT ROWID;

-- Disks that may hold segments of a volume's log.
CREATE TABLE volume_logs (
    volume INTEGER NOT NULL,
    disk INTEGER NOT NULL,
    PRIMARY KEY (volume, disk)
) STRICT, WITHOUT ROWID;
CREATE INDEX volume_logs_disk ON volume_logs (disk);
