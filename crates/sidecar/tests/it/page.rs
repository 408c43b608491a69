//! The live page, in a real browser without a window.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::browser::{Browser, Look};

use super::client::Client;
use super::support::Sidecar;
use super::upstream::hello;

const WIDE: Look = Look {
    width: 1280,
    is_dark: false,
};

const FORTY: [&str; 4] = ["--capacity", "40", "--cycle", "1s"];

const PRELUDE: &str = "const state = () => document.getElementById('state').textContent; \
     const row = (client) => [...document.querySelectorAll('[data-client]')].find((row) => row.dataset.client === client); \
     const number = (client, of) => Number(row(client)?.querySelector(`[data-label=${of}]`).textContent.replaceAll(',', '')); \
     const part = (client, name) => row(client)?.querySelector(`.track .${name}`); \
     const width = (client, name) => part(client, name)?.hidden ? 0 : part(client, name)?.getBoundingClientRect().width;";

/// A browser with the page of this sidecar in it, connected.
async fn page(sidecar: &Sidecar, look: Look) -> Browser {
    let browser = Browser::open(look, PRELUDE).await;
    browser.go(&format!("http://{}/", sidecar.admin)).await;
    shows(&browser, "state() === 'live'").await;
    browser
}

/// Waits until this holds in the page.
async fn shows(browser: &Browser, expression: &str) {
    browser.until(expression, expression).await;
}

/// Writes what it looks like to a file of the target directory, to be looked at.
async fn shoot(browser: &Browser, name: &str) {
    let folder = concat!(env!("CARGO_TARGET_TMPDIR"), "/page");
    browser.shoot(folder, name).await;
}

/// A sidecar with clients that send this many requests in each cycle, as long as it lives.
struct Shop {
    sidecar: Sidecar,
    demands: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl Shop {
    fn open(flags: &[&str], demands: &[(&str, u32)]) -> Self {
        let shop = Self {
            sidecar: Sidecar::start(hello(), flags),
            demands: Arc::default(),
        };
        for (client, demand) in demands {
            shop.set(client, *demand);
        }
        shop.drive();
        shop
    }

    fn set(&self, client: &str, demand: u32) {
        let mut demands = self.demands.lock().unwrap();
        demands.insert(client.to_owned(), demand);
    }

    /// Sends the requests of a cycle at its start. It ends with the sidecar.
    fn drive(&self) {
        let (listen, admin) = (self.sidecar.listen, self.sidecar.admin);
        let demands = Arc::clone(&self.demands);
        thread::spawn(move || {
            let mut last = None;
            while TcpStream::connect(admin).is_ok() {
                let answer = Client::connect(admin).try_send("GET", "/clients", &[], b"");
                let Ok(answer) = answer else { return };
                let view: Value = serde_json::from_slice(&answer.body).unwrap();
                let cycle = view["cycle"].as_u64();
                if cycle == last {
                    thread::sleep(Duration::from_millis(10));
                    continue;
                }
                last = cycle;
                // Of each cycle a connection of its own: one that is silent for long is closed.
                if TcpStream::connect(listen).is_err() {
                    return;
                }
                let mut requests = Client::connect(listen);
                for (client, demand) in demands.lock().unwrap().clone() {
                    for _ in 0..demand {
                        let headers = [("x-client-id", client.as_str())];
                        if requests.try_send("GET", "/", &headers, b"").is_err() {
                            return;
                        }
                    }
                }
            }
        });
    }
}

#[tokio::test]
async fn the_bars_follow_a_spike() {
    let others = [("cart", 10), ("campaign", 10), ("search", 10)];
    let shop = Shop::open(&FORTY, &[&[("catalog", 3)], &others[..]].concat());
    let browser = page(&shop.sidecar, WIDE).await;
    let all = "['catalog', 'cart', 'campaign', 'search'].every(row)";
    shows(&browser, all).await;
    let calm = "number('campaign', 'demand') === 10 && width('campaign', 'borrowed') === 0";
    shows(&browser, calm).await;
    assert_eq!(browser.eval("number('campaign', 'size')").await, 10);

    shop.set("campaign", 50);
    for expected in [
        "number('campaign', 'demand') === 50 && number('campaign', 'borrowed') === 7 && number('campaign', 'size') === 17",
        "number('catalog', 'lent') === 7 && width('catalog', 'lent') > 0",
        "width('campaign', 'borrowed') > 0 && width('campaign', 'size') > width('catalog', 'size')",
        "number('campaign', 'refused') === 33",
    ] {
        shows(&browser, expected).await;
    }
    let beyond = browser.eval("part('campaign', 'demand').className").await;
    assert_eq!(beyond, "demand beyond");
    let capacity = "document.getElementById('capacity').textContent";
    assert_eq!(browser.eval(capacity).await, "40 in 1 s");

    shop.set("campaign", 10);
    shows(&browser, calm).await;
}

#[tokio::test]
async fn the_name_of_a_client_stays_text() {
    let names = [
        "<img/src=x/onerror=document.title='owned'>",
        "<script>document.title='owned'</script>",
        "\"'`&lt;\\u003c${document.title='owned'}",
        "__proto__",
    ];
    let shop = Shop::open(&FORTY, &names.map(|name| (name, 1)));
    let browser = page(&shop.sidecar, WIDE).await;
    for name in names.map(|name| json!(name)) {
        let text = format!("row({name})?.querySelector('th').textContent === {name}");
        shows(&browser, &text).await;
    }
    // The icon is in the head.
    assert_eq!(browser.eval("document.images.length").await, 0);
    assert_eq!(browser.eval("document.scripts.length").await, 1);
    assert_eq!(browser.eval("document.title").await, "paceline");
}

#[tokio::test]
async fn nothing_is_asked_of_another_origin() {
    let shop = Shop::open(&FORTY, &[("one", 1)]);
    let browser = page(&shop.sidecar, WIDE).await;
    shows(&browser, "row('one') !== undefined").await;
    let asked = browser.eval("performance.getEntries().map((entry) => entry.name).filter((name) => name.includes(':'))").await;
    let own = format!("http://{}/", shop.sidecar.admin);
    let asked = asked.as_array().unwrap();
    assert!(!asked.is_empty());
    for name in asked.iter().map(|name| name.as_str().unwrap()) {
        assert!(name.starts_with(&own), "{name}");
    }
    // And nothing else could be: the policy of the page refuses it.
    for other in ["http://127.0.0.1:1/", "https://example.com/"] {
        let refused =
            format!("fetch('{other}', {{ mode: 'no-cors' }}).then(() => 'sent', () => 'failed')");
        let violation = format!(
            "new Promise((done) => {{ addEventListener('securitypolicyviolation', (event) => done(event.effectiveDirective)); {refused}; }})"
        );
        assert_eq!(browser.eval(&violation).await, "connect-src", "{other}");
    }
}

#[tokio::test]
async fn the_page_of_another_site_changes_nothing() {
    let sidecar = Sidecar::start(hello(), &FORTY);
    let browser = Browser::open(WIDE, PRELUDE).await;
    let admin = sidecar.admin;
    let is_enforced = || sidecar.metric("paceline_mode{mode=\"enforce\"}") == Some(1.0);
    // For the browser, the address and the name are two sites.
    let other = format!("http://localhost:{}/", hello().port());
    browser.go(&other).await;
    for (mode, content_type, body) in [
        ("no-cors", "application/x-www-form-urlencoded", "mode=off"),
        ("no-cors", "text/plain", "mode=off"),
        ("no-cors", "", "mode=off"),
        ("cors", "application/json", r#"{"mode":"off"}"#),
    ] {
        let sent = format!(
            "fetch('http://{admin}/mode', {{ method: 'POST', mode: '{mode}', body: '{body}', \
             headers: {{ 'content-type': '{content_type}' }} }}).then(() => 'sent', (error) => error.name)"
        );
        let outcome = browser.eval(&sent).await;
        assert!(outcome == "TypeError" || mode == "no-cors", "{outcome}");
        assert!(is_enforced(), "{content_type}");
    }
    let form = format!(
        "document.body.innerHTML = '<form method=post action=http://{admin}/mode><input name=mode value=off></form>', \
         document.forms[0].submit()"
    );
    browser.eval(&form).await;
    shows(&browser, "document.body.textContent.includes('403')").await;
    assert!(is_enforced());
}

#[tokio::test]
async fn the_page_says_when_it_is_disconnected_and_connects_again() {
    let mut shop = Shop::open(&FORTY, &[("one", 1)]);
    let browser = page(&shop.sidecar, WIDE).await;
    shows(&browser, "row('one') !== undefined").await;
    let [listen, admin] = [shop.sidecar.listen, shop.sidecar.admin].map(|at| at.to_string());
    shop.sidecar.signal(Signal::KILL);
    shop.sidecar.ended();
    shows(&browser, "state().startsWith('disconnected')").await;
    shoot(&browser, "1280-disconnected").await;

    let same = ["--listen", &listen, "--admin", &admin];
    let again = Sidecar::start(hello(), &[&FORTY[..], &same].concat());
    shows(&browser, "state() === 'live'").await;
    shows(&browser, "row('one') === undefined").await;
    assert_eq!(again.get("two").status, 200);
    shows(&browser, "row('two') !== undefined").await;
}

#[tokio::test]
async fn of_a_thousand_clients_the_busiest_are_there() {
    let flags = ["--capacity", "5000", "--cycle", "5s"];
    let flags = [&flags[..], &["--early-cycles", "off"]].concat();
    let shop = Shop::open(&flags, &[]);
    let mut client = shop.sidecar.client();
    for number in 0..1_000 {
        client.get("/", &format!("client-{number}"));
    }
    for number in 500..520 {
        shop.set(&format!("client-{number}"), 3);
    }
    let browser = page(&shop.sidecar, WIDE).await;
    let busiest = "[...Array(20).keys()].every((number) => row(`client-${500 + number}`))";
    shows(&browser, busiest).await;
    let fifty = "document.querySelectorAll('[data-client]').length === 50";
    shows(&browser, fifty).await;
    let note = browser
        .eval("document.getElementById('note').textContent")
        .await;
    let expected = "The 50 busiest of 1,000 clients. The sums count all of them.";
    assert_eq!(note, expected);
}

/// The pictures are in `target/tmp/page`. They are for people.
#[tokio::test]
async fn the_page_fits_a_telephone_and_a_desk() {
    let demands = [
        ("catalog", 3),
        ("cart", 15),
        ("campaign-of-the-black-week-2026", 50),
        ("search", 10),
        ("<b>bold</b>", 1),
    ];
    let shop = Shop::open(&FORTY, &demands);
    for width in [360, 1280] {
        for is_dark in [false, true] {
            let look = Look { width, is_dark };
            let browser = page(&shop.sidecar, look).await;
            let borrows = "number('campaign-of-the-black-week-2026', 'borrowed') > 0";
            shows(&browser, borrows).await;
            let scheme = "matchMedia('(prefers-color-scheme: dark)').matches";
            assert_eq!(browser.eval(scheme).await, is_dark);
            assert_eq!(browser.eval("innerWidth").await, width, "{look:?}");
            let wide = browser.eval("document.documentElement.scrollWidth").await;
            assert_eq!(wide, width, "{look:?} has to be scrolled sideways");
            let colour = if is_dark { "dark" } else { "light" };
            shoot(&browser, &format!("{width}-{colour}")).await;
        }
    }
}
