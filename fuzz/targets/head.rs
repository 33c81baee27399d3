//! Bytes as the head of a parcel's file: what decodes is written the same again and has a layout that makes sense. The
//! checksum is put right first, so that the fields behind it are reached.
#![no_main]

use claystone_parcel::{HEAD_BYTES, Head, JointHead};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = Head::decode(bytes);
    let mut joint = bytes.to_vec();
    if joint.len() >= 2 * HEAD_BYTES {
        joint[..8].copy_from_slice(b"CLAYJOIN");
        joint[8..10].copy_from_slice(&1u16.to_le_bytes());
        let length = u32::try_from(joint.len()).expect("inputs are short");
        joint[32..36].copy_from_slice(&length.to_le_bytes());
        joint[12..16].fill(0);
        let crc = crc32c(&joint);
        joint[12..16].copy_from_slice(&crc.to_le_bytes());
        if let Ok(decoded) = JointHead::decode(&joint) {
            assert_eq!(decoded.encode(), joint);
        }
    }
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(b"CLAYPRCL");
    head[8..10].copy_from_slice(&1u16.to_le_bytes());
    let length = bytes.len().min(HEAD_BYTES - 16);
    head[10..12].copy_from_slice(&[bytes.first().copied().unwrap_or(0), 0]);
    head[16..16 + length].copy_from_slice(&bytes[..length]);
    let crc = crc32c(&head);
    head[12..16].copy_from_slice(&crc.to_le_bytes());
    if let Ok(decoded) = Head::decode(&head) {
        assert_eq!(decoded.encode(), head);
        let layout = decoded.manifest.layout();
        let rows = layout.rows();
        if rows > 0 {
            let last = layout.row(rows - 1);
            assert_eq!(last.file_at + layout.file_bytes_of(&last), decoded.manifest.file_bytes);
        }
        assert!(layout.chunk_file_bytes() >= layout.chunk_bytes());
    }
});

/// CRC-32C, bit by bit: slow, short, and not the one that is tested.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    })
}
