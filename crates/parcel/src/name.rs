//! What the files of a parcel are called.

/// Ends every name of a parcel's files.
pub const SUFFIX: &str = ".clay";
/// Ends the names of files that are being written.
pub const PART_SUFFIX: &str = ".part";

/// The manifest's file of a parcel that holds `name`.
pub fn manifest_file(name: &str) -> String {
    format!("{name}{SUFFIX}")
}

/// The file of a chunk.
pub fn chunk_file(name: &str, chunk: u16, chunks: u16) -> String {
    let width = (chunks.max(1) - 1).to_string().len().max(2);
    format!("{name}.{chunk:0width$}{SUFFIX}")
}

/// A file while it is being written.
pub fn part(file: &str) -> String {
    format!("{file}{PART_SUFFIX}")
}

/// Names of parcels that a file so called may belong to: as their manifest, as one of their chunks.
pub fn parcels_of(file: &str) -> impl Iterator<Item = &str> {
    let stem = file.strip_suffix(SUFFIX);
    let of_chunk = stem
        .and_then(|stem| stem.rsplit_once('.'))
        .filter(|(_, index)| index.len() >= 2 && index.bytes().all(|byte| byte.is_ascii_digit()));
    of_chunk.map(|(name, _)| name).into_iter().chain(stem)
}
