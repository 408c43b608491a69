//! What a `FleetUsage` admits, in memory and in Redis: the tests of both go through this table.

/// Capacity, reserve, what is asked in this order, and what is admitted: `c` is critical, `s` sheddable, and `-` refused.
pub(crate) const CASES: [(u32, u32, &str, &str); 12] = [
    // Sheddable requests get the capacity without the reserve.
    (5, 2, "sssss", "sss--"),
    // Critical requests may use the reserve, and are counted.
    (5, 2, "ssscc", "ssscc"),
    (5, 2, "cccss", "cccss"),
    (5, 2, "ccccss", "ccccs-"),
    (5, 2, "cscscss", "cscsc--"),
    // Critical requests pass beyond the capacity too; then nothing else passes.
    (5, 2, "cccccccs", "ccccccc-"),
    (5, 2, "sssccccs", "ssscccc-"),
    // Without a reserve only the capacity counts.
    (3, 0, "ssss", "sss-"),
    (3, 0, "ccss", "ccs-"),
    // The largest possible reserve.
    (3, 2, "ssc", "s-c"),
    (1, 0, "sc", "sc"),
    (1, 0, "cs", "c-"),
];
