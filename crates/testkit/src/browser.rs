//! A page in Chromium, without a window.

#![expect(
    clippy::disallowed_types,
    reason = "a browser knows nothing of a paused clock"
)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use fantoccini::wd::Capabilities;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tokio::time::interval;

/// How long a page may take. A busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a browser looks like to the page.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "a test says both")]
pub struct Look {
    /// In pixels.
    pub width: u32,
    /// Whether it asks for a dark page.
    pub is_dark: bool,
}

/// A browser with the driver that moves it. Both end when it is dropped.
#[derive(Debug)]
pub struct Browser {
    page: Client,
    /// What each script begins with.
    prelude: &'static str,
    // Dropped last.
    _driver: Driver,
}

#[derive(Debug)]
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
    /// Opens an empty page. Each script begins with `prelude`: helpers of the test.
    ///
    /// # Panics
    ///
    /// If `chromedriver` or `chromium` does not start.
    pub async fn open(look: Look, prelude: &'static str) -> Self {
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
        // A script may take as long as its test: in milliseconds, 30 s otherwise.
        capabilities.insert("timeouts".to_owned(), json!({ "script": 600_000 }));
        let page = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities)
            .connect(&driver.address)
            .await
            .expect("chromium starts: it is in Debian's package chromium");
        Self {
            page,
            prelude,
            _driver: driver,
        }
    }

    /// Goes to a page.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub async fn go(&self, url: &str) {
        self.page.goto(url).await.unwrap();
    }

    /// What this expression is in the page.
    ///
    /// # Panics
    ///
    /// If it throws.
    pub async fn eval(&self, expression: &str) -> Value {
        let script = format!("{} return {expression};", self.prelude);
        self.page.execute(&script, vec![]).await.unwrap()
    }

    /// Waits until the expression holds.
    ///
    /// # Panics
    ///
    /// If it does not within a minute.
    pub async fn until(&self, what: &str, expression: &str) {
        let start = Instant::now();
        let mut looks = interval(Duration::from_millis(50));
        while self.eval(expression).await != Value::Bool(true) {
            let text = self.text().await;
            assert!(start.elapsed() < PATIENCE, "never {what}:\n{text}");
            looks.tick().await;
        }
    }

    /// The text of the page.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub async fn text(&self) -> String {
        let body = self.page.find(Locator::Css("body")).await.unwrap();
        body.text().await.unwrap()
    }

    /// Writes what it looks like to a file of this folder, to be looked at.
    ///
    /// # Panics
    ///
    /// If it cannot be written.
    pub async fn shoot(&self, folder: impl AsRef<Path>, name: &str) {
        let picture = self.page.screenshot().await.unwrap();
        let folder = folder.as_ref();
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join(format!("{name}.png")), picture).unwrap();
    }
}
