//! What of a text is code.

/// The lines of code with their numbers, up to the tests, without comments and without what is in quotes.
pub(super) fn code_lines(text: &str) -> Vec<(usize, String)> {
    let code = blanked(text);
    let lines: Vec<&str> = code.lines().collect();
    let tests = lines
        .windows(2)
        .position(|two| two[0].trim() == "#[cfg(test)]" && two[1].trim_start().starts_with("mod "));
    let code = &lines[..tests.unwrap_or(lines.len())];
    (1..)
        .zip(code.iter().map(|&line| line.to_owned()))
        .collect()
}

/// The text with every comment and every string and character literal blanked, line by line.
fn blanked(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (blank, taken) = if rest.starts_with("//") {
            (true, rest.find('\n').unwrap_or(rest.len()))
        } else if rest.starts_with("/*") {
            (true, block_comment(rest))
        } else if first == '"' {
            (true, string(rest))
        } else if let Some(hashes) = raw_string(rest).filter(|_| !code.ends_with(is_of_word)) {
            let end = format!("\"{}", "#".repeat(hashes));
            let start = 1 + hashes + 1;
            (
                true,
                rest[start..]
                    .find(&end)
                    .map_or(rest.len(), |at| start + at + end.len()),
            )
        } else if first == '\'' {
            (true, character(rest))
        } else {
            (false, first.len_utf8())
        };
        let (piece, after) = rest.split_at(taken);
        if blank {
            code.extend(piece.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        } else {
            code.push_str(piece);
        }
        rest = after;
    }
    code
}

/// How long the block comment is that `text` begins with; they nest.
fn block_comment(text: &str) -> usize {
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(next) = text[at..].chars().next() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += next.len_utf8();
        }
    }
    at
}

/// How long the string literal is that `text` begins with.
fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// How many hashes the raw string has that `text` begins with.
fn raw_string(text: &str) -> Option<usize> {
    let hashes = text.strip_prefix('r')?;
    let quote = hashes.trim_start_matches('#');
    quote.starts_with('"').then(|| hashes.len() - quote.len())
}

/// How long the character literal is that `text` begins with; 1 for the mark of a lifetime.
fn character(text: &str) -> usize {
    if text.starts_with("'\\") {
        return text[3..].find('\'').map_or(1, |at| 3 + at + 1);
    }
    match text.char_indices().nth(2) {
        Some((at, '\'')) => at + 1,
        _ => 1,
    }
}

pub(super) fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
