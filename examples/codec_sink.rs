//! How do I pace what I send over a connection with a codec?
#![expect(clippy::disallowed_methods, reason = "shows the time")]

use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::policy::Interval;
use paceline::prelude::*;
use tokio::time::Instant;
use tokio_util::codec::{Framed, LinesCodec};

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    let start = Instant::now();
    let (near, far) = tokio::io::duplex(1024); // a TcpStream, say

    // The server sends every line back.
    let (answers, requests) = Framed::new(far, LinesCodec::new()).split::<String>();
    let echo = tokio::spawn(requests.forward(answers));

    // `pace_sends` returns a sink without the stream, so the stream is split off first.
    let (outlet, mut answers) = Framed::new(near, LinesCodec::new()).split();
    let limit = Interval::every(Duration::from_millis(100)).owned();
    let commands = stream::iter(["HELO", "SEND", "QUIT"]).map(Ok);
    let sending = tokio::spawn(commands.forward(outlet.pace_sends(limit)));

    let mut answered = Vec::new();
    while let Some(Ok(answer)) = answers.next().await {
        let millis = start.elapsed().as_millis();
        println!("{millis:3} ms: {answer}");
        answered.push((answer, millis));
    }
    let expected = [("HELO", 0), ("SEND", 100), ("QUIT", 200)];
    assert_eq!(
        answered,
        expected.map(|(line, millis)| (line.to_owned(), millis))
    );

    sending.await.unwrap().unwrap();
    echo.await.unwrap().unwrap();
}
