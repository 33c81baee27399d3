-- Stripes that were merged or split where they lie. docs/formats/metadata.md explains every table.

-- Which band of the stripe holds the content's bytes.
ALTER TABLE spans ADD COLUMN band INTEGER NOT NULL DEFAULT 0;
-- A conversion finds the spans of its stripes.
CREATE INDEX spans_stripe ON spans (stripe);

-- NULL: all data chunks are one band.
ALTER TABLE stripes ADD COLUMN bands TEXT;

-- The stripe and index in the chunk's name, where these are not `stripe` and `idx`.
ALTER TABLE chunks ADD COLUMN origin BLOB;
ALTER TABLE chunks ADD COLUMN origin_idx INTEGER;
CREATE INDEX chunks_origin ON chunks (origin, origin_idx) WHERE origin IS NOT NULL;
