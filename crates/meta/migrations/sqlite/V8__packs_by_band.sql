-- What is named of packs, by band: what is deleted of a merged stripe shows where it was. docs/formats/metadata.md explains every table.

DROP INDEX packs_thin;
ALTER TABLE packs RENAME TO packs_by_stripe;

-- One row for each band of a live stripe with parts. wanted: the code that their contents are to have. live_bytes, parts: of the
-- parts that spans name, and how many spans do.
CREATE TABLE packs (
    stripe BLOB NOT NULL,
    band INTEGER NOT NULL,
    wanted TEXT NOT NULL,
    live_bytes INTEGER NOT NULL,
    parts INTEGER NOT NULL,
    PRIMARY KEY (stripe, band)
) STRICT, WITHOUT ROWID;
-- Part by part, for a group by band would hold them all in memory and sort them there.
INSERT INTO packs
SELECT k.stripe, p.band, k.wanted, p.bytes, 1 FROM packs_by_stripe k CROSS JOIN spans p ON p.stripe = k.stripe
WHERE p.bytes IS NOT NULL
ON CONFLICT (stripe, band) DO UPDATE SET live_bytes = live_bytes + excluded.live_bytes, parts = parts + 1;
DROP TABLE packs_by_stripe;
CREATE INDEX packs_thin ON packs (wanted, live_bytes);
