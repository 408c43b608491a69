//! Costs that are known afterwards.
