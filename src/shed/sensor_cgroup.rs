use core::error::Error;
use core::fmt;
use core::time::Duration;
use std::path::{Path, PathBuf};
use std::{fs, io, thread};

use crate::time::{Clock, Tick};

use super::Sensor;

/// The processor time that a container has used since the last reading, as a share of what it may use. Linux, cgroup v2.
///
/// What it may use is the limit of its cgroup (`cpu.max`), and at most the processors that the process may run on when the sensor is made.
/// The limits of the cgroups above count too, each with what that whole cgroup has used; the fullest limit is the reading. So where
/// the containers of a pod share a limit, a busy neighbour is seen. In a container the process mostly cannot see the cgroups above.
///
/// A limit that is changed counts from the next reading on. A share above 1 is possible, where the kernel allows a burst.
///
/// The first reading is NaN, and so is one at the same instant as the last, or while the files cannot be read. A reading takes a few
/// small files of the kernel: `cpu.stat` and `cpu.max` of each cgroup.
///
/// ```
/// use paceline::shed::{CgroupCpu, Sensor};
///
/// match CgroupCpu::open() {
///     Ok(mut sensor) => assert!(sensor.utilization().is_nan()),
///     // Such as "no cgroup v2: cannot read `/proc/self/cgroup`".
///     Err(error) => eprintln!("{error}"),
/// }
/// ```
#[derive(Debug)]
pub struct CgroupCpu {
    clock: Clock,
    read_at: Option<Tick>,
    /// The cgroup, and those above.
    levels: Vec<Level>,
}

impl CgroupCpu {
    /// The cgroup of this process, from `/proc/self/cgroup` and `/proc/self/mountinfo`.
    ///
    /// # Errors
    ///
    /// If there is no cgroup v2, as on another system than Linux, or its files cannot be read.
    pub fn open() -> Result<Self, CgroupError> {
        Self::at(own_folder()?)
    }

    /// The cgroup with this folder, such as `/sys/fs/cgroup/system.slice/api.service`.
    ///
    /// # Errors
    ///
    /// If it has no `cpu.stat` with a `usage_usec`.
    pub fn at(folder: impl AsRef<Path>) -> Result<Self, CgroupError> {
        let folder = folder.as_ref();
        let stat = folder.join("cpu.stat");
        if usage(&read(&stat)?).is_none() {
            return Err(CgroupError::new(stat, "`usage_usec`"));
        }
        let mut levels = vec![Level::new(folder, processors())];
        let above = folder.ancestors().skip(1);
        let above = above.take_while(|folder| folder.join("cpu.stat").exists());
        levels.extend(above.map(|folder| Level::new(folder, f64::INFINITY)));
        Ok(Self {
            clock: Clock::new(),
            read_at: None,
            levels,
        })
    }
}

impl Sensor for CgroupCpu {
    fn utilization(&mut self) -> f64 {
        let now = self.clock.now();
        if self.read_at == Some(now) {
            return f64::NAN;
        }
        let elapsed = self.read_at.replace(now).map(|at| now.since(at));
        let shares = self.levels.iter_mut().map(|level| level.share(elapsed));
        // `max` ignores a level without a reading.
        shares.fold(f64::NAN, f64::max)
    }
}

/// A cgroup.
#[derive(Debug)]
struct Level {
    folder: PathBuf,
    /// The most processors that it can use, whatever its limit.
    processors: f64,
    /// In microseconds, at the last reading.
    used: Option<u64>,
}

impl Level {
    fn new(folder: &Path, processors: f64) -> Self {
        Self {
            folder: folder.to_owned(),
            processors,
            used: None,
        }
    }

    /// The share of its limit that it has used since the last reading, `elapsed` ago.
    fn share(&mut self, elapsed: Option<Duration>) -> f64 {
        let text = |name| fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        // The root has no limit.
        let limit = limit(&text("cpu.max")).unwrap_or(f64::INFINITY);
        let used = usage(&text("cpu.stat"));
        let before = core::mem::replace(&mut self.used, used);
        let used = used
            .zip(before)
            .and_then(|(used, before)| used.checked_sub(before));
        match used.zip(elapsed) {
            Some((used, elapsed)) => {
                let used = Duration::from_micros(used).as_secs_f64();
                used / (elapsed.as_secs_f64() * limit.min(self.processors))
            }
            None => f64::NAN,
        }
    }
}

/// The share of the last 10 s in which at least one task of a container waited for a processor. Linux, cgroup v2.
///
/// It is `some avg10` in `cpu.pressure`, a mean of the kernel in which the last seconds count most. It also rises where the limit of
/// the container is far away and the machine is full. It is high early: one task that always waits is 1, however many others run.
///
/// A reading is NaN while the file cannot be read.
#[derive(Clone, Debug)]
pub struct CgroupPressure {
    file: PathBuf,
}

impl CgroupPressure {
    /// The cgroup of this process, from `/proc/self/cgroup` and `/proc/self/mountinfo`.
    ///
    /// # Errors
    ///
    /// If there is no cgroup v2, as on another system than Linux, or a kernel without pressure stall information.
    pub fn open() -> Result<Self, CgroupError> {
        Self::at(own_folder()?)
    }

    /// The cgroup with this folder.
    ///
    /// # Errors
    ///
    /// If it has no `cpu.pressure` with a `some avg10`.
    pub fn at(folder: impl AsRef<Path>) -> Result<Self, CgroupError> {
        let file = folder.as_ref().join("cpu.pressure");
        match pressure(&read(&file)?) {
            Some(_) => Ok(Self { file }),
            None => Err(CgroupError::new(file, "`some avg10`")),
        }
    }
}

impl Sensor for CgroupPressure {
    fn utilization(&mut self) -> f64 {
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        pressure(&text).unwrap_or(f64::NAN)
    }
}

/// There is no cgroup v2 to read.
#[derive(Debug)]
pub struct CgroupError {
    path: PathBuf,
    /// What the file lacks, or why it cannot be read.
    problem: Result<&'static str, io::Error>,
}

impl CgroupError {
    fn new(path: impl Into<PathBuf>, lacks: &'static str) -> Self {
        Self {
            path: path.into(),
            problem: Ok(lacks),
        }
    }

    /// The file that is not there, or not as it is with cgroup v2.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Display for CgroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match self.problem {
            Err(_) => write!(f, "no cgroup v2: cannot read `{path}`"),
            Ok(lacks) => write!(f, "no cgroup v2: `{path}` has no {lacks}"),
        }
    }
}

impl Error for CgroupError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.problem.as_ref().err().map(|error| error as _)
    }
}

fn read(path: &Path) -> Result<String, CgroupError> {
    fs::read_to_string(path).map_err(|error| CgroupError {
        path: path.to_owned(),
        problem: Err(error),
    })
}

/// The folder of the cgroup of this process.
fn own_folder() -> Result<PathBuf, CgroupError> {
    let (cgroups, mounts) = ("/proc/self/cgroup", "/proc/self/mountinfo");
    let cgroup = read(cgroups.as_ref())?;
    let cgroup = own_cgroup(&cgroup).ok_or_else(|| CgroupError::new(cgroups, "line `0::`"))?;
    let text = read(mounts.as_ref())?;
    folder(cgroup, &text).ok_or_else(|| CgroupError::new(mounts, "mount of type `cgroup2`"))
}

/// The path of the cgroup within its file system. Lines with other numbers are of cgroup v1.
fn own_cgroup(cgroups: &str) -> Option<&str> {
    cgroups.lines().find_map(|line| line.strip_prefix("0::"))
}

/// Where this cgroup is mounted. What is mounted may be a part of the file system: its root, the fourth field, is the cgroup at
/// the mount point, the fifth.
fn folder(cgroup: &str, mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let is_v2 = kind.split(' ').next() == Some("cgroup2");
        // A cgroup outside of what is mounted cannot be read; the nearest is the mount point.
        let below = Path::new(cgroup)
            .strip_prefix(root)
            .unwrap_or(Path::new(""));
        is_v2.then(|| Path::new(point).join(below))
    })
}

/// The processor time used, in microseconds, from `cpu.stat`.
fn usage(stat: &str) -> Option<u64> {
    let usage = stat
        .lines()
        .find_map(|line| line.strip_prefix("usage_usec "));
    usage?.trim().parse().ok()
}

/// The limit in processors, from `cpu.max`. `None`: there is none.
fn limit(max: &str) -> Option<f64> {
    let (quota, period) = max.trim().split_once(' ')?;
    let (quota, period): (u32, u32) = (quota.parse().ok()?, period.parse().ok()?);
    (quota > 0 && period > 0).then(|| f64::from(quota) / f64::from(period))
}

/// The share of the time, from `cpu.pressure`.
fn pressure(text: &str) -> Option<f64> {
    let some = text
        .lines()
        .find_map(|line| line.strip_prefix("some avg10="))?;
    let percent: f64 = some.split(' ').next()?.parse().ok()?;
    Some(percent / 100.0)
}

/// How many processors the process may run on. `available_parallelism` is rounded down to the limit of the cgroup.
fn processors() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let counted = list.and_then(counted).filter(|count| *count > 0);
    let available = || {
        thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
    };
    f64::from(counted.unwrap_or_else(available))
}

/// How many numbers are in a list such as `0-3,8`.
fn counted(ranges: &str) -> Option<u32> {
    let mut count = 0_u32;
    for range in ranges.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
31 22 0:26 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755
32 31 0:27 / /sys/fs/cgroup/cpu rw,relatime shared:10 - cgroup cgroup rw,cpu
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn the_cgroup_of_the_process_is_the_line_of_v2() {
        assert_eq!(own_cgroup("0::/\n"), Some("/"));
        assert_eq!(own_cgroup("1:cpu:/a\n0::/b c/d\n"), Some("/b c/d"));
        assert_eq!(own_cgroup("10:cpu:/a\n1:name=systemd:/\n"), None);
        assert_eq!(own_cgroup(""), None);
    }

    #[test]
    fn its_folder_is_below_the_mount_of_v2() {
        let unified = Path::new("/sys/fs/cgroup/unified");
        assert_eq!(folder("/", MOUNTS).unwrap(), unified);
        assert_eq!(folder("/a/b", MOUNTS).unwrap(), unified.join("a/b"));
        let v1 = MOUNTS.lines().take(2).collect::<Vec<_>>().join("\n");
        assert_eq!(folder("/", &v1), None);
    }

    #[test]
    fn what_is_mounted_may_be_a_part() {
        let mounts = "30 23 0:26 /docker/7f /sys/fs/cgroup ro - cgroup2 cgroup rw";
        let point = Path::new("/sys/fs/cgroup");
        assert_eq!(folder("/docker/7f", mounts).unwrap(), point);
        assert_eq!(folder("/docker/7f/a", mounts).unwrap(), point.join("a"));
        // Of another container, and outside of the namespace.
        assert_eq!(folder("/docker/7f8", mounts).unwrap(), point);
        assert_eq!(folder("/../x", mounts).unwrap(), point);
    }

    #[test]
    fn a_limit_is_a_number_of_processors() {
        assert_eq!(limit("150000 100000\n"), Some(1.5));
        assert_eq!(limit("5000 20000"), Some(0.25));
        for none in ["max 100000\n", "", "100000", "1 0", "0 1", "x y"] {
            assert_eq!(limit(none), None, "{none}");
        }
    }

    #[test]
    fn usage_and_pressure_are_found_among_other_lines() {
        assert_eq!(
            usage("user_usec 1\nusage_usec 70\nsystem_usec 2\n"),
            Some(70)
        );
        assert_eq!(usage("nr_periods 0\nnr_throttled 0\n"), None);
        let text = "some avg10=46.50 avg60=65.54 avg300=42.30 total=279441120\nfull avg10=1.00 avg60=0.00\n";
        assert_eq!(pressure(text), Some(0.465));
        assert_eq!(pressure("full avg10=1.00\n"), None);
    }

    #[test]
    fn processors_are_counted_in_a_list() {
        for (list, count) in [
            ("\t0-1\n", Some(2)),
            ("0-3,8,10-11", Some(7)),
            ("5", Some(1)),
            ("", None),
            ("3-1", None),
        ] {
            assert_eq!(counted(list), count, "{list}");
        }
    }
}
