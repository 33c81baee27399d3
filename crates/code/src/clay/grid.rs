//! Clay's grid: where chunks stand in it and how planes are numbered.
//!
//! The n chunks and `virtuals` nodes of zeros form t sections of q nodes. Node (x, y) has number y * q + x: data first,
//! virtual nodes next, parity last. A tile has alpha = q^t planes; plane z has one base-q digit for each section, that
//! of section 0 most significant. A node is a *dot* of the planes whose digit of its section is its own x.
//!
//! Invariants:
//! 1. q >= 2, nodes = q * t <= 256, alpha = q^t <= `CodeSpec::ALPHA_MAX`; so plane and node fit u16.
//! 2. Nodes 0 .. data + virtuals are the data of the scalar code of every plane, the rest its parity.

use crate::{ChunkIndex, CodeSpec, SpecError};

/// The geometry of one Clay code. Source: [clay §3]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    /// Data chunks, k.
    pub(crate) data: u16,
    /// Parity chunks, m.
    pub(crate) parity: u16,
    /// Nodes of zeros that fill the last section.
    pub(crate) virtuals: u16,
    /// Nodes in a section, d - k + 1.
    pub(crate) q: u16,
    /// Sections.
    pub(crate) t: u16,
    /// Planes, which are the sub-chunks of a tile.
    pub(crate) alpha: u32,
}

impl Grid {
    /// # Errors
    /// If d is out of its range, or the grid or alpha is too large.
    pub(crate) fn new(data: u8, parity: u8, helpers: u8) -> Result<Self, SpecError> {
        let (k, m) = (u16::from(data), u16::from(parity));
        let (least, most) = (k + 1, k + m - 1);
        if !(least..=most).contains(&u16::from(helpers)) {
            return Err(SpecError::HelpersOutOfRange { helpers, least, most });
        }
        let q = u16::from(helpers) - k + 1;
        let nodes = (k + m).next_multiple_of(q);
        if nodes > CodeSpec::CHUNKS_MAX {
            return Err(SpecError::GridTooWide { nodes, limit: CodeSpec::CHUNKS_MAX });
        }
        let t = nodes / q;
        let alpha = u32::from(q).checked_pow(t.into()).filter(|alpha| *alpha <= CodeSpec::ALPHA_MAX);
        let alpha = alpha.ok_or(SpecError::TooManySubChunks { q, t, limit: CodeSpec::ALPHA_MAX })?;
        Ok(Self { data: k, parity: m, virtuals: nodes - k - m, q, t, alpha })
    }

    /// Real chunks.
    pub(crate) fn chunks(&self) -> u16 {
        self.data + self.parity
    }

    /// Real and virtual nodes.
    pub(crate) fn nodes(&self) -> u16 {
        self.q * self.t
    }

    /// Data nodes of the scalar code: real and virtual.
    pub(crate) fn scalar_data(&self) -> u16 {
        self.data + self.virtuals
    }

    /// All planes in order.
    pub(crate) fn planes(&self) -> std::ops::Range<u16> {
        0..u16::try_from(self.alpha).expect("alpha is at most ALPHA_MAX")
    }

    /// The node of a chunk.
    pub(crate) fn node(&self, chunk: ChunkIndex) -> u16 {
        if chunk.0 < self.data { chunk.0 } else { chunk.0 + self.virtuals }
    }

    /// The section of a node, its y.
    pub(crate) fn section(&self, node: u16) -> u16 {
        node / self.q
    }

    /// The digit of a plane for a section.
    pub(crate) fn digit(&self, plane: u16, section: u16) -> u16 {
        plane / self.weight(section) % self.q
    }

    /// The vertex coupled with a node's in a plane: the dot of the node's section, in the plane where the node is the
    /// dot. A dot is its own companion.
    pub(crate) fn companion(&self, node: u16, plane: u16) -> (u16, u16) {
        let section = self.section(node);
        let digit = self.digit(plane, section);
        let weight = self.weight(section);
        (section * self.q + digit, plane - digit * weight + node % self.q * weight)
    }

    /// How far apart planes are that differ by one in a section's digit.
    fn weight(&self, section: u16) -> u16 {
        self.q.pow(u32::from(self.t - 1 - section))
    }
}
