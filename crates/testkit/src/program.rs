//! Small programs that a test hands to cargo.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A package of one file, without access to a network: what it depends on is in the `Cargo.lock` of this workspace.
#[derive(Debug)]
pub struct Program {
    folder: PathBuf,
}

impl Program {
    /// A package in `folder`, which should be below `CARGO_TARGET_TMPDIR`. `manifest` is what follows `[package]` in its manifest,
    /// where `{workspace}` stands for the folder of this workspace.
    ///
    /// # Panics
    ///
    /// If the files cannot be written.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>, manifest: &str) -> Self {
        let folder = folder.into();
        let workspace = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        fs::create_dir_all(&folder).unwrap();
        let manifest = manifest.replace("{workspace}", workspace);
        let manifest =
            format!("[workspace]\n[package]\nname = \"program\"\nedition = \"2024\"\n{manifest}");
        fs::write(folder.join("Cargo.toml"), manifest).unwrap();
        let lock = PathBuf::from(workspace).join("Cargo.lock");
        fs::copy(lock, folder.join("Cargo.lock")).unwrap();
        Self { folder }
    }

    /// Runs cargo with the arguments on a package of this file, `main.rs` or `lib.rs`.
    ///
    /// # Panics
    ///
    /// If cargo cannot be run.
    #[must_use]
    pub fn cargo(&self, arguments: &[&str], file: &str, text: &str) -> Output {
        fs::create_dir_all(self.folder.join("src")).unwrap();
        fs::write(self.folder.join("src").join(file), text).unwrap();
        Command::new(env!("CARGO"))
            .current_dir(&self.folder)
            .args(arguments)
            .args(["--quiet", "--offline", "--target-dir=target"])
            .output()
            .unwrap()
    }
}
