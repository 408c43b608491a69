//! What reaches the service, and what comes back.

use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use super::client::Client;
use super::support::Sidecar;
use super::upstream::{self, Recorder, Reply, exchange, reply};

const LIMITS: [&str; 4] = ["--capacity", "1000000", "--cycle", "10m"];

/// A sidecar that refuses nothing.
fn wide(upstream: SocketAddr, flags: &[&str]) -> Sidecar {
    Sidecar::start(upstream, &[&LIMITS[..], flags].concat())
}

fn wide_h2c(upstream: SocketAddr) -> Sidecar {
    let upstream = format!("h2c://{upstream}");
    let flags = [
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--upstream",
        &upstream,
    ];
    Sidecar::run(&[&flags[..], &LIMITS].concat())
}

/// What curl prints, with the head of the response.
fn curl(at: SocketAddr, path: &str, flags: &[&str]) -> String {
    curl_with(at, path, flags, &[])
}

fn curl_with(at: SocketAddr, path: &str, flags: &[&str], input: &[u8]) -> String {
    let mut child = Command::new("curl")
        .args(["--silent", "--show-error", "--include", "--max-time", "60"])
        .args(["--header", "x-client-id: a"])
        .args(flags)
        .arg(format!("http://{at}{path}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("curl is installed");
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // curl may stop to read before the end.
    std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text += &String::from_utf8_lossy(&output.stderr);
    text
}

fn body_of(response: &str) -> &str {
    response.split_once("\r\n\r\n").unwrap().1
}

#[test]
fn path_and_query_pass_byte_for_byte() {
    let service = Recorder::ok();
    let sidecar = wide(service.at, &[]);
    for target in [
        "/",
        "/a%2Fb/../c;d=1//e?x=%20&y=a+b&&z",
        "//two",
        "/?",
        "/a?b?c=/d",
        "/{x}|\"",
        "/\u{e9}",
    ] {
        let request = format!(
            "GET {target} HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\nconnection: close\r\n\r\n"
        );
        let response = exchange(sidecar.listen, request);
        assert!(response.starts_with("HTTP/1.1 200"), "{target}: {response}");
        let seen = service.seen().pop().unwrap();
        assert!(
            seen.starts_with(&format!("GET {target} HTTP/1.1\r\n")),
            "{target}: {seen}"
        );
    }
}
