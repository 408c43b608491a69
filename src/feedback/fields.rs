//! Lists of items with parameters, as structured fields (RFC 9651) write them. What is not one is read as far as it goes.

/// One member: `"burst";q=100;w=60`, `100;w=60` or `limit=100`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Member<'a> {
    /// The text before the parameters.
    pub(super) item: &'a str,
    params: &'a str,
}

impl<'a> Member<'a> {
    /// The item without its quotes, if it has any.
    pub(super) fn name(&self) -> &'a str {
        unquoted(self.item)
    }

    /// Whether the item is a string, whatever is in it.
    pub(super) fn is_quoted(&self) -> bool {
        self.item.starts_with('"')
    }

    /// The parameters, in order.
    pub(super) fn params(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        split(self.params, ';').filter_map(|param| {
            let (key, value) = param.split_once('=')?;
            Some((key.trim(), unquoted(value.trim())))
        })
    }
}

/// The members of a list, without the empty ones.
pub(super) fn members(text: &str) -> impl Iterator<Item = Member<'_>> {
    split(text, ',')
        .map(|member| {
            let (item, params) = cut(member, ';');
            Member {
                item: item.trim(),
                params,
            }
        })
        .filter(|member| !member.item.is_empty())
}

fn split(text: &str, mark: char) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    core::iter::from_fn(move || {
        let (piece, after) = cut(rest?, mark);
        rest = (!after.is_empty()).then_some(after);
        Some(piece)
    })
}

/// What is before the first mark outside of quotes, and what is after it.
fn cut(text: &str, mark: char) -> (&str, &str) {
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if c == mark && !quoted => return (&text[..at], &text[at + mark.len_utf8()..]),
            _ => {}
        }
    }
    (text, "")
}

fn unquoted(text: &str) -> &str {
    text.strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(&str, Vec<(&str, &str)>)> {
        members(text)
            .map(|member| (member.name(), member.params().collect()))
            .collect()
    }

    #[test]
    fn members_have_names_and_parameters() {
        assert_eq!(
            read(r#""burst";q=100;w=60, "daily" ; q=1000 ; w=86400;pk=:dHMxMjM=:"#),
            [
                ("burst", vec![("q", "100"), ("w", "60")]),
                (
                    "daily",
                    vec![("q", "1000"), ("w", "86400"), ("pk", ":dHMxMjM=:")]
                ),
            ]
        );
        assert_eq!(
            read("100, 10;w=1,1000;w=3600;burst"),
            [
                ("100", vec![]),
                ("10", vec![("w", "1")]),
                ("1000", vec![("w", "3600")]),
            ]
        );
        assert_eq!(
            read("limit=100, reset=50"),
            [("limit=100", vec![]), ("reset=50", vec![])]
        );
    }

    #[test]
    fn marks_in_quotes_are_text() {
        assert_eq!(
            read(r#""a,b;c\",";q=1;qu="x;,y", "d";q=2"#),
            [
                (r#"a,b;c\","#, vec![("q", "1"), ("qu", "x;,y")]),
                ("d", vec![("q", "2")]),
            ]
        );
    }

    #[test]
    fn broken_lists_are_read_as_far_as_they_go() {
        assert_eq!(read(" ,, ;q=1,\t,"), []);
        assert_eq!(read(r#""open;q=1, "#), [(r#""open;q=1,"#, vec![])]);
        assert_eq!(read("ß;ü=é;=;;"), [("ß", vec![("ü", "é"), ("", "")])]);
        assert_eq!(read(r#"""#), [(r#"""#, vec![])]);
    }
}
