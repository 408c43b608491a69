//! A client that shares no code with the sidecar: one connection, HTTP/1.1, one request after the other.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::support::connect;

/// A connection.
#[derive(Debug)]
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    host: SocketAddr,
}

/// What came back.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(at: SocketAddr) -> Self {
        Self {
            stream: BufReader::new(connect(at)),
            host: at,
        }
    }

    /// A GET of this client id.
    pub(crate) fn get(&mut self, path: &str, id: &str) -> Answer {
        self.send("GET", path, &[("x-client-id", id)], b"")
    }

    /// The statuses of so many requests of this client id.
    pub(crate) fn statuses(&mut self, id: &str, count: usize) -> Vec<u16> {
        (0..count).map(|_| self.get("/", id).status).collect()
    }

    /// Any request, and its answer.
    pub(crate) fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        self.try_send(method, path, headers, body).unwrap()
    }

    /// The same, if the connection does not end.
    pub(crate) fn try_send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Answer> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n", self.host);
        for (name, value) in headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        if !body.is_empty() {
            let length = body.len().to_string();
            head.extend(["content-length: ", &length, "\r\n"]);
        }
        head += "\r\n";
        let stream = self.stream.get_mut();
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        self.answer(method == "HEAD")
    }

    /// The next answer on the connection.
    pub(crate) fn answer(&mut self, is_head: bool) -> io::Result<Answer> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("no status: {first:?}")))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut answer = Answer {
            status,
            headers,
            body: Vec::new(),
        };
        if is_head || matches!(status, 100..200 | 204 | 304) {
            return Ok(answer);
        }
        if let Some(length) = answer.header("content-length") {
            answer.body = vec![0; length.parse().map_err(io::Error::other)?];
            self.stream.read_exact(&mut answer.body)?;
        } else if answer.header("transfer-encoding") == Some("chunked") {
            self.chunks(&mut answer.body)?;
        } else {
            self.stream.read_to_end(&mut answer.body)?;
        }
        Ok(answer)
    }

    fn chunks(&mut self, body: &mut Vec<u8>) -> io::Result<()> {
        loop {
            let line = self.line()?;
            let length = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
            let start = body.len();
            body.resize(start + length, 0);
            self.stream.read_exact(&mut body[start..])?;
            if length == 0 {
                // Trailers, and the empty line.
                while !self.line()?.is_empty() {}
                return Ok(());
            }
            self.line()?;
        }
    }

    /// Without its end.
    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end_matches(['\r', '\n']).to_owned())
    }
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter().filter(|(of, _)| of == name);
        all.next().map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// The value of one series of a scrape, such as `paceline_client_size{client="a"}`.
pub(crate) fn metric(scrape: &str, series: &str) -> Option<f64> {
    let mut lines = scrape.lines().filter_map(|line| line.strip_prefix(series));
    lines.find_map(|rest| rest.strip_prefix(' ')?.trim().parse().ok())
}
