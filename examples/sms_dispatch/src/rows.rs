//! CSV: the messages that are read, and the messages that are written because they were not sent.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use paceline::time::Clock;

use crate::{
    message::{Message, check_number, shortened},
    provider::Name,
};

const COLUMNS: [&str; 4] = ["id", "provider", "to", "text"];
/// Two thousand messages and ten rows that are none.
const SHIPPED: &[u8] = include_bytes!("../messages.csv");

/// The content of the input.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) messages: Vec<Message>,
    pub(crate) bad: Vec<BadRow>,
}

/// A row that is not a message, and the reason.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct BadRow {
    pub(crate) line: u64,
    pub(crate) reason: String,
}

/// The bytes of a path, of standard input (`-`), or of the file that comes with the example.
pub(crate) fn load(path: Option<&Path>) -> Result<Vec<u8>, String> {
    let Some(path) = path else {
        return Ok(SHIPPED.into());
    };
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        let read = io::stdin().read_to_end(&mut bytes);
        return read
            .map(|_| bytes)
            .map_err(|error| format!("standard input: {error}"));
    }
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

impl Rows {
    /// Reads the whole input. Of each provider's messages it takes at most `limit` and ignores the others.
    pub(crate) fn parse(bytes: &[u8], limit: usize, clock: &mut Clock) -> Result<Self, String> {
        let mut reader = Reader::new(bytes);
        match reader.next() {
            None => return Err("the input is empty".into()),
            Some((line, Err(reason))) => return Err(format!("line {line}: {reason}")),
            Some((_, Ok(header))) => check_header(&header)?,
        }
        let mut rows = Self::default();
        let mut seen = HashMap::new();
        let mut taken = HashMap::new();
        for (line, columns) in reader {
            let checked = columns
                .and_then(|columns| Message::check(texts(&columns)?, clock.now()))
                .and_then(|message| match seen.get(&message.id) {
                    Some(first) => Err(format!("the id {:?} is taken by line {first}", message.id)),
                    None => Ok(message),
                });
            match checked {
                Ok(message) => {
                    seen.insert(message.id.clone(), line);
                    let taken: &mut usize = taken.entry(message.provider).or_default();
                    *taken += 1;
                    if *taken <= limit {
                        rows.messages.push(message);
                    }
                }
                Err(reason) => rows.bad.push(BadRow { line, reason }),
            }
        }
        if rows.messages.is_empty() && rows.bad.is_empty() {
            return Err("there is a header and not one row".into());
        }
        Ok(rows)
    }

    pub(crate) fn len(&self) -> usize {
        self.messages.len() + self.bad.len()
    }

    /// The messages of one provider, in their order.
    pub(crate) fn of(&self, provider: Name) -> Vec<Message> {
        let its = self
            .messages
            .iter()
            .filter(|message| message.provider == provider);
        its.cloned().collect()
    }
}

/// Writes messages in a form that can be read again, and returns the name of the file. An existing file holds the messages of
/// an earlier run, so the function never overwrites it and takes the next free name.
pub(crate) fn save(path: &Path, messages: &[Message]) -> io::Result<PathBuf> {
    let mut free = path.to_path_buf();
    for number in 2.. {
        match File::create_new(&free) {
            Ok(file) => {
                write(file, messages)?;
                break;
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let stem = path.file_stem().unwrap_or_default().to_string_lossy();
                free.set_file_name(format!("{stem}-{number}"));
                if let Some(extension) = path.extension() {
                    free.as_mut_os_string().push(".");
                    free.as_mut_os_string().push(extension);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(free)
}

pub(crate) fn write(out: impl Write, messages: &[Message]) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(COLUMNS)?;
    for message in messages {
        writer.write_record(message.columns())?;
    }
    writer.flush()
}

fn check_header(header: &[Vec<u8>]) -> Result<(), String> {
    if header.iter().ne(COLUMNS.map(str::as_bytes)) {
        let found: Vec<_> = header
            .iter()
            .map(|name| String::from_utf8_lossy(name))
            .collect();
        let (found, wanted) = (shortened(&found.join(",")), COLUMNS.join(","));
        return Err(format!("the header is {found} where {wanted:?} is needed"));
    }
    Ok(())
}

fn texts(columns: &[Vec<u8>]) -> Result<[&str; 4], String> {
    if columns.len() != COLUMNS.len() {
        return Err(format!(
            "{} columns where {} are needed",
            columns.len(),
            COLUMNS.len()
        ));
    }
    let mut texts = [""; 4];
    for (index, name) in COLUMNS.iter().enumerate() {
        texts[index] = core::str::from_utf8(&columns[index])
            .map_err(|_| format!("the {name} is not UTF-8"))?;
    }
    Ok(texts)
}

/// The rows of a CSV file (RFC 4180), each with the line on which it begins. It skips empty lines.
///
/// It is stricter with quotes than most readers. A stray quote opens a column that other readers end at the next quote or at
/// the end of the file, and the rows in between are lost without a report. Here it makes one bad row, and the next row begins
/// on the next line.
struct Reader<'a> {
    rest: &'a [u8],
    line: u64,
}

type Columns = Vec<Vec<u8>>;

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes),
            line: 1,
        }
    }

    fn skip(&mut self, bytes: usize) {
        let (skipped, rest) = self.rest.split_at(bytes);
        self.line += skipped
            .iter()
            .map(|&byte| u64::from(byte == b'\n'))
            .sum::<u64>();
        self.rest = rest;
    }
}

impl Iterator for Reader<'_> {
    type Item = (u64, Result<Columns, String>);

    fn next(&mut self) -> Option<Self::Item> {
        let is_text = |byte: &u8| !b"\r\n".contains(byte);
        self.skip(self.rest.iter().position(is_text)?);
        let line = self.line;
        let row = columns(self.rest).and_then(|(columns, length)| {
            match row_inside(&self.rest[..length]) {
                None => Ok((columns, length)),
                Some(lines) => Err(format!(
                    "a quote is opened and closed only after line {}, which is a row of its own",
                    line + lines
                )),
            }
        });
        let (columns, length) = match row {
            Ok((columns, length)) => (Ok(columns), length),
            Err(reason) => (Err(reason), line_length(self.rest)),
        };
        self.skip(length);
        Some((line, columns))
    }
}

/// The columns of the first row of `text`, and its length.
fn columns(text: &[u8]) -> Result<(Columns, usize), String> {
    let mut columns = Columns::new();
    let mut at = 0;
    loop {
        let mut column = Vec::new();
        if text.get(at) == Some(&b'"') {
            loop {
                at += 1;
                let quote = text[at..].iter().position(|&byte| byte == b'"');
                let end = at + quote.ok_or(NOT_CLOSED)?;
                column.extend(&text[at..end]);
                at = end + 1;
                if text.get(at) != Some(&b'"') {
                    break;
                }
                column.push(b'"');
            }
            if !matches!(text.get(at), None | Some(b',' | b'\r' | b'\n')) {
                return Err(NOT_CLOSED.into());
            }
        } else {
            let end = text[at..].iter().position(|byte| b",\r\n".contains(byte));
            let end = end.map_or(text.len(), |length| at + length);
            column.extend(&text[at..end]);
            at = end;
        }
        columns.push(column);
        if text.get(at) != Some(&b',') {
            return Ok((columns, at));
        }
        at += 1;
    }
}

const NOT_CLOSED: &str = "a quote is opened and not closed where its column ends";

/// How many lines after the first one of `row` a line follows that is a row by itself: a known provider and a number stand
/// where they should.
fn row_inside(row: &[u8]) -> Option<u64> {
    let is_row = |line: &[u8]| {
        let Ok((columns, _)) = columns(line) else {
            return false;
        };
        texts(&columns).is_ok_and(|[_, provider, to, _]| {
            Name::parse(provider).is_some() && check_number(to).is_ok()
        })
    };
    let lines = row.split(|&byte| byte == b'\n');
    (0..)
        .zip(lines)
        .skip(1)
        .find(|(_, line)| is_row(line))
        .map(|(number, _)| number)
}

fn line_length(text: &[u8]) -> usize {
    let end = text.iter().position(|byte| b"\r\n".contains(byte));
    end.unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::{BadRow, Clock, Name, Rows, SHIPPED, write};

    fn parse(input: &str) -> Result<Rows, String> {
        Rows::parse(input.as_bytes(), usize::MAX, &mut Clock::new())
    }

    fn bad(line: u64, reason: &str) -> BadRow {
        BadRow {
            line,
            reason: reason.into(),
        }
    }

    #[test]
    fn a_bad_row_is_reported_with_its_line_and_the_others_are_taken() {
        for end in ["\n", "\r\n"] {
            let rows = [
                "id,provider,to,text",
                "a,solo,+1234567,\"one",
                "two\"",
                "",
                "b,solo",
                "c,solo,+1234567,three",
                "a,bulk,+1234567,again",
            ];
            let rows = parse(&rows.join(end)).unwrap();

            assert_eq!(rows.messages.len(), 2);
            assert_eq!(
                rows.bad,
                [
                    bad(5, "2 columns where 4 are needed"),
                    bad(7, "the id \"a\" is taken by line 2"),
                ]
            );
        }
    }

    #[test]
    fn a_stray_quote_is_one_bad_row() {
        let not_closed = "a quote is opened and not closed where its column ends";
        let around_a_row =
            "a quote is opened and closed only after line 3, which is a row of its own";
        for (stray, next, reason) in [
            ("\"one", "two", not_closed),
            ("\"one", "\"two\"", not_closed),
            ("\"one", "\"two", not_closed),
            ("\"one", "say \"two\"", not_closed),
            ("\"one\" and", "two", not_closed),
            ("\"one", "two\"", around_a_row),
        ] {
            for end in ["\n", "\r\n"] {
                let rows = [
                    "id,provider,to,text".into(),
                    format!("a,solo,+1234567,{stray}"),
                    format!("b,solo,+1234567,{next}"),
                    "c,solo,+1234567,\"three\nlines\nlong\"".into(),
                    "d,solo,+1234567,four".into(),
                ];
                let rows = parse(&rows.join(end)).unwrap();

                assert_eq!(rows.bad[0], bad(2, reason), "{stray} {next}");
                let of_next = usize::from(next == "\"two");
                assert_eq!(rows.bad.len(), 1 + of_next, "{stray} {next}");
                assert_eq!(rows.messages.len(), 3 - of_next, "{stray} {next}");
            }
        }
    }

    #[test]
    fn quoted_columns_keep_commas_quotes_and_line_breaks() {
        let input = "\"id\",provider,to,text\n\n\"a\",solo,+1234567,\"say \"\"hi\"\", twice\r\n\"\r\n\nb,solo,+1234567,5\" long";
        let rows = parse(input).unwrap();

        let texts: Vec<&str> = rows.messages.iter().map(|message| &*message.text).collect();
        assert_eq!(texts, ["say \"hi\", twice\r\n", "5\" long"]);
        assert_eq!(rows.bad, []);
    }

    #[test]
    fn a_column_that_is_not_utf8_is_a_bad_row() {
        let bytes = b"id,provider,to,text\na,solo,+1234567,caf\xe9\nb,solo,+1234567,hi\n";
        let rows = Rows::parse(bytes, usize::MAX, &mut Clock::new()).unwrap();

        assert_eq!(rows.bad, [bad(2, "the text is not UTF-8")]);
        assert_eq!(rows.messages.len(), 1);
    }

    #[test]
    fn an_input_without_rows_is_an_error() {
        for (input, reason) in [
            ("", "the input is empty"),
            ("id,provider,to,text\n", "there is a header and not one row"),
            (
                "a,b\n1,2\n",
                "the header is \"a,b\" where \"id,provider,to,text\" is needed",
            ),
        ] {
            assert_eq!(parse(input).unwrap_err(), reason);
        }
    }

    #[test]
    fn the_limit_is_for_each_provider() {
        let rows = Rows::parse(SHIPPED, 2, &mut Clock::new()).unwrap();

        for name in Name::ALL {
            assert_eq!(rows.of(name).len(), 2);
        }
    }

    #[test]
    fn the_file_that_comes_with_it_is_as_the_help_says() {
        let rows = Rows::parse(SHIPPED, usize::MAX, &mut Clock::new()).unwrap();

        assert!(rows.messages.len() >= 2000);
        assert_eq!(rows.bad.len(), 10);
    }

    #[test]
    fn written_messages_can_be_read_again() {
        let rows = parse("id,provider,to,text\na,solo,+1234567,\"one,\n\"\"two\"\"\"\n").unwrap();
        let mut out = Vec::new();
        write(&mut out, &rows.messages).unwrap();

        let again = Rows::parse(&out, usize::MAX, &mut Clock::new()).unwrap();
        assert_eq!(again.messages[0].columns(), rows.messages[0].columns());
        assert!(again.bad.is_empty());
    }
}
