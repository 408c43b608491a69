//! The library has few dependencies, and none has a build script. Every user of the library builds all of them.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

const TREE: [&str; 6] = [
    "futures-core",
    "futures-sink",
    "hashbrown",
    "paceline",
    "pin-project-lite",
    "tokio",
];

fn cargo(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO")).args(args).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn without_features_the_tree_is_tiny() {
    let tree = cargo(&[
        "tree",
        "--package=paceline",
        "--edges=normal",
        "--no-default-features",
        "--prefix=none",
        "--locked",
    ]);
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    let packages: BTreeSet<&str> = names.collect();
    assert_eq!(packages, BTreeSet::from(TREE));
}

#[test]
fn nothing_in_the_tree_has_a_build_script() {
    let metadata = cargo(&["metadata", "--format-version=1", "--locked"]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let is_script = |target: &Value| target["kind"][0] == "custom-build";
    let with_script = packages
        .iter()
        .filter(|package| package["targets"].as_array().unwrap().iter().any(is_script));
    let names = with_script.map(|package| package["name"].as_str().unwrap());
    let with_script: BTreeSet<_> = names.collect();
    assert!(
        with_script.contains("serde_json"),
        "the test sees build scripts where there are some"
    );
    assert!(
        TREE.iter().all(|name| !with_script.contains(name)),
        "{with_script:?}"
    );
}
