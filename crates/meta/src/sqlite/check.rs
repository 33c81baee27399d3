//! Whether the tables agree with each other.

use rusqlite::Connection;

use super::fault::Fault;
use super::rows::{parse_code, parse_redundancy};
use super::stripes::LOSSES;

/// Names every contradiction, a sample of each kind.
pub(super) fn check(connection: &Connection) -> Result<Vec<String>, Fault> {
    let mut problems = Vec::new();
    let found: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if found != "ok" {
        problems.push(found);
    }
    for (what, sql) in RULES {
        let mut statement = connection.prepare(&sql.replace("{LOSSES}", LOSSES))?;
        let mut rows = statement.query([])?;
        let (mut count, mut first) = (0, None::<String>);
        while let Some(row) = rows.next()? {
            count += 1;
            if count == 1 {
                first = row.get(0)?;
            }
        }
        if count > 0 {
            problems.push(format!("{count} x {what}, first {}", first.unwrap_or_default()));
        }
    }
    // Chunk counts and tolerances follow from the code, which only this program can read.
    let mut statement = connection.prepare("SELECT DISTINCT code, tolerance FROM stripes")?;
    let codes =
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<Vec<(String, i64)>, _>>()?;
    for (text, tolerance) in codes {
        let code = parse_code(&text)?;
        if i64::from(code.tolerance()) != tolerance {
            problems.push(format!("stripes of {text} with tolerance {tolerance}"));
        }
        let odd: i64 = connection.query_row(
            "SELECT count(*) FROM stripes s WHERE s.code = ?1 AND (SELECT count(*) FROM chunks c WHERE c.stripe = s.id) <> ?2",
            rusqlite::params![text, code.shape().chunks()],
            |row| row.get(0),
        )?;
        if odd > 0 {
            problems.push(format!("{odd} x stripe of {text} without just its chunks"));
        }
    }
    for (what, table, spans, owner) in
        [("volume", "volumes", "volume_spans", "volume"), ("snapshot", "snapshots", "snapshot_spans", "snapshot")]
    {
        check_spans(connection, what, table, spans, owner, &mut problems)?;
    }
    Ok(problems)
}

/// What a stripe of a volume or a snapshot may hold follows from its code.
fn check_spans(
    connection: &Connection,
    what: &str,
    table: &str,
    spans: &str,
    owner: &str,
    problems: &mut Vec<String>,
) -> Result<(), Fault> {
    let mut statement = connection.prepare(&format!("SELECT num, name, redundancy FROM {table}"))?;
    let owners = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    for (num, name, redundancy) in owners.collect::<Result<Vec<(i64, String, String)>, _>>()? {
        let data_chunks = parse_redundancy(&redundancy)?.code.shape().data;
        let (long, beyond): (i64, i64) = connection.query_row(
            &format!(
                "SELECT count(*) FILTER (WHERE s.data_bytes > ?2 * v.chunk_bytes), \
                 count(*) FILTER (WHERE p.position < 0 OR p.position * ?2 * v.chunk_bytes >= v.bytes) \
                 FROM {table} v JOIN {spans} p ON p.{owner} = v.num LEFT JOIN stripes s ON s.id = p.stripe \
                 WHERE v.num = ?1"
            ),
            rusqlite::params![num, data_chunks],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        if long > 0 {
            problems.push(format!("{long} x stripe of more bytes than {what} {name:?} has at a position"));
        }
        if beyond > 0 {
            problems.push(format!("{beyond} x stripe beyond the end of {what} {name:?}"));
        }
    }
    Ok(())
}

/// What must not be found, and a query of one text column that finds it.
const RULES: [(&str, &str); 32] = [
    (
        "totals that are wrong",
        "SELECT printf('%d stripes, %d bytes, %d verified', stripes, data_bytes, verified) FROM totals \
         WHERE (stripes, data_bytes, verified) <> (SELECT count(*), coalesce(sum(data_bytes), 0), \
         count(*) FILTER (WHERE verified_ms IS NOT NULL AND lost = 0) FROM stripes WHERE refs > 0)",
    ),
    ("not one row of totals", "SELECT count(*) || ' rows' FROM totals HAVING count(*) <> 1"),
    ("stripe with a wrong loss count", "SELECT hex(id) FROM stripes WHERE (lost, spare) IS NOT {LOSSES}"),
    (
        "stripe with wrong refs",
        "SELECT hex(s.id) FROM stripes s LEFT JOIN (SELECT stripe, count(*) AS refs FROM \
         (SELECT stripe FROM spans UNION ALL SELECT stripe FROM volume_spans UNION ALL SELECT stripe FROM snapshot_spans) \
         GROUP BY stripe) p \
         ON p.stripe = s.id WHERE s.refs <> coalesce(p.refs, 0)",
    ),
    ("span without its stripe", "SELECT hex(stripe) FROM spans WHERE stripe NOT IN (SELECT id FROM stripes)"),
    (
        "span of a volume without its stripe",
        "SELECT hex(stripe) FROM volume_spans WHERE stripe NOT IN (SELECT id FROM stripes)",
    ),
    (
        "span of a snapshot without its stripe",
        "SELECT hex(stripe) FROM snapshot_spans WHERE stripe NOT IN (SELECT id FROM stripes)",
    ),
    (
        "span of no snapshot",
        "SELECT CAST(snapshot AS TEXT) FROM snapshot_spans WHERE snapshot NOT IN (SELECT num FROM snapshots)",
    ),
    ("snapshot of no volume", "SELECT name FROM snapshots WHERE volume NOT IN (SELECT num FROM volumes)"),
    (
        "span or log of no volume",
        "SELECT CAST(volume AS TEXT) FROM (SELECT volume FROM volume_spans UNION SELECT volume FROM volume_logs) \
         WHERE volume NOT IN (SELECT num FROM volumes)",
    ),
    ("log on no disk", "SELECT CAST(volume AS TEXT) FROM volume_logs WHERE disk NOT IN (SELECT num FROM disks)"),
    (
        "volume or snapshot with a term, length or size that it cannot have",
        "SELECT name FROM volumes WHERE term < 0 OR log_from NOT BETWEEN 0 AND term OR bytes < 0 OR page_bytes < 1 \
         OR chunk_bytes < 1 UNION ALL SELECT name FROM snapshots WHERE bytes < 0 OR page_bytes < 1 OR chunk_bytes < 1",
    ),
    (
        "volume that had a log before any lease",
        "SELECT name FROM volumes WHERE term = 0 AND num IN (SELECT volume FROM volume_logs)",
    ),
    (
        "volume whose log is on more nodes than its disks are",
        "SELECT name FROM volumes v WHERE log_nodes NOT BETWEEN 0 AND \
         (SELECT count(DISTINCT node) FROM volume_logs WHERE volume = v.num)",
    ),
    (
        "content with wrong refs",
        "SELECT CAST(c.id AS TEXT) FROM contents c LEFT JOIN (SELECT content, count(*) AS refs FROM \
         (SELECT content FROM objects UNION ALL SELECT content FROM parts) GROUP BY content) n \
         ON n.content = c.id WHERE c.refs <> coalesce(n.refs, 0) OR c.refs < 1",
    ),
    (
        "object or part without its content",
        "SELECT CAST(content AS TEXT) FROM (SELECT content FROM objects UNION SELECT content FROM parts) \
         WHERE content IS NOT NULL AND content NOT IN (SELECT id FROM contents)",
    ),
    (
        "content whose positions have gaps",
        "SELECT CAST(c.id AS TEXT) FROM contents c LEFT JOIN spans p ON p.content = c.id GROUP BY c.id \
         HAVING count(p.position) = 0 OR min(p.position) <> 0 OR max(p.position) <> count(*) - 1",
    ),
    (
        "spans of no content",
        "SELECT DISTINCT CAST(content AS TEXT) FROM spans WHERE content NOT IN (SELECT id FROM contents)",
    ),
    (
        "object or part with other bytes than its stripes",
        "SELECT CAST(n.content AS TEXT) FROM (SELECT content, bytes FROM objects UNION SELECT content, bytes FROM parts) n \
         WHERE n.bytes <> coalesce((SELECT sum(coalesce(p.bytes, band_bytes(s.bands, s.data_bytes, p.band))) FROM spans p JOIN stripes s ON s.id = p.stripe \
         WHERE p.content = n.content), 0)",
    ),
    (
        "part that is not in its stripe",
        "SELECT CAST(p.content AS TEXT) FROM spans p JOIN stripes s ON s.id = p.stripe \
         WHERE (p.first IS NOT NULL AND p.bytes IS NULL) OR p.first < 0 OR p.bytes < 1 \
         OR coalesce(p.first, 1) + p.bytes > coalesce(band_bytes(s.bands, s.data_bytes, p.band), 0)",
    ),
    (
        "pack with wrong bytes or parts that are named",
        "SELECT hex(coalesce(k.stripe, p.stripe)) FROM packs k FULL JOIN \
         (SELECT stripe, band, sum(bytes) AS bytes, count(*) AS parts FROM spans WHERE first IS NOT NULL GROUP BY stripe, band) p \
         ON p.stripe = k.stripe AND p.band = k.band WHERE (k.live_bytes, k.parts) IS NOT (p.bytes, p.parts)",
    ),
    ("object without its bucket", "SELECT hex(key) FROM objects WHERE bucket NOT IN (SELECT id FROM buckets)"),
    ("upload without its bucket", "SELECT id FROM uploads WHERE bucket NOT IN (SELECT id FROM buckets)"),
    ("part without its upload", "SELECT CAST(upload AS TEXT) FROM parts WHERE upload NOT IN (SELECT num FROM uploads)"),
    (
        "key with two null versions",
        "SELECT hex(key) FROM objects WHERE version IS NULL GROUP BY bucket, key HAVING count(*) > 1",
    ),
    (
        "stripe whose chunks are not numbered from 0",
        "SELECT hex(stripe) FROM chunks GROUP BY stripe HAVING min(idx) <> 0 OR max(idx) <> count(*) - 1",
    ),
    (
        "chunk with half an origin",
        "SELECT hex(stripe) FROM chunks WHERE (origin IS NULL) <> (origin_idx IS NULL) OR (disk IS NULL AND origin IS NOT NULL)",
    ),
    (
        "chunk that two rows name",
        "SELECT hex(c.stripe) FROM chunks c JOIN chunks o ON o.stripe = c.origin AND o.idx = c.origin_idx \
         AND o.generation = c.generation AND o.origin IS NULL AND o.disk IS NOT NULL WHERE c.origin IS NOT NULL \
         UNION ALL SELECT hex(max(stripe)) FROM chunks WHERE origin IS NOT NULL \
         GROUP BY origin, origin_idx, generation HAVING count(*) > 1",
    ),
    ("chunk without its stripe", "SELECT hex(stripe) FROM chunks WHERE stripe NOT IN (SELECT id FROM stripes)"),
    ("heat of no stripe", "SELECT hex(stripe) FROM heat WHERE stripe NOT IN (SELECT id FROM stripes)"),
    ("heat that is no count", "SELECT hex(stripe) FROM heat WHERE count < 0 OR as_of_ms < 0"),
    (
        "chunk on no disk",
        "SELECT hex(stripe) FROM chunks WHERE disk IS NOT NULL AND disk NOT IN (SELECT num FROM disks)",
    ),
];
