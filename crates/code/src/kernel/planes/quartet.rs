//! Adds a section of four nodes to the sums of four unknown nodes in four planes, in registers of our choosing.
//!
//! Sixteen sums, eight U and what makes them take nearly all registers there are. Of the same in intrinsics the compiler puts some into
//! memory and back, others after each change, which takes up to a half longer.
//!
//! | registers | hold |
//! |---|---|
//! | 0 to 15 | the sums, of each unknown node those of four planes |
//! | 16 to 19, 20 to 23 | U of two nodes in four planes |
//! | 24 to 29 | products and matrices |
//! | 31 | the matrix of the coupling |
//!
//! Invariants:
//! 1. Equal to `Nodes::add` of `groups`, for whole vectors (tested with what encodes: short vectors go there).
//! 2. What waited is read before anything is put in its place: nodes come in order.

use std::arch::{asm, x86_64::__m512i};

use super::{super::coupled::Place, groups::place};

/// A section of four nodes in the planes of a group.
pub(super) struct Quartet {
    /// Where each node's chunk starts.
    pub(super) chunks: [*const u8; 4],
    /// Which bits of an offset into each chunk count.
    pub(super) offsets: [usize; 4],
    /// Where the group starts, and the vector in its sub-chunks.
    pub(super) start: usize,
    pub(super) place: Place,
    /// Bytes between planes that differ by one in the section's digit.
    pub(super) weight: usize,
    /// What waits, in whole lines.
    pub(super) waiting: *mut u8,
    /// Of each node in turn, the product matrix for each unknown node.
    pub(super) products: *const u64,
    /// That of the coupling.
    pub(super) factor: __m512i,
}

/// What lies at `from` in each plane, into four registers.
macro_rules! load {
    ($from:literal: $a:literal $b:literal $c:literal $d:literal) => {
        concat!(
            concat!("vmovdqu64 zmm", $a, ", [{", $from, "}]\n"),
            concat!("vmovdqu64 zmm", $b, ", [{", $from, "} + {stride}]\n"),
            concat!("vmovdqu64 zmm", $c, ", [{", $from, "} + 2 * {stride}]\n"),
            concat!("vmovdqu64 zmm", $d, ", [{", $from, "} + {strides}]\n"),
        )
    };
}

/// What waited at `place`, into four registers.
macro_rules! take {
    ($place:literal: $a:literal $b:literal $c:literal $d:literal) => {
        concat!(
            concat!("vmovdqa64 zmm", $a, ", [{waiting} + {", $place, "}]\n"),
            concat!("vmovdqa64 zmm", $b, ", [{waiting} + {", $place, "} + 64]\n"),
            concat!("vmovdqa64 zmm", $c, ", [{waiting} + {", $place, "} + 128]\n"),
            concat!("vmovdqa64 zmm", $d, ", [{waiting} + {", $place, "} + 192]\n"),
        )
    };
}

/// The register's C becomes U, and that of its companion, at `far`, waits.
macro_rules! uncouple {
    ($near:literal, $far:expr, $wait:expr; $other:literal $product:literal $by_other:literal) => {
        concat!(
            concat!("vmovdqu64 zmm", $other, ", [", $far, "]\n"),
            concat!("vgf2p8affineqb zmm", $by_other, ", zmm", $other, ", zmm31, 0\n"),
            concat!("vgf2p8affineqb zmm", $product, ", zmm", $near, ", zmm31, 0\n"),
            concat!("vpxorq zmm", $near, ", zmm", $near, ", zmm", $by_other, "\n"),
            concat!("vpxorq zmm", $other, ", zmm", $other, ", zmm", $product, "\n"),
            concat!("vmovdqa64 [", $wait, "], zmm", $other, "\n"),
        )
    };
}

/// U of a pair in each plane, into four registers; U of the companion waits at `place`.
macro_rules! part {
    ($near:literal $far:literal $place:literal: $a:literal $b:literal $c:literal $d:literal) => {
        concat!(
            load!($near: $a $b $c $d),
            uncouple!($a, concat!("{", $far, "}"), concat!("{waiting} + {", $place, "}"); 24 25 26),
            uncouple!($b, concat!("{", $far, "} + {stride}"), concat!("{waiting} + {", $place, "} + 64"); 27 28 29),
            uncouple!($c, concat!("{", $far, "} + 2 * {stride}"), concat!("{waiting} + {", $place, "} + 128"); 24 25 26),
            uncouple!($d, concat!("{", $far, "} + {strides}"), concat!("{waiting} + {", $place, "} + 192"); 27 28 29),
        )
    };
}

/// Products of two U by the matrices in registers 24 and 25, to a sum.
macro_rules! product {
    ($sum:literal, $a:literal $b:literal, $t:literal $u:literal) => {
        concat!(
            concat!("vgf2p8affineqb zmm", $t, ", zmm", $a, ", zmm24, 0\n"),
            concat!("vgf2p8affineqb zmm", $u, ", zmm", $b, ", zmm25, 0\n"),
            concat!("vpternlogq zmm", $sum, ", zmm", $t, ", zmm", $u, ", 0x96\n"),
        )
    };
}

/// Products of the U of two nodes, in registers 16 to 23, to the four sums of an unknown node.
macro_rules! products {
    ($by_a:literal $by_b:literal: $a:literal $b:literal $c:literal $d:literal) => {
        concat!(
            concat!("vpbroadcastq zmm24, [{products} + ", $by_a, "]\n"),
            concat!("vpbroadcastq zmm25, [{products} + ", $by_b, "]\n"),
            product!($a, 16 20, 26 27),
            product!($b, 17 21, 28 29),
            product!($c, 18 22, 26 27),
            product!($d, 19 23, 28 29),
        )
    };
}

/// The U of two nodes, in registers 16 to 23, to the first sums, by 1.
macro_rules! plain {
    () => {
        concat!(
            "vpternlogq zmm0, zmm16, zmm20, 0x96\n",
            "vpternlogq zmm1, zmm17, zmm21, 0x96\n",
            "vpternlogq zmm2, zmm18, zmm22, 0x96\n",
            "vpternlogq zmm3, zmm19, zmm23, 0x96\n",
        )
    };
}

/// The U of nodes 0 and 1, in registers 16 to 23, to the sums of all unknown nodes but the first.
macro_rules! first_but_one {
    () => {
        concat!(products!(8 40: 4 5 6 7), products!(16 48: 8 9 10 11), products!(24 56: 12 13 14 15))
    };
}

/// The U of nodes 2 and 3 to the same.
macro_rules! last_but_one {
    () => {
        concat!(products!(72 104: 4 5 6 7), products!(80 112: 8 9 10 11), products!(88 120: 12 13 14 15))
    };
}

/// The U of nodes 0 and 1 to all sums, to the first ones by 1.
macro_rules! first {
    () => {
        concat!(plain!(), first_but_one!())
    };
}

/// The U of nodes 2 and 3 to all sums, to the first ones by 1.
macro_rules! last {
    () => {
        concat!(plain!(), last_but_one!())
    };
}

/// The U of nodes 0 and 1 to all sums, whatever the products.
macro_rules! general_first {
    () => {
        concat!(products!(0 32: 0 1 2 3), first_but_one!())
    };
}

/// The U of nodes 2 and 3 to all sums, whatever the products.
macro_rules! general_last {
    () => {
        concat!(products!(64 96: 0 1 2 3), last_but_one!())
    };
}

/// The register's C becomes U, where its companion is read at `far`.
macro_rules! couple {
    ($near:literal, $far:expr; $other:literal) => {
        concat!(
            concat!("vmovdqu64 zmm", $other, ", [", $far, "]\n"),
            concat!("vgf2p8affineqb zmm", $other, ", zmm", $other, ", zmm31, 0\n"),
            concat!("vpxorq zmm", $near, ", zmm", $near, ", zmm", $other, "\n"),
        )
    };
}

/// The text with its operands: nodes, companions, and places of what waits.
macro_rules! run {
    (
        $self:ident, $sums:ident, [$($text:expr),*],
        $digit:literal, near $($near:ident $x:literal)*, far $($far:ident $y:literal)*, at $($place:ident $z:literal)*
    ) => {
        asm!(
            $($text,)*
            $($near = in(reg) $self.near($x),)*
            $($far = in(reg) $self.far($y, $digit),)*
            $($place = const place($z, $digit) * PLACE_BYTES,)*
            waiting = in(reg) $self.waiting,
            products = in(reg) $self.products,
            stride = in(reg) $self.place.stride,
            strides = in(reg) 3 * $self.place.stride,
            inout("zmm0") $sums[0][0], inout("zmm1") $sums[0][1], inout("zmm2") $sums[0][2], inout("zmm3") $sums[0][3],
            inout("zmm4") $sums[1][0], inout("zmm5") $sums[1][1], inout("zmm6") $sums[1][2], inout("zmm7") $sums[1][3],
            inout("zmm8") $sums[2][0], inout("zmm9") $sums[2][1], inout("zmm10") $sums[2][2], inout("zmm11") $sums[2][3],
            inout("zmm12") $sums[3][0], inout("zmm13") $sums[3][1], inout("zmm14") $sums[3][2], inout("zmm15") $sums[3][3],
            out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _, out("zmm20") _, out("zmm21") _,
            out("zmm22") _, out("zmm23") _, out("zmm24") _, out("zmm25") _, out("zmm26") _, out("zmm27") _,
            out("zmm28") _, out("zmm29") _, in("zmm31") $self.factor,
            options(nostack, preserves_flags),
        )
    };
}

/// What [`Quartet::add`] does at each digit.
macro_rules! at_digit {
    ($self:ident, $digit:ident, $sums:ident, $first:ident, $last:ident) => {
        match $digit {
            0 => run!(
                $self, $sums,
                [
                    load!("n0": 16 17 18 19), part!("n1" "f1" "p1": 20 21 22 23), $first!(),
                    part!("n2" "f2" "p2": 16 17 18 19), part!("n3" "f3" "p3": 20 21 22 23), $last!()
                ],
                0, near n0 0 n1 1 n2 2 n3 3, far f1 1 f2 2 f3 3, at p1 1 p2 2 p3 3
            ),
            1 => run!(
                $self, $sums,
                [
                    take!("p0": 16 17 18 19), load!("n1": 20 21 22 23), $first!(),
                    part!("n2" "f2" "p2": 16 17 18 19), part!("n3" "f3" "p3": 20 21 22 23), $last!()
                ],
                1, near n1 1 n2 2 n3 3, far f2 2 f3 3, at p0 0 p2 2 p3 3
            ),
            2 => run!(
                $self, $sums,
                [
                    take!("p0": 16 17 18 19), take!("p1": 20 21 22 23), $first!(),
                    load!("n2": 16 17 18 19), part!("n3" "f3" "p3": 20 21 22 23), $last!()
                ],
                2, near n2 2 n3 3, far f3 3, at p0 0 p1 1 p3 3
            ),
            _ => run!(
                $self, $sums,
                [
                    take!("p0": 16 17 18 19), take!("p1": 20 21 22 23), $first!(),
                    take!("p2": 16 17 18 19), load!("n3": 20 21 22 23), $last!()
                ],
                3, near n3 3, far, at p0 0 p1 1 p2 2
            ),
        }
    };
}

impl Quartet {
    /// Adds the products of the nodes' U, of a section with this digit. If PLAIN, those of the first sums are by 1.
    ///
    /// # Safety
    /// AVX-512 F and BW and GFNI are there; nodes from the digit's on, and companions of those behind it, are good for a vector in
    /// four planes, and what waits for writing.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    pub(super) unsafe fn add<const PLAIN: bool>(&self, digit: usize, sums: &mut [[__m512i; 4]; 4]) {
        // SAFETY: the caller's.
        unsafe {
            if PLAIN {
                at_digit!(self, digit, sums, first, last);
            } else {
                at_digit!(self, digit, sums, general_first, general_last);
            }
        }
    }

    /// The same for the section whose digits the group's planes have: all companions are in the group.
    ///
    /// # Safety
    /// AVX-512 F and BW and GFNI are there, and nodes are good for a vector in four planes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    pub(super) unsafe fn add_inner(&self, sums: &mut [[__m512i; 4]; 4]) {
        // SAFETY: the caller's.
        unsafe {
            run!(
                self, sums,
                [
                    // Nothing waits, but each operand must be named.
                    "/* {waiting} */",
                    load!("n0": 16 17 18 19),
                    couple!(17, "{n1}"; 24), couple!(18, "{n2}"; 25), couple!(19, "{n3}"; 26),
                    load!("n1": 20 21 22 23),
                    couple!(20, "{n0} + {stride}"; 27), couple!(22, "{n2} + {stride}"; 28), couple!(23, "{n3} + {stride}"; 29),
                    general_first!(),
                    load!("n2": 16 17 18 19),
                    couple!(16, "{n0} + 2 * {stride}"; 24), couple!(17, "{n1} + 2 * {stride}"; 25),
                    couple!(19, "{n3} + 2 * {stride}"; 26),
                    load!("n3": 20 21 22 23),
                    couple!(20, "{n0} + {strides}"; 27), couple!(21, "{n1} + {strides}"; 28),
                    couple!(22, "{n2} + {strides}"; 29),
                    general_last!()
                ],
                0, near n0 0 n1 1 n2 2 n3 3, far, at
            );
        }
    }

    /// Where the node is read in the first plane.
    #[inline]
    fn near(&self, node: usize) -> *const u8 {
        self.chunk(node, self.start)
    }

    /// Where the node's companion is read in the first plane.
    #[inline]
    fn far(&self, node: usize, digit: usize) -> *const u8 {
        self.chunk(digit, self.start + (node - digit) * self.weight)
    }

    #[inline]
    fn chunk(&self, node: usize, start: usize) -> *const u8 {
        self.chunks[node].wrapping_add((start & self.offsets[node]) + self.place.at)
    }
}

/// What waits for one vector of a group in one place: four planes.
const PLACE_BYTES: usize = 4 * 64;
