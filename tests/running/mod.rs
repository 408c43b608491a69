//! Runs an example as a user does.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;

/// A directory of its own for one test, gone when it is over.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn of(example: &str, test: &str) -> Self {
        let path = env::temp_dir().join(format!("{example}-{}-{test}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// To be started here, with nothing on its standard input yet.
    pub(crate) fn command(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(&self.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a run said.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        Self {
            status: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Run {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|_| panic!("{self:?}"))
    }
}

/// An example, built beside this test. Cargo gives integration tests a package's binaries, but not its examples, and if
/// an example has unit tests it does not even build it without them.
pub(crate) fn built(example: &str, options: &[&str]) -> PathBuf {
    let test = env::current_exe().unwrap();
    let built = test.ancestors().nth(2).unwrap();
    let profile = match built.file_name().unwrap().to_str().unwrap() {
        "debug" => "dev",
        other => other,
    };
    let status = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--example",
            example,
            "--profile",
            profile,
        ])
        .args(options)
        .arg("--target-dir")
        .arg(built.parent().unwrap())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(status.unwrap().success());
    built
        .join("examples")
        .join(example)
        .with_extension(env::consts::EXE_EXTENSION)
}

pub(crate) fn count(report: &Value, name: &str) -> u64 {
    report[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name} in {report}"))
}
