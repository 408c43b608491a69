//! Limits that pass together or not at all.
