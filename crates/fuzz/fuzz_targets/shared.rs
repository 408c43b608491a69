//! Without a fuzzer it runs the given files: `cargo run --bin shared -- artifacts/shared/crash-*`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| paceline_fuzz::shared(data));

#[cfg(not(fuzzing))]
fn main() -> std::io::Result<()> {
    paceline_fuzz::replay(paceline_fuzz::shared)
}
