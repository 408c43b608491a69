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
use futures::{Stream, StreamExt, stream};
use paceline::config::ConfigError;
use playground::answer;
use serde_json::{Value, json};
use testkit::browser::{Browser, Look};

const TEMPLATE: &str = include_str!("../page.html");

const TARGET: &str = "wasm32-unknown-unknown";

const DESK: Look = look(1280);
const PHONE: Look = look(390);

const fn look(width: u32) -> Look {
    Look {
        width,
        is_dark: false,
    }
}

/// Each kind of policy with the text of 4 in 800 ms.
const KINDS: [(&str, &str); 9] = [
    ("log", "4/800ms"),
    ("strict", "4/800ms sliding 10 buckets"),
    ("smooth", "4/800ms smooth"),
    ("bucket", "4/800ms burst 3"),
    ("interval", "every 200ms"),
    ("fixed", "4/800ms fixed"),
    ("aligned", "4/800ms aligned"),
    ("margin", "4/800ms margin 80ms"),
    ("all", "4/800ms and 6/2400ms"),
];

const REQUESTS: [&str; 6] = ["edge", "burst", "twice", "steady", "random", "none"];

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

const PRELUDE: &str = "
    const all = (selector) => [...document.querySelectorAll(selector)];
    const fields = document.getElementById('form').elements;
    const text = (id) => document.getElementById(id).textContent;
    const rows = () => all('figcaption').map((caption) => [...caption.children].map((line) => line.textContent));
    const errors = () => ['at', 'a', 'b'].map((name) => text(`${name}-error`));
    const count = (kind) => all(`rect.${kind}`).length;
    const is_seen = (element) => element.getClientRects().length > 0;
    const click = (element, part) => { const box = element.getBoundingClientRect();
      element.dispatchEvent(new MouseEvent('click', { bubbles: true, clientX: box.left + box.width * part, clientY: box.top + 1 })); };
    const choose = (name, value) => { fields[name].value = value;
      for (const event of ['input', 'change']) fields[name].dispatchEvent(new Event(event, { bubbles: true })); };
    const go = (hash) => new Promise((done) => { addEventListener('hashchange', done, { once: true }); location.hash = `${hash}&${Math.random()}`; });
    const line = (svg) => [...svg.querySelector('.count').getAttribute('d').matchAll(/H([\\d.]+)V([\\d.]+)/g)].map(([, x, y]) => [Number(x), Number(y)]);
    ";

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

/// What this expression is after the page has gone to an address.
async fn at(browser: &Browser, hash: &str, expression: &str) -> Value {
    browser
        .eval(&format!("go('{hash}').then(() => {expression})"))
        .await
}

/// The captions that this policy should have.
fn captions(policy: &str, limit: u64, window: u32, arrivals: &[u64]) -> [[String; 2]; 3] {
    let micros: Vec<String> = arrivals.iter().map(|ms| (ms * 1_000).to_string()).collect();
    let question = format!("{policy}\n{window}000\n{}", micros.join(","));
    let answer: Value = serde_json::from_str(&answer(&question)).unwrap();
    let most = |of: &str| {
        let most = answer["most"][of].as_u64().unwrap();
        let seconds = f64::from(window) / 1e3;
        match most.checked_sub(limit) {
            Some(beyond @ 1..) => format!("{most} in {seconds} s, {beyond} too many"),
            _ => format!("at most {most} in {seconds} s"),
        }
    };
    let last = answer["paced"].as_array().unwrap().last().unwrap();
    let last = (last.as_f64().unwrap() / 1e3).round() / 1e3;
    let decided = answer["passes"].as_array().unwrap().iter();
    let passed = decided.filter(|passes| **passes == json!(true)).count();
    let [count, refused] = [arrivals.len(), arrivals.len() - passed];
    [
        [format!("Requests: {count}"), most("arrivals")],
        [
            format!("Waiting (pace): {count} pass, the last at {last} s"),
            most("paced"),
        ],
        [
            format!("Refusing (enforce): {passed} pass, {refused} refused"),
            most("passed"),
        ],
    ]
}

#[tokio::test]
async fn the_page_shows_of_every_policy_what_the_library_decides() {
    let arrivals = [
        0, 0, 0, 0, 0, 0, 20, 30, 700, 790, 810, 815, 820, 1_590, 1_610, 2_400,
    ];
    let Some(browser) = open(DESK, "").await else {
        return;
    };
    let times = "requests=own&at=0x6,20,30,700,790,810,815,820,1590,1610,2400";
    for (number, (kind, policy)) in KINDS.into_iter().enumerate() {
        let (other, another) = KINDS[(number + 1) % KINDS.len()];
        let hash = format!("limit=4&window=800&a-burst=3&b-burst=3&a={kind}&b={other}&{times}");
        let shown = at(&browser, &hash, "[rows(), errors(), count('arrival')]").await;
        let [requests, waiting, refusing] = captions(policy, 4, 800, &arrivals);
        let [_, next_waiting, next_refusing] = captions(another, 4, 800, &arrivals);
        let rows = [requests, waiting, refusing, next_waiting, next_refusing];
        assert_eq!(shown, json!([rows, ["", "", ""], 16]), "{policy}");
        let headings = browser.eval("all('h2').map((h2) => h2.textContent)").await;
        assert_eq!(headings, json!([policy, another]));
    }
}

/// The code of the page, which has the text of the policy that is shown.
async fn shown_code(calls: impl Stream<Item = u32>) -> Result<Vec<u32>, ConfigError> {
    use paceline::{policy::AnyPolicy, prelude::*};

    let policy: AnyPolicy = "10/s fixed".parse()?;
    // pace waits, and enforce refuses.
    let calls = calls.pace(policy.owned());
    Ok(calls.collect().await)
}

#[tokio::test(start_paused = true)]
async fn the_code_on_the_page_runs_and_its_policy_is_that_of_the_page() {
    use paceline::{policy::AnyPolicy, prelude::*};

    let calls = shown_code(stream::iter(0..12)).await.unwrap();
    assert_eq!(calls.len(), 12);
    let policy: AnyPolicy = "10/s fixed".parse().unwrap();
    let calls = stream::iter(0..12).enforce(policy.owned());
    assert_eq!(
        calls
            .filter(|call| std::future::ready(call.is_ok()))
            .count()
            .await,
        10
    );
}

/// The code for two tenants.
async fn shown_code_for_tenants() -> Result<(), ConfigError> {
    use paceline::{limiter::FairQueue, policy::AnyPolicy};

    let policy: AnyPolicy = "10/s fixed".parse()?;
    // with_weights sets how many turns a tenant has.
    let provider = FairQueue::new(policy);
    provider.acquire_one("ann").await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn the_code_for_two_tenants_runs() {
    shown_code_for_tenants().await.unwrap();
}

#[tokio::test]
async fn the_code_on_the_page_is_code_that_compiles_with_a_policy_that_parses() {
    let Some(browser) = open(DESK, "").await else {
        return;
    };
    let trimmed = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let compiled = trimmed(include_str!("page.rs"));
    let texts = [("own", "10/s and 20/min burst 3")];
    let cases = KINDS.into_iter().chain(texts);
    for ((kind, policy), bob) in cases.flat_map(|case| [(case, ""), (case, "100")]) {
        let hash =
            format!("limit=4&window=800&a-burst=3&a={kind}&a-text={policy}&b=none&bob={bob}");
        let code = at(
            &browser,
            &hash,
            "all('pre').map((code) => code.textContent)",
        )
        .await;
        let [code] = &code.as_array().unwrap()[..] else {
            panic!("one policy")
        };
        let code = code.as_str().unwrap();
        let literal = format!("\"{policy}\"");
        assert_eq!(code.matches(&literal).count(), 1, "{code}");
        let code = trimmed(&code.replace(&literal, "\"10/s fixed\""));
        assert!(compiled.contains(&code), "{code}");
        assert!(policy.parse::<paceline::policy::AnyPolicy>().is_ok());
    }
    for (rate, hash) in [
        ("10/s", "window=1000"),
        ("7/2s", "limit=7&window=2000"),
        ("1/200ms", "limit=1&window=200"),
        ("every 333334us", "limit=3&a=interval"),
        ("every 1s", "limit=1&a=interval"),
    ] {
        let hash = format!("{hash}&a=log&b=none");
        assert_eq!(at(&browser, &hash, "fields['a-text'].value").await, rate);
        assert_eq!(browser.eval("errors().join('')").await, "");
    }
}

#[tokio::test]
async fn a_slider_for_a_burst_is_seen_only_where_the_policy_has_one() {
    let Some(browser) = open(DESK, "").await else {
        return;
    };
    for (kind, _) in KINDS {
        let hash = format!("a={kind}&b={kind}");
        let seen = "[fields['a-burst'], fields['b-burst'], fields['b-text']].map(is_seen)";
        let has_burst = kind == "bucket";
        let expected = json!([has_burst, has_burst, true]);
        assert_eq!(at(&browser, &hash, seen).await, expected, "{kind}");
    }
    let seen = "[fields['a-burst'], fields['b-burst'], fields['b-text']].map(is_seen)";
    let one = at(&browser, "a=bucket&b=none", seen).await;
    assert_eq!(one, json!([true, false, false]));
    let text = at(&browser, "a=bucket&a-burst=7&b=none", "text('a-burst-is')").await;
    assert_eq!(text, "7");
}

#[tokio::test]
async fn every_request_is_a_mark_of_its_own() {
    for look in [DESK, PHONE] {
        let Some(browser) = open(look, "").await else {
            return;
        };
        let boxes = "all('figure').slice(0, 3).map((figure) => {
            const frame = figure.querySelector('svg').getBoundingClientRect();
            const marks = [...figure.querySelectorAll('.arrival, .mark, .refused')].map((mark) => mark.getBoundingClientRect());
            const is_inside = (mark) => mark.top >= frame.top && mark.left >= frame.left && mark.right <= frame.right;
            const is_large = (mark) => mark.height >= 1 && mark.width >= 5;
            const is_apart = (one, other) => one.bottom <= other.top + .01 || other.bottom <= one.top + .01 || one.right <= other.left + .01 || other.right <= one.left + .01;
            return [marks.length, marks.every(is_inside), marks.every(is_large), marks.every((one, n) => marks.slice(0, n).every((other) => is_apart(one, other)))]; })";
        for (hash, marks, refused) in [
            ("requests=burst&limit=10&a=log", [30, 30, 30], 20),
            ("requests=burst&limit=30&a=log", [90, 90, 90], 60),
            ("requests=twice&limit=10&a=log", [80, 51, 80], 40),
            ("requests=edge&limit=30&a=aligned", [61, 61, 61], 0),
        ] {
            let expected = marks.map(|count| (count, true, true, true));
            let hash = format!("{hash}&b=none");
            assert_eq!(at(&browser, &hash, boxes).await, json!(expected), "{hash}");
            assert_eq!(browser.eval("count('refused')").await, refused);
        }
    }
}

#[tokio::test]
async fn bursts_at_the_edge_pass_a_fixed_window_and_an_aligned_one_but_no_sliding_log() {
    let Some(browser) = open(DESK, "").await else {
        return;
    };
    for (limit, window, seconds) in [(10, 1_000, "1"), (30, 200, "0.2"), (2, 3_000, "3")] {
        for (kind, most) in [
            // Its window begins with a request, which is no longer in the window of the provider.
            ("fixed", 2 * limit - 1),
            ("aligned", 2 * limit),
        ] {
            let hash = format!("requests=edge&limit={limit}&window={window}&a={kind}&b=log");
            let beyond = format!("{most} in {seconds} s, {} too many", most - limit);
            let kept = format!("at most {limit} in {seconds} s");
            let verdicts = at(&browser, &hash, "rows().slice(1).map((row) => row[1])").await;
            assert_eq!(verdicts, json!([beyond, beyond, kept, kept]), "{hash}");
            let shaded =
                "all('#panels svg').map((svg) => svg.querySelectorAll('.over').length > 0)";
            let shaded = browser.eval(shaded).await;
            assert_eq!(shaded, json!([true, true, false, false]), "{hash}");
        }
    }
    // What the page says of the sum, for readers who see no picture.
    let said = at(&browser, "", "text('verdict')").await;
    assert_eq!(
        said,
        "10/s fixed: 19 in 1 s, 9 too many. 10/s: at most 10 in 1 s."
    );
}

#[tokio::test]
async fn the_line_of_counts_has_no_spikes() {
    let Some(browser) = open(DESK, "").await else {
        return;
    };
    // It goes to the right, and a dip is as wide as a mark.
    let is_smooth = "all('svg').every((svg) => {
        const runs = line(svg);
        return runs.every(([x, y], n) => {
            const [before, after] = [runs[n - 1], runs[n + 1]];
            if (n === 0) return true;
            const is_dip = after && y > before[1] && y > after[1];
            return x > before[0] && y !== before[1] && (!is_dip || after[0] - x >= 6); }); })";
    for (kind, _) in KINDS {
        for requests in REQUESTS {
            for limit in [3, 10] {
                let hash = format!("limit={limit}&requests={requests}&a={kind}&b=none");
                assert_eq!(at(&browser, &hash, is_smooth).await, true, "{hash}");
            }
        }
    }
    // The rate of an interval is a little less than 7 a second.
    let turns = "all('svg').map((svg) => { const ys = line(svg).map(([, y]) => y);
        return ys.filter((y, n) => n > 1 && (y - ys[n - 1]) * (ys[n - 1] - ys[n - 2]) < 0).length; })";
    let steady = at(&browser, "limit=7&requests=steady&a=interval&b=none", turns).await;
    assert_eq!(steady, json!([1, 1, 1]), "it rises and falls once");

    // The highest point is the most that the caption has.
    let highest = "all('svg').map((svg) => {
        const [bottom, allowed] = [svg.querySelector('.count').getAttribute('d').split(/[ H]/)[1], svg.querySelector('.contract').getAttribute('y1')];
        return Math.round((bottom - Math.min(...line(svg).map(([, y]) => y))) / (bottom - allowed) * 10); })";
    let fixed = at(&browser, "requests=edge&a=fixed&b=none", highest).await;
    assert_eq!(fixed, json!([20, 19, 19]));
}

#[tokio::test]
async fn a_click_adds_a_request_or_takes_it_away_and_the_address_remembers() {
    let hash = "limit=2&window=1000&a=log&b=none&requests=none";
    let Some(browser) = open(DESK, hash).await else {
        return;
    };
    assert_eq!(browser.eval("count('arrival')").await, 0);
    for part in [0.2, 0.2, 0.2, 0.6] {
        let click = format!("click(all('.touch')[0], {part})");
        browser.eval(&click).await;
    }
    let times = "fields.at.value.split(', ')";
    let times: Vec<String> = serde_json::from_value(browser.eval(times).await).unwrap();
    // A click is on a pixel.
    let near = |text: &str, expected: f64| (text.parse::<f64>().unwrap() - expected).abs() < 10.0;
    let [first, second] = &times[..] else {
        panic!("{times:?}")
    };
    assert!(near(first.strip_suffix("x3").unwrap(), 1e3), "{times:?}");
    assert!(near(second, 3e3), "{times:?}");
    let refusing = "Refusing (enforce): 3 pass, 1 refused";
    assert_eq!(browser.eval("rows()[2][0]").await, refusing);
    assert_eq!(browser.eval("count('refused')").await, 1);

    browser.eval("click(all('.arrival')[0], .5)").await;
    assert_eq!(browser.eval("count('arrival')").await, 3);
    assert_eq!(browser.eval("count('refused')").await, 0);

    let hash = "location.hash.slice(1)";
    let remembered = browser.eval(hash).await.as_str().unwrap().to_owned();
    let again = at(
        &browser,
        &remembered,
        "[fields.at.value, fields.limit.value, rows()]",
    )
    .await;
    let other = open(DESK, &remembered).await.unwrap();
    let opened = other
        .eval("[fields.at.value, fields.limit.value, rows()]")
        .await;
    assert_eq!(again, opened);
    assert_eq!(opened[1], "2");
}

#[tokio::test]
async fn a_choice_fills_in_its_text_and_a_text_is_a_choice_of_its_own() {
    let Some(browser) = open(DESK, "").await else {
        return;
    };
    browser.eval("choose('limit', 4)").await;
    browser.eval("choose('a', 'bucket')").await;
    browser.eval("choose('a-burst', 8)").await;
    browser.eval("choose('requests', 'burst')").await;
    let texts = "[fields['a-text'].value, fields['b-text'].value, fields.at.value]";
    let filled = browser.eval(texts).await;
    assert_eq!(filled, json!(["4/s burst 8", "4/s", "200x12"]));

    browser
        .eval("choose('a-text', ' 4/s  and every 10ms ')")
        .await;
    browser.eval("choose('at', '100x3; 50 4000.6')").await;
    browser.eval("choose('limit', 2)").await;
    let choices = browser
        .eval("[fields.a.value, fields.requests.value]")
        .await;
    assert_eq!(choices, json!(["own", "own"]));
    let waiting = "Waiting (pace): 5 pass, the last at 4.001 s";
    assert_eq!(browser.eval("rows()[1][0]").await, waiting);
    browser.eval("choose('a', 'fixed')").await;
    assert_eq!(browser.eval("fields['a-text'].value").await, "2/s fixed");
}

#[tokio::test]
async fn every_choice_and_every_place_of_a_slider_has_an_answer() {
    let Some(browser) = open(DESK, "b=none").await else {
        return;
    };
    let failed = "[...fields.requests, ...fields.a].flatMap((option) => {
        choose(option.parentNode.name, option.value);
        const failed = [];
        for (const limit of [1, 3, 7, 10, 30]) for (let window = 200; window <= 3000; window += 200) {
            [fields.limit.value, fields.window.value] = [limit, window];
            choose('limit', limit);
            if (errors().join('') || rows().length !== 3) failed.push([option.value, limit, window, errors()]);
        }
        return failed; })";
    assert_eq!(browser.eval(failed).await, json!([]));
}

#[tokio::test]
async fn an_address_with_nonsense_keeps_what_makes_no_sense_as_it_was() {
    let nonsense = "limit=abc&window=-5&a-burst=1e9&a=__proto__&b=constructor&requests=%00&length=1&elements=x&at=7";
    let Some(browser) = open(DESK, nonsense).await else {
        return;
    };
    let names =
        "['limit', 'window', 'a-burst', 'a', 'b', 'requests'].map((name) => fields[name].value)";
    let defaults = json!(["10", "1000", "5", "fixed", "log", "edge"]);
    assert_eq!(browser.eval(names).await, defaults);
    assert_eq!(browser.eval("errors().join('')").await, "");
    let clamped = at(&browser, "limit=999&window=1", names).await;
    assert_eq!(clamped[0], "30");
    assert_eq!(clamped[1], "200");
    let long = format!("a=own&a-text={}", "1/s and ".repeat(9_000));
    assert_eq!(at(&browser, &long, "fields['a-text'].value").await, "");
}

#[tokio::test]
async fn nonsense_in_a_field_is_named_beside_it_and_the_rest_goes_on() {
    let Some(browser) = open(DESK, "").await else {
        return;
    };
    for (text, named) in [
        ("", "a rate such as 100/min"),
        ("   ", "a rate such as 100/min"),
        ("ten a second", "`ten`"),
        ("10/fortnight", "fortnight"),
        ("10/s fxed", "did you mean `fixed`"),
        ("0/s", "0"),
        ("10/0s", "0"),
        ("-1/s", "`-1/s`"),
        ("99999999999999999999/s", "from 1 to 4294967295"),
        ("1e3/s", "`1e3`"),
        ("10/s and", "it ends where"),
        ("10/s burst", "got nothing"),
        ("10/s\" + alert(1) + \"", "is not a policy"),
        ("<img src=x onerror=alert(1)>", "<img"),
        ("10/s \u{1f600}", "\u{1f600}"),
        ("100/month aligned", "no calendar"),
        ("10/s aligned utc+02:00", "no time zones"),
    ] {
        let text = json!(text);
        browser.eval(&format!("choose('a-text', {text})")).await;
        let shown = "[fields['a-text'].getAttribute('aria-invalid'), all('h2').map((h2) => h2.textContent), rows().length, errors()]";
        let shown = browser.eval(shown).await;
        let error = shown[3][1].as_str().unwrap();
        assert!(error.contains(named), "{text}: {error}");
        let rest = json!(["true", ["10/s"], 3]);
        assert_eq!(json!([shown[0], shown[1], shown[2]]), rest, "{text}");
    }
    assert_eq!(browser.eval("all('img').length").await, 0);

    // What nobody would want, and what is still a policy.
    for text in [
        "unlimited",
        "4294967295/s burst 4294967295 debt",
        "1/213503day",
        "1/213503day aligned",
        "every 213503day delayed",
        "4294967295/1ns",
        "1/s sliding 4294967295 buckets",
        "1/s per request and 1/s per request and 1/s per request",
    ] {
        browser.eval(&format!("choose('a-text', '{text}')")).await;
        let shown = browser.eval("[errors().join(''), rows().length]").await;
        assert_eq!(shown, json!(["", 5]), "{text}");
    }
    browser.eval("choose('a-text', '1/213503day')").await;
    let waiting = "Waiting (pace): 1 pass, the last at 0 s, and 20 after an hour or later";
    assert_eq!(browser.eval("rows()[1][0]").await, waiting);

    for (times, named) in [
        ("abc", "got `abc`"),
        ("-5", "got `-5`"),
        ("1e3", "got `1e3`"),
        ("5001", "got `5001`"),
        ("99999", "got `99999`"),
        ("5x401", "at most 400 requests, got 401"),
        ("5x9999", "at most 400 requests, got 9999"),
        ("5x99999", "got `5x99999`"),
        ("5x-1", "got `5x-1`"),
        ("0, 0x10, NaN", "got `NaN`"),
        ("<b>1</b>", "got `<b>1</b>`"),
    ] {
        browser.eval(&format!("choose('at', '{times}')")).await;
        let error = browser.eval("text('at-error')").await;
        assert!(error.as_str().unwrap().contains(named), "{times}: {error}");
    }
    for (times, count) in [("", 0), (" , ;; ", 0), ("0x0", 0), ("5000, 0.001", 2)] {
        browser.eval(&format!("choose('at', '{times}')")).await;
        let shown = browser.eval("[errors().join(''), count('arrival')]").await;
        assert_eq!(shown, json!(["", count]), "{times}");
    }
    let again = at(&browser, "", "text('verdict')").await;
    assert!(again.as_str().unwrap().contains("9 too many"), "{again}");
}

const TENANTS: &str = "limit=10&window=1000&a=interval&b=none&requests=own&at=0x5&bob=150";

/// The title of each order and the waits of both tenants.
const WAITS: &str = "rows().slice(1).map(([title, ann, bob]) => [title.split(':')[0], ann, bob])";

#[tokio::test]
async fn a_second_tenant_waits_for_the_backlog_in_one_queue_and_for_a_turn_by_turns() {
    let Some(browser) = open(DESK, TENANTS).await else {
        return;
    };
    let queue = [
        "ann: p50 wait 0.2 s, max wait 0.4 s",
        "bob: p50 wait 0.35 s, max wait 0.35 s",
    ];
    let turns = [
        "ann: p50 wait 0.3 s, max wait 0.5 s",
        "bob: p50 wait 0.05 s, max wait 0.05 s",
    ];
    let rows = json!([
        ["One queue (Shared)", queue[0], queue[1]],
        ["By turns (FairQueue)", turns[0], turns[1]]
    ]);
    assert_eq!(browser.eval(WAITS).await, rows);
    let requests = browser.eval("rows()[0][0]").await;
    assert_eq!(requests, "Requests: 5 of ann, 1 of bob");

    // Each tenant has a row, so the marks differ without colours, too.
    let marks = "all('svg').map((svg) => [...svg.querySelectorAll('.arrival, .mark')].map((mark) => mark.getBoundingClientRect().top))";
    let marks: Vec<Vec<f64>> = serde_json::from_value(browser.eval(marks).await).unwrap();
    for row in marks {
        let [ann @ .., bob] = &row[..] else {
            panic!("no mark")
        };
        assert_eq!(ann.len(), 5);
        assert!(ann.iter().all(|ann| ann + 6.0 < *bob), "{row:?}");
    }
    let names = "all('svg').map((svg) => [...svg.querySelectorAll('text')].map((text) => text.textContent).filter((text) => /^[a-z]{3}$/.test(text)))";
    let both = json!(["ann", "bob"]);
    assert_eq!(browser.eval(names).await, json!([both, both, both]));
    let colours = "new Set(all('rect.mark').map((mark) => getComputedStyle(mark).fill)).size";
    assert_eq!(browser.eval(colours).await, 2);

    let heavy = format!("bob=50x3&bob-weight=3&{TENANTS}");
    let heavy = at(&browser, &heavy, WAITS).await;
    assert_eq!(heavy[1][2], "bob: p50 wait 0.15 s, max wait 0.35 s");

    let slow = format!("a=own&a-text=every 3000s&{TENANTS}");
    let slow = at(&browser, &slow, WAITS).await;
    let waits = [
        "ann: p50 wait over an hour, max wait over an hour",
        "bob: p50 wait over an hour, max wait over an hour",
    ];
    assert_eq!(slow[0], json!(["One queue (Shared)", waits[0], waits[1]]));
    let alone = at(&browser, &format!("at=&{TENANTS}"), WAITS).await;
    let bob = "bob: p50 wait 0 s, max wait 0 s";
    assert_eq!(
        alone[1],
        json!(["By turns (FairQueue)", "ann: no requests", bob])
    );
}

#[tokio::test]
async fn a_link_shows_one_request_behind_a_backlog_of_a_hundred() {
    let Some(browser) = open(DESK, "").await else {
        return;
    };
    let link = "document.querySelector('form a')";
    let followed = format!(
        "new Promise((done) => {{ addEventListener('hashchange', done, {{ once: true }}); {link}.click(); }}).then(() => {WAITS})"
    );
    let waits = browser.eval(&followed).await;
    assert_eq!(waits[0][2], "bob: p50 wait 2.823 s, max wait 2.823 s");
    assert_eq!(waits[1][2], "bob: p50 wait 0.023 s, max wait 0.023 s");
    let link = browser.eval(&format!("{link}.getAttribute('href')")).await;
    let guide = include_str!("../../fairness.md");
    let link = format!("docs/playground/index.html{}`", link.as_str().unwrap());
    assert!(guide.contains(&link), "{link}");
}

#[tokio::test]
async fn requests_of_a_second_tenant_are_added_and_taken_away_and_the_address_remembers() {
    let Some(browser) = open(DESK, "b=none&requests=burst").await else {
        return;
    };
    let weights = "['ann-weight', 'bob-weight'].map((name) => is_seen(fields[name]))";
    assert_eq!(browser.eval(weights).await, json!([false, false]));
    browser.eval("choose('limit', 9)").await;
    let address = browser.eval("location.hash").await;
    assert!(!address.as_str().unwrap().contains("bob"), "{address}");

    browser.eval("choose('bob', '700x2')").await;
    browser.eval("choose('bob-weight', 4)").await;
    assert_eq!(browser.eval(weights).await, json!([true, true]));
    browser.eval("click(all('.touch')[1], .6)").await;
    browser.eval("click(all('.arrival.bob')[0], .5)").await;
    let bob = browser.eval("fields.bob.value").await;
    let times: Vec<&str> = bob.as_str().unwrap().split(", ").collect();
    assert_eq!(times[0], "700");
    assert!(
        (times[1].parse::<f64>().unwrap() - 3e3).abs() < 10.0,
        "{bob}"
    );
    assert_eq!(browser.eval("fields.requests.value").await, "burst");
    browser
        .eval("click(all('.arrival:not(.bob)')[0], .5)")
        .await;
    assert_eq!(browser.eval("fields.at.value").await, "200x26");

    let shown = "[fields.at.value, fields.bob.value, fields['bob-weight'].value, rows()]";
    let remembered = browser.eval("location.hash.slice(1)").await;
    let other = open(DESK, remembered.as_str().unwrap()).await.unwrap();
    assert_eq!(browser.eval(shown).await, other.eval(shown).await);

    for (times, named) in [
        ("abc", "such as 950 or 950x10, got `abc`"),
        ("5001", "up to 5000, such as 950 or 950x10, got `5001`"),
        ("5x401", "at most 400 requests, got 401"),
    ] {
        browser.eval(&format!("choose('bob', '{times}')")).await;
        let shown = "[text('bob-error'), fields.bob.getAttribute('aria-invalid'), rows()[0][0], errors().join('')]";
        let shown = browser.eval(shown).await;
        assert!(shown[0].as_str().unwrap().contains(named), "{shown}");
        assert_eq!(shown[1], "true");
        assert_eq!(json!([shown[2], shown[3]]), json!(["Requests: 26", ""]));
    }
    browser.eval("choose('bob', '')").await;
    let mended = "[text('bob-error'), fields.bob.getAttribute('aria-invalid'), rows().length]";
    assert_eq!(browser.eval(mended).await, json!(["", null, 3]));
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

#[tokio::test]
async fn every_field_has_a_label_and_every_picture_a_caption() {
    let Some(browser) = open(DESK, "a=bucket&b=bucket&bob=0").await else {
        return;
    };
    let unnamed = "all('input, select').filter((field) => !field.labels[0]?.textContent.trim()).map((field) => field.name)";
    assert_eq!(browser.eval(unnamed).await, json!([]));
    let described = "all('input:not([type=range])').every((field) => document.getElementById(field.getAttribute('aria-describedby')).getAttribute('role') === 'status')";
    assert_eq!(browser.eval(described).await, true);
    let captioned = "all('svg').map((svg) => svg.getAttribute('role') === 'img' && document.getElementById(svg.getAttribute('aria-labelledby')) === svg.parentNode.firstChild)";
    assert_eq!(browser.eval(captioned).await, json!(vec![true; 5]));
    // All that can be clicked can be done with keys: there is a field for the times.
    let focusable = "all('input, select').every((field) => { field.focus(); return document.activeElement === field; })";
    assert_eq!(browser.eval(focusable).await, true);
}

/// The pictures are in `target/tmp/playground`. They are for people.
#[tokio::test]
async fn the_page_fits_a_phone_and_a_desk() {
    for (width, is_dark) in [(390, false), (390, true), (1280, false), (1280, true)] {
        let Some(browser) = open(Look { width, is_dark }, "").await else {
            return;
        };
        let scheme = "matchMedia('(prefers-color-scheme: dark)').matches";
        assert_eq!(browser.eval(scheme).await, is_dark);
        for requests in REQUESTS {
            let hash = format!("requests={requests}&a=bucket&b=smooth");
            let fits = "[document.documentElement.scrollWidth <= innerWidth,
                all('body *').every((part) => part.getBoundingClientRect().right <= innerWidth),
                all('svg').every((svg) => svg.getBoundingClientRect().width === Number(svg.getAttribute('width'))),
                all('svg text').every((part) => parseFloat(getComputedStyle(part).fontSize) >= 12)]";
            for (tenants, bob) in [("", ""), ("-tenants", "&bob=200x9,4000")] {
                let fits = at(&browser, &format!("{hash}{bob}"), fits).await;
                assert_eq!(fits, json!([true, true, true, true]), "{width} {requests}");
                let folder = concat!(env!("CARGO_TARGET_TMPDIR"), "/playground");
                let name = format!("{width}-{is_dark}-{requests}{tenants}");
                browser.shoot(folder, &name).await;
            }
        }
        let columns = "new Set(all('#panels section').map((panel) => panel.getBoundingClientRect().left)).size";
        let expected = if width > 1000 { 2 } else { 1 };
        assert_eq!(browser.eval(columns).await, expected, "side by side");
    }
}

/// The figures of the page, as they are, in a file of their own.
const PICTURE: &str = "(() => {
    const [left, parts, ends] = [all('figure')[0].getBoundingClientRect().left, [], new Map()];
    const escape = (text) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
    let highest = 0;
    const write = (x, line, size, style) => {
        const y = (ends.get(x) ?? highest) + size * 1.5;
        ends.set(x, y);
        const [bold, rest] = line.firstElementChild ? [line.firstChild.textContent, line.lastChild.textContent] : ['', line.textContent];
        parts.push(`<text x='${x}' y='${y}' style='font-size:${size}px;${style}'><tspan font-weight='700'>${escape(bold)}</tspan>${escape(rest)}</text>`); };
    for (const section of all('section')) {
        const x = section.getBoundingClientRect().left - left;
        const heading = section.querySelector('h2');
        if (heading) write(x, heading, 17, 'fill:var(--ink);font-weight:600;font-family:ui-monospace,monospace');
        for (const figure of section.querySelectorAll('figure')) {
            for (const line of figure.querySelectorAll('span')) write(x, line, 14, line.className.includes('beyond') ? 'fill:var(--over);font-weight:600' : 'fill:var(--ink)');
            const svg = figure.querySelector('svg');
            parts.push(`<g transform='translate(${x} ${ends.get(x) + 6})'>${svg.innerHTML}</g>`);
            ends.set(x, ends.get(x) + 12 + Number(svg.getAttribute('height')));
        }
        if (!heading) highest = ends.get(x);
    }
    const [width, height] = [all('figure')[0].clientWidth, Math.ceil(Math.max(...ends.values()))];
    const drawn = [document.documentElement, ...all('svg, svg *')];
    const is_of_picture = (line) => /^ *(@media|})/.test(line) || drawn.some((part) => part.matches(line.split('{')[0]));
    const style = all('style')[0].textContent.split('\\n').filter((line) => line.trim() && is_of_picture(line)).join('\\n');
    return `<svg xmlns='http://www.w3.org/2000/svg' viewBox='-12 0 ${width + 24} ${height}' width='${width + 24}' height='${height}' font-family='system-ui, sans-serif' role='img' aria-label='${text('verdict')}'>\\n<style>${style}</style>\\n<rect x='-12' width='100%' height='100%' style='fill:var(--ground)'/>\\n${parts.join('\\n')}\\n</svg>\\n`; })()";

/// Writes it if the variable `DRAW` is set.
#[tokio::test]
async fn the_picture_of_the_page_is_what_the_page_shows() {
    let Some(browser) = open(look(860), "").await else {
        return;
    };
    let picture = browser.eval(PICTURE).await;
    let picture = picture.as_str().unwrap();
    assert!(picture.len() < 40_000, "{} bytes", picture.len());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../playground.svg");
    if std::env::var_os("DRAW").is_some() {
        return fs::write(path, picture).unwrap();
    }
    let is_drawn = fs::read_to_string(&path).is_ok_and(|drawn| drawn == picture);
    let hint = "run scripts/pictures, and look at the picture";
    assert!(
        is_drawn,
        "docs/playground.svg is not what the page shows: {hint}"
    );
}
