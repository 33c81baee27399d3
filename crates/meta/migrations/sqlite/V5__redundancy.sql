-- What stripes of a volume get is one code or two forms (replica:3/rs:4+2). docs/formats/metadata.md explains every table.

ALTER TABLE volumes RENAME COLUMN code TO redundancy;
ALTER TABLE snapshots RENAME COLUMN code TO redundancy;
