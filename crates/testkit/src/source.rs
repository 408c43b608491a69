//! What the source of a crate says.

use std::fs;
use std::path::{Path, PathBuf};

/// The names of the structs, enums and traits that are `pub` in a folder, and the file of each.
///
/// # Panics
///
/// If the folder cannot be read.
#[must_use]
pub fn public_types(folder: &Path) -> Vec<(String, PathBuf)> {
    let (mut folders, mut found) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let bytes = fs::read(&path).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            let names = text.lines().filter_map(defined).map(str::to_owned);
            found.extend(names.map(|name| (name, path.clone())));
        }
    }
    found
}

fn defined(line: &str) -> Option<&str> {
    let line = line.trim_start().strip_prefix("pub ")?;
    let kinds = ["struct ", "enum ", "trait "];
    let name = kinds.iter().find_map(|kind| line.strip_prefix(kind))?;
    name.split(|c: char| !c.is_alphanumeric()).next()
}
