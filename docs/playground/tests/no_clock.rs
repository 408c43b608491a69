//! On `wasm32-unknown-unknown` there is no clock: policies work there, as the page shows, and limits do not compile.

use testkit::program::Program;

#[test]
fn a_program_with_a_limit_is_not_compiled_and_the_error_says_what_to_do() {
    let package = Program::new(
        concat!(env!("CARGO_TARGET_TMPDIR"), "/no_clock"),
        "[dependencies]\npaceline = { path = '{workspace}', default-features = false }",
    );
    let built = |text: &str| {
        let arguments = ["build", "--target=wasm32-unknown-unknown"];
        let built = package.cargo(&arguments, "lib.rs", text);
        let error = String::from_utf8(built.stderr).unwrap();
        (built.status.success(), error)
    };

    let policy = "pub fn policy() -> paceline::policy::AnyPolicy { \"10/s\".parse().unwrap() }";
    let (is_built, error) = built(policy);
    if error.contains("may not be installed") {
        return; // The tests of the page say so.
    }
    assert!(is_built, "{error}");

    let (is_built, error) = built(&format!(
        "use paceline::limiter::PolicyExt;
         {policy}
         pub fn passes() -> bool {{ policy().shared().try_acquire(1).is_pass() }}"
    ));
    assert!(!is_built);
    let says = "wasm32-unknown-unknown has none: give times of your own to a `Policy`, or build for wasm32-wasip1";
    assert!(error.contains(says), "{error}");
}
