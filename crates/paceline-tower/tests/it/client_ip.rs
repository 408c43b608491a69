use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use ::tower::Layer;
use http::{Extensions, HeaderValue, Request};
use paceline::limiter::PolicyExt;
use paceline::policy::FixedWindow;
use paceline_tower::{ClientIp, EnforceLayer, Proxies, ProxyHeader};

use super::{call, hello};
use crate::timed::ms;

const PROXY: &str = "10.0.0.1";

fn of_peer() -> ClientIp<impl Fn(&Extensions) -> Option<IpAddr> + Clone> {
    ClientIp::new(|extensions| extensions.get::<SocketAddr>().map(SocketAddr::ip))
}

/// The client that a header names, which these proxies set.
fn behind(
    header: ProxyHeader,
    proxies: Proxies,
) -> ClientIp<impl Fn(&Extensions) -> Option<IpAddr> + Clone> {
    of_peer().try_with_header(header, proxies).unwrap()
}

fn request(peer: &str, headers: &[(&str, &str)]) -> Request<()> {
    let peer: IpAddr = peer.parse().unwrap();
    let mut request = Request::get("/").extension(SocketAddr::new(peer, 49_152));
    for (name, value) in headers {
        let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
        request = request.header(*name, value);
    }
    request.body(()).unwrap()
}

/// The client of a request from the proxy, and whether the header was readable.
fn found(header: ProxyHeader, proxies: &Proxies, lines: &[&str]) -> (String, bool) {
    let name = match header {
        ProxyHeader::Forwarded => "Forwarded",
        ProxyHeader::XForwardedFor => "X-Forwarded-For",
        _ => "X-Real-IP",
    };
    let headers: Vec<_> = lines.iter().map(|line| (name, *line)).collect();
    let client = behind(header, proxies.clone());
    let address = client.address(&request(PROXY, &headers)).unwrap();
    (address.to_string(), client.unreadable() == 0)
}

fn private() -> Proxies {
    Proxies::ranges(["10.0.0.0/8", "fd00::/8"])
}

fn x_forwarded_for(line: &str) -> (String, bool) {
    found(ProxyHeader::XForwardedFor, &private(), &[line])
}

fn forwarded(line: &str) -> (String, bool) {
    found(ProxyHeader::Forwarded, &private(), &[line])
}

fn is(address: &str) -> (String, bool) {
    (address.to_owned(), true)
}

fn unreadable() -> (String, bool) {
    (PROXY.to_owned(), false)
}

#[test]
fn by_default_the_peer_is_the_client_and_else_only_the_chosen_header_is_read() {
    let headers = [
        ("forwarded", "for=192.0.2.1"),
        ("x-forwarded-for", "192.0.2.2"),
        ("x-real-ip", "192.0.2.3"),
    ];
    let from_proxy = request(PROXY, &headers);
    let from_outside = request("198.51.100.1", &headers);
    assert_eq!(of_peer().key(&from_proxy).to_string(), PROXY);
    for (header, expected) in [
        (ProxyHeader::Forwarded, "192.0.2.1"),
        (ProxyHeader::XForwardedFor, "192.0.2.2"),
        (ProxyHeader::XRealIp, "192.0.2.3"),
    ] {
        let client = behind(header, private());
        assert_eq!(client.key(&from_proxy).to_string(), expected);
        // A peer that is not a proxy is not believed, and does not count as unreadable.
        assert_eq!(client.key(&from_outside).to_string(), "198.51.100.1");
        assert_eq!(client.unreadable(), 0);
    }
}

#[test]
fn a_spoofed_entry_at_the_left_does_not_count() {
    for spoofed in [
        "192.0.2.66",
        "10.9.9.9",
        "unknown",
        "\"",
        "for=\"",
        "\\",
        "a\"b\\",
        "192.0.2.66,\"",
        ",,,",
        "%00",
        "ü",
    ] {
        let line = format!("{spoofed}, 203.0.113.7");
        assert_eq!(x_forwarded_for(&line), is("203.0.113.7"), "{line}");
        let line = format!("{spoofed}, 203.0.113.7, 10.0.0.2,10.0.0.3");
        assert_eq!(x_forwarded_for(&line), is("203.0.113.7"), "{line}");
        let line = format!("{spoofed}, for=203.0.113.7, for=10.0.0.2");
        assert_eq!(forwarded(&line), is("203.0.113.7"), "{line}");
        for (hops, after) in [(1, ""), (2, ", 10.0.0.2")] {
            let line = format!("{spoofed}, 203.0.113.7{after}");
            let found = found(ProxyHeader::XForwardedFor, &Proxies::hops(hops), &[&line]);
            assert_eq!(found, is("203.0.113.7"));
        }
    }
}

#[test]
fn if_all_are_trusted_the_leftmost_is_the_client() {
    assert_eq!(x_forwarded_for("10.0.0.7, fd00::2"), is("10.0.0.7"));
    assert_eq!(x_forwarded_for(""), is(PROXY));
    assert_eq!(x_forwarded_for(" , ,"), is(PROXY));
    assert_eq!(
        found(ProxyHeader::XForwardedFor, &private(), &[]),
        is(PROXY)
    );
}

#[test]
fn with_more_hops_than_entries_the_peer_is_the_client_and_counted() {
    let three = Proxies::hops(3);
    for (line, expected) in [
        ("192.0.2.1, 192.0.2.2, 192.0.2.3", is("192.0.2.1")),
        ("192.0.2.2, 192.0.2.3", unreadable()),
        ("192.0.2.2,, ,192.0.2.3", unreadable()),
        ("", unreadable()),
        ("x, 192.0.2.1, _a, unknown", is("192.0.2.1")),
        ("unknown, 192.0.2.2, 192.0.2.3", unreadable()),
    ] {
        assert_eq!(
            found(ProxyHeader::XForwardedFor, &three, &[line]),
            expected,
            "{line}"
        );
    }
}

#[test]
fn several_lines_are_one_list() {
    let lines = ["192.0.2.66", "203.0.113.7", "10.0.0.2"];
    let header = ProxyHeader::XForwardedFor;
    assert_eq!(found(header, &private(), &lines), is("203.0.113.7"));
    assert_eq!(found(header, &Proxies::hops(2), &lines), is("203.0.113.7"));
    // A quote that is open ends with its line.
    let lines = ["for=\"", "for=203.0.113.7, for=10.0.0.2"];
    let header = ProxyHeader::Forwarded;
    assert_eq!(found(header, &private(), &lines), is("203.0.113.7"));
}

#[test]
fn an_address_may_have_a_port_brackets_quotes_and_spaces() {
    for (node, expected) in [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1:80", "192.0.2.1"),
        ("192.0.2.1:_port", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:DB8::1]:65535", "2001:db8::1"),
        ("[2001:db8::1]:_a.b-c", "2001:db8::1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("[::ffff:c000:201]:80", "192.0.2.1"),
    ] {
        for line in [
            node.to_owned(),
            format!("\"{node}\""),
            format!(" \t {node}\t"),
        ] {
            assert_eq!(x_forwarded_for(&line), is(expected), "{line}");
        }
        for line in [
            format!("for=\"{node}\""),
            format!("FOR=\"{node}\";proto=https"),
            format!("proto=https; by=\"a,b;for=c\" ; For = \"{node}\" ;host=\"a\\\",b\""),
        ] {
            assert_eq!(forwarded(&line), is(expected), "{line}");
        }
    }
    assert_eq!(forwarded("for=192.0.2.1"), is("192.0.2.1"));
}

#[test]
fn what_is_no_address_is_the_peer_and_counted() {
    for node in [
        "unknown",
        "_hidden",
        "_hidden:80",
        "localhost",
        "192.0.2",
        "192.0.2.01",
        "192.0.2.256",
        "0xC0000201",
        "192.0.2.1:",
        "192.0.2.1:123456",
        "192.0.2.1:80:80",
        "192.0.2.1/24",
        "[192.0.2.1]",
        "[2001:db8::1",
        "[2001:db8::1]80",
        "[2001:db8::1]:",
        "2001:db8::1%eth0",
        "192.0.2.1 192.0.2.2",
        "\"192.0.2.1",
        "192.0.2.1\"",
        "1٫2",
        "-",
    ] {
        assert_eq!(x_forwarded_for(node), unreadable(), "{node}");
        assert_eq!(forwarded(&format!("for={node}")), unreadable(), "{node}");
    }
    for element in [
        "192.0.2.1",
        "proto=https",
        "for",
        "for=",
        "for=192.0.2.1;for=192.0.2.2",
        "for=192.0.2.1;FOR=192.0.2.1",
        "forwarded-for=192.0.2.1",
        "by=192.0.2.1",
        "by=\"for=192.0.2.1\"",
    ] {
        assert_eq!(forwarded(element), unreadable(), "{element}");
    }
}

#[test]
fn x_real_ip_is_one_address_in_one_line() {
    for proxies in [private(), Proxies::hops(1)] {
        for (lines, expected) in [
            (&["192.0.2.1"][..], is("192.0.2.1")),
            (&["192.0.2.1, 192.0.2.2"], unreadable()),
            (&["192.0.2.1", "192.0.2.2"], unreadable()),
        ] {
            let found = found(ProxyHeader::XRealIp, &proxies, lines);
            assert_eq!(found, expected, "{lines:?}");
        }
    }
}

#[test]
fn a_header_of_100_000_entries_is_read_only_as_far_as_needed() {
    let header = ProxyHeader::XForwardedFor;
    let long = "192.0.2.66,".repeat(100_000);
    let line = format!("{long}203.0.113.7");
    assert_eq!(found(header, &private(), &[&line]), is("203.0.113.7"));
    assert_eq!(
        found(header, &Proxies::hops(1), &[&line]),
        is("203.0.113.7")
    );

    let trusted = |n| "10.0.0.2,".repeat(n) + "10.0.0.3";
    assert_eq!(x_forwarded_for(&trusted(63)), is("10.0.0.2"));
    assert_eq!(x_forwarded_for(&trusted(64)), unreadable());
    assert_eq!(x_forwarded_for(&trusted(100_000)), unreadable());

    for text in ["\"", "\\", "\\\"", ",", "=", ";", "for=;"] {
        let text = text.repeat(100_000);
        let _ = (x_forwarded_for(&text), forwarded(&text));
        assert_eq!(
            forwarded(&format!("{text},for=203.0.113.7")),
            is("203.0.113.7")
        );
    }
}

#[test]
fn random_bytes_at_the_left_change_nothing_and_anywhere_break_nothing() {
    let alphabet = b"for=FOR;,\"\\ []:._10a\t\xff\x80";
    let random = |len| -> Vec<u8> {
        let byte = || alphabet[fastrand::usize(..alphabet.len())];
        std::iter::repeat_with(byte).take(len).collect()
    };
    let header = |header: ProxyHeader, name: &'static str, line: Vec<u8>| {
        let client = behind(header, private());
        let mut request = request(PROXY, &[]);
        let line = HeaderValue::from_bytes(&line).unwrap();
        request.headers_mut().insert(name, line);
        client.address(&request).unwrap().to_string()
    };
    for _ in 0..20_000 {
        let mut line = random(fastrand::usize(..40));
        let _ = header(ProxyHeader::Forwarded, "forwarded", line.clone());
        let mut list = line.clone();
        line.extend(b",for=\"[2001:db8::7]:80\";by=\"a,\\\"b\"");
        let found = header(ProxyHeader::Forwarded, "forwarded", line);
        assert_eq!(found, "2001:db8::7");
        list.extend(b", 203.0.113.7");
        let found = header(ProxyHeader::XForwardedFor, "x-forwarded-for", list);
        assert_eq!(found, "203.0.113.7");
    }
}

#[test]
fn ipv6_is_a_key_for_each_64_bits_and_ipv4_in_ipv6_is_ipv4() {
    let key = |peer| of_peer().key(&request(peer, &[]));
    assert_eq!(key("2001:db8:1:2::1"), key("2001:db8:1:2:ffff::9"));
    assert_ne!(key("2001:db8:1:2::1"), key("2001:db8:1:3::1"));
    assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
    assert_eq!(key("2001:db8:1:2::1").to_string(), "2001:db8:1:2::/64");

    let whole = of_peer().try_with_ipv6_prefix(128).unwrap();
    let one = whole.key(&request("2001:db8::1", &[]));
    assert_ne!(one, whole.key(&request("2001:db8::2", &[])));
    assert_eq!(one.to_string(), "2001:db8::1");
    let wide = of_peer().try_with_ipv6_prefix(47).unwrap();
    let one = wide.key(&request("2001:db8:1::1", &[]));
    assert_eq!(one.to_string(), "2001:db8::/47");
    let address = wide.address(&request("2001:db8:1::1", &[]));
    assert_eq!(address.unwrap().to_string(), "2001:db8:1::1");
}

#[test]
fn keys_are_equal_if_and_only_if_their_texts_are() {
    let peers = [
        "192.0.2.1",
        "192.0.2.2",
        "::ffff:192.0.2.1",
        "::192.0.2.1",
        "::",
        "2001:db8::1",
    ];
    let keys = peers.map(|peer| of_peer().key(&request(peer, &[])));
    let texts: HashSet<_> = keys.iter().map(ToString::to_string).collect();
    assert_eq!(keys.into_iter().collect::<HashSet<_>>().len(), texts.len());
}

#[test]
fn without_a_peer_all_have_one_key_and_hops_are_still_read() {
    let bare = Request::get("/").header("x-forwarded-for", "192.0.2.1");
    let bare = bare.body(()).unwrap();
    assert_eq!(of_peer().key(&bare).to_string(), "unknown");
    assert_eq!(of_peer().address(&bare), None);
    let header = ProxyHeader::XForwardedFor;
    let ranges = behind(header, private());
    assert_eq!(ranges.key(&bare).to_string(), "unknown");
    let hops = behind(header, Proxies::hops(1));
    assert_eq!(hops.key(&bare).to_string(), "192.0.2.1");
}

#[test]
fn a_peer_that_is_mapped_to_ipv6_is_in_a_range_of_ipv4() {
    for range in ["10.0.0.0/8", "::ffff:10.0.0.0/104", "10.0.0.1", "0.0.0.0/0"] {
        let client = behind(ProxyHeader::XForwardedFor, Proxies::ranges([range]));
        for (peer, expected) in [
            ("::ffff:10.0.0.1", "2001:db8::/64"),
            ("10.0.0.1", "2001:db8::/64"),
            ("fd00::1", "fd00::/64"),
        ] {
            let request = request(peer, &[("x-forwarded-for", "2001:db8::1")]);
            assert_eq!(client.key(&request).to_string(), expected, "{range} {peer}");
        }
    }
}

#[test]
fn bad_options_are_errors_that_name_the_value() {
    let range = |range: &str| Proxies::try_ranges([range]).unwrap_err().to_string();
    for text in [
        "",
        "ten",
        "10.0.0.0/",
        "10.0.0.0/x",
        "10.0.0.0/-1",
        "10.0.0.0/256",
        "a\n",
    ] {
        let expected = format!(
            "`{}` is not a range of addresses, such as `10.0.0.0/8` or `fd00::/8`",
            text.escape_debug()
        );
        assert_eq!(range(text), expected);
    }
    let hops = |hops| Proxies::try_hops(hops).unwrap_err().to_string();
    let prefix = |bits| {
        of_peer()
            .try_with_ipv6_prefix(bits)
            .err()
            .unwrap()
            .to_string()
    };
    let two_hops = of_peer().try_with_header(ProxyHeader::XRealIp, Proxies::hops(2));
    let twice = behind(ProxyHeader::XForwardedFor, private())
        .try_with_header(ProxyHeader::Forwarded, private());
    for (error, expected) in [
        (
            range("10.0.0.0/33"),
            "the prefix of `10.0.0.0/33` has 0 to 32 bits, got 33",
        ),
        (
            range("fd00::/129"),
            "the prefix of `fd00::/129` has 0 to 128 bits, got 129",
        ),
        (
            range("fd00::1/8"),
            "`fd00::1/8` has bits after its prefix; its range is `fd00::/8`",
        ),
        (
            Proxies::try_ranges::<&str>([]).unwrap_err().to_string(),
            "at least 1 range has to be trusted, got 0",
        ),
        (hops(0), "there are 1 to 64 hops to a client, got 0"),
        (hops(65), "there are 1 to 64 hops to a client, got 65"),
        (prefix(0), "an IPv6 prefix has 1 to 128 bits, got 0"),
        (prefix(129), "an IPv6 prefix has 1 to 128 bits, got 129"),
        (
            two_hops.err().unwrap().to_string(),
            "`x-real-ip` has one address, which the proxy of 1 hop sets, got 2 hops",
        ),
        (
            twice.err().unwrap().to_string(),
            "the client is read from one header, got `forwarded` after `x-forwarded-for`",
        ),
    ] {
        assert_eq!(error, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn spoofing_gets_a_client_no_second_quota() {
    let client = behind(ProxyHeader::XForwardedFor, private());
    let limits = FixedWindow::new(3, ms(60_000)).keyed();
    let layer = EnforceLayer::by_key(limits.clone(), move |request: &Request<()>| {
        Some(client.key(request))
    });
    let mut service = layer.layer(hello());
    let mut passed = 0;
    for n in 0..100 {
        let line = format!("192.0.2.{n}, 203.0.113.7");
        let request = request(PROXY, &[("x-forwarded-for", &line)]);
        passed += u32::from(call(&mut service, request).await.is_ok());
    }
    assert_eq!((passed, limits.len()), (3, 1));
}
