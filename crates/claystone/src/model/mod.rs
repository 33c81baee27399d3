//! The papers' arithmetic as tables and plots for a person.

pub mod lec;
