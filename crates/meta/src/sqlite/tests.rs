//! Tests of the SQLite implementation.
