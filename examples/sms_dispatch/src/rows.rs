//! Rows in, and the rows that could not be sent out again, as CSV.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use csv::{ByteRecord, ReaderBuilder};
use paceline::time::Clock;

use crate::{message::Message, provider::Name};

const COLUMNS: [&str; 4] = ["id", "provider", "to", "text"];
/// Two thousand messages and ten rows that are none.
const SHIPPED: &[u8] = include_bytes!("../messages.csv");

/// Everything that was read.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) messages: Vec<Message>,
    pub(crate) bad: Vec<BadRow>,
}

/// A row that is no message, and why.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct BadRow {
    pub(crate) line: u64,
    pub(crate) reason: String,
}

/// The bytes of a path, of standard input (`-`), or of the file that is shipped.
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
    /// Reads all there is; of each provider's messages at most `limit`, the others as if they were not there.
    pub(crate) fn parse(bytes: &[u8], limit: usize, clock: &mut Clock) -> Result<Self, String> {
        // Flexible: a row with too few columns is one bad row, not the end of the file.
        let mut reader = ReaderBuilder::new().flexible(true).from_reader(bytes);
        check_header(reader.byte_headers().map_err(|error| error.to_string())?)?;

        let mut rows = Self::default();
        let mut seen = HashMap::new();
        let mut taken = HashMap::new();
        let mut lines = Lines::new(bytes);
        let mut record = ByteRecord::new();
        while reader
            .read_byte_record(&mut record)
            .map_err(|error| error.to_string())?
        {
            let line = lines.at(record.position().map_or(0, csv::Position::byte));
            let checked = columns(&record)
                .and_then(|columns| Message::check(columns, clock.now()))
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

/// Writes messages so that they can be fed in again. A file that is there already holds messages somebody still wants to
/// send, so it is left alone and the next free name is taken; the answer is the name.
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
                let ending = path.extension().unwrap_or_default().to_string_lossy();
                free.set_file_name(format!("{stem}-{number}.{ending}"));
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

fn check_header(header: &ByteRecord) -> Result<(), String> {
    if header.is_empty() {
        return Err("the input is empty".into());
    }
    if header != COLUMNS.as_slice() {
        let found: Vec<_> = header.iter().map(String::from_utf8_lossy).collect();
        let (found, wanted) = (found.join(","), COLUMNS.join(","));
        return Err(format!(
            "the header is {found:?} where {wanted:?} is needed"
        ));
    }
    Ok(())
}

fn columns(record: &ByteRecord) -> Result<[&str; 4], String> {
    if record.len() != COLUMNS.len() {
        return Err(format!(
            "{} columns where {} are needed",
            record.len(),
            COLUMNS.len()
        ));
    }
    let mut columns = [""; 4];
    for (index, name) in COLUMNS.iter().enumerate() {
        columns[index] =
            core::str::from_utf8(&record[index]).map_err(|_| format!("the {name} is not UTF-8"))?;
    }
    Ok(columns)
}

/// Which line a row begins on. The reader's own count stops before the end of the line before, and before empty lines.
struct Lines<'a> {
    bytes: &'a [u8],
    counted: usize,
    line: u64,
}

impl<'a> Lines<'a> {
    const fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            counted: 0,
            line: 1,
        }
    }

    fn at(&mut self, byte: u64) -> u64 {
        let from =
            usize::try_from(byte).map_or(self.bytes.len(), |byte| byte.min(self.bytes.len()));
        let blank = self.bytes[from..]
            .iter()
            .take_while(|byte| b"\r\n".contains(byte))
            .count();
        let new = &self.bytes[self.counted..from + blank];
        self.line += new
            .iter()
            .map(|&byte| u64::from(byte == b'\n'))
            .sum::<u64>();
        self.counted = from + blank;
        self.line
    }
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
    fn a_bad_row_is_named_by_its_line_and_the_rest_goes_on() {
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
    fn a_column_that_is_not_utf8_is_a_bad_row() {
        let bytes = b"id,provider,to,text\na,solo,+1234567,caf\xe9\nb,solo,+1234567,hi\n";
        let rows = Rows::parse(bytes, usize::MAX, &mut Clock::new()).unwrap();

        assert_eq!(rows.bad, [bad(2, "the text is not UTF-8")]);
        assert_eq!(rows.messages.len(), 1);
    }

    #[test]
    fn nothing_to_read_is_an_error() {
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
    fn what_is_shipped_is_as_the_help_says() {
        let rows = Rows::parse(SHIPPED, usize::MAX, &mut Clock::new()).unwrap();

        assert!(rows.messages.len() >= 2000);
        assert_eq!(rows.bad.len(), 10);
    }

    #[test]
    fn what_is_written_can_be_read_again() {
        let rows = parse("id,provider,to,text\na,solo,+1234567,\"one,\n\"\"two\"\"\"\n").unwrap();
        let mut out = Vec::new();
        write(&mut out, &rows.messages).unwrap();

        let again = Rows::parse(&out, usize::MAX, &mut Clock::new()).unwrap();
        assert_eq!(again.messages[0].columns(), rows.messages[0].columns());
        assert!(again.bad.is_empty());
    }
}
