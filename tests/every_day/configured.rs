//! Limits that are chosen while the program runs.
