//! What the parser makes of an answer beside what hyper's client makes of it, for random answers in random pieces, whole and mutated.

use std::collections::BTreeMap;

use bytes::Bytes;
use fastrand::Rng;
use http::header::{CONNECTION, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper::ext::ReasonPhrase;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncWriteExt, duplex};
use tokio::runtime::LocalOptions;
use tokio::task::{spawn_local, yield_now};

use super::Broken;
use super::framing::Framing;
use super::head;

/// Where hyper reads an answer and this parser does not.
const STRICTER: &[&str] = &[
    "the response has a length and a coding",
    "the response has several lengths",
    // hyper takes `2, 2`.
    "the length of the response is malformed",
    // hyper reads until the end of the connection.
    "the coding of the response is not `chunked`",
    // hyper takes tabs after a size.
    "the line before a chunk is malformed",
    // hyper takes a line feed alone between trailers.
    "the trailers are malformed",
];

#[derive(Debug, PartialEq)]
struct Answer {
    status: StatusCode,
    reason: Option<Vec<u8>>,
    fields: BTreeMap<String, Vec<Vec<u8>>>,
    body: Vec<u8>,
    trailers: BTreeMap<String, Vec<Vec<u8>>>,
}

impl Answer {
    fn new<B>(response: &Response<B>, body: Vec<u8>, trailers: &HeaderMap) -> Self {
        let mut headers = response.headers().clone();
        headers.remove(CONNECTION);
        headers.remove(TRANSFER_ENCODING);
        let reason = response.extensions().get::<ReasonPhrase>();
        Self {
            status: response.status(),
            reason: reason.map(|reason| reason.as_bytes().to_vec()),
            fields: listed(&headers),
            body,
            trailers: listed(trailers),
        }
    }
}

fn listed(headers: &HeaderMap) -> BTreeMap<String, Vec<Vec<u8>>> {
    let values = |name| headers.get_all(name).iter();
    let values = |name| {
        values(name)
            .map(|value| value.as_bytes().to_vec())
            .collect()
    };
    let keys = headers.keys();
    keys.map(|name| (name.to_string(), values(name))).collect()
}

/// `None`: it switches protocols.
fn own(pieces: &[&[u8]], method: &Method) -> Result<Option<Answer>, Broken> {
    let mut received = Bytes::new();
    let mut pieces = pieces.iter();
    let mut more = |received: &mut Bytes| {
        let piece = pieces.next();
        *received = [received, piece.copied().unwrap_or_default()]
            .concat()
            .into();
        piece.is_some()
    };
    let head = loop {
        if received.is_empty() {
            if !more(&mut received) {
                return Err(Broken::Closed);
            }
            continue;
        }
        match head::parse(&mut received, method, &mut HeaderMap::new())? {
            Some(head) if head.response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                return Ok(None);
            }
            Some(head) if head.response.status().is_informational() => {}
            Some(head) => break head,
            None if more(&mut received) => {}
            None => return Err(Broken::Closed),
        }
    };
    let mut framing = head.framing;
    let (mut body, mut trailers) = (Vec::new(), HeaderMap::new());
    loop {
        match framing.next(&mut received)?.map(|frame| frame.into_data()) {
            Some(Ok(data)) => body.extend_from_slice(&data),
            Some(Err(frame)) => trailers = frame.into_trailers().unwrap(),
            None if framing.is_over() => break,
            None if more(&mut received) => {}
            None if framing == Framing::Close => break,
            None => return Err(Broken::Closed),
        }
    }
    Ok(Some(Answer::new(&head.response, body, &trailers)))
}

async fn hypers(pieces: &[&[u8]], method: &Method) -> hyper::Result<Answer> {
    let (client, mut service) = duplex(1 << 20);
    let (mut sender, connection) = http1::handshake(TokioIo::new(client)).await?;
    spawn_local(connection);
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.method_mut() = method.clone();
    let response = spawn_local(async move {
        let response = sender.send_request(request).await?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await?;
        let trailers = body.trailers().cloned().unwrap_or_default();
        let response = Response::from_parts(parts, ());
        Ok(Answer::new(&response, body.to_bytes().to_vec(), &trailers))
    });
    yield_now().await;
    for piece in pieces {
        // It may have closed already.
        let _ = service.write_all(piece).await;
        yield_now().await;
    }
    drop(service);
    response.await.unwrap()
}

fn answer(rng: &mut Rng) -> Vec<u8> {
    let mut text = String::new();
    if rng.u8(..8) == 0 {
        text += "HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n";
    }
    let statuses = [
        "200 OK",
        "200 Fine",
        "204 No Content",
        "304 Not Modified",
        "404 ",
        "500",
    ];
    let status = *rng.choice(&statuses).unwrap();
    let version = if rng.u8(..6) == 0 { "1.0" } else { "1.1" };
    text.extend([format!("HTTP/{version} {status}\r\n")]);
    for _ in 0..rng.u8(..4) {
        text += rng
            .choice(&[
                "a: b\r\n",
                "A:b \r\n",
                "set-cookie: a=1\r\n",
                "x:\r\n",
                "connection: close\r\n",
                "connection: keep-alive, a\r\n",
                "y: \u{e9}\t,\r\n",
            ])
            .unwrap();
    }
    let length = rng.usize(..40);
    let body: String = (0..length).map(|_| rng.alphanumeric()).collect();
    match rng.u8(..8) {
        0 => text.extend([format!("\r\n{body}")]),
        1..=3 => {
            text.extend([format!("content-length: {length}\r\n")]);
            if rng.u8(..8) == 0 {
                text.extend([format!("content-length: {length}\r\n")]);
            }
            text.extend([format!("\r\n{body}")]);
        }
        _ => {
            if rng.u8(..8) == 0 {
                text.extend([format!("content-length: {length}\r\n")]);
            }
            let codings = ["chunked", "Chunked", "gzip, chunked", "chunked, gzip"];
            let coding = if rng.u8(..4) == 0 { rng.usize(..4) } else { 0 };
            text.extend([format!("transfer-encoding: {}\r\n\r\n", codings[coding])]);
            let mut rest = body.as_str();
            while !rest.is_empty() {
                let (chunk, after) = rest.split_at(rng.usize(1..=rest.len()));
                let extension = *rng.choice(&["", "", "", ";a", ";a=\"b\"", " "]).unwrap();
                text.extend([format!("{:X}{extension}\r\n{chunk}\r\n", chunk.len())]);
                rest = after;
            }
            text += "0\r\n";
            text += rng.choice(&["", "", "x-sum: 1\r\nx-sum: 2\r\n"]).unwrap();
            text += "\r\n";
        }
    }
    text.into_bytes()
}

fn mutate(rng: &mut Rng, answer: &mut Vec<u8>) {
    for _ in 0..rng.u8(..3) {
        let at = rng.usize(..answer.len());
        let byte = *rng.choice(b"\r\n :;,01fFx\t\0\xff-+").unwrap();
        match rng.u8(..5) {
            0 => answer[at] = byte,
            1 => answer.insert(at, byte),
            2 => drop(answer.remove(at)),
            3 => {
                let end = rng.usize(at..=answer.len());
                answer.extend_from_within(at..end);
            }
            _ => answer.truncate(at.max(1)),
        }
    }
}

fn cut<'a>(rng: &mut Rng, mut rest: &'a [u8]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let most = if rng.bool() {
            rest.len()
        } else {
            rest.len().min(4)
        };
        let (piece, after) = rest.split_at(rng.usize(1..=most));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

#[test]
fn an_answer_is_read_as_hyper_reads_it_or_not_at_all() {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.build_local(LocalOptions::default()).unwrap();
    let (mut read, mut refused) = (0, 0);
    for seed in 0..10_000 {
        let rng = &mut Rng::with_seed(seed);
        let mut answer = answer(rng);
        mutate(rng, &mut answer);
        let method = if rng.u8(..6) == 0 {
            Method::HEAD
        } else {
            Method::GET
        };
        let pieces = cut(rng, &answer);
        let shown = format!(
            "seed {seed}, {method}: {:?}",
            String::from_utf8_lossy(&answer)
        );
        let hypers = runtime.block_on(hypers(&pieces, &method));
        match (own(&pieces, &method), hypers) {
            (Ok(None), _) | (Err(_), Err(_)) => {}
            (Ok(Some(own)), Ok(hypers)) => {
                assert_eq!(own, hypers, "{shown}");
                read += 1;
            }
            (Ok(own), Err(error)) => panic!("{shown}: {own:?}, and hyper: {error:?}"),
            (Err(error), Ok(hypers)) => {
                let is_known = STRICTER.contains(&error.to_string().as_str());
                assert!(is_known, "{shown}: {error}, and hyper: {hypers:?}");
                refused += 1;
            }
        }
    }
    println!("{read} are read, {refused} are refused that hyper reads");
    assert!(read > 4_000 && refused > 100, "{read} {refused}");
}
