//! The page of `docs/playground`: the tests build it, and try what it shows in a browser.
//!
//! Without the target of WebAssembly nothing is tried, and a message says so.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::OnceLock;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use playground::answer;
use serde_json::{Value, json};
use testkit::browser::{Browser, Look};

const TEMPLATE: &str = include_str!("../page.html");

const TARGET: &str = "wasm32-unknown-unknown";

const DESK: Look = Look {
    width: 1000,
    is_dark: false,
};

/// The page of these sources. `None` if it cannot be built here.
fn page() -> Option<&'static Path> {
    static PAGE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let page = PAGE.get_or_init(|| {
        if has_target() {
            return Some(build());
        }
        // Not `eprintln`, which the harness shows for failed tests only.
        let missing = format!(
            "\nthe page of the playground WAS NOT TRIED: run `rustup target add {TARGET}`\n"
        );
        io::stderr().write_all(missing.as_bytes()).unwrap();
        None
    });
    page.as_deref()
}

fn has_target() -> bool {
    let library = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", TARGET])
        .output()
        .unwrap();
    Path::new(String::from_utf8(library.stdout).unwrap().trim()).is_dir()
}

fn build() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("..");
    let built = Command::new(env!("CARGO"))
        .current_dir(&root)
        .args(["build", "--quiet", "--package=playground", "--lib"])
        .args(["--profile=page", "--target", TARGET, "--target-dir"])
        .arg(&target)
        .status()
        .unwrap();
    assert!(built.success(), "the library is built for {TARGET}");
    let module = fs::read(target.join(TARGET).join("page/playground.wasm")).unwrap();
    assert!(module.starts_with(b"\0asm"), "it is WebAssembly");
    let module = format!("atob('{}')", BASE64_STANDARD.encode(module));
    let page = root.join("docs/playground/index.html");
    fs::create_dir_all(page.parent().unwrap()).unwrap();
    // Another process may read the page now.
    let written = page.with_extension(process::id().to_string());
    fs::write(&written, TEMPLATE.replacen("atob('WASM')", &module, 1)).unwrap();
    fs::rename(written, &page).unwrap();
    page
}

#[test]
fn the_page_is_built_from_these_sources() {
    let Some(page) = page() else { return };
    let text = fs::read_to_string(page).unwrap();
    let (before, rest) = text.split_once("atob('").unwrap();
    let (module, after) = rest.split_once("')").unwrap();
    let module = BASE64_STANDARD.decode(module).unwrap();
    let name = b"play";
    assert!(
        module.windows(name.len()).any(|part| part == name),
        "the page calls it"
    );
    assert_eq!(format!("{before}atob('WASM'){after}"), TEMPLATE);
}

const PRELUDE: &str = "const cells = () => [...document.querySelectorAll('#sums tr')].map((tr) => [...tr.children].map((cell) => cell.textContent)); \
     const text = (id) => document.getElementById(id).textContent; \
     const count = (kind) => document.querySelectorAll(`circle.${kind}`).length; \
     const click = (element, part) => { const box = element.getBoundingClientRect(); \
       element.dispatchEvent(new MouseEvent('click', { bubbles: true, clientX: box.left + box.width * part, clientY: box.top + 1 })); return true; }; \
     const choose = (id, value, event) => { const input = document.getElementById(id); input.value = value; \
       input.dispatchEvent(new Event(event, { bubbles: true })); return true; };";

async fn open(look: Look, hash: &str) -> Option<Browser> {
    let page = page()?;
    let browser = Browser::open(look, PRELUDE).await;
    let file = fs::canonicalize(page).unwrap();
    browser
        .go(&format!("file://{}#{hash}", file.display()))
        .await;
    let ready = "document.documentElement.dataset.ready === ''";
    browser.until("ready", ready).await;
    Some(browser)
}

/// What the table of sums should show.
fn sums(policy: &str, limit: u64, window: u64, arrivals: &[u64]) -> Value {
    let times: Vec<String> = arrivals.iter().map(u64::to_string).collect();
    let answer = answer(&format!("{policy}\n{window}\n{}", times.join(",")));
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let decided = answer["passes"].as_array().unwrap().iter();
    let at_once = arrivals.iter().zip(decided);
    let at_once = at_once.filter(|(_, passes)| **passes == json!(true));
    let at_once: Vec<u64> = at_once.map(|(at, _)| *at).collect();
    let seconds = |millis: f64| format!("{:.3} s", millis / 1e3);
    #[expect(clippy::cast_precision_loss, reason = "a few seconds")]
    let of_whole = |at: u64| seconds(at as f64);
    let most = |of: &str| {
        let most = answer["most"][of].as_u64().unwrap();
        match most.checked_sub(limit) {
            Some(beyond @ 1..) => format!("{most}, {beyond} too many"),
            _ => most.to_string(),
        }
    };
    let paced = answer["paced"].as_array().unwrap();
    let last = paced.last().unwrap().as_f64().unwrap();
    let [all, few] = [arrivals.len(), at_once.len()];
    json!([
        [
            "without a limit",
            all.to_string(),
            "0",
            of_whole(*arrivals.last().unwrap()),
            most("arrivals")
        ],
        [
            "pace: it waits",
            all.to_string(),
            "0",
            seconds(last),
            most("paced")
        ],
        [
            "enforce: it is refused",
            few.to_string(),
            (all - few).to_string(),
            of_whole(*at_once.last().unwrap()),
            most("passed")
        ],
    ])
}

#[tokio::test]
async fn the_page_shows_of_every_policy_what_the_library_decides() {
    let arrivals = [
        0, 0, 0, 0, 0, 0, 20, 30, 700, 790, 810, 815, 820, 1_590, 1_610, 2_400,
    ];
    let at: Vec<String> = arrivals.iter().map(u64::to_string).collect();
    let Some(browser) = open(DESK, "").await else {
        return;
    };
    for (kind, policy) in [
        ("log", "4/800ms"),
        ("strict", "4/800ms sliding 10 buckets"),
        ("smooth", "4/800ms smooth"),
        ("bucket", "4/800ms burst 3"),
        ("interval", "every 200000us"),
        ("fixed", "4/800ms fixed"),
    ] {
        let hash = format!("limit=4&window=800&burst=3&kind={kind}&at={}", at.join(","));
        browser
            .eval(&format!("(location.hash = '{hash}', true)"))
            .await;
        let shown = format!("text('code').includes('\"{policy}\"')");
        browser.until(policy, &shown).await;
        let expected = sums(policy, 4, 800, &arrivals);
        assert_eq!(browser.eval("cells()").await, expected, "{policy}");
        assert_eq!(browser.eval("count('arrival')").await, arrivals.len());
        assert_eq!(browser.eval("text('error')").await, "");
    }
    let code = "text('code').startsWith('calls.pace(FixedWindow::new(4, Duration::from_millis(800)).owned())')";
    assert_eq!(browser.eval(code).await, true);
}

#[tokio::test]
async fn a_click_adds_an_arrival_or_takes_it_away_and_the_address_remembers() {
    let Some(browser) = open(DESK, "limit=2&window=1000&kind=log&at=").await else {
        return;
    };
    assert_eq!(browser.eval("count('arrival')").await, 0);
    for part in [0.2, 0.2, 0.2, 0.6] {
        let click = format!("click(document.getElementById('touch'), {part})");
        browser.eval(&click).await;
    }
    let times = "new URLSearchParams(location.hash.slice(1)).get('at').split(',').map(Number)";
    let times: Vec<f64> = serde_json::from_value(browser.eval(times).await).unwrap();
    // A click is on a pixel.
    let near = |(time, expected): (&f64, f64)| (time - expected).abs() < 10.0;
    let expected = [1e3, 1e3, 1e3, 3e3];
    assert!(
        times.len() == 4 && times.iter().zip(expected).all(near),
        "{times:?}"
    );
    assert_eq!(
        browser.eval("[1, 2, 4].map((n) => cells()[1][n])").await,
        json!(["4", "0", "2"])
    );
    assert_eq!(
        browser.eval("cells()[2].slice(1, 3)").await,
        json!(["3", "1"])
    );
    assert_eq!(browser.eval("count('refused')").await, 1);

    browser
        .eval("click(document.querySelector('circle.arrival'), .5)")
        .await;
    assert_eq!(browser.eval("count('arrival')").await, 3);
    assert_eq!(browser.eval("count('refused')").await, 0);

    browser.eval("choose('limit', 1, 'input')").await;
    assert_eq!(browser.eval("cells()[0][4]").await, "2, 1 too many");
    browser.eval("choose('kind', 'bucket', 'change')").await;
    assert_eq!(
        browser
            .eval("text('code').includes('TokenBucket::new')")
            .await,
        true
    );
    browser.eval("choose('preset', 'burst', 'change')").await;
    assert_eq!(browser.eval("count('arrival')").await, 30);
}

#[tokio::test]
async fn an_address_with_nonsense_keeps_what_makes_no_sense_as_it_was() {
    let nonsense = "limit=abc&window=-5&burst=1e9&kind=__proto__&at=7,NaN,-1,99999,x,900";
    let Some(browser) = open(DESK, nonsense).await else {
        return;
    };
    let shown = "[text('limit-is'), text('window-is'), text('burst-is'), document.getElementById('kind').value, count('arrival')]";
    assert_eq!(
        browser.eval(shown).await,
        json!(["10", "0.2 s", "30", "log", 2])
    );
    assert_eq!(browser.eval("text('error')").await, "");
}

#[tokio::test]
async fn nothing_is_loaded_from_elsewhere_and_nothing_could_be() {
    let Some(browser) = open(DESK, "").await else {
        return;
    };
    let asked = "performance.getEntriesByType('resource').length";
    assert_eq!(browser.eval(asked).await, 0);
    let violation = "new Promise((done) => { addEventListener('securitypolicyviolation', (event) => done(event.effectiveDirective)); \
         fetch('https://example.com/').catch(() => undefined); })";
    assert_eq!(browser.eval(violation).await, "connect-src");
    let text = fs::read_to_string(page().unwrap()).unwrap();
    let urls = text.matches("http").count() - text.matches("http-equiv").count();
    assert_eq!(urls, 1, "the name of SVG only");
}

/// The pictures are in `target/tmp/playground`. They are for people.
#[tokio::test]
async fn the_page_fits_a_telephone_and_a_desk() {
    for (width, is_dark) in [(360, false), (1000, false), (1000, true)] {
        let Some(browser) = open(Look { width, is_dark }, "kind=bucket").await else {
            return;
        };
        let wide = browser
            .eval("document.documentElement.scrollWidth <= innerWidth")
            .await;
        assert_eq!(wide, true, "{width} has to be scrolled sideways");
        let scheme = "matchMedia('(prefers-color-scheme: dark)').matches";
        assert_eq!(browser.eval(scheme).await, is_dark);
        let folder = concat!(env!("CARGO_TARGET_TMPDIR"), "/playground");
        browser.shoot(folder, &format!("{width}-{is_dark}")).await;
    }
}
