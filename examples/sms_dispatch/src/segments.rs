//! The number of segments of a text, by GSM 03.38 and 03.40. The sender pays for each.

/// The basic alphabet, seven bits a character.
const BASIC: &str = "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?\
                     ¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà";
/// Characters after an escape, which take two septets each.
const EXTENDED: &str = "\u{c}^{}\\[~]|€";

/// The size of a segment: of a single one, and of one with the header that joins it to others.
struct Cut {
    alone: usize,
    joined: usize,
}

const GSM: Cut = Cut {
    alone: 160,
    joined: 153,
};
const UCS2: Cut = Cut {
    alone: 70,
    joined: 67,
};

/// The number of segments of `text`. An empty text takes one.
pub(crate) fn segments(text: &str) -> u32 {
    match text.chars().map(septets).collect::<Option<Vec<_>>>() {
        Some(sizes) => GSM.count(&sizes),
        None => UCS2.count(&text.chars().map(char::len_utf16).collect::<Vec<_>>()),
    }
}

impl Cut {
    /// Fills one segment after the other, and never splits an escape or a surrogate pair.
    fn count(&self, sizes: &[usize]) -> u32 {
        if sizes.iter().sum::<usize>() <= self.alone {
            return 1;
        }
        let (mut segments, mut filled) = (1, 0);
        for size in sizes {
            if filled + size > self.joined {
                segments += 1;
                filled = 0;
            }
            filled += size;
        }
        segments
    }
}

/// The septets of a character, if GSM 03.38 has it.
fn septets(character: char) -> Option<usize> {
    if BASIC.contains(character) {
        Some(1)
    } else if EXTENDED.contains(character) {
        Some(2)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{BASIC, segments};

    #[test]
    fn the_basic_alphabet_has_its_127_characters() {
        // The 128th code is the escape.
        assert_eq!(BASIC.chars().count(), 127);
    }

    #[test]
    fn a_gsm_segment_has_160_characters_alone_and_153_joined() {
        assert_eq!(segments(""), 1);
        assert_eq!(segments(&"a".repeat(160)), 1);
        assert_eq!(segments(&"a".repeat(161)), 2);
        assert_eq!(segments(&"ä".repeat(306)), 2);
        assert_eq!(segments(&"ä".repeat(307)), 3);
    }

    #[test]
    fn an_extension_character_counts_two_and_is_never_cut() {
        assert_eq!(segments(&"€".repeat(80)), 1);
        assert_eq!(segments(&"€".repeat(81)), 2);
        // 152 septets and no space for an escape in the 153rd, so 76 characters a segment.
        assert_eq!(segments(&"€".repeat(152)), 2);
        assert_eq!(segments(&"€".repeat(153)), 3);
    }

    #[test]
    fn anything_else_makes_it_ucs2() {
        assert_eq!(segments(&"я".repeat(70)), 1);
        assert_eq!(segments(&"я".repeat(71)), 2);
        assert_eq!(segments(&"я".repeat(135)), 3);
        assert_eq!(segments(&format!("{}я", "a".repeat(70))), 2);
    }

    #[test]
    fn a_surrogate_pair_counts_two_and_is_never_cut() {
        assert_eq!(segments(&"🚚".repeat(35)), 1);
        // 33 pairs a segment take 66 units, not 67.
        assert_eq!(segments(&"🚚".repeat(66)), 2);
        assert_eq!(segments(&"🚚".repeat(67)), 3);
    }
}
