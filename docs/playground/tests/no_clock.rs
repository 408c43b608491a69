//! On `wasm32-unknown-unknown` there is no clock: policies work there, as the page shows, and limits do not compile.

use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn a_program_with_a_limit_is_not_compiled_and_the_error_says_what_to_do() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-clock");
    fs::create_dir_all(&program).unwrap();
    fs::copy(root.join("Cargo.lock"), program.join("Cargo.lock")).unwrap();
    let manifest = format!(
        "[workspace]\n[package]\nname = \"no-clock\"\nedition = \"2024\"\n[lib]\npath = \"lib.rs\"\n\
         [dependencies]\npaceline = {{ path = {root:?}, default-features = false }}\n"
    );
    fs::write(program.join("Cargo.toml"), manifest).unwrap();
    let built = |text: &str| {
        fs::write(program.join("lib.rs"), text).unwrap();
        let built = Command::new(env!("CARGO"))
            .current_dir(&program)
            .args([
                "build",
                "--quiet",
                "--offline",
                "--target=wasm32-unknown-unknown",
            ])
            .output()
            .unwrap();
        (
            built.status.success(),
            String::from_utf8(built.stderr).unwrap(),
        )
    };

    let policy = "pub fn policy() -> paceline::policy::AnyPolicy { \"10/s\".parse().unwrap() }";
    let (is_built, error) = built(policy);
    if error.contains("may not be installed") {
        return; // The tests of the page say so.
    }
    assert!(is_built, "{error}");

    let (is_built, error) = built(&format!(
        "use paceline::limiter::PolicyExt;\n{policy}\npub fn passes() -> bool {{ policy().shared().try_acquire(1).is_pass() }}"
    ));
    assert!(!is_built);
    let says = "wasm32-unknown-unknown has none: give times of your own to a `Policy`, or build for wasm32-wasip1";
    assert!(error.contains(says), "{error}");
}
