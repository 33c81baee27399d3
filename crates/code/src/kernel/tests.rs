//! Every tier against the scalar one.
