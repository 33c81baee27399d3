-- Snapshots of volumes. docs/formats/metadata.md explains every table.

-- A row of its own has all that a clone needs, whatever becomes of its volume.
CREATE TABLE snapshots (
    num INTEGER PRIMARY KEY AUTOINCREMENT,
    volume INTEGER NOT NULL,
    name TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    page_bytes INTEGER NOT NULL,
    chunk_bytes INTEGER NOT NULL,
    code TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    UNIQUE (volume, name)
) STRICT;

-- The stripes of a snapshot, as volume_spans has those of a volume. From now on stripes.refs counts these rows too.
CREATE TABLE snapshot_spans (
    snapshot INTEGER NOT NULL,
    position INTEGER NOT NULL,
    stripe BLOB NOT NULL,
    PRIMARY KEY (snapshot, position)
) STRICT, WITHOUT ROWID;

-- Segments of a volume's log that were made under lesser terms are over, since it was reverted.
ALTER TABLE volumes ADD COLUMN log_from INTEGER NOT NULL DEFAULT 0;
