-- On how many nodes a volume's log is. docs/formats/metadata.md explains every table.

-- The label of the disk's node when this was said. NULL: nobody said it.
ALTER TABLE volume_logs ADD COLUMN node TEXT;
-- The fewest of these nodes that any segment of the log is on; 0: as few as there could be.
ALTER TABLE volumes ADD COLUMN log_nodes INTEGER NOT NULL DEFAULT 0;
