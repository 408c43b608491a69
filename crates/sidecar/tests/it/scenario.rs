//! The published scenario: four products share a capacity of 40 a cycle, and one of them has a spike.

use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use super::client::{Client, metric, scrape};
use super::hello;
use super::support::{PATIENCE, Sidecar};

const PRODUCTS: [&str; 4] = ["catalog", "cart", "campaign", "search"];

/// What the products ask for in a cycle, and what each has in the next one.
const TABLE: [([u32; 4], [u32; 4]); 3] = [
    ([2, 15, 10, 10], [5, 15, 10, 10]),
    ([3, 15, 50, 10], [3, 11, 16, 10]),
    ([0, 15, 50, 5], [1, 12, 22, 5]),
];

struct Shop {
    sidecar: Sidecar,
    clients: Vec<Client>,
}

impl Shop {
    fn open() -> Self {
        let sidecar = Sidecar::start(hello::start(), &["--capacity", "40", "--cycle", "2s"]);
        let clients = PRODUCTS.map(|_| Client::connect(sidecar.listen)).into();
        let mut shop = Self { sidecar, clients };
        // Each product is known, and has its default of 10.
        for product in 0..PRODUCTS.len() {
            shop.ask(product);
        }
        shop
    }

    fn ask(&mut self, product: usize) -> u16 {
        self.clients[product].get("/", PRODUCTS[product]).status
    }

    /// Waits until a cycle begins, and returns its number.
    fn next_cycle(&self) -> u64 {
        let start = Instant::now();
        let first = self.cycle();
        loop {
            let cycle = self.cycle();
            if cycle != first {
                return cycle;
            }
            assert!(start.elapsed() < PATIENCE, "cycle {cycle} does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn cycle(&self) -> u64 {
        let scrape = scrape(self.sidecar.admin);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count"
        )]
        let cycle = metric(&scrape, "paceline_cycles_total").unwrap() as u64;
        cycle
    }

    /// The sizes, from the metrics.
    fn sizes(&self) -> [u32; 4] {
        let scrape = scrape(self.sidecar.admin);
        PRODUCTS.map(|product| {
            let series = format!("paceline_client_size{{client=\"{product}\"}}");
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a count"
            )]
            let size = metric(&scrape, &series).unwrap_or_else(|| panic!("{scrape}")) as u32;
            size
        })
    }

    /// Sends what each product asks for, in turn. How many of each pass.
    fn send(&mut self, demands: [u32; 4]) -> [u32; 4] {
        let mut passed = [0; 4];
        for turn in 0..demands.into_iter().max().unwrap_or_default() {
            for product in 0..PRODUCTS.len() {
                if turn < demands[product] {
                    match self.ask(product) {
                        200 => passed[product] += 1,
                        429 => {}
                        status => panic!("{} is answered with {status}", PRODUCTS[product]),
                    }
                }
            }
        }
        passed
    }
}

#[test]
fn products_share_a_capacity_as_the_published_table_says() {
    let start = Instant::now();
    // A machine that is busy may not send everything within a cycle. Then it begins again.
    while start.elapsed() < 3 * PATIENCE {
        if let Some(table) = played() {
            println!("{table}");
            return;
        }
    }
    panic!("no try was quick enough");
}

/// The table as the metrics show it; `None` if a cycle ended too soon.
fn played() -> Option<String> {
    let mut shop = Shop::open();
    let mut table = format!("{PRODUCTS:?}\n");
    let mut cycle = shop.next_cycle();
    let mut sizes = [10; 4];
    for (demands, expected) in TABLE {
        let passed = shop.send(demands);
        if shop.cycle() != cycle {
            return None;
        }
        let all = [0, 1, 2, 3];
        assert_eq!(
            passed,
            all.map(|product| demands[product].min(sizes[product]))
        );
        assert!(
            all.iter()
                .all(|&product| passed[product] >= demands[product].min(10))
        );
        let next = shop.next_cycle();
        if next != cycle + 1 {
            return None;
        }
        cycle = next;
        sizes = shop.sizes();
        assert_eq!(sizes, expected, "after {demands:?}");
        let _ = writeln!(
            table,
            "asked {demands:?}, passed {passed:?}; cycle {cycle} has {sizes:?}"
        );
    }
    Some(table)
}
