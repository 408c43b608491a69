/// ⌊a · b / c⌋ and what remains; both zero if `c` is. `a` or `b` is at most `c`, and `c` less than 2¹²⁷.
pub(super) fn mul_div(a: u128, b: u128, c: u128) -> (u128, u128) {
    if c == 0 {
        return (0, 0);
    }
    if let Some(product) = a.checked_mul(b) {
        return div_rem(product, c);
    }
    // Long division, a bit at a time. What is above the bits of `low` is less than `c`.
    let (high, low) = product(a, b);
    let (mut quotient, mut rest) = (0, high);
    for bit in (0..u128::BITS).rev() {
        rest = (rest << 1) | ((low >> bit) & 1);
        quotient <<= 1;
        if rest >= c {
            rest -= c;
            quotient |= 1;
        }
    }
    (quotient, rest)
}

/// The quotient and what remains, with one division.
pub(super) fn div_rem(a: u128, b: u128) -> (u128, u128) {
    let quotient = match (u64::try_from(a), u64::try_from(b)) {
        (Ok(a), Ok(b)) => u128::from(a / b),
        _ => a / b,
    };
    (quotient, a - quotient * b)
}

/// The quotient, rounded down; `b` is above 0.
pub(super) fn div_floor(a: i128, b: i128) -> i128 {
    match (u64::try_from(a), u64::try_from(b)) {
        (Ok(a), Ok(b)) => i128::from(a / b),
        _ => a.div_euclid(b),
    }
}

/// The quotient, rounded up; `b` is above 0.
pub(super) fn div_ceil(a: i128, b: i128) -> i128 {
    div_floor(a + b - 1, b)
}

/// The upper and the lower 128 bits of a product.
pub(super) fn product(a: u128, b: u128) -> (u128, u128) {
    if let Some(product) = a.checked_mul(b) {
        return (0, product);
    }
    let halves = |x: u128| (x >> 64, x & u128::from(u64::MAX));
    let ((a1, a0), (b1, b0)) = (halves(a), halves(b));
    let (middle, carried) = (a1 * b0).overflowing_add(a0 * b1);
    let (low, overflows) = (a0 * b0).overflowing_add(middle << 64);
    let high = a1 * b1 + (middle >> 64) + (u128::from(carried) << 64) + u128::from(overflows);
    (high, low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_of_256_bits_divides_exactly() {
        assert_eq!(mul_div(7, 5, 0), (0, 0));
        assert_eq!(mul_div(7, 5, 8), (4, 3));
        assert_eq!(product(u128::MAX, u128::MAX), (u128::MAX - 1, 1));
        let c = (1 << 126) + 12_345;
        assert_eq!(mul_div(c, u128::MAX, c), (u128::MAX, 0));
        assert_eq!(mul_div(c - 1, c, c), (c - 1, 0));
        assert_eq!(mul_div(c - 1, c - 1, c), (c - 2, 1));
    }

    #[test]
    fn quotient_times_divisor_plus_rest_is_the_product() {
        let mut random = 1_u128;
        let mut next = |bits: u32| {
            random = random
                .wrapping_mul(0x5851_f42d_4c95_7f2d_1405_7b7e_f767_814f)
                .wrapping_add(9);
            (random ^ (random >> 61)) >> (128 - bits)
        };
        for round in 0..20_000_u32 {
            let c = next(127 - round % 100).max(1);
            let (a, b) = (next(127 - round % 90) % c, next(128 - round % 80));
            let (quotient, rest) = mul_div(a, b, c);
            let (high, low) = product(quotient, c);
            let (low, overflows) = low.overflowing_add(rest);
            assert!(rest < c);
            assert_eq!(
                (high + u128::from(overflows), low),
                product(a, b),
                "{a} {b} {c}"
            );
        }
    }
}
