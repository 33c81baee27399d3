//! What the demo stores: real files of this machine, made-up files of awkward lengths, and one big object.
//!
//! Invariants:
//! 1. Made-up content follows from its seed, so a run needs nothing but this program.
//! 2. A real file is read once, when it is stored; it may change afterwards.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;

/// Something to store.
#[derive(Debug, Clone)]
pub struct Item {
    /// Its key.
    pub key: String,
    /// Its bytes.
    pub content: Content,
}

/// Where bytes come from.
#[derive(Debug, Clone)]
pub enum Content {
    /// A file, read by now.
    Read(Bytes),
    /// Made up, part by part.
    Made {
        /// Decides the bytes.
        seed: u64,
        /// How many.
        bytes: u64,
    },
}

impl Content {
    /// Length.
    pub fn bytes(&self) -> u64 {
        match self {
            Content::Read(bytes) => bytes.len() as u64,
            Content::Made { bytes, .. } => *bytes,
        }
    }

    /// The bytes, in parts of at most [`PART_BYTES`].
    pub fn parts(self) -> Box<dyn Iterator<Item = Bytes> + Send> {
        match self {
            Content::Read(bytes) => Box::new(std::iter::once(bytes)),
            Content::Made { seed, bytes } => {
                let parts = bytes.div_ceil(PART_BYTES);
                Box::new((0..parts).map(move |part| {
                    made(seed.wrapping_add(part), (bytes - part * PART_BYTES).min(PART_BYTES) as usize)
                }))
            }
        }
    }
}

/// Files of this machine, at most so many and so long, and the awkward lengths.
pub fn files(count_max: usize, bytes_max: u64) -> Vec<Item> {
    let mut items: Vec<Item> = AWKWARD_BYTES
        .iter()
        .map(|&bytes| Item { key: format!("lengths/{bytes}"), content: Content::Made { seed: bytes, bytes } })
        .collect();
    let (mut bytes, mut count) = (0, 0);
    for place in real_places() {
        let mut waiting = vec![place];
        while let Some(path) = waiting.pop() {
            if count == count_max || bytes > bytes_max {
                return items;
            }
            let Ok(about) = fs::symlink_metadata(&path) else { continue };
            if about.is_dir() {
                let mut inside: Vec<PathBuf> =
                    fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
                inside.sort();
                waiting.extend(inside.into_iter().rev());
            } else if about.is_file()
                && about.len() <= FILE_BYTES_MAX
                && let Ok(content) = fs::read(&path)
            {
                bytes += content.len() as u64;
                count += 1;
                items.push(Item { key: key_of(&path), content: Content::Read(Bytes::from(content)) });
            }
        }
    }
    // On a bare machine the rest is made up: lengths spread evenly over their logarithm.
    while count < count_max && bytes <= bytes_max {
        let length = 64 << (count * 7 % 14);
        items.push(Item {
            key: format!("made/{count}"),
            content: Content::Made { seed: count as u64 + 1, bytes: length },
        });
        bytes += length;
        count += 1;
    }
    items
}

/// Directories that most machines have, and that hold nothing private.
fn real_places() -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = ["/usr/include", "/usr/share/doc", "/usr/share/zoneinfo"].map(PathBuf::from).into();
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo"));
    places.extend(cargo.or(home).map(|cargo| cargo.join("registry/src")));
    places.into_iter().filter(|place| place.is_dir()).collect()
}

fn key_of(path: &Path) -> String {
    format!("files/{}", path.to_string_lossy().trim_start_matches('/'))
}

/// Bytes that do not compress (xorshift).
fn made(seed: u64, bytes: usize) -> Bytes {
    let mut state = (seed ^ 0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9) | 1;
    let mut content = Vec::with_capacity(bytes + 8);
    while content.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        content.extend_from_slice(&state.to_le_bytes());
    }
    content.truncate(bytes);
    Bytes::from(content)
}

/// Parts that a made-up body comes in.
pub const PART_BYTES: u64 = 1 << 20;
const FILE_BYTES_MAX: u64 = 8 << 20;
/// Around a sector, around the length up to which objects are replicated, around a tile row, and longer ones.
const AWKWARD_BYTES: [u64; 14] =
    [0, 1, 4095, 4096, 4097, 16_384, 16_385, 65_536, 131_071, 262_144, 262_145, 1_000_000, 4_194_304, 6_000_001];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_content_has_its_length_and_repeats() {
        for bytes in [0, 1, PART_BYTES - 1, PART_BYTES, 3 * PART_BYTES + 5] {
            let content = Content::Made { seed: 5, bytes };
            let parts: Vec<Bytes> = content.clone().parts().collect();
            assert_eq!(parts.iter().map(|part| part.len() as u64).sum::<u64>(), bytes);
            assert_eq!(parts, content.parts().collect::<Vec<_>>());
        }
    }

    #[test]
    fn there_is_always_something_to_store_and_keys_are_unique() {
        let items = files(40, 1 << 20);
        assert!(items.len() > AWKWARD_BYTES.len());
        let keys: std::collections::BTreeSet<&str> = items.iter().map(|item| item.key.as_str()).collect();
        assert_eq!(keys.len(), items.len());
    }
}
