//! The live page, in a real browser without a window.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::browser::{Browser, Look};

use super::client::{Client, scrape};
use super::support::Sidecar;
use super::upstream;

const WIDE: Look = Look {
    width: 1280,
    is_dark: false,
};

const FORTY: [&str; 4] = ["--capacity", "40", "--cycle", "1s"];

/// A browser in front of a sidecar.
struct Page(Browser);

const PRELUDE: &str = "const state = () => document.getElementById('state').textContent; \
     const row = (client) => [...document.querySelectorAll('[data-client]')].find((row) => row.dataset.client === client); \
     const number = (client, of) => Number(row(client)?.querySelector(`[data-label=${of}]`).textContent.replaceAll(',', '')); \
     const part = (client, name) => row(client)?.querySelector(`.track .${name}`); \
     const width = (client, name) => part(client, name)?.hidden ? 0 : part(client, name)?.getBoundingClientRect().width;";

impl Page {
    /// With the page of this sidecar in it, connected.
    async fn at(sidecar: &Sidecar, look: Look) -> Self {
        let page = Self(Browser::open(look, PRELUDE).await);
        page.go(sidecar.admin).await;
        page
    }

    async fn go(&self, admin: SocketAddr) {
        self.0.go(&format!("http://{admin}/")).await;
        self.until("live", "state() === 'live'").await;
    }

    async fn eval(&self, expression: &str) -> Value {
        self.0.eval(expression).await
    }

    async fn until(&self, what: &str, expression: &str) {
        self.0.until(what, expression).await;
    }

    /// Writes what it looks like to a file of the target directory, to be looked at.
    async fn shoot(&self, name: &str) {
        self.0
            .shoot(concat!(env!("CARGO_TARGET_TMPDIR"), "/page"), name)
            .await;
    }
}

/// A sidecar with clients that send this many requests in each cycle, as long as it lives.
struct Shop {
    sidecar: Sidecar,
    demands: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl Shop {
    fn open(flags: &[&str], demands: &[(&str, u32)]) -> Self {
        let sidecar = Sidecar::start(upstream::hello(), flags);
        let demands = demands
            .iter()
            .map(|&(client, demand)| (client.to_owned(), demand));
        let demands = Arc::new(Mutex::new(demands.collect()));
        let shop = Self { sidecar, demands };
        shop.drive();
        shop
    }

    fn set(&self, client: &str, demand: u32) {
        self.demands
            .lock()
            .unwrap()
            .insert(client.to_owned(), demand);
    }

    /// Sends the requests of a cycle at its start. It ends with the sidecar.
    fn drive(&self) {
        let (listen, admin) = (self.sidecar.listen, self.sidecar.admin);
        let demands = Arc::clone(&self.demands);
        thread::spawn(move || {
            let mut operator = Client::connect(admin);
            let mut last = None;
            while let Ok(answer) = operator.send("GET", "/clients", &[], b"") {
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
                        if requests.send("GET", "/", &headers, b"").is_err() {
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
    let shop = Shop::open(
        &FORTY,
        &[
            ("catalog", 3),
            ("cart", 10),
            ("campaign", 10),
            ("search", 10),
        ],
    );
    let browser = Page::at(&shop.sidecar, WIDE).await;
    browser
        .until(
            "four clients",
            "['catalog', 'cart', 'campaign', 'search'].every(row)",
        )
        .await;
    let calm = "number('campaign', 'demand') === 10 && width('campaign', 'borrowed') === 0";
    browser.until("campaign needs its default", calm).await;
    assert_eq!(browser.eval("number('campaign', 'size')").await, 10);

    shop.set("campaign", 50);
    let spike = "number('campaign', 'demand') === 50 && number('campaign', 'borrowed') === 7 && number('campaign', 'size') === 17";
    browser.until("campaign borrows", spike).await;
    let lent = "number('catalog', 'lent') === 7 && width('catalog', 'lent') > 0";
    browser.until("catalog lends", lent).await;
    browser.until("its bar is longer", "width('campaign', 'borrowed') > 0 && width('campaign', 'size') > width('catalog', 'size')").await;
    browser
        .until("it is refused", "number('campaign', 'refused') === 33")
        .await;
    assert_eq!(
        browser.eval("part('campaign', 'demand').className").await,
        "demand beyond"
    );
    assert_eq!(
        browser
            .eval("document.getElementById('capacity').textContent")
            .await,
        "40 in 1 s"
    );

    shop.set("campaign", 10);
    browser.until("campaign gives back", calm).await;
}

#[tokio::test]
async fn the_name_of_a_client_stays_text() {
    let image = "<img/src=x/onerror=document.title='owned'>";
    let script = "<script>document.title='owned'</script>";
    let quotes = "\"'`&lt;\\u003c${document.title='owned'}";
    let shop = Shop::open(
        &FORTY,
        &[(image, 1), (script, 1), (quotes, 1), ("__proto__", 1)],
    );
    let browser = Page::at(&shop.sidecar, WIDE).await;
    for name in [image, script, quotes, "__proto__"] {
        let expression = format!(
            "row({0})?.querySelector('th').textContent === {0}",
            json!(name)
        );
        browser.until(name, &expression).await;
    }
    // The icon is in the head.
    assert_eq!(browser.eval("document.images.length").await, 0);
    assert_eq!(browser.eval("document.scripts.length").await, 1);
    assert_eq!(browser.eval("document.title").await, "paceline");
}

#[tokio::test]
async fn nothing_is_asked_of_another_origin() {
    let shop = Shop::open(&FORTY, &[("one", 1)]);
    let browser = Page::at(&shop.sidecar, WIDE).await;
    browser.until("a client", "row('one') !== undefined").await;
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
    let shop = Shop::open(&FORTY, &[]);
    let browser = Browser::open(WIDE, PRELUDE).await;
    let admin = shop.sidecar.admin;
    let is_enforced = || scrape(admin).contains("paceline_mode{mode=\"enforce\"} 1");
    // For the browser, the address and the name are two sites.
    let other = format!("http://localhost:{}/", upstream::hello().port());
    browser.go(&other).await;
    let types = ["application/x-www-form-urlencoded", "text/plain", ""];
    for content_type in types {
        let sent = format!(
            "fetch('http://{admin}/mode', {{ method: 'POST', mode: 'no-cors', body: 'mode=off', \
             headers: {{ 'content-type': '{content_type}' }} }}).then(() => 'done', () => 'done')"
        );
        assert_eq!(browser.eval(&sent).await, "done", "{content_type}");
        assert!(is_enforced(), "{content_type}");
    }
    let asked = format!(
        "fetch('http://{admin}/mode', {{ method: 'POST', body: '{{\"mode\":\"off\"}}', \
         headers: {{ 'content-type': 'application/json' }} }}).then(() => 'sent', (error) => error.name)"
    );
    assert_eq!(browser.eval(&asked).await, "TypeError");
    assert!(is_enforced());
    let form = format!(
        "document.body.innerHTML = '<form method=post action=http://{admin}/mode><input name=mode value=off></form>', \
         document.forms[0].submit()"
    );
    browser.eval(&form).await;
    browser
        .until("refused", "document.body.textContent.includes('403')")
        .await;
    assert!(is_enforced());
}

#[tokio::test]
async fn the_page_says_when_it_is_disconnected_and_connects_again() {
    let mut shop = Shop::open(&FORTY, &[("one", 1)]);
    let browser = Page::at(&shop.sidecar, WIDE).await;
    browser.until("a client", "row('one') !== undefined").await;
    let (listen, admin) = (
        shop.sidecar.listen.to_string(),
        shop.sidecar.admin.to_string(),
    );
    shop.sidecar.send(Signal::KILL);
    shop.sidecar.ended();
    browser
        .until("disconnected", "state().startsWith('disconnected')")
        .await;
    browser.shoot("1280-disconnected").await;

    let upstream = format!("http://{}", upstream::hello());
    let again = Sidecar::run(&[
        "--listen",
        &listen,
        "--admin",
        &admin,
        "--upstream",
        &upstream,
        "--capacity",
        "40",
        "--cycle",
        "1s",
    ]);
    browser.until("live again", "state() === 'live'").await;
    browser
        .until("no client yet", "row('one') === undefined")
        .await;
    let answer = Client::connect(again.listen).get("/", "two");
    assert_eq!(answer.status, 200);
    browser
        .until("the new client", "row('two') !== undefined")
        .await;
}

#[tokio::test]
async fn of_a_thousand_clients_the_busiest_are_there() {
    let shop = Shop::open(
        &[
            "--capacity",
            "5000",
            "--early-cycles",
            "off",
            "--cycle",
            "5s",
        ],
        &[],
    );
    let mut client = Client::connect(shop.sidecar.listen);
    for number in 0..1_000 {
        client.get("/", &format!("client-{number}"));
    }
    for number in 500..520 {
        shop.set(&format!("client-{number}"), 3);
    }
    let browser = Page::at(&shop.sidecar, WIDE).await;
    let busiest = "[...Array(20).keys()].every((number) => row(`client-${500 + number}`))";
    browser.until("the busiest", busiest).await;
    browser
        .until(
            "fifty",
            "document.querySelectorAll('[data-client]').length === 50",
        )
        .await;
    let note = "document.getElementById('note').textContent";
    assert_eq!(
        browser.eval(note).await,
        "The 50 busiest of 1,000 clients. The sums count all of them."
    );
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
            let browser = Page::at(&shop.sidecar, look).await;
            browser
                .until(
                    "a client borrows",
                    "number('campaign-of-the-black-week-2026', 'borrowed') > 0",
                )
                .await;
            let scheme = "matchMedia('(prefers-color-scheme: dark)').matches";
            assert_eq!(browser.eval(scheme).await, is_dark);
            assert_eq!(browser.eval("innerWidth").await, width, "{look:?}");
            let wide = browser.eval("document.documentElement.scrollWidth").await;
            assert_eq!(wide, width, "{look:?} has to be scrolled sideways");
            let colour = if is_dark { "dark" } else { "light" };
            browser.shoot(&format!("{width}-{colour}")).await;
        }
    }
}
