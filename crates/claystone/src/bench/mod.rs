//! `claystone bench`: measures this program, beside others where they are at hand.

pub mod codes;
pub mod lec;
pub mod load;
pub mod mount;
pub mod noise;
pub mod s3;
pub mod server;
