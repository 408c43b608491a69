//! Each sensor, exactly: in virtual time, and with files as the kernel writes them. Then on the files of this machine.

#![expect(clippy::float_cmp, reason = "the sensors compute these values exactly")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use futures::FutureExt;
use paceline::concurrency::Permits;
use paceline::shed::{BusyPermits, CgroupCpu, CgroupPressure, QueueDelay, Sensor};
use tokio::runtime;
use tokio::task::yield_now;

use super::tasks;
use crate::timed::{ms, sleep};

#[tokio::test(start_paused = true)]
async fn permits_in_use_are_a_share_of_all_and_a_pause_has_none() {
    let permits = Permits::new(4).with_cooldown(ms(100));
    let mut sensor = BusyPermits::new(permits.clone());
    assert_eq!(sensor.utilization(), 0.0);
    let held = permits.acquire_many(3).await.unwrap();
    assert_eq!(sensor.utilization(), 0.75);
    permits.resize(2);
    assert_eq!(sensor.utilization(), 1.5);
    permits.resize(0);
    assert!(sensor.utilization().is_nan());
    permits.resize(2);
    drop(held);
    // They cool down.
    assert!(permits.try_acquire().is_none());
    assert_eq!(sensor.utilization(), 0.0);
}

/// Reads a mean delay of up to 100 ms as a part of 100 ms.
fn delay() -> QueueDelay {
    QueueDelay::new().with_range(Duration::ZERO, ms(100))
}

/// After its first readings, which are none and no delay.
async fn running() -> QueueDelay {
    let mut sensor = delay();
    assert!(sensor.utilization().is_nan());
    sleep(1_005).await;
    assert_eq!(sensor.utilization(), 0.0);
    sensor
}

/// No task runs for `millis`.
fn block(millis: u64) {
    // `advance` moves the clock at its first poll, and yields then.
    let _ = tokio::time::advance(ms(millis)).now_or_never();
}

/// The timer wakes the probe, and the probe runs.
async fn probed() {
    for _ in 0..3 {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_mean_counts_each_probe_that_was_or_would_have_been_due() {
    let mut sensor = running().await;
    // Delays of 100, 90 … 0 ms.
    block(105);
    probed().await;
    assert_eq!(sensor.utilization(), 0.5);
    // The same after 10 ms, and then 89 probes in time.
    block(110);
    probed().await;
    sleep(895).await;
    assert_eq!(sensor.utilization(), 5.5 / 100.0);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_has_not_run_yet_counts_with_its_delay_so_far() {
    let mut sensor = running().await;
    block(25);
    // 20, 10 and 0 ms.
    assert_eq!(sensor.utilization(), 0.1);
    block(20);
    // 40, 30, 20, 10 and 0 ms.
    assert_eq!(sensor.utilization(), 0.2);
    probed().await;
    assert_eq!(sensor.utilization(), 0.2);
    sleep(1_000).await;
    assert_eq!(sensor.utilization(), 0.0);
}

#[tokio::test(start_paused = true)]
async fn the_start_of_the_probe_counts_too() {
    let mut sensor = delay();
    sensor.utilization();
    block(30);
    // Due after 10 ms: 20, 10 and 0 ms.
    assert_eq!(sensor.utilization(), 0.1);
}

#[tokio::test(start_paused = true)]
async fn two_readings_with_no_probe_between_have_one_value() {
    let mut sensor = running().await;
    sleep(1).await;
    assert!(sensor.utilization().is_nan());
}

#[tokio::test(start_paused = true)]
async fn the_range_is_linear_from_1_to_100_ms_unless_it_is_given() {
    // The first probe is due after 10 ms. The mean is half of its delay, if that is a multiple of 10 ms.
    for (mut sensor, blocked, expected) in [
        (QueueDelay::new(), 11, 0.0),
        (QueueDelay::new(), 12, 1.0 / 99.0),
        (QueueDelay::new(), 110, 49.0 / 99.0),
        (QueueDelay::new(), 210, 1.0),
        (QueueDelay::new(), 1_000, 1.0),
        (QueueDelay::new().with_range(ms(25), ms(75)), 110, 0.5),
        (QueueDelay::new().with_range(ms(50), ms(75)), 110, 0.0),
    ] {
        sensor.utilization();
        block(blocked);
        assert_eq!(sensor.utilization(), expected, "{blocked} ms");
    }
}

#[test]
#[should_panic(expected = "a range of delays needs a `lo` below its `hi`, got 6ms and 5ms")]
fn a_range_that_falls_panics_where_it_is_given() {
    let _ = QueueDelay::new().with_range(ms(4), ms(5));
    let _ = QueueDelay::new().with_range(ms(6), ms(5));
}

#[test]
#[should_panic(expected = "a range of delays needs a `lo` below its `hi`, got 1ms and 1ms")]
fn a_range_that_does_not_rise_panics_where_it_is_given() {
    let _ = QueueDelay::default().with_range(ms(1), ms(1));
}

#[tokio::test(start_paused = true)]
async fn the_probe_ends_with_the_sensor() {
    let before = tasks();
    let mut sensor = delay();
    assert_eq!(tasks(), before);
    sensor.utilization();
    sleep(100).await;
    assert_eq!(tasks(), before + 1);
    drop(sensor);
    yield_now().await;
    assert_eq!(tasks(), before);
}

#[test]
fn there_is_no_reading_without_a_runtime_and_the_next_runtime_gets_a_probe() {
    let runtime = testkit::clock::paused_runtime;
    let mut sensor = delay();
    assert!(sensor.utilization().is_nan());
    for _ in 0..2 {
        runtime().block_on(async {
            assert!(sensor.utilization().is_nan());
            sleep(1_005).await;
            assert_eq!(sensor.utilization(), 0.0);
            block(105);
            assert_eq!(sensor.utilization(), 0.5);
        });
        // The runtime is gone, and its probe with it.
        assert!(sensor.utilization().is_nan());
    }
}

#[test]
fn a_thread_outside_sees_that_a_runtime_is_blocked() {
    let (to_main, from_runtime) = mpsc::channel();
    let (unblock, blocked) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let runtime = runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().build().unwrap();
        runtime.block_on(async {
            let mut sensor = QueueDelay::new();
            sensor.utilization();
            to_main.send(sensor).unwrap();
            // As a blocking call in a task does.
            blocked.recv().unwrap();
        });
    });
    let mut sensor = from_runtime.recv().unwrap();
    // It rises as the time passes: a mean of 100 ms after about 210 ms.
    while sensor.utilization() < 1.0 || sensor.utilization().is_nan() {
        std::thread::sleep(ms(5));
    }
    unblock.send(()).unwrap();
    thread.join().unwrap();
}

/// A folder for files like those of the kernel. It is removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("paceline-sensors-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    /// A cgroup below this one, and what it has used.
    fn cgroup(&self, name: &str) -> PathBuf {
        let folder = self.0.join(name);
        fs::create_dir_all(&folder).unwrap();
        used(&folder, 0);
        folder
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn used(folder: &Path, millis: u64) {
    let usec = millis * 1_000;
    let stat = format!("usage_usec {usec}\nuser_usec {usec}\nsystem_usec 0\n");
    fs::write(folder.join("cpu.stat"), stat).unwrap();
}

fn limit(folder: &Path, text: &str) {
    fs::write(folder.join("cpu.max"), text).unwrap();
}

#[tokio::test(start_paused = true)]
async fn processor_time_is_a_share_of_the_limit_since_the_last_reading() {
    let folder = Folder::new("share");
    let own = folder.cgroup("own");
    limit(&own, "50000 100000\n");
    used(&own, 7_000);
    let mut sensor = CgroupCpu::at(&own).unwrap();
    sleep(1_000).await;
    assert!(sensor.utilization().is_nan());
    // In the same instant.
    assert!(sensor.utilization().is_nan());

    sleep(1_000).await;
    used(&own, 7_250);
    assert_eq!(sensor.utilization(), 0.5);
    sleep(2_000).await;
    used(&own, 7_500);
    assert_eq!(sensor.utilization(), 0.25);
    sleep(1_000).await;
    assert_eq!(sensor.utilization(), 0.0);

    // The limit falls.
    limit(&own, "12500 100000\n");
    sleep(1_000).await;
    used(&own, 7_750);
    assert_eq!(sensor.utilization(), 2.0);
}

#[tokio::test(start_paused = true)]
async fn the_fullest_limit_is_read_that_of_a_parent_with_what_all_its_children_use() {
    let folder = Folder::new("parents");
    let [top, pod, own] = ["top", "top/pod", "top/pod/own"].map(|name| folder.cgroup(name));
    limit(&top, "max 100000\n");
    limit(&pod, "100000 100000\n");
    limit(&own, "50000 100000\n");
    let mut sensor = CgroupCpu::at(&own).unwrap();
    sensor.utilization();
    for (own_millis, pod_millis, expected) in [
        // The pod is at 0.25.
        (250, 250, 0.5),
        // A neighbour uses the rest.
        (0, 1_000, 1.0),
    ] {
        sleep(1_000).await;
        // Without a limit above, it does not matter how much is used there.
        for (folder, millis) in [(&own, own_millis), (&pod, pod_millis), (&top, 9_000)] {
            let text = fs::read_to_string(folder.join("cpu.stat")).unwrap();
            let before = text.split_whitespace().nth(1).unwrap();
            used(folder, before.parse::<u64>().unwrap() / 1_000 + millis);
        }
        assert_eq!(sensor.utilization(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_limit_the_share_is_of_the_processors_of_the_process() {
    let folder = Folder::new("processors");
    let own = folder.cgroup("own");
    for text in ["max 100000\n", "99900000 100000\n"] {
        limit(&own, text);
        used(&own, 0);
        let mut sensor = CgroupCpu::at(&own).unwrap();
        sensor.utilization();
        sleep(1_000).await;
        used(&own, 1_000);
        let processors = sensor.utilization().recip().round();
        let available = std::thread::available_parallelism().unwrap().get();
        assert!(processors >= f64::from(u32::try_from(available).unwrap()));
        sleep(1_000).await;
        used(&own, 2_000);
        assert_eq!(sensor.utilization(), processors.recip());
    }
    // The root has no file of a limit.
    fs::remove_file(own.join("cpu.max")).unwrap();
    assert!(CgroupCpu::at(&own).is_ok());
}

#[tokio::test(start_paused = true)]
async fn files_that_are_gone_and_usage_that_falls_are_no_reading() {
    let folder = Folder::new("gone");
    let own = folder.cgroup("own");
    limit(&own, "100000 100000\n");
    let mut sensor = CgroupCpu::at(&own).unwrap();
    sensor.utilization();
    fs::remove_file(own.join("cpu.stat")).unwrap();
    sleep(1_000).await;
    assert!(sensor.utilization().is_nan());
    // Another cgroup with the same name: the first reading of it is none.
    used(&own, 900);
    sleep(1_000).await;
    assert!(sensor.utilization().is_nan());
    used(&own, 1_400);
    sleep(1_000).await;
    assert_eq!(sensor.utilization(), 0.5);
    used(&own, 100);
    sleep(1_000).await;
    assert!(sensor.utilization().is_nan());
    used(&own, 350);
    sleep(1_000).await;
    assert_eq!(sensor.utilization(), 0.25);
}

#[test]
fn pressure_is_the_share_of_the_time_in_which_a_task_waits() {
    let folder = Folder::new("pressure");
    let own = folder.cgroup("own");
    let write = |avg10| {
        let line = format!("avg10={avg10} avg60=1.00 avg300=2.00 total=3\n");
        fs::write(own.join("cpu.pressure"), format!("some {line}full {line}")).unwrap();
    };
    write("0.00");
    let mut sensor = CgroupPressure::at(&own).unwrap();
    assert_eq!(sensor.utilization(), 0.0);
    write("46.50");
    assert_eq!(sensor.utilization(), 0.465);
    fs::remove_file(own.join("cpu.pressure")).unwrap();
    assert!(sensor.utilization().is_nan());
}

#[test]
fn what_is_no_cgroup_v2_is_an_error_that_names_the_file() {
    let folder = Folder::new("error");
    let missing = folder.0.join("missing");
    let error = CgroupCpu::at(&missing).unwrap_err();
    let stat = missing.join("cpu.stat");
    assert_eq!(error.path(), stat);
    let message = format!("no cgroup v2: cannot read `{}`", stat.display());
    assert_eq!(error.to_string(), message);
    assert!(std::error::Error::source(&error).is_some());

    // A cgroup v1 has such a file too.
    let v1 = folder.cgroup("v1");
    fs::write(v1.join("cpu.stat"), "nr_periods 0\nnr_throttled 0\n").unwrap();
    let error = CgroupCpu::at(&v1).unwrap_err();
    let stat = v1.join("cpu.stat");
    let message = format!("no cgroup v2: `{}` has no `usage_usec`", stat.display());
    assert_eq!(error.to_string(), message);
    assert!(std::error::Error::source(&error).is_none());

    let error = CgroupPressure::at(&v1).unwrap_err();
    assert_eq!(error.path(), v1.join("cpu.pressure"));
}

/// A cgroup on this machine with a process that does nothing but use its processor. Both end when it is dropped.
struct Busy {
    folder: PathBuf,
    process: Option<Child>,
}

impl Busy {
    /// Below the first cgroup v2 of this machine, if one can be made there.
    fn new() -> Result<Self, String> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|e| e.to_string())?;
        let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "));
        let mount = mount.ok_or("no cgroup v2 is mounted")?;
        let mount = Path::new(mount.split(' ').nth(4).unwrap());
        let folder = mount.join(format!("paceline-{}", std::process::id()));
        fs::create_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(Self {
            folder,
            process: None,
        })
    }

    fn start(&mut self) {
        // It ends by itself after 20 s of processor time.
        let process = Command::new("sh")
            .args(["-c", "ulimit -t 20; read go; while :; do :; done"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let id = process.id().to_string();
        self.process = Some(process);
        fs::write(self.folder.join("cgroup.procs"), id).unwrap();
        // It goes when its input ends.
        drop(self.process.as_mut().unwrap().stdin.take());
    }

    fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop();
        let _ = fs::remove_dir(&self.folder);
    }
}

#[tokio::test]
async fn a_process_in_a_cgroup_of_this_machine_is_seen_while_it_runs() {
    let mut busy = match Busy::new() {
        Ok(busy) => busy,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let mut sensor = CgroupCpu::at(&busy.folder).unwrap();
    assert!(sensor.utilization().is_nan());
    sleep(20).await;
    assert_eq!(sensor.utilization(), 0.0);

    busy.start();
    let mut read = 0.0;
    while read < 0.05 {
        sleep(100).await;
        read = sensor.utilization();
    }
    assert!(read <= 1.1, "{read}");

    busy.stop();
    sensor.utilization();
    sleep(20).await;
    assert_eq!(sensor.utilization(), 0.0);
}

#[tokio::test]
async fn the_own_cgroup_of_this_process_is_seen() {
    let (mut cpu, mut pressure) = match (CgroupCpu::open(), CgroupPressure::open()) {
        (Ok(cpu), Ok(pressure)) => (cpu, pressure),
        (Err(error), _) | (_, Err(error)) => return eprintln!("skipped: {error}"),
    };
    assert!(cpu.utilization().is_nan());
    // This test uses a processor meanwhile.
    let mut read = 0.0;
    while read == 0.0 {
        let sum: u64 = (0..1_000_000).map(std::hint::black_box).sum();
        assert_eq!(sum, 499_999_500_000);
        read = cpu.utilization();
    }
    assert!(read > 0.0, "{read}");
    let waiting = pressure.utilization();
    assert!((0.0..=1.0).contains(&waiting), "{waiting}");
}
