//! The live page, in a real browser without a window.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{fs, thread};

use fantoccini::wd::Capabilities;
use fantoccini::{ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tokio::time::interval;

use super::client::{Client, scrape};
use super::support::{PATIENCE, Sidecar};
use super::upstream;

/// What a browser looks like to the page.
#[derive(Clone, Copy, Debug)]
struct Look {
    width: u32,
    is_dark: bool,
}

const WIDE: Look = Look {
    width: 1280,
    is_dark: false,
};

const FORTY: [&str; 4] = ["--capacity", "40", "--cycle", "1s"];

/// A browser with the driver that moves it. Both end when it is dropped.
struct Browser {
    page: fantoccini::Client,
    // Dropped last.
    _driver: Driver,
}

struct Driver {
    child: Child,
    address: String,
}

impl Driver {
    /// It takes a free port for two families of addresses, and ends when another program was quicker.
    fn start() -> Self {
        let tries = (0..10).find_map(|_| Self::try_start());
        tries.expect("chromedriver says on which port it listens")
    }

    fn try_start() -> Option<Self> {
        let child = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // The browser is in the group too.
            .process_group(0)
            .spawn();
        let child = child.expect("chromedriver starts: it is in Debian's package chromium-driver");
        let mut driver = Self {
            child,
            address: String::new(),
        };
        let mut lines = BufReader::new(driver.child.stdout.take().unwrap()).lines();
        let port = lines.find_map(|line| {
            let line = line.unwrap();
            let port = line.split_once("started successfully on port ")?.1;
            Some(port.trim_end_matches('.').to_owned())
        })?;
        thread::spawn(move || lines.for_each(drop));
        driver.address = format!("http://127.0.0.1:{port}");
        Some(driver)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Browser {
    async fn open(look: Look) -> Self {
        let driver = Driver::start();
        let Look { width, is_dark } = look;
        let mut arguments = vec![
            "--headless=new".to_owned(),
            "--no-sandbox".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--hide-scrollbars".to_owned(),
            format!("--window-size={width},900"),
        ];
        if is_dark {
            arguments.push("--blink-settings=preferredColorScheme=0".to_owned());
        }
        let mut options = json!({ "args": arguments });
        if width < 500 {
            // No window is as narrow as a telephone.
            let metrics = json!({ "width": width, "height": 900, "pixelRatio": 1.5 });
            options["mobileEmulation"] = json!({ "deviceMetrics": metrics });
        }
        let mut capabilities = Capabilities::new();
        capabilities.insert("goog:chromeOptions".to_owned(), options);
        let page = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities)
            .connect(&driver.address)
            .await
            .expect("chromium starts: it is in Debian's package chromium");
        Self {
            page,
            _driver: driver,
        }
    }

    /// With the page of this sidecar in it, connected.
    async fn at(sidecar: &Sidecar, look: Look) -> Self {
        let browser = Self::open(look).await;
        browser.go(sidecar.admin).await;
        browser
    }

    async fn go(&self, admin: SocketAddr) {
        self.page.goto(&format!("http://{admin}/")).await.unwrap();
        self.until("live", "state() === 'live'").await;
    }

    /// What this expression is in the page.
    async fn eval(&self, expression: &str) -> Value {
        let script = format!(
            "const state = () => document.getElementById('state').textContent; \
             const row = (client) => [...document.querySelectorAll('[data-client]')].find((row) => row.dataset.client === client); \
             const number = (client, of) => Number(row(client)?.querySelector(`[data-label=${{of}}]`).textContent.replaceAll(',', '')); \
             const part = (client, name) => row(client)?.querySelector(`.track .${{name}}`); \
             const width = (client, name) => part(client, name)?.hidden ? 0 : part(client, name)?.getBoundingClientRect().width; \
             return {expression};"
        );
        self.page.execute(&script, vec![]).await.unwrap()
    }

    /// Waits until the expression holds.
    async fn until(&self, what: &str, expression: &str) {
        let start = Instant::now();
        let mut looks = interval(Duration::from_millis(50));
        while self.eval(expression).await != Value::Bool(true) {
            let text = self.text().await;
            assert!(start.elapsed() < PATIENCE, "never {what}:\n{text}");
            looks.tick().await;
        }
    }

    async fn text(&self) -> String {
        let body = self.page.find(Locator::Css("body")).await.unwrap();
        body.text().await.unwrap()
    }

    /// Writes what it looks like to a file of the target directory, to be looked at.
    async fn shoot(&self, name: &str) {
        let picture = self.page.screenshot().await.unwrap();
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("page");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{name}.png")), picture).unwrap();
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
    let browser = Browser::at(&shop.sidecar, WIDE).await;
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
    let browser = Browser::at(&shop.sidecar, WIDE).await;
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
    let browser = Browser::at(&shop.sidecar, WIDE).await;
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
    let browser = Browser::open(WIDE).await;
    let admin = shop.sidecar.admin;
    let is_enforced = || scrape(admin).contains("paceline_mode{mode=\"enforce\"} 1");
    // For the browser, the address and the name are two sites.
    let other = format!("http://localhost:{}/", upstream::hello().port());
    browser.page.goto(&other).await.unwrap();
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
    let browser = Browser::at(&shop.sidecar, WIDE).await;
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
    let browser = Browser::at(&shop.sidecar, WIDE).await;
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
            let browser = Browser::at(&shop.sidecar, look).await;
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
