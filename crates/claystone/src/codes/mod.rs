//! What codes cost: figures that follow from their plans, and their speed on this machine.

pub mod figures;
pub mod plot;
